//! Forms of headers, kinds of entries, and headers that describe other headers.

use crate::make::{Case, Entry, GNU, OLD, case, end, long, padded, pax, small};

fn one(name: impl Into<String>, entry: Entry) -> Case {
    case(name, &[entry.bytes(), small("g"), end()])
}

fn hello(name: &[u8]) -> Entry {
    Entry::file(name, b"hello")
}

fn dir(name: &[u8]) -> Vec<u8> {
    Entry::new(name, b'5').bytes()
}

/// A label of GNU's format: a name, and fields without anything.
fn label(name: &[u8]) -> Vec<u8> {
    let empty = Entry::new(name, b'V').magic(GNU).devices(b"", b"");
    empty.field(100, 24, b"").field(124, 12, b"").bytes()
}

/// How a stream ends, how numbers and sums are written, whose headers they are.
pub fn headers() -> Vec<Case> {
    let mut cases = ends();
    cases.extend(numbers());
    cases.extend(sums());
    let old_dir = |name: &[u8], kind| Entry::new(name, kind).mode(b"0000755\0").size(1024).bytes();
    cases.extend([
        case("plain", &[small("f"), dir(b"dir/"), small("dir/g"), end()]),
        case(
            "old-dirs",
            &[
                small("a"),
                old_dir(b"one/", b'0'),
                small("b"),
                old_dir(b"two/", 0),
                small("c"),
                old_dir(b"three/", b'7'),
                small("z"),
                end(),
            ],
        ),
        case(
            "v7",
            &[
                hello(b"f").magic(OLD).bytes(),
                Entry::new(b"d/", 0).magic(OLD).mode(b"0000755\0").bytes(),
                Entry::link(b"l", b'2', b"f").magic(OLD).bytes(),
                Entry::link(b"h", b'1', b"f").magic(OLD).bytes(),
                hello(b"d/z").magic(OLD).bytes(),
                end(),
            ],
        ),
        one("v7-device", Entry::new(b"c", b'3').magic(OLD)),
        one("v7-prefix", hello(b"f").magic(OLD).at(345, b"x")),
        case("gnu", &[hello(b"f").magic(GNU).bytes(), Entry::new(b"d/", b'5').magic(GNU).bytes(), end()]),
        one("ustar-prefix", hello(b"name").at(345, b"pre/fix")),
        one("ustar-prefix-slash", hello(b"name").at(345, b"pre/")),
        one("ustar-version", hello(b"f").at(257, b"ustar\0  ").at(345, b"p")),
        one("ustar-blanks", hello(b"f").at(257, b"ustar   ")),
        one("star", hello(b"f").at(345, b"star").at(476, b"00000000007 00000000011 ").at(508, b"tar\0")),
        one("star-without-prefix", hello(b"f").at(476, b"00000000007 00000000011 ").at(508, b"tar\0")),
        one("contiguous", Entry::new(b"f", b'7').with(b"hello")),
        one("zero-kind", Entry::new(b"f", 0).with(b"hello")),
        one("full-name", hello(&[b'n'; 100]).at(345, &[b'p'; 155])),
        one("full-target", Entry::link(b"l", b'2', &[b't'; 100])),
        one("users", hello(b"f").at(265, b"nobody").at(297, b"nogroup")),
    ]);
    cases
}

fn ends() -> Vec<Case> {
    let all = |name, blocks: usize| case(name, &[vec![0; blocks * 512]]);
    vec![
        all("zeros", 20),
        all("two-zeros", 2),
        case("one-zero", &[small("f"), vec![0; 512]]),
        case("no-zero", &[small("f")]),
        case("no-zero-behind-empty", &[small("f"), Entry::new(b"e", b'0').bytes()]),
        case("record", &[small("f"), vec![0; 10_240 - 1024]]),
        case("garbage-behind", &[small("f"), end(), b"garbage".repeat(999)]),
        case("file-behind-zero", &[small("f"), vec![0; 512], small("g"), end()]),
        case("archive-behind", &[small("f"), end(), small("g"), end()]),
        case("label-only", &[label(b"a label"), end()]),
        case("label", &[label(b"a label"), small("f"), end()]),
    ]
}

fn numbers() -> Vec<Case> {
    let binary = |bytes: &[u8]| [&b"\x80"[..], &vec![0; 11 - bytes.len()], bytes].concat();
    let mut cases = Vec::new();
    for (what, at, length) in
        [("mode", 100, 8), ("uid", 108, 8), ("gid", 116, 8), ("mtime", 136, 12), ("major", 329, 8)]
    {
        cases.push(one(format!("zeros-{what}"), hello(b"f").field(at, length, b"")));
        cases.push(one(format!("blanks-{what}"), hello(b"f").at(at, &vec![b' '; length])));
    }
    cases.extend([
        one("zeros-size", Entry::new(b"f", b'0').field(124, 12, b"")),
        one("blanks-size", Entry::new(b"f", b'0').at(124, &[b' '; 12])),
        one("zeros-device", Entry::new(b"f", b'3').devices(b"", b"")),
        one("without-end", hello(b"f").mode(b"00000640").at(108, b"00000012")),
        one("blanks-before", hello(b"f").mode(b"   640 \0").at(108, b"    12 \0").at(136, b"          7 ")),
        one("zeros-behind", hello(b"f").mode(b"640").field(108, 8, b"12")),
        one("binary-ids", hello(b"f").at(108, b"\x80\0\0\0\0\x30\0\0").at(116, b"\x80\0\0\0\0\x40\0\x01")),
        one("binary-time", hello(b"f").at(136, &binary(b"\x03\x04\x05"))),
        one("binary-negative-time", hello(b"f").at(136, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xf6")),
        one("binary-size", hello(b"f").at(124, &binary(b"\x05"))),
        one("binary-device", Entry::new(b"f", b'3').devices(b"\x80\0\0\0\0\0\0\x05", b"\x80\0\0\0\0\x01\0\x07")),
        one("binary-mode", hello(b"f").at(100, b"\x80\0\0\0\0\0\x01\xa4")),
        one("mode-with-type", hello(b"f").mode(b"0100640\0")),
        one("set-ids", hello(b"f").mode(b"0006755\0")),
        one("device-numbers", Entry::new(b"b", b'4').devices(b"0000007\0", b"0377777\0")),
    ]);
    cases
}

fn sums() -> Vec<Case> {
    vec![
        one("unsigned-sum", hello("ä".as_bytes())),
        one("signed-sum", hello("ä".as_bytes()).signed()),
        one("signed-sum-latin", hello(b"\xe4\xf6").signed()),
        one("sum-blanks", hello(b"f").sum(|sum| format!("{sum:7o} "))),
        one("sum-zeros", hello(b"f").sum(|sum| format!("{sum:06o}\0\0"))),
        one("sum-blank-first", hello(b"f").sum(|sum| format!(" {sum:05o}\0 "))),
        one("sum-without-end", hello(b"f").sum(|sum| format!("{sum:08o}"))),
    ]
}

/// What follows entries of each kind, entries of one name, links.
pub fn entries() -> Vec<Case> {
    let mut cases = sizes_without_data();
    cases.extend(names());
    for kind in *b"89abEIJNQWZ" {
        cases.push(one(format!("unknown-{}", char::from(kind)), Entry::new(b"u", kind).with(b"hello")));
        cases.push(one(format!("unknown-empty-{}", char::from(kind)), Entry::new(b"u", kind)));
    }
    let link = |name: &[u8], target: &[u8]| Entry::link(name, b'1', target).bytes();
    let symlink = |name: &[u8], target: &[u8]| Entry::link(name, b'2', target).bytes();
    let dump = Entry::new(b"d/", b'D').magic(GNU).mode(b"0000755\0").with(b"Yf\0Yg\0\0");
    cases.extend([
        case("dumpdir", &[dump.bytes(), hello(b"d/f").magic(GNU).bytes(), end()]),
        case("dup-file", &[small("a"), Entry::file(b"a", b"two").mode(b"0000600\0").bytes(), end()]),
        case("dup-dir", &[dir(b"a/"), small("a/x"), Entry::new(b"a/", b'5').mode(b"0000700\0").bytes(), end()]),
        case("dup-kind", &[small("a"), symlink(b"a", b"b"), end()]),
        case("dup-fifo", &[small("a"), Entry::new(b"a", b'6').bytes(), small("a"), end()]),
        case("file-over-empty-dir", &[dir(b"a/"), small("a"), end()]),
        case("file-over-full-dir", &[dir(b"a/"), small("a/b"), small("a"), end()]),
        case("symlink-over-empty-dir", &[dir(b"a/"), symlink(b"a", b"x"), end()]),
        case("dir-over-file", &[small("a"), dir(b"a/"), small("a/b"), end()]),
        case("dir-over-symlink", &[dir(b"d/"), symlink(b"a", b"d"), dir(b"a/"), small("a/b"), end()]),
        case("dir-over-dangling", &[symlink(b"a", b"nowhere"), dir(b"a/"), small("a/b"), end()]),
        case("below-a-file", &[small("a"), small("a/b"), end()]),
        case(
            "dir-again-as-old",
            &[dir(b"a/"), small("a/b"), Entry::new(b"a/", b'0').mode(b"0000700\0").bytes(), end()],
        ),
        case("dup-linked", &[small("a"), link(b"h", b"a"), Entry::file(b"a", b"two").bytes(), end()]),
        case("link-to-symlink", &[symlink(b"l", b"x"), link(b"h", b"l"), end()]),
        case("link-chain", &[small("a"), link(b"b", b"a"), link(b"c", b"b"), end()]),
        case("link-over-file", &[small("a"), Entry::file(b"b", b"other").bytes(), link(b"b", b"a"), end()]),
        case("link-dots", &[small("./a"), link(b"./h", b"./a"), end()]),
        case("link-to-fifo", &[Entry::new(b"p", b'6').bytes(), link(b"h", b"p"), end()]),
        case("link-missing", &[link(b"h", b"a"), end()]),
        case("link-to-later", &[link(b"h", b"a"), small("a"), end()]),
        case(
            "devices",
            &[
                Entry::new(b"c", b'3').devices(b"0000001\0", b"0000003\0").bytes(),
                Entry::new(b"p", b'6').bytes(),
                end(),
            ],
        ),
        case("missing-dirs", &[small("x/y/z"), end()]),
        case("dir-behind", &[small("x/y"), Entry::new(b"x/", b'5').mode(b"0000700\0").bytes(), end()]),
        case("dir-without-rights", &[Entry::new(b"x/", b'5').mode(b"0000000\0").bytes(), small("x/y"), end()]),
    ]);
    cases
}

/// A size where no data can follow, in headers of three programs.
fn sizes_without_data() -> Vec<Case> {
    let mut cases = Vec::new();
    for (form, magic) in [("", &b"ustar\x0000"[..]), ("gnu-", GNU), ("v7-", OLD)] {
        for kind in *b"123456" {
            let name: &[u8] = if kind == b'5' { b"e/" } else { b"e" };
            let first = hello(b"first").magic(magic).bytes();
            let entry = Entry::link(name, kind, b"first").magic(magic).mode(b"0000755\0").size(1024).bytes();
            let last = hello(b"last").magic(magic).bytes();
            cases.push(case(format!("{form}size-type-{}", char::from(kind)), &[first, entry, last, end()]));
        }
    }
    cases
}

fn names() -> Vec<Case> {
    let link = |name: &[u8], kind, target: &[u8]| Entry::link(name, kind, target).bytes();
    let root = Entry::new(b"./", b'5').mode(b"0000711\0").at(108, b"0000005\0");
    vec![
        case("dots", &[dir(b"./"), small("./a"), dir(b"././b/"), small("./b/./c"), small("b//d"), end()]),
        case("root-attributes", &[root.bytes(), small("./a"), end()]),
        case("root-dot", &[dir(b"."), small("a"), end()]),
        case("absolute", &[small("/abs"), link(b"l", b'2', b"/abs"), link(b"h", b'1', b"/abs"), end()]),
        case("absolute-twice", &[small("//abs"), dir(b"/d/"), end()]),
        case("leads-out", &[small("../up"), end()]),
        case("leads-out-within", &[dir(b"a/"), small("a/../b"), end()]),
        case("dots-in-names", &[small("..a"), small("b.."), small("..."), end()]),
        case("symlink-slash", &[link(b"l/", b'2', b"x"), end()]),
        case("symlink-out", &[link(b"l", b'2', b"../../x"), end()]),
        case("fifo-slash", &[Entry::new(b"p/", b'6').bytes(), end()]),
        case("dir-without-slash", &[dir(b"d"), small("d/f"), end()]),
        case("backslash", &[small("a\\b"), Entry::file(b"c\\d", b"x").at(345, b"p").bytes(), end()]),
        case("control", &[small("a\nb"), small("c\td"), end()]),
    ]
}

/// Long names, PAX records, global headers, what is around them.
pub fn extensions() -> Vec<Case> {
    let mut cases = records();
    let gnu = |entry: Entry| entry.magic(GNU).bytes();
    let name = [&[b'd'; 120][..], b"/", &[b'n'; 150]].concat();
    let long_dir = Entry::new(b"x", b'0').magic(GNU).mode(b"0000755\0").size(1024).bytes();
    let unended = Entry::new(b"././@LongLink", b'L').magic(GNU);
    cases.extend([
        case(
            "gnu-long",
            &[
                long(b'L', &name),
                gnu(hello(b"short")),
                long(b'K', &[b't'; 200]),
                gnu(Entry::link(b"l", b'2', b"x")),
                long(b'K', &name),
                gnu(Entry::link(b"h", b'1', b"x")),
                end(),
            ],
        ),
        case(
            "gnu-long-both",
            &[long(b'K', &[b't'; 200]), long(b'L', &[b'n'; 200]), gnu(Entry::link(b"l", b'2', b"x")), end()],
        ),
        case("gnu-long-dir", &[long(b'L', &[&[b'n'; 120][..], b"/"].concat()), long_dir, small("g"), end()]),
        case("gnu-long-unended", &[unended.clone().with(&[b'n'; 120]).bytes(), gnu(hello(b"f")), end()]),
        case("gnu-long-with-zero", &[unended.with(b"abc\0def\0\0").bytes(), gnu(hello(b"f")), end()]),
        case("x-then-L", &[pax(b'x', &[("path", b"by-pax")]), long(b'L', b"by-L"), small("f"), end()]),
        case("git-empty", &[pax(b'g', &[("comment", &[b'0'; 40])]), end()]),
        case("git-empty-without-end", &[pax(b'g', &[("comment", &[b'0'; 40])])]),
        case(
            "global-comment",
            &[pax(b'g', &[("comment", b"x")]), small("f"), pax(b'g', &[("comment", b"y")]), small("g"), end()],
        ),
        case("global-last", &[small("f"), pax(b'g', &[("comment", b"x")]), end()]),
        case("global-label", &[pax(b'g', &[("GNU.volume.label", b"a label")]), small("f"), end()]),
        case("solaris", &[pax(b'X', &[("path", b"long")]), small("f"), end()]),
        case("pax-empty", &[Entry::new(b"PaxHeader", b'x').bytes(), small("f"), end()]),
        case(
            "link-with-records",
            &[small("a"), pax(b'x', &[("mtime", b"5")]), Entry::link(b"h", b'1', b"a").bytes(), small("b"), end()],
        ),
        case(
            "old-dir-by-record",
            &[
                pax(b'x', &[("path", b"dir/")]),
                Entry::new(b"x", b'0').mode(b"0000755\0").size(512).bytes(),
                small("g"),
                end(),
            ],
        ),
    ]);
    cases
}

fn records() -> Vec<Case> {
    let with = |name: &str, records: &[(&str, &[u8])]| case(name, &[pax(b'x', records), small("f"), small("g"), end()]);
    let of = |name: &str, records: &[(&str, &[u8])], entry: Entry| {
        case(name, &[pax(b'x', records), entry.bytes(), small("g"), end()])
    };
    let acl = b"user::rw-,user:7:r--,group::r--,mask::r--,other::r--";
    let default = b"user::rwx,user:7:r-x,group::r-x,mask::r-x,other::r-x";
    vec![
        with("pax-path", &[("path", b"a/b")]),
        with("pax-newline", &[("path", b"new\nline"), ("SCHILY.xattr.user.v", b"a\nb\n"), ("comment", b"x\n5 a=\n")]),
        with("pax-binary", &[("hdrcharset", b"BINARY"), ("path", b"caf\xe9")]),
        of("pax-size", &[("size", b"5")], Entry::new(b"f", b'0').followed_by(&padded(b"hello"))),
        of("pax-size-of-dir", &[("size", b"0")], Entry::new(b"d/", b'5')),
        with("pax-empty-comment", &[("comment", b"")]),
        with("pax-empty-path", &[("path", b"")]),
        with("pax-ids", &[("uid", b"3000000000"), ("gid", b"7"), ("mtime", b"5.25"), ("atime", b"9.125")]),
        with("pax-negative", &[("mtime", b"-5")]),
        with("pax-long-fraction", &[("mtime", b"5.1234567891234")]),
        with("pax-dot", &[("mtime", b"5.")]),
        with("pax-zero-in-path", &[("path", b"ab\0cd")]),
        with("pax-twice", &[("path", b"one"), ("path", b"two")]),
        with(
            "pax-xattrs",
            &[("SCHILY.xattr.user.a", b"1"), ("SCHILY.xattr.user.b", b"\0bin"), ("SCHILY.xattr.user.c", b"")],
        ),
        with("pax-both-xattrs", &[("LIBARCHIVE.xattr.user.a", b"aGk"), ("SCHILY.xattr.user.a", b"hi")]),
        of("pax-xattr-dir", &[("SCHILY.xattr.user.a", b"1")], Entry::new(b"d/", b'5')),
        of("pax-target", &[("linkpath", b"other")], Entry::link(b"l", b'2', b"x")),
        of("pax-long-target", &[("linkpath", &[b't'; 900])], Entry::link(b"l", b'2', b"x")),
        with(
            "pax-unknown",
            &[("VENDOR.thing", b"1"), ("SCHILY.fflags", b""), ("SCHILY.dev", b"1"), ("SCHILY.ino", b"7")],
        ),
        with("pax-names", &[("uname", b"nobody"), ("gname", b"nogroup")]),
        with("acl", &[("SCHILY.acl.access", acl)]),
        with("acl-with-number", &[("SCHILY.acl.access", b"user::rw-,user:root:r--:0,group::r--,mask::r--,other::r--")]),
        of("acl-default", &[("SCHILY.acl.default", default)], Entry::new(b"d/", b'5')),
    ]
}

/// An archive, with the exit code and a part of the message.
type Told = (Vec<u8>, (i32, &'static str));

/// What is told, or refused by name.
pub fn told() -> Vec<Told> {
    let all = |parts: &[Vec<u8>]| parts.concat();
    let solaris = Entry::new(b"acl", b'A').with(b"1000001\0user::rw-").bytes();
    vec![
        (all(&[small("f")]), (0, "1 archive has no end mark")),
        (all(&[Entry::new(b"u", b'Q').with(b"x").bytes(), end()]), (0, "1 file was taken as regular")),
        (
            all(&[Entry::new(b"u", b'M').magic(GNU).with(b"x").bytes(), end()]),
            (5, "in u: the tar stream is damaged at byte 512: a file that began in another volume"),
        ),
        (all(&[solaris, small("f"), end()]), (9, "an ACL of Solaris")),
        (all(&[hello(b"f").mode(b"000648\0").bytes(), end()]), (5, "a header with a wrong mode")),
        (all(&[hello(b"f").at(124, b"-0000000001\0").bytes(), end()]), (5, "a header with a wrong size")),
        (all(&[pax(b'x', &[("path", b"one")]), end()]), (5, "no header where one belongs")),
        (
            all(&[pax(b'g', &[("GNU.sparse.map", b"0,1")]), small("f"), end()]),
            (5, "a map of a sparse file in a global"),
        ),
        (all(&[small("../up"), end()]), (5, "leads out of the tree")),
        (all(&[Entry::link(b"h", b'1', b"a").bytes(), end()]), (1, "no such file")),
        (Vec::new(), (5, "cut short")),
    ]
}

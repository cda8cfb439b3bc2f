//! `ls` and `stat` of several files, whole trees and inode numbers, compared with GNU's ls on the kernel's mount.

mod common;

use common::{fails, image, ok, with_input};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use xfskit_testkit::{Scratch, kernel_mount, scratch};

fn prepared() -> (Scratch, PathBuf) {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir -p IMAGE /a/b/c /a/.hidden /z", &image);
    ok("touch IMAGE /.dot /file /a/b/inner /z/last", &image);
    ok("ln -s IMAGE a /link", &image);
    ok("mknod IMAGE /z/pipe p", &image);
    for (name, bytes) in [("/a/1", 1), ("/a/1023", 1023), ("/a/1025", 1025), ("/a/10241", 10241), ("/a/2m", 2 << 20)] {
        assert!(with_input(&format!("write IMAGE {name}"), &image, &vec![7; bytes]).status.success());
    }
    for (name, time) in [("/a/1", 3), ("/a/1023", 1), ("/a/1025", 2), ("/a/10241", 1), ("/a/2m", 9), ("/a/b", 5)] {
        ok(&format!("touch IMAGE {name} -d @{time}"), &image);
    }
    ok("chmod IMAGE 755 /a/1", &image);
    (scratch, image)
}

fn number(image: &Path, path: &str) -> u64 {
    let stat: Value = serde_json::from_str(&ok(&format!("--json stat IMAGE {path}"), image)).unwrap();
    stat["inode"].as_u64().unwrap()
}

#[test]
fn lists_are_those_of_ls() {
    let (_scratch, image) = prepared();
    let Some(kernel) = kernel_mount(&image) else { return };
    let theirs = |options: &str| {
        let arguments =
            options.split(' ').map(|word| word.strip_prefix('/').map_or(word.to_owned(), |p| format!("./{p}")));
        let mut ls = Command::new("ls");
        let output = ls.args(arguments).env("LC_ALL", "C").current_dir(kernel.path()).output().unwrap();
        assert!(output.status.success());
        // In GNU's output the root is a dot, with which all names below it begin.
        String::from_utf8(output.stdout).unwrap().replace("./", "/").replace(".:\n", "/:\n")
    };
    // xfskit shows names that begin with a dot without -a.
    for (ours, options) in [
        ("-a IMAGE /a", "-1a /a"),
        ("-aR IMAGE /a", "-1aR /a"),
        ("-R IMAGE /a /z", "-1AR /a /z"),
        ("-aR IMAGE", "-1aR ."),
        ("IMAGE /z /file /a/b /a/1", "-1A /z /file /a/b /a/1"),
        ("-d IMAGE /z /file /a", "-1d /z /file /a"),
        ("IMAGE /link", "-1d /link"),
        ("-1t IMAGE /a", "-1At /a"),
        ("-tr IMAGE /a", "-1Atr /a"),
        ("-ta IMAGE /a", "-1at /a"),
        ("-S IMAGE /a", "-1AS /a"),
        ("-Sr IMAGE /a", "-1ASr /a"),
        ("-tS IMAGE /a", "-1AtS /a"),
        ("-St IMAGE /a", "-1ASt /a"),
        ("-rA IMAGE /a", "-1Ar /a"),
        ("-ar IMAGE /a", "-1ar /a"),
        ("-F IMAGE /a", "-1AF /a"),
        ("-F IMAGE /z", "-1AF /z"),
        ("-dF IMAGE /link /z/pipe", "-1dF /link /z/pipe"),
    ] {
        assert_eq!(sorted_operands(&ok(&format!("ls {ours}"), &image)), sorted_operands(&theirs(options)), "{ours}");
    }
    let column = |text: &str, at: usize| -> Vec<(String, String)> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines = text.lines().map(words).filter(|words| words.len() > at && words[0] != "total");
        lines.map(|words| (words[at].clone(), words.last().unwrap().clone())).collect()
    };
    let files = "/a/1 /a/1023 /a/1025 /a/10241 /a/2m";
    let ours = ok(&format!("ls -lh IMAGE {files}"), &image);
    assert_eq!(column(&ours, 4), column(&theirs(&format!("-lUh {files}")), 4));
    // Operands are sorted by what is asked for, too.
    assert_eq!(ok(&format!("ls -S IMAGE {files}"), &image), theirs(&format!("-1S {files}")));
    assert_eq!(ok(&format!("ls -tr IMAGE {files}"), &image), theirs(&format!("-1tr {files}")));
    assert_eq!(column(&ok("ls -n IMAGE /a", &image), 3), column(&theirs("-nA /a"), 3));
    kernel.unmount();
}

/// GNU's ls sorts its operands; xfskit lists them in the given order.
fn sorted_operands(text: &str) -> Vec<String> {
    let mut blocks: Vec<String> = text.split("\n\n").map(|block| block.trim_end().to_owned()).collect();
    if blocks.len() > 1 || !text.contains(":\n") {
        blocks.iter_mut().filter(|block| !block.contains(":\n")).for_each(|block| {
            let mut lines: Vec<&str> = block.lines().collect();
            lines.sort_unstable();
            *block = lines.join("\n");
        });
        blocks.sort_unstable();
    }
    blocks
}

/// Whatever a name is made of, members of JSON have one type; and the bytes of a name that is no text are there, too.
#[test]
fn names_in_json_have_one_type() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let scratch = scratch();
    let image = scratch.path().join(OsStr::from_bytes(b"i\xff.img"));
    ok("mkfs IMAGE --small --size 64M -q", &image);
    let path = OsStr::from_bytes(b"/\xfe").to_owned();
    let run = |words: &[&OsStr]| {
        let output = common::xfskit(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        output.stdout
    };
    let word = OsStr::new;
    run(&[word("touch"), image.as_os_str(), &path]);
    run(&[word("ln"), image.as_os_str(), &path, word("/text")]);
    run(&[word("xattr"), word("set"), image.as_os_str(), &path, word("user.text"), word("1")]);
    let json = |line: &str| -> Value { serde_json::from_str(&ok(line, &image)).unwrap() };
    let paths =
        [serde_json::json!({ "path": "/text" }), serde_json::json!({ "path": "/\u{fffd}", "path_base64": "L/4=" })];
    let sorted = |list: &Value| {
        let mut list = list.as_array().unwrap().clone();
        list.sort_by_key(ToString::to_string);
        list
    };
    assert_eq!(sorted(&json("--json parents IMAGE /text")["paths"]), paths);
    assert_eq!(sorted(&json(&format!("--json path IMAGE {}", number(&image, "/text")))), paths);
    assert_eq!(json("--json xattr list IMAGE /text"), serde_json::json!([{ "name": "user.text" }]));
    let df = json("--json df IMAGE");
    let bytes = common::disks::run_with(
        "sh",
        &["-c", "base64 -d | od -An -tx1 | tr -d ' \\n'"],
        df["image_base64"].as_str().unwrap(),
    );
    let hex: String = image.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(bytes, hex);
    assert!(df["image"].as_str().unwrap().ends_with("i\u{fffd}.img"), "{df}");
}

#[test]
fn several_files_are_shown_and_an_error_hides_no_other() {
    let (_scratch, image) = prepared();
    let both: Value = serde_json::from_str(&ok("--json stat IMAGE /file /z", &image)).unwrap();
    assert_eq!((&both[0]["path"], &both[1]["path"]), (&"/file".into(), &"/z".into()));
    assert_eq!(both[1]["type"], "directory");
    assert!(ok("--json stat IMAGE /file", &image).starts_with('{'));
    for command in ["stat", "ls -d", "--json stat", "--json ls -d"] {
        let output = common::xfskit(common::words(&format!("{command} IMAGE /file /missing /z"), &image));
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(
            out.contains("/file") && out.contains("/z") && error.contains("/missing: no such file"),
            "{out}{error}"
        );
    }
    let lines: Vec<Value> =
        ok("--json ls -R IMAGE /a", &image).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let paths: Vec<&str> = lines.iter().map(|line| line["path"].as_str().unwrap()).collect();
    let expected = ["/a/.hidden", "/a/1", "/a/1023", "/a/10241", "/a/1025", "/a/2m", "/a/b", "/a/b/c", "/a/b/inner"];
    assert_eq!(paths, expected);
}

/// `check`, the kernel's log and xfs_db report inode numbers.
#[test]
fn an_inode_number_is_an_operand() {
    let (_scratch, image) = prepared();
    let (file, dir) = (number(&image, "/a/1"), number(&image, "/a/b"));
    assert!(ok(&format!("stat IMAGE inode:{file}"), &image).contains(&format!("inode:      {file} ")));
    assert_eq!(ok(&format!("ls IMAGE inode:{dir}"), &image), "c\ninner\n");
    assert_eq!(ok(&format!("cat IMAGE inode:{file}"), &image), "\u{7}");
    assert_eq!(ok(&format!("parents IMAGE inode:{file}"), &image), "/a/1\n");
    ok(&format!("xattr set IMAGE inode:{file} user.n 1"), &image);
    ok(&format!("chmod IMAGE 600 inode:{file}"), &image);
    assert!(ok("xattr list IMAGE /a/1", &image).contains("user.n") && ok("stat IMAGE /a/1", &image).contains("0600"));
    // Numbers of no inode, of a free one, and beyond all inodes.
    for none in [0, file + 40, u64::MAX] {
        let (code, message) = fails(&format!("stat IMAGE inode:{none}"), &image);
        assert!(code == 1 && message.contains("stale inode"), "{message}");
    }
    assert_eq!(fails("stat IMAGE inode:x", &image).0, 1);
    // A file whose name looks like this is reached by a path.
    ok(&format!("touch IMAGE /inode:{dir}"), &image);
    assert!(ok(&format!("stat IMAGE /inode:{dir}"), &image).contains("type:       file"));
    assert!(ok(&format!("stat IMAGE inode:{dir}"), &image).contains("type:       directory"));
}

const ZONES: [&str; 5] = ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "EST5EDT"];

/// In a zone: how `date` shows a date, and the time of a file that was touched with that date.
fn both_read(zone: &str, date: &str, image: &Path) -> (String, String) {
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        let output = Command::new(program).args(arguments).env("TZ", zone).env("LC_ALL", "C").output().unwrap();
        assert!(output.status.success(), "{zone} {date}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let own = env!("CARGO_BIN_EXE_xfskit");
    let (image, path) = (image.as_os_str(), std::ffi::OsStr::new("/file"));
    run(own, &["touch".as_ref(), image, path, "-d".as_ref(), date.as_ref()]);
    let stat = run(own, &["stat".as_ref(), image, path]);
    let ours = stat.lines().find_map(|line| line.strip_prefix("modified:   ")).unwrap();
    let list = run(own, &["ls".as_ref(), "-l".as_ref(), image, path]);
    let short = [&ours[..19], &ours[29..]].concat();
    assert!(list.contains(&format!(" {short} /file")), "{list} {short}");
    let theirs = run("date", &["-d".as_ref(), date.as_ref(), "+%Y-%m-%d %H:%M:%S.%N %z".as_ref()]);
    (ours.to_owned(), theirs.trim_end().to_owned())
}

/// Dates, times and zones, not only seconds.
#[test]
fn dates_are_read_and_shown_as_by_gnu_date() {
    let (_scratch, image) = prepared();
    if !Path::new("/usr/share/zoneinfo/Europe/Berlin").exists() {
        return xfskit_testkit::skip("this machine has no zones");
    }
    for zone in ZONES {
        for date in [
            "@0",
            "@1700000000.25",
            "@-86400",
            "2026-01-31",
            "2026-07-31 12:34",
            "2026-07-31 12:34:56",
            "2026-07-31T12:34:56.000000789",
            "2026-01-31 12:00:00 +0100",
            "2026-01-31 12:00:00.5 -03:30",
            "2026-01-31 12:00:00Z",
            "2026-07-31 12:00:00 UTC",
            "1969-12-31 23:59:59",
            "2400-02-29 01:02:03",
        ] {
            let (ours, theirs) = both_read(zone, date, &image);
            assert_eq!(ours, theirs, "{zone} {date}");
        }
    }
    // JSON is for programs, and always in UTC.
    ok("touch IMAGE /file -d 2026-07-31T12:00:00+02:00", &image);
    assert!(ok("--json stat IMAGE /file", &image).contains("\"mtime\": \"2026-07-31T10:00:00.000000000Z\""));
    assert_eq!(fails("touch IMAGE /file -d tomorrow", &image).0, 2);
}

#[test]
fn a_link_takes_a_name_with_force_only() {
    let (_scratch, image) = prepared();
    let tree = |image: &Path| ok("ls -aiR IMAGE", image);
    let before = tree(&image);
    for line in ["ln IMAGE /a/1 /file", "ln -s IMAGE x /file", "ln -f IMAGE /a/1 /z", "ln -sf IMAGE x /z"] {
        assert_eq!(fails(line, &image).0, 1, "{line}");
        assert_eq!(tree(&image), before, "{line}");
    }
    assert_eq!(fails("ln -f IMAGE /missing /file", &image).0, 1);
    assert_eq!(tree(&image), before);
    ok("touch IMAGE /z/.xfskit-ln-0", &image);
    ok("ln -f IMAGE /a/1 /file", &image);
    assert_eq!(number(&image, "/file"), number(&image, "/a/1"));
    ok("ln -f IMAGE /a/1 /file", &image);
    ok("ln -sf IMAGE over /z/last", &image);
    ok("ln -sf IMAGE again /z/last", &image);
    ok("ln -sf IMAGE new /z/new", &image);
    assert_eq!(ok("readlink IMAGE /z/last", &image), "again\n");
    assert_eq!(ok("ls IMAGE /z", &image), ".xfskit-ln-0\nlast\nnew\npipe\n");
    ok("check IMAGE", &image);
}

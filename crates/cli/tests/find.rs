//! `find`, compared with GNU's find on the kernel's mount.

mod common;

use common::trees::{is_root, run};
use common::{fails, image, ok, with_input, words, xfskit};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};
use xfskit_testkit::{kernel_mount, scratch, skip};

/// Files of all kinds, sizes, owners, modes and ages. In expressions `@` before a path stands for the mount, where
/// GNU's find has it.
fn prepare(image: &Path) {
    ok("mkdir -p IMAGE /etc/conf.d /home/a/deep/er /var /empty.d", image);
    ok("touch IMAGE /etc/a.conf /etc/b.CONF /etc/conf.d/[x].conf /home/a/.profile -d @1000000000", image);
    ok("touch IMAGE /home/a/later /home/a/deep/er/later -d @1500000000", image);
    ok("ln -s IMAGE ../etc /home/link.conf", image);
    ok("ln -s IMAGE nowhere /home/broken", image);
    ok("ln -s IMAGE a/1 /home/to-a-file", image);
    ok("mknod IMAGE /var/pipe p", image);
    ok("mknod IMAGE /var/socket s", image);
    ok("mknod IMAGE /var/null c 1 3", image);
    ok("mknod IMAGE /var/loop b 7 0", image);
    for bytes in [1, 511, 512, 513, 1024, 1025, 3 << 20] {
        let made = with_input(&format!("write IMAGE /home/a/{bytes}"), image, &vec![1; bytes]);
        assert!(made.status.success());
        ok(&format!("touch IMAGE /home/a/{bytes} -d @1200000000"), image);
    }
    assert!(with_input("write IMAGE /var/sparse --offset 1M", image, b"end").status.success());
    for name in [&b"bytes-\xff\xfe"[..], "grün".as_bytes(), b"two\nlines", b"spa ce"] {
        let path = OsStr::from_bytes(&[b"/home/", name].concat()).to_owned();
        assert!(xfskit([OsStr::new("touch"), image.as_os_str(), &path]).status.success());
    }
    ok("ln IMAGE /home/a/513 /home/a/second", image);
    for (mode, path) in [("4755", "/home/a/1"), ("600", "/home/a/511"), ("664", "/etc/a.conf"), ("0", "/etc/b.CONF")] {
        ok(&format!("chmod IMAGE {mode} {path}"), image);
    }
    ok("chmod IMAGE 1777 /empty.d", image);
    ok("chown IMAGE 1:1 /home/a/1 /home/a/511", image);
    ok("chown IMAGE 54321:12345 /home/a/512", image);
    for list in ["/etc/passwd", "/etc/group"] {
        assert!(with_input(&format!("write IMAGE {list}"), image, &fs::read(list).unwrap()).status.success());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for hours in [1, 23, 25, 47, 49, 71] {
        ok(&format!("touch IMAGE /var/{hours}h -d @{}", now - hours * 3600), image);
    }
    // Far enough from whole minutes for tests that take some seconds.
    for minutes in 1..5 {
        ok(&format!("touch IMAGE /var/{minutes}m -d @{}", now - minutes * 60 + 35), image);
    }
    ok("xattr set IMAGE /etc/a.conf user.one 1", image);
    ok("xattr set IMAGE /var security.selinux label", image);
}

/// The words of a line: GNU's, with the mount before paths, and ours.
fn both(line: &str, mount: &Path) -> (Vec<String>, Vec<String>) {
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let theirs = words.iter().map(|word| word.replace('@', mount.to_str().unwrap()).replace('~', "@"));
    (theirs.collect(), words.iter().map(|word| word.replace('@', "").replace('~', "@")).collect())
}

fn find(line: &[String], image: &Path) -> Output {
    let mut arguments: Vec<OsString> = vec!["find".into(), image.into()];
    arguments.extend(line.iter().map(OsString::from));
    let output = Command::new(env!("CARGO_BIN_EXE_xfskit")).args(arguments).env("TZ", "Asia/Kathmandu").output();
    output.unwrap()
}

fn gnu(line: &[String]) -> Output {
    run(Command::new("find").args(line).env("LC_ALL", "C.UTF-8").env("TZ", "Asia/Kathmandu"))
}

/// What GNU's find prints, with paths as they are in the image, cut at each `end` and sorted.
fn pieces(output: &[u8], end: u8, mount: &Path) -> Vec<Vec<u8>> {
    let mount = mount.as_os_str().as_bytes();
    let mut pieces: Vec<Vec<u8>> = output
        .split(|&byte| byte == end)
        .filter(|piece| !piece.is_empty())
        .map(|piece| {
            let mut piece = piece.to_vec();
            while let Some(at) = piece.windows(mount.len()).position(|window| window == mount) {
                piece.drain(at..at + mount.len());
            }
            piece
        })
        .collect();
    pieces.sort();
    pieces
}

fn shown(pieces: &[Vec<u8>]) -> String {
    pieces.iter().map(|piece| String::from_utf8_lossy(piece).into_owned() + "\n").collect()
}

/// Expressions that print paths with a zero byte behind each.
const PATHS: &[&str] = &[
    "",
    "-name *.conf",
    "-name *.[cC][oO]*",
    "-name .*",
    "-name [[]x]*",
    "-name gr?n",
    "-name \\*",
    "-name etc",
    "-iname *.CONF",
    "-iname [A-F]*",
    "-iname [!A-F]*.c?nf",
    "-iname GRÜN",
    "-name *f -name a*",
    "-path @/home/*",
    "-wholename @/*/a/*",
    "-ipath @/HOME*1",
    "-lname *etc",
    "-ilname NOW*",
    "-type f",
    "-type d",
    "-type l,p,s",
    "-type b,c",
    "-xtype f",
    "-xtype d,l",
    "-size 1",
    "-size +1",
    "-size -2",
    "-size +1k",
    "-size 1025c",
    "-size 2w",
    "-size -3M",
    "-size 3M -type f",
    "-empty",
    "-type d -empty",
    "-perm 644",
    "-perm u=rw,go=r",
    "-perm -u+w,g+w",
    "-perm -222",
    "-perm /222",
    "-perm /u+s,o+t",
    "-perm -4000",
    "-perm /000",
    "! -perm /777",
    "-user root",
    "-user daemon",
    "-group daemon -o -group 12345",
    "-user 54321",
    "-uid +0",
    "-uid -2 -gid +0",
    "-uid 54321",
    "-nouser",
    "-nogroup -type f",
    "-links 2 -type f",
    "-links +2",
    "-samefile @/home/a/513",
    "-newer @/home/a/1",
    "-newer @/home/a/1 -not -newer @/home/a/later",
    "-anewer @/home/a/later -type f",
    "-cnewer @/home/a/later -type f",
    "-newermm @/home/a/1",
    "-newercm @/home/a/1 -type f",
    "-newermc @/home/a/1 -type f",
    "-newermt ~1200000000",
    "-newermt 2010-01-01 -type f",
    "-newerct 2010-01-01 -type f",
    "-mtime 0 -name *h",
    "-mtime 1 -name *h",
    "-mtime +1 -name *h",
    "-mtime +0 -name *h",
    "-mtime -2 -name *h",
    "-mtime 0.5 -name *h",
    "-mtime -1.5 -name *h",
    "-mtime +5000",
    "-ctime 0 -type f",
    "-ctime +0",
    "-daystart -mtime 0 -name *h",
    "-daystart -mtime 1 -name *h",
    "-daystart -mtime +1 -name *h",
    "-daystart -mtime -3 -name *h",
    "-daystart -mmin -2000 -name *h",
    "-mtime 1 -daystart -name *h",
    "-mmin 2 -name *m",
    "-mmin +2 -name *m",
    "-mmin -2 -name *m",
    "-mmin 1.5 -name *m",
    "-cmin -60 -type l",
    "-true",
    "-false",
    "! -type f",
    "-not ! -type f",
    "! ! ! -type d",
    "-type f -o -type d",
    "-type f -and -name a* -or -type d -a -name e*",
    "( -type f -o -type d ) -name *.*",
    "-not ( -type f -o -type d )",
    "-type f , -type d",
    "-false , -name 1",
    "-name 1 -o ( -name 2 , -name 51* )",
    "-maxdepth 0",
    "-maxdepth 1",
    "-mindepth 2",
    "-mindepth 1 -maxdepth 2 -type d",
    "-name a -maxdepth 1",
    "-mindepth 9",
    "-name a -prune",
    "-name a -prune -o -type f",
    "-type d -name conf.d -prune -o -name *conf",
    "-depth -name a -prune",
    "-prune",
    "-mindepth 1 -prune",
    "-xdev -type d",
    "-mount -noleaf -type d",
    "-depth -maxdepth 2",
    "-depth -mindepth 2 -maxdepth 2",
];

/// Expressions with actions of their own, whose output is compared line by line.
const LINES: &[&str] = &[
    "-name a -print",
    "-name a -print -print",
    "-name a -print -o -name 1 -print",
    "-name a -prune -o -type f -print",
    "! -name a* -prune -print",
    "-type d -print -false -o -name 1 -print",
    "-type d , -name 1 -print",
    "-name 1 -printf %p\\n -o -type d -printf %p/\\n",
    "-name [0-9]* -printf %p|%P|%f|%h|%H|%d\\n",
    "-printf %d|%y|%Y|%l|%P\\n ! -name two*",
    "-type f -printf %s|%b|%k|%S\\n",
    "-printf %m|%#m|%05m|%M|%n|%i\\n",
    "-printf %u|%U|%g|%G|%F\\n",
    "-name [0-9]* -printf %-12f|%12f|%.2f|%8.3f|%-6.1f|\\n",
    "-name [0-9]* -printf [%5s][%-5s][%05s][%3d][%+d]\\n",
    "-name [0-9]* -printf [%05k][%.3d][%.5m][%05d][%-05d][%+05d][%05.3d][%+s]\\n",
    "-name [0-9]* -printf 100%%\\t\\101\\0601%f\\\\\\n",
    "-name [0-9]* -printf %f\\n\\c%p",
    "-name 1* -printf %t|%T~|%TY-%Tm-%Td|%TH:%TM:%TS|%T+|%Tc|%TZ|%Tz\\n",
    "-name 1* -printf %Ta|%TA|%Tb|%TB|%TC|%TD|%Te|%TF|%Tg|%TG|%Th|%TI|%Tj|%Tk|%Tl\\n",
    "-name 1* -printf %Tp|%Tr|%TR|%Ts|%TT|%Tu|%TU|%TV|%Tw|%TW|%Tx|%TX|%Ty\\n",
    "-type f -printf %c|%C~|%CY\\n",
    "-type f -printf %a|%A~|%AY\\n",
    "@/home/a -name deep -print",
    "@/home/a/ -mindepth 1 -maxdepth 1 -printf %p|%P|%f|%h|%H\\n",
    "@/etc @/var -name *l* -print",
    "@/home/link.conf @/etc/a.conf -printf %p|%f|%h|%P|%d\\n",
    "@/etc -maxdepth 0 -printf %f|%P|%d\\n",
    "@/var -type c,b,p,s -ls",
    "-type l -ls",
    "-name *h -ls -o -name 1000 -ls",
    "-type f -size +0 -ls",
    "-name *.conf -exec echo x{}y {} ;",
    "-name *.conf -exec test -n {} ; -print",
    "-name *.conf -exec false ; -o -name 1 -print",
    "-type f ! -exec false {} ; -print",
    "-name *.conf -exec nosuchprogram {} ; -o -name 1 -print",
    "-name *.conf -exec echo {} ; -quit",
];

#[test]
fn it_finds_what_find_does() {
    let scratch = scratch();
    let image = image(&scratch);
    prepare(&image);
    let Some(kernel) = kernel_mount(&image) else { return };
    // Links are what the comparison is about, and reading a directory changes when it was read.
    run(Command::new("mount").args(["-o", "remount,ro"]).arg(kernel.path()));
    let inode: serde_json::Value = serde_json::from_str(&ok("--json stat IMAGE /etc/a.conf", &image)).unwrap();
    let number = inode["inode"].as_u64().unwrap();
    let numbers = [format!("-inum {number}"), format!("-inum +{number}"), format!("-inum -{number} -type d")];
    for tests in PATHS.iter().copied().chain(numbers.iter().map(String::as_str)) {
        // From below the root, whose name is another on a mount.
        let line = format!("@/etc @/home @/var @/empty.d {tests}");
        let needs_action = !tests.contains("-prune") || tests.contains("-o ");
        let line = if needs_action { format!("{line} -print0").replace(", -print0", "-print0") } else { line };
        // -print0 binds to the last part only.
        let (theirs, ours) = both(&grouped(&line), kernel.path());
        let theirs = pieces(&gnu(&theirs).stdout, if needs_action { 0 } else { b'\n' }, kernel.path());
        for ours in [ours.clone(), ours.iter().map(|word| with_two_dashes(word)).collect()] {
            let output = find(&ours, &image);
            assert!(output.status.success(), "{ours:?}: {output:?}");
            let ours_found = pieces(&output.stdout, if needs_action { 0 } else { b'\n' }, Path::new("\0"));
            assert_eq!(shown(&ours_found), shown(&theirs), "{tests}");
        }
    }
    for tests in LINES {
        let line = if tests.starts_with('@') { (*tests).to_owned() } else { format!("@/etc @/home @/var {tests}") };
        let (theirs, ours) = both(&line, kernel.path());
        let (theirs, ours) = (gnu(&theirs), find(&ours, &image));
        assert!(ours.status.success(), "{tests}: {ours:?}");
        // GNU's find shows bytes of names in its own way with -ls, and columns are as wide as needed.
        let is_list = tests.contains("-ls");
        let lines = |output: &[u8], mount: &Path| -> Vec<Vec<u8>> {
            let lines = pieces(output, b'\n', mount).into_iter();
            let words = |line: Vec<u8>| {
                let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
                words.join(&b' ')
            };
            let mut lines: Vec<Vec<u8>> = if is_list { lines.map(words).collect() } else { lines.collect() };
            lines.sort();
            lines
        };
        if tests.contains("-quit") {
            // Which file is the first depends on the order.
            assert_eq!(lines(&ours.stdout, Path::new("\0")).len(), 1, "{tests}");
            assert_eq!(lines(&theirs.stdout, kernel.path()).len(), 1, "{tests}");
            continue;
        }
        assert_eq!(
            shown(&lines(&ours.stdout, Path::new("\0"))),
            shown(&lines(&theirs.stdout, kernel.path())),
            "{tests}"
        );
    }
    kernel.unmount();
}

/// The tests of a line in parentheses, so that `-print0` is for all of them.
fn grouped(line: &str) -> String {
    let Some(all) = line.strip_suffix(" -print0").or(line.strip_suffix("-print0")) else { return line.to_owned() };
    let begin = "@/etc @/home @/var @/empty.d";
    match all.strip_prefix(begin).map(str::trim) {
        Some(tests) if !tests.is_empty() => format!("{begin} ( {tests} ) -print0"),
        _ => line.to_owned(),
    }
}

/// A word of an expression in the form of other options.
fn with_two_dashes(word: &str) -> String {
    let is_word = word.len() > 2 && word.as_bytes()[0] == b'-' && word.as_bytes()[1].is_ascii_lowercase();
    if is_word && word != "-print0" && word != "-u+w,g+w" { format!("-{word}") } else { word.to_owned() }
}

/// Paths in the order in which they are printed: a directory before what is in it, or with `-depth` behind, by name.
#[test]
fn the_order_is_that_of_names() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir -p IMAGE /a/b/c /a/d /e", &image);
    ok("touch IMAGE /a/b/1 /a/z /e/2", &image);
    let lines = |line: &str| ok(line, &image).lines().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(lines("find IMAGE"), "/ /a /a/b /a/b/1 /a/b/c /a/d /a/z /e /e/2");
    assert_eq!(lines("find IMAGE -depth"), "/a/b/1 /a/b/c /a/b /a/d /a/z /a /e/2 /e /");
    assert_eq!(lines("find IMAGE -depth -maxdepth 1"), "/a /e /");
    assert_eq!(lines("find IMAGE -depth -name b -prune -o -print"), "/a/b/1 /a/b/c /a/d /a/z /a /e/2 /e /");
    assert_eq!(lines("find IMAGE -name b -prune -o -print"), "/ /a /a/d /a/z /e /e/2");
    assert_eq!(lines("find IMAGE -name c -quit -o -print"), "/ /a /a/b /a/b/1");
    assert_eq!(lines("find IMAGE /e /a -name d -quit -o -print"), "/e /e/2 /a /a/b /a/b/1 /a/b/c");
    assert_eq!(lines("find IMAGE -quit"), "");
    assert_eq!(lines("find IMAGE -maxdepth 0 -name / -printf %p|%f|%h|%P\\n"), "/|/||");
    // Two dashes: it says how paths are printed, wherever it stands.
    assert_eq!(ok("find IMAGE --print0 --name 1", &image), "/a/b/1\0");
    assert_eq!(ok("find IMAGE --type=d --name=b", &image), "/a/b\n");
    assert_eq!(ok("find IMAGE -name 1 /a", &image), "/a/b/1\n");
    assert_eq!(ok("find -name 1 IMAGE", &image), "/a/b/1\n");
}

#[test]
fn it_begins_at_the_given_path_and_names_what_it_cannot_do() {
    let scratch = scratch();
    let image = image(&scratch);
    prepare(&image);
    assert_eq!(ok("find IMAGE -xattr user.*", &image), "/etc/a.conf\n");
    assert_eq!(ok("find IMAGE -xattr security.selinux -type d", &image), "/var\n");
    assert_eq!(ok("find IMAGE -context lab*", &image), "/var\n");
    assert_eq!(ok("find IMAGE /var -maxdepth 0 -printf %Z\\n", &image), "label\n");
    assert_eq!(ok("--wait 1 find IMAGE /var /etc -name *l*", &image), "/var/loop\n/var/null\n");
    let number: serde_json::Value = serde_json::from_str(&ok("--json stat IMAGE /home", &image)).unwrap();
    let start = format!("inode:{}", number["inode"]);
    // What links lead to is found from a number, too.
    assert_eq!(ok(&format!("find IMAGE {start} -xtype f -type l"), &image), format!("{start}/to-a-file\n"));
    let line = ok("find IMAGE -name a.conf --json", &image);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&value["path"], line.lines().count()), (&"/etc/a.conf".into(), 1));
    assert_eq!(fails("--json find IMAGE -printf %p", &image).0, 2);
    let output = xfskit(words("find IMAGE /missing /etc -name a.conf", &image));
    assert_eq!((output.status.code(), output.stdout), (Some(1), b"/etc/a.conf\n".to_vec()));
    assert_eq!(fails("find IMAGE -newer /missing", &image).0, 1);
    // The tests of `find` are not options of another command.
    assert_eq!(fails("ls IMAGE -name", &image).0, 2);
}

/// Each with the word that the message is about.
#[test]
fn a_wrong_expression_is_refused_with_the_word() {
    let scratch = scratch();
    let image = image(&scratch);
    for (wrong, named) in [
        ("-size 10X", "-size 10X: the units"),
        ("-size +", "-size +: expected"),
        ("-type x", "-type x: expected one of f, d"),
        ("-type f,", "-type f,"),
        ("-inum a", "-inum a: expected a number"),
        ("-newermt never", "-newermt never"),
        ("-newerzt @0", "-newerzt: no test"),
        ("-name [[:alpha:]]", "-name [[:alpha:]]"),
        ("-iname [[:alpha:]]", "classes"),
        ("-mtim 3", "-mtim: no test"),
        ("-mtime x", "-mtime x: expected a number"),
        ("-perm 9", "-perm 9: expected permissions"),
        ("-perm +222", "/222"),
        ("-user", "-user: what is to follow it is missing"),
        ("-user nobody", "no /etc/passwd"),
        ("-maxdepth -1", "-maxdepth -1: expected a number of levels"),
        ("-maxdepth", "-maxdepth: what is to follow"),
        ("-printf %q", "%q: expected one of"),
        ("-printf %Tq", "%T"),
        ("-printf \\q", "\\q"),
        ("-name x b.conf", "b.conf: paths come before"),
        ("( -name x", "without a ')'"),
        ("-name x )", "without a '('"),
        ("( )", "nothing between"),
        ("-o -name x", "-o: a test or an action is missing before it"),
        ("-name x -o", "-o: a test or an action is missing behind it"),
        ("!", "!: a test or an action is missing behind it"),
        (", -name x", ",: a test"),
        ("-exec echo {}", "-exec: the command does not end"),
        ("-exec ;", "-exec: a command is missing"),
        ("-exec {} +", "-exec: a command is missing"),
        ("-exec echo {} x {} +", "one {}"),
        ("-delete", "-delete: not here: find only reads"),
        ("-execdir rm {} ;", "-execdir: not here"),
        ("-ok rm {} ;", "-ok: not here"),
        ("-fprint out", "-fprint: not here"),
        ("-regex .*", "-regex: not here"),
        ("-L", "-L: not here"),
        ("-readable", "-readable: not here"),
        ("-fstype xfs", "-fstype: not here"),
    ] {
        let (code, message) = fails(&format!("find IMAGE {wrong}"), &image);
        assert!(code == 2 && message.contains(named), "{wrong}: {code} {message}");
    }
    let deep = format!("find IMAGE {}-true{}", "( ".repeat(5000), " )".repeat(5000));
    assert_eq!(fails(&deep, &image).0, 2);
    let wide = format!("find IMAGE -maxdepth 0 {}-true", "! ".repeat(50_000));
    assert_eq!(ok(&wide, &image), "/\n");
    // A name that the image's own list does not have, though this host's may.
    assert!(with_input("write IMAGE /passwd", &image, b"someone:x:77:0::/:/bin/sh\n").status.success());
    ok("mkdir IMAGE /etc", &image);
    ok("ln -s IMAGE ../passwd /etc/passwd", &image);
    ok("chown IMAGE 77:77 /passwd", &image);
    assert_eq!(ok("find IMAGE -user someone -printf %u:%g\\n", &image), "someone:77\n");
    assert!(fails("find IMAGE -user root", &image).1.contains("\"root\" is not in the image's /etc/passwd"));
}

/// Arguments that are not cut at spaces; `IMAGE` stands for the image and `XFSKIT` for the program.
fn find_with(image: &Path, words: &[&str]) -> Output {
    let words = words.iter().map(|word| match *word {
        "IMAGE" => image.as_os_str().to_owned(),
        "XFSKIT" => env!("CARGO_BIN_EXE_xfskit").into(),
        word => word.into(),
    });
    xfskit(["find".into(), image.as_os_str().to_owned()].into_iter().chain(words))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn commands_run_for_paths_of_the_image() {
    let scratch = scratch();
    let image = image(&scratch);
    prepare(&image);
    // The image itself, by way of this program; what is printed before a command runs comes before its output.
    let output = find_with(&image, &["/home/a/1", "-print", "-exec", "XFSKIT", "stat", "IMAGE", "{}", ";", "-print"]);
    assert!(output.status.success(), "{output:?}");
    let printed = text(&output);
    assert!(
        printed.starts_with("/home/a/1\npath:       /home/a/1\n") && printed.ends_with("\n/home/a/1\n"),
        "{printed}"
    );
    // Exit codes are those of find(1): a command that fails ends nothing, one with + makes find fail.
    for (end, program, code) in
        [(";", "false", 0), ("+", "false", 1), (";", "nosuchprogram", 0), ("+", "nosuchprogram", 1), ("+", "true", 0)]
    {
        let output = find_with(&image, &["/etc", "-exec", program, "{}", end]);
        assert_eq!(output.status.code(), Some(code), "{program} {end}: {output:?}");
        let theirs = Command::new("find").args(["/etc/passwd", "-exec", program, "{}", end]).output().unwrap();
        assert_eq!(theirs.status.code(), Some(code), "{program} {end}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).contains("nosuchprogram: "), program == "nosuchprogram");
    }
    // The exit code of the search comes first.
    assert_eq!(find_with(&image, &["/missing", "/etc", "-exec", "true", "{}", "+"]).status.code(), Some(1));
    // The other way to name a path of an image, and options of the whole program behind the expression.
    let path = format!("{}:/etc/a.conf", image.display());
    let output = xfskit(["find", &path, "-exec", "echo", "{}", ";", "-quit", "-q", "--wait", "1"]);
    assert_eq!((output.status.code(), text(&output)), (Some(0), "/etc/a.conf\n".to_owned()));
    // Standard input is the command's.
    let fed = with_input("find IMAGE / -maxdepth 0 -exec cat ;", &image, b"fed");
    assert_eq!(fed.stdout, b"fed");
    // With --json, too.
    let output = find_with(&image, &["--json", "/etc/a.conf", "-exec", "echo", "{}", ";", "-print"]);
    assert!(text(&output).starts_with("/etc/a.conf\n{"), "{output:?}");
    // A command with + finds the image closed, and may change it.
    let output = find_with(&image, &["/home/a", "-type", "f", "-exec", "XFSKIT", "rm", "IMAGE", "{}", "+"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(ok("find IMAGE /home/a -type f", &image), "");
    let output = find_with(&image, &["/etc/a.conf", "-exec", "XFSKIT", "rm", "IMAGE", "{}", ";"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("in use"), "{output:?}");
    // The image cannot be opened: no command runs.
    let output = find_with(&scratch.file("missing.img"), &["-exec", "echo", "run", "{}", "+"]);
    assert_eq!((output.status.code(), text(&output)), (Some(6), String::new()));
}

/// More paths than a command takes at a time.
#[test]
fn many_paths_are_given_in_pieces() {
    let scratch = scratch();
    let (image, source) = (scratch.file("a.img"), scratch.file("source"));
    fs::create_dir(&source).unwrap();
    for n in 0..3000 {
        fs::write(source.join(format!("{n:0100}")), "").unwrap();
    }
    ok(&format!("mkfs IMAGE --from {} -q", source.display()), &image);
    let output = find_with(&image, &["-type", "f", "-exec", "sh", "-c", "echo $#; echo \"$@\"", "x", "{}", "+"]);
    let printed = text(&output);
    let counts: Vec<usize> = printed.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(counts.len() > 1 && counts.iter().sum::<usize>() == 3000, "{counts:?}");
    let paths: Vec<&str> =
        printed.lines().filter(|line| line.starts_with('/')).flat_map(|line| line.split(' ')).collect();
    assert_eq!(paths.join("\n") + "\n", ok("find IMAGE -type f", &image));
    let both = ["-type", "f", "-name", "*7", "-exec", "echo", "a", "{}", "+", "-exec", "echo", "b", "{}", "+"];
    let printed = text(&find_with(&image, &both));
    assert_eq!((printed.matches("a /").count(), printed.matches("b /").count()), (1, 1));
}

/// The process that reads the image stays in its sandbox, and ends with the one that runs the commands.
#[test]
fn commands_run_outside_the_process_that_reads_the_image() {
    let scratch = scratch();
    let image = image(&scratch);
    if !Path::new("/proc/self/task/self/children").exists() && !children_file().exists() {
        return skip("this kernel does not list children");
    }
    let script =
        "for p in $(cat /proc/$PPID/task/$PPID/children); do grep -h -e Name: -e Seccomp: /proc/$p/status; done";
    let output = find_with(&image, &["-maxdepth", "0", "-exec", "sh", "-c", script, ";"]);
    let printed = text(&output).replace(['\t', '\n'], " ");
    let is_filtered = Path::new("/proc/sys/kernel/seccomp").exists();
    assert_eq!(printed.contains("Seccomp: 2"), is_filtered, "{printed}");
    assert!(printed.contains("Seccomp: 0") && printed.matches("Name:").count() >= 2, "{printed}");

    let mut find = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    let mut find = find.arg("find").arg(&image).args(["-exec", "sleep", "60", ";"]).spawn().unwrap();
    let list = format!("/proc/{0}/task/{0}/children", find.id());
    let children = || -> Vec<String> {
        fs::read_to_string(&list).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    wait_until(|| children().len() == 2);
    let started = children();
    find.kill().unwrap();
    find.wait().unwrap();
    let name = |process: &String| fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    wait_until(|| {
        !started.iter().any(|process| name(process).starts_with("xfskit") || name(process).starts_with("exe"))
    });
    for process in started.iter().filter(|process| name(process) == "sleep\n") {
        run(Command::new("kill").arg(process));
    }
}

fn children_file() -> std::path::PathBuf {
    let process = std::process::id();
    format!("/proc/{process}/task/{process}/children").into()
}

fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it does not come to that");
}

/// Names that a shell or a program could take for something else reach it as they are.
#[test]
fn names_reach_commands_as_they_are() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    let names = [&b"/-rf"[..], b"/a b", b"/two\nlines", b"/\xff", b"/{}", b"/$(x)", b"/;"];
    for name in names {
        let path = OsString::from_vec(name.to_vec());
        assert!(xfskit([OsStr::new("touch"), image.as_os_str(), &path]).status.success());
    }
    for end in [";", "+"] {
        let output = find_with(&image, &["-type", "f", "-exec", "printf", "%s\\0", "{}", end]);
        let mut found: Vec<&[u8]> = output.stdout.split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
        found.sort_unstable();
        let mut expected = names.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{end}");
    }
}

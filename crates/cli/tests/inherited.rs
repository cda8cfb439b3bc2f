//! Files that a command inherits: what no argument names is closed, and `<(...)` of bash works wherever a file may be
//! named.

mod common;

use common::disks::have;
use common::ok;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use xfskit_testkit::{scratch, skip};

fn bash(line: &str, image: &Path, dir: &Path) -> Command {
    let mut command = Command::new("bash");
    command.args(["-ec", line]).env("XFSKIT", env!("CARGO_BIN_EXE_xfskit")).env("IMAGE", image).current_dir(dir);
    command
}

/// The command waits for its input while the test looks at what it holds.
#[test]
fn a_file_that_no_argument_names_is_closed_and_one_with_a_lock_stays() {
    if !have(&["bash", "flock", "mkfifo"]) {
        return;
    }
    let scratch = scratch();
    let image = scratch.image("a.img", 300 << 20);
    ok("mkfs -q -f IMAGE", &image);
    assert!(Command::new("mkfifo").arg(scratch.file("pipe")).status().unwrap().success());
    let line = "exec 7> lock; flock 7; exec 8> pipe; exec \"$XFSKIT\" write \"$IMAGE\" /file";
    let mut command = bash(line, &image, scratch.path()).stdin(Stdio::piped()).spawn().unwrap();
    // It opens when the shell opens its end, and ends when that is closed.
    let mut pipe = File::open(scratch.file("pipe")).unwrap();
    assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert!(command.try_wait().unwrap().is_none(), "it runs");
    let try_lock = || Command::new("flock").arg("-n").arg(scratch.file("lock")).arg("true").status().unwrap();
    assert!(!try_lock().success(), "the lock lasts as long as the command");
    command.stdin.take().unwrap().write_all(b"contents").unwrap();
    assert!(command.wait().unwrap().success());
    assert!(try_lock().success());
    assert_eq!(ok("cat IMAGE /file", &image), "contents");

    // With a preloaded library, which may have opened them, files stay open.
    if !Path::new("/lib/x86_64-linux-gnu/libm.so.6").exists() {
        return skip("this machine has no library to preload in the place that is known here");
    }
    let line = "exec 8> pipe; LD_PRELOAD=/lib/x86_64-linux-gnu/libm.so.6 exec \"$XFSKIT\" write \"$IMAGE\" /file";
    let mut command = bash(line, &image, scratch.path()).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = File::open(scratch.file("pipe")).unwrap();
    command.stdin.take().unwrap().write_all(b"contents").unwrap();
    assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert!(command.wait().unwrap().success());
}

/// Lines in which a file is named by `<(...)` or `>(...)`.
const LINES: &[&str] = &[
    "mkfs -q -f IMAGE --from <(tar -C source -c .)",
    "mkfs -q -f IMAGE --from source --manifest <(cat manifest)",
    "mkfs -q -f IMAGE --from source --file-contexts <(cat contexts)",
    "mkfs.xfs -q -f -p <(cat proto) IMAGE",
    "mkfs -q -f IMAGE -c options=<(cat config)",
    "import IMAGE /dir --from <(tar -C source -c .)",
    "import IMAGE /dir --from source --manifest <(cat manifest)",
    "write IMAGE /written < <(cat source/file)",
    "xattr set IMAGE /dir user.name --value-file <(cat source/file)",
    "xattr restore IMAGE <(cat dump)",
    "xattr label IMAGE --file-contexts <(cat contexts)",
    "cp <(cat source/file) IMAGE:/dir/copied",
    "export IMAGE / -o >(tar -t > listing)",
];

#[test]
fn what_a_shell_hands_over_is_read() {
    if !have(&["bash", "tar"]) {
        return;
    }
    let scratch = scratch();
    let (image, dir) = (scratch.file("a.img"), scratch.path());
    fs::create_dir(dir.join("source")).unwrap();
    for (name, contents) in [
        ("source/file", "contents"),
        ("manifest", "#mtree\n./file mode=0600 uid=5\n"),
        ("contexts", "/.* system_u:object_r:file_t:s0\n"),
        ("proto", "/\n0 0\nd--755 0 0\nfile ---644 0 0 source/file\n$\n"),
        ("config", "[metadata]\ncrc=1\n"),
        ("dump", "# file: dir\nuser.other=\"value\"\n"),
    ] {
        fs::write(dir.join(name), contents).unwrap();
    }
    for line in LINES {
        ok("mkfs -q -f --size 300M IMAGE", &image);
        ok("mkdir IMAGE /dir", &image);
        let (name, rest) = line.split_once(' ').unwrap();
        let command = if name == "mkfs.xfs" { "" } else { name };
        let run = format!("exec -a {name} \"$XFSKIT\" {command} {}", rest.replace("IMAGE", "\"$IMAGE\""));
        let output = bash(&run, &image, dir).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        if line.contains("tar -C") && line.starts_with("import") {
            assert_eq!(ok("cat IMAGE /dir/file", &image), "contents");
        }
    }
}

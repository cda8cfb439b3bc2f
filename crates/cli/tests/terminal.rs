//! Text from an image on a terminal: no command may let control sequences take effect, or letters that reverse the
//! order of what stands beside them, whether it prints a listing, a message, or the progress of its work.

mod common;

use common::{image, ok, with_input, xfskit};
use std::fs;
use std::path::Path;
use std::process::Command;
use xfskit_testkit::{Scratch, scratch, skip};

/// Sets the title of a terminal, and reverses the order of what follows. Bars of progress contain neither.
const TITLE: &str = "\x1b]0;";
const REVERSE: char = '\u{202e}';
const EVIL: &str = "a\x1b]0;b\x07\u{202e}gpj\u{9b}2J";
const SHOWN: &str = "a?]0;b??gpj?2J";

/// What a terminal gets of a command in a folder.
fn on_terminal(line: &str, folder: &Path) -> Option<String> {
    if Command::new("script").arg("--version").output().is_err() {
        skip("this machine has no script(1)");
        return None;
    }
    let line = line.replace("XFSKIT", env!("CARGO_BIN_EXE_xfskit")).replace("EVIL", EVIL);
    let mut script = Command::new("script");
    script.args(["-qc", &format!("stty cols 200; {line}"), "/dev/null"]).env("TERM", "xterm");
    let output = script.current_dir(folder).output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether what a terminal got may do something to it.
fn is_harmful(text: &str) -> bool {
    text.contains(TITLE) || text.contains(REVERSE) || text.contains('\u{9b}')
}

/// An image whose names, link, attribute, value and label do harm on a terminal, and a folder with such a file.
fn prepared() -> (Scratch, std::path::PathBuf) {
    let scratch = scratch();
    let image = image(&scratch);
    for line in ["mkdir IMAGE /EVIL", "touch IMAGE /EVIL/EVIL", "ln -s IMAGE EVIL /link"] {
        ok(&line.replace("EVIL", EVIL), &image);
    }
    let path = format!("/{EVIL}/{EVIL}");
    let (name, value) = (format!("user.{EVIL}"), EVIL);
    let set = ["xattr", "set", image.to_str().unwrap(), &path, &name, value];
    assert!(xfskit(set).status.success());
    let host = scratch.file("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join(EVIL), "contents").unwrap();
    (scratch, image)
}

#[test]
fn listings_and_copies_are_no_commands_to_a_terminal() {
    let (scratch, _image) = prepared();
    let lines = [
        "ls a.img '/EVIL'",
        "ls -l a.img '/EVIL'",
        "--json ls a.img '/EVIL'",
        "tree a.img",
        "find a.img",
        "du a.img",
        "--json du a.img",
        "stat a.img /link",
        "stat a.img '/EVIL/EVIL'",
        "readlink a.img /link",
        "parents a.img '/EVIL/EVIL'",
        "xattr list a.img '/EVIL/EVIL'",
        "xattr dump a.img '/EVIL/EVIL'",
        "xattr get a.img '/EVIL/EVIL' 'user.EVIL'",
        "--json xattr get a.img '/EVIL/EVIL' 'user.EVIL'",
        "rm a.img '/EVIL/EVIL/none'",
        "ls a.img '/none EVIL'",
        "ls 'EVIL'",
        "ls 'EVIL#EVIL'",
        "ls --'EVIL'",
        "'EVIL'",
        "cp -rv a.img:/ 'out EVIL'",
        "cp -rv host a.img:/in",
        "cp -r a.img:/'EVIL' a.img:/'EVIL'/'EVIL'/none",
        "export -v a.img -o out.tar",
        "import a.img out.tar",
        "mkfs --from host 'new EVIL.img'",
        "mkfs -L 'EVIL' n.img --size 300M",
    ];
    for line in lines {
        let Some(text) = on_terminal(&format!("XFSKIT {line}"), scratch.path()) else { return };
        assert!(!is_harmful(&text), "{line}: {text:?}");
        assert!(!text.contains("panicked"), "{line}: {text:?}");
    }
    let Some(text) = on_terminal("XFSKIT cp -rv a.img:/ out2", scratch.path()) else { return };
    assert!(text.contains(SHOWN), "{text:?}");
}

/// A label is what the superblock says. mkfs.xfs and xfs_admin take any bytes.
#[test]
fn a_label_is_no_command_to_a_terminal() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("admin label IMAGE abcdefghij", &image);
    let mut bytes = fs::read(&image).unwrap();
    bytes[108..120].copy_from_slice(b"\x1b]0;b\xe2\x80\xae\x07xyz");
    let sector = &mut bytes[..512];
    xfskit_ondisk::set_checksum(sector, 224);
    fs::write(&image, bytes).unwrap();
    for line in ["admin label a.img", "info a.img", "--json info a.img", "df a.img", "check a.img", "admin uuid a.img"]
    {
        let Some(text) = on_terminal(&format!("XFSKIT {line}"), scratch.path()) else { return };
        assert!(!is_harmful(&text), "{line}: {text:?}");
    }
    assert!(ok("--json info IMAGE", &image).contains("\\u001b"));
}

/// The server of a mount in the background has no terminal; what it reports before the mount is ready gets to one all
/// the same. The names here are those that a disk of somebody else contains.
#[test]
fn what_a_mount_reports_is_no_command_to_a_terminal() {
    let scratch = scratch();
    image(&scratch);
    fs::create_dir(scratch.file("mnt")).unwrap();
    // A header of qcow2, version 3, with the name of a backing file behind it.
    let mut header = vec![0; 64 << 10];
    let fields: [(usize, &[u8]); 10] = [
        (0, b"QFI\xfb\0\0\0\x03"),
        (8, &512u64.to_be_bytes()),
        (16, &(EVIL.len() as u32).to_be_bytes()),
        (20, &16u32.to_be_bytes()),
        (24, &(64u64 << 20).to_be_bytes()),
        (36, &1u32.to_be_bytes()),
        (40, &(128u64 << 10).to_be_bytes()),
        (48, &(64u64 << 10).to_be_bytes()),
        (56, &1u32.to_be_bytes()),
        (512, EVIL.as_bytes()),
    ];
    for (at, value) in fields {
        header[at..at + value.len()].copy_from_slice(value);
    }
    header[96..104].copy_from_slice(&[0, 0, 0, 4, 0, 0, 0, 104]);
    header.resize(256 << 10, 0);
    fs::write(scratch.file("d.qcow2"), &header).unwrap();
    let lines = [
        "mount d.qcow2 mnt",
        "mount -f d.qcow2 mnt",
        "ls d.qcow2",
        "info d.qcow2",
        "mount a.img 'EVIL'",
        "mount -f a.img 'EVIL'",
        "mount 'EVIL' mnt",
        "mount -o 'EVIL' a.img mnt",
        "mount -o 'logdev=EVIL' a.img mnt",
        "umount 'EVIL'",
    ];
    for line in lines {
        let Some(text) = on_terminal(&format!("XFSKIT {line}"), scratch.path()) else { return };
        assert!(!is_harmful(&text) && text.contains("xfskit"), "{line}: {text:?}");
    }
}

/// A name with a newline in it does not make a line of a message that looks like another message.
#[test]
fn a_name_makes_no_second_message() {
    let scratch = scratch();
    let image = image(&scratch);
    let output = xfskit(["ls", image.to_str().unwrap(), "/x\nxfskit: a.img: all is well"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().filter(|line| line.starts_with("xfskit: ")).count(), 1, "{message}");
}

/// Output to a file or another program is not changed.
#[test]
fn what_is_no_terminal_gets_names_as_they_are() {
    let (_scratch, image) = prepared();
    assert_eq!(ok("ls IMAGE", &image), format!("{EVIL}\nlink\n"));
    let path = format!("/{EVIL}/{EVIL}");
    let arguments = ["xattr", "get", image.to_str().unwrap(), &path, &format!("user.{EVIL}")];
    assert_eq!(xfskit(arguments).stdout, EVIL.as_bytes());
    let output = with_input("write IMAGE /link2", &image, EVIL.as_bytes());
    assert!(output.status.success());
    assert_eq!(ok("cat IMAGE /link2", &image), EVIL);
}

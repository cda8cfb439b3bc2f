//! What a mount shows of itself: paths of files by parent pointers, the superblock, whether attributes are logged.

mod common;

use common::mounts::{prepared, prepared_for_root};
use common::{fails, ok};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use xfskit_testkit::reference;

/// Runs a program of the host on a path; returns what it printed, or its exit status and message.
fn program(words: &str, path: &Path) -> Result<Vec<u8>, String> {
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).arg(path).output().unwrap();
    if output.status.success() { Ok(output.stdout) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn the_names_of_a_file_are_the_same_on_the_mount_in_the_image_and_for_xfs_db() {
    let Some(prepared) = prepared() else { return };
    prepared.line("mount IMAGE DIR");
    let at = |name: &str| prepared.dir.join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::write(at("a/file"), "x").unwrap();
    fs::hard_link(at("a/file"), at("a/b/with a space")).unwrap();
    fs::hard_link(at("a/file"), at("top")).unwrap();
    std::os::unix::fs::symlink("nowhere", at("a/link")).unwrap();
    let number = fs::metadata(at("top")).unwrap().ino();
    let of_file = prepared.line("parents DIR/a/file");
    assert_eq!(of_file.lines().collect::<Vec<_>>(), ["/a/b/with a space", "/a/file", "/top"]);
    assert_eq!(prepared.line("parents DIR /top"), of_file);
    assert_eq!(prepared.line(&format!("path DIR {number}")), of_file);
    assert_eq!(prepared.line("parents DIR/a/link"), "/a/link\n");
    assert_eq!(prepared.line("parents DIR/a/b"), "/a/b\n");
    let inodes = prepared.line("parents -i DIR/top");
    let json: Value = serde_json::from_str(&prepared.line("--json parents DIR/top")).unwrap();
    let paths: Vec<&Value> = json["paths"].as_array().unwrap().iter().map(|path| &path["path"]).collect();
    assert_eq!(paths, ["/a/b/with a space", "/a/file", "/top"]);
    // Any program may ask, and a copy does not take the answer along.
    let value = program("getfattr --only-values -n xfskit.paths", &at("top")).unwrap();
    assert_eq!(value, b"/a/b/with a space\0/a/file\0/top\0");
    assert_eq!(program("getfattr -d -m -", &at("top")).unwrap(), b"");
    assert!(fails("path IMAGE 1", &prepared.image).1.contains("in use"));
    assert!(fails(&format!("path {} 999", prepared.dir.display()), &prepared.image).0 != 0);
    prepared.line("umount DIR");
    assert_eq!(ok("parents IMAGE /a/file", &prepared.image), of_file);
    assert_eq!(ok("parents -i IMAGE /top", &prepared.image), inodes);
    let (code, message) = fails("parents IMAGE", &prepared.image);
    assert!(code == 2 && message.contains("name the path in it"), "{code} {message}");
    let Some(reference) = reference() else { return };
    let seen = reference.db(&prepared.image, &["path /top", "print a"]);
    assert!(seen.contains("hdr.count = 3"), "{seen}");
    for line in inodes.lines() {
        let (dir, name) = line.split_once(' ').unwrap();
        let is_seen = seen.contains(&format!("inumber = {dir}\n")) && seen.contains(&format!("name = \"{name}\"\n"));
        assert!(is_seen, "{seen}\nlacks {line}");
    }
}

#[test]
fn info_of_a_mount_is_that_of_its_image() {
    let Some(prepared) = prepared() else { return };
    prepared.line("mount IMAGE DIR");
    for n in 0..100 {
        fs::write(prepared.dir.join(format!("{n}")), [7; 5000]).unwrap();
    }
    fs::File::open(&prepared.dir).unwrap().sync_all().unwrap();
    let json = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let mut live = json(prepared.line("--json info DIR"));
    assert!(prepared.line("info DIR").contains("in use by the mount"));
    // A file there may be an image itself.
    assert!(fails(&format!("info {}/1", prepared.dir.display()), &prepared.image).1.contains("no image"));
    prepared.line("umount DIR");
    let mut closed = json(ok("--json info IMAGE", &prepared.image));
    for value in [&mut live, &mut closed] {
        value["log"]["state"].take();
    }
    assert_eq!(live, closed);
}

#[test]
fn whether_attributes_are_logged_is_switched_on_a_mount() {
    let Some(prepared) = prepared_for_root() else { return };
    prepared.line("mount IMAGE DIR");
    let larp = || program("getfattr --only-values -n xfskit.larp", &prepared.dir).unwrap();
    let of_stats = || {
        let stats: Value = serde_json::from_str(&prepared.line("--json stats DIR")).unwrap();
        stats["options"]["attr_logging"].as_str().unwrap().as_bytes().to_vec()
    };
    assert_eq!((larp(), of_stats()), (b"never".to_vec(), b"never".to_vec()));
    program("setfattr -n xfskit.larp -v always", &prepared.dir).unwrap();
    assert_eq!((larp(), of_stats()), (b"always".to_vec(), b"always".to_vec()));
    prepared.line("mount -o remount,larp=never IMAGE DIR");
    assert_eq!(larp(), b"never");
    assert!(fails(&format!("mount -o remount,larp=maybe IMAGE {}", prepared.dir.display()), &prepared.image).0 == 2);
    for (words, path) in [
        ("setfattr -n xfskit.larp -v maybe", prepared.dir.clone()),
        ("setfattr -n xfskit.paths -v x", prepared.dir.clone()),
        ("setfattr -x xfskit.larp", prepared.dir.clone()),
        ("getfattr -n xfskit.nothing", prepared.dir.clone()),
    ] {
        assert!(program(words, &path).is_err(), "{words}");
    }
    prepared.line("umount DIR");
}

/// What a remount refuses has switched nothing, and what it allows is all done.
#[test]
fn a_remount_switches_all_or_nothing() {
    let Some(prepared) = prepared_for_root() else { return };
    prepared.line("mount IMAGE DIR");
    let state = || {
        let larp = program("getfattr --only-values -n xfskit.larp", &prepared.dir).unwrap();
        let flags = rustix::fs::statvfs(&prepared.dir).unwrap().f_flag;
        (String::from_utf8(larp).unwrap(), flags.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    };
    let remount = |options: &str| {
        let line = format!("mount -o remount,{options} IMAGE {}", prepared.dir.display());
        let output = common::xfskit(common::words(&line, &prepared.image));
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    // A file that is open for writing keeps the mount from becoming read-only.
    let open = fs::File::create(prepared.dir.join("open")).unwrap();
    let (done, message) = remount("ro,larp=always");
    assert!(!done && message.contains("busy"), "{message}");
    assert_eq!(state(), ("never".into(), false));
    drop(open);
    let (done, message) = remount("ro,larp=always");
    assert!(done && message.contains("larp=always"), "{message}");
    assert_eq!(state(), ("never".into(), true));
    // As mount(8) adds them from fstab: nothing to say where nothing would change.
    assert_eq!(remount("ro,larp=never"), (true, String::new()));
    assert_eq!(remount("rw,larp=always"), (true, String::new()));
    assert_eq!(state(), ("always".into(), false));
    assert_eq!(remount("larp=never,noexec"), (true, String::new()));
    assert_eq!(state(), ("never".into(), false));
    prepared.line("umount DIR");
}

#[test]
fn only_the_owner_of_the_mount_sees_paths_and_switches() {
    let Some(prepared) = prepared_for_root() else { return };
    let folder = prepared.dir.parent().unwrap();
    fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    prepared.line("mount -o allow_other IMAGE DIR");
    let file = prepared.dir.join("file");
    fs::write(&file, "").unwrap();
    let as_user = "setpriv --reuid=1000 --regid=1000 --clear-groups";
    for words in ["getfattr -n xfskit.paths", "getfattr -n xfskit.parents"] {
        program(words, &file).unwrap();
        let refused = program(&format!("{as_user} {words}"), &file).unwrap_err();
        assert!(refused.contains("not permitted"), "{refused}");
    }
    for words in ["getfattr -n xfskit.superblock", "setfattr -n xfskit.larp -v always", "getfattr -n xfskit.paths.128"]
    {
        let refused = program(&format!("{as_user} {words}"), &prepared.dir).unwrap_err();
        assert!(refused.contains("not permitted") || refused.contains("denied"), "{words}: {refused}");
    }
    assert_eq!(program("getfattr --only-values -n xfskit.larp", &prepared.dir).unwrap(), b"never");
    prepared.line("umount DIR");
}

#[test]
fn commands_log_attributes_where_they_are_asked_to() {
    let Some(prepared) = prepared() else { return };
    let image = &prepared.image;
    let value = prepared.scratch.file("value");
    fs::write(&value, vec![7; 60_000]).unwrap();
    ok("mknod IMAGE /f f", image);
    let value = value.display();
    ok(&format!("xattr set --larp always IMAGE /f user.long --value-file {value}"), image);
    ok("xattr set --larp never IMAGE /f user.short x", image);
    ok("xattr rm --larp always IMAGE /f user.short", image);
    assert_eq!(fails("xattr set --larp sometimes IMAGE /f user.short x", image).0, 2);
    assert_eq!(ok("xattr get IMAGE /f user.long", image).len(), 60_000);
    assert!(ok("check IMAGE", image).contains("no faults"));
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(image);
    }
}

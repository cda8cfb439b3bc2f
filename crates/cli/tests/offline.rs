//! Commands on images that are not mounted: their output, their effects, and their errors.

mod common;

use common::{fails, image, ok, with_input, words, xfskit};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use xfskit_device::{Access, FileDevice};
use xfskit_testkit::{kernel_mount, reference, scratch, tree};

#[test]
fn files_are_made_moved_and_removed() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir -p IMAGE /a/b/c /d", &image);
    ok("touch IMAGE /a/f /a/g --date 1700000000.25", &image);
    ok("ln IMAGE /a/f /a/b/hard", &image);
    ok("ln -s IMAGE ../f /a/b/soft", &image);
    ok("mknod IMAGE /d/zero c 1 5 -m 666", &image);
    ok("mknod IMAGE /d/pipe p", &image);
    ok("chmod IMAGE u+s,go-r /a/b/soft", &image);
    ok("chown IMAGE 1000:2000 /a/g /a/b/soft", &image);
    assert_eq!(ok("ls IMAGE /a/b", &image), "c\nhard\nsoft\n");
    assert_eq!(ok("readlink IMAGE /a/b/soft", &image), "../f\n");
    let listing = ok("ls -l IMAGE /d", &image);
    assert!(listing.contains("crw-rw-rw-") && listing.contains("1, 5") && listing.contains("prw-r--r--"), "{listing}");
    let stat = ok("stat IMAGE /a/f", &image);
    assert!(stat.contains("4600 (-rwS------)") && stat.contains("2023-11-14 22:13:20.250000000"), "{stat}");
    ok("mv IMAGE /a/g /d", &image);
    ok("mv IMAGE -n /a/b/c /a/moved", &image);
    assert_eq!(fails("mv IMAGE -n /d/g /a/f", &image).0, 1);
    assert_eq!(fails("rm IMAGE /a", &image).0, 1);
    ok("rm IMAGE -f /nothing /d/pipe", &image);
    let expected = "/\n├── a\n│   ├── b\n│   │   ├── hard\n│   │   └── soft -> ../f\n│   ├── f\n│   └── moved\n\
                    └── d\n    ├── g\n    └── zero\n";
    assert_eq!(ok("tree IMAGE", &image), expected);
    if let Some(kernel) = kernel_mount(&image) {
        let entries = tree(kernel.path());
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["", "a", "a/b", "a/b/hard", "a/b/soft", "a/f", "a/moved", "d", "d/g", "d/zero"]);
        assert_eq!((entries[5].mode, entries[5].links), (0o104_600, 2));
        assert_eq!(fs::symlink_metadata(kernel.path().join("a/b/soft")).unwrap().gid(), 2000);
        kernel.unmount();
    }
    ok("rm -r IMAGE /a", &image);
    assert_eq!(ok("ls IMAGE", &image), "d\n");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

#[test]
fn parents_lead_back_to_every_path() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir -p IMAGE /a/b", &image);
    ok("touch IMAGE /a/f", &image);
    ok("ln IMAGE /a/f /a/b/g", &image);
    let number = ok("--json stat IMAGE /a/f", &image);
    let stat: serde_json::Value = serde_json::from_str(&number).unwrap();
    assert_eq!(ok(&format!("path IMAGE {}", stat["inode"]), &image), "/a/b/g\n/a/f\n");
    assert_eq!(ok("parents IMAGE /a/f", &image), "/a/b/g\n/a/f\n");
    let parents = ok("parents -i IMAGE /a/b/g", &image);
    assert!(parents.lines().count() == 2 && parents.contains(" f\n") && parents.contains(" g\n"), "{parents}");
    let (code, message) = fails("path IMAGE 999999", &image);
    assert!(code == 1 && message.contains("999999"), "{message}");
}

#[test]
fn an_image_has_the_summary_of_mkfs_and_is_not_overwritten() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    let summary = ok("mkfs IMAGE --size 1G -L label -i size=1024 -n size=8192 -m rmapbt=0", &image);
    if let Some(reference) = reference() {
        let options = ["-N", "-L", "label", "-i", "size=1024", "-n", "size=8192", "-m", "rmapbt=0"];
        let file = format!("file,name={},size=1g", scratch.file("b.img").display());
        let theirs = reference.tool_output("mkfs.xfs", options.iter().copied().chain(["-d", &file]));
        assert_eq!(summary, theirs.replace("b.img", "a.img"));
    }
    let (code, message) = fails("mkfs IMAGE", &image);
    assert!(code == 2 && message.contains("XFS") && message.contains("-f"), "{message}");
    let info = ok("info IMAGE", &image);
    assert!(
        info.starts_with(&summary) && info.contains("label    =\"label\"\n") && info.ends_with("clean\n"),
        "{info}"
    );
    ok("mkfs -f IMAGE --size 600M -q", &image);
    let json: serde_json::Value = serde_json::from_str(&ok("--json info IMAGE", &image)).unwrap();
    assert_eq!(json["blocks"], 600 << 8);
    assert_eq!(json["log"]["state"], "clean");
}

#[test]
fn dumps_are_those_of_getfattr() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE /dir", &image);
    ok("touch IMAGE /dir/a /dir/b=c /dir/none", &image);
    ok("xattr set IMAGE / user.root 1", &image);
    ok("xattr set IMAGE /dir/a user.text two\\040\"words\"", &image);
    ok("xattr set IMAGE /dir/a user.binary 0x00ff10", &image);
    ok("xattr set IMAGE /dir/a trusted.hidden 0saGVsbG8=", &image);
    ok("xattr set IMAGE /dir/b=c user.e=f\\g ", &image);
    assert_eq!(ok("xattr get IMAGE /dir/a trusted.hidden", &image), "hello");
    assert_eq!(ok("xattr get -e hex IMAGE /dir/a user.binary", &image), "0x00ff10\n");
    assert_eq!(ok("xattr list IMAGE /dir/a", &image), "trusted.hidden\nuser.binary\nuser.text\n");
    assert_eq!(fails("xattr set --create IMAGE /dir/a user.text x", &image).0, 1);
    // A value in a file is taken as it is: no argument could be this long.
    let value: Vec<u8> = (0..65536_u32).map(|n| (n % 251) as u8).collect();
    fs::write(scratch.file("value"), &value).unwrap();
    ok(&format!("xattr set IMAGE /dir/none user.large --value-file {}", scratch.file("value").display()), &image);
    assert!(xfskit(words("xattr get IMAGE /dir/none user.large", &image)).stdout == value);
    let set = |value: &[u8]| with_input("xattr set IMAGE /dir/none user.large --value-file -", &image, value);
    assert!(set(b"0x00\n").status.success());
    assert_eq!(ok("xattr get IMAGE /dir/none user.large", &image), "0x00\n");
    assert_eq!(set(&[b"more", &value[..]].concat()).status.code(), Some(1));
    assert_eq!(fails("xattr set IMAGE /dir/none user.large", &image).0, 2);
    assert_eq!(fails("xattr set IMAGE /dir/none user.large x --value-file -", &image).0, 2);
    assert_eq!(fails("xattr set IMAGE /dir/none user.large --value-file /nowhere", &image).0, 1);
    ok("xattr rm IMAGE /dir/none user.large", &image);
    assert_eq!(fails("xattr rm IMAGE /dir/a user.text user.other", &image).0, 1);
    for (ours, theirs) in [("", "-d"), (" -m -", "-dm-"), (" -e hex", "-dehex"), (" -e base64", "-debase64")] {
        let dump = ok(&format!("xattr dump -R IMAGE{ours}"), &image);
        let Some(kernel) = kernel_mount(&image) else { break };
        let output = Command::new("getfattr").args(["-R", theirs, "."]).current_dir(kernel.path()).output().unwrap();
        kernel.unmount();
        assert_eq!(blocks(&dump), blocks(&String::from_utf8(output.stdout).unwrap()));
    }
    // Restores the dump into a second image.
    let dump = ok("xattr dump -R -m - IMAGE", &image);
    let second = scratch.file("b.img");
    ok("mkfs IMAGE --size 512M -q", &second);
    ok("mkdir IMAGE /dir", &second);
    ok("touch IMAGE /dir/a /dir/b=c /dir/none", &second);
    let restored = with_input("xattr restore IMAGE", &second, dump.as_bytes());
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(ok("xattr dump -R -m - IMAGE", &second), dump);
    let wrong = with_input("xattr restore IMAGE", &second, b"# file: dir/a\nuser.x=0xabc\n");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("line 2"));
}

/// The blocks of a dump, sorted: getfattr walks in the order of the directory.
fn blocks(dump: &str) -> Vec<&str> {
    let mut blocks: Vec<&str> = dump.split("\n\n").collect();
    blocks.sort_unstable();
    blocks
}

#[test]
fn bad_images_have_an_exit_code_and_a_message_of_their_own() {
    let scratch = scratch();
    let check = |path: &Path, code: i32, part: &str| {
        for line in ["info IMAGE", "mkdir IMAGE /a", "log print IMAGE"] {
            let (got, message) = fails(line, path);
            assert!(got == code && message.contains(part), "{line} {}: {got} {message}", path.display());
        }
    };
    check(&scratch.file("none"), 6, "no such image");
    check(scratch.path(), 6, "folder");
    check(Path::new("/dev/null"), 6, "special file");
    check(&scratch.image("empty", 0), 3, "0 bytes");
    check(&scratch.image("zeros", 64 << 20), 3, "not an XFS image");
    let image = image(&scratch);
    let short = scratch.file("short");
    fs::copy(&image, &short).unwrap();
    fs::File::options().write(true).open(&short).unwrap().set_len(300 << 20).unwrap();
    for line in ["info IMAGE", "mkdir IMAGE /a"] {
        let (code, message) = fails(line, &short);
        assert!(code == 3 && message.contains("cut short"), "{code} {message}");
    }
    let broken = scratch.file("broken");
    let mut bytes = fs::read(&image).unwrap();
    bytes[110] ^= 1;
    fs::write(&broken, &bytes).unwrap();
    // Readers get a copy of the superblock, and a warning. Without any copy, all commands are refused.
    let (code, message) = fails("mkdir IMAGE /a", &broken);
    assert!(code == 3 && message.contains("checksum"), "{code} {message}");
    let looked = xfskit(words("info IMAGE", &broken));
    let message = String::from_utf8_lossy(&looked.stderr);
    assert!(looked.status.code() == Some(3) && message.contains("copy in AG"), "{looked:?}");
    for copy in (0..bytes.len()).step_by(512) {
        if bytes[copy..].starts_with(b"XFSB") {
            bytes[copy + 110] ^= 2;
        }
    }
    fs::write(&broken, &bytes).unwrap();
    check(&broken, 3, "checksum");
    let lock = fs::File::open(&image).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    check(&image, 4, "in use");
    drop(lock);
    assert_eq!(fails("ls IMAGE /none", &image).0, 1);
    assert!(fails("ls IMAGE /none", &image).1.contains("/none: no such file"));
    assert_eq!(fails("chown IMAGE nobody /", &image).0, 2);
    assert_eq!(fails("mkfs IMAGE -d agcount=x", &image).0, 2);
    assert_eq!(fails("nonsense", &image).0, 2);
    assert_eq!(fails("mount -o wsink IMAGE /tmp", &image).0, 2);
}

#[test]
fn manuals_completions_and_help_come_from_the_arguments() {
    let scratch = scratch();
    let dir = scratch.file("man");
    ok("man IMAGE", &dir);
    assert!(fs::read_to_string(dir.join("xfskit-mount.1")).unwrap().contains("wsync"));
    // The words as they are, wherever the lines of the help end.
    let mount = ok("mount --help", &dir).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        mount.contains("errortag=NAME[:NTH]") && mount.contains("nosuid unless dev and suid are given, for root too"),
        "{mount}"
    );
    assert!(ok("completions bash", &dir).contains("_xfskit"));
    let help = String::from_utf8(xfskit(["--help"]).stdout).unwrap();
    assert!(help.contains("Exit codes") && help.contains("\n  completions ") && help.contains("\n  man "), "{help}");
}

/// Commands that write must replay the journal, and do not have --norecovery.
#[test]
fn only_commands_that_look_may_look_past_the_journal() {
    let scratch = scratch();
    let image = image(&scratch);
    let looking = [
        "info", "check", "ls", "tree", "find", "stat", "readlink", "cat", "export", "df", "du", "parents", "path", "cp",
    ];
    let looking = looking.into_iter().chain(["xattr list", "xattr get", "xattr dump"]);
    let writing =
        ["mkdir", "mknod", "touch", "ln", "mv", "rm", "write", "clone", "chmod", "chown", "mkfs", "log print"];
    let writing = writing.into_iter().chain(["xattr set", "xattr rm", "xattr restore", "log replay"]);
    let writing = writing.chain(["admin grow", "admin label", "admin uuid", "admin trim"]);
    for (command, is_offered) in looking.map(|name| (name, true)).chain(writing.map(|name| (name, false))) {
        assert_eq!(ok(&format!("{command} --help"), &image).contains("norecovery"), is_offered, "{command}");
    }
    for line in ["log replay --norecovery IMAGE", "log print --norecovery IMAGE", "mkdir --norecovery IMAGE /a"] {
        assert_eq!(fails(line, &image).0, 2, "{line}");
    }
}

#[test]
fn a_check_says_what_is_wrong_and_exits_as_fsck() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir -p IMAGE /a/b", &image);
    ok("touch IMAGE /a/f", &image);
    assert!(ok("check IMAGE", &image).ends_with("no faults\n"));
    let report: serde_json::Value = serde_json::from_str(&ok("--json check IMAGE --threads 2", &image)).unwrap();
    assert_eq!((&report["clean"], &report["summary"]["names"]), (&true.into(), &3.into()), "{report}");
    // A writer prevents a check, a reader does not.
    let device = FileDevice::open(&image, Access::Read).unwrap();
    ok("check IMAGE", &image);
    drop(device);
    let device = FileDevice::open(&image, Access::Write).unwrap();
    let (code, message) = fails("check IMAGE", &image);
    assert!(code == 8 && message.contains("in use"), "{message}");
    drop(device);
    assert_eq!(fails("check IMAGE --threads none", &image).0, 16);
    assert_eq!(fails("check", &image).0, 16);
    assert_eq!(fails("ls", &image).0, 2);
    assert_eq!(fails("check /nowhere", &image).0, 8);
    // The AGF of the second AG counts one block too few.
    let mut bytes = fs::read(&image).unwrap();
    let start = bytes.len() / 4 + 512;
    let agf = &mut bytes[start..start + 512];
    assert_eq!(&agf[..4], b"XAGF");
    let free = u32::from_be_bytes(agf[52..56].try_into().unwrap());
    agf[52..56].copy_from_slice(&(free - 1).to_be_bytes());
    agf[56..60].copy_from_slice(&1u32.to_be_bytes());
    xfskit_ondisk::set_checksum(agf, 216);
    fs::write(&image, bytes).unwrap();
    let output = xfskit(["check".as_ref(), image.as_os_str()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("AGF of AG 1 at disk address") && text.contains("\"number of free blocks\""), "{text}");
    assert!(text.contains("xfs_repair"), "{text}");
    assert!(output.stderr.is_empty(), "no bar without a terminal");
    let output = xfskit(["check".as_ref(), "--json".as_ref(), image.as_os_str()]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let faults = report["faults"].as_array().unwrap();
    let agf = faults.iter().find(|fault| fault["structure"] == "AGF").unwrap();
    assert_eq!((&report["clean"], &agf["owner"]["ag"]), (&false.into(), &1.into()), "{report}");
}

/// A closed or full output must not cause a panic.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("touch IMAGE /a", &image);
    let (closed, other) = std::io::pipe().unwrap();
    drop(closed);
    for line in [
        "info IMAGE",
        "info IMAGE --json",
        "df IMAGE",
        "df IMAGE --json",
        "check IMAGE",
        "ls IMAGE",
        "stat IMAGE /",
        "log print IMAGE",
        "log replay IMAGE",
        #[cfg(feature = "bench")]
        "crash-test --list",
        "completions bash",
        "mkfs -f IMAGE",
        "--help",
    ] {
        let run = |out: std::process::Stdio| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_xfskit"));
            let output = command.args(common::words(line, &image)).stdout(out).output().unwrap();
            (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, message) = run(std::fs::File::options().write(true).open("/dev/full").unwrap().into());
        let expected = if line.starts_with("check") { 8 } else { 1 };
        assert!(line == "--help" && code == 0 || code == expected, "{line}: {code} {message}");
        assert!(line == "--help" || message.contains("No space left"), "{line}: {message}");
        let (code, message) = run(other.try_clone().unwrap().into());
        assert!(code == 0 && !message.contains("panicked"), "{line}: {code} {message}");
    }
}

/// The rest of an image is shown, with a warning and the exit code of damage; nothing is written to it.
#[test]
fn an_image_without_its_first_superblock_or_its_end_is_looked_at() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE /etc", &image);
    let whole = fs::read(&image).unwrap();
    let mut wiped = whole.clone();
    wiped[..4096].fill(0);
    let cut = &whole[..whole.len() - (64 << 20)];
    for (bytes, loss) in [(wiped.as_slice(), "copy in AG"), (cut, "cut short")] {
        fs::write(&image, bytes).unwrap();
        for (line, shown) in [("ls IMAGE /", "etc"), ("info IMAGE", "uuid"), ("log print IMAGE", "journal of")] {
            let output = xfskit(words(line, &image));
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(3) && error.contains(loss), "{line}: {error}");
            assert!(String::from_utf8_lossy(&output.stdout).contains(shown), "{line}");
        }
        let check = xfskit(words("check IMAGE", &image));
        assert_eq!(check.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&check.stdout).contains(loss));
        let (code, _) = fails("mkdir IMAGE /more", &image);
        assert_eq!(code, 3);
        assert!(fs::read(&image).unwrap() == bytes, "a damaged image was changed");
    }
}

/// A path that ends in a slash is that of a directory.
#[test]
fn a_slash_at_the_end_asks_for_a_directory() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE /d", &image);
    ok("touch IMAGE /f /d/f", &image);
    ok("ln -s IMAGE d /link", &image);
    ok("ln -s IMAGE f /file-link", &image);
    fs::write(scratch.file("F"), "x").unwrap();
    let before = ok("tree IMAGE", &image);
    for line in [
        "stat IMAGE /f/",
        "cat IMAGE /f/",
        "stat IMAGE /file-link/",
        "rm IMAGE /f/",
        "rm -r IMAGE /link/",
        "mv IMAGE /f/ /g",
        "mv IMAGE /f /g/",
        "mv -T IMAGE /f /d/f/",
        "touch IMAGE /new/",
        "touch IMAGE /f/",
        "mknod IMAGE /new/ p",
        "ln IMAGE /f /new/",
        "ln -s IMAGE x /new/",
        "clone IMAGE /f /new/",
        "write IMAGE /new/",
        "chmod IMAGE 700 /f/.",
    ] {
        assert_eq!(fails(line, &image).0, 1, "{line}");
    }
    let file = scratch.file("F").display().to_string();
    for to in ["nodir/", "f/", "file-link/"] {
        let output = xfskit(["cp", &file, &format!("{}:/{to}", image.display())]);
        assert!(!output.status.success(), "{to}");
    }
    let output = xfskit(["cp", &format!("{}:/f", image.display()), &format!("{}/", scratch.file("nodir").display())]);
    assert!(!output.status.success() && !scratch.file("nodir").exists());
    assert_eq!(ok("tree IMAGE", &image), before);
    ok("mkdir IMAGE /new/", &image);
    ok("mv IMAGE /new/ /renamed/", &image);
    assert_eq!(ok("ls IMAGE /link/", &image), "f\n");
    assert_eq!(ok("ls IMAGE /renamed/.", &image), "");
}

/// Names that are not text differ in JSON, and times have a zone.
#[test]
fn json_says_which_bytes_a_name_has() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = scratch();
    let image = image(&scratch);
    let names: [&[u8]; 3] = [b"n\xff", b"n\xfe", "n\u{fffd}".as_bytes()];
    for name in names {
        let path = std::ffi::OsStr::from_bytes(name);
        assert!(xfskit([std::ffi::OsStr::new("touch"), image.as_os_str(), path]).status.success());
        let link = std::ffi::OsString::from(format!("link-{}", name.len()));
        let line = [std::ffi::OsStr::new("ln"), "-s".as_ref(), image.as_os_str(), path, &link];
        xfskit(line);
    }
    ok("xattr set IMAGE /link-2 trusted.x 0xff00", &image);
    let decode = |object: &serde_json::Value, member: &str| -> Vec<u8> {
        use base64::Engine;
        match object[format!("{member}_base64")].as_str() {
            Some(text) => base64::engine::general_purpose::STANDARD.decode(text).unwrap(),
            None => object[member].as_str().unwrap().as_bytes().to_vec(),
        }
    };
    let listed: serde_json::Value = serde_json::from_str(&ok("ls IMAGE --json", &image)).unwrap();
    let found: Vec<_> = listed.as_array().unwrap().iter().map(|entry| decode(entry, "name")).collect();
    assert!(names.iter().all(|name| found.contains(&name.to_vec())), "{found:?}");
    let lines: Vec<serde_json::Value> =
        ok("tree IMAGE --json", &image).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    assert!(names.iter().all(|name| lines.iter().any(|line| decode(line, "path").ends_with(name))));
    let link: serde_json::Value = serde_json::from_str(&ok("readlink IMAGE /link-2 --json", &image)).unwrap();
    assert_eq!(decode(&link, "target"), b"n\xff");
    let dump: serde_json::Value = serde_json::from_str(&ok("xattr dump IMAGE /link-2 -m - --json", &image)).unwrap();
    assert_eq!((&dump["path"], &dump["attributes"][0]["base64"]), (&"link-2".into(), &"/wA=".into()));
    ok("touch IMAGE /time -d 1700000000.25", &image);
    let stat: serde_json::Value = serde_json::from_str(&ok("stat IMAGE /time --json", &image)).unwrap();
    assert_eq!(stat["mtime"], "2023-11-14T22:13:20.250000000Z");
    assert!(ok("stat IMAGE /time", &image).contains("2023-11-14 22:13:20.250000000 +0000"));
    assert!(ok("ls -l IMAGE /time", &image).contains(" 2023-11-14 22:13:20 +0000 "));
}

/// A mkfs that fails changes nothing.
#[test]
fn sizes_that_do_not_fit_leave_the_file_as_it_is() {
    let scratch = scratch();
    let file = scratch.file("a.img");
    assert_eq!(fails("mkfs -q IMAGE --size +400M", &file).0, 2);
    assert_eq!(fails("mkfs -q IMAGE --size 20000000T", &file).0, 2);
    assert!(fails("mkfs -q IMAGE --size 9000000T -d size=1g", &file).0 != 0 && !file.exists());
    ok("mkfs -q IMAGE -d size=1g", &file);
    assert_eq!(fs::metadata(&file).unwrap().len(), 1 << 30);
    let before = fs::metadata(&file).unwrap();
    for line in ["mkfs -q -f IMAGE --size 10M", "mkfs -q -f IMAGE --size 1G -d agcount=100000", "mkfs -q IMAGE"] {
        assert_eq!(fails(line, &file).0, 2, "{line}");
        let now = fs::metadata(&file).unwrap();
        assert_eq!((now.len(), now.mtime_nsec()), (before.len(), before.mtime_nsec()), "{line}");
    }
    ok("ls IMAGE", &file);
}

//! Messages that say what to do: about mounted images, paths on mounts, mounts whose server has ended, and users
//! without the right to use FUSE.

mod common;

use common::mounts::{Prepared, prepared, server_of, signal, wait_for_end};
use common::{fails, ok, words, xfskit};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use xfskit_testkit::{scratch, skip};

const READERS: [&str; 12] = [
    "info IMAGE",
    "ls IMAGE /",
    "tree IMAGE",
    "stat IMAGE /file",
    "cat IMAGE /file",
    "df IMAGE",
    "du IMAGE",
    "check IMAGE",
    "parents IMAGE /file",
    "path IMAGE 128",
    "export IMAGE /",
    "xattr list IMAGE /file",
];

fn mounted_with_a_file() -> Option<Prepared> {
    let at = prepared()?;
    at.line("mount IMAGE DIR");
    fs::create_dir(at.dir.join("folder")).unwrap();
    fs::write(at.dir.join("file"), "no image, and longer than the sector of any. ".repeat(200)).unwrap();
    Some(at)
}

/// The message names the process, the mount point and the command that unmounts.
#[test]
fn an_image_that_is_mounted_is_named_with_its_mount_point() {
    let Some(at) = mounted_with_a_file() else { return };
    let dir = at.dir.to_str().unwrap();
    let server = format!("xfskit (process {})", server_of(&at.image));
    for line in READERS.into_iter().chain(["mkdir IMAGE /new", "mkfs -f IMAGE", "cp IMAGE:/file /nowhere"]) {
        let line = line.replace("IMAGE:", &format!("{}:", at.image.display()));
        let (code, message) = fails(&line, &at.image);
        assert_eq!(code, if line.starts_with("check") { 8 } else { 4 }, "{line}: {message}");
        for part in [
            "in use",
            &server,
            "--wait SECONDS waits",
            &format!("mounted on {dir}:"),
            &format!("'xfskit umount {dir}'"),
        ] {
            assert!(message.contains(part), "{line}: {part}: {message}");
        }
    }
    // By another name, too.
    let link = at.scratch.file("link.img");
    std::os::unix::fs::symlink(&at.image, &link).unwrap();
    assert!(fails("info IMAGE", &link).1.contains(dir));
    at.line("umount DIR");
    at.line("mount -o ro IMAGE DIR");
    ok("cat IMAGE /file", &at.image);
    at.line("umount DIR");
    // An image that another program has locked is not mounted by xfskit.
    let lock = fs::File::open(&at.image).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (code, message) = fails("info IMAGE", &at.image);
    assert!(code == 4 && message.contains("close it there first") && !message.contains("umount"), "{message}");
}

/// By the image a mount is found if it is the only one.
#[test]
fn an_image_that_is_mounted_once_is_unmounted_by_its_name() {
    let Some(at) = mounted_with_a_file() else { return };
    let (dir, second) = (at.dir.to_str().unwrap(), at.scratch.file("second"));
    let link = at.scratch.file("link.img");
    std::os::unix::fs::symlink(&at.image, &link).unwrap();
    ok("umount IMAGE", &link);
    let (code, message) = fails("umount IMAGE", &at.image);
    assert!(code == 1 && message.contains("no image that is mounted"), "{code} {message}");
    let (code, message) = fails("umount IMAGE", &at.scratch.file("missing"));
    assert!(code == 1 && message.contains("no such folder or image"), "{code} {message}");
    fs::create_dir(&second).unwrap();
    at.line("mount -o ro IMAGE DIR");
    ok(&format!("mount -o ro IMAGE {}", second.display()), &at.image);
    let (code, message) = fails("umount IMAGE", &at.image);
    let names_both = [dir, second.to_str().unwrap()].iter().all(|place| message.contains(place));
    assert!(code == 2 && message.contains("mounted 2 times") && names_both, "{code} {message}");
    ok(&format!("umount {}", second.display()), &at.image);
    at.line("umount IMAGE");
    assert!(fs::read_dir(&at.dir).unwrap().next().is_none());
}

#[test]
fn a_path_on_a_mount_is_named_with_its_image() {
    let Some(at) = mounted_with_a_file() else { return };
    let (dir, image) = (at.dir.to_str().unwrap(), at.image.to_str().unwrap());
    for (path, within) in [("", "/"), ("folder", "/folder"), ("file", "/file"), ("no/such/file", "/no/such/file")] {
        let path = at.dir.join(path);
        // Of a folder there, its server answers these.
        let is_answered =
            |line: &str| path.is_dir() && ["info", "parents", "path"].contains(&line.split(' ').next().unwrap());
        for line in READERS.into_iter().filter(|line| !is_answered(line)) {
            let (_, message) = fails(line, &path);
            for part in [format!("on {dir},"), format!("{image} {within}"), format!("'xfskit umount {dir}'")] {
                assert!(message.contains(&part), "{line}: {part}: {message}");
            }
        }
    }
    // The proposed command works.
    assert_eq!(fails("ls IMAGE", &at.dir).0, 6);
    at.line("umount DIR");
    assert!(ok("cat IMAGE /file", &at.image).starts_with("no image"));
    // An image on a mount is an image, and a folder elsewhere is not on a mount.
    assert!(!fails("ls IMAGE", &at.dir).1.contains("xfskit umount"));
    at.line("mount IMAGE DIR");
    let inner = at.dir.join("inner.img");
    ok("mkfs --small -q --size 64M IMAGE", &inner);
    assert_eq!(ok("ls IMAGE", &inner), "");
    at.line("umount DIR");
}

/// "Transport endpoint is not connected" alone does not say what to do.
#[test]
fn a_mount_whose_server_died_is_named_with_its_cure() {
    let Some(at) = mounted_with_a_file() else { return };
    let server = server_of(&at.image);
    signal(server, "-KILL");
    wait_for_end(server);
    // The kernel closes the files of the server a moment after it has freed its memory.
    let end = Instant::now() + Duration::from_secs(10);
    while fs::metadata(&at.dir).err().and_then(|error| error.raw_os_error()) != Some(Errno::NOTCONN.raw_os_error()) {
        assert!(Instant::now() < end, "the mount does not die");
    }
    let dir = at.dir.to_str().unwrap();
    let (code, message) = fails(&format!("mount IMAGE {dir}"), &at.image);
    let cures = [format!("'xfskit umount {dir}'"), format!("'fusermount3 -u {dir}'")];
    assert!(code == 8 && cures.iter().all(|cure| message.contains(cure)), "{code} {message}");
    let (code, message) = fails("ls IMAGE", &at.dir.join("folder"));
    assert!(code == 6 && message.contains(&cures[0]) && message.contains("has ended"), "{code} {message}");
    // The proposed command works.
    fails(&format!("umount {dir}"), &at.image);
    at.line("--wait 5 mount IMAGE DIR");
    at.line("umount DIR");
}

/// The reason is the user's permission, not a missing module.
#[test]
fn a_user_who_may_not_use_fuse_reads_that_in_the_message() {
    let Some(at) = prepared() else { return };
    let mode = fs::metadata("/dev/fuse").unwrap().permissions().mode();
    if !rustix::process::geteuid().is_root() || mode & 0o006 == 0o006 {
        return skip("this user cannot become one who may not open /dev/fuse");
    }
    fs::set_permissions(at.scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&at.image, fs::Permissions::from_mode(0o666)).unwrap();
    let line = format!("--reuid 1000 --regid 1000 --clear-groups PROGRAM mount IMAGE {}", at.dir.display());
    let mut arguments = words(&line, &at.image);
    let program = arguments.iter_mut().find(|word| **word == "PROGRAM").unwrap();
    *program = Path::new(env!("CARGO_BIN_EXE_xfskit")).as_os_str();
    let output = Command::new("setpriv").args(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{message}");
    assert!(message.contains("permission") && !message.contains("loaded"), "{message}");
}

/// The parser's own tip would take an unknown option for a path.
#[test]
fn an_unknown_option_is_not_taken_for_a_path() {
    let image = Path::new("/nowhere/a.img");
    for line in
        ["mkfs -K IMAGE", "mkfs -N IMAGE", "mkfs -p x IMAGE", "mkdir IMAGE -a /d", "ls IMAGE -K", "touch IMAGE -a /f"]
    {
        let (code, message) = fails(line, image);
        assert!(code == 2 && !message.contains("as a value"), "{line}: {message}");
    }
    assert!(fails("mkfs -K IMAGE", image).1.contains("; leave it out"));
    assert!(fails("mkfs -p x IMAGE", image).1.contains("--from FOLDER"));
    assert!(!fails("cp -K IMAGE /x", image).1.contains("tip"));
    // A wrong letter is still corrected.
    assert!(fails("mkfs --labels IMAGE", image).1.contains("there is no option --labels"));
    assert!(fails("ls --recursiv IMAGE", image).1.contains("did you mean --recursive?"));
    assert!(!fails("rm -R IMAGE /x", image).1.contains("no option"));
}

/// The formatter must not fill the tables of exit codes and options.
#[test]
fn tables_of_manuals_keep_their_lines() {
    let scratch = xfskit_testkit::scratch();
    ok("man IMAGE", scratch.path());
    for (page, command) in
        [("xfskit.1", "--help"), ("xfskit-mount.1", "mount --help"), ("xfskit-check.1", "check --help")]
    {
        let help = ok(command, scratch.path());
        let notes = |line: &str| line.starts_with("Exit codes") || line.starts_with("Options for -o");
        let table: Vec<&str> = help.lines().skip_while(|line| !notes(line)).skip(1).collect();
        let table: Vec<&str> = table.into_iter().take_while(|line| line.starts_with("  ")).collect();
        assert!(table.len() > 4, "{help}");
        let Ok(output) = Command::new("groff").args(["-man", "-Tutf8", "-P-cbou"]).arg(scratch.file(page)).output()
        else {
            return skip("this machine has no groff");
        };
        let text =
            String::from_utf8_lossy(&output.stdout).replace(['\u{2010}', '\u{2212}'], "-").replace('\u{2019}', "'");
        for line in table {
            assert!(text.lines().any(|shown| shown.trim_start() == line.trim_start()), "{page}: {line}\n{text}");
        }
    }
}

/// The number of files is known from measuring.
#[test]
fn progress_of_what_was_measured_has_a_percentage() {
    let scratch = xfskit_testkit::scratch();
    let (image, folder) = (scratch.file("a.img"), scratch.file("folder"));
    fs::create_dir(&folder).unwrap();
    for n in 0..2999 {
        fs::write(folder.join(n.to_string()), "contents").unwrap();
    }
    if Command::new("script").arg("--version").output().is_err() {
        return skip("this machine has no script(1)");
    }
    let drawn_after = |after: &str, size: &str| {
        let own = env!("CARGO_BIN_EXE_xfskit");
        let line = format!("stty cols 120; {own} mkfs -f -q {size} --from {} {}", folder.display(), image.display());
        let output = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env("XFSKIT_PROGRESS_AFTER", after)
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(drawn_after("60000", ""), "", "short work shows nothing");
    // Into a file that exists a tree is not measured.
    fs::remove_file(&image).unwrap();
    let drawn = |size: &str| drawn_after("0", size);
    let known = drawn("");
    let parts = ["%, ", " of 3000 files", " files/s", "B/s", " left"];
    assert!(parts.iter().all(|part| known.contains(part)), "{known:?}");
    // Without measuring, the number of files is not known.
    let unknown = drawn("--size 400M");
    assert!(unknown.contains(" files, ") && !unknown.contains('%'), "{unknown:?}");
}

/// The message names the copy of the superblock with which `ls` works.
#[test]
fn a_refused_write_to_an_image_without_its_first_superblock_names_the_copy() {
    let scratch = xfskit_testkit::scratch();
    let image = common::image(&scratch);
    let file = fs::File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 512], 0).unwrap();
    // What is read by the copy is not the whole truth.
    for line in ["ls IMAGE", "info IMAGE", "df IMAGE", "export IMAGE", "log print IMAGE"] {
        let (code, message) = fails(line, &image);
        let says = ["the first superblock is damaged or gone", "copy in AG 1", "until xfs_repair has put"];
        assert!(code == 3 && says.iter().all(|part| message.contains(part)), "{line}: {code} {message}");
    }
    let (code, message) = fails("mkdir IMAGE /new", &image);
    assert!(code == 3 && message.contains("AG 1 has a copy") && message.contains("xfs_repair"), "{code} {message}");
    if let Some(reference) = xfskit_testkit::reference() {
        reference.tool_output("xfs_repair", [image.to_str().unwrap()]);
        ok("mkdir IMAGE /new", &image);
    }
    fs::write(&image, "").unwrap();
    fs::File::options().write(true).open(&image).unwrap().set_len(64 << 20).unwrap();
    for line in ["ls IMAGE", "mkdir IMAGE /new"] {
        let (code, message) = fails(line, &image);
        assert!(code == 3 && message.contains("zeros") && message.contains("mkfs"), "{code} {message}");
    }
}

#[test]
fn a_message_says_what_to_do() {
    let scratch = xfskit_testkit::scratch();
    let (image, missing) = (common::image(&scratch), scratch.file("missing"));
    ok("mkdir IMAGE /dir", &image);
    let (code, message) = fails("rm IMAGE /dir", &image);
    assert!(code == 1 && message.contains("-r removes"), "{message}");
    let (code, message) = fails("check --threads 0 IMAGE", &image);
    assert!(code == 16 && message.contains("1 at least"), "{message}");
    let (code, message) = fails("path IMAGE /dir", &image);
    let says = ["number of an inode", "'xfskit parents IMAGE /dir'"];
    assert!(code == 2 && says.iter().all(|part| message.contains(part)), "{message}");
    let (code, message) = fails("path IMAGE x", &image);
    assert!(code == 2 && message.contains("number of an inode") && !message.contains("parents"), "{message}");
    let help = ok("check --help", &image);
    for code in ["those of fsck", "  1   faults were found", "  8   the image could not", "  16  wrong usage"] {
        assert!(help.contains(code), "{help}");
    }
    let folder = format!("there is no folder {}", missing.display());
    let source = scratch.path().display();
    for line in [
        format!("mkfs -q --size 512M {}/a.img", missing.display()),
        format!("mkfs -q --from {source} {}/a.img", missing.display()),
        format!("export IMAGE -o {}/a.tar", missing.display()),
    ] {
        let (code, message) = fails(&line, &image);
        // An archive that cannot be made is a failed operation.
        let expected = if line.starts_with("export") { 1 } else { 6 };
        assert!(code == expected && message.contains(&folder), "{line}: {code} {message}");
    }
    // With -q nothing is printed; and a file may be cloned by its number.
    assert_eq!(ok("mkfs -f -q --json IMAGE", &image), "");
    ok("mkdir IMAGE /dir", &image);
    ok("touch IMAGE /file", &image);
    let stat: serde_json::Value = serde_json::from_str(&ok("stat --json IMAGE /file", &image)).unwrap();
    ok(&format!("clone IMAGE inode:{} /copy", stat["inode"]), &image);
    ok("clone IMAGE /file /dir", &image);
    assert_eq!(ok("ls IMAGE /dir", &image), "file\n");
}

/// `--wait` applies to umount, too.
#[test]
fn an_unmount_waits_for_those_who_use_the_mount() {
    let Some(at) = prepared() else { return };
    at.line("mount IMAGE DIR");
    let file = fs::File::create(at.dir.join("file")).unwrap();
    let (code, message) = fails(&format!("umount {}", at.dir.display()), &at.image);
    assert!(code == 1 && message.contains("busy") && message.contains("--wait"), "{code} {message}");
    let user = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        drop(file);
    });
    at.line("--wait 20 umount DIR");
    user.join().unwrap();
    assert_eq!(ok("ls IMAGE", &at.image), "file\n");
}

/// What people type that is no command leads somewhere, and a missing operand is named with what it is.
#[test]
fn a_mistake_leads_somewhere() {
    let scratch = xfskit_testkit::scratch();
    let image = common::image(&scratch);
    for (line, says) in [
        ("repair IMAGE", "xfs_repair"),
        ("fsck IMAGE", "'xfskit check IMAGE'"),
        ("resize IMAGE", "admin grow"),
        ("dump IMAGE", "export"),
        ("quota IMAGE", "quotas are not kept"),
        ("unmount IMAGE", "umount"),
        ("getfattr IMAGE", "xattr"),
        ("exprot IMAGE", "did you mean 'export'?"),
        ("admin resize IMAGE", "admin grow"),
        ("xattr remove IMAGE /f user.a", "xattr rm IMAGE"),
        ("log dump IMAGE", "log print"),
        ("IMAGE ls", "the command comes before the image"),
        ("cat IMAGE", "cat: PATHS (Paths within the image, or inode:NUMBER) is missing"),
        ("cat", "IMAGE (Image file or block device"),
        ("xattr get IMAGE /a", "xattr get: NAME ("),
        ("cp IMAGE", "DST"),
        ("chmod IMAGE", "MODE ("),
        ("ls -K IMAGE", "there is no option -K"),
        ("readlink IMAGE /a /b", "there is no use for /b"),
    ] {
        let (code, message) = fails(line, &image);
        assert!(code == 2 && message.starts_with("xfskit: ") && message.contains(says), "{line}: {code} {message}");
        assert!(!message.contains("required argument") && !message.contains("subcommand"), "{line}: {message}");
        let (code, object) = fails(&format!("--json {line}"), &image);
        let object: serde_json::Value = serde_json::from_str(&object).unwrap_or_else(|_| panic!("{line}: {object}"));
        assert!(
            code == 2 && object["code"] == 2 && object["error"].as_str().unwrap().contains(says),
            "{line}: {object}"
        );
    }
    assert_eq!(fails("check", &image).0, 16);
}

/// With --json, what goes wrong is a line with an object each.
#[test]
fn errors_are_json_where_it_is_asked_for() {
    let scratch = xfskit_testkit::scratch();
    let image = common::image(&scratch);
    ok("mkdir IMAGE /dir", &image);
    for (line, codes) in [
        ("ls IMAGE /none", vec![1]),
        ("rm IMAGE /none /nowhere", vec![1, 1]),
        ("ls IMAGE#3", vec![2]),
        ("ls /nowhere.img", vec![6]),
        ("check /nowhere.img", vec![8]),
        ("mkdir IMAGE:/dir", vec![1]),
    ] {
        let line = line.replace("IMAGE", image.to_str().unwrap());
        let (code, text) = fails(&format!("--json {line}"), &image);
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
        let found: Vec<_> = objects.iter().map(|object| object["code"].as_u64().unwrap()).collect();
        assert_eq!(found, codes, "{line}: {text}");
        assert!(codes.contains(&(code as u64)) && objects.iter().all(|object| object["error"].is_string()), "{text}");
    }
}

/// Both ways to write a path within an image, for every command that takes one.
#[test]
fn a_path_is_written_either_way() {
    let scratch = xfskit_testkit::scratch();
    let image = common::image(&scratch);
    let name = image.to_str().unwrap();
    let run = |line: &str| ok(&line.replace("IMG", name), &image);
    run("mkdir -p IMG:/a/b IMG:/c");
    run("touch IMG:/a/f");
    run("ln IMG:/a/f IMG:/a/g");
    run("ln -s target IMG:/a/s");
    run("mv IMG:/a/g IMG:/c/h");
    run("chmod 600 IMG:/a/f");
    run("chown 12:34 IMG:/a/f");
    run("xattr set IMG:/a/f user.x value");
    run("clone IMG:/a/f IMG:/a/k");
    run("mknod IMG:/a/n c 1 3");
    assert!(common::with_input(&format!("write {name}:/a/w"), &image, b"text").status.success());
    for (line, text) in [
        ("cat IMG:/a/w", "text"),
        ("ls IMG:/a", "b\nf\nk\nn\ns\nw\n"),
        ("ls IMG:", "a\nc\n"),
        ("find IMG:/a -name f", "/a/f\n"),
        ("xattr get IMG:/a/f user.x", "value"),
        ("readlink IMG:/a/s", "target\n"),
        ("parents IMG:/a/f", "/a/f\n/c/h\n"),
    ] {
        assert_eq!(run(line), text, "{line}");
        assert_eq!(run(&line.replacen(':', " ", 1).replace("IMG ", "IMG /").replace("//", "/")), text, "{line}");
    }
    for line in ["stat IMG:/a/f", "tree IMG:/a", "du IMG:/a", "xattr dump IMG:/a/f", "df IMG:/", "info IMG:"] {
        assert!(!run(line).is_empty(), "{line}");
    }
    run("rm -r IMG:/a IMG:/c");
    assert_eq!(run("ls IMG"), "");
}

/// A shell's completion knows the image on the line.
#[test]
fn paths_in_the_image_are_completed() {
    let scratch = xfskit_testkit::scratch();
    let image = common::image(&scratch);
    ok("mkdir -p IMAGE /etc/ssh /etc/ssl /var", &image);
    let complete = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true").env("_CLAP_IFS", "\n");
        let output = command.arg("--").args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let name = image.to_str().unwrap();
    assert_eq!(complete(&["xfskit", "ls", name, "/etc/ss"]), ["/etc/ssh/", "/etc/ssl/"]);
    assert_eq!(complete(&["xfskit", "xattr", "dump", name, "/v"]), ["/var/"]);
    // A shell puts a name into the line as it is: none that would be a command is offered.
    for evil in ["/q$(touch x)", "/q;id", "/q`id`", "/q'", "/q\u{202e}x", "/q\\x", "/q>x"] {
        assert!(xfskit(["mkdir", name, evil]).status.success());
    }
    assert_eq!(complete(&["xfskit", "ls", name, "/q"]), [""; 0]);
    assert!(complete(&["xfskit", "mount", "-o", "noreco"]).contains(&"norecovery".to_owned()));
    assert!(complete(&["xfskit", "mkfs", "-m", "reflink"]).contains(&"reflink=0".to_owned()));
    assert!(complete(&["xfskit", "mkfs", "--for", "debian-1"]).contains(&"debian-12".to_owned()));
    let hidden = complete(&["xfskit", "mount", "--ser"]);
    assert!(hidden.iter().all(|word| word == "--service"), "{hidden:?}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok(&format!("completions {shell}"), &image).contains("COMPLETE"));
    }
}

/// Help shows the options of a command before those of all, and the commands by what they are for.
#[test]
fn help_is_in_groups() {
    let image = Path::new("/nowhere");
    let help = ok("ls --help", image);
    let own = help.find("--recursive").unwrap();
    assert!(own < help.find("Options of every command").unwrap() && own < help.find("--json").unwrap(), "{help}");
    let help = ok("--help", image);
    for title in ["Images:", "Mounts:", "Look at files:", "Change files:", "Options of every command:"] {
        assert!(help.contains(title), "{help}");
    }
    let scratch = xfskit_testkit::scratch();
    ok("man IMAGE", scratch.path());
    let page = fs::read_to_string(scratch.file("xfskit-mount.1")).unwrap();
    assert!(page.contains("[\\fB\\-o\\fR \\fIOPTS\\fR]") && !page.contains("server\\-process"), "{page}");
}

/// A hint names the option of the program that gives it, and the part of the disk that may be meant.
#[test]
fn hints_lead_where_they_should() {
    let scratch = xfskit_testkit::scratch();
    let image = scratch.file("new.img");
    let (code, message) = fails("mkfs --size 10M IMAGE", &image);
    assert!(code == 2 && message.contains("--small"), "{code} {message}");
    let disk = scratch.file("disk.img");
    fs::File::create(&disk).unwrap().set_len(700 << 20).unwrap();
    let mut sfdisk = Command::new("sfdisk");
    let table = sfdisk.arg("-q").arg(&disk).stdin(std::process::Stdio::piped()).spawn();
    let Ok(mut table) = table else { return skip("this machine has no sfdisk") };
    std::io::Write::write_all(&mut table.stdin.take().unwrap(), b"label: gpt\n,300M\n,300M\n").unwrap();
    assert!(table.wait().unwrap().success());
    let (code, message) = fails("mkfs IMAGE", &disk);
    assert!(code == 2 && message.contains("disk.img#2"), "{code} {message}");
}

/// A command takes paths of the host and of the image: a path within an image is named with it.
#[test]
fn a_path_within_an_image_is_named_with_its_image() {
    let scratch = scratch();
    let image = common::image(&scratch);
    let (name, host) = (image.display(), scratch.file("host"));
    ok("mkdir IMAGE /dir", &image);
    fs::write(&host, "contents").unwrap();
    for line in [
        "ls IMAGE /none",
        "tree IMAGE /none",
        "find IMAGE /none",
        "stat IMAGE /none",
        "cat IMAGE /none",
        "du IMAGE /none",
        "parents IMAGE /none",
        "rm IMAGE /none",
        "chmod IMAGE 600 /none",
        "xattr list IMAGE /none",
        "export IMAGE /none",
        "cp IMAGE:/none .",
        "mv IMAGE /dir /none/dir",
        "ln IMAGE /none /name",
    ] {
        let line = line.replace("IMAGE:", &format!("{name}:"));
        let (_, message) = fails(&line, &image);
        let of = if line.starts_with("mv") { "/none/dir" } else { "/none" };
        assert!(message.starts_with(&format!("xfskit: {name}:{of}: ")), "{line}: {message}");
        assert_eq!(message.matches(&name.to_string()).count(), 1, "{line}: {message}");
    }
    let into = format!("cp {} {name}:/none/file", host.display());
    assert!(fails(&into, &image).1.starts_with(&format!("xfskit: {name}:/none/file: ")));
    // Each of several is named.
    let (_, message) = fails("ls IMAGE /none /neither", &image);
    assert!(message.lines().all(|line| line.starts_with(&format!("xfskit: {name}:/n"))), "{message}");
    let (_, message) = fails("stat IMAGE inode:5", &image);
    assert!(message.starts_with(&format!("xfskit: {name}: inode:5: ")), "{message}");
}

//! The server of a mount has given up its rights, in every thread; its parent has no image; and either may be killed.

mod common;

use common::mounts::{prepared, server_of, signal, wait_for_end};
use common::trace::{self, SIGNATURE_BYTES, Traced};
use common::{commands, fails, ok, xfskit};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xfskit_testkit::skip;

/// The lines of the status of each thread of a process that begin with a word.
fn of_threads(process: i32, word: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let status = |thread: PathBuf| fs::read_to_string(thread.join("status")).unwrap_or_default();
    let line = |text: String| text.lines().find_map(|line| line.strip_prefix(word)).map(|rest| rest.trim().to_owned());
    threads.filter_map(|thread| line(status(thread.unwrap().path()))).collect()
}

fn parent_of(process: i32) -> i32 {
    of_threads(process, "PPid:")[0].parse().unwrap()
}

/// What a process has open.
fn open_files(process: i32) -> Vec<String> {
    let links = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    links.filter_map(|link| fs::read_link(link.path()).ok()).map(|target| target.display().to_string()).collect()
}

fn has_seccomp() -> bool {
    let has = Path::new("/proc/sys/kernel/seccomp").exists();
    if !has {
        skip("this kernel has no seccomp");
    }
    has
}

#[test]
fn a_server_has_no_rights_and_its_parent_no_image() {
    let Some(at) = prepared() else { return };
    if !has_seccomp() {
        return;
    }
    at.line("mount IMAGE DIR");
    // A request that waits starts a thread, and one of a lone client the follower.
    fs::write(at.dir.join("file"), "contents").unwrap();
    fs::File::open(at.dir.join("file")).unwrap().sync_all().unwrap();
    let (server, parent) = (server_of(&at.image), parent_of(server_of(&at.image)));
    let image = at.image.canonicalize().unwrap().display().to_string();
    assert!(of_threads(server, "Name:").len() > 2);
    for (word, expected) in
        [("CapPrm:", "0"), ("CapEff:", "0"), ("CapInh:", "0"), ("NoNewPrivs:", "1"), ("Seccomp:", "2")]
    {
        for found in of_threads(server, word) {
            assert!(found.trim_start_matches('0') == expected.trim_start_matches('0'), "{word} {found}");
        }
    }
    let open = open_files(server);
    assert!(open.contains(&image), "{open:?}");
    let is_known = |file: &String| {
        *file == image
            || ["/dev/fuse", "/dev/null", "/proc/"].iter().any(|known| file.starts_with(known))
            || ["socket:", "pipe:", "anon_inode:", "/memfd:xfskit"].iter().any(|known| file.starts_with(known))
    };
    assert!(open.iter().all(is_known), "{open:?}");
    assert!(!open_files(parent).contains(&image), "{:?}", open_files(parent));
    assert!(ok(&format!("stats {}", at.dir.display()), &at.image).contains("seccomp"));
    // Not dumpable: its files in /proc are root's.
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{server}/environ")).unwrap());
    assert_eq!(owner, 0);
    at.line("umount DIR");
    wait_for_end(parent);
}

#[test]
fn a_sandbox_can_be_left_out() {
    let Some(at) = prepared() else { return };
    for line in ["mount -o nosandbox IMAGE DIR", "mount --no-sandbox IMAGE DIR"] {
        at.line(line);
        assert!(of_threads(server_of(&at.image), "Seccomp:").iter().all(|mode| mode == "0"), "{line}");
        at.line("umount DIR");
    }
}

/// The server cannot unmount, so it closes the image, and everything is in it.
#[test]
fn a_server_whose_parent_is_killed_closes_the_image() {
    let Some(at) = prepared() else { return };
    at.line("mount IMAGE DIR");
    fs::write(at.dir.join("file"), "contents").unwrap();
    fs::File::open(at.dir.join("file")).unwrap().sync_all().unwrap();
    fs::create_dir(at.dir.join("dir")).unwrap();
    let server = server_of(&at.image);
    signal(parent_of(server), "-KILL");
    wait_for_end(server);
    assert!(ok("info IMAGE", &at.image).ends_with("clean\n"));
    assert_eq!(ok("ls IMAGE /", &at.image), "dir\nfile\n");
    // The dead mount is taken away as any other. Whether the server's report of a good end is still found is a race.
    xfskit(["umount".as_ref(), at.dir.as_os_str()]);
    assert_eq!(fs::read_dir(&at.dir).unwrap().count(), 0);
}

#[test]
fn a_parent_whose_server_is_killed_ends() {
    let Some(at) = prepared() else { return };
    at.line("mount IMAGE DIR");
    let server = server_of(&at.image);
    let parent = parent_of(server);
    signal(server, "-KILL");
    wait_for_end(parent);
    let end = Instant::now() + Duration::from_secs(10);
    while fs::read_dir(&at.dir).is_ok() {
        assert!(Instant::now() < end, "the mount is still answered");
        std::thread::sleep(Duration::from_millis(5));
    }
    fails(&format!("umount {}", at.dir.display()), &at.image);
}

/// A command of each kind. `DIR` is a folder with `file`, `more` and `archive.tar`; `IMAGE` has `/file` and `/dir`.
const COMMANDS: &[&str] = &[
    "info IMAGE",
    "check IMAGE",
    "ls -lR IMAGE /",
    "tree IMAGE",
    "find IMAGE --name *",
    "find IMAGE -exec true {} ;",
    "stat IMAGE /file",
    "readlink IMAGE /link",
    "cat IMAGE /file",
    "df IMAGE",
    "du IMAGE",
    "parents IMAGE /file",
    "path IMAGE 128",
    "xattr list IMAGE /file",
    "xattr get IMAGE /file user.name",
    "xattr dump IMAGE -R /",
    "log print IMAGE",
    "mkdir IMAGE /new",
    "mknod IMAGE /pipe p",
    "touch IMAGE /touched",
    "ln IMAGE /file /name",
    "mv IMAGE /name /other-name",
    "chmod IMAGE 600 /file",
    "chown IMAGE 5:5 /file",
    "write IMAGE /written",
    "clone IMAGE /file /cloned",
    "xattr set IMAGE /file user.name --value-file DIR/file",
    "xattr rm IMAGE /file user.name",
    "xattr label IMAGE --file-contexts DIR/contexts",
    "xattr restore IMAGE DIR/dump",
    "rm IMAGE -r --discard /cloned",
    "log replay IMAGE",
    "admin label IMAGE name",
    "admin uuid IMAGE random",
    "admin trim IMAGE",
    "admin grow IMAGE 600M",
    "cp -a IMAGE:/ DIR/copied",
    "cp IMAGE:/file DIR/file",
    "cp -a DIR/copied IMAGE:/",
    "cp DIR/file IMAGE:/ ",
    "cp -r IMAGE:/dir IMAGE:/dir2",
    "export IMAGE / -o DIR/archive.tar -f",
    "import IMAGE /dir --from DIR/archive.tar --from DIR/copied",
    "mkfs -q -f IMAGE --size 512M --owner 5:5",
    "mkfs -q -f IMAGE --from DIR/archive.tar",
    "mkfs -q -f IMAGE --from DIR/copied --size 512M",
    "mkfs -q DIR/new.img --from DIR/copied --from DIR/archive.tar --minimize",
];
/// Commands that parse no image of others.
const UNCONFINED: &[&str] = &["mount", "umount", "stats", "crash-test", "bench", "man", "completions", "help"];
fn traced(line: &str, image: &Path, dir: &Path) -> Option<Traced> {
    let line = line.replace("DIR", dir.to_str().unwrap()).replace("IMAGE", image.to_str().unwrap());
    let arguments: Vec<&str> = line.split_whitespace().collect();
    trace::traced(&arguments, &[image.into()], &dir.join("calls"))
}

fn prepare(image: &Path, dir: &Path) {
    ok("mkfs -q --size 512M IMAGE", image);
    ok("mkdir IMAGE /dir", image);
    ok("touch IMAGE /file /dir/other", image);
    ok("ln -s IMAGE file /link", image);
    ok("xattr set IMAGE /file user.name value", image);
    fs::write(dir.join("file"), "contents\n").unwrap();
    fs::write(dir.join("contexts"), "/.* system_u:object_r:file_t:s0\n").unwrap();
    fs::write(dir.join("dump"), "# file: file\nuser.name=\"value\"\n").unwrap();
    fs::create_dir(dir.join("copied")).unwrap();
    ok(&format!("export IMAGE / -o {}", dir.join("archive.tar").display()), image);
}

#[test]
fn every_command_gives_up_its_rights_before_it_reads_an_image() {
    if !has_seccomp() {
        return;
    }
    let scratch = xfskit_testkit::scratch();
    let (image, dir) = (scratch.file("a.img"), scratch.file("dir"));
    fs::create_dir(&dir).unwrap();
    prepare(&image, &dir);
    for line in COMMANDS {
        let Some(traced) = traced(line, &image, &dir) else { return skip("this machine has no strace") };
        assert_eq!(traced.entered, 1, "{line}");
        assert!(traced.refused.is_empty(), "{line}: {:#?}", traced.refused);
        assert!(traced.before.is_empty(), "{line}: {:#?}", traced.before);
        // Root could read the memory of other devices there.
        let is_too_much = |fd: &String| ["</>", "</sys>", "</sys/devices>"].iter().any(|wide| fd.contains(wide));
        assert!(!traced.allowed.is_empty(), "{line}: no rule of Landlock is seen");
        assert!(!traced.allowed.iter().any(is_too_much), "{line}: {:#?}", traced.allowed);
        // With `-f`, `mkfs` need not look at what it overwrites.
        if !line.starts_with("mkfs") {
            assert!(traced.read_after > SIGNATURE_BYTES, "{line}: {} bytes", traced.read_after);
        }
    }
    if let Some(reference) = xfskit_testkit::reference() {
        reference.repair_finds_nothing(&image);
    }
    let Some(traced) = traced("--no-sandbox info IMAGE", &image, &dir) else { return };
    assert_eq!(traced.entered, 0);
}

/// Commands, and the capabilities of root that they keep besides those to open the image again: to read and to give
/// attributes, and owners.
const CAPABILITIES: &[(&str, &[&str])] = &[
    ("ls IMAGE /", &[]),
    ("touch IMAGE /file", &[]),
    ("export IMAGE / -o DIR/archive.tar -f", &[]),
    ("import IMAGE /dir --from DIR/copied", &["CAP_SYS_ADMIN"]),
    ("import IMAGE /dir --from DIR/copied --no-xattrs", &[]),
    ("cp -a IMAGE:/ DIR/copied", &["CAP_SYS_ADMIN", "CAP_SETFCAP", "CAP_CHOWN"]),
    ("cp -a --no-xattrs IMAGE:/ DIR/copied", &["CAP_CHOWN"]),
    ("cp -a --no-xattrs DIR/copied IMAGE:/", &[]),
    ("mkfs -q -f IMAGE --from DIR/copied --size 512M", &["CAP_SYS_ADMIN"]),
    ("mkfs -q -f IMAGE --size 512M", &[]),
];

#[test]
fn root_keeps_the_capabilities_that_a_command_needs() {
    if !has_seccomp() || !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = xfskit_testkit::scratch();
    let (image, dir) = (scratch.file("a.img"), scratch.file("dir"));
    fs::create_dir(&dir).unwrap();
    prepare(&image, &dir);
    for (line, kept) in CAPABILITIES {
        let Some(traced) = traced(line, &image, &dir) else { return skip("this machine has no strace") };
        assert!(traced.refused.is_empty(), "{line}: {:#?}", traced.refused);
        for capability in ["CAP_SYS_ADMIN", "CAP_SETFCAP", "CAP_CHOWN"] {
            let is_kept = traced.capabilities.contains(capability);
            assert_eq!(is_kept, kept.contains(&capability), "{line}: {capability}: {}", traced.capabilities);
        }
    }
}

#[test]
fn no_command_is_forgotten() {
    for command in commands() {
        let is_tried = COMMANDS.iter().any(|line| line.starts_with(&format!("{command} ")));
        let is_left_out = UNCONFINED.contains(&command.rsplit(' ').next().unwrap());
        assert!(is_tried || is_left_out, "{command}");
    }
}

//! The server of a mount has given up its rights, in every thread; its parent has no image; and either may be killed.

mod common;

use common::mounts::{prepared, server_of, signal, wait_for_end};
use common::{fails, ok, xfskit};
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
            || ["socket:", "pipe:", "anon_inode:", "/memfd:xfskit:"].iter().any(|known| file.starts_with(known))
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

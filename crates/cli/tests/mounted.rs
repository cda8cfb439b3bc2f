//! `xfskit mount` as a program: its mount is ready when it returns, it ends on signals, and if it is killed it leaves
//! an image that the kernel recovers.

mod common;

use common::mounts::prepared;
use common::{fails, ok, words, xfskit};
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{kernel_mount, reference, tree};

fn line(text: &str, image: &Path, dir: &Path) -> String {
    let text = text.replace("DIR", dir.to_str().unwrap());
    ok(&text, image)
}

/// The process that serves an image.
fn server_of(image: &Path) -> i32 {
    let servers = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let process: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let command = fs::read_to_string(format!("/proc/{process}/cmdline")).ok()?;
        (command.contains("--server") && command.contains(image.to_str()?)).then_some(process)
    });
    servers.last().expect("a server")
}

fn kill(process: i32, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
    let end = Instant::now() + Duration::from_secs(30);
    // A zombie has no command line, but other threads of it may still have the image. This process is not its parent,
    // so it cannot wait for it.
    let threads = || fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    let alive =
        || fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|command| !command.is_empty()) || threads() > 1;
    while alive() {
        assert!(Instant::now() < end, "the server does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_mount_is_ready_when_it_returns_and_closed_when_umount_does() {
    let Some(prepared) = prepared() else { return };
    let (image, dir) = (prepared.image.clone(), prepared.dir.clone());
    line("mount -o wsync,cache=32M IMAGE DIR", &image, &dir);
    fs::write(dir.join("a"), "").unwrap();
    let (code, message) = fails("info IMAGE", &image);
    assert!(code == 4 && message.contains("in use"), "{message}");
    let stats: serde_json::Value = serde_json::from_str(&line("--json stats DIR", &image, &dir)).unwrap();
    assert_eq!(stats["options"]["wsync"], true);
    assert!(line("stats DIR", &image, &dir).contains("log bytes"));
    line("umount DIR", &image, &dir);
    assert_eq!(ok("ls IMAGE", &image), "a\n");
    assert_eq!(fails(&format!("umount {}", dir.display()), &image).0, 1);
    assert_eq!(fails(&format!("stats {}", dir.display()), &image).0, 1);
    assert_eq!(fails("mount IMAGE /nowhere", &image).0, 8);
    line("mount -o ro IMAGE DIR", &image, &dir);
    assert_eq!(fs::write(dir.join("b"), "").unwrap_err().raw_os_error(), Some(30));
    line("umount DIR", &image, &dir);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

/// Ways to empty a file and to write it anew, here with 8192 twos.
const REWRITES: [fn(&Path); 3] = [
    |file| fs::write(file, [2; 8192]).unwrap(),
    |file| {
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let emptied = fs::File::options().write(true).truncate(true).custom_flags(direct).open(file).unwrap();
        let bytes = vec![2; 3 * 4096];
        let start = bytes.as_ptr().align_offset(4096);
        emptied.write_all_at(&bytes[start..start + 8192], 0).unwrap();
    },
    |file| {
        let source = fs::File::open(file.with_file_name("source")).unwrap();
        let emptied = fs::File::create(file).unwrap();
        // From a place that no block begins at, so that bytes are copied.
        let copied = rustix::fs::copy_file_range(source, Some(&mut 1), emptied, Some(&mut 0), 8192);
        assert_eq!(copied.unwrap(), 8192);
    },
];

/// A shell empties a file (`>`) and writes it anew. What another program syncs makes the former durable; the new
/// contents must not stay behind, for neither would be there after a power cut. The server hears of no close, and the
/// kernel brings at one only what it has in its cache: not what was written without it, and no copies.
#[test]
fn a_file_that_was_written_anew_is_durable_with_the_fsync_of_another_after_its_close() {
    for (cache, number) in ["writeback", "nowriteback"].iter().flat_map(|cache| (0..3).map(move |n| (cache, n))) {
        let Some(prepared) = prepared() else { return };
        let (image, dir) = (prepared.image.clone(), prepared.dir.clone());
        line(&format!("mount -o {cache} IMAGE DIR"), &image, &dir);
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::write(&a, [1; 10_000]).unwrap();
        fs::write(dir.join("source"), [2; 8193]).unwrap();
        rustix::fs::sync();
        REWRITES[number](&a);
        fs::write(&b, [3; 100]).unwrap();
        fs::File::open(&b).unwrap().sync_all().unwrap();
        kill(server_of(&image), "-KILL");
        Command::new("umount").arg("-l").arg(&dir).status().unwrap();
        let Some(mount) = kernel_mount(&image) else { return };
        let found = fs::read(mount.path().join("a")).unwrap();
        assert!(found == [2; 8192], "{cache} {number}: {} bytes", found.len());
        mount.unmount();
    }
}

#[test]
fn signals_close_the_image_in_good_order() {
    let Some(prepared) = prepared() else { return };
    let (image, dir) = (prepared.image.clone(), prepared.dir.clone());
    for signal in ["-TERM", "-INT", "-HUP"] {
        line("mount IMAGE DIR", &image, &dir);
        fs::write(dir.join(signal), "").unwrap();
        kill(server_of(&image), signal);
        assert!(ok("info IMAGE", &image).ends_with("clean\n"));
    }
    // In the foreground, and with a file open.
    let arguments = words("mount -f IMAGE", &image);
    let mut server =
        Command::new(env!("CARGO_BIN_EXE_xfskit")).args(arguments).arg(&dir).stdin(Stdio::null()).spawn().unwrap();
    let name = dir.join("-TERM");
    while !name.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let file = fs::File::open(&name).unwrap();
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    assert!(server.wait().unwrap().success());
    drop(file);
    assert_eq!(ok("ls IMAGE", &image), "-HUP\n-INT\n-TERM\n");
    assert!(ok("info IMAGE", &image).ends_with("clean\n"));
}

/// A SEEK_DATA must not start a thread, since there may be none left.
#[test]
fn seeks_share_a_few_threads() {
    let Some(prepared) = prepared() else { return };
    let (image, dir) = (prepared.image.clone(), prepared.dir.clone());
    line("mount IMAGE DIR", &image, &dir);
    let status = format!("/proc/{}/status", server_of(&image));
    let threads = || {
        let status = fs::read_to_string(&status).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap().trim().parse::<u32>().unwrap()
    };
    let files: Vec<fs::File> = (0..4).map(|n| fs::File::create(dir.join(n.to_string())).unwrap()).collect();
    // The threads that answer are there before the first request. One for each file may wait with a seek, and one that
    // has just replied takes no other seek yet.
    let (before, mut most) = (threads(), 0);
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(move || {
                for end in 1..=1000 {
                    std::os::unix::fs::FileExt::write_all_at(file, b"data", end * 4096).unwrap();
                    assert_eq!(rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)).unwrap(), 4096);
                    assert_eq!(rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(4096)).unwrap(), end * 4096 + 4);
                }
            });
        }
        for _ in 0..2000 {
            most = most.max(threads());
        }
    });
    assert!(most <= before + 4 * files.len() as u32, "{before}, then {most} threads");
    drop(files);
    line("umount DIR", &image, &dir);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

#[test]
fn what_was_synced_survives_a_killed_server() {
    let Some(prepared) = prepared() else { return };
    let (scratch, image, dir) = (&prepared.scratch, prepared.image.clone(), prepared.dir.clone());
    line("mount -o commit=0 IMAGE DIR", &image, &dir);
    fs::create_dir(dir.join("d")).unwrap();
    for n in 0..500 {
        fs::File::create(dir.join(format!("d/{n}"))).unwrap();
    }
    for n in (0..500).step_by(3) {
        fs::remove_file(dir.join(format!("d/{n}"))).unwrap();
    }
    fs::rename(dir.join("d/1"), dir.join("moved")).unwrap();
    fs::File::open(dir.join("moved")).unwrap().sync_all().unwrap();
    let before = tree(&dir);
    fs::File::create(dir.join("perhaps")).unwrap();
    kill(server_of(&image), "-KILL");
    drop(Command::new("umount").arg("-l").arg(&dir).output());
    let output = xfskit(words("ls IMAGE", &image));
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("in memory"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("moved"), "{output:?}");
    let output = xfskit(words("ls --norecovery IMAGE", &image));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("moved"), "{output:?}");
    compare_logs(&image);
    let [copy, other] = ["copy.img", "other.img"].map(|name| scratch.file(name));
    fs::copy(&image, &copy).unwrap();
    fs::copy(&image, &other).unwrap();
    // A command that writes replays the journal first, and reports it.
    let output = xfskit(words("mkdir IMAGE /new", &copy));
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("replayed"), "{output:?}");
    assert!(ok("info IMAGE", &copy).contains("clean"));
    // The command that only replays reports it, too.
    let said: serde_json::Value = serde_json::from_str(&ok("log replay --json IMAGE", &other)).unwrap();
    assert!(said["dirty"] == true && said["items"]["replayed"].as_u64() > Some(500), "{said}");
    assert!(ok("log replay IMAGE", &other).contains("the journal is clean"));
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&copy);
        reference.repair_finds_nothing(&other);
    }
    let Some(kernel) = kernel_mount(&image) else { return };
    let after = tree(kernel.path());
    kernel.unmount();
    let found = |entry: &&xfskit_testkit::TreeEntry| after.iter().any(|other| other.path == entry.path);
    let lost: Vec<_> = before.iter().filter(|entry| !found(entry)).map(ToString::to_string).collect();
    assert_eq!(lost, Vec::<String>::new());
    assert!(after.len() <= before.len() + 1);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

/// Compares xfskit's print of the journal with that of xfs_logprint.
fn compare_logs(image: &Path) {
    let Some(reference) = reference() else { return };
    let theirs = reference.tool_output("xfs_logprint", ["-t".as_ref(), image.as_os_str()]);
    let ours = ok("log print --transactions IMAGE", image);
    let count = |text: &str, start: &str| text.lines().filter(|line| line.trim_start().starts_with(start)).count();
    assert!(count(&ours, "checkpoint ") > 0, "{ours}");
    assert_eq!(count(&ours, "checkpoint "), count(&theirs, "TRANS: tid:"), "{ours}\n{theirs}");
    assert_eq!(count(&ours, "inode "), count(&theirs, "INO: cnt:"), "{theirs}");
    assert_eq!(count(&ours, "buffer "), count(&theirs, "BUF: cnt:"), "{theirs}");
    assert!(!ours.contains("INCOMPLETE") && !ours.contains("unknown"), "{ours}");
    assert!(ours.contains("recovery: replayed") && ours.contains("): replayed"), "{ours}");
    assert!(ok("log print IMAGE", image).contains("transaction header"));
}

#[test]
fn a_journal_that_cannot_be_written_shuts_the_mount_down_and_loses_nothing_that_was_synced() {
    let Some(prepared) = prepared() else { return };
    let (image, dir) = (prepared.image.clone(), prepared.dir.clone());
    line("mount -o commit=0,errortag=logiodone:2 IMAGE DIR", &image, &dir);
    fs::write(dir.join("first"), "").unwrap();
    // The first record of the log, and the last one that is written.
    fs::File::open(dir.join("first")).unwrap().sync_all().unwrap();
    fs::create_dir(dir.join("second")).unwrap();
    let is_io =
        |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    assert!(is_io(fs::File::open(dir.join("second")).unwrap().sync_all()));
    assert!(is_io(fs::create_dir(dir.join("third"))));
    drop(Command::new("umount").arg("-l").arg(&dir).output());
    let end = Instant::now() + Duration::from_secs(30);
    while fails_with_busy(&image) {
        assert!(Instant::now() < end, "the server does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    let found = ok("ls IMAGE", &image);
    assert!(found.contains("first") && !found.contains("second") && !found.contains("third"), "{found}");
    ok("check IMAGE", &image);
}

fn fails_with_busy(image: &Path) -> bool {
    xfskit(words("info IMAGE", image)).status.code() == Some(4)
}

/// The server of a mount has few rights, and must see all the same which times the kernel gives out.
#[test]
fn what_is_made_on_a_mount_is_not_older_than_what_was_written_before() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let Some(at) = prepared() else { return };
    at.line("mount IMAGE DIR");
    let file = rustix::fs::memfd_create("noise", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stamp = |path: &Path| {
        let data = fs::symlink_metadata(path).unwrap();
        i128::from(data.mtime()) * 1_000_000_000 + i128::from(data.mtime_nsec())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = rustix::io::pwrite(&file, b"x", 0);
                let _ = rustix::fs::fstat(&file);
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        let written = fs::File::create(at.dir.join("written")).unwrap();
        let older = (0..500).filter(|n| {
            let _ = written.write_all_at(b"z", *n);
            let before = stamp(&at.dir.join("written"));
            let made = at.dir.join(format!("made {n}"));
            fs::create_dir(&made).is_ok() && stamp(&made) < before
        });
        let older = older.count();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(older, 0, "of 500");
    });
    at.line("umount DIR");
}

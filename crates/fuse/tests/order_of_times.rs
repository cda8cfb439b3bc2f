//! The order of times beside a program that makes the kernel give out fine ones. In a program of its own: such times
//! reach every mount of the machine.

mod common;

use common::mounted;
use rustix::fs::XattrFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A thread that makes the kernel give out fine times: it changes a file of tmpfs and looks at it, all the time.
struct FineTimes {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FineTimes {
    fn begin() -> Self {
        let file = rustix::fs::memfd_create("noise", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                rustix::io::pwrite(&file, b"x", 0).unwrap();
                rustix::fs::fstat(&file).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(15));
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for FineTimes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// The largest number of nanoseconds by which something that was made after a write is older than the write; 0 if
/// nothing is.
fn older_than_what_was_written_before(dir: &Path) -> i128 {
    let written = File::create(dir.join("written")).unwrap();
    let stamp = |data: fs::Metadata| i128::from(data.ctime()) * 1_000_000_000 + i128::from(data.ctime_nsec());
    let mut worst = 0;
    for n in 0..300_u64 {
        let path = dir.join(format!("entry {n}"));
        let other = dir.join(format!("other {n}"));
        let makes: [&dyn Fn(); 7] = [
            &|| fs::create_dir(&path).unwrap(),
            &|| drop(File::create(&path).unwrap()),
            &|| std::os::unix::fs::symlink("target", &path).unwrap(),
            &|| fs::hard_link(dir.join("written"), &path).unwrap(),
            &|| fs::rename(&other, &path).unwrap(),
            &|| fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap(),
            &|| rustix::fs::setxattr(&other, "user.a", b"b", XattrFlags::empty()).unwrap(),
        ];
        for (kind, make) in makes.iter().enumerate() {
            if kind >= 4 {
                fs::write(&other, "").unwrap();
            }
            written.write_all_at(b"z", n).unwrap();
            let before = stamp(fs::symlink_metadata(dir.join("written")).unwrap());
            make();
            let made = if path.symlink_metadata().is_ok() { &path } else { &other };
            worst = worst.max(before - stamp(fs::symlink_metadata(made).unwrap()));
            // The folder changes with its names.
            if kind < 5 {
                worst = worst.max(before - stamp(fs::metadata(dir).unwrap()));
            }
            // And what is written after that is not older than what was made.
            let after = stamp(fs::symlink_metadata(made).unwrap());
            written.write_all_at(b"z", n).unwrap();
            worst = worst.max(after - stamp(fs::symlink_metadata(dir.join("written")).unwrap()));
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
            let _ = fs::remove_file(&other);
        }
    }
    worst
}

#[test]
fn what_is_made_after_a_write_is_not_older() {
    let Some(fixture) = mounted() else { return };
    // After it has seen fine times, the mount keeps looking for them.
    for is_noisy in [true, false] {
        let _noise = is_noisy.then(FineTimes::begin);
        let dir = fixture.path(if is_noisy { "noisy" } else { "quiet" });
        fs::create_dir(&dir).unwrap();
        assert_eq!(older_than_what_was_written_before(&dir), 0, "nanoseconds, with fine times: {is_noisy}");
    }
    fixture.judge(|root| {
        let _noise = FineTimes::begin();
        let dir = root.join("theirs");
        fs::create_dir(&dir).unwrap();
        assert_eq!(older_than_what_was_written_before(&dir), 0, "the kernel's own mount");
    });
}

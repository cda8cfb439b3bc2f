//! What a request through the mount costs the journal: what the operation costs in the library, and no more.

mod common;

use common::{Fixture, mounted};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FILES: usize = 200;

/// Transactions that the mount has committed.
fn transactions(fixture: &Fixture) -> u64 {
    let mut value = vec![0; 16 << 10];
    let length = rustix::fs::getxattr(fixture.path(""), xfskit_fuse::STATS_XATTR, &mut value).unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&value[..length]).unwrap();
    stats["counters"]["transactions"].as_u64().unwrap()
}

/// Transactions that `work` takes for each file, those for what the kernel's cache sends afterwards included.
fn for_each_file(fixture: &Fixture, work: impl Fn(usize)) -> f64 {
    let before = transactions(fixture);
    (0..FILES).for_each(work);
    (transactions(fixture) - before) as f64 / FILES as f64
}

/// Waits until the kernel has let go of the files that were removed, and they are freed.
fn await_forgotten(fixture: &Fixture) {
    let used = || {
        let space = rustix::fs::statvfs(fixture.path("")).unwrap();
        space.f_files - space.f_ffree
    };
    let end = Instant::now() + Duration::from_secs(20);
    // The root, the folder, and the files of the other verbs.
    while used() > FILES as u64 + 10 {
        assert!(Instant::now() < end, "{} inodes are in use", used());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The kernel sends the times of an inode after each of these, in a request of its own.
#[test]
fn changes_of_names_and_attributes_are_one_transaction_each() {
    let Some(fixture) = mounted() else { return };
    let dir = fixture.path("dir");
    fs::create_dir(&dir).unwrap();
    let at = |prefix: &str, n: usize| -> PathBuf { dir.join(format!("{prefix}{n}")) };
    let set = |path: &Path, byte: u8| rustix::fs::setxattr(path, "user.a", &[byte; 64], XattrFlags::empty()).unwrap();
    let verbs: [(&str, &dyn Fn(usize)); 8] = [
        ("create", &|n| drop(fs::File::create_new(at("a", n)).unwrap())),
        ("setxattr", &|n| set(&at("a", n), 1)),
        ("replace", &|n| set(&at("a", n), 2)),
        ("removexattr", &|n| rustix::fs::removexattr(at("a", n), "user.a").unwrap()),
        ("rename", &|n| fs::rename(at("a", n), at("b", n)).unwrap()),
        ("link", &|n| fs::hard_link(at("b", n), at("c", n)).unwrap()),
        ("unlink of one name of two", &|n| fs::remove_file(at("c", n)).unwrap()),
        ("chmod", &|n| fs::set_permissions(at("b", n), std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap()),
    ];
    for (verb, work) in verbs {
        let each = for_each_file(&fixture, work);
        // A commit of the whole mount may fall into the work.
        assert!((1.0..=1.05).contains(&each), "{verb}: {each} transactions");
    }
    // The kernel lets go of each file after the answer, and the server then frees many in one transaction.
    let before = transactions(&fixture);
    (FILES..2 * FILES).for_each(|n| drop(fs::File::create_new(at("d", n)).unwrap()));
    let made = transactions(&fixture) - before;
    (FILES..2 * FILES).for_each(|n| fs::remove_file(at("d", n)).unwrap());
    await_forgotten(&fixture);
    let each = (transactions(&fixture) - before - made) as f64 / FILES as f64;
    assert!((1.0..=1.05).contains(&each), "unlink: {each} transactions");
    let times =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000));
    let each = for_each_file(&fixture, |n| fs::File::open(at("b", n)).unwrap().set_times(times).unwrap());
    assert!(each < 0.05, "times alone: {each} transactions");
    fixture.judge(|kernel| {
        let modified = fs::metadata(kernel.join("dir/b0")).unwrap().modified().unwrap();
        assert_eq!(modified, std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000));
    });
}

//! What a request through the mount costs the journal: what the operation costs in the library, and no more.

mod common;

use common::{Fixture, mounted};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::{Path, PathBuf};

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
    let times =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000));
    let each = for_each_file(&fixture, |n| fs::File::open(at("b", n)).unwrap().set_times(times).unwrap());
    assert!(each < 0.05, "times alone: {each} transactions");
    fixture.judge(|kernel| {
        let modified = fs::metadata(kernel.join("dir/b0")).unwrap().modified().unwrap();
        assert_eq!(modified, std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000));
    });
}

//! Times that are set alone: they take no transaction, and what a crash leaves of them is judged by the kernel's
//! recovery of the image.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use xfskit_device::FileDevice;
use xfskit_engine::{Caller, MountOptions, NewFile, SetAttr, SetMode, SetTime, Volume};
use xfskit_mkfs::{Options, make};
use xfskit_ondisk::{InodeNumber, Timestamp};
use xfskit_testkit::{Scratch, kernel_mount, reference, scratch};

const MIB: u64 = 1 << 20;
const OLD: i64 = 1_000_000_000;

struct Image {
    scratch: Scratch,
    fs: Option<Volume>,
}

impl Image {
    fn new(options: MountOptions) -> Self {
        let scratch = scratch();
        let device = FileDevice::create(scratch.file("a.img"), 300 * MIB).unwrap();
        make(&device, None, &Options { uuid: Some([3; 16]), ..Options::default() }, Timestamp::default()).unwrap();
        let fs = Some(Volume::open(Arc::new(device), options).unwrap());
        Self { scratch, fs }
    }

    fn path(&self) -> PathBuf {
        self.scratch.file("a.img")
    }

    fn fs(&self) -> &Volume {
        self.fs.as_ref().unwrap()
    }

    /// Files with an old mtime, durably.
    fn files(&self, count: usize) -> Vec<InodeNumber> {
        let fs = self.fs();
        let new = NewFile::file(0o644);
        let create = |n: usize| fs.create(fs.root(), format!("f{n}").as_bytes(), &new, &Caller::root()).unwrap().inode;
        let files: Vec<_> = (0..count).map(create).collect();
        files.iter().for_each(|file| self.set_mtime(*file, OLD));
        fs.sync().unwrap();
        files
    }

    fn set_mtime(&self, file: InodeNumber, seconds: i64) {
        let time = Timestamp { seconds, nanoseconds: 5 };
        let change = SetAttr { mtime: Some(SetTime::To(time)), ctime: Some(time), ..SetAttr::default() };
        let stat = self.fs().set_attr(file, &change, &Caller::root()).unwrap();
        assert_eq!((stat.mtime, stat.ctime), (time, time));
        assert_eq!(self.fs().stat(file).unwrap(), stat);
    }

    fn transactions(&self) -> u64 {
        self.fs().counters().transactions.get()
    }

    /// The power fails: what is not durable is lost. The kernel recovers the image and shows mtime and ctime in
    /// seconds.
    fn times_after_a_crash(mut self) -> Option<BTreeMap<String, (i64, i64)>> {
        drop(self.fs.take());
        let kernel = kernel_mount(&self.path())?;
        let mut times = BTreeMap::new();
        for entry in std::fs::read_dir(kernel.path()).unwrap() {
            let entry = entry.unwrap();
            let stat = entry.metadata().unwrap();
            times.insert(entry.file_name().into_string().unwrap(), (stat.mtime(), stat.ctime()));
        }
        kernel.unmount();
        if let Some(reference) = reference() {
            reference.repair_finds_nothing(&self.path());
        }
        Some(times)
    }
}

#[test]
fn they_wait_in_memory_until_a_sync() {
    let image = Image::new(MountOptions::default());
    let files = image.files(2);
    let before = image.transactions();
    image.set_mtime(files[0], OLD + 1);
    assert_eq!(image.transactions(), before, "no transaction changes times alone");
    let Some(found) = image.times_after_a_crash() else { return };
    assert_eq!((found["f0"], found["f1"]), ((OLD, OLD), (OLD, OLD)));
}

#[test]
fn a_sync_makes_them_durable_many_in_one_transaction() {
    let image = Image::new(MountOptions::default());
    let files = image.files(100);
    let before = image.transactions();
    files.iter().for_each(|file| image.set_mtime(*file, OLD + 1));
    image.fs().sync().unwrap();
    let taken = image.transactions() - before;
    assert!((1..=10).contains(&taken), "{taken} transactions for the times of 100 inodes");
    image.fs().sync().unwrap();
    assert_eq!(image.transactions(), before + taken, "nothing waits any more");
    let Some(found) = image.times_after_a_crash() else { return };
    assert!(found.values().all(|times| *times == (OLD + 1, OLD + 1)), "{found:?}");
}

#[test]
fn an_fsync_makes_those_of_its_file_durable() {
    let image = Image::new(MountOptions::default());
    let files = image.files(2);
    files.iter().for_each(|file| image.set_mtime(*file, OLD + 1));
    image.fs().fsync(files[0]).unwrap();
    let Some(found) = image.times_after_a_crash() else { return };
    assert_eq!((found["f0"], found["f1"]), ((OLD + 1, OLD + 1), (OLD, OLD)));
}

#[test]
fn the_next_logged_change_of_the_inode_takes_them_along() {
    let image = Image::new(MountOptions::default());
    let files = image.files(2);
    let before = image.transactions();
    image.set_mtime(files[0], OLD + 1);
    image.fs().set_xattr(files[0], b"user.a", b"1", SetMode::Any, &Caller::root()).unwrap();
    assert_eq!(image.transactions(), before + 1);
    // The journal becomes durable for another file; nothing waits of the first any more.
    image.fs().mount().journal.force_all().unwrap();
    assert_eq!(image.transactions(), before + 1);
    let Some(found) = image.times_after_a_crash() else { return };
    assert_eq!(found["f0"].0, OLD + 1);
    assert!(found["f0"].1 > OLD + 1, "the attribute and its ctime arrive together");
}

#[test]
fn times_that_the_inode_has_already_are_no_change() {
    let image = Image::new(MountOptions::default());
    let files = image.files(50);
    let before = image.transactions();
    files.iter().for_each(|file| image.set_mtime(*file, OLD));
    image.fs().sync().unwrap();
    assert_eq!(image.transactions(), before);
}

#[test]
fn an_unmount_writes_them_and_a_mount_with_wsync_logs_them_at_once() {
    let image = Image::new(MountOptions { wsync: true, ..MountOptions::default() });
    let files = image.files(1);
    let before = image.transactions();
    image.set_mtime(files[0], OLD + 7);
    assert_eq!(image.transactions(), before + 1);
    let Some(found) = image.times_after_a_crash() else { return };
    assert_eq!(found["f0"], (OLD + 7, OLD + 7));

    let mut image = Image::new(MountOptions::default());
    let files = image.files(1);
    image.set_mtime(files[0], OLD + 8);
    image.fs.take().unwrap().unmount().unwrap();
    let kernel = kernel_mount(&image.path()).expect("the kernel's mount was there above");
    let stat = std::fs::metadata(kernel.path().join("f0")).unwrap();
    assert_eq!((stat.mtime(), stat.ctime()), (OLD + 8, OLD + 8));
    kernel.unmount();
}

/// A list of inodes that only ever grows would be all of the memory.
#[test]
fn a_list_that_has_grown_too_long_is_logged() {
    let image = Image::new(MountOptions { cache_bytes: 1 << 20, ..MountOptions::default() });
    let files = image.files(2000);
    let before = image.transactions();
    files.iter().for_each(|file| image.set_mtime(*file, OLD + 1));
    assert!(image.transactions() > before, "nothing was logged of 2000 inodes in a cache of 1 MiB");
    assert!(image.fs().mount().dirty_inodes.bytes() < 1 << 20);
}

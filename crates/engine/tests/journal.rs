//! The journal against the kernel: the kernel recovers what xfskit has committed, and finds a log clean that xfskit has
//! closed.

mod stress;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::buffer::{BufferKey, Fill};
use xfskit_engine::mount::Mount;
use xfskit_engine::space::cluster::{INODE_CLUSTER_KIND, locate};
use xfskit_engine::sync::{IfLocked, LockMode};
use xfskit_engine::trans::InodeFields;
use xfskit_engine::trans::reservation_of;
use xfskit_engine::{
    AttrLogging, AttrPath, Caller, Error, MountOptions, NewFile, Permissions, SetAttr, SetMode, Volume,
};
use xfskit_testkit::Scratch;

fn open(image: &Path) -> Arc<Mount> {
    let device = FileDevice::open(image, Access::Write).unwrap();
    Mount::open(Arc::new(device), None, MountOptions::default()).unwrap()
}

/// A new filesystem, for tests that need no reference tools.
fn fresh(scratch: &Scratch, options: MountOptions) -> Volume {
    let path = scratch.image("a.img", 320 << 20);
    let device = Arc::new(FileDevice::open(&path, Access::Write).unwrap());
    let made = xfskit_mkfs::Options { uuid: Some([7; 16]), ..Default::default() };
    xfskit_mkfs::make(&*device, None, &made, xfskit_ondisk::Timestamp::default()).unwrap();
    Volume::open(device, options).unwrap()
}

fn chmod_root(mount: &Arc<Mount>, mode: u16) {
    let root = mount.inode(mount.geometry.root_inode).unwrap();
    let mut tx = mount.transaction(reservation_of(mount.reservations.ichange)).unwrap();
    let id = tx.join_inode(&root);
    tx.inode_mut(id, InodeFields::CORE).core.mode = 0o040_000 | mode;
    tx.commit().unwrap();
}

#[test]
fn a_commit_that_was_synced_is_recovered_by_the_kernel() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 512 << 20);
    reference.mkfs(&image, &[]);
    let mount = open(&image);
    chmod_root(&mount, 0o701);
    chmod_root(&mount, 0o711);
    mount.sync().unwrap();
    // The power fails: nothing is written in place.
    drop(mount);
    let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
    let mode = std::fs::metadata(kernel.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o711);
    kernel.unmount();
    reference.repair_finds_nothing(&image);
}

#[test]
fn an_unmounted_image_is_clean_and_can_be_opened_again() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 512 << 20);
    reference.mkfs(&image, &[]);
    for mode in [0o700, 0o711, 0o751] {
        let mount = open(&image);
        chmod_root(&mount, mode);
        mount.unmount().unwrap();
        drop(mount);
        assert!(reference.log_is_clean(&image));
        reference.repair_finds_nothing(&image);
    }
    let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
    let mode = std::fs::metadata(kernel.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o751);
}

#[test]
fn a_long_run_wraps_a_small_log_many_times() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 512 << 20);
    reference.mkfs(&image, &[]);
    let mount = open(&image);
    for round in 0..100_000u32 {
        chmod_root(&mount, (round % 0o777) as u16);
        mount.sync().unwrap();
    }
    assert!(mount.counters.log_bytes.get() > (64 << 20), "{} bytes", mount.counters.log_bytes.get());
    drop(mount);
    let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
    kernel.unmount();
    reference.repair_finds_nothing(&image);
}

/// Recovery makes a new cluster from a record, which the log must keep until the cluster is written in place. A cluster
/// that is made, and has the link of an unlinked inode changed in the same transaction, must keep its position in the
/// AIL when the next link is changed; otherwise the record could be overwritten too early. With more than 64 unnamed
/// files a chunk begins that way.
#[test]
fn a_new_cluster_stays_where_the_log_makes_it() {
    let image = stress::Image::new(512, &[]);
    let fs = image.open();
    let mount = fs.mount();
    let mut places = HashMap::new();
    for _ in 0..300 {
        let inode = fs.tmpfile(fs.root(), &NewFile::file(0o600), &Caller::root()).unwrap().into_raw();
        fs.sync().unwrap();
        let (address, _) = locate(&mount.geometry, inode).unwrap();
        let key = BufferKey::new(address, mount.geometry.inode_cluster_bytes());
        let (buffer, _held) =
            mount.cache.lock(&key, &INODE_CLUSTER_KIND, Fill::Read, LockMode::Shared, IfLocked::Wait).unwrap();
        let place = buffer.item().lock().in_ail;
        // The first chunk was there before.
        if inode.0 >= 192 {
            assert_eq!(*places.entry(address).or_insert(place), place, "cluster {address} moved at inode {}", inode.0);
        }
    }
    assert!(places.len() > 5, "{places:?}");
    image.close(fs);
}

/// All that a replaced value changes is in the gathering checkpoint already, so its charge never makes a push due.
/// Without another reason for a push, every allocation would look at all blocks that earlier replaces have freed.
#[test]
fn replaced_values_do_not_pile_up_freed_blocks() {
    const REPLACES: u64 = 3000;
    let scratch = xfskit_testkit::scratch();
    let fs = fresh(&scratch, MountOptions::default());
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    let set = |name: &[u8], value: &[u8]| fs.set_xattr(file, name, value, SetMode::Any, &Caller::root()).unwrap();
    // The leaf stays while the other attribute is replaced.
    set(b"user.local", &[7; 2000]);
    let before = fs.mount().counters.checkpoints.get();
    for n in 0..REPLACES {
        set(b"user.long", &[n as u8; 3500]);
    }
    let checkpoints = fs.mount().counters.checkpoints.get() - before;
    assert!((REPLACES / 1000..REPLACES / 100).contains(&checkpoints), "{checkpoints}");
    fs.unmount().unwrap();
}

/// A checkpoint must not keep the charge for intents that were whited out: otherwise 250 logged values of 64 KiB push
/// one of which next to nothing is written.
#[test]
fn values_that_are_whited_out_push_no_checkpoint() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 1 << 30);
    reference.mkfs(&image, &["-l", "size=64m"]);
    let device = Arc::new(FileDevice::open(&image, Access::Write).unwrap());
    let options =
        MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..MountOptions::default() };
    let fs = Volume::open(device, options).unwrap();
    let counters = &fs.mount().counters;
    let make = |n: u32| {
        let name = format!("file {n}");
        let file = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode;
        fs.set_xattr(file, b"user.a", &[7; 64 << 10], SetMode::Any, &Caller::root()).unwrap();
    };
    // The first one announces attribute intents, for which it makes a checkpoint.
    make(0);
    let (used, before, logged) = (fs.mount().journal.usage().0, counters.checkpoints.get(), counters.log_bytes.get());
    (1..1000).for_each(make);
    assert_eq!(counters.checkpoints.get() - before, 0);
    let gathered = fs.mount().journal.usage().0 - used;
    fs.sync().unwrap();
    let written = counters.log_bytes.get() - logged;
    assert!(written <= gathered && gathered < 4 << 20, "{gathered} bytes of the log were kept for {written}");
    // The refunds were not too large: the kernel recovers what the checkpoint contains.
    drop(fs);
    let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
    assert_eq!(std::fs::read_dir(kernel.path()).unwrap().count(), 1000);
    kernel.unmount();
    reference.repair_finds_nothing(&image);
}

/// A whited-out intent leaves an entry in memory. If all of its charge were refunded, a small attribute that is
/// replaced over and over would gather millions of entries before a checkpoint is due.
#[test]
fn intents_that_are_whited_out_still_make_a_checkpoint_due() {
    let scratch = xfskit_testkit::scratch();
    let options =
        MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..MountOptions::default() };
    let fs = fresh(&scratch, options);
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    let counters = &fs.mount().counters;
    let before = counters.checkpoints.get();
    for n in 0..150_000u32 {
        fs.set_xattr(file, b"user.a", &[n as u8; 1000], SetMode::Any, &Caller::root()).unwrap();
    }
    assert!(counters.intents_whited_out.get() >= 149_990);
    let checkpoints = counters.checkpoints.get() - before;
    assert!((2..20).contains(&checkpoints), "{checkpoints}");
    fs.unmount().unwrap();
}

#[test]
fn an_unmount_whose_metadata_stays_locked_says_so_and_leaves_a_dirty_log() {
    let scratch = xfskit_testkit::scratch();
    let fs = fresh(&scratch, MountOptions::default());
    let root = Caller::root();
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &root).unwrap().inode;
    fs.set_attr(file, &SetAttr { permissions: Some(Permissions::new(0o600)), ..SetAttr::default() }, &root).unwrap();
    let inode = fs.mount().inode(file).unwrap();
    let lock = inode.state_lock().write();
    let error = fs.unmount().unwrap_err();
    assert!(matches!(&error, Error::Shutdown(why) if why.contains("stayed locked")), "{error}");
    drop(lock);
}

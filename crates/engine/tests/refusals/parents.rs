//! A missing parent pointer is found before anything is changed.

use crate::shapes::{file, refused};
use crate::stress::Image;
use xfskit_engine::attr::Attr;
use xfskit_engine::attr::update::{self, Logging};
use xfskit_engine::mount::BlockPool;
use xfskit_engine::trans::Reservation;
use xfskit_engine::{Caller, Error, RenameFlags, Volume};
use xfskit_ondisk::InodeNumber;

/// Takes a file's parent pointer away, and leaves its name.
fn damage(fs: &Volume, inode: InodeNumber, name: &str) {
    let root = fs.stat(fs.root()).unwrap();
    let mut value = [0; 12];
    value[..8].copy_from_slice(&root.inode.0.to_be_bytes());
    value[8..].copy_from_slice(&root.generation.to_be_bytes());
    let handle = fs.mount().inode(inode).unwrap();
    let reservation = Reservation { log_bytes: 1 << 20, log_count: 1, blocks: 100, pool: BlockPool::Ordinary };
    let mut tx = fs.mount().transaction(reservation).unwrap();
    let id = tx.join_inode(&handle);
    update::remove(&mut tx, id, Attr::parent(name.as_bytes(), &value), Logging::Logged).unwrap();
    tx.commit().unwrap();
}

#[test]
fn a_missing_parent_pointer_stops_an_operation_and_nothing_else() {
    let image = Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let (bad, good) = (file(&fs, "bad"), file(&fs, "good"));
    for inode in [bad, good] {
        fs.write_at(inode, 0, b"contents").unwrap();
        fs.fsync(inode).unwrap();
    }
    damage(&fs, bad, "bad");
    let seen = |fs: &Volume| (fs.list_dir(fs.root()).unwrap().len(), fs.stat(bad).unwrap(), fs.stat(good).unwrap());
    let before = seen(&fs);
    let rename =
        |from: &str, to: &str, flags| fs.rename(fs.root(), from.as_bytes(), fs.root(), to.as_bytes(), flags, &me);
    let plain = RenameFlags::default();
    for (what, result) in [
        ("a rename", rename("bad", "new", plain)),
        ("a rename over it", rename("good", "bad", plain)),
        ("a rename that leaves a whiteout", rename("good", "bad", RenameFlags { whiteout: true, ..plain })),
        ("an exchange", rename("good", "bad", RenameFlags { exchange: true, ..plain })),
        ("a removal", fs.unlink(fs.root(), b"bad", &me)),
    ] {
        assert!(matches!(refused(&fs, what, result), Error::Corrupt(_)), "{what}");
        assert_eq!(seen(&fs), before, "{what}");
    }
    rename("good", "new", plain).unwrap();
    fs.unmount().unwrap();
}

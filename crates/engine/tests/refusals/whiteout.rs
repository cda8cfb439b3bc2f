//! A rename that leaves a whiteout needs an inode. If there is none, it fails and has changed nothing.

use crate::shapes::{file, fragment, refused};
use crate::stress::{Image, Watchdog};
use std::time::Duration;
use xfskit_engine::trans::Transaction;
use xfskit_engine::{Caller, Error, NewFile, RenameFlags, Volume};
use xfskit_ondisk::AgNumber;

const WHITEOUT: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: true };

/// Uses up all inodes for which the image has room.
fn use_up_inodes(fs: &Volume) {
    for number in 0.. {
        let name = format!("n{number}");
        match fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()) {
            Ok(_) => {}
            Err(Error::NoSpace) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn rename_is_refused(fs: &Volume) {
    let (from, to) = (fs.lookup(fs.root(), b"from").unwrap(), fs.lookup(fs.root(), b"to").unwrap());
    let result = fs.rename(fs.root(), b"from", fs.root(), b"to", WHITEOUT, &Caller::root());
    assert!(matches!(refused(fs, "a rename without an inode for the whiteout", result), Error::NoSpace));
    assert_eq!(fs.lookup(fs.root(), b"from").unwrap(), from);
    assert_eq!(fs.lookup(fs.root(), b"to").unwrap(), to);
}

#[test]
fn without_an_inode_nothing_is_renamed() {
    for links in [1, 2] {
        for arguments in [&[('i', "maxpct=1")][..], &[('i', "maxpct=1"), ('n', "parent=0")]] {
            let image = Image::new(64, arguments);
            let fs = image.open();
            file(&fs, "from");
            let to = file(&fs, "to");
            if links == 2 {
                fs.link(fs.root(), b"other", to, &Caller::root()).unwrap();
            }
            use_up_inodes(&fs);
            rename_is_refused(&fs);
            image.close(fs);
        }
    }
}

#[test]
fn without_a_run_for_inodes_nothing_is_renamed() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    file(&fs, "from");
    file(&fs, "to");
    fragment(&fs, 2_000);
    use_up_inodes(&fs);
    assert!(fs.statfs().free_blocks > 100, "there is space, but not in one piece");
    rename_is_refused(&fs);
    image.close(fs);
}

#[test]
fn an_ag_that_another_holds_is_waited_for() {
    let _watchdog = Watchdog::new("a rename beside the holder of an AG", 60);
    let image = Image::new(64, &[('i', "maxpct=1"), ('d', "agcount=2")]);
    let (fs, me) = (image.open(), Caller::root());
    let ag_of = |inode| fs.mount().geometry.split_inode(inode).unwrap().0;
    // Directories go to the AGs in turn.
    let mut dirs =
        (0..4).map(|n| fs.create(fs.root(), format!("d{n}").as_bytes(), &NewFile::dir(0o755), &me).unwrap().inode);
    let dir = dirs.find(|dir| ag_of(*dir) == AgNumber(1)).expect("a directory in the second AG");
    for name in [&b"from"[..], b"to"] {
        let made = fs.create(dir, name, &NewFile::file(0o644), &me).unwrap().inode;
        assert_eq!(ag_of(made), AgNumber(1));
    }
    use_up_inodes(&fs);
    // The only free inode is in the first AG, which precedes the AG that the rename has to lock for the file it
    // replaces.
    let freed = (0..)
        .map(|n| fs.lookup(fs.root(), format!("n{n}").as_bytes()).unwrap())
        .find(|file| ag_of(file.inode) == AgNumber(0));
    let name = (0..)
        .map(|n| format!("n{n}"))
        .find(|name| fs.lookup(fs.root(), name.as_bytes()).unwrap().inode == freed.as_ref().unwrap().inode);
    fs.unlink(fs.root(), name.unwrap().as_bytes(), &me).unwrap();
    let mut holder = Transaction::read_only(fs.mount());
    xfskit_engine::space::read_agi(&mut holder, AgNumber(0)).unwrap();
    std::thread::scope(|scope| {
        let rename = scope.spawn(|| fs.rename(dir, b"from", dir, b"to", WHITEOUT, &me));
        std::thread::sleep(Duration::from_millis(50));
        drop(holder);
        rename.join().unwrap().unwrap();
    });
    image.close(fs);
}

//! Directories that keep to their project take and refuse the same names as the kernel's, and an exchange of two names
//! sets the same times.

use crate::stress::Image;
use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags as Flags};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use xfskit_engine::{Caller, Error, LastLink, NewFile, RenameFlags, Volume};
use xfskit_ondisk::inode::flags;
use xfskit_testkit::{kernel_mount, reference};

#[derive(Clone, Copy, Debug)]
enum How {
    Link,
    Rename,
    Exchange,
    Whiteout,
}

const HOWS: [How; 4] = [How::Link, How::Rename, How::Exchange, How::Whiteout];

/// The inodes that get a name in another directory. New inodes inherit projects 5 and 7 in `keeper` and `other`; `same`
/// has project 5, and nothing is inherited from it.
const THINGS: &[&str] = &[
    "file",
    "dir",
    "symlink",
    "pipe",
    "socket",
    "char",
    "block",
    "keeper/file",
    "keeper/dir",
    "keeper/char",
    "same/file",
    "other/file",
];

/// The new name. It exists already only where two names are exchanged.
const PLACES: &[&str] = &["target", "keeper/target", "other/target", "same/target"];

fn make(at: &Path, what: &str) {
    let path = at.join(what);
    let node = |kind| rustix::fs::mknodat(CWD, &path, kind, Mode::from(0o644), 0x0103).unwrap();
    match what.rsplit('/').next() {
        Some("dir") => std::fs::create_dir(path).unwrap(),
        Some("symlink") => std::os::unix::fs::symlink("x", path).unwrap(),
        Some("pipe") => node(FileType::Fifo),
        Some("socket") => node(FileType::Socket),
        Some("char") => node(FileType::CharacterDevice),
        Some("block") => node(FileType::BlockDevice),
        _ => drop(std::fs::File::create(path).unwrap()),
    }
}

fn by_kernel(dir: &Path, how: How, from: &str, to: &str) -> i32 {
    let (from, to) = (dir.join(from), dir.join(to));
    let result = match how {
        How::Link => rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty()),
        How::Rename => rustix::fs::renameat(CWD, from, CWD, to),
        How::Exchange => rustix::fs::renameat_with(CWD, from, CWD, to, Flags::EXCHANGE),
        How::Whiteout => rustix::fs::renameat_with(CWD, from, CWD, to, Flags::WHITEOUT),
    };
    result.map_or_else(|error| error.raw_os_error(), |()| 0)
}

fn by_us(fs: &Volume, dir: &str, how: How, from: &str, to: &str) -> i32 {
    let split = |path: &str| {
        let path = format!("/{dir}/{path}");
        let (folder, name) = path.rsplit_once('/').unwrap();
        (fs.resolve(folder.as_bytes(), LastLink::Keep).unwrap().inode, name.as_bytes().to_vec())
    };
    let ((from_dir, from), (to_dir, to)) = (split(from), split(to));
    let rename = |flags| fs.rename(from_dir, &from, to_dir, &to, flags, &Caller::root());
    let result = match how {
        How::Link => fs.link(to_dir, &to, fs.lookup(from_dir, &from).unwrap().inode, &Caller::root()).map(drop),
        How::Rename => rename(RenameFlags::default()),
        How::Exchange => rename(RenameFlags { exchange: true, ..RenameFlags::default() }),
        How::Whiteout => rename(RenameFlags { whiteout: true, ..RenameFlags::default() }),
    };
    result.map_or_else(|error| error.errno(), |()| 0)
}

#[test]
fn a_directory_that_keeps_to_its_project_refuses_what_the_kernels_does() {
    let image = Image::new(320, &[]);
    let (Some(reference), Some(kernel)) = (reference(), kernel_mount(&image.path)) else { return };
    let mut cases = Vec::new();
    for how in HOWS {
        for (thing, place) in THINGS.iter().flat_map(|thing| PLACES.iter().map(move |place| (*thing, *place))) {
            cases.push((format!("{}-{how:?}", cases.len()), how, thing, place));
        }
    }
    // One tree in which each case has a folder for each side: projects are set once, by two calls for all.
    for (name, how, thing, place) in &cases {
        for side in ["theirs", "ours"] {
            let at = kernel.path().join(format!("{name}-{side}"));
            std::fs::create_dir(&at).unwrap();
            for (dir, commands) in
                [("keeper", "chproj 5;chattr +P"), ("other", "chproj 7;chattr +P"), ("same", "chproj 5")]
            {
                std::fs::create_dir(at.join(dir)).unwrap();
                let is_needed = [thing, place].iter().any(|path| path.starts_with(&format!("{dir}/")));
                commands
                    .split(';')
                    .filter(|_| is_needed)
                    .for_each(|command| drop(reference.io(&at.join(dir), command)));
            }
            make(&at, thing);
            if matches!(how, How::Exchange) {
                make(&at, place);
            }
        }
    }
    let at = |name: &str| kernel.path().join(format!("{name}-theirs"));
    let theirs: Vec<_> = cases.iter().map(|(name, how, from, to)| by_kernel(&at(name), *how, from, to)).collect();
    kernel.unmount();
    let fs = image.open();
    let of = |name: &str| format!("{name}-ours");
    let ours: Vec<_> = cases.iter().map(|(name, how, from, to)| by_us(&fs, &of(name), *how, from, to)).collect();
    image.close(fs);
    let pairs = cases.iter().zip(theirs.iter().zip(&ours)).filter(|(_, (theirs, ours))| theirs != ours);
    let report: Vec<_> = pairs.map(|((_, how, from, to), both)| format!("{how:?} {from} to {to}: {both:?}")).collect();
    assert!(report.is_empty(), "the kernel's errors, and ours:\n{}", report.join("\n"));
    assert!(theirs.contains(&18) && theirs.contains(&0));
}

#[test]
fn flags_are_for_the_owner_and_protection_for_root() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let owner = Caller { uid: 7, gid: 7, groups: Vec::new() };
    let other = Caller { uid: 8, ..owner.clone() };
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o6755), &owner).unwrap().inode;
    let project = xfskit_engine::Flags { project: 3, ..fs.flags(file).unwrap() };
    let protected = xfskit_engine::Flags { xflags: u32::from(flags::IMMUTABLE), ..project };
    for (wanted, caller, refused) in [(project, &other, true), (protected, &owner, true), (project, &owner, false)] {
        let result = fs.set_flags(file, &wanted, caller);
        assert_eq!(matches!(result, Err(Error::NotPermitted)), refused, "{wanted:?} by {}: {result:?}", caller.uid);
        assert_eq!(fs.flags(file).unwrap() == wanted, !refused);
    }
    assert_eq!(fs.stat(file).unwrap().permissions.bits(), 0o755, "another project takes the privileges of the file");
    fs.set_flags(file, &protected, &Caller::root()).unwrap();
    assert!(matches!(fs.unlink(fs.root(), b"file", &Caller::root()), Err(Error::NotPermitted)));
    image.close(fs);
}

/// Whether the two times of a name changed since `before`.
fn changed(dir: &Path, name: &str, before: (i64, i64, i64, i64)) -> (bool, bool) {
    let now = times(dir, name);
    ((now.0, now.1) != (before.0, before.1), (now.2, now.3) != (before.2, before.3))
}

fn times(dir: &Path, name: &str) -> (i64, i64, i64, i64) {
    let stat = std::fs::symlink_metadata(dir.join(name)).unwrap();
    (stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec())
}

#[test]
fn an_exchange_sets_the_times_that_the_kernel_sets() {
    for arguments in [&[][..], &[('n', "parent=0"), ('i', "exchange=0")]] {
        let image = Image::new(320, arguments);
        let Some(kernel) = kernel_mount(&image.path) else { return };
        let mut cases = Vec::new();
        for (one, other) in [("a/file", "a/two"), ("a/file", "b/two"), ("a/dir", "b/two"), ("a/dir", "b/dir")] {
            for (from, to) in [(one, other), (other, one)] {
                cases.push((format!("{}", cases.len()), from, to));
            }
        }
        for (name, side) in cases.iter().flat_map(|(name, ..)| [(name, "theirs"), (name, "ours")]) {
            let at = kernel.path().join(format!("{name}-{side}"));
            ["", "a", "b"].iter().for_each(|dir| std::fs::create_dir(at.join(dir)).unwrap());
            ["a/file", "a/two", "b/two", "a/dir", "b/dir"].iter().for_each(|what| make(&at, what));
        }
        let look = |root: &Path, side: &str| -> Vec<_> {
            let of_case = |(name, from, to): &(String, &'static str, &'static str)| {
                let at = root.join(format!("{name}-{side}"));
                ["a", "b", from, to].map(|path| times(&at, path))
            };
            cases.iter().map(of_case).collect()
        };
        let before = look(kernel.path(), "theirs");
        let ours_before = look(kernel.path(), "ours");
        std::thread::sleep(Duration::from_millis(30));
        for (name, from, to) in &cases {
            assert_eq!(by_kernel(&kernel.path().join(format!("{name}-theirs")), How::Exchange, from, to), 0);
        }
        kernel.unmount();
        let fs = image.open();
        for (name, from, to) in &cases {
            assert_eq!(by_us(&fs, &format!("{name}-ours"), How::Exchange, from, to), 0);
        }
        image.close(fs);
        let Some(kernel) = kernel_mount(&image.path) else { return };
        for (index, (name, from, to)) in cases.iter().enumerate() {
            let seen = |side: &str, before: &[_; 4]| {
                let at = kernel.path().join(format!("{name}-{side}"));
                // The inode that was there before has the other name now.
                [("a", 0), ("b", 1), (to, 2), (from, 3)].map(|(path, which)| changed(&at, path, before[which]))
            };
            let (theirs, ours) = (seen("theirs", &before[index]), seen("ours", &ours_before[index]));
            assert_eq!(ours, theirs, "{arguments:?}: (mtime, ctime) of a, b, {from} and {to}");
        }
        kernel.unmount();
    }
}

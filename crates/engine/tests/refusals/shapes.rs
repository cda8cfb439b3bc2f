//! Images in the state in which something is refused.

use xfskit_engine::{Caller, Error, Fallocate, NewFile, Volume};
use xfskit_ondisk::InodeNumber;

/// The features that RHEL 8 has: no parent pointers among them.
pub const OLD: &[(char, &str)] =
    &[('n', "parent=0"), ('i', "exchange=0,nrext64=0"), ('m', "bigtime=0,inobtcount=0,rmapbt=0")];

/// Makes an empty file in the root directory.
pub fn file(fs: &Volume, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
}

/// A file of so many extents of a block each.
pub fn scattered(fs: &Volume, name: &str, extents: u64) -> InodeNumber {
    let (inode, block) = (file(fs, name), u64::from(fs.statfs().block_bytes));
    for index in 0..extents {
        fs.fallocate(inode, 2 * index * block, block, Fallocate::Allocate).unwrap();
    }
    inode
}

/// Leaves `holes` free runs of a block each, and no other free space.
pub fn fragment(fs: &Volume, holes: u64) {
    let (inode, block) = (file(fs, "filler"), u64::from(fs.statfs().block_bytes));
    let (mut end, mut step) = (0, fs.statfs().blocks.next_power_of_two() * block);
    while step >= block {
        match fs.fallocate(inode, end, step, Fallocate::Allocate) {
            Ok(()) => end += step,
            Err(Error::NoSpace) => {
                fs.truncate(inode, end).unwrap();
                step /= 2;
            }
            Err(error) => panic!("{error}"),
        }
    }
    fs.sync().unwrap();
    for hole in 0..holes {
        fs.fallocate(inode, (2 * hole + 1) * block, block, Fallocate::PunchHole).unwrap();
    }
    fs.sync().unwrap();
}

/// Asserts that the operation failed as an ordinary refusal, and that the filesystem lives on.
pub fn refused<T>(fs: &Volume, what: &str, result: Result<T, Error>) -> Error {
    let error = result.err().unwrap_or_else(|| panic!("{what} was not refused"));
    fs.mount().journal.check().unwrap_or_else(|dead| panic!("{what}, refused with \"{error}\": {dead}"));
    error
}

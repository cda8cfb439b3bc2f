//! Files in an image and what they must contain.

use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, Error, Fallocate, MountOptions, NewFile, Seek, Volume};
use xfskit_ondisk::InodeNumber;

/// Numbers that a seed decides.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let seed = self.below(251) as usize;
        (0..count).map(|at| ((at * 7 + at / 251 + seed) % 251) as u8 + 1).collect()
    }
}

/// A file and its contents.
pub struct File {
    pub inode: InodeNumber,
    pub name: String,
    pub bytes: Vec<u8>,
}

pub fn open(image: &Path) -> Volume {
    let device = Arc::new(FileDevice::open(image, Access::Write).unwrap());
    Volume::open(device, MountOptions::default()).unwrap()
}

pub fn make(fs: &Volume, name: &str) -> File {
    let inode = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    File { inode, name: name.to_owned(), bytes: Vec::new() }
}

fn grow_to(bytes: &mut Vec<u8>, end: usize) {
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
}

impl File {
    pub fn write(&mut self, fs: &Volume, offset: usize, data: &[u8]) {
        fs.write_at(self.inode, offset as u64, data).unwrap();
        grow_to(&mut self.bytes, offset + data.len());
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    pub fn truncate(&mut self, fs: &Volume, size: usize) {
        fs.truncate(self.inode, size as u64).unwrap();
        self.bytes.resize(size, 0);
    }

    /// The kernel's rules, on a vector.
    pub fn fallocate(&mut self, fs: &Volume, what: Fallocate, offset: usize, length: usize, block: usize) {
        let result = fs.fallocate(self.inode, offset as u64, length as u64, what);
        let end = offset + length;
        let aligned = offset.is_multiple_of(block) && length.is_multiple_of(block);
        let refused = match what {
            Fallocate::CollapseRange => !aligned || end >= self.bytes.len(),
            Fallocate::InsertRange => !aligned || offset >= self.bytes.len(),
            _ => false,
        };
        if refused || length == 0 {
            assert!(matches!(result, Err(Error::Invalid(_))), "{what:?} {offset} {length}: {result:?}");
            return;
        }
        result.unwrap();
        match what {
            Fallocate::Allocate => grow_to(&mut self.bytes, end),
            Fallocate::AllocateKeepSize | Fallocate::UnshareKeepSize => {}
            Fallocate::ZeroRange => grow_to(&mut self.bytes, end),
            Fallocate::PunchHole | Fallocate::ZeroRangeKeepSize => {}
            Fallocate::CollapseRange => drop(self.bytes.drain(offset..end)),
            Fallocate::InsertRange => drop(self.bytes.splice(offset..offset, std::iter::repeat_n(0, length))),
        }
        if matches!(what, Fallocate::PunchHole | Fallocate::ZeroRange | Fallocate::ZeroRangeKeepSize) {
            let end = end.min(self.bytes.len());
            self.bytes[offset.min(end)..end].fill(0);
        }
    }

    /// Results of seeking must not contradict the contents.
    pub fn check_seek(&self, fs: &Volume, offset: usize) {
        let zeros = |from: usize, to: usize| self.bytes[from..to].iter().all(|byte| *byte == 0);
        match fs.seek(self.inode, offset as u64, Seek::Data) {
            Ok(found) => assert!(zeros(offset, found as usize) && (found as usize) < self.bytes.len()),
            Err(Error::NoMoreData) => assert!(offset >= self.bytes.len() || zeros(offset, self.bytes.len())),
            Err(error) => panic!("{error}"),
        }
        match fs.seek(self.inode, offset as u64, Seek::Hole) {
            Ok(hole) => {
                assert!((offset..=self.bytes.len()).contains(&(hole as usize)));
                let data = fs.seek(self.inode, hole, Seek::Data).map_or(self.bytes.len(), |data| data as usize);
                assert!(zeros(hole as usize, data) && (data > hole as usize || hole as usize == self.bytes.len()));
            }
            Err(Error::NoMoreData) => assert!(offset >= self.bytes.len()),
            Err(error) => panic!("{error}"),
        }
    }

    pub fn compare(&self, fs: &Volume) {
        assert_eq!(fs.stat(self.inode).unwrap().size, self.bytes.len() as u64, "{}", self.name);
        let mut found = vec![0xee; self.bytes.len() + 10];
        let count = fs.read_at(self.inode, 0, &mut found).unwrap();
        found.truncate(count);
        self.expect(&found);
    }

    /// What the kernel reads from the mounted image.
    pub fn compare_in(&self, mounted: &Path) {
        self.expect(&std::fs::read(mounted.join(&self.name)).unwrap());
    }

    fn expect(&self, found: &[u8]) {
        let differs = found.iter().zip(&self.bytes).position(|(a, b)| a != b);
        let lengths = (found.len(), self.bytes.len());
        assert!(found == self.bytes, "{} differs at {differs:?}, {lengths:?} bytes", self.name);
    }
}

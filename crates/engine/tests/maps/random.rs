//! Random operations on some files, in all shapes of images: the kernel reads what a vector of bytes contains, and
//! xfs_repair finds nothing.

use super::model::{File, Random, make, open};
use std::sync::Arc;
use xfskit_check::{CheckOptions, Quiet};
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Error, Fallocate, Volume};

const SHAPES: &[&[&str]] = &[
    &[],
    &["-b", "size=1024"],
    &["-b", "size=1024", "-m", "rmapbt=0"],
    &["-m", "rmapbt=0,reflink=0"],
    &["-b", "size=1024", "-m", "reflink=0", "-i", "nrext64=0,exchange=0"],
    &["-d", "su=64k,sw=2", "-d", "agcount=5"],
    &["-b", "size=65536"],
];

const RANGES: [Fallocate; 8] = [
    Fallocate::Allocate,
    Fallocate::AllocateKeepSize,
    Fallocate::UnshareKeepSize,
    Fallocate::PunchHole,
    Fallocate::ZeroRange,
    Fallocate::ZeroRangeKeepSize,
    Fallocate::CollapseRange,
    Fallocate::InsertRange,
];

struct Work<'a> {
    fs: &'a Volume,
    files: &'a mut [File],
    random: Random,
    block: usize,
}

impl Work<'_> {
    /// A place and a length, mostly of whole blocks.
    fn range(&mut self, size: usize) -> (usize, usize) {
        let most = (size + 20 * self.block) as u64;
        let (offset, length) =
            (self.random.below(most) as usize, 1 + self.random.below(12 * self.block as u64) as usize);
        if self.random.below(3) == 0 {
            return (offset, length);
        }
        (offset / self.block * self.block, length.next_multiple_of(self.block))
    }

    fn step(&mut self) {
        let which = self.random.below(self.files.len() as u64) as usize;
        let size = self.files[which].bytes.len();
        let (offset, length) = self.range(size);
        let (fs, block) = (self.fs, self.block);
        match self.random.below(20) {
            0..=5 => {
                let data = self.random.bytes(length);
                self.files[which].write(fs, offset, &data);
            }
            6 | 7 => {
                let size = if self.random.below(4) == 0 { 0 } else { self.random.below((60 * block) as u64) as usize };
                self.files[which].truncate(fs, size);
            }
            8..=13 => {
                let what = RANGES[self.random.below(8) as usize];
                self.files[which].fallocate(fs, what, offset, length, block);
            }
            14 | 15 => self.clone(which, offset),
            16 => self.copy(which, offset, length),
            17 => fs.sync().unwrap(),
            18 => self.files[which].check_seek(fs, offset),
            _ => self.files[which].compare(fs),
        }
    }

    fn clone(&mut self, from: usize, offset: usize) {
        let to = self.random.below(self.files.len() as u64) as usize;
        let (from_size, to_size) = (self.files[from].bytes.len(), self.files[to].bytes.len());
        let (to_offset, length) = self.range(to_size);
        let length = if self.random.below(3) == 0 { 0 } else { length };
        let (source, target) = (self.files[from].inode, self.files[to].inode);
        let result = self.fs.clone_range(source, offset as u64, target, to_offset as u64, length as u64);
        let block = self.block;
        let left = from_size.checked_sub(offset);
        let real = if length == 0 { left.unwrap_or(0) } else { length };
        let aligned = offset.is_multiple_of(block) && to_offset.is_multiple_of(block);
        let to_ends = left == Some(real) && to_offset + real >= to_size;
        let ends_well = real.is_multiple_of(block) || to_ends;
        let overlaps = from == to && offset.abs_diff(to_offset) < real.next_multiple_of(block);
        let sound = aligned && ends_well && left.is_some_and(|left| real <= left) && !(overlaps && real > 0);
        match result {
            Ok(()) => assert!(sound, "{offset} {to_offset} {length}"),
            Err(Error::NotSupported(_)) => return,
            Err(Error::Invalid(_)) => {
                assert!(!sound, "{offset} {to_offset} {length}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
        if real > 0 {
            self.model_copy(from, offset, to, to_offset, real);
        }
    }

    fn copy(&mut self, from: usize, offset: usize, length: usize) {
        let to = self.random.below(self.files.len() as u64) as usize;
        let to_size = self.files[to].bytes.len();
        let to_offset = self.range(to_size).0;
        let real = length.min(self.files[from].bytes.len().saturating_sub(offset));
        let (source, target) = (self.files[from].inode, self.files[to].inode);
        match self.fs.copy_range(source, offset as u64, target, to_offset as u64, length as u64) {
            Ok(count) => assert_eq!(count, real as u64),
            Err(Error::Invalid(_)) => {
                assert!(from == to && offset.abs_diff(to_offset) < real);
                return;
            }
            Err(error) => panic!("{error}"),
        }
        if real > 0 {
            self.model_copy(from, offset, to, to_offset, real);
        }
    }

    fn model_copy(&mut self, from: usize, offset: usize, to: usize, to_offset: usize, length: usize) {
        let bytes = self.files[from].bytes[offset..offset + length].to_vec();
        let target = &mut self.files[to].bytes;
        if target.len() < to_offset + length {
            target.resize(to_offset + length, 0);
        }
        target[to_offset..to_offset + length].copy_from_slice(&bytes);
    }
}

#[test]
fn random_operations_are_what_the_kernel_reads() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    // XFSKIT_MAP_SEEDS=100 for a long run.
    let seeds = std::env::var("XFSKIT_MAP_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    for (seed, shape) in (1..=seeds).flat_map(|seed| SHAPES.iter().map(move |shape| (seed, shape))) {
        let scratch = xfskit_testkit::scratch();
        let image = scratch.image("a.img", 400 << 20);
        reference.mkfs(&image, shape);
        let mut files = Vec::new();
        for phase in 0..3 {
            let fs = open(&image);
            if phase == 0 {
                files = (0..4).map(|n| make(&fs, &format!("file-{n}"))).collect();
            }
            files.iter().for_each(|file| file.compare(&fs));
            let block = fs.mount().geometry.block_bytes();
            let mut work = Work { fs: &fs, files: &mut files, random: Random(seed * 31 + phase), block };
            for step in 0..250 {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.step()));
                if let Err(panic) = result {
                    eprintln!("shape {shape:?}, seed {seed}, phase {phase}, step {step}");
                    std::panic::resume_unwind(panic);
                }
            }
            files.iter().for_each(|file| file.compare(&fs));
            fs.unmount().unwrap();
            if let Some(findings) = reference.repair_findings(&image, None) {
                panic!("shape {shape:?}, seed {seed}, phase {phase}: {findings}");
            }
            let device = FileDevice::open(&image, Access::Read).unwrap();
            let report = xfskit_check::check(Arc::new(device), None, &CheckOptions::default(), &Quiet).unwrap();
            assert!(report.is_clean(), "shape {shape:?}, seed {seed}, phase {phase}: {:?}", report.faults);
            let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
            files.iter().for_each(|file| file.compare_in(kernel.path()));
            kernel.unmount();
        }
    }
}

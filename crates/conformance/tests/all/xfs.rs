//! XFS passes all cases, on a device in memory.

use std::sync::Arc;
use xfskit_conformance::{Medium, check};
use xfskit_device::MemoryDevice;
use xfskit_engine::{MountOptions, Volume};
use xfskit_mkfs::{Options, make};
use xfskit_vfs::Timestamp;

const IMAGE_BYTES: usize = 96 << 20;

struct Image(Arc<MemoryDevice>);

impl Image {
    fn made(options: &Options) -> Box<dyn Medium> {
        let device = MemoryDevice::new(IMAGE_BYTES);
        make(&device, None, options, Timestamp::default()).expect("an image");
        Box::new(Self(Arc::new(device)))
    }
}

impl Medium for Image {
    fn open(&self) -> Box<dyn xfskit_vfs::Volume> {
        Box::new(Volume::open(self.0.clone(), MountOptions::default()).expect("a mount"))
    }

    fn after_crash(&self) -> Box<dyn Medium> {
        Box::new(Self(Arc::new(MemoryDevice::from_bytes(self.0.to_bytes()))))
    }
}

fn options() -> Options {
    Options { allow_small: true, uuid: Some([9; 16]), ..Options::default() }
}

#[test]
fn xfs_passes() {
    let options = options();
    check(&|| Image::made(&options), &[]);
}

#[test]
fn xfs_without_the_features_of_late_years_passes() {
    let options = Options { reflink: false, rmapbt: false, parent: false, large_extent_counts: false, ..options() };
    check(&|| Image::made(&options), &[]);
}

#[test]
fn xfs_with_small_blocks_passes() {
    let options = Options { block_bytes: 1024, ..options() };
    check(&|| Image::made(&options), &[]);
}

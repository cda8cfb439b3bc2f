//! Operations of the engine on an image in memory: their cost without a device.

use divan::{Bencher, black_box};
use std::cell::Cell;
use std::sync::Arc;
use xfskit_device::MemoryDevice;
use xfskit_engine::{Caller, MountOptions, NewFile, RenameFlags, SetMode, Volume};
use xfskit_ondisk::InodeNumber;

const IMAGE_BYTES: usize = 512 << 20;
const TEST: &[u8] = b"user.test";

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

struct Image {
    fs: Volume,
    me: Caller,
    next: Cell<usize>,
}

impl Image {
    fn new() -> Self {
        let device = MemoryDevice::new(IMAGE_BYTES);
        let options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, ..Default::default() };
        xfskit_mkfs::make(&device, None, &options, Default::default()).expect("an image");
        let fs = Volume::open(Arc::new(device), MountOptions::default()).expect("an image opens");
        Self { fs, me: Caller::root(), next: Cell::new(0) }
    }

    /// A name of 40 bytes that was not used before.
    fn name(&self) -> String {
        let n = self.next.get();
        self.next.set(n + 1);
        format!("{:040x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn create(&self, dir: InodeNumber, name: &str) -> InodeNumber {
        self.fs.create(dir, name.as_bytes(), &NewFile::file(0o644), &self.me).expect("a file is made").inode
    }

    fn dir(&self, files: usize) -> InodeNumber {
        let new = NewFile::dir(0o755);
        let dir = self.fs.create(self.fs.root(), self.name().as_bytes(), &new, &self.me).expect("a directory").inode;
        for _ in 0..files {
            self.create(dir, &self.name());
        }
        dir
    }

    fn set(&self, file: InodeNumber, name: &[u8], value: &[u8]) {
        self.fs.set_xattr(file, name, value, SetMode::Any, &self.me).expect("an attribute is set");
    }
}

/// Creates in a directory of `files` names: shortform, one block, an index of leaves.
#[divan::bench(args = [1, 50, 20_000], sample_count = 20, sample_size = 100)]
fn create(bencher: Bencher<'_, '_>, files: usize) {
    let image = Image::new();
    let dir = image.dir(files);
    bencher.with_inputs(|| image.name()).bench_local_refs(|name| image.create(dir, name));
}

#[divan::bench(args = [5, 50, 20_000])]
fn lookup(bencher: Bencher<'_, '_>, files: usize) {
    let image = Image::new();
    let dir = image.dir(files);
    let name = image.name();
    image.create(dir, &name);
    bencher.bench_local(|| image.fs.lookup(dir, black_box(name.as_bytes())).expect("it is there"));
}

#[divan::bench(sample_count = 20, sample_size = 100)]
fn unlink(bencher: Bencher<'_, '_>) {
    let image = Image::new();
    let dir = image.dir(1000);
    let made = || {
        let name = image.name();
        image.create(dir, &name);
        name
    };
    bencher.with_inputs(made).bench_local_refs(|name| {
        image.fs.unlink(dir, name.as_bytes(), &image.me).expect("it is removed");
    });
}

#[divan::bench]
fn rename_same_length(bencher: Bencher<'_, '_>) {
    let image = Image::new();
    let dir = image.dir(1000);
    let names = [image.name(), image.name()];
    image.create(dir, &names[0]);
    let turn = Cell::new(0);
    bencher.bench_local(|| {
        let from = turn.get();
        turn.set(1 - from);
        let (from, to) = (names[from].as_bytes(), names[1 - from].as_bytes());
        image.fs.rename(dir, from, dir, to, RenameFlags::default(), &image.me).expect("it is renamed");
    });
}

#[divan::bench(args = [64, 1000, 65536])]
fn xattr_replace(bencher: Bencher<'_, '_>, bytes: usize) {
    let image = Image::new();
    let file = image.create(image.dir(1), "file");
    let values = [vec![7; bytes], vec![8; bytes]];
    let turn = Cell::new(0);
    bencher.bench_local(|| {
        turn.set(turn.get() + 1);
        image.set(file, TEST, &values[turn.get() & 1]);
    });
}

#[divan::bench]
fn xattr_set_and_remove(bencher: Bencher<'_, '_>) {
    let image = Image::new();
    let file = image.create(image.dir(1), "file");
    bencher.bench_local(|| {
        image.set(file, TEST, &[7; 64]);
        image.fs.remove_xattr(file, TEST, SetMode::Any, &image.me).expect("it is removed");
    });
}

/// An attribute of a file with `others` more: in the inode, in one leaf, in a tree.
#[divan::bench(args = [1, 30, 1000])]
fn xattr_get(bencher: Bencher<'_, '_>, others: usize) {
    let image = Image::new();
    let file = image.create(image.dir(1), "file");
    for n in 0..others {
        image.set(file, format!("user.other{n}").as_bytes(), &[7; 8]);
    }
    image.set(file, TEST, &[7; 64]);
    bencher.bench_local(|| image.fs.get_xattr(file, black_box(TEST)).expect("it is there"));
}

#[divan::bench]
fn xattr_leaf_add_and_remove(bencher: Bencher<'_, '_>) {
    let image = Image::new();
    let file = image.create(image.dir(1), "file");
    for n in 0..30 {
        image.set(file, format!("user.other{n}").as_bytes(), &[7; 8]);
    }
    bencher.bench_local(|| {
        image.set(file, TEST, &[7; 64]);
        image.fs.remove_xattr(file, TEST, SetMode::Any, &image.me).expect("it is removed");
    });
}

/// A checkpoint of `files` creates: formatting, checksums, records.
#[divan::bench(args = [10, 1000], sample_count = 20, sample_size = 1)]
fn checkpoint(bencher: Bencher<'_, '_>, files: usize) {
    let image = Image::new();
    let dir = image.dir(1);
    bencher
        .with_inputs(|| {
            (0..files).for_each(|_| {
                image.create(dir, &image.name());
            })
        })
        .bench_local_refs(|()| image.fs.sync().expect("a sync"));
}

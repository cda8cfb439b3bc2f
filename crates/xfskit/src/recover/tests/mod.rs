//! Every intent, written into a log by hand and finished by us and by the kernel: both must come to the same.
//!
//! A scene is a filesystem with two files. A transaction leaves it in the middle of a piece of work and logs the intents
//! for the rest; that image is given to the kernel, and to us whole and cut off after each step.

mod cases;
mod hostile;
mod judge;

use super::*;
use crate::cache::ForkKind;
use crate::env::SeededEnvironment;
use crate::inode::bmap;
use crate::space::alloc::{AllocRequest, Near, allocate};
use crate::space::{Owner, rmap as reverse};
use crate::test_image::TestImage;
use crate::trans::{InoId, InodeFields};
use crate::{Caller, Filesystem, MountOptions, NewFile};
use judge::State;
use xfskit_device::MemoryDevice;
use xfskit_ondisk::btree::Rmap;
use xfskit_ondisk::log_items::FsExtent;
use xfskit_ondisk::{AgNumber, Extent, FileBlock, FsBlock, InodeNumber};

const MIB: usize = 64;

/// A filesystem with files, and one transaction on them.
struct Scene {
    tx: Transaction,
    inos: Vec<InoId>,
    inodes: Vec<InodeNumber>,
    intents: Vec<Arc<RecoveredIntent>>,
}

impl Scene {
    /// Blocks that are neither free nor anybody's.
    fn blocks(&mut self, count: u32) -> FsBlock {
        let owner = Owner::Fork { inode: InodeNumber(128), fork: ForkKind::Data, offset: FileBlock(0), bmbt: false };
        let request = AllocRequest::new(Near::Ag(AgNumber(0)), count, count, owner);
        let (block, _) = allocate(&mut self.tx, &request).unwrap().expect("space");
        let (ag, start) = self.tx.geometry().split_fs_block(block).unwrap();
        reverse::unmap(&mut self.tx, ag, owner.rmap(start, count, false)).unwrap();
        block
    }

    /// A file maps blocks, and the reverse mapping says so.
    fn map(&mut self, file: usize, at: u64, block: FsBlock, count: u64, unwritten: bool) {
        let extent = Extent { file_block: FileBlock(at), block, count, unwritten };
        bmap::map_extent(&mut self.tx, self.inos[file], ForkKind::Data, extent).unwrap();
        let end = (at + count) * self.tx.geometry().block_bytes() as u64;
        let core = &mut self.tx.inode_mut(self.inos[file], InodeFields::CORE).core;
        core.size = core.size.max(end);
    }

    /// A file has new blocks.
    fn write(&mut self, file: usize, at: u64, count: u32) -> FsBlock {
        let block = self.blocks(count);
        self.map(file, at, block, count.into(), false);
        block
    }

    /// The reverse mapping of blocks of a file.
    fn rmap(&self, file: usize, at: u64, block: FsBlock, count: u32, unwritten: bool) -> (AgNumber, Rmap) {
        let owner = Owner::Fork { inode: self.inodes[file], fork: ForkKind::Data, offset: FileBlock(at), bmbt: false };
        let (ag, start) = self.tx.geometry().split_fs_block(block).unwrap();
        (ag, owner.rmap(start, count, unwritten))
    }

    /// Both files may share blocks.
    fn share(&mut self) {
        for ino in self.inos.clone() {
            self.tx.inode_mut(ino, InodeFields::CORE).core.flags2 |= xfskit_ondisk::inode::flags2::REFLINK;
        }
    }

    /// The transaction logs an intent.
    fn log(&mut self, region: Vec<u8>) {
        self.log_regions(vec![region]);
    }

    fn log_regions(&mut self, regions: Vec<Vec<u8>>) {
        let kind = u16::from_le_bytes([regions[0][0], regions[0][1]]);
        let id = u64::from_le_bytes(regions[0][8..16].try_into().unwrap());
        let mut copy = LogVector::default();
        regions.iter().for_each(|region| copy.push(region));
        let intent = Arc::new(RecoveredIntent::new(Lsn(1 << 32), kind, id, regions));
        self.tx.log_intent(Arc::clone(&intent) as _, copy);
        self.intents.push(intent);
    }
}

/// A scene whose transaction is durable and whose intents wait.
struct Prepared {
    device: Arc<MemoryDevice>,
    fs: Filesystem,
    intents: Vec<Arc<RecoveredIntent>>,
}

fn extent(block: FsBlock, count: u32) -> FsExtent {
    FsExtent { block, count }
}

fn prepare(arguments: &[(char, &str)], work: &dyn Fn(&mut Scene)) -> Prepared {
    let image = TestImage::new(MIB, arguments);
    let device = Arc::clone(&image.device);
    let env = Arc::new(SeededEnvironment::new(1));
    let fs = Filesystem::open_in(Arc::clone(&device) as _, None, MountOptions::default(), env).unwrap();
    let names = [b"one".as_slice(), b"two"];
    let inodes: Vec<InodeNumber> = names
        .iter()
        .map(|name| fs.create(fs.root(), name, &NewFile::new(0o100_644), &Caller::root()).unwrap().inode)
        .collect();
    fs.sync().unwrap();
    let mount = Arc::clone(fs.mount());
    let reservation = Reservation { log_bytes: 1 << 20, log_count: 1, blocks: 2000, may_dip: true };
    let mut tx = mount.transaction(reservation).unwrap();
    let inos = inodes.iter().map(|&inode| tx.join_inode(&mount.inode(inode).unwrap())).collect();
    let mut scene = Scene { tx, inos, inodes, intents: Vec::new() };
    work(&mut scene);
    let Scene { tx, intents, .. } = scene;
    tx.commit().unwrap();
    fs.sync().unwrap();
    Prepared { device, fs, intents }
}

/// Finishes the intents as recovery does; the error if a tag stopped it.
fn finish(prepared: Prepared) -> Result<()> {
    let mount = Arc::clone(prepared.fs.mount());
    finish_intents(&mount, prepared.intents)?;
    free_cow_leftovers(&mount)?;
    prepared.fs.unmount()
}

const TAGS: [&str; 6] = [
    crate::error_tags::FREE_EXTENT,
    crate::error_tags::RMAP_FINISH_ONE,
    crate::error_tags::REFCOUNT_FINISH_ONE,
    crate::error_tags::BMAP_FINISH_ONE,
    crate::error_tags::EXCHMAPS_FINISH_ONE,
    crate::error_tags::LARP,
];

/// Lets the kernel and us finish what `work` began, whole and cut off after each of the first steps.
fn agree(arguments: &[(char, &str)], work: &dyn Fn(&mut Scene)) {
    let prepared = prepare(arguments, work);
    let before = prepared.device.to_bytes();
    let device = Arc::clone(&prepared.device);
    finish(prepared).unwrap();
    let Some(ours) = State::of_clean(&device.to_bytes()) else { return };
    let Some(kernels) = State::after_kernel(&before) else { return };
    ours.assert_same(&kernels, "we and the kernel");
    for tag in TAGS {
        for nth in 1..4 {
            let prepared = prepare(arguments, work);
            let device = Arc::clone(&prepared.device);
            prepared.fs.mount().error_tags.arm(tag, nth);
            if finish(prepared).is_ok() {
                break;
            }
            let kernels = State::after_kernel(&device.to_bytes()).expect("it worked before");
            ours.assert_same(&kernels, &format!("we and the kernel after {nth} of our steps up to {tag}"));
        }
    }
}

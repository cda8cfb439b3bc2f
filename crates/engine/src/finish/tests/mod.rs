//! Every intent, written into a log by hand and finished by us and by the kernel, with the same result.
//!
//! A scene is a filesystem with two files. A transaction leaves it in the middle of a piece of work and logs the
//! intents for the rest; that image is recovered by the kernel, by us, and by us cut off after each step.

mod attrs;
mod cases;
mod hostile;
mod judge;

use super::*;
use crate::env::SeededEnvironment;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::item::LogVector;
use crate::mount::BlockPool;
use crate::space::{AllocRequest, ExtentState, Near, Owner, allocate, rmap_change as reverse};
use crate::test_image::TestImage;
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use crate::{Caller, MountOptions, NewFile, Volume};
use judge::State;
use xfskit_device::MemoryDevice;
use xfskit_ondisk::btree::Rmap;
use xfskit_ondisk::log_items::FsExtent;
use xfskit_ondisk::{AgNumber, Extent, FileBlock, FsBlock, InodeNumber};

const MIB: usize = 64;

/// A filesystem with files, and one transaction on them.
struct Scene<'m> {
    tx: Transaction<'m>,
    inos: Vec<InoId>,
    inodes: Vec<InodeNumber>,
    /// Intents that it has logged.
    intents: u64,
    /// Where its commit is to be cut off.
    cut: Option<&'static str>,
    /// Further work fills the log behind the intents, as far as it can.
    fill_log: bool,
}

impl Scene<'_> {
    /// Blocks that are allocated and have no owner.
    fn blocks(&mut self, count: u32) -> FsBlock {
        let owner = Owner::Fork { inode: InodeNumber(128), fork: ForkKind::Data, offset: FileBlock(0), bmbt: false };
        let request = AllocRequest::new(Near::Ag(AgNumber(0)), count, count, owner);
        let (block, _) = allocate(&mut self.tx, &request).unwrap().expect("space");
        let (ag, start) = self.tx.geometry().split_fs_block(block).unwrap();
        reverse::unmap(&mut self.tx, ag, owner.rmap(start, count)).unwrap();
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
        (ag, owner.rmap_in_state(start, count, ExtentState::of_flag(unwritten)))
    }

    /// Both files may share blocks.
    fn share(&mut self) {
        for ino in self.inos.clone() {
            self.tx.inode_mut(ino, InodeFields::CORE).core.flags2 |= xfskit_ondisk::inode::flags2::REFLINK;
        }
    }

    /// The transaction logs an intent.
    fn log(&mut self, region: Vec<u8>) {
        self.log_regions(&[region]);
    }

    fn log_regions(&mut self, regions: &[Vec<u8>]) {
        let mut copy = LogVector::default();
        regions.iter().for_each(|region| copy.push(region));
        self.tx.log_intent(copy);
        self.intents += 1;
    }
}

fn extent(block: FsBlock, count: u32) -> FsExtent {
    FsExtent { block, count }
}

fn open(device: &Arc<MemoryDevice>) -> Result<Volume> {
    open_with(device, MountOptions::default())
}

fn open_with(device: &Arc<MemoryDevice>, options: MountOptions) -> Result<Volume> {
    Volume::open_in(Arc::clone(device) as _, None, options, Arc::new(SeededEnvironment::new(1)))
}

/// A filesystem with two files.
fn two_files(device: &Arc<MemoryDevice>, options: MountOptions) -> (Volume, Vec<InodeNumber>) {
    let fs = open_with(device, options).unwrap();
    let make = |name: &&[u8]| fs.create(fs.root(), name, &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    let inodes = [b"one".as_slice(), b"two"].iter().map(make).collect();
    fs.sync().unwrap();
    (fs, inodes)
}

/// An image whose log ends with the transaction that `work` fills.
fn crash(arguments: &[(char, &str)], work: &dyn Fn(&mut Scene)) -> Vec<u8> {
    crash_after(arguments, MountOptions::default(), &|_| (), work)
}

/// As [`crash`], with work before it that completes.
fn crash_after(
    arguments: &[(char, &str)],
    options: MountOptions,
    before: &dyn Fn(&Volume),
    work: &dyn Fn(&mut Scene),
) -> Vec<u8> {
    let image = TestImage::new(MIB, arguments);
    let device = Arc::clone(&image.device);
    let (fs, inodes) = two_files(&device, options);
    before(&fs);
    fs.sync().unwrap();
    let mount = Arc::clone(fs.mount());
    let reservation = Reservation { log_bytes: 1 << 20, log_count: 1, blocks: 2000, pool: BlockPool::Reserve };
    let mut tx = mount.transaction(reservation).unwrap();
    let inos = inodes.iter().map(|&inode| tx.join_inode(&mount.inode(inode).unwrap())).collect();
    let mut scene = Scene { tx, inos, inodes: inodes.clone(), intents: 0, cut: None, fill_log: false };
    work(&mut scene);
    let (cut, fill_log) = (scene.cut, scene.fill_log);
    if let Some(tag) = cut {
        mount.error_tags.arm(tag, 1);
    }
    assert_eq!(scene.tx.commit().is_err(), cut.is_some());
    if cut.is_none() {
        fs.sync().unwrap();
    }
    if fill_log {
        // An eighth is reserved for chains that have begun, and this one counts as one.
        let full = |(used, size): (u64, u64)| used > size / 100 * 83;
        for n in 0.. {
            if full(mount.journal.usage()) {
                break;
            }
            let name = format!("user.{}", n % 20);
            fs.set_xattr(inodes[1], name.as_bytes(), &vec![n as u8; 1000], crate::SetMode::Any, &Caller::root())
                .unwrap();
            fs.sync().unwrap();
        }
    }
    device.to_bytes()
}

/// What the image is after we recovered it.
fn recovered(crash: &[u8]) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::from_bytes(crash.to_vec()));
    open(&device).unwrap().unmount().unwrap();
    device.to_bytes()
}

/// Recovers with `tag` armed, up to the intents; what the image is when that was cut off. `None` when it was not.
fn cut_recovery(crash: &[u8], tag: &'static str, nth: u32) -> Option<Vec<u8>> {
    let device = Arc::new(MemoryDevice::from_bytes(crash.to_vec()));
    let env = Arc::new(SeededEnvironment::new(1));
    let mount = Mount::open_in(Arc::clone(&device) as _, None, MountOptions::default(), env).unwrap();
    let found = mount.recovered.lock().take().unwrap();
    mount.error_tags.arm(tag, nth);
    match finish_intents(&mount, found.intents) {
        Ok(_) => None,
        Err(Error::Shutdown(_)) => Some(device.to_bytes()),
        Err(error) => panic!("{error}"),
    }
}

const TAGS: [&str; 6] = [
    crate::error_tags::FREE_EXTENT,
    crate::error_tags::RMAP_FINISH_ONE,
    crate::error_tags::REFCOUNT_FINISH_ONE,
    crate::error_tags::BMAP_FINISH_ONE,
    crate::error_tags::EXCHMAPS_FINISH_ONE,
    crate::error_tags::LARP,
];

/// Lets the kernel and us finish what `work` began; then cuts our recovery off after each of the first steps, and lets
/// the kernel and us recover from that.
fn agree(arguments: &[(char, &str)], work: &dyn Fn(&mut Scene)) {
    agree_on(&crash(arguments, work), State::assert_same);
}

fn agree_on(crash: &[u8], assert_same: fn(&State, &State, &str)) {
    let ours = recovered(crash);
    let Some(ours) = State::of(&ours) else { return };
    let Some(kernels) = State::of(crash) else { return };
    assert_same(&ours, &kernels, "we and the kernel");
    let mut cuts = 0;
    for tag in TAGS {
        for nth in 1..3 {
            let Some(cut) = cut_recovery(crash, tag, nth) else { break };
            cuts += 1;
            let kernels = State::of(&cut).expect("it worked before");
            assert_same(&ours, &kernels, &format!("we and the kernel after {nth} of our steps up to {tag}"));
            let again = State::of(&recovered(&cut)).expect("it worked before");
            assert_same(&ours, &again, &format!("we and we after {nth} of our steps up to {tag}"));
        }
    }
    assert!(cuts > 0, "no step passed its tag");
}

//! Makes the inode of a newly allocated number.

use crate::error::Result;
use crate::incore::{AttrFork, DataFork, Inode, InodeState, KnownAbsent};
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::extent::MAX_EXTENT_BLOCKS;
use xfskit_ondisk::inode::{
    FileMode, MODE_BLOCK, MODE_CHAR, MODE_DIR, MODE_FIFO, MODE_REGULAR, MODE_SOCKET, MODE_TYPE, flags, flags2,
};
use xfskit_ondisk::limits::bmbt_root_bytes;
use xfskit_ondisk::{ForkFormat, Geometry, InodeCore, InodeNumber, Lsn, NULL_AG_INODE};

/// What a new inode starts with.
#[derive(Clone, Copy, Debug)]
pub struct NewInode {
    /// Type and permissions.
    pub mode: FileMode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links that the transaction makes.
    pub links: u32,
    /// The device number of a device node, in XFS's encoding.
    pub device: u32,
    /// Give it an attr fork from the start: it is about to get attributes.
    pub attr_fork: bool,
}

/// Where a new inode's attr fork starts, in units of 8 bytes: behind room for six extents' worth of a btree root, or
/// right behind a device number.
pub fn default_fork_offset(geometry: &Geometry, data_format: ForkFormat) -> u8 {
    if data_format == ForkFormat::Dev {
        return 1;
    }
    let bytes = if geometry.inode_bytes() == 256 {
        geometry.literal_area_bytes() - bmbt_root_bytes(2)
    } else {
        bmbt_root_bytes(12)
    };
    (bytes / 8) as u8
}

/// Makes the inode `number` and joins it to the transaction. It inherits the project and flags of `parent`.
///
/// # Errors
/// `Corrupt` when the inode's cluster cannot be located.
pub fn create(tx: &mut Transaction, number: InodeNumber, new: &NewInode, parent: Option<InoId>) -> Result<InoId> {
    let mount = tx.mount();
    let (cluster, offset) = crate::space::cluster::locate(&mount.geometry, number)?;
    let state = initial_state(tx, number, new, parent);
    let fields = InodeFields::CORE | InodeFields::DEVICE | InodeFields::DATA_LOCAL;
    // The link of the unlinked list is kept apart from the core, in the cluster's buffer.
    match mount.inodes.find(number) {
        // The object of a freed inode of that number. The journal may still refer to it, so the new inode uses it.
        Some(inode) => {
            let id = tx.join_inode(&inode);
            *tx.inode_mut(id, fields) = state;
            // A write noted for the former file, and not yet in its core, does not concern the new one.
            let _ = inode.take_noted_write();
            Ok(id)
        }
        // No other transaction makes an inode of this number while the AGI is locked.
        None => {
            let inode = mount.inodes.insert(Inode::new(state, cluster.0, offset));
            let id = tx.join_inode(&inode);
            tx.inode_mut(id, fields);
            Ok(id)
        }
    }
}

fn initial_state(tx: &Transaction, number: InodeNumber, new: &NewInode, parent: Option<InoId>) -> InodeState {
    let geometry = tx.geometry();
    let now = tx.mount().env.now();
    let (data, data_format) = match new.mode.file_type() {
        MODE_CHAR | MODE_BLOCK | MODE_FIFO | MODE_SOCKET => (DataFork::Dev(new.device), ForkFormat::Dev),
        MODE_REGULAR => (DataFork::EMPTY, ForkFormat::Extents),
        _ => (DataFork::Local(Vec::new()), ForkFormat::Local),
    };
    let mut flags2 = 0;
    if geometry.has_bigtime() {
        flags2 |= flags2::BIGTIME;
    }
    if geometry.has_large_extent_counts() {
        flags2 |= flags2::NREXT64;
    }
    let core = InodeCore {
        mode: new.mode.bits(),
        data_format,
        uid: new.uid,
        gid: new.gid,
        links: new.links,
        project: 0,
        atime: now,
        mtime: now,
        ctime: now,
        birth_time: now,
        size: 0,
        blocks: 0,
        extent_size: 0,
        data_extents: 0,
        attr_extents: 0,
        fork_offset: if new.attr_fork { default_fork_offset(geometry, data_format) } else { 0 },
        attr_format: ForkFormat::Extents,
        flags: 0,
        generation: tx.mount().env.random() as u32,
        next_unlinked: NULL_AG_INODE,
        change_count: 1,
        lsn: Lsn(0),
        flags2,
        cow_extent_size: 0,
        inode: number,
        uuid: geometry.meta_uuid,
        reserved: (0, 0),
    };
    let mut state = InodeState {
        core,
        data,
        attr: new.attr_fork.then_some(AttrFork::EMPTY),
        known_absent: KnownAbsent::ALL,
        freed: false,
        dirty: None,
        dir_memory: None,
        received_bytes: 0.into(),
        times_wait: false,
        was_cut: false,
    };
    if let Some(parent) = parent {
        inherit(&mut state.core, &tx.inode(parent).core, geometry);
    }
    state
}

/// Lets a new inode inherit from its directory: every inode the project, files and directories also flags and hints.
fn inherit(core: &mut InodeCore, parent: &InodeCore, geometry: &Geometry) {
    if parent.flags & flags::PROJINHERIT != 0 {
        core.project = parent.project;
    }
    let kind = core.mode & MODE_TYPE;
    if kind == MODE_DIR || kind == MODE_REGULAR {
        inherit_flags(core, parent, geometry);
        inherit_flags2(core, parent, geometry);
    }
}

/// Whether an inode may have an allocation hint of that size, in blocks.
fn is_valid_hint(geometry: &Geometry, blocks: u32) -> bool {
    (1..=MAX_EXTENT_BLOCKS.min(u64::from(geometry.ag_blocks) / 2)).contains(&blocks.into())
}

fn inherit_flags(core: &mut InodeCore, parent: &InodeCore, geometry: &Geometry) {
    // `NOSYMLINKS` is not inherited, as by default in the kernel. Files do not become realtime files, for there is no
    // realtime device.
    const TO_BOTH: u16 = flags::SYNC | flags::NOATIME | flags::NODUMP | flags::NODEFRAG | flags::FILESTREAM;
    const TO_DIRECTORIES: u16 = TO_BOTH | flags::PROJINHERIT | flags::RTINHERIT;
    let is_dir = core.mode & MODE_TYPE == MODE_DIR;
    core.flags |= parent.flags & if is_dir { TO_DIRECTORIES } else { TO_BOTH };
    if parent.flags & flags::EXTSZINHERIT != 0 && is_valid_hint(geometry, parent.extent_size) {
        core.flags |= if is_dir { flags::EXTSZINHERIT } else { flags::EXTSIZE };
        core.extent_size = parent.extent_size;
    }
}

fn inherit_flags2(core: &mut InodeCore, parent: &InodeCore, geometry: &Geometry) {
    core.flags2 |= parent.flags2 & flags2::DAX;
    let is_valid = geometry.has_reflink() && is_valid_hint(geometry, parent.cow_extent_size);
    if parent.flags2 & flags2::COWEXTSIZE != 0 && is_valid {
        core.flags2 |= flags2::COWEXTSIZE;
        core.cow_extent_size = parent.cow_extent_size;
    }
}

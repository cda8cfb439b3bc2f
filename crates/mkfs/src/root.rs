//! The first chunk of inodes: the root directory, the two realtime inodes that every image has, and free ones.

use crate::options::Autofsck;
use crate::plan::FIRST_INODES;
use xfskit_ondisk::inode::{INODE_CORE_BYTES, MODE_DIR, MODE_REGULAR, flags2, stamp_inode};
use xfskit_ondisk::{ForkFormat, Geometry, InodeCore, InodeNumber, Lsn, NULL_AG_INODE, Timestamp, crc32c};

/// How often mkfs.xfs has changed each inode when the image is complete.
const CHANGES_OF_THE_ROOT: u64 = 4;
const CHANGES_OF_A_FILE: u64 = 2;

/// The flag that marks the realtime bitmap as one of the newer kind.
const NEW_RT_BITMAP: u16 = 1 << 2;
/// The property's name, in the `trusted` namespace (on disk: `root`).
const AUTOFSCK_NAME: &[u8] = b"xfs:autofsck";
const ATTR_ROOT: u8 = 1 << 1;
/// The smallest attr fork: the root of a map with two pointers.
const MIN_ATTR_FORK_BYTES: usize = 36;

/// The inodes from `first` on, one after the other as they lie on disk.
pub(crate) fn encode_first_inodes(
    geometry: &Geometry,
    first: InodeNumber,
    count: u32,
    autofsck: Option<Autofsck>,
    time: Timestamp,
) -> Vec<u8> {
    let size = geometry.inode_bytes();
    let mut bytes = vec![0; size * count as usize];
    for (index, out) in bytes.chunks_exact_mut(size).enumerate() {
        let inode = InodeNumber(first.0 + index as u64);
        match index as u32 {
            0 => encode_root(geometry, inode, autofsck, time, out),
            1 => {
                let core =
                    InodeCore { flags: NEW_RT_BITMAP, atime: Timestamp::default(), ..regular(geometry, inode, time) };
                core.encode(out);
            }
            index if index < FIRST_INODES => regular(geometry, inode, time).encode(out),
            _ => free(geometry, inode).encode(out),
        }
        stamp_inode(out);
    }
    bytes
}

fn free(geometry: &Geometry, inode: InodeNumber) -> InodeCore {
    InodeCore {
        mode: 0,
        data_format: ForkFormat::Dev,
        uid: 0,
        gid: 0,
        links: 0,
        project: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        birth_time: Timestamp::default(),
        size: 0,
        blocks: 0,
        extent_size: 0,
        data_extents: 0,
        attr_extents: 0,
        fork_offset: 0,
        attr_format: ForkFormat::Dev,
        flags: 0,
        generation: generation(geometry, inode),
        next_unlinked: NULL_AG_INODE,
        change_count: 0,
        lsn: Lsn(0),
        flags2: 0,
        cow_extent_size: 0,
        inode,
        uuid: geometry.meta_uuid,
        reserved: (0, 0),
    }
}

/// A generation that differs between images, so that a file handle of one image is not valid on another.
fn generation(geometry: &Geometry, inode: InodeNumber) -> u32 {
    crc32c([geometry.meta_uuid.as_slice(), &inode.0.to_be_bytes()])
}

fn new_flags(geometry: &Geometry) -> u64 {
    let bigtime = if geometry.has_bigtime() { flags2::BIGTIME } else { 0 };
    let counts = if geometry.has_large_extent_counts() { flags2::NREXT64 } else { 0 };
    bigtime | counts
}

/// A file without contents and without a name.
fn regular(geometry: &Geometry, inode: InodeNumber, time: Timestamp) -> InodeCore {
    InodeCore {
        mode: MODE_REGULAR,
        data_format: ForkFormat::Extents,
        attr_format: ForkFormat::Extents,
        links: 1,
        atime: time,
        mtime: time,
        ctime: time,
        birth_time: time,
        change_count: CHANGES_OF_A_FILE,
        flags2: new_flags(geometry),
        ..free(geometry, inode)
    }
}

fn encode_root(geometry: &Geometry, inode: InodeNumber, autofsck: Option<Autofsck>, time: Timestamp, out: &mut [u8]) {
    // A directory in shortform: no entries, no inode number of 8 bytes, and the parent, which is the root itself.
    let parent = (inode.0 as u32).to_be_bytes();
    let directory = [0, 0, parent[0], parent[1], parent[2], parent[3]];
    let mut core = InodeCore {
        mode: MODE_DIR | 0o755,
        data_format: ForkFormat::Local,
        links: 2,
        size: directory.len() as u64,
        generation: 0,
        change_count: CHANGES_OF_THE_ROOT,
        ..regular(geometry, inode, time)
    };
    out[INODE_CORE_BYTES..][..directory.len()].copy_from_slice(&directory);
    if let Some(property) = autofsck {
        let fork = encode_property(property.name().as_bytes());
        let offset = (geometry.literal_area_bytes() - fork.len().max(MIN_ATTR_FORK_BYTES)) / 8;
        core.fork_offset = offset as u8;
        core.attr_format = ForkFormat::Local;
        out[INODE_CORE_BYTES + offset * 8..][..fork.len()].copy_from_slice(&fork);
    }
    core.encode(out);
}

/// An attr fork in shortform with one attribute: bytes in all, count, padding; lengths of name and value, flags.
fn encode_property(value: &[u8]) -> Vec<u8> {
    let total = 4 + 3 + AUTOFSCK_NAME.len() + value.len();
    let mut fork = vec![0, total as u8, 1, 0, AUTOFSCK_NAME.len() as u8, value.len() as u8, ATTR_ROOT];
    fork.extend_from_slice(AUTOFSCK_NAME);
    fork.extend_from_slice(value);
    fork
}

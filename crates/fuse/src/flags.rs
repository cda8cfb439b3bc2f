//! Flags, projects and extent size hints: the ioctls of chattr, lsattr and xfs_io, which the kernel passes on for files
//! and directories.

use crate::caller::owner;
use rustix::fs::OFlags;
use xfskit_fuse_session::Requester;
use xfskit_vfs::{Error, Flags, InodeNumber, Result, Volume, xflags};

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_XFLAGS: u32 = 0x801c_581f;
const SET_XFLAGS: u32 = 0x401c_5820;
/// Size of Linux's `struct fsxattr`.
const FSXATTR_BYTES: usize = 28;
/// The flags that exist in both pairs of requests: the bit of the old pair, and that of the new one.
const COMMON: [(u32, u32); 7] = [
    (0x0000_0008, 0x20),
    (0x0000_0010, 0x08),
    (0x0000_0020, 0x10),
    (0x0000_0040, 0x80),
    (0x0000_0080, 0x40),
    (0x0200_0000, xflags::DAX),
    (0x2000_0000, 0x200),
];

/// The two of [`COMMON`] that protect a file, immutable and append-only: the bits of the old pair, and of the new one.
const PROTECTING: (u32, u32) = (0x30, IMMUTABLE | APPEND);
const IMMUTABLE: u32 = 0x08;
const APPEND: u32 = 0x10;

/// Whether an ioctl of these changes something.
pub(crate) fn changes(command: u32) -> bool {
    [SET_FLAGS, SET_XFLAGS].contains(&command)
}

/// Refuses to open a file for what its flags forbid, as the kernel does for filesystems whose flags it knows.
///
/// # Errors
/// `NotPermitted`; `Stale`, `Corrupt`, `Io`.
pub(crate) fn verify_open(fs: &impl Volume, inode: InodeNumber, open_flags: u32) -> Result<()> {
    let flags = OFlags::from_bits_retain(open_flags);
    if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
        return Ok(());
    }
    let xflags = fs.flags(inode)?.xflags;
    let appends = flags.contains(OFlags::APPEND) && !flags.contains(OFlags::TRUNC);
    if xflags & IMMUTABLE != 0 || xflags & APPEND != 0 && !appends {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Whether an ioctl is one of these.
pub(crate) fn is_known(command: u32) -> bool {
    [GET_FLAGS, SET_FLAGS, GET_XFLAGS, SET_XFLAGS].contains(&command)
}

/// Whether an ioctl makes a file immutable or append-only.
pub(crate) fn protects(command: u32, data: &[u8]) -> bool {
    let flags = word(data, 0).unwrap_or(0);
    match command {
        SET_FLAGS => flags & PROTECTING.0 != 0,
        SET_XFLAGS => flags & PROTECTING.1 != 0,
        _ => false,
    }
}

/// Carries out an ioctl and returns its reply.
///
/// # Errors
/// `NotSupported` for an unknown ioctl; those of [`Volume::set_flags`].
pub(crate) fn ioctl(
    fs: &impl Volume,
    inode: InodeNumber,
    command: u32,
    data: &[u8],
    requester: &Requester,
) -> Result<Vec<u8>> {
    match command {
        GET_FLAGS => {
            let xflags = fs.flags(inode)?.xflags;
            let old = COMMON.iter().filter(|(_, new)| xflags & new != 0).fold(0, |all, (old, _)| all | old);
            Ok(old.to_ne_bytes().to_vec())
        }
        SET_FLAGS => {
            let old = word(data, 0)?;
            if old & !COMMON.iter().fold(0, |all, (bit, _)| all | bit) != 0 {
                return Err(Error::NotSupported("a flag that filesystems of Linux do not share"));
            }
            let mut flags = fs.flags(inode)?;
            for (bit, new) in COMMON {
                flags.xflags = if old & bit != 0 { flags.xflags | new } else { flags.xflags & !new };
            }
            fs.set_flags(inode, &flags, &owner(requester)).map(|()| Vec::new())
        }
        GET_XFLAGS => encode(fs, inode),
        SET_XFLAGS => {
            let flags = Flags {
                xflags: word(data, 0)?,
                extent_size_bytes: word(data, 4)?,
                project: word(data, 12)?,
                cow_extent_size_bytes: word(data, 16)?,
            };
            fs.set_flags(inode, &flags, &owner(requester)).map(|()| Vec::new())
        }
        _ => Err(Error::NotSupported("this ioctl")),
    }
}

fn encode(fs: &impl Volume, inode: InodeNumber) -> Result<Vec<u8>> {
    let flags = fs.flags(inode)?;
    // The third word, the number of extents, is left zero.
    let words = [flags.xflags, flags.extent_size_bytes, 0, flags.project, flags.cow_extent_size_bytes];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.resize(FSXATTR_BYTES, 0);
    Ok(bytes)
}

/// The word at byte `at` of a request's data.
fn word(data: &[u8], at: usize) -> Result<u32> {
    let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or(Error::Invalid("the request is too short"))
}

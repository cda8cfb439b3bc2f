//! Ioctls about the whole filesystem, of fstrim and of programs that set labels. Those of one filesystem alone are its
//! own ([`Extras::ioctl`](xfskit_vfs::Extras::ioctl)).
//!
//! | ioctl | who may | answer |
//! |---|---|---|
//! | `FITRIM` | root, the server's user (1) | the bytes that were given back |
//! | `FS_IOC_GETFSLABEL` | all | the label |
//! | `FS_IOC_SETFSLABEL` | root, the server's user (1) | – |
//! | `FS_IOC_GETVERSION` | all | the generation of the file, 32 bits as XFS answers it |
//!
//! (1) In the kernel it takes `CAP_SYS_ADMIN`, which the server cannot ask for.
//!
//! The kernel copies as many bytes as the number of an ioctl says, and less where the answer is shorter. Source of
//! facts: `include/uapi/linux/fs.h` of Linux 6.18.

use crate::virtual_xattrs::is_owner;
use xfskit_fuse_session::Requester;
use xfskit_vfs::{Error, InodeNumber, Result, Volume};

const FITRIM: u32 = 0xc018_5879;
const GET_LABEL: u32 = 0x8100_9431;
const SET_LABEL: u32 = 0x4100_9432;
const GET_VERSION: u32 = 0x8008_7601;

/// Size of the kernel's buffer for a label.
const LABEL_BYTES: usize = 256;

/// Whether an ioctl is one of these.
pub(crate) fn is_known(command: u32) -> bool {
    matches!(command, FITRIM | GET_LABEL | SET_LABEL | GET_VERSION)
}

/// Whether one of these waits for the device.
pub(crate) fn may_wait(command: u32) -> bool {
    matches!(command, FITRIM | SET_LABEL)
}

/// Carries out one of these and returns its reply.
///
/// # Errors
/// `NotPermitted`; `Invalid`; those of [`Volume::trim_within`], [`Volume::set_label`] and [`Volume::stat`].
pub(crate) fn ioctl(
    fs: &impl Volume,
    inode: InodeNumber,
    (command, data): (u32, &[u8]),
    requester: &Requester,
) -> Result<Vec<u8>> {
    if matches!(command, FITRIM | SET_LABEL) && !is_owner(requester.uid) {
        return Err(Error::NotPermitted);
    }
    match command {
        FITRIM => trim(fs, data),
        GET_LABEL => {
            let mut label = fs.label();
            label.resize(LABEL_BYTES, 0);
            Ok(label)
        }
        SET_LABEL => {
            let label = data.split(|byte| *byte == 0).next().unwrap_or_default();
            fs.set_label(label).map(|()| Vec::new())
        }
        GET_VERSION => Ok(fs.stat(inode)?.generation.to_ne_bytes().to_vec()),
        _ => Err(Error::NotSupported("this ioctl")),
    }
}

/// Start, length and the least length of what is given back, in bytes; the answer has what was given back as its
/// length.
fn trim(fs: &impl Volume, data: &[u8]) -> Result<Vec<u8>> {
    let word = |at: usize| {
        let bytes = data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_ne_bytes).ok_or(Error::Invalid("the request is too short"))
    };
    let (start, length, least) = (word(0)?, word(8)?, word(16)?);
    let trimmed = fs.trim_within(start..start.saturating_add(length), least)?;
    Ok([start, trimmed, least].iter().flat_map(|word| word.to_ne_bytes()).collect())
}

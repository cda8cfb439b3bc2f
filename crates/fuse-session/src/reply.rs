//! Replies, as bytes: what the filesystem answers is put into the place of the reply's contents.

use crate::abi::{
    RawAttrOut, RawCopyFileRangeOut, RawGetXattrOut, RawIoctlOut, RawLseekOut, RawOpenOut, RawStatxOut, RawWriteOut,
};
use crate::answer::{Answer, Attr, Entry, Opened};
use crate::filesystem::Filesystem;
use crate::listing::{Listing, ListingPlus};
use crate::request::{Operation, Request};
use rustix::io::Errno;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

fn raw_attr(attr: &Attr) -> RawAttrOut {
    RawAttrOut {
        attr_valid: attr.valid.as_secs(),
        attr_valid_nsec: attr.valid.subsec_nanos(),
        padding: 0,
        attr: attr.attr,
    }
}

fn raw_statx((valid, stat): (Duration, crate::abi::RawStatx)) -> RawStatxOut {
    RawStatxOut { attr_valid: valid.as_secs(), attr_valid_nsec: valid.subsec_nanos(), stat, ..Default::default() }
}

/// The place for the contents of a reply, and how much of it is used.
struct Reply<'a> {
    out: &'a mut [u8],
}

impl Reply<'_> {
    fn bytes(self, bytes: &[u8]) -> Answer<usize> {
        // No reply but those that have a size of their own is larger than the smallest place.
        self.out.get_mut(..bytes.len()).ok_or(Errno::IO)?.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn structure(self, structure: &(impl IntoBytes + Immutable)) -> Answer<usize> {
        self.bytes(structure.as_bytes())
    }

    fn created(self, (entry, opened): (Entry, Opened)) -> Answer<usize> {
        let entry = entry.raw();
        let opened = raw_open(opened);
        self.bytes(&[entry.as_bytes(), opened.as_bytes()].concat())
    }

    /// Bytes of which the requester has said how many it takes, or only asks how many there are.
    fn sized(self, size: u32, bytes: &[u8]) -> Answer<usize> {
        match size {
            0 => self.structure(&RawGetXattrOut { size: bytes.len() as u32, padding: 0 }),
            _ if bytes.len() > size as usize => Err(Errno::RANGE),
            _ => self.bytes(bytes),
        }
    }
}

fn raw_open(opened: Opened) -> RawOpenOut {
    RawOpenOut { fh: opened.handle, open_flags: opened.flags.bits(), backing_id: 0 }
}

/// The contents of the reply to a write.
pub(crate) fn raw_written(count: u32) -> RawWriteOut {
    RawWriteOut { size: count, padding: 0 }
}

/// Lets a filesystem answer a request other than a write. The contents of the reply are then at the beginning of `out`,
/// and their length is returned. Only for requests that have a reply.
///
/// # Errors
/// The filesystem's.
pub(crate) fn answer<F: Filesystem + ?Sized>(fs: &F, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
    let (node, requester) = (request.node, &request.requester);
    let room = out.len();
    let limit = |size: u32| room.min(size as usize);
    match request.operation {
        Operation::Read(read) => return fs.read(node, &read, &mut out[..limit(read.size)]),
        Operation::ReadDir(read) => {
            let mut listing = Listing::new(&mut out[..limit(read.size)]);
            return fs.readdir(node, read.offset, &mut listing).map(|()| listing.used());
        }
        Operation::ReadDirPlus(read) => {
            let mut listing = ListingPlus::new(&mut out[..limit(read.size)]);
            return fs.readdirplus(node, read.offset, &mut listing).map(|()| listing.used());
        }
        _ => {}
    }
    let reply = Reply { out };
    match request.operation {
        Operation::Lookup { name } => reply.structure(&fs.lookup(requester, node, name)?.raw()),
        Operation::GetAttr { has_handle } => reply.structure(&raw_attr(&fs.getattr(node, has_handle)?)),
        Operation::Statx => reply.structure(&raw_statx(fs.statx(node)?)),
        Operation::SetAttr(change) => reply.structure(&raw_attr(&fs.setattr(requester, node, &change)?)),
        Operation::ReadLink => reply.bytes(&fs.readlink(node)?),
        Operation::Symlink { name, target } => reply.structure(&fs.symlink(requester, node, name, target)?.raw()),
        Operation::Mknod(new) => reply.structure(&fs.mknod(requester, node, &new)?.raw()),
        Operation::Mkdir(new) => reply.structure(&fs.mkdir(requester, node, &new)?.raw()),
        Operation::Create(new) => reply.created(fs.create(requester, node, &new)?),
        Operation::Tmpfile(new) => reply.created(fs.tmpfile(requester, node, &new)?),
        Operation::Link { node: linked, name } => reply.structure(&fs.link(linked, node, name)?.raw()),
        Operation::Open { flags } => reply.structure(&raw_open(fs.open(node, flags)?)),
        Operation::OpenDir { flags } => reply.structure(&raw_open(fs.opendir(node, flags)?)),
        Operation::StatFs => reply.structure(&fs.statfs()?),
        Operation::GetXattr { name, size } => reply.sized(size, &fs.getxattr(requester, node, name)?),
        Operation::ListXattr { size } => reply.sized(size, &fs.listxattr(requester, node)?),
        Operation::Ioctl(ioctl) => {
            let data = fs.ioctl(requester, node, &ioctl)?;
            reply.bytes(&[RawIoctlOut::default().as_bytes(), &data].concat())
        }
        Operation::Lseek { offset, whence } => {
            reply.structure(&RawLseekOut { offset: fs.lseek(node, offset, whence)? })
        }
        Operation::CopyFileRange(copy) => {
            let count = fs.copy_file_range(requester, node, &copy)?;
            match copy.is_wide {
                true => reply.structure(&RawCopyFileRangeOut { bytes_copied: count }),
                false => reply.structure(&raw_written(count as u32)),
            }
        }
        _ => answer_empty(fs, request).map(|()| 0),
    }
}

/// Requests whose replies have no contents.
fn answer_empty<F: Filesystem + ?Sized>(fs: &F, request: &Request<'_>) -> Answer<()> {
    let (node, requester) = (request.node, &request.requester);
    match request.operation {
        Operation::Unlink { name } => fs.unlink(node, name),
        Operation::Rmdir { name } => fs.rmdir(node, name),
        Operation::Rename { name, new_dir, new_name, flags } => {
            fs.rename(requester, (node, name), (new_dir, new_name), flags)
        }
        Operation::Fsync { data_only } | Operation::FsyncDir { data_only } => fs.fsync(node, data_only),
        Operation::SyncFs => fs.syncfs(),
        Operation::Flush => fs.flush(node),
        Operation::SetXattr(set) => fs.setxattr(requester, node, &set),
        Operation::RemoveXattr { name } => fs.removexattr(requester, node, name),
        Operation::Fallocate { offset, length, mode } => fs.fallocate(requester, node, (offset, length), mode),
        Operation::Release | Operation::ReleaseDir | Operation::Destroy => Ok(()),
        _ => Err(Errno::NOSYS),
    }
}

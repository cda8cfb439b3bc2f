//! Requests, decoded. No bytes make this panic; what does not fit its opcode is `EINVAL`.
//!
//! ```text
//! /dev/fuse, sockets   header │ structure │ rest            one piece of bytes
//! io_uring             header │ structure (128 bytes) │ rest   three places
//! ```
//! [`Body`] is what follows the header in either form.

use crate::abi::{
    self, EXT_GROUPS, RawBatchForgetIn, RawCopyFileRangeIn, RawCreateIn, RawExtHeader, RawFallocateIn, RawForgetIn,
    RawForgetOne, RawFsyncIn, RawGetAttrIn, RawGetXattrIn, RawInHeader, RawIoctlIn, RawLinkIn, RawLseekIn, RawMkdirIn,
    RawMknodIn, RawOpenIn, RawReadIn, RawRename2In, RawRenameIn, RawSetAttrIn, RawSetXattrCompatIn, RawSetXattrIn,
    RawStatxIn, RawWriteIn, WriteFlags, fattr,
};
use crate::opcode;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The decoded form of what follows a header, or the error to answer with.
pub type Decoded<T> = Result<T, Errno>;

/// Who sent a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process; 0 if the kernel sends the request for itself, or the process is in no namespace of the server.
    pub pid: u32,
    /// Of a request that makes a file: the group of the directory, if it is a further group of the requester.
    pub group_of_dir: Option<u32>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The number of the request, for its reply.
    pub unique: u64,
    /// The inode that it is about.
    pub node: u64,
    /// Who sent it.
    pub requester: Requester,
    /// What is to be done.
    pub operation: Operation<'a>,
}

/// A time, in seconds since 1970 and nanoseconds to be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The time of the change.
    Now,
    /// This one.
    At(Time),
}

/// A change of attributes. What is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Type and permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<NewTime>,
    /// Last change of the contents.
    pub mtime: Option<NewTime>,
    /// Last change of the inode.
    pub ctime: Option<Time>,
    /// The set-user-ID and set-group-ID bits are to be taken away.
    pub kills_privileges: bool,
}

/// A file to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode<'a> {
    /// Its name; empty for one without a name.
    pub name: &'a [u8],
    /// Type and permissions; of a directory, permissions alone.
    pub mode: u32,
    /// Permissions that are taken away where the directory has no default ACL.
    pub umask: u32,
    /// Device number, of a device node.
    pub device: u32,
}

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub size: u32,
    /// Flags with which the file was opened.
    pub open_flags: u32,
    /// For a program that waits, and not for the kernel's cache.
    pub is_by_program: bool,
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// First byte.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// What kind of write it is.
    pub flags: WriteFlags,
    /// Flags with which the file was opened.
    pub open_flags: u32,
}

/// An ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the kernel's.
pub struct Ioctl<'a> {
    pub command: u32,
    pub data: &'a [u8],
    pub out_size: u32,
}

/// A copy from the request's inode to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// First byte to read.
    pub from_offset: u64,
    /// The inode to write to.
    pub to: u64,
    /// First byte to write.
    pub to_offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// The reply's count has 64 bits, not 32.
    pub is_wide: bool,
}

/// An extended attribute to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetXattr<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// Flags of setxattr(2).
    pub flags: u32,
    /// It is an ACL that takes the set-group-ID bit away; `None` if the kernel does not say.
    pub kills_group: Option<bool>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the protocol's.
pub enum Operation<'a> {
    Lookup { name: &'a [u8] },
    Forget { count: u64 },
    BatchForget { list: &'a [RawForgetOne] },
    GetAttr { has_handle: bool },
    Statx,
    SetAttr(SetAttr),
    ReadLink,
    Symlink { name: &'a [u8], target: &'a [u8] },
    Mknod(NewNode<'a>),
    Mkdir(NewNode<'a>),
    Create(NewNode<'a>),
    Tmpfile(NewNode<'a>),
    Unlink { name: &'a [u8] },
    Rmdir { name: &'a [u8] },
    Rename { name: &'a [u8], new_dir: u64, new_name: &'a [u8], flags: u32 },
    Link { node: u64, name: &'a [u8] },
    Open { flags: u32 },
    OpenDir { flags: u32 },
    Release,
    ReleaseDir,
    Read(Read),
    ReadDir(Read),
    ReadDirPlus(Read),
    Write(Write<'a>),
    StatFs,
    Fsync { data_only: bool },
    FsyncDir { data_only: bool },
    SyncFs,
    Flush,
    SetXattr(SetXattr<'a>),
    GetXattr { name: &'a [u8], size: u32 },
    ListXattr { size: u32 },
    RemoveXattr { name: &'a [u8] },
    Access { mask: u32 },
    Ioctl(Ioctl<'a>),
    Fallocate { offset: u64, length: u64, mode: i32 },
    Lseek { offset: i64, whence: u32 },
    CopyFileRange(Copy),
    NotifyReply,
    Destroy,
    Other(u32),
}

/// What follows a header.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// The place of the structure; `None` if it is in front of the rest.
    structure: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    /// One piece of bytes.
    pub fn whole(bytes: &'a [u8]) -> Self {
        Self { structure: None, rest: bytes }
    }

    /// The structure at a place of its own.
    pub fn split(structure: &'a [u8], rest: &'a [u8]) -> Self {
        Self { structure: Some(structure), rest }
    }

    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Decoded<T> {
        let place = self.structure.take();
        let (value, rest) = T::read_from_prefix(place.unwrap_or(self.rest)).map_err(|_| Errno::INVAL)?;
        if place.is_none() {
            self.rest = rest;
        }
        Ok(value)
    }

    /// The bytes before the next zero byte.
    fn name(&mut self) -> Decoded<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (name, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(name)
    }

    fn bytes(&mut self, count: u32) -> Decoded<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count as usize).ok_or(Errno::INVAL)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Takes the extensions from the end.
    fn split_extensions(&mut self, units: u16) -> Decoded<&'a [u8]> {
        let start = self.rest.len().checked_sub(usize::from(units) * 8).ok_or(Errno::INVAL)?;
        let (rest, extensions) = self.rest.split_at(start);
        self.rest = rest;
        Ok(extensions)
    }
}

/// The group of the directory, from the extensions of a request.
fn group_in(mut extensions: &[u8]) -> Option<u32> {
    while let Ok((header, _)) = RawExtHeader::read_from_prefix(extensions) {
        let size = header.size as usize;
        if header.kind == EXT_GROUPS {
            // A count, then that many groups; the kernel sends one.
            let (count, rest) = u32::read_from_prefix(extensions.get(8..size)?).ok()?;
            return if count == 0 { None } else { u32::read_from_prefix(rest).ok().map(|(group, _)| group) };
        }
        extensions = extensions.get(size.max(8).next_multiple_of(8)..)?;
    }
    None
}

/// The header at the beginning of `bytes`, and the rest.
pub fn decode_header(bytes: &[u8]) -> Option<(RawInHeader, &[u8])> {
    RawInHeader::read_from_prefix(bytes).ok()
}

/// Decodes a request. `has_setxattr_ext` is whether `SETXATTR_EXT` was agreed.
///
/// # Errors
/// `INVAL` for a body that is too short for its opcode.
pub fn decode<'a>(header: &RawInHeader, mut body: Body<'a>, has_setxattr_ext: bool) -> Decoded<Request<'a>> {
    let extensions = body.split_extensions(header.total_extlen)?;
    let requester = Requester { uid: header.uid, gid: header.gid, pid: header.pid, group_of_dir: group_in(extensions) };
    let operation = decode_operation(header.opcode, &mut body, has_setxattr_ext)?;
    Ok(Request { unique: header.unique, node: header.node, requester, operation })
}

fn decode_operation<'a>(code: u32, body: &mut Body<'a>, has_setxattr_ext: bool) -> Decoded<Operation<'a>> {
    Ok(match code {
        opcode::LOOKUP => Operation::Lookup { name: body.name()? },
        opcode::FORGET => Operation::Forget { count: body.take::<RawForgetIn>()?.nlookup },
        opcode::BATCH_FORGET => decode_batch_forget(body)?,
        opcode::GETATTR => {
            Operation::GetAttr { has_handle: body.take::<RawGetAttrIn>()?.getattr_flags & abi::GETATTR_FH != 0 }
        }
        opcode::STATX => body.take::<RawStatxIn>().map(|_| Operation::Statx)?,
        opcode::SETATTR => Operation::SetAttr(decode_setattr(&body.take()?)),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => Operation::Symlink { name: body.name()?, target: body.name()? },
        opcode::MKNOD => decode_mknod(body)?,
        opcode::MKDIR => {
            let RawMkdirIn { mode, umask } = body.take()?;
            Operation::Mkdir(NewNode { name: body.name()?, mode, umask, device: 0 })
        }
        opcode::CREATE | opcode::TMPFILE => decode_create(code, body)?,
        opcode::UNLINK => Operation::Unlink { name: body.name()? },
        opcode::RMDIR => Operation::Rmdir { name: body.name()? },
        opcode::RENAME => {
            let new_dir = body.take::<RawRenameIn>()?.newdir;
            Operation::Rename { name: body.name()?, new_dir, new_name: body.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let RawRename2In { newdir, flags, .. } = body.take()?;
            Operation::Rename { name: body.name()?, new_dir: newdir, new_name: body.name()?, flags }
        }
        opcode::LINK => Operation::Link { node: body.take::<RawLinkIn>()?.oldnodeid, name: body.name()? },
        opcode::OPEN => Operation::Open { flags: body.take::<RawOpenIn>()?.flags },
        opcode::OPENDIR => Operation::OpenDir { flags: body.take::<RawOpenIn>()?.flags },
        opcode::RELEASE => Operation::Release,
        opcode::RELEASEDIR => Operation::ReleaseDir,
        opcode::READ => {
            let read = decode_read(body)?;
            Operation::Read(Read { offset: file_offset(read.offset)?, ..read })
        }
        opcode::READDIR => Operation::ReadDir(decode_read(body)?),
        opcode::READDIRPLUS => Operation::ReadDirPlus(decode_read(body)?),
        opcode::WRITE => {
            let RawWriteIn { offset, size, write_flags, flags, .. } = body.take()?;
            let (offset, flags_of_write) = (file_offset(offset)?, WriteFlags::from_bits_truncate(write_flags));
            Operation::Write(Write { offset, data: body.bytes(size)?, flags: flags_of_write, open_flags: flags })
        }
        _ => decode_rest(code, body, has_setxattr_ext)?,
    })
}

fn decode_rest<'a>(code: u32, body: &mut Body<'a>, has_setxattr_ext: bool) -> Decoded<Operation<'a>> {
    let data_only = |raw: RawFsyncIn| raw.fsync_flags & abi::FSYNC_DATA != 0;
    Ok(match code {
        opcode::STATFS => Operation::StatFs,
        opcode::FSYNC => Operation::Fsync { data_only: data_only(body.take()?) },
        opcode::FSYNCDIR => Operation::FsyncDir { data_only: data_only(body.take()?) },
        opcode::SYNCFS => Operation::SyncFs,
        opcode::FLUSH => Operation::Flush,
        opcode::SETXATTR => Operation::SetXattr(decode_setxattr(body, has_setxattr_ext)?),
        opcode::GETXATTR => {
            let size = body.take::<RawGetXattrIn>()?.size;
            Operation::GetXattr { name: body.name()?, size }
        }
        opcode::LISTXATTR => Operation::ListXattr { size: body.take::<RawGetXattrIn>()?.size },
        opcode::REMOVEXATTR => Operation::RemoveXattr { name: body.name()? },
        opcode::ACCESS => Operation::Access { mask: body.take::<abi::RawAccessIn>()?.mask },
        opcode::IOCTL => {
            let RawIoctlIn { cmd, in_size, out_size, .. } = body.take()?;
            Operation::Ioctl(Ioctl { command: cmd, data: body.bytes(in_size)?, out_size })
        }
        opcode::FALLOCATE => {
            let RawFallocateIn { offset, length, mode, .. } = body.take()?;
            Operation::Fallocate {
                offset: file_offset(offset)?,
                length: file_offset(length)?,
                mode: mode.cast_signed(),
            }
        }
        opcode::LSEEK => {
            let RawLseekIn { offset, whence, .. } = body.take()?;
            Operation::Lseek { offset: offset.cast_signed(), whence }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let RawCopyFileRangeIn { off_in, nodeid_out, off_out, len, .. } = body.take()?;
            let is_wide = code == opcode::COPY_FILE_RANGE_64;
            let (from_offset, to_offset) = (file_offset(off_in)?, file_offset(off_out)?);
            let copy = Copy { from_offset, to: nodeid_out, to_offset, length: len, is_wide };
            Operation::CopyFileRange(copy)
        }
        opcode::NOTIFY_REPLY => Operation::NotifyReply,
        opcode::DESTROY => Operation::Destroy,
        other => Operation::Other(other),
    })
}

fn decode_batch_forget<'a>(body: &mut Body<'a>) -> Decoded<Operation<'a>> {
    let RawBatchForgetIn { count, .. } = body.take()?;
    let bytes = u32::try_from(size_of::<RawForgetOne>()).unwrap_or(u32::MAX).checked_mul(count).ok_or(Errno::INVAL)?;
    let list = <[RawForgetOne]>::ref_from_bytes(body.bytes(bytes)?).map_err(|_| Errno::INVAL)?;
    Ok(Operation::BatchForget { list })
}

fn decode_mknod<'a>(body: &mut Body<'a>) -> Decoded<Operation<'a>> {
    let RawMknodIn { mode, rdev, umask, .. } = body.take()?;
    Ok(Operation::Mknod(NewNode { name: body.name()?, mode, umask, device: rdev }))
}

fn decode_create<'a>(code: u32, body: &mut Body<'a>) -> Decoded<Operation<'a>> {
    let RawCreateIn { mode, umask, .. } = body.take()?;
    // What the kernel sends as the name of a file without one is the name of no file.
    let name = body.name()?;
    Ok(match code {
        opcode::TMPFILE => Operation::Tmpfile(NewNode { name: b"", mode, umask, device: 0 }),
        _ => Operation::Create(NewNode { name, mode, umask, device: 0 }),
    })
}

/// An offset in a file: the kernel's are signed.
fn file_offset(offset: u64) -> Decoded<u64> {
    if i64::try_from(offset).is_ok() { Ok(offset) } else { Err(Errno::INVAL) }
}

fn decode_read(body: &mut Body<'_>) -> Decoded<Read> {
    let RawReadIn { offset, size, flags, read_flags, .. } = body.take()?;
    Ok(Read { offset, size, open_flags: flags, is_by_program: read_flags & abi::READ_LOCK_OWNER != 0 })
}

fn decode_setxattr<'a>(body: &mut Body<'a>, has_setxattr_ext: bool) -> Decoded<SetXattr<'a>> {
    let (size, flags, kills_group) = if has_setxattr_ext {
        let RawSetXattrIn { size, flags, setxattr_flags, .. } = body.take()?;
        (size, flags, Some(setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0))
    } else {
        let RawSetXattrCompatIn { size, flags } = body.take()?;
        (size, flags, None)
    };
    Ok(SetXattr { name: body.name()?, value: body.bytes(size)?, flags, kills_group })
}

fn decode_setattr(raw: &RawSetAttrIn) -> SetAttr {
    let has = |bit: u32| raw.valid & bit != 0;
    let time = |bit, now, seconds, nanoseconds| match () {
        () if !has(bit) => None,
        () if has(now) => Some(NewTime::Now),
        () => Some(NewTime::At(Time { seconds, nanoseconds })),
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(raw.mode),
        uid: has(fattr::UID).then_some(raw.uid),
        gid: has(fattr::GID).then_some(raw.gid),
        size: has(fattr::SIZE).then_some(raw.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, raw.atime, raw.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, raw.mtime, raw.mtimensec),
        ctime: has(fattr::CTIME).then_some(Time { seconds: raw.ctime, nanoseconds: raw.ctimensec }),
        kills_privileges: has(fattr::KILL_SUIDGID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn header(code: u32) -> RawInHeader {
        RawInHeader { opcode: code, unique: 4, node: 9, uid: 1, gid: 2, pid: 3, ..Default::default() }
    }

    #[test]
    fn no_bytes_make_decoding_panic() {
        // A counter that is cheap to mix, so that all opcodes meet many short bodies.
        let mut state = 1u64;
        for round in 0..200_000u32 {
            let bytes: Vec<u8> = (0..round % 97)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Many zeros, so that names end and counts are small.
                    if state >> 62 == 0 { (state >> 40) as u8 } else { 0 }
                })
                .collect();
            let head = RawInHeader { total_extlen: (round % 5) as u16, ..header(round % 60) };
            let (first, second) = bytes.split_at(bytes.len() / 2);
            let _ = decode(&head, Body::whole(&bytes), round % 2 == 0);
            let _ = decode(&head, Body::split(first, second), round % 2 == 0);
        }
    }

    #[test]
    fn the_group_of_the_directory_is_the_one_of_the_extension() {
        let create = RawCreateIn { mode: 0o100_644, umask: 0o22, ..Default::default() };
        let other = RawExtHeader { size: 16, kind: 3 };
        let groups = RawExtHeader { size: 16, kind: EXT_GROUPS };
        let mut bytes = [create.as_bytes(), b"name\0\0\0\0"].concat();
        bytes
            .extend([other.as_bytes(), &[0; 8], groups.as_bytes(), &1u32.to_ne_bytes(), &77u32.to_ne_bytes()].concat());
        let head = RawInHeader { total_extlen: 4, ..header(opcode::CREATE) };
        let request = decode(&head, Body::whole(&bytes), true).unwrap();
        assert_eq!(request.requester, Requester { uid: 1, gid: 2, pid: 3, group_of_dir: Some(77) });
        let Operation::Create(new) = request.operation else { panic!("{request:?}") };
        assert_eq!((new.name, new.mode, new.umask), (&b"name"[..], 0o100_644, 0o22));
    }

    #[test]
    fn a_structure_at_its_own_place_is_the_same_request() {
        let write = RawWriteIn { offset: 7, size: 3, write_flags: 1, ..Default::default() };
        let whole = [write.as_bytes(), b"abc"].concat();
        let mut place = [0; 128];
        place[..40].copy_from_slice(write.as_bytes());
        let head = header(opcode::WRITE);
        let one = decode(&head, Body::whole(&whole), true).unwrap();
        let two = decode(&head, Body::split(&place, b"abc"), true).unwrap();
        assert_eq!(one.operation, two.operation);
        assert!(matches!(one.operation, Operation::Write(write) if write.data == b"abc" && write.offset == 7));
        assert_eq!(decode(&head, Body::whole(&whole[..42]), true).unwrap_err(), Errno::INVAL);
    }
}

//! System calls for which rustix has no safe function, and calls on behalf of other users.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Result;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};
use rustix::process::umask;
use rustix::thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid, unshare_unsafe};
use xfskit_vfs::{Caller, Flags};

pub const HASATTR: u32 = xfskit_vfs::xflags::HASATTR;

/// `struct fsxattr`.
#[repr(C)]
struct Attributes {
    xflags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    length: u64,
    target_offset: u64,
}

type Label = [u8; 256];

const GET_FLAGS: u32 = opcode::read::<Attributes>(b'X', 31);
const SET_FLAGS: u32 = opcode::write::<Attributes>(b'X', 32);
const CLONE_RANGE: u32 = opcode::write::<CloneRange>(0x94, 13);
const GET_LABEL: u32 = opcode::read::<Label>(0x94, 49);
const SET_LABEL: u32 = opcode::write::<Label>(0x94, 50);

pub fn flags(file: &OwnedFd) -> Result<Flags> {
    // SAFETY: the kernel fills the structure of this call.
    let found = unsafe { ioctl(file, Getter::<GET_FLAGS, Attributes>::new()) }?;
    Ok(Flags {
        xflags: found.xflags,
        project: found.project,
        extent_size_bytes: found.extent_size,
        cow_extent_size_bytes: found.cow_extent_size,
    })
}

pub fn set_flags(file: &OwnedFd, flags: &Flags) -> Result<()> {
    let wanted = Attributes {
        xflags: flags.xflags,
        extent_size: flags.extent_size_bytes,
        extents: 0,
        project: flags.project,
        cow_extent_size: flags.cow_extent_size_bytes,
        pad: [0; 8],
    };
    // SAFETY: the kernel reads the structure of this call.
    unsafe { ioctl(file, Setter::<SET_FLAGS, Attributes>::new(wanted)) }
}

pub fn clone_range(from: &OwnedFd, source_offset: u64, to: &OwnedFd, target_offset: u64, length: u64) -> Result<()> {
    let range = CloneRange { source: from.as_raw_fd().into(), source_offset, length, target_offset };
    // SAFETY: the kernel reads the structure of this call.
    unsafe { ioctl(to, Setter::<CLONE_RANGE, CloneRange>::new(range)) }
}

pub fn label(file: &OwnedFd) -> Result<Label> {
    // SAFETY: the kernel fills the array of this call.
    unsafe { ioctl(file, Getter::<GET_LABEL, Label>::new()) }
}

pub fn set_label(file: &OwnedFd, label: &[u8]) -> Result<()> {
    let mut padded: Label = [0; 256];
    padded[..label.len()].copy_from_slice(label);
    // SAFETY: the kernel reads the array of this call.
    unsafe { ioctl(file, Setter::<SET_LABEL, Label>::new(padded)) }
}

/// Runs a call as another user, in a thread of its own.
pub fn as_caller<T: Send>(caller: &Caller, call: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if *caller == Caller::root() {
        return call();
    }
    std::thread::scope(|scope| scope.spawn(|| become_caller(caller).and_then(|()| call())).join().expect("a thread"))
}

/// As [`as_caller`], with a umask, which a thread has with all others of its process unless it takes one of its own.
pub fn with_umask<T: Send>(mask: u16, caller: &Caller, call: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let run = || {
            // SAFETY: the thread gets a root, a directory and a umask of its own; it shares no memory less.
            unsafe { unshare_unsafe(UnshareFlags::FS) }?;
            umask(rustix::fs::Mode::from_raw_mode(mask.into()));
            if *caller != Caller::root() {
                become_caller(caller)?;
            }
            call()
        };
        scope.spawn(run).join().expect("a thread")
    })
}

fn become_caller(caller: &Caller) -> Result<()> {
    let groups: Vec<_> = caller.groups.iter().map(|gid| rustix::fs::Gid::from_raw(*gid)).collect();
    let (uid, gid) = (rustix::fs::Uid::from_raw(caller.uid), rustix::fs::Gid::from_raw(caller.gid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

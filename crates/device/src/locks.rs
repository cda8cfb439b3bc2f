//! Locks on an open image, so that two programs never write to one.
//!
//! ```text
//! flock          exclusive to write, shared to read: between the programs of this project
//! byte 100 + n   held for each permission n that is used       ┐ as QEMU does: shared locks of the open file
//! byte 200 + n   held for each permission n that is not shared ┘ (F_OFD_SETLK); conflicts are looked for afterwards
//!                n: 0 consistent reads, 1 writes, 3 another size
//! ```
//! Both sides of QEMU's protocol lock first and look for conflicts then, so at least one of two is refused. On a
//! filesystem without such locks, there are none to respect.
//!
//! A lock belongs to the open file, which a forked process shares: only the process that took the lock releases it.
//!
//! Source of facts: QEMU's docs/system/images, and the locks that qemu-nbd and qemu-img were observed to take.

use crate::loop_device::FileId;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::FlockOperation;
use std::fs::{File, Metadata};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

const USED_BASE: i64 = 100;
const UNSHARED_BASE: i64 = 200;
const CONSISTENT_READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;
/// What an image is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockFor {
    Reading,
    Writing,
}

impl LockFor {
    fn uses(self) -> &'static [i64] {
        match self {
            Self::Reading => &[CONSISTENT_READ],
            Self::Writing => &[CONSISTENT_READ, WRITE],
        }
    }

    /// What other programs must not do meanwhile.
    fn unshared(self) -> &'static [i64] {
        match self {
            Self::Reading => &[WRITE, RESIZE],
            Self::Writing => &[CONSISTENT_READ, WRITE, RESIZE],
        }
    }
}

/// The kind of lock in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// That of a program of this project, or of another one that locks whole files.
    Flock,
    /// That of QEMU, or of another program that uses its protocol.
    Bytes,
}

/// Locks of an open file, released when this is dropped or the file is closed.
#[derive(Debug)]
pub(crate) struct Locks {
    file: File,
    id: FileId,
    process_id: u32,
}

/// The files that this process has locked, so that a refusal can say that the process itself is in the way.
static LOCKED: Mutex<Vec<FileId>> = Mutex::new(Vec::new());

fn locked() -> MutexGuard<'static, Vec<FileId>> {
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process has locked a file, by another open file.
pub(crate) fn is_locked_here(file: &Metadata) -> bool {
    locked().iter().any(|id| id.is_same(&FileId::of(file)))
}

impl Locks {
    /// Locks `file`, by a descriptor of the same open file. The outer error is that of the system call.
    pub(crate) fn take(file: &File, what_for: LockFor) -> io::Result<Result<Self, Refusal>> {
        let operation = match what_for {
            LockFor::Reading => FlockOperation::NonBlockingLockShared,
            LockFor::Writing => FlockOperation::NonBlockingLockExclusive,
        };
        match rustix::fs::flock(file, operation) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Err(Refusal::Flock)),
            other => other?,
        }
        let id = FileId::of(&file.metadata()?);
        let locks = Self { file: file.try_clone()?, id, process_id: std::process::id() };
        locked().push(id);
        Ok(if locks.lock_bytes(what_for) { Ok(locks) } else { Err(Refusal::Bytes) })
    }

    /// Whether no other program's lock conflicts.
    fn lock_bytes(&self, what_for: LockFor) -> bool {
        let used = what_for.uses().iter().map(|n| USED_BASE + n);
        let unshared = what_for.unshared().iter().map(|n| UNSHARED_BASE + n);
        for byte in used.chain(unshared) {
            let conflict = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&one_byte(libc::F_RDLCK, byte)));
            if matches!(conflict, Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES)) {
                return false;
            }
        }
        let used_by_others = what_for.unshared().iter().map(|n| USED_BASE + n);
        let kept_from_us = what_for.uses().iter().map(|n| UNSHARED_BASE + n);
        !used_by_others.chain(kept_from_us).any(|byte| is_locked(&self.file, byte))
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        let mut locked = locked();
        if let Some(own) = locked.iter().position(|id| id.is_same(&self.id)) {
            locked.swap_remove(own);
        }
        drop(locked);
        if self.process_id != std::process::id() {
            return;
        }
        // Unlocks explicitly, because a process that another thread is just starting may share the open file for a
        // moment, and then closing it here would not unlock it. If that fails, the close unlocks it.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        let _ = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&range(libc::F_UNLCK, 0, 0)));
    }
}

/// Whether another open file has locked a byte of the file.
fn is_locked(file: &File, byte: i64) -> bool {
    let mut lock = one_byte(libc::F_WRLCK, byte);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).is_ok() && lock.l_type != libc::F_UNLCK as i16
}

fn one_byte(kind: i32, byte: i64) -> libc::flock {
    range(kind, byte, 1)
}

fn range(kind: i32, start: i64, length: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: length, l_pid: 0 }
}

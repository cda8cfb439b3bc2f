//! A question that a program asks the server of a mount, which no system call of files can carry: an ioctl on an open
//! file of the mount.
//!
//! ```text
//! in    the question, zeros behind it   QUESTION_BYTES
//! out   the answer                      8 bytes
//! ```
//! The bytes mean what the server and the program have agreed on.
//!
//! Source of facts: `fs/fuse/ioctl.c` of Linux 6.18: the kernel copies as many bytes as the number of an ioctl says.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, opcode};

/// The most bytes of a question. The number of an ioctl has 14 bits for them.
pub const QUESTION_BYTES: usize = 16_000;
/// The number of the ioctl.
pub const QUESTION: u32 = COMMAND;

const COMMAND: Opcode = opcode::read_write::<RawQuestion>(0xf5, 1);

#[repr(C)]
struct RawQuestion {
    bytes: [u8; QUESTION_BYTES],
}

/// The question in the data of an ioctl.
pub fn question_in(data: &[u8]) -> &[u8] {
    &data[..data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

/// Asks the server of the mount on which a file is open.
///
/// # Errors
/// `NAMETOOLONG` for a question that is too long; `NOTTY` from what is no mount, and from a server that answers no
/// questions; those of the server.
#[allow(unsafe_code)]
pub fn ask(file: BorrowedFd<'_>, question: &[u8]) -> Result<[u8; 8], Errno> {
    let mut raw = RawQuestion { bytes: [0; QUESTION_BYTES] };
    raw.bytes.get_mut(..question.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(question);
    // SAFETY: the size in the number of the ioctl is that of `RawQuestion`, which has any bytes, so no file that knows
    // the ioctl reads or writes beyond it, and what it writes is a `RawQuestion`.
    unsafe { rustix::ioctl::ioctl(file, Updater::<COMMAND, RawQuestion>::new(&mut raw))? };
    let (answer, _) = raw.bytes.split_first_chunk().ok_or(Errno::IO)?;
    Ok(*answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_ends_before_the_zeros() {
        assert_eq!(question_in(b"/a b\0\0"), b"/a b");
        assert_eq!(question_in(b"\0\0"), b"");
    }
}

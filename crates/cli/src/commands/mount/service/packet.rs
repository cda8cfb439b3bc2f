//! The packets between a FUSE server in a service and the program that mounts for it. Numbers are big-endian, and texts
//! end with a zero byte.
//!
//! ```text
//! hello          "SAFT"  u16 oldest version  u16 newest version  u32 what the helper may
//! its reply      "LAST"  u16 version  u16 0
//! file           "FILE"  u32 error  path        and the descriptor aside
//! done           "REPL"  u32 error
//!
//! open           "OPEN"  u32 flags of open(2)  u32 mode  u32 1: quiet  u32 block size  path
//! type           "TYPE"  u32 1: fuseblk
//! source         "NAME"  text
//! mount point    "MNTP"  u16 type of file  u16 0  text
//! options        "OPTS"  text
//! mount          "DOIT"  u32 flags of mount(2)
//! bye            "BYEE"  u32 exit code
//!
//! arguments      "ARGS"  u32 count  count × (u32 offset  u32 length)  texts       in the file "argv"
//! ```
//! Source of the facts: `include/fuse_service_priv.h`, `lib/fuse_service.c` and `util/mount_service.c` of libfuse, in
//! version 1 of the protocol (August 2026).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;

/// The versions of the protocol that are spoken here.
pub(super) const VERSION: u16 = 1;
/// The most arguments, and the most bytes of one.
const MAX_ARGUMENTS: u32 = 64;
const MAX_ARGUMENT_BYTES: u32 = 64 << 10;
/// The helper lets all users in.
pub(super) const MAY_ALLOW_OTHER: u32 = 1;
/// Do not report that a file cannot be opened.
pub(super) const QUIET: u32 = 1;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(pub [u8; 4]);

pub(super) const HELLO: Kind = Kind(*b"SAFT");
pub(super) const HELLO_REPLY: Kind = Kind(*b"LAST");
pub(super) const FILE: Kind = Kind(*b"FILE");
pub(super) const DONE: Kind = Kind(*b"REPL");
pub(super) const OPEN: Kind = Kind(*b"OPEN");
pub(super) const TYPE: Kind = Kind(*b"TYPE");
pub(super) const SOURCE: Kind = Kind(*b"NAME");
pub(super) const MOUNT_POINT: Kind = Kind(*b"MNTP");
pub(super) const OPTIONS: Kind = Kind(*b"OPTS");
pub(super) const MOUNT: Kind = Kind(*b"DOIT");
pub(super) const BYE: Kind = Kind(*b"BYEE");
pub(super) const ARGUMENTS: Kind = Kind(*b"ARGS");

/// A packet of words and, perhaps, a text.
pub(super) fn encode(kind: Kind, words: &[u32], text: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = kind.0.to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    if let Some(text) = text {
        bytes.extend(text);
        bytes.push(0);
    }
    bytes
}

/// Two numbers of 16 bits as a word.
pub(super) fn word(first: u16, second: u16) -> u32 {
    u32::from(first) << 16 | u32::from(second)
}

/// Splits a word into two numbers of 16 bits.
pub(super) fn halves(word: u32) -> (u16, u16) {
    ((word >> 16) as u16, word as u16)
}

/// Takes a packet of a kind apart: its words, and what is behind them.
///
/// # Errors
/// `InvalidData` for another packet.
pub(super) fn decode<const WORDS: usize>(bytes: &[u8], kind: Kind) -> io::Result<([u32; WORDS], &[u8])> {
    let rest = bytes.strip_prefix(&kind.0).ok_or_else(|| wrong("another packet came than the one that was due"))?;
    let (words, rest) = rest.split_at_checked(4 * WORDS).ok_or_else(|| wrong("a packet is too short"))?;
    let mut decoded = [0; WORDS];
    for (word, bytes) in decoded.iter_mut().zip(words.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().expect("chunks of four bytes"));
    }
    Ok((decoded, rest))
}

/// The arguments in the file `argv`, which `read` reads.
///
/// # Errors
/// `InvalidData` for what is none, or far too much; those of `read`.
pub(super) fn read_arguments(read: impl Fn(&mut [u8], u64) -> io::Result<()>) -> io::Result<Vec<OsString>> {
    let mut head = [0; 8];
    read(&mut head, 0)?;
    let ([count], _) = decode::<1>(&head, ARGUMENTS)?;
    if count > MAX_ARGUMENTS {
        return Err(wrong("too many arguments"));
    }
    let argument = |number: u32| {
        let mut place = [0; 8];
        read(&mut place, 8 + 8 * u64::from(number))?;
        let ([offset, length], _) = decode::<2>(&[&ARGUMENTS.0[..], &place].concat(), ARGUMENTS)?;
        if length > MAX_ARGUMENT_BYTES {
            return Err(wrong("an argument is too long"));
        }
        let mut text = vec![0; length as usize];
        read(&mut text, offset.into())?;
        text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(text.len()));
        Ok(OsString::from_vec(text))
    };
    (0..count).map(argument).collect()
}

pub(super) fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(bytes: &[u8]) -> io::Result<Vec<OsString>> {
        read_arguments(|buffer, offset| {
            let from = bytes.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
            buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    #[test]
    fn arguments_are_read_and_nonsense_is_refused() {
        let head = |count: u32, places: &[u32]| encode(ARGUMENTS, &[&[count][..], places].concat(), None);
        let file = [head(2, &[24, 3, 27, 4]), b"fs\0a.i\0".to_vec()].concat();
        assert_eq!(arguments(&file).unwrap(), ["fs", "a.i"]);
        assert!(arguments(b"").is_err() && arguments(&head(1, &[])).is_err());
        assert!(arguments(&head(u32::MAX, &[])).unwrap_err().to_string().contains("too many"));
        assert!(arguments(&head(1, &[16, u32::MAX])).unwrap_err().to_string().contains("too long"));
        assert!(arguments(&head(1, &[u32::MAX, 4])).is_err() && arguments(b"ARGX\0\0\0\0").is_err());
    }

    #[test]
    fn packets_are_as_libfuse_lays_them_out() {
        // struct fuse_service_mountpoint_command: magic, 16 bits, 16 bits, text.
        assert_eq!(encode(MOUNT_POINT, &[word(0o040_000, 0)], Some(b"/m")), b"MNTP\x40\0\0\0/m\0");
        assert_eq!(encode(BYE, &[3], None), b"BYEE\0\0\0\x03");
        assert_eq!(halves(word(7, 9)), (7, 9));
        assert_eq!(decode::<1>(b"FILE\0\0\0\x02path\0", FILE).unwrap(), ([2], &b"path\0"[..]));
        assert!(decode::<1>(b"FILE\0\0", FILE).is_err() && decode::<0>(b"REPL", FILE).is_err());
    }
}

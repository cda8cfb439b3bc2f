//! The first request, which says what both sides can do.

use crate::abi::{self, Features, RawInitExtIn, RawInitIn, RawInitOut};
use crate::answer::Version;
use crate::channel::{Channel, Received};
use crate::filesystem::Filesystem;
use crate::opcode;
use crate::request::decode_header;
use rustix::io::Errno;
use std::io;
use zerocopy::{FromBytes, IntoBytes};

/// From this version on the structures have the sizes that this crate knows.
const OLDEST_MINOR: u32 = 23;
/// Requests that may wait in the kernel's background queue (readahead, write-back, asynchronous I/O), and from how many
/// on the kernel counts the mount as congested.
pub(crate) const MAX_BACKGROUND: u16 = 64;
const CONGESTION: u16 = 48;

/// What was agreed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub features: Features,
}

/// Reads the first request and answers it. Where the kernel offers io_uring, `start` makes the queues before: once the
/// kernel knows of them, requests wait until they are there.
///
/// # Errors
/// The system's; `NotConnected` if the connection ends, `InvalidData` if it begins with another request, `Unsupported`
/// for a kernel of another age.
pub(crate) fn negotiate<F: Filesystem, Q>(
    fs: &mut F,
    channel: &Channel,
    max_write: u32,
    start: impl Fn() -> Option<Q>,
) -> io::Result<(Agreed, Option<Q>)> {
    let mut buffer = vec![0; abi::MIN_READ_BUFFER.max(max_write as usize + 4096)];
    loop {
        let length = match channel.receive(&mut buffer)? {
            Received::Request(length) => length,
            Received::Nothing => continue,
            Received::End | Received::Closed => {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "it ended before the first request"));
            }
        };
        let not_first = || io::Error::new(io::ErrorKind::InvalidData, "it does not begin with FUSE's first request");
        let (header, body) = decode_header(&buffer[..length]).ok_or_else(not_first)?;
        if header.opcode != opcode::INIT {
            channel.reply(header.unique, Err(Errno::IO));
            return Err(not_first());
        }
        let (init, rest) = RawInitIn::read_from_prefix(body).map_err(|_| not_first())?;
        if init.major > abi::MAJOR {
            // The kernel sends the request again, of the version that it reads here.
            let ours = RawInitOut { major: abi::MAJOR, minor: abi::MINOR, ..Default::default() };
            channel.reply(header.unique, Ok(ours.as_bytes()));
            continue;
        }
        if init.major < abi::MAJOR || init.minor < OLDEST_MINOR {
            channel.reply(header.unique, Err(Errno::PROTO));
            let why = format!("FUSE {}.{} is too old: 7.{OLDEST_MINOR} is needed", init.major, init.minor);
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let offered = offered(&init, rest);
        let queues = if offered.contains(Features::OVER_IO_URING) { start() } else { None };
        let usable = if queues.is_some() { offered } else { offered - Features::OVER_IO_URING };
        let (agreed, out) = agree(fs, &init, usable, max_write);
        channel.reply(header.unique, Ok(out.as_bytes()));
        return Ok((agreed, queues));
    }
}

/// The features that the kernel offers.
fn offered(init: &RawInitIn, rest: &[u8]) -> Features {
    let mut offered = Features::from_bits_truncate(init.flags.into());
    if offered.contains(Features::INIT_EXT)
        && let Ok((more, _)) = RawInitExtIn::read_from_prefix(rest)
    {
        offered |= Features::from_bits_truncate(u64::from(more.flags2) << 32);
    }
    offered
}

fn agree<F: Filesystem>(fs: &mut F, init: &RawInitIn, offered: Features, max_write: u32) -> (Agreed, RawInitOut) {
    let version = Version { major: init.major, minor: init.minor.min(abi::MINOR) };
    let always = Features::INIT_EXT | Features::BIG_WRITES | Features::MAX_PAGES | Features::OVER_IO_URING;
    let features = (fs.init(offered, version) | always) & offered;
    let page = rustix::param::page_size() as u32;
    let out = RawInitOut {
        major: abi::MAJOR,
        minor: version.minor,
        max_readahead: init.max_readahead,
        flags: features.bits() as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: CONGESTION,
        max_write,
        // Times are exact to the nanosecond.
        time_gran: 1,
        max_pages: (max_write / page) as u16,
        flags2: (features.bits() >> 32) as u32,
        ..Default::default()
    };
    (Agreed { features }, out)
}

//! The handshake: fixed newstyle, up to the transmission phase.
//!
//! ```text
//! server: NBDMAGIC u64 | IHAVEOPT u64 | flags u16        client: flags u32
//! option: IHAVEOPT u64 | option u32 | length u32 | data
//! reply:  magic u64 | option u32 | kind u32 | length u32 | data          several for one option; the last is no INFO
//! ```
//!
//! Asked for, in this order: TLS where the address says so, structured replies, the context `base:allocation`, and the
//! export, with its block sizes. Structured replies and the context are optional for the server.
//!
//! The server is not trusted: each reply and their number are bounded, and nothing is allocated by a length that was
//! not checked. Source of the facts: the NBD project's `doc/proto.md`.

use crate::error::{Problem, escaped};
use crate::wire::{self, ERROR_TLS_REQUIRED, ERROR_UNKNOWN, ERROR_UNSUPPORTED};
use std::io::{self, Read, Write};

const MAX_REPLY_BYTES: u32 = 64 << 10;
const MAX_REPLIES: usize = 4096;
const CONTEXT: &[u8] = b"base:allocation";
/// The largest minimum block that the protocol allows.
const MAX_MINIMUM: u32 = 1 << 16;
/// Where a server names no sizes.
const USUAL_MINIMUM: u32 = 512;
const USUAL_MAXIMUM: u32 = 32 << 20;

/// What a server says of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub size_bytes: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Offsets and lengths of requests are multiples of it.
    pub minimum_bytes: u32,
    /// No read or write is longer.
    pub maximum_bytes: u32,
    pub structured: Structured,
    /// The number of the context `base:allocation`, if there is one.
    pub context: Option<u32>,
}

impl Export {
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Which form replies have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structured {
    Yes,
    No,
}

struct Reply {
    kind: u32,
    data: Vec<u8>,
}

impl Reply {
    fn is_error(&self) -> bool {
        self.kind & wire::REPLY_ERROR != 0
    }

    /// What the server says of its refusal.
    fn why(&self) -> String {
        let kind = match self.kind {
            ERROR_UNSUPPORTED => "it does not know the request",
            wire::ERROR_POLICY => "not allowed",
            wire::ERROR_SHUTDOWN => "the server stops",
            _ => "error",
        };
        let number = self.kind & !wire::REPLY_ERROR;
        if self.data.is_empty() {
            return format!("{kind} ({number})");
        }
        format!("{kind} ({number}): {}", escaped(&self.data[..self.data.len().min(wire::MAX_STRING_BYTES as usize)]))
    }
}

/// Asks the server of a greeted connection for TLS: what follows is its handshake.
///
/// # Errors
/// [`Problem::NoTls`]; those of the connection.
pub fn start_tls(stream: &mut (impl Read + Write)) -> Result<(), Problem> {
    send_option(stream, wire::OPTION_STARTTLS, &[])?;
    let reply = read_reply(stream, wire::OPTION_STARTTLS)?;
    match reply.kind {
        // Data here would be from one who does not know the keys.
        wire::REPLY_ACK if reply.data.is_empty() => Ok(()),
        _ if reply.is_error() => Err(Problem::NoTls(reply.why())),
        _ => Err(protocol("an unexpected reply to NBD_OPT_STARTTLS")),
    }
}

/// Brings a greeted connection into the transmission phase.
///
/// # Errors
/// [`Problem`] says which request the server refused, or what it did that the protocol does not allow.
pub fn negotiate(stream: &mut (impl Read + Write), export: &str) -> Result<Export, Problem> {
    let found = ask(stream, export);
    if !matches!(found, Ok(_) | Err(Problem::Closed | Problem::Io(_) | Problem::Silent(_))) {
        // The server is going to be left anyway.
        let _ = send_option(stream, wire::OPTION_ABORT, &[]);
    }
    found
}

/// Exchanges the greeting of a new connection.
///
/// # Errors
/// What answers is no server, or an old one; those of the connection.
pub fn greet(stream: &mut (impl Read + Write)) -> Result<(), Problem> {
    if read_u64(stream)? != wire::MAGIC {
        return Err(Problem::NotNbd);
    }
    match read_u64(stream)? {
        wire::OPTION_MAGIC => {}
        wire::OLDSTYLE_MAGIC => return Err(Problem::Oldstyle),
        _ => return Err(Problem::NotNbd),
    }
    let flags = u16::from_be_bytes(read_array(stream)?);
    if flags & wire::FIXED_NEWSTYLE == 0 {
        return Err(Problem::TooOld("the fixed newstyle handshake"));
    }
    let answer = u32::from(wire::FIXED_NEWSTYLE | flags & wire::NO_ZEROES);
    write(stream, &answer.to_be_bytes())
}

fn ask(stream: &mut (impl Read + Write), export: &str) -> Result<Export, Problem> {
    let structured = ask_for_structured_replies(stream)?;
    let context = match structured {
        Structured::Yes => ask_for_context(stream, export)?,
        Structured::No => None,
    };
    let mut data = Vec::new();
    put_string(&mut data, export.as_bytes());
    data.extend(1_u16.to_be_bytes());
    data.extend(wire::INFO_BLOCK_SIZE.to_be_bytes());
    send_option(stream, wire::OPTION_GO, &data)?;
    let mut size_and_flags = None;
    let mut sizes = (USUAL_MINIMUM, USUAL_MAXIMUM);
    for _ in 0..MAX_REPLIES {
        let reply = read_reply(stream, wire::OPTION_GO)?;
        match reply.kind {
            wire::REPLY_INFO => match decode_info(&reply.data)? {
                Info::Export { size_bytes, flags } => size_and_flags = Some((size_bytes, flags)),
                Info::BlockSize { minimum, maximum } => sizes = (minimum, maximum),
                Info::Other => {}
            },
            wire::REPLY_ACK => {
                let (size_bytes, flags) = size_and_flags.ok_or_else(|| protocol("no size of the export"))?;
                if flags & wire::HAS_FLAGS == 0 {
                    return Err(protocol("an export without flags"));
                }
                let (minimum_bytes, maximum_bytes) = sizes;
                return Ok(Export { size_bytes, flags, minimum_bytes, maximum_bytes, structured, context });
            }
            ERROR_UNKNOWN => {
                let known = list(stream).unwrap_or_default();
                return Err(Problem::UnknownExport { name: export.into(), known });
            }
            ERROR_TLS_REQUIRED => return Err(Problem::TlsRequired),
            ERROR_UNSUPPORTED => return Err(Problem::TooOld("NBD_OPT_GO")),
            _ if reply.is_error() => return Err(Problem::Refused { what: "the export", why: reply.why() }),
            _ => return Err(protocol("an unexpected reply to NBD_OPT_GO")),
        }
    }
    Err(protocol("too many replies"))
}

fn ask_for_structured_replies(stream: &mut (impl Read + Write)) -> Result<Structured, Problem> {
    send_option(stream, wire::OPTION_STRUCTURED_REPLY, &[])?;
    let reply = read_reply(stream, wire::OPTION_STRUCTURED_REPLY)?;
    match reply.kind {
        wire::REPLY_ACK => Ok(Structured::Yes),
        ERROR_TLS_REQUIRED => Err(Problem::TlsRequired),
        _ if reply.is_error() => Ok(Structured::No),
        _ => Err(protocol("an unexpected reply to NBD_OPT_STRUCTURED_REPLY")),
    }
}

fn ask_for_context(stream: &mut (impl Read + Write), export: &str) -> Result<Option<u32>, Problem> {
    let mut data = Vec::new();
    put_string(&mut data, export.as_bytes());
    data.extend(1_u32.to_be_bytes());
    put_string(&mut data, CONTEXT);
    send_option(stream, wire::OPTION_SET_META_CONTEXT, &data)?;
    let mut context = None;
    for _ in 0..MAX_REPLIES {
        let reply = read_reply(stream, wire::OPTION_SET_META_CONTEXT)?;
        match (reply.kind, reply.data.split_first_chunk()) {
            (wire::REPLY_META_CONTEXT, Some((number, name))) if name == CONTEXT => {
                context = Some(u32::from_be_bytes(*number));
            }
            (wire::REPLY_ACK, _) => return Ok(context),
            (ERROR_TLS_REQUIRED, _) => return Err(Problem::TlsRequired),
            // An unknown export is reported by NBD_OPT_GO.
            _ if reply.is_error() => return Ok(None),
            _ => return Err(protocol("an unexpected reply to NBD_OPT_SET_META_CONTEXT")),
        }
    }
    Err(protocol("too many replies"))
}

/// The names of the exports, as far as the server says them.
fn list(stream: &mut (impl Read + Write)) -> Result<Vec<String>, Problem> {
    send_option(stream, wire::OPTION_LIST, &[])?;
    let mut names = Vec::new();
    for _ in 0..MAX_REPLIES {
        let reply = read_reply(stream, wire::OPTION_LIST)?;
        match reply.kind {
            wire::REPLY_SERVER => {
                let (length, rest) = reply.data.split_first_chunk().ok_or_else(|| protocol("a short name"))?;
                let name = rest.get(..u32::from_be_bytes(*length) as usize).ok_or_else(|| protocol("a short name"))?;
                names.push(String::from_utf8_lossy(name).into_owned());
            }
            _ => break,
        }
    }
    Ok(names)
}

enum Info {
    Export { size_bytes: u64, flags: u16 },
    BlockSize { minimum: u32, maximum: u32 },
    Other,
}

fn decode_info(data: &[u8]) -> Result<Info, Problem> {
    let (kind, rest) = data.split_first_chunk().ok_or_else(|| protocol("a short information"))?;
    let number = |at: usize| rest.get(at..at + 4).and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)));
    match (u16::from_be_bytes(*kind), rest.len()) {
        (wire::INFO_EXPORT, 10) => {
            let (size, flags) = rest.split_first_chunk().ok_or_else(|| protocol("a short size"))?;
            let size_bytes = u64::from_be_bytes(*size);
            if i64::try_from(size_bytes).is_err() {
                return Err(protocol("an export of more than 8 EiB"));
            }
            Ok(Info::Export { size_bytes, flags: u16::from_be_bytes([flags[0], flags[1]]) })
        }
        (wire::INFO_BLOCK_SIZE, 12) => {
            let (Some(minimum), Some(maximum)) = (number(0), number(8)) else { return Err(protocol("a short size")) };
            if !minimum.is_power_of_two() || minimum > MAX_MINIMUM || maximum < minimum.max(USUAL_MINIMUM) {
                return Err(protocol("block sizes that cannot be"));
            }
            Ok(Info::BlockSize { minimum, maximum })
        }
        (wire::INFO_EXPORT | wire::INFO_BLOCK_SIZE, _) => Err(protocol("information of the wrong length")),
        _ => Ok(Info::Other),
    }
}

fn protocol(what: &str) -> Problem {
    Problem::Protocol(what.into())
}

/// An error of the connection.
pub fn problem(error: io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Problem::Closed,
        _ => Problem::Io(error),
    }
}

fn put_string(data: &mut Vec<u8>, text: &[u8]) {
    data.extend((text.len() as u32).to_be_bytes());
    data.extend(text);
}

fn write(stream: &mut impl Write, data: &[u8]) -> Result<(), Problem> {
    stream.write_all(data).map_err(problem)
}

fn read_array<const N: usize>(stream: &mut impl Read) -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map_err(problem)?;
    Ok(bytes)
}

fn read_u32(stream: &mut impl Read) -> Result<u32, Problem> {
    read_array(stream).map(u32::from_be_bytes)
}

fn read_u64(stream: &mut impl Read) -> Result<u64, Problem> {
    read_array(stream).map(u64::from_be_bytes)
}

fn send_option(stream: &mut impl Write, option: u32, data: &[u8]) -> Result<(), Problem> {
    let mut bytes = Vec::with_capacity(16 + data.len());
    bytes.extend(wire::OPTION_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    write(stream, &bytes)
}

fn read_reply(stream: &mut impl Read, option: u32) -> Result<Reply, Problem> {
    if read_u64(stream)? != wire::OPTION_REPLY_MAGIC {
        return Err(protocol("no reply where one must be"));
    }
    if read_u32(stream)? != option {
        return Err(protocol("a reply to another option"));
    }
    let kind = read_u32(stream)?;
    let length = read_u32(stream)?;
    if length > MAX_REPLY_BYTES {
        return Err(protocol("too long a reply"));
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data).map_err(problem)?;
    Ok(Reply { kind, data })
}

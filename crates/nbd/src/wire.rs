//! Numbers of the protocol, and the header of a request.
//!
//! ```text
//! request:  magic u32 | flags u16 | command u16 | cookie u64 | offset u64 | length u32 | data of a write
//! ```
//!
//! All numbers are big-endian. Source of the facts: the NBD project's `doc/proto.md`.

/// `NBDMAGIC`.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: the newstyle handshake, and each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The handshake of servers before fixed newstyle.
pub const OLDSTYLE_MAGIC: u64 = 0x4202_8186_1253;
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Flags of the handshake, of the server and of the client.
pub const FIXED_NEWSTYLE: u16 = 1 << 0;
pub const NO_ZEROES: u16 = 1 << 1;

pub const OPTION_ABORT: u32 = 2;
pub const OPTION_LIST: u32 = 3;
pub const OPTION_STARTTLS: u32 = 5;
pub const OPTION_GO: u32 = 7;
pub const OPTION_STRUCTURED_REPLY: u32 = 8;
pub const OPTION_SET_META_CONTEXT: u32 = 10;

pub const REPLY_ACK: u32 = 1;
pub const REPLY_SERVER: u32 = 2;
pub const REPLY_INFO: u32 = 3;
pub const REPLY_META_CONTEXT: u32 = 4;
pub const REPLY_ERROR: u32 = 1 << 31;
pub const ERROR_UNSUPPORTED: u32 = REPLY_ERROR + 1;
pub const ERROR_POLICY: u32 = REPLY_ERROR + 2;
pub const ERROR_TLS_REQUIRED: u32 = REPLY_ERROR + 5;
pub const ERROR_UNKNOWN: u32 = REPLY_ERROR + 6;
pub const ERROR_SHUTDOWN: u32 = REPLY_ERROR + 7;

pub const INFO_EXPORT: u16 = 0;
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flags of an export.
pub const HAS_FLAGS: u16 = 1 << 0;
pub const READ_ONLY: u16 = 1 << 1;
pub const SEND_FLUSH: u16 = 1 << 2;
pub const SEND_FUA: u16 = 1 << 3;
pub const SEND_TRIM: u16 = 1 << 5;
pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub const CAN_MULTI_CONN: u16 = 1 << 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Read,
    Write,
    /// A write that is durable when it is answered.
    WriteDurably,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
}

impl Command {
    fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write | Self::WriteDurably => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
        }
    }

    /// As the word of a message.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write | Self::WriteDurably => "write",
            Self::Disconnect => "disconnect",
            Self::Flush => "flush",
            Self::Trim => "discard",
            Self::WriteZeroes => "write of zeros",
            Self::BlockStatus => "query for holes",
        }
    }

    /// `WRITE_ZEROES` allocates, as a write does.
    fn flags(self) -> u16 {
        const FORCE_UNIT_ACCESS: u16 = 1 << 0;
        const NO_HOLE: u16 = 1 << 1;
        match self {
            Self::WriteDurably => FORCE_UNIT_ACCESS,
            Self::WriteZeroes => NO_HOLE,
            _ => 0,
        }
    }
}

pub const REPLY_FLAG_DONE: u16 = 1 << 0;
pub const CHUNK_NONE: u16 = 0;
pub const CHUNK_DATA: u16 = 1;
pub const CHUNK_HOLE: u16 = 2;
pub const CHUNK_BLOCK_STATUS: u16 = 5;
pub const CHUNK_ERROR: u16 = 1 << 15;
pub const CHUNK_ERROR_OFFSET: u16 = CHUNK_ERROR + 2;

/// `base:allocation`: the range reads as zeros.
pub const STATE_ZERO: u32 = 1 << 1;

/// The longest string, messages of errors included.
pub const MAX_STRING_BYTES: u32 = 4096;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const ENOMEM: u32 = 12;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const EOVERFLOW: u32 = 75;
pub const ENOTSUP: u32 = 95;
pub const ESHUTDOWN: u32 = 108;

/// What is asked, and of which bytes of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub command: Command,
    pub offset: u64,
    pub bytes: u32,
}

impl Request {
    /// The header as it is sent.
    pub fn header(&self, cookie: u64) -> [u8; 28] {
        let mut header = [0; 28];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[4..6].copy_from_slice(&self.command.flags().to_be_bytes());
        header[6..8].copy_from_slice(&self.command.number().to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..24].copy_from_slice(&self.offset.to_be_bytes());
        header[24..].copy_from_slice(&self.bytes.to_be_bytes());
        header
    }
}

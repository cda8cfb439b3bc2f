//! An entry of a queue: the memory in which the kernel and the server give each other one request and its reply.
//!
//! ```text
//! header   in or out header 128 │ structure 128 │ flags 8, commit id 8, bytes in payload 4, padding 4, reserved 8
//! payload  names and data of a request; contents of a reply
//! ```
//! The memory is the kernel's from the command that gives it the entry until that command is complete, and the server's
//! otherwise. The allocations do not move, and outlive the ring.
//!
//! Source of facts: `struct fuse_uring_req_header` in `include/uapi/linux/fuse.h`, Linux 6.18.

use crate::abi::{RawInHeader, RawOutHeader};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

const PLACE_BYTES: usize = 128;
const COMMIT_ID: usize = 2 * PLACE_BYTES + 8;
const PAYLOAD_SIZE: usize = 2 * PLACE_BYTES + 16;
const HEADER_BYTES: usize = 2 * PLACE_BYTES + 32;

/// The memory of an entry.
pub(super) struct Entry {
    header: Box<[u8; HEADER_BYTES]>,
    pub payload: Box<[u8]>,
    /// Addresses and lengths of both, as the kernel reads them when the entry is registered.
    vectors: Box<[[u64; 2]; 2]>,
}

/// A request in an entry.
pub(super) struct Found {
    pub header: RawInHeader,
    /// The place of its structure.
    pub structure: [u8; PLACE_BYTES],
    /// Bytes in the payload.
    pub payload_bytes: usize,
    /// By which the kernel knows the request when it is answered.
    pub commit_id: u64,
}

impl Entry {
    pub fn new(payload_bytes: usize) -> Self {
        let header = Box::new([0; HEADER_BYTES]);
        let payload = vec![0; payload_bytes].into_boxed_slice();
        let vectors = Box::new([
            [header.as_ptr().expose_provenance() as u64, HEADER_BYTES as u64],
            [payload.as_ptr().expose_provenance() as u64, payload_bytes as u64],
        ]);
        Self { header, payload, vectors }
    }

    /// The address of the two vectors.
    pub fn address(&self) -> u64 {
        self.vectors.as_ptr().expose_provenance() as u64
    }

    /// The request that the kernel has put in.
    pub fn request(&self) -> Option<Found> {
        let (header, _) = RawInHeader::read_from_prefix(&self.header[..]).ok()?;
        let structure = self.header[PLACE_BYTES..2 * PLACE_BYTES].try_into().ok()?;
        let payload_bytes = u32::read_from_prefix(&self.header[PAYLOAD_SIZE..]).ok()?.0 as usize;
        let commit_id = u64::read_from_prefix(&self.header[COMMIT_ID..]).ok()?.0;
        (payload_bytes <= self.payload.len()).then_some(Found { header, structure, payload_bytes, commit_id })
    }

    /// Puts in the reply: an error, or so many bytes of the payload.
    pub fn put_reply(&mut self, unique: u64, answer: Result<usize, Errno>) {
        let (length, error) = answer.map_or_else(|error| (0, -error.raw_os_error()), |length| (length, 0));
        let header = RawOutHeader { len: (size_of::<RawOutHeader>() + length) as u32, error, unique };
        self.header[..size_of::<RawOutHeader>()].copy_from_slice(header.as_bytes());
        self.header[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice((length as u32).as_bytes());
    }
}

//! Replies of the transmission phase.
//!
//! ```text
//! simple:      magic u32 | error u32 | cookie u64 | data of a read that succeeded
//! structured:  magic u32 | flags u16 | kind u16 | cookie u64 | length u32 | payload      the last has DONE
//!   NONE
//!   DATA            offset u64 | bytes
//!   HOLE            offset u64 | length u32
//!   BLOCK_STATUS    context u32 | (length u32 | state u32)...
//!   ERROR...        error u32 | length u16 | message | what this kind of error adds
//! ```
//!
//! Chunks of different requests may alternate, and those of a read come in any order, so what has arrived of a request
//! is stored until its last chunk. The server is not trusted: data must lie inside the request, every byte must come
//! once, and memory is taken for what was asked for, not for what the server says.
//!
//! Source of the facts: the NBD project's `doc/proto.md`.

use crate::error::{Loss, ServerError, escaped};
use crate::handshake::Structured;
use crate::wire::{self, Command, Request};
use std::collections::HashMap;
use std::ops::Range;

/// A reply with more pieces that do not touch is not accepted.
const MAX_PIECES: usize = 4096;
/// The longest chunk of an error.
const MAX_ERROR_BYTES: u32 = 64 << 10;
const MAX_DESCRIPTORS: u32 = 1 << 20;

/// Where the bytes of a server come from.
pub trait Source {
    /// Fills the buffer.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Loss>;
}

/// What a request that succeeded has brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Data(Vec<u8>),
    /// From the start of the range on: bytes that are zeros, and bytes that the answer is about.
    Zeros {
        leading_bytes: u64,
        covered_bytes: u64,
    },
}

pub type Outcome = Result<Answer, ServerError>;

/// What has been received of the requests in flight.
pub struct Replies {
    structured: Structured,
    context: Option<u32>,
    begun: HashMap<u64, Partial>,
}

/// What has been received of one request.
#[derive(Default)]
struct Partial {
    data: Vec<u8>,
    covered: Covered,
    zeros: Option<Answer>,
    error: Option<ServerError>,
}

impl Replies {
    pub fn new(structured: Structured, context: Option<u32>) -> Self {
        Self { structured, context, begun: HashMap::new() }
    }

    /// Receives one message. Returns the request that it completes, by its cookie.
    ///
    /// # Errors
    /// The connection is lost then.
    pub fn receive(
        &mut self,
        source: &mut impl Source,
        find: impl FnOnce(u64) -> Option<Request>,
    ) -> Result<Option<(u64, Outcome)>, Loss> {
        let unknown = || Loss::protocol("a reply to no request");
        match u32::from_be_bytes(array(source)?) {
            wire::SIMPLE_REPLY_MAGIC => {
                let number = u32::from_be_bytes(array(source)?);
                let cookie = u64::from_be_bytes(array(source)?);
                let request = find(cookie).ok_or_else(unknown)?;
                if self.begun.contains_key(&cookie) {
                    return Err(Loss::protocol("replies of two kinds to one request"));
                }
                Ok(Some((cookie, self.receive_simple(source, request, number)?)))
            }
            wire::STRUCTURED_REPLY_MAGIC if self.structured == Structured::Yes => {
                let flags = u16::from_be_bytes(array(source)?);
                let kind = u16::from_be_bytes(array(source)?);
                let cookie = u64::from_be_bytes(array(source)?);
                let length = u32::from_be_bytes(array(source)?);
                let request = find(cookie).ok_or_else(unknown)?;
                self.begun.entry(cookie).or_default().receive(source, request, self.context, (kind, length))?;
                if flags & wire::REPLY_FLAG_DONE == 0 {
                    return Ok(None);
                }
                let partial = self.begun.remove(&cookie).unwrap_or_default();
                Ok(Some((cookie, partial.finish(request)?)))
            }
            _ => Err(Loss::protocol("no reply where one must be")),
        }
    }

    fn receive_simple(&self, source: &mut impl Source, request: Request, number: u32) -> Result<Outcome, Loss> {
        if number != 0 {
            return Ok(Err(ServerError { number, message: String::new() }));
        }
        match request.command {
            Command::Read if self.structured == Structured::Yes => Err(Loss::protocol("a simple reply to a read")),
            Command::BlockStatus => Err(Loss::protocol("a simple reply to a query for holes")),
            Command::Read => {
                let mut data = vec![0; request.bytes as usize];
                source.fill(&mut data)?;
                Ok(Ok(Answer::Data(data)))
            }
            _ => Ok(Ok(Answer::Done)),
        }
    }
}

impl Partial {
    fn receive(
        &mut self,
        source: &mut impl Source,
        request: Request,
        context: Option<u32>,
        (kind, length): (u16, u32),
    ) -> Result<(), Loss> {
        match (kind, request.command) {
            (wire::CHUNK_NONE, _) if length == 0 => Ok(()),
            (wire::CHUNK_DATA, Command::Read) if length > 8 => {
                let offset = u64::from_be_bytes(array(source)?);
                let range = self.take(request, offset, length - 8)?;
                source.fill(&mut self.data[range])
            }
            (wire::CHUNK_HOLE, Command::Read) if length == 12 => {
                let offset = u64::from_be_bytes(array(source)?);
                let bytes = u32::from_be_bytes(array(source)?);
                // Every byte comes once, and the data begin as zeros.
                self.take(request, offset, bytes).map(drop)
            }
            (wire::CHUNK_BLOCK_STATUS, Command::BlockStatus) => self.receive_status(source, context, length),
            _ if kind & wire::CHUNK_ERROR != 0 => self.receive_error(source, kind, length),
            _ => Err(Loss::protocol("a chunk that does not belong to its request")),
        }
    }

    /// The place in the data of a range of the export that arrives.
    fn take(&mut self, request: Request, offset: u64, bytes: u32) -> Result<Range<usize>, Loss> {
        let start = offset.checked_sub(request.offset).and_then(|start| u32::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        let range = range.filter(|range| !range.is_empty() && range.end <= request.bytes);
        let range = range.ok_or_else(|| Loss::protocol("data outside the request"))?;
        self.covered.add(&range)?;
        self.data.resize(request.bytes as usize, 0);
        Ok(range.start as usize..range.end as usize)
    }

    fn receive_status(&mut self, source: &mut impl Source, context: Option<u32>, length: u32) -> Result<(), Loss> {
        let descriptors = length.saturating_sub(4) / 8;
        if length != 4 + descriptors * 8 || !(1..=MAX_DESCRIPTORS).contains(&descriptors) {
            return Err(Loss::protocol("block descriptors of a wrong length"));
        }
        if Some(u32::from_be_bytes(array(source)?)) != context || self.zeros.is_some() {
            return Err(Loss::protocol("block descriptors that were not asked for"));
        }
        let (mut leading_bytes, mut covered_bytes) = (0, 0);
        for _ in 0..descriptors {
            let bytes = u64::from(u32::from_be_bytes(array(source)?));
            let state = u32::from_be_bytes(array(source)?);
            if bytes == 0 {
                return Err(Loss::protocol("a block descriptor of no bytes"));
            }
            if state & wire::STATE_ZERO != 0 && leading_bytes == covered_bytes {
                leading_bytes += bytes;
            }
            covered_bytes += bytes;
        }
        self.zeros = Some(Answer::Zeros { leading_bytes, covered_bytes });
        Ok(())
    }

    fn receive_error(&mut self, source: &mut impl Source, kind: u16, length: u32) -> Result<(), Loss> {
        let fixed = if kind == wire::CHUNK_ERROR_OFFSET { 14 } else { 6 };
        if !(fixed..=MAX_ERROR_BYTES).contains(&length) {
            return Err(Loss::protocol("an error of a wrong length"));
        }
        let number = u32::from_be_bytes(array(source)?);
        let message_bytes = u32::from(u16::from_be_bytes(array(source)?));
        if number == 0 || message_bytes > wire::MAX_STRING_BYTES.min(length - fixed) {
            return Err(Loss::protocol("an error that is none, or whose message is too long"));
        }
        let mut message = vec![0; message_bytes as usize];
        source.fill(&mut message)?;
        let mut rest = vec![0; (length - 6 - message_bytes) as usize];
        source.fill(&mut rest)?;
        self.error.get_or_insert(ServerError { number, message: escaped(&message) });
        Ok(())
    }

    fn finish(self, request: Request) -> Result<Outcome, Loss> {
        if let Some(error) = self.error {
            return Ok(Err(error));
        }
        match request.command {
            Command::Read if self.covered.is_all(request.bytes) => Ok(Ok(Answer::Data(self.data))),
            Command::Read => Err(Loss::protocol("a read without all of its data")),
            Command::BlockStatus => match self.zeros {
                Some(zeros) => Ok(Ok(zeros)),
                None => Err(Loss::protocol("no block descriptors")),
            },
            _ => Ok(Ok(Answer::Done)),
        }
    }
}

/// The parts of a request that have arrived: sorted, and without two that touch.
#[derive(Default)]
struct Covered(Vec<Range<u32>>);

impl Covered {
    fn add(&mut self, range: &Range<u32>) -> Result<(), Loss> {
        let at = self.0.partition_point(|part| part.end <= range.start);
        if self.0.get(at).is_some_and(|next| next.start < range.end) {
            return Err(Loss::protocol("the same data twice"));
        }
        let after = self.0.get(at).is_some_and(|next| next.start == range.end);
        let before = at > 0 && self.0[at - 1].end == range.start;
        match (before, after) {
            (true, true) => self.0[at - 1].end = self.0.remove(at).end,
            (true, false) => self.0[at - 1].end = range.end,
            (false, true) => self.0[at].start = range.start,
            (false, false) => self.0.insert(at, range.clone()),
        }
        if self.0.len() > MAX_PIECES { Err(Loss::protocol("a read in too many pieces")) } else { Ok(()) }
    }

    fn is_all(&self, bytes: u32) -> bool {
        matches!(&self.0[..], [one] if *one == (0..bytes))
    }
}

fn array<const N: usize>(source: &mut impl Source) -> Result<[u8; N], Loss> {
    let mut bytes = [0; N];
    source.fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Source for &[u8] {
        fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Loss> {
            let (now, rest) = self.split_at_checked(buffer.len()).ok_or_else(Loss::closed)?;
            buffer.copy_from_slice(now);
            *self = rest;
            Ok(())
        }
    }

    const READ: Request = Request { command: Command::Read, offset: 1000, bytes: 8 };
    const WRITE: Request = Request { command: Command::Write, offset: 1000, bytes: 8 };
    const STATUS: Request = Request { command: Command::BlockStatus, offset: 1000, bytes: 8 };
    const CONTEXT: u32 = 7;
    const COOKIE: u64 = 5;

    fn chunk(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = wire::STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(COOKIE.to_be_bytes());
        bytes.extend((payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn data(offset: u64, flags: u16, bytes: &[u8]) -> Vec<u8> {
        chunk(wire::CHUNK_DATA, flags, &[&offset.to_be_bytes(), bytes].concat())
    }

    fn hole(offset: u64, flags: u16, bytes: u32) -> Vec<u8> {
        chunk(wire::CHUNK_HOLE, flags, &[&offset.to_be_bytes()[..], &bytes.to_be_bytes()].concat())
    }

    fn status(context: u32, descriptors: &[(u32, u32)]) -> Vec<u8> {
        let mut payload = context.to_be_bytes().to_vec();
        payload
            .extend(descriptors.iter().flat_map(|(bytes, state)| [bytes.to_be_bytes(), state.to_be_bytes()].concat()));
        chunk(wire::CHUNK_BLOCK_STATUS, 1, &payload)
    }

    fn receive(request: Request, messages: &[Vec<u8>]) -> Result<Outcome, Loss> {
        let bytes = messages.concat();
        let mut replies = Replies::new(Structured::Yes, Some(CONTEXT));
        let mut source = &bytes[..];
        loop {
            if let Some((cookie, outcome)) =
                replies.receive(&mut source, |cookie| (cookie == COOKIE).then_some(request))?
            {
                assert_eq!((cookie, source.len(), replies.begun.len()), (COOKIE, 0, 0));
                return Ok(outcome);
            }
        }
    }

    #[test]
    fn a_read_comes_in_any_order() {
        let got = receive(READ, &[data(1006, 0, b"gh"), hole(1002, 0, 4), data(1000, 1, b"ab")]);
        assert_eq!(got.unwrap(), Ok(Answer::Data(b"ab\0\0\0\0gh".to_vec())));
        let got = receive(READ, &[hole(1000, 0, 8), chunk(wire::CHUNK_NONE, 1, &[])]);
        assert_eq!(got.unwrap(), Ok(Answer::Data(vec![0; 8])));
    }

    #[test]
    fn what_a_reply_may_not_be() {
        let wrong: &[(Request, Vec<Vec<u8>>)] = &[
            (READ, vec![data(1000, 1, b"abcdefg")]),
            (READ, vec![data(1000, 1, b"abcdefghi")]),
            (READ, vec![data(999, 1, b"abcdefgh")]),
            (READ, vec![data(1000, 0, b"abcd"), data(1003, 1, b"defgh")]),
            (READ, vec![hole(1000, 0, 8), hole(1007, 1, 1)]),
            (READ, vec![hole(1000, 1, 0)]),
            (READ, vec![hole(1000, 1, u32::MAX)]),
            (READ, vec![hole(u64::MAX, 1, 8)]),
            (READ, vec![chunk(wire::CHUNK_NONE, 1, b"x")]),
            (READ, vec![chunk(wire::CHUNK_NONE, 1, &[])]),
            (READ, vec![chunk(wire::CHUNK_DATA, 1, &1000_u64.to_be_bytes())]),
            (READ, vec![chunk(99, 1, &[])]),
            (READ, vec![status(CONTEXT, &[(8, 0)])]),
            (WRITE, vec![data(1000, 1, b"abcdefgh")]),
            (STATUS, vec![status(CONTEXT + 1, &[(8, 0)])]),
            (STATUS, vec![status(CONTEXT, &[])]),
            (STATUS, vec![status(CONTEXT, &[(0, 0)])]),
            (STATUS, vec![chunk(wire::CHUNK_NONE, 1, &[])]),
            (STATUS, vec![chunk(wire::CHUNK_BLOCK_STATUS, 1, &[0; 13])]),
            (WRITE, vec![chunk(wire::CHUNK_ERROR + 1, 1, &[0, 0, 0, 5, 0])]),
            (WRITE, vec![chunk(wire::CHUNK_ERROR + 1, 1, &[0, 0, 0, 0, 0, 0])]),
            (WRITE, vec![chunk(wire::CHUNK_ERROR + 1, 1, &[0, 0, 0, 5, 0, 1])]),
            (WRITE, vec![chunk(wire::CHUNK_ERROR_OFFSET, 1, &[0, 0, 0, 5, 0, 0, 1, 2])]),
        ];
        for (n, (request, messages)) in wrong.iter().enumerate() {
            assert!(receive(*request, messages).is_err(), "{n}");
        }
    }

    #[test]
    fn an_error_fails_the_whole_request() {
        let error = [&[0, 0, 0, 28, 0, 5][..], b"no\nok", &1000_u64.to_be_bytes()].concat();
        let got = receive(READ, &[data(1000, 0, b"abcdefgh"), chunk(wire::CHUNK_ERROR_OFFSET, 1, &error)]).unwrap();
        let error = got.unwrap_err();
        assert_eq!((error.number, error.message.as_str()), (wire::ENOSPC, "no\\nok"));
        // An error of an unknown kind is an error, too.
        let got = receive(WRITE, &[chunk(wire::CHUNK_ERROR + 99, 1, &[0, 0, 0, 5, 0, 0, 1, 2, 3])]).unwrap();
        assert_eq!(got.unwrap_err().number, wire::EIO);
    }

    #[test]
    fn zeros_count_from_the_start() {
        let zeros = |descriptors: &[_]| receive(STATUS, &[status(CONTEXT, descriptors)]).unwrap().unwrap();
        let answer = |leading_bytes, covered_bytes| Answer::Zeros { leading_bytes, covered_bytes };
        assert_eq!(zeros(&[(8, 3)]), answer(8, 8));
        assert_eq!(zeros(&[(2, 2), (2, 3), (4, 0), (4, 3)]), answer(4, 12));
        // A hole that does not read as zeros is no help.
        assert_eq!(zeros(&[(8, 1)]), answer(0, 8));
    }

    #[test]
    fn too_many_pieces_are_refused() {
        let mut covered = Covered::default();
        for n in 0..MAX_PIECES as u32 {
            covered.add(&(3 * n..3 * n + 1)).unwrap();
        }
        assert!(covered.add(&(1..2)).is_ok());
        assert!(covered.add(&(2..3)).is_ok());
        assert!(covered.add(&(u32::MAX - 1..u32::MAX)).is_ok());
        assert!(covered.add(&(u32::MAX - 4..u32::MAX - 3)).is_err());
    }
}

//! The block device over one or several connections.
//!
//! A range is cut into pieces at multiples of a power of two, and each piece is a request. A piece belongs to one
//! connection by its number:
//!
//! ```text
//! bytes        0        1 MiB     2 MiB     3 MiB     4 MiB
//! piece        |    0    |    1    |    2    |    3    |
//! connection        0         1         0         1
//! ```
//!
//! A call returns after the last of its pieces was answered, so that no write of it arrives later; its error is that of
//! the first piece that failed.
//!
//! Invariants: `flushed` is at most the number of writes that had ended when the last successful flush began. After a
//! flush that failed, and after a loss, neither a write nor a flush succeeds.

use crate::address::Address;
use crate::connection::{Connection, Health, Ticket};
use crate::error::{Failure, Loss, OpenError, Problem, ServerError};
use crate::handshake::{Export, greet, negotiate, problem, start_tls};
use crate::limits::{InFlight, Permit};
use crate::reply::Answer;
use crate::stream::{Stream, Timed};
use crate::tls::Credentials;
use crate::wire::{self, Command, Request};
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use xfskit_device::{BlockDevice, Hints};

/// Requests that a program that reads much has on their way at a time: enough to hide a millisecond each.
const QUEUE_DEPTH: usize = 32;
/// The longest request. A power of two, so that pieces are of whole blocks.
const PIECE_BYTES: u32 = 1 << 20;
/// Discards and queries carry no data.
const HINT_BYTES: u64 = 1 << 30;
/// A sector of XFS is not larger.
const MAX_SECTOR_BYTES: u32 = 32 << 10;
const SECTOR_BYTES: u32 = 512;
/// Shorter zeros are sent as they are.
const MIN_ZEROS_BYTES: usize = 4096;
/// After so many answers about parts of a range the range counts as data.
const MAX_QUERIES: usize = 64;
/// How long a further connection may take: the device works without it.
const FURTHER_OPENING: Duration = Duration::from_secs(2);

/// Who keeps other clients from writing to an export while this device writes: NBD itself has no means for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// The caller knows that no other client writes, by means other than this protocol.
    OthersKeptOut,
}

/// How to use a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections at most. More than one is made only where the server says that flushes count for all of them.
    pub connections: usize,
    /// How long the server may take to answer the handshake.
    pub opening: Duration,
    /// What an address asks for that names TLS; read from its files when a device is opened, if it is not here.
    pub credentials: Option<Credentials>,
    /// A connection is lost when requests wait and no byte has moved for this time.
    pub silence: Duration,
}

impl Default for Options {
    /// Four connections, 10 seconds, 60 seconds: Ceph takes 30 seconds to shut out a client that hangs.
    fn default() -> Self {
        let credentials = None;
        Self { connections: 4, opening: Duration::from_secs(10), credentials, silence: Duration::from_secs(60) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// How a piece that is all zeros is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeros {
    AsRequest,
    AsData,
}

/// An export of an NBD server.
pub struct NbdDevice {
    name: String,
    connections: Vec<Connection>,
    export: Export,
    size_bytes: u64,
    piece_bytes: u64,
    access: Access,
    in_flight: InFlight,
    health: Arc<Health>,
    flush_failure: OnceLock<ServerError>,
    /// Writes and discards that have ended. One more than there were: the server may have unflushed writes of an
    /// earlier client.
    ended: AtomicU64,
    /// How many of them the last successful flush was for.
    flushed: Mutex<u64>,
    writes_zeroes: AtomicBool,
    /// Held exclusively while a write of a part of a block reads and writes the block, and shared by all other writes.
    blocks: RwLock<()>,
}

impl NbdDevice {
    /// Opens an export for reading.
    ///
    /// # Errors
    /// [`OpenError`] names the server and the export, and says what to do.
    pub fn open(address: &Address, options: &Options) -> Result<Self, OpenError> {
        Self::open_with(address, Access::Read, options).map_err(|problem| OpenError::new(address, problem))
    }

    /// Opens an export for reading and writing. `writers` says that the caller has seen to it that no other client
    /// writes.
    ///
    /// # Errors
    /// As [`Self::open`]; [`Problem::ReadOnly`], [`Problem::NoFlush`], [`Problem::MinimumBlock`].
    pub fn open_writable(address: &Address, writers: Writers, options: &Options) -> Result<Self, OpenError> {
        let Writers::OthersKeptOut = writers;
        Self::open_with(address, Access::Write, options).map_err(|problem| OpenError::new(address, problem))
    }

    /// The export without a name of a server that is connected already, over one connection. `name` stands for it in
    /// errors; `writers` is there for an export that is written.
    ///
    /// # Errors
    /// What is wrong with the server.
    pub fn over(socket: UnixStream, name: &str, writers: Option<Writers>, options: &Options) -> Result<Self, Problem> {
        let mut stream = Stream::over(socket);
        let deadline = Instant::now() + options.opening;
        greet(&mut Timed { stream: &mut stream, deadline })?;
        let export = negotiate(&mut Timed { stream: &mut stream, deadline }, "")?;
        let access = if writers.is_some() { Access::Write } else { Access::Read };
        if access == Access::Write {
            verify_writable(&export)?;
        }
        let health = Arc::new(Health::default());
        let connection = Connection::start(stream, &export, options.silence, Arc::clone(&health));
        Ok(Self::new(name.into(), vec![connection.map_err(Problem::Io)?], export, access, health))
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    fn open_with(address: &Address, access: Access, options: &Options) -> Result<Self, Problem> {
        let credentials = match &options.credentials {
            Some(given) if address.trust().is_some() => Some(given.clone()),
            _ => Credentials::find(address)?,
        };
        let connect = |time| connect(address, credentials.as_ref(), time);
        let (stream, export) = connect(options.opening)?;
        if access == Access::Write {
            verify_writable(&export)?;
        }
        let health = Arc::new(Health::default());
        let start = |stream| Connection::start(stream, &export, options.silence, Arc::clone(&health));
        let mut connections = vec![start(stream).map_err(Problem::Io)?];
        while connections.len() < options.connections && export.has(wire::CAN_MULTI_CONN) {
            // A server may allow fewer clients than that.
            let Ok((stream, further)) = connect(FURTHER_OPENING.min(options.opening)) else { break };
            if further != export {
                return Err(Problem::Protocol("its connections are to different exports".into()));
            }
            connections.push(start(stream).map_err(Problem::Io)?);
        }
        Ok(Self::new(address.to_string(), connections, export, access, health))
    }

    fn new(name: String, connections: Vec<Connection>, export: Export, access: Access, health: Arc<Health>) -> Self {
        let longest = export.maximum_bytes.min(PIECE_BYTES);
        Self {
            name,
            connections,
            size_bytes: export.size_bytes - export.size_bytes % u64::from(export.minimum_bytes),
            piece_bytes: 1 << longest.ilog2(),
            access,
            in_flight: InFlight::default(),
            health,
            flush_failure: OnceLock::new(),
            ended: AtomicU64::new(1),
            flushed: Mutex::new(0),
            writes_zeroes: AtomicBool::new(export.has(wire::SEND_WRITE_ZEROES)),
            blocks: RwLock::new(()),
            export,
        }
    }

    fn error(&self, kind: io::ErrorKind, what: &str) -> io::Error {
        io::Error::new(kind, format!("{}: {what}", self.name))
    }

    fn failed(&self, request: Request, error: &ServerError) -> io::Error {
        let Request { command, offset, bytes } = request;
        let range = if bytes > 0 { format!(" of {bytes} bytes at {offset}") } else { String::new() };
        self.error(error.kind(), &format!("the server failed a {}{range}: {error}", command.verb()))
    }

    fn lost(&self, loss: &Loss) -> io::Error {
        loss.error(&self.name)
    }

    fn verify_range(&self, offset: u64, length: u64) -> io::Result<Range<u64>> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size_bytes => Ok(offset..end),
            _ => {
                let what = format!("{length} bytes at {offset} reach past the end, at {}", self.size_bytes);
                Err(self.error(io::ErrorKind::UnexpectedEof, &what))
            }
        }
    }

    fn verify_may_write(&self) -> io::Result<()> {
        if self.access == Access::Read {
            return Err(self.error(io::ErrorKind::PermissionDenied, "the export was opened for reading only"));
        }
        match self.flush_failure.get() {
            Some(error) => Err(self.flush_failed(error)),
            None => Ok(()),
        }
    }

    /// After this no write and no flush succeeds: a later flush could succeed without what this one has lost.
    fn note_flush(&self, failure: Failure) -> io::Error {
        match failure {
            Failure::Lost(loss) => self.lost(&loss),
            Failure::Server(error) => self.flush_failed(self.flush_failure.get_or_init(|| error)),
        }
    }

    fn flush_failed(&self, error: &ServerError) -> io::Error {
        let what = "what was written since the last flush is in doubt: open the image again";
        self.error(error.kind(), &format!("the server failed a flush: {error}; {what}"))
    }

    /// The connection that a piece belongs to.
    fn connection(&self, offset: u64) -> &Connection {
        &self.connections[(offset / self.piece_bytes) as usize % self.connections.len()]
    }

    /// Sends a request for each piece of a range, and gives each answer to `take`.
    fn ask_for_pieces<'a>(
        &'a self,
        pieces: impl Iterator<Item = Range<u64>>,
        send: impl Fn(Range<u64>, Permit<'a>) -> Result<(Request, Ticket<'a>), Loss>,
        mut take: impl FnMut(Request, Answer),
    ) -> io::Result<()> {
        let mut waiting = VecDeque::new();
        let mut result = Ok(());
        let mut finish = |(request, ticket): (Request, Ticket<'a>)| match ticket.wait() {
            Ok(answer) => {
                take(request, answer);
                Ok(())
            }
            Err(Failure::Server(error)) => Err(self.failed(request, &error)),
            Err(Failure::Lost(loss)) => Err(self.lost(&loss)),
        };
        for piece in pieces {
            let bytes = (piece.end - piece.start) as usize;
            // A thread that has requests in flight must not wait for those of others.
            let permit = loop {
                if let Some(permit) = self.in_flight.take(bytes) {
                    break permit;
                }
                match waiting.pop_front() {
                    Some(oldest) => result = result.and(finish(oldest)),
                    None => break self.in_flight.wait(bytes),
                }
            };
            if result.is_err() {
                break;
            }
            match send(piece, permit) {
                Ok(sent) => waiting.push_back(sent),
                Err(loss) => {
                    result = Err(self.lost(&loss));
                    break;
                }
            }
        }
        waiting.into_iter().fold(result, |result, oldest| result.and(finish(oldest)))
    }

    /// Sends one request over the connection of its first byte.
    fn ask(&self, command: Command, range: Range<u64>, permit: Permit<'_>) -> Result<Answer, Failure> {
        let request = Request { command, offset: range.start, bytes: (range.end - range.start) as u32 };
        self.connection(range.start).send(request, &[], permit).map_err(Failure::Lost)?.wait()
    }

    fn write_pieces(&self, range: Range<u64>, data: &[u8], write: Command, zeros: Zeros) -> io::Result<()> {
        let start = range.start;
        let send = |piece: Range<u64>, permit| {
            let data = part(data, start, &piece);
            let (command, sent) = match zeros {
                Zeros::AsRequest if is_zeros(data) => (Command::WriteZeroes, &[][..]),
                _ => (write, data),
            };
            let request = Request { command, offset: piece.start, bytes: data.len() as u32 };
            Ok((request, self.connection(piece.start).send(request, sent, permit)?))
        };
        self.ask_for_pieces(pieces(range, self.piece_bytes), send, |_, _| {})
    }

    /// Writes whole blocks.
    fn write_blocks(&self, range: Range<u64>, data: &[u8]) -> io::Result<()> {
        let start = range.start;
        let zeros = if self.writes_zeroes.load(Ordering::Relaxed) { Zeros::AsRequest } else { Zeros::AsData };
        let mut result = self.write_pieces(range.clone(), data, Command::Write, zeros);
        let unsupported = result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported);
        let mut parts = pieces(range.clone(), self.piece_bytes).map(|piece| part(data, start, &piece));
        if zeros == Zeros::AsRequest && unsupported && parts.any(is_zeros) {
            self.writes_zeroes.store(false, Ordering::Relaxed);
            result = self.write_pieces(range, data, Command::Write, Zeros::AsData);
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// The whole minimum blocks that contain a range.
    fn widened(&self, range: &Range<u64>) -> Range<u64> {
        let block = u64::from(self.export.minimum_bytes);
        range.start - range.start % block..range.end.next_multiple_of(block)
    }
}

/// Connects, and asks for the export.
fn connect(address: &Address, tls: Option<&Credentials>, time: Duration) -> Result<(Stream, Export), Problem> {
    let deadline = Instant::now() + time;
    let mut stream = Stream::connect(&address.server, deadline).map_err(Problem::Unreachable)?;
    let shaken = shake_hands(&mut stream, address, tls, deadline);
    match shaken {
        Ok(export) => Ok((stream, export)),
        Err(Problem::Io(error)) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Err(Problem::Silent(time))
        }
        Err(problem) => Err(problem),
    }
}

fn shake_hands(
    stream: &mut Stream,
    address: &Address,
    tls: Option<&Credentials>,
    deadline: Instant,
) -> Result<Export, Problem> {
    greet(&mut Timed { stream, deadline })?;
    if let Some(credentials) = tls {
        start_tls(&mut Timed { stream, deadline })?;
        stream.secure(|socket| credentials.start(socket, deadline)).map_err(problem)?;
    }
    negotiate(&mut Timed { stream, deadline }, address.export())
}

fn verify_writable(export: &Export) -> Result<(), Problem> {
    if export.has(wire::READ_ONLY) {
        return Err(Problem::ReadOnly);
    }
    if !export.has(wire::SEND_FLUSH) {
        return Err(Problem::NoFlush);
    }
    match export.minimum_bytes {
        minimum if minimum > MAX_SECTOR_BYTES => Err(Problem::MinimumBlock(minimum)),
        _ => Ok(()),
    }
}

/// Cuts a range at the multiples of a length.
fn pieces(range: Range<u64>, bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let piece = at..(at - at % bytes).saturating_add(bytes).min(range.end);
        at = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The bytes of a piece, of data that begin at `start`.
fn part<'a>(data: &'a [u8], start: u64, piece: &Range<u64>) -> &'a [u8] {
    &data[(piece.start - start) as usize..(piece.end - start) as usize]
}

fn is_zeros(data: &[u8]) -> bool {
    data.len() >= MIN_ZEROS_BYTES && data.iter().all(|byte| *byte == 0)
}

impl BlockDevice for NbdDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn hints(&self) -> Hints {
        Hints {
            sector_bytes: self.export.minimum_bytes.max(SECTOR_BYTES) as usize,
            queue_depth: QUEUE_DEPTH,
            supports_fua: self.export.has(wire::SEND_FUA),
            read_only: self.access == Access::Read,
            ..Hints::of(self)
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let wanted = self.verify_range(offset, buffer.len() as u64)?;
        let send = |piece: Range<u64>, permit| {
            let bytes = (piece.end - piece.start) as u32;
            let request = Request { command: Command::Read, offset: piece.start, bytes };
            Ok((request, self.connection(piece.start).send(request, &[], permit)?))
        };
        self.ask_for_pieces(pieces(self.widened(&wanted), self.piece_bytes), send, |request, answer| {
            let Answer::Data(data) = answer else { unreachable!("a read that succeeds has data") };
            let end = request.offset + data.len() as u64;
            let both = request.offset.max(wanted.start)..end.min(wanted.end);
            let to = (both.start - offset) as usize..(both.end - offset) as usize;
            buffer[to].copy_from_slice(part(&data, request.offset, &both));
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = self.verify_range(offset, data.len() as u64)?;
        self.verify_may_write()?;
        let whole = self.widened(&range);
        if whole == range {
            let _others_may = self.blocks.read();
            return self.write_blocks(range, data);
        }
        // The contents of files are written in pieces of any size.
        let _alone = self.blocks.write();
        let mut blocks = vec![0; (whole.end - whole.start) as usize];
        self.read(whole.start, &mut blocks)?;
        blocks[(range.start - whole.start) as usize..][..data.len()].copy_from_slice(data);
        self.write_blocks(whole, &blocks)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = self.verify_range(offset, data.len() as u64)?;
        if !self.export.has(wire::SEND_FUA) || self.widened(&range) != range {
            self.write(offset, data)?;
            return self.flush();
        }
        self.verify_may_write()?;
        let _others_may = self.blocks.read();
        let result = self.write_pieces(range, data, Command::WriteDurably, Zeros::AsData);
        // One that failed may have arrived all the same.
        self.ended.fetch_add(1, Ordering::SeqCst);
        result?;
        // Another connection may have been lost meanwhile, and with it what was written there.
        self.health.get().map_or(Ok(()), |loss| Err(self.lost(loss)))
    }

    fn flush(&self) -> io::Result<()> {
        let ended = self.ended.load(Ordering::SeqCst);
        // One at a time: of two flushes at once a server may report an error to one only.
        let mut flushed = self.flushed.lock();
        if self.access == Access::Write {
            self.verify_may_write()?;
            if *flushed < ended {
                self.ask(Command::Flush, 0..0, self.in_flight.beside()).map_err(|failure| self.note_flush(failure))?;
            }
        }
        // Another connection may have been lost meanwhile, and with it what was written there.
        if let Some(loss) = self.health.get() {
            return Err(self.lost(loss));
        }
        *flushed = ended.max(*flushed);
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let range = self.verify_range(offset, length)?;
        self.verify_may_write()?;
        if !self.export.has(wire::SEND_TRIM) {
            return Ok(());
        }
        let block = u64::from(self.export.minimum_bytes);
        let whole = range.start.next_multiple_of(block)..range.end - range.end % block;
        let mut result = Ok(());
        for piece in pieces(whole.start..whole.end.max(whole.start), HINT_BYTES) {
            let bytes = (piece.end - piece.start) as u32;
            match self.ask(Command::Trim, piece.clone(), self.in_flight.wait(0)) {
                Ok(_) => {}
                Err(Failure::Lost(loss)) => result = Err(self.lost(&loss)),
                Err(Failure::Server(error)) if error.number == wire::ENOTSUP => break,
                Err(Failure::Server(error)) => {
                    let request = Request { command: Command::Trim, offset: piece.start, bytes };
                    result = Err(self.failed(request, &error));
                }
            }
            if result.is_err() {
                break;
            }
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        result
    }

    fn allocate(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(self.error(io::ErrorKind::Unsupported, "a server cannot set space aside without changing what is there"))
    }

    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length).min(self.size_bytes);
        let mut at = offset;
        for _ in 0..MAX_QUERIES {
            if at >= end {
                return false;
            }
            if self.export.context.is_none() {
                return true;
            }
            let part = self.widened(&(at..end.min(at.saturating_add(HINT_BYTES))));
            match self.ask(Command::BlockStatus, part.clone(), self.in_flight.wait(0)) {
                Ok(Answer::Zeros { leading_bytes, covered_bytes }) => {
                    let zeros_end = part.start.saturating_add(leading_bytes);
                    if leading_bytes < covered_bytes && zeros_end < end {
                        return true;
                    }
                    at = at.max(zeros_end);
                }
                _ => return true,
            }
        }
        true
    }
}

impl std::fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NbdDevice").field("name", &self.name).field("size_bytes", &self.size_bytes).finish()
    }
}

//! One connection: any number of threads send requests, and a reader thread receives the replies.
//!
//! ```text
//! caller:  table: new cookie -> sender: header, data -> wait in the slot ............... -> take the outcome
//! reader:                                             receive -> table: out -> slot: outcome, wake the caller
//! ```
//!
//! A request is in the table from before its first byte is sent until it is answered or the connection is lost. A loss
//! is stored once, in [`Health`], which all connections of a device share; then the requests in the table fail and the
//! socket is shut down. A request that comes to any of their tables later is refused. So every request gets an outcome.
//!
//! Locks, in this order: `sender`, `table`, a slot. The reader thread never takes `sender`.

use crate::error::{Failure, Loss};
use crate::handshake::Export;
use crate::limits::Permit;
use crate::reply::{Answer, Outcome, Replies, Source};
use crate::stream::Stream;
use crate::wire::{self, Command, Request};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::io::{self, BufReader, IoSlice, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const READ_AHEAD_BYTES: usize = 64 << 10;

/// The loss of a device: that of the first of its connections that was lost.
pub type Health = OnceLock<Loss>;

/// A connection in the transmission phase.
pub struct Connection {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

struct Shared {
    stream: Stream,
    health: Arc<Health>,
    sender: Mutex<()>,
    table: Mutex<Table>,
    /// How long requests may wait while no byte moves.
    silence: Duration,
    started: Instant,
    /// When a byte was last received or sent, from `started` on.
    moved_ms: AtomicU64,
}

#[derive(Default)]
struct Table {
    next_cookie: u64,
    in_flight: HashMap<u64, Entry>,
}

struct Entry {
    request: Request,
    since: Instant,
    slot: Arc<Slot>,
}

#[derive(Default)]
struct Slot {
    outcome: Mutex<Option<Result<Answer, Failure>>>,
    answered: Condvar,
}

impl Slot {
    fn put(&self, outcome: Result<Answer, Failure>) {
        *self.outcome.lock() = Some(outcome);
        self.answered.notify_one();
    }
}

/// A request that was sent.
pub struct Ticket<'a> {
    slot: Arc<Slot>,
    _permit: Permit<'a>,
}

impl Ticket<'_> {
    /// Waits for the outcome. It comes: the reader thread finds out when the connection is lost.
    pub fn wait(self) -> Result<Answer, Failure> {
        let mut outcome = self.slot.outcome.lock();
        loop {
            match outcome.take() {
                Some(outcome) => return outcome,
                None => self.slot.answered.wait(&mut outcome),
            }
        }
    }
}

impl Connection {
    /// Starts the reader thread of a connection whose handshake is complete.
    pub fn start(stream: Stream, export: &Export, silence: Duration, health: Arc<Health>) -> io::Result<Self> {
        stream.set_timeouts((silence / 4).max(Duration::from_millis(1)))?;
        let shared = Arc::new(Shared {
            stream,
            health,
            sender: Mutex::default(),
            table: Mutex::default(),
            silence,
            started: Instant::now(),
            moved_ms: AtomicU64::new(0),
        });
        let replies = Replies::new(export.structured, export.context);
        let of_reader = Arc::clone(&shared);
        let reader = std::thread::Builder::new().name("nbd-reader".into()).spawn(move || of_reader.receive(replies))?;
        Ok(Self { shared, reader: Some(reader) })
    }

    /// Sends a request. When this returns, `data` has been sent.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send<'a>(&self, request: Request, data: &[u8], permit: Permit<'a>) -> Result<Ticket<'a>, Loss> {
        let slot = Arc::new(Slot::default());
        let cookie = self.shared.enter(request, Arc::clone(&slot))?;
        self.shared.send(&request.header(cookie), data)?;
        Ok(Ticket { slot, _permit: permit })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let last = Request { command: Command::Disconnect, offset: 0, bytes: 0 };
        if self.shared.health.get().is_none() {
            // A server that does not take it sees the end of the connection.
            let _ = self.shared.stream.send(&[IoSlice::new(&last.header(0))]);
            let _ = self.shared.stream.send_rest();
        }
        self.shared.stream.shut_down();
        if let Some(reader) = self.reader.take() {
            // A panic has been printed, and the requests have failed.
            let _ = reader.join();
        }
    }
}

impl Shared {
    fn enter(&self, request: Request, slot: Arc<Slot>) -> Result<u64, Loss> {
        let mut table = self.table.lock();
        // Looked at under the lock: what enters before a loss is stored is found in the table afterwards.
        if let Some(loss) = self.health.get() {
            return Err(loss.clone());
        }
        let cookie = table.next_cookie;
        table.next_cookie += 1;
        table.in_flight.insert(cookie, Entry { request, since: Instant::now(), slot });
        Ok(cookie)
    }

    fn send(&self, header: &[u8], data: &[u8]) -> Result<(), Loss> {
        let _sender = self.sender.lock();
        let mut slices = [IoSlice::new(header), IoSlice::new(data)];
        let mut left = &mut slices[..];
        // Leaves out slices that are empty.
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match self.stream.send(left) {
                Ok(sent) => {
                    self.moved();
                    IoSlice::advance_slices(&mut left, sent);
                }
                Err(error) => self.go_on_after(&error).inspect_err(|loss| self.lose(loss))?,
            }
        }
        loop {
            match self.stream.send_rest() {
                Ok(0) => return Ok(()),
                Ok(_) => self.moved(),
                Err(error) => self.go_on_after(&error).inspect_err(|loss| self.lose(loss))?,
            }
        }
    }

    /// Whether an error of the socket is only that of a time without a byte.
    fn go_on_after(&self, error: &io::Error) -> Result<(), Loss> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if self.is_silent() => Err(Loss::silent(self.silence)),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(()),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Err(Loss::closed()),
            _ => Err(Loss::of(error)),
        }
    }

    fn moved(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether a request has waited for too long without a byte that moved.
    fn is_silent(&self) -> bool {
        let moved = self.started + Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        let table = self.table.lock();
        let oldest = table.in_flight.values().map(|entry| entry.since).min();
        oldest.is_some_and(|oldest| oldest.max(moved).elapsed() >= self.silence)
    }

    /// The reader thread.
    fn receive(&self, mut replies: Replies) {
        let _end = Ending(self);
        let mut received = Received { shared: self, bytes: BufReader::with_capacity(READ_AHEAD_BYTES, &self.stream) };
        let loss = loop {
            let find = |cookie| self.table.lock().in_flight.get(&cookie).map(|entry| entry.request);
            match replies.receive(&mut received, find) {
                Ok(Some((cookie, outcome))) => {
                    // The protocol allows no request after this answer.
                    if matches!(&outcome, Err(error) if error.number == wire::ESHUTDOWN) {
                        break Loss::shutting_down();
                    }
                    self.answer(cookie, outcome);
                }
                Ok(None) => {}
                Err(loss) => break loss,
            }
        };
        self.lose(&loss);
    }

    fn answer(&self, cookie: u64, outcome: Outcome) {
        // A loss that another thread has found has emptied the table.
        if let Some(entry) = self.table.lock().in_flight.remove(&cookie) {
            entry.slot.put(outcome.map_err(Failure::Server));
        }
    }

    /// Ends the connection and the device. Only the first loss counts.
    fn lose(&self, loss: &Loss) {
        let loss = self.health.get_or_init(|| loss.clone());
        let in_flight = std::mem::take(&mut self.table.lock().in_flight);
        for entry in in_flight.into_values() {
            entry.slot.put(Err(Failure::Lost(loss.clone())));
        }
        self.stream.shut_down();
    }
}

/// However the reader thread ends, no request waits for ever.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lose(&Loss::closed());
    }
}

struct Received<'a> {
    shared: &'a Shared,
    bytes: BufReader<&'a Stream>,
}

impl Source for Received<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Loss> {
        let mut done = 0;
        while done < buffer.len() {
            match self.bytes.read(&mut buffer[done..]) {
                Ok(0) => return Err(Loss::closed()),
                Ok(count) => {
                    done += count;
                    self.shared.moved();
                }
                Err(error) => self.shared.go_on_after(&error)?,
            }
        }
        Ok(())
    }
}

//! A session: threads that read requests, let the filesystem answer them, and send the replies.
//!
//! ```text
//! read ─▶ decode ─┬─ forget ─▶ no reply
//!                 ├─ may wait ─▶ a thread of its own (waiters.rs), or this one if it waits alone ─▶ reply
//!                 ├─ fsync, while others wait ─▶ begun here, waited for together ─▶ reply
//!                 └─ else ─▶ answered by the thread that has read it ─▶ reply
//! ```
//! Where the kernel offers io_uring, requests with replies come by queues of their own (ring/mod.rs).
//!
//! Each thread has its own descriptor of the connection and its own two buffers: one into which the kernel copies
//! requests, and one from which it copies replies. The filesystem reads and writes there, so contents are copied once
//! on the way between the kernel and the image.
//!
//! The session ends when the kernel ends the connection, or with the request DESTROY; then [`Session::run`] returns.
//! Requests that wait may still be running: the filesystem is dropped after the last of them.

use crate::answering::data_only_of_fsync;
use crate::channel::{Channel, Received, WhenEmpty};
use crate::counters::Counters;
use crate::filesystem::Filesystem;
use crate::follower::{self, Client, Place, Post};
use crate::forgets::{Doing, Forgets, Reader};
use crate::init::negotiate;
use crate::notify::Notifier;
use crate::opcode;
use crate::readers::{EndsSession, PoolTurn, Readers, Ticks, Why};
use crate::request::{Body, Operation, Request, decode, decode_header};
use crate::ring::Queues;
use crate::shared::{Config, Guard, HEAD_BYTES, MIN_REPLY_BYTES, Placement, Shared, waits_for_requests};
use crate::spare::SpareThread;
use crate::waiters::Waiters;
use parking_lot::Mutex;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the follower waits for a request before the pool reads again.
const QUIET_AFTER: Duration = Duration::from_millis(20);

/// A session whose first request has been answered.
pub struct Session<F> {
    shared: Arc<Shared<F>>,
    channel: Channel,
    queues: Option<Queues<F>>,
    /// `/dev/fuse`, opened once for each further descriptor of the connection.
    devices: Vec<OwnedFd>,
    spare: Option<SpareThread>,
}

/// Whether a thread goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    End,
}

impl<F: Filesystem> Session<F> {
    /// Reads the first request from a connection and answers it.
    ///
    /// # Errors
    /// `NotConnected` if the connection ends, `InvalidData` if it begins with another request, `Unsupported` for a
    /// kernel that is too old; the system's.
    pub fn begin(mut filesystem: F, connection: OwnedFd, config: Config) -> io::Result<Self> {
        let channel = Channel::new(connection);
        let waiters = Waiters::start()?;
        let start = || {
            let payload_bytes = MIN_REPLY_BYTES.max(config.max_write as usize);
            // Without queues all requests come by the connection itself.
            let queues = Queues::start(channel.fd(), payload_bytes);
            queues.inspect_err(|error| tracing::info!(%error, "requests do not come by io_uring")).ok()
        };
        let (agreed, queues) = negotiate(&mut filesystem, &channel, config.max_write, start)?;
        let (has_panicked, held_back) = (AtomicBool::new(false), AtomicUsize::new(0));
        let counters = Arc::default();
        let waiting = AtomicUsize::new(0);
        let readers = Readers::new();
        let shared = Shared {
            filesystem,
            connection: channel.clone(),
            forgets: Forgets::default(),
            agreed,
            config,
            counters,
            waiters,
            has_panicked,
            held_back,
            waiting,
            readers,
            guard: OnceLock::new(),
        };
        let shared = Arc::new(shared);
        shared.counters.count(opcode::INIT);
        if let Some(queues) = &queues {
            queues.begin(&shared);
        }
        Ok(Self { shared, channel, queues, devices: Vec::new(), spare: None })
    }

    /// For a process that cannot open `/dev/fuse`: makes further descriptors of the connection of these, which are
    /// `/dev/fuse`, each opened anew. A session needs as many as it has threads ([`Config::threads`]).
    #[must_use]
    pub fn with_devices(self, devices: Vec<OwnedFd>) -> Self {
        Self { devices, ..self }
    }

    /// For a process in a sandbox, whose threads may say how that one runs, and no other: it follows lone clients, if
    /// any thread does.
    #[must_use]
    pub fn with_follower(self, spare: SpareThread) -> Self {
        Self { spare: Some(spare), ..self }
    }

    /// What sends notices to the kernel.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.channel.clone())
    }

    /// Counts of requests.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Answers requests until the kernel ends the connection.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` if the other side of a socket closes it without the request DESTROY.
    pub fn run(mut self) -> io::Result<()> {
        let mut channels = vec![self.channel.clone()];
        for _ in 1..self.shared.config.threads.max(1) {
            channels.push(self.channel.another(self.devices.pop(), WhenEmpty::Waits)?);
        }
        let mut threads = Vec::new();
        let device = self.devices.pop();
        threads.extend(self.start_follower(device));
        for (number, channel) in channels.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name(format!("fuse-{number}"));
            threads.push(thread.spawn(move || shared.serve(&channel))?);
        }
        let mut result = Ok(());
        for thread in threads {
            result = result.and(thread.join().unwrap_or_else(|_| Err(panicked())));
        }
        if let Some(queues) = self.queues {
            queues.join();
        }
        if self.shared.has_panicked.load(Ordering::Relaxed) { result.and(Err(panicked())) } else { result }
    }

    /// Starts the follower, if there is to be one. What the system refuses of it is logged: then there is none.
    fn start_follower(&mut self, device: Option<OwnedFd>) -> Option<JoinHandle<io::Result<()>>> {
        let Config { threads: pool, placement, .. } = self.shared.config;
        let spare = self.spare.take();
        // Queues of io_uring are of processors already, and a lone thread has no guard.
        if placement == Placement::Scheduler || pool < 2 || self.queues.is_some() {
            return None;
        }
        let shared = Arc::clone(&self.shared);
        let started = self.channel.another(device, WhenEmpty::Returns).and_then(|channel| {
            let work = move || match Place::of_this_thread() {
                Ok(place) => shared.follow(&channel, &Arc::new(place)),
                Err(error) => {
                    tracing::info!(%error, "lone clients are not followed");
                    Ok(())
                }
            };
            spare.map_or_else(SpareThread::start, Ok)?.run(Box::new(work))
        });
        started.inspect_err(|error| tracing::info!(%error, "lone clients are not followed")).ok()
    }
}

fn panicked() -> io::Error {
    io::Error::other("a thread that answers requests panicked")
}

impl<F: Filesystem> Shared<F> {
    /// The work of a thread of the pool.
    fn serve(self: &Arc<Self>, channel: &Channel) -> io::Result<()> {
        // Others may wait for their turn.
        let _ends = EndsSession(&self.readers);
        let mut buffer = vec![0; self.request_bytes()];
        let mut out = vec![0; self.reply_bytes()];
        let registered = self.forgets.register();
        let reader = &*registered.reader;
        loop {
            if self.await_turn(channel) == PoolTurn::End {
                return Ok(());
            }
            reader.set(Doing::Reads);
            let received = channel.receive(&mut buffer);
            reader.set(Doing::Forgets);
            match received? {
                Received::Request(length) => {
                    let others = self.waiting.load(Ordering::Relaxed);
                    let _answering = self.readers.pool_answers(client_of(&buffer[..length]), others);
                    if self.process((channel, reader), &mut buffer, length, &mut out) == Next::End {
                        return Ok(());
                    }
                }
                Received::Nothing => {}
                Received::End => return Ok(()),
                Received::Closed => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other side has closed it"));
                }
            }
            reader.set(Doing::Other);
        }
    }

    /// Waits until the pool reads. The first thread that waits is the guard.
    fn await_turn(&self, channel: &Channel) -> PoolTurn {
        if !self.readers.is_followed() {
            return PoolTurn::Read;
        }
        let mut guard = self.guard.get().and_then(Mutex::try_lock);
        let at_tick = guard.as_deref_mut().map(|Guard { place, ticks }| {
            let place: &Place = place;
            let mut post = Post::beside(place);
            move || {
                post.go_beside();
                let stuck = self.readers.is_stuck(ticks, || channel.has_request(Duration::ZERO));
                follower::guard(&self.readers, place, stuck);
                ticks.pause()
            }
        });
        self.readers.await_pool_turn(at_tick)
    }

    /// The work of the follower.
    fn follow(self: &Arc<Self>, channel: &Channel, place: &Arc<Place>) -> io::Result<()> {
        // There is one follower, so this is the only call.
        let _ = self.guard.set(Mutex::new(Guard { place: Arc::clone(place), ticks: Ticks::default() }));
        let _following = self.readers.become_follower();
        let mut buffer = vec![0; self.request_bytes()];
        let mut out = vec![0; self.reply_bytes()];
        let registered = self.forgets.register();
        let reader = &*registered.reader;
        while let Some(stint) = self.readers.await_client() {
            let mut client = Client::new(stint.client, place);
            while self.readers.is_in(&stint) {
                reader.set(Doing::Reads);
                let received = channel.receive(&mut buffer);
                reader.set(if matches!(received, Ok(Received::Request(_))) { Doing::Forgets } else { Doing::Other });
                match received? {
                    Received::Request(length) => {
                        if self.answer_lone((channel, reader), &mut client, &mut buffer, length, &mut out) == Next::End
                        {
                            self.readers.end_by_follower();
                            return Ok(());
                        }
                        reader.set(Doing::Other);
                        client.follow(place);
                        if let Some(why) = client.is_over() {
                            self.readers.ask_to_end(why);
                        }
                    }
                    // The client ran before this thread did, so that its next request mostly waits by now.
                    Received::Nothing => {
                        if !channel.has_request(QUIET_AFTER) {
                            self.readers.ask_to_end(Why::Quiet);
                            // The pool may be the one to take the next.
                            channel.await_request();
                        }
                    }
                    Received::End | Received::Closed => {
                        self.readers.end_by_follower();
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn answer_lone(
        self: &Arc<Self>,
        (channel, reader): (&Channel, &Reader),
        client: &mut Client,
        buffer: &mut Vec<u8>,
        length: usize,
        out: &mut [u8],
    ) -> Next {
        let _answering = self.readers.follower_answers();
        self.counters.count_followed();
        match decode_header(&buffer[..length]) {
            Some((header, _)) if opcode::is_silent(header.opcode) => client.note_silent(),
            header => {
                let id = header.map_or(0, |(header, _)| header.pid);
                client.note(id, || channel.has_request(Duration::ZERO));
            }
        }
        self.process((channel, reader), buffer, length, out)
    }

    /// Answers the request in `buffer`, or gives it to a thread that may wait. The buffer is then another one.
    fn process(
        self: &Arc<Self>,
        (channel, reader): (&Channel, &Reader),
        buffer: &mut Vec<u8>,
        length: usize,
        out: &mut [u8],
    ) -> Next {
        let message = &buffer[..length];
        let Some((header, body)) = decode_header(message) else {
            tracing::error!(length, "a request is shorter than its header");
            return Next::Continue;
        };
        self.counters.count(header.opcode);
        let request = match decode(&header, Body::whole(body), self.has_setxattr_ext()) {
            Ok(request) => request,
            Err(_) if opcode::is_silent(header.opcode) => return Next::Continue,
            Err(error) => {
                channel.reply(header.unique, Err(error));
                return Next::Continue;
            }
        };
        if self.forget(&request) {
            return Next::Continue;
        }
        reader.set(Doing::Other);
        self.forgets.count_request();
        let is_last = request.operation == Operation::Destroy;
        if !self.answer_now(channel, &request, out) {
            let message = if length <= HEAD_BYTES {
                message.to_vec()
            } else {
                std::mem::replace(buffer, vec![0; self.request_bytes()])
            };
            self.answer_elsewhere(channel.clone(), message, length);
        }
        if is_last { Next::End } else { Next::Continue }
    }

    /// Answers a request, or begins to; `false`: a thread that may wait is to do it, and it is counted as waiting.
    fn answer_now(self: &Arc<Self>, channel: &Channel, request: &Request<'_>, out: &mut [u8]) -> bool {
        let is_held_up = self.is_held_up(request);
        if !is_held_up && !self.filesystem.may_wait(request) {
            if self.answer_here(channel, request, out) {
                return true;
            }
            self.counters.count_waiter();
            self.waiting.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.counters.count_waiter();
        // To hand a request over wakes a thread, which takes a lone writer longer than the flush of a fast disk. So
        // a request that waits alone is answered here, if another thread is left for what comes meanwhile. For the
        // follower the guard will find one; but what waits for other requests would wait for that, too.
        let is_alone = self.waiting.fetch_add(1, Ordering::Relaxed) == 0;
        let has_other = self.config.threads > 1 && !(self.readers.is_followed() && waits_for_requests(request));
        if is_held_up {
            return false;
        }
        if is_alone && has_other {
            let is_answered = self.answer_here(channel, request, out);
            if is_answered {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            return is_answered;
        }
        let Some(data_only) = data_only_of_fsync(&request.operation) else { return false };
        let (channel, unique, shared) = (channel.clone(), request.unique, Arc::clone(self));
        self.fsync_with_others(request.node, data_only, move |answer| {
            channel.reply(unique, answer.map(|()| &[][..]));
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
        });
        true
    }
}

/// The client of a message: the number of a thread; 0 for the kernel itself, and what this process cannot see.
fn client_of(message: &[u8]) -> u32 {
    decode_header(message).map_or(0, |(header, _)| header.pid)
}

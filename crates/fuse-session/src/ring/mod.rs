//! Requests by io_uring: a queue for each processor, whose thread runs on that processor.
//!
//! ```text
//! start ─ before the first request is answered: ring and memory, or no queues at all
//! begin ─ REGISTER each entry ──▶ complete: a request is in the entry
//!                                    │ answered
//!         COMMIT_AND_FETCH ◀─────────┤
//!                                    └ waits: another thread answers ─▶ mailbox, eventfd ─▶ COMMIT_AND_FETCH
//! end   ─ the kernel completes the commands with an error
//! ```
//! The kernel puts a request into the queue of the processor on which the program runs, so its server runs there too,
//! and one system call replies and waits. What has no reply comes by `/dev/fuse`. An entry whose request waits is not
//! there for others, so a queue has many; the last ones are not for requests that wait for other requests
//! ([`Queue::is_scarce`]).
//!
//! Locking: the mailbox's mutex, under which nothing is done. Memory: see `entry.rs`. The ring is dropped before the
//! memory of its entries.
//!
//! Source of facts: `Documentation/filesystems/fuse/fuse-io-uring.rst`, `fs/fuse/dev_uring.c`, Linux 6.18.

mod entry;

use crate::answer::Then;
use crate::answering::{Answered, Attempt, data_only_of_fsync};
use crate::filesystem::Filesystem;
use crate::forgets::Left;
use crate::request::{Body, decode};
use crate::shared::{MIN_REPLY_BYTES, Shared, waits_for_requests};
use crate::{Errno, opcode};
use entry::{Entry, Found};
use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Place of the length in a submission, which is the number of vectors when an entry is registered.
const LENGTH_AT: usize = 24;
const VECTORS: u32 = 2;
/// Marks the completion of a read of the eventfd.
const MAIL: u64 = u64::MAX;
/// Entries of all queues together, and of one at least and at most.
const ENTRIES: usize = 512;
const FEWEST: usize = 16;
const MOST: usize = 128;
/// Entries of a queue that are not for requests that wait for other requests.
const SPARE: usize = 8;

type Ring = IoUring<Entry128, cqueue::Entry>;

/// A reply by another thread than the queue's.
struct Mail {
    entry: usize,
    answer: Result<Vec<u8>, Errno>,
}

/// Where other threads put replies.
#[derive(Clone)]
struct Mailbox(Arc<(Mutex<Vec<Mail>>, OwnedFd)>);

impl Mailbox {
    fn post(&self, mail: Mail) {
        self.0.0.lock().push(mail);
        // The counter cannot overflow: each message adds one.
        let _ = rustix::io::write(&self.0.1, &1u64.to_ne_bytes());
    }
}

/// Queues that are ready, and wait until the kernel has agreed to them.
pub(crate) struct Queues<F>(Vec<QueueThread<F>>);

struct QueueThread<F> {
    /// A message begins the work; without one the thread ends.
    begin: Sender<Arc<Shared<F>>>,
    thread: JoinHandle<()>,
}

impl<F: Filesystem> Queues<F> {
    /// Makes a queue for each processor that there could be.
    ///
    /// # Errors
    /// The system's, of io_uring or threads; then there are no queues.
    pub(crate) fn start(connection: &OwnedFd, payload_bytes: usize) -> io::Result<Self> {
        let count = possible_processors()?;
        let entries = (ENTRIES / count).clamp(FEWEST, MOST);
        let mut threads = Vec::new();
        for processor in 0..count {
            let connection = connection.try_clone()?;
            let (begin, begins) = channel();
            let (ready, is_ready) = channel();
            let work = move || run(processor, connection, (entries, payload_bytes), &ready, &begins);
            let thread = std::thread::Builder::new().name(format!("fuse-ring-{processor}")).spawn(work)?;
            is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("the thread of a queue ended")))?;
            threads.push(QueueThread { begin, thread });
        }
        Ok(Self(threads))
    }

    /// Lets the queues take requests.
    pub(crate) fn begin(&self, shared: &Arc<Shared<F>>) {
        for QueueThread { begin, .. } in &self.0 {
            // This fails when the thread has ended: it has said why.
            let _ = begin.send(Arc::clone(shared));
        }
    }

    /// Waits until the kernel has ended them.
    pub(crate) fn join(self) {
        for QueueThread { begin, thread } in self.0 {
            drop(begin);
            // The session knows of panics.
            let _ = thread.join();
        }
    }
}

/// The number of processors that there could be: the kernel wants a queue for each.
fn possible_processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other("the processors cannot be counted"))
}

/// Runs on the thread of a queue.
fn run<F: Filesystem>(
    processor: usize,
    connection: OwnedFd,
    (entries, payload_bytes): (usize, usize),
    ready: &Sender<io::Result<()>>,
    begins: &Receiver<Arc<Shared<F>>>,
) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    // A processor that is off runs no programs, so its queue is empty and may be anywhere.
    let _ = rustix::thread::sched_setaffinity(None, &set);
    let queue = Queue::new(processor, connection, entries, payload_bytes);
    let mut queue = match queue {
        Ok(queue) => queue,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    if ready.send(Ok(())).is_err() {
        return;
    }
    // Without a message the kernel has not agreed.
    let Ok(shared) = begins.recv() else { return };
    match queue.serve(&shared) {
        Err(error) if queue.has_served => tracing::error!(%error, processor, "a queue of requests failed"),
        // The kernel then sends all requests by the connection itself.
        Err(error) => tracing::info!(%error, processor, "requests do not come by io_uring"),
        Ok(()) => {}
    }
}

/// A queue.
struct Queue {
    ring: Ring,
    entries: Vec<Entry>,
    /// What the server knows of the request in each entry.
    requests: Vec<Option<Found>>,
    connection: OwnedFd,
    number: usize,
    mailbox: Mailbox,
    /// Where the kernel puts the eventfd's counter.
    counter: Box<[u8; 8]>,
    /// Entries that other threads answer.
    elsewhere: usize,
    /// Commands that the kernel has.
    commands: usize,
    has_ended: bool,
    /// A request has come: before that the kernel may refuse it, and needs no queues.
    has_served: bool,
}

impl Queue {
    fn new(number: usize, connection: OwnedFd, entries: usize, payload_bytes: usize) -> io::Result<Self> {
        let mut builder = Ring::builder();
        builder.setup_single_issuer().setup_coop_taskrun().setup_defer_taskrun();
        let ring = builder.build((entries + 1).next_power_of_two() as u32)?;
        let fd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            ring,
            entries: (0..entries).map(|_| Entry::new(payload_bytes)).collect(),
            requests: (0..entries).map(|_| None).collect(),
            connection,
            number,
            mailbox: Mailbox(Arc::new((Mutex::default(), fd))),
            counter: Box::new([0; 8]),
            elsewhere: 0,
            commands: 0,
            has_ended: false,
            has_served: false,
        })
    }

    /// Gives the kernel a command.
    #[allow(unsafe_code)]
    fn push(&mut self, submission: &Entry128) -> io::Result<()> {
        self.commands += 1;
        // SAFETY: what the kernel reads or writes for a submission is memory of an entry or the counter. Both are
        // allocations of this queue, which neither move nor end before the ring, and the server does not touch them
        // until the command is complete.
        while unsafe { self.ring.submission().push(submission) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn register(&mut self, index: usize) -> io::Result<()> {
        let command = self.command(REGISTER, 0).addr(Some(self.entries[index].address()));
        let mut submission = command.build().user_data(index as u64);
        set_length(&mut submission, VECTORS);
        self.push(&submission)
    }

    /// Sends the reply that is in an entry, and asks for the next request.
    fn commit(&mut self, index: usize, commit_id: u64) -> io::Result<()> {
        let submission = self.command(COMMIT_AND_FETCH, commit_id).build().user_data(index as u64);
        self.push(&submission)
    }

    fn command(&self, code: u32, commit_id: u64) -> io_uring::opcode::UringCmd80 {
        let mut bytes = [0; 80];
        bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        bytes[16..18].copy_from_slice(&(self.number as u16).to_ne_bytes());
        io_uring::opcode::UringCmd80::new(Fd(self.connection.as_raw_fd()), code).cmd(bytes)
    }

    fn await_mail(&mut self) -> io::Result<()> {
        let fd = Fd(self.mailbox.0.1.as_raw_fd());
        let read = io_uring::opcode::Read::new(fd, self.counter.as_mut_ptr(), 8).build().user_data(MAIL);
        self.push(&read.into())
    }

    fn serve<F: Filesystem>(&mut self, shared: &Arc<Shared<F>>) -> io::Result<()> {
        let mut out = vec![0; MIN_REPLY_BYTES];
        (0..self.entries.len()).try_for_each(|index| self.register(index))?;
        self.await_mail()?;
        // The read of the eventfd is left at the end; it goes with the ring.
        while self.commands > 1 || !self.has_ended && self.elsewhere > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                Err(error) => return Err(error),
            }
            loop {
                let next = self.ring.completion().next();
                let Some(completion) = next else { break };
                self.commands -= 1;
                match (completion.user_data(), completion.result()) {
                    (MAIL, _) => {
                        self.await_mail()?;
                        self.deliver()?;
                    }
                    (index, 0..) => {
                        self.answer(shared, index as usize, &mut out)?;
                        // One reply must not wait for the answers to others.
                        self.ring.submit()?;
                    }
                    (_, error) => self.end(error),
                }
            }
        }
        Ok(())
    }

    /// The kernel has given back an entry without a request.
    fn end(&mut self, error: i32) {
        let error = Errno::from_raw_os_error(-error);
        if [Errno::NOTCONN, Errno::CANCELED, Errno::NODEV, Errno::CONNABORTED].contains(&error) {
            self.has_ended = true;
        } else if !self.has_ended && !self.has_served {
            tracing::info!(%error, queue = self.number, "requests do not come by io_uring");
        } else if !self.has_ended {
            // The others serve on.
            tracing::error!(%error, queue = self.number, "the kernel refused an entry of a queue");
        }
    }

    /// Sends the replies of other threads.
    fn deliver(&mut self) -> io::Result<()> {
        let mail = std::mem::take(&mut *self.mailbox.0.0.lock());
        for Mail { entry, answer } in mail {
            self.elsewhere -= 1;
            let Some(found) = self.requests[entry].take() else { continue };
            let answer = answer.map(|bytes| {
                self.entries[entry].payload[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            });
            self.reply(entry, &found, answer)?;
        }
        Ok(())
    }

    fn reply(&mut self, index: usize, found: &Found, answer: Result<usize, Errno>) -> io::Result<()> {
        self.entries[index].put_reply(found.header.unique, answer);
        if self.has_ended { Ok(()) } else { self.commit(index, found.commit_id) }
    }

    /// Whether so few entries are left that no more request may wait for other requests, which might not find one.
    fn is_scarce(&self) -> bool {
        self.elsewhere + SPARE >= self.entries.len()
    }

    fn answer<F: Filesystem>(&mut self, shared: &Arc<Shared<F>>, index: usize, out: &mut [u8]) -> io::Result<()> {
        let Some(found) = self.entries[index].request() else {
            self.end(-Errno::IO.raw_os_error());
            return Ok(());
        };
        self.has_served = true;
        let code = found.header.opcode;
        shared.counters.count(code);
        let is_scarce = self.is_scarce();
        let entry = &mut self.entries[index];
        if matches!(code, opcode::READ | opcode::READDIR | opcode::READDIRPLUS) {
            // All of the request is in its structure, and its reply goes to the payload.
            let request = decode(&found.header, Body::split(&found.structure, &[]), shared.has_setxattr_ext());
            // None of these takes space.
            let answer = |request| shared.answer(&request, &mut entry.payload, Attempt::Last).ok_or(Errno::IO);
            let answer = request.and_then(answer).and_then(|answered| answered.contents);
            return self.reply(index, &found, answer);
        }
        let payload = &entry.payload[..found.payload_bytes];
        let request = match decode(&found.header, Body::split(&found.structure, payload), shared.has_setxattr_ext()) {
            Ok(request) => request,
            Err(error) => return self.reply(index, &found, Err(error)),
        };
        if waits_for_requests(&request) && is_scarce {
            // The kernel then finds data and holes itself, as if all of a file were data.
            return self.reply(index, &found, Err(Errno::NOSYS));
        }
        if !is_scarce && shared.is_held_up(&request) {
            self.answer_elsewhere(shared, index, found);
            return Ok(());
        }
        if shared.filesystem.may_wait(&request) {
            match data_only_of_fsync(&request.operation) {
                Some(data_only) => self.sync_with_others(shared, index, found, data_only),
                None => self.answer_elsewhere(shared, index, found),
            }
            return Ok(());
        }
        let answered = match is_scarce {
            true => shared.answer(&request, out, Attempt::Last),
            false => shared.answer_first(&request, out),
        };
        let Some(answered) = answered else {
            self.answer_elsewhere(shared, index, found);
            return Ok(());
        };
        if let Ok(length) = answered.contents {
            self.entries[index].payload[..length].copy_from_slice(&out[..length]);
        }
        self.reply_then(shared, index, found, answered, !is_scarce)
    }

    /// Replies from the payload, and does what is to be done besides; `may_hold_back` says whether the reply may come
    /// later.
    fn reply_then<F: Filesystem>(
        &mut self,
        shared: &Arc<Shared<F>>,
        index: usize,
        found: Found,
        Answered { contents, then }: Answered,
        may_hold_back: bool,
    ) -> io::Result<()> {
        match then {
            Then::BeforeReply(work) if may_hold_back && shared.hold_back() => {
                let payload = &self.entries[index].payload;
                let answer = contents.map(|length| payload[..length].to_vec());
                self.requests[index] = Some(found);
                self.elsewhere += 1;
                let (mailbox, holder) = (self.mailbox.clone(), Arc::clone(shared));
                shared.waiters.submit(Box::new(move || {
                    work();
                    mailbox.post(Mail { entry: index, answer });
                    holder.let_go();
                }));
                Ok(())
            }
            Then::BeforeReply(work) | Then::AfterReply(work) => {
                shared.forgets.leave(Left::Notice);
                let replied = self.reply(index, &found, contents).and_then(|()| self.ring.submit().map(|_| ()));
                // The notice is given in any case: it takes back what was left to it.
                shared.drop_later(work);
                replied
            }
            Then::Nothing => self.reply(index, &found, contents),
        }
    }

    /// Lets the filesystem answer an fsync that others may wait beside.
    fn sync_with_others<F: Filesystem>(
        &mut self,
        shared: &Arc<Shared<F>>,
        index: usize,
        found: Found,
        data_only: bool,
    ) {
        shared.counters.count_waiter();
        self.elsewhere += 1;
        let node = found.header.node;
        self.requests[index] = Some(found);
        let mailbox = self.mailbox.clone();
        shared.fsync_with_others(node, data_only, move |answer| {
            mailbox.post(Mail { entry: index, answer: answer.map(|()| Vec::new()) });
        });
    }

    /// Lets a thread that may wait answer a request.
    fn answer_elsewhere<F: Filesystem>(&mut self, shared: &Arc<Shared<F>>, index: usize, found: Found) {
        shared.counters.count_waiter();
        self.elsewhere += 1;
        let (header, structure) = (found.header, found.structure);
        let payload = self.entries[index].payload[..found.payload_bytes].to_vec();
        self.requests[index] = Some(found);
        let (shared, mailbox) = (Arc::clone(shared), self.mailbox.clone());
        shared.clone().waiters.submit(Box::new(move || {
            let post = |answer: Result<&[u8], Errno>| {
                mailbox.post(Mail { entry: index, answer: answer.map(<[u8]>::to_vec) });
            };
            match decode(&header, Body::split(&structure, &payload), shared.has_setxattr_ext()) {
                Ok(request) => shared.answer_waiting(&request, post),
                Err(error) => post(Err(error)),
            }
        }));
    }
}

/// Sets the length of a submission, for which the library has no name.
#[allow(unsafe_code)]
fn set_length(submission: &mut Entry128, length: u32) {
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: a submission is 128 bytes in the kernel's layout, without padding, and its bytes 24 to 28 are the length.
    unsafe { std::ptr::from_mut(submission).cast::<u8>().add(LENGTH_AT).cast::<u32>().write_unaligned(length) };
}

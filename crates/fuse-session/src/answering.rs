//! How a request that has been read is answered: here, or by a thread that may wait.
//!
//! ```text
//! answered here ─┬─ no space, and files without names take some ─▶ a thread that waits: forgets, then once more
//!                └─ else ─▶ reply
//! ```

use crate::abi::WriteFlags;
use crate::answer::{Answer, ReplyLater, Then, WithOthers, Work};
use crate::channel::Channel;
use crate::filesystem::Filesystem;
use crate::forgets::{Left, Who};
use crate::init::MAX_BACKGROUND;
use crate::reply::{answer, raw_written};
use crate::request::{Body, Operation, Request, decode, decode_header};
use crate::shared::{Access, Shared};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// Room for the reply to a request that waits.
const WAITER_REPLY_BYTES: usize = 4096;

/// The most replies that are held back: fewer than the requests that the kernel sends without waiting.
const MAX_HELD_BACK: usize = 16;
const _: () = assert!(MAX_HELD_BACK < MAX_BACKGROUND as usize / 2);

/// How long a request waits for forgets: one that finds no space, one that asks how much there is, and an fsync.
const FOR_SPACE: Duration = Duration::from_secs(10);
const FOR_COUNTS: Duration = Duration::from_secs(1);
const FOR_DURABILITY: Duration = Duration::from_millis(100);

/// Whether a request may be answered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// If no space is found and some is on its way, there is no answer yet.
    First,
    Last,
}

/// The answer to a request.
pub(crate) struct Answered {
    /// The length of the reply's contents.
    pub contents: Answer<usize>,
    pub then: Then,
}

impl<F: Filesystem> Shared<F> {
    /// Takes the right to hold back a reply until other requests are answered, if there is one left. The kernel sends
    /// [`MAX_BACKGROUND`] requests of readahead, write-back and asynchronous writes at a time: if the replies to all of
    /// them waited for a write, that write would never be sent.
    pub(crate) fn hold_back(&self) -> bool {
        let more = |count| (count < MAX_HELD_BACK).then_some(count + 1);
        self.held_back.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives back the right of [`Self::hold_back`], when the reply has been sent.
    pub(crate) fn let_go(&self) {
        self.held_back.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether it was answered: not if it is to be answered once more, by a thread that waits for space.
    pub(crate) fn answer_here(self: &Arc<Self>, channel: &Channel, request: &Request<'_>, out: &mut [u8]) -> bool {
        let Some(Answered { contents, then }) = self.answer_first(request, out) else { return false };
        let contents = contents.map(|length| &out[..length]);
        match then {
            Then::Nothing => channel.reply(request.unique, contents),
            Then::BeforeReply(work) if self.hold_back() => {
                let (channel, unique, contents) = (channel.clone(), request.unique, contents.map(<[u8]>::to_vec));
                let shared = Arc::clone(self);
                self.waiters.submit(Box::new(move || {
                    work();
                    channel.reply(unique, contents.as_deref().map_err(|error| *error));
                    shared.let_go();
                }));
            }
            Then::BeforeReply(work) | Then::AfterReply(work) => {
                self.forgets.leave(Left::Notice);
                channel.reply(request.unique, contents);
                self.drop_later(work);
            }
        }
        true
    }

    /// Lets a thread that waits have the kernel drop contents, of which [`Left::Notice`] is noted.
    pub(crate) fn drop_later(self: &Arc<Self>, work: Work) {
        let shared = Arc::clone(self);
        self.waiters.submit(Box::new(move || {
            let _in_progress = shared.forgets.take(Left::Notice);
            work();
        }));
    }

    /// Lets the filesystem answer, on a thread that must not wait. `None`: a thread that waits is to do it.
    pub(crate) fn answer_first(&self, request: &Request<'_>, out: &mut [u8]) -> Option<Answered> {
        match self.answer(request, out, Attempt::First) {
            // All of them may be waiting for this request.
            None if !self.waiters.have_room() => self.answer(request, out, Attempt::Last),
            answered => answered,
        }
    }

    /// Lets the filesystem answer those who may use the mount. A panic of it is logged where it happens, and EIO here.
    pub(crate) fn answer(&self, request: &Request<'_>, out: &mut [u8], attempt: Attempt) -> Option<Answered> {
        if !self.lets_in(request) {
            return Some(Answered { contents: Err(Errno::ACCESS), then: Then::Nothing });
        }
        let is_final = |lacks_space| {
            let may_come = lacks_space && attempt == Attempt::First && self.filesystem.names_lost().is_some();
            !may_come
        };
        let asked = catch_unwind(AssertUnwindSafe(|| match request.operation {
            Operation::Write(write) => {
                let result = self.filesystem.write(&request.requester, request.node, &write);
                is_final(result == Err(Errno::NOSPC)).then(|| Answered {
                    contents: result.and_then(|count| put(&raw_written(count), out)),
                    then: self.filesystem.after_write(request.node, &write, result),
                })
            }
            _ => {
                let contents = answer(&self.filesystem, request, out);
                is_final(contents == Err(Errno::NOSPC)).then_some(Answered { contents, then: Then::Nothing })
            }
        }));
        asked.unwrap_or_else(|_| {
            self.has_panicked.store(true, Ordering::Relaxed);
            Some(Answered { contents: Err(Errno::IO), then: Then::Nothing })
        })
    }

    /// As [`Self::answer`], on a thread that may wait, with the reply.
    pub(crate) fn answer_waiting(&self, request: &Request<'_>, reply: impl FnOnce(Answer<&[u8]>)) {
        let mut out = vec![0; WAITER_REPLY_BYTES];
        if let Some(most) = self.awaits_forgets(request) {
            self.await_forgets(Who::Others, most);
        }
        let answered = self.answer(request, &mut out, Attempt::First).or_else(|| {
            let is_late =
                matches!(request.operation, Operation::Write(write) if write.flags.contains(WriteFlags::CACHE));
            self.await_forgets(if is_late { Who::WriteBack } else { Who::Others }, FOR_SPACE);
            self.answer(request, &mut out, Attempt::Last)
        });
        let Some(Answered { contents, then }) = answered else { return reply(Err(Errno::NOSPC)) };
        let contents = contents.map(|length| &out[..length]);
        match then {
            Then::Nothing => reply(contents),
            Then::BeforeReply(work) if self.hold_back() => {
                work();
                reply(contents);
                self.let_go();
            }
            Then::BeforeReply(work) | Then::AfterReply(work) => {
                self.forgets.leave(Left::Notice);
                let _in_progress = self.forgets.take(Left::Notice);
                reply(contents);
                work();
            }
        }
    }

    /// How long a request waits for forgets before it is answered, if it does: what asks how much space there is, and
    /// what is to be durable, if files have lost their names since others have waited.
    fn awaits_forgets(&self, request: &Request<'_>) -> Option<Duration> {
        let most = match request.operation {
            Operation::StatFs | Operation::SyncFs => FOR_COUNTS,
            Operation::Fsync { .. } | Operation::FsyncDir { .. } => FOR_DURABILITY,
            _ => return None,
        };
        let names_lost = self.filesystem.names_lost()?;
        (most > FOR_DURABILITY || self.forgets.are_others(names_lost)).then_some(most)
    }

    /// Whether a request is to wait for forgets that are on their way, on a thread that may.
    pub(crate) fn is_held_up(&self, request: &Request<'_>) -> bool {
        self.awaits_forgets(request).is_some() && !self.await_forgets(Who::Others, Duration::ZERO)
    }

    /// Waits for the forgets that are on their way. What they leave is free then. Returns whether all are dealt with.
    fn await_forgets(&self, who: Who, most: Duration) -> bool {
        let Some(names_lost) = self.filesystem.names_lost() else { return true };
        let are_done = self.forgets.wait(names_lost, who, || self.connection.has_request(Duration::ZERO), most);
        if most > Duration::ZERO {
            self.filesystem.take_space();
        }
        are_done
    }

    /// Lets the filesystem answer an fsync that other requests wait beside. A panic of it is logged where it happens,
    /// and EIO here.
    pub(crate) fn fsync_with_others(
        self: &Arc<Self>,
        node: u64,
        data_only: bool,
        reply: impl FnOnce(Answer<()>) + Send + 'static,
    ) {
        let reply = ReplyLater::new(reply);
        let begun = catch_unwind(AssertUnwindSafe(|| self.filesystem.fsync_with_others(node, data_only, reply)));
        let shared = Arc::clone(self);
        let work: Work = match begun {
            Ok(WithOthers::Later(None)) => return,
            Ok(WithOthers::Later(Some(work))) => work,
            Ok(WithOthers::Alone(reply)) => {
                let shared = Arc::clone(self);
                Box::new(move || reply.send(shared.filesystem.fsync(node, data_only)))
            }
            Err(_) => return self.has_panicked.store(true, Ordering::Relaxed),
        };
        self.waiters.submit(Box::new(move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                shared.has_panicked.store(true, Ordering::Relaxed);
            }
        }));
    }

    /// Lets a thread that may wait answer the request in `message`.
    pub(crate) fn answer_elsewhere(self: &Arc<Self>, channel: Channel, message: Vec<u8>, length: usize) {
        let shared = Arc::clone(self);
        self.waiters.submit(Box::new(move || {
            let Some((header, body)) = decode_header(&message[..length]) else { return };
            // It was decoded before, so it is a request.
            if let Ok(request) = decode(&header, Body::whole(body), shared.has_setxattr_ext()) {
                shared.answer_waiting(&request, |answer| channel.reply(request.unique, answer));
            }
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
        }));
    }

    /// Whether the requester may use the mount. Requests by an open file, and those of the kernel itself, are answered
    /// in any case.
    fn lets_in(&self, request: &Request<'_>) -> bool {
        let Access::RootAnd(user) = self.config.access else { return true };
        let is_by_file = matches!(
            request.operation,
            Operation::Destroy
                | Operation::Read(_)
                | Operation::ReadDir(_)
                | Operation::ReadDirPlus(_)
                | Operation::Write(_)
                | Operation::Fsync { .. }
                | Operation::FsyncDir { .. }
                | Operation::SyncFs
                | Operation::Release
                | Operation::ReleaseDir
                | Operation::Forget { .. }
                | Operation::BatchForget { .. }
                | Operation::NotifyReply
        );
        is_by_file || [0, user].contains(&request.requester.uid)
    }

    /// Deals with a request that has no reply; whether it was one.
    pub(crate) fn forget(self: &Arc<Self>, request: &Request<'_>) -> bool {
        match request.operation {
            Operation::Forget { count } => self.forget_one(request.node, count),
            Operation::BatchForget { list } => {
                list.iter().for_each(|one| self.forget_one(one.nodeid, one.nlookup));
            }
            Operation::NotifyReply => {}
            _ => return false,
        }
        true
    }
}

impl<F: Filesystem> Shared<F> {
    /// A panic of the filesystem is logged where it happens.
    fn forget_one(self: &Arc<Self>, node: u64, count: u64) {
        match catch_unwind(AssertUnwindSafe(|| self.filesystem.forget(node, count))) {
            Ok(Some(work)) => {
                self.forgets.leave(Left::Forget);
                let shared = Arc::clone(self);
                self.waiters.submit(Box::new(move || {
                    let _in_progress = shared.forgets.take(Left::Forget);
                    work();
                }));
            }
            Ok(None) => {}
            Err(_) => self.has_panicked.store(true, Ordering::Relaxed),
        }
    }
}

/// Whether an operation is an fsync, and if so whether the times may wait.
pub(crate) fn data_only_of_fsync(operation: &Operation<'_>) -> Option<bool> {
    match operation {
        Operation::Fsync { data_only } | Operation::FsyncDir { data_only } => Some(*data_only),
        _ => None,
    }
}

/// Puts a structure into the place of a reply's contents.
fn put(structure: &(impl IntoBytes + Immutable), out: &mut [u8]) -> Answer<usize> {
    let bytes = structure.as_bytes();
    out.get_mut(..bytes.len()).ok_or(Errno::IO)?.copy_from_slice(bytes);
    Ok(bytes.len())
}

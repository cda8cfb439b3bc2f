//! On which processor a thread runs, and whether it gives way there.
//!
//! The scheduler puts a program that wakes up on an idle processor, if there is one. A processor counts as idle too
//! while all that runs there are threads of the policy `SCHED_IDLE`. So a program that is woken by such a thread on
//! its own processor stays there.
//!
//! Source of facts: sched(7), proc_pid_stat(5), `Documentation/scheduler/sched-stats.rst`; `select_idle_sibling`,
//! `sched_idle_cpu` and `user_check_sched_setscheduler` in `kernel/sched/`, Linux 6.18.

use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Bytes of a thread's line in `/proc` up to the processor, at most: 39 numbers and a name.
const STAT_BYTES: usize = 1024;
/// Bytes of a thread's line of times, at most: three numbers.
const SCHEDSTAT_BYTES: usize = 128;
/// Places of the state and of the processor behind the name.
const STATE_FIELD: usize = 0;
const PROCESSOR_FIELD: usize = 36;

/// A thread's claim to a processor that others want too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// As every other thread's.
    Equal,
    /// It runs where no other thread wants to. A thread without privileges does not get from here to [`Self::Equal`].
    GivesWay,
}

/// A thread of this process.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    id: Pid,
    /// Where it might run when it began.
    allowed: CpuSet,
}

impl Thread {
    /// The thread that calls.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn current() -> io::Result<Self> {
        Ok(Self { id: gettid(), allowed: sched_getaffinity(None)? })
    }

    /// Its own entry in `/proc`.
    pub(crate) fn watch(&self) -> Option<Watched> {
        Watched::open(self.id.as_raw_nonzero().get().cast_unsigned())
    }

    /// Its number, if another thread calls. The one that calls has none: a sandbox may let a thread name no other.
    fn other(&self) -> Option<Pid> {
        (gettid() != self.id).then_some(self.id)
    }

    /// Lets it run on one processor only.
    ///
    /// # Errors
    /// `InvalidInput` for a processor on which it may not run; the system's.
    pub(crate) fn bind(&self, processor: usize) -> io::Result<()> {
        if processor >= CpuSet::MAX_CPU || !self.allowed.is_set(processor) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut set = CpuSet::new();
        set.set(processor);
        Ok(sched_setaffinity(self.other(), &set)?)
    }

    /// Lets it run where it might when it began.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn unbind(&self) -> io::Result<()> {
        Ok(sched_setaffinity(self.other(), &self.allowed)?)
    }

    /// Sets its claim.
    ///
    /// # Errors
    /// `PermissionDenied` for [`Claim::Equal`] without privileges; the system's.
    #[allow(unsafe_code)]
    pub(crate) fn set_claim(&self, claim: Claim) -> io::Result<()> {
        let policy = match claim {
            Claim::Equal => libc::SCHED_OTHER,
            Claim::GivesWay => libc::SCHED_IDLE,
        };
        let priority: libc::c_int = 0;
        let id = self.other().map_or(0, |id| id.as_raw_nonzero().get());
        // SAFETY: the system call reads one int at the address, the priority, and changes nothing of this process but
        // how a thread is scheduled. (The C libraries have no call that does this for one thread alike.)
        let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, id, policy, &raw const priority) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// How long a thread ran, and how long it waited for a processor although it had something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub ran: Duration,
    pub waited: Duration,
}

/// A thread of any process, whose processor and use of it are of interest.
pub(crate) struct Watched {
    id: u32,
    stat: File,
    schedstat: Option<File>,
}

impl Watched {
    /// The thread with a number; `None` when there is none, or it cannot be seen.
    pub(crate) fn open(id: u32) -> Option<Self> {
        let stat = File::open(format!("/proc/{id}/task/{id}/stat")).ok()?;
        let schedstat = File::open(format!("/proc/{id}/task/{id}/schedstat")).ok();
        Some(Self { id, stat, schedstat })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The processor on which it runs, or ran last; `None` when it has ended.
    pub(crate) fn processor(&self) -> Option<usize> {
        self.field(PROCESSOR_FIELD)?.parse().ok()
    }

    /// Whether it waits for an event that a signal would end; `None` when it has ended.
    pub(crate) fn is_asleep(&self) -> Option<bool> {
        Some(self.field(STATE_FIELD)? == "S")
    }

    /// A field behind the name.
    fn field(&self, number: usize) -> Option<String> {
        let mut line = [0; STAT_BYTES];
        let length = self.stat.read_at(&mut line, 0).ok()?;
        // The name may hold any byte, and stands in parentheses.
        let end_of_name = line[..length].iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(&line[end_of_name + 1..length]).ok()?;
        fields.split_ascii_whitespace().nth(number).map(str::to_owned)
    }

    /// What it has used; `None` when it has ended, or this kernel does not count that.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let mut line = [0; SCHEDSTAT_BYTES];
        let length = self.schedstat.as_ref()?.read_at(&mut line, 0).ok()?;
        let mut fields = std::str::from_utf8(&line[..length]).ok()?.split_ascii_whitespace();
        let mut next = || Some(Duration::from_nanos(fields.next()?.parse().ok()?));
        Some(Usage { ran: next()?, waited: next()? })
    }
}

/// Whether an error says that the caller lacks the privilege.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    [Errno::PERM, Errno::ACCESS].iter().any(|refusal| error.raw_os_error() == Some(refusal.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_seen_on_the_processor_to_which_it_is_bound() {
        std::thread::spawn(|| {
            let thread = Thread::current().unwrap();
            let watched = thread.watch().unwrap();
            for processor in (0..CpuSet::MAX_CPU).filter(|number| thread.allowed.is_set(*number)) {
                thread.bind(processor).unwrap();
                assert_eq!(watched.processor(), Some(processor));
            }
            thread.unbind().unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), thread.allowed);
            assert!(thread.bind(CpuSet::MAX_CPU).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_gives_way_has_the_idle_policy() {
        std::thread::spawn(|| {
            let thread = Thread::current().unwrap();
            let policy = || {
                let line = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
                let fields = line.rsplit(')').next().unwrap();
                fields.split_ascii_whitespace().nth(PROCESSOR_FIELD + 2).unwrap().parse::<i32>().unwrap()
            };
            thread.set_claim(Claim::GivesWay).unwrap();
            assert_eq!(policy(), libc::SCHED_IDLE);
            match thread.set_claim(Claim::Equal) {
                Ok(()) => assert_eq!(policy(), libc::SCHED_OTHER),
                Err(error) => assert!(is_refused(&error), "{error}"),
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_runs_uses_time() {
        std::thread::spawn(|| {
            let watched = Thread::current().unwrap().watch().unwrap();
            let Some(before) = watched.usage() else { return };
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            let after = watched.usage().unwrap();
            let used = after.ran - before.ran + (after.waited - before.waited);
            // The scheduler counts at its ticks.
            assert!(used > Duration::from_millis(25) && used < Duration::from_millis(100), "{used:?}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_is_not_there_is_not_watched() {
        assert!(Watched::open(u32::MAX).is_none());
    }
}

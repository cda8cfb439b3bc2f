//! A thread that is there before it has work: who enters a sandbox can name it there.

use rustix::thread::gettid;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A thread without work. It ends when this is dropped.
#[derive(Debug)]
pub struct SpareThread {
    id: u32,
    begin: Sender<Job>,
    thread: JoinHandle<io::Result<()>>,
}

impl SpareThread {
    /// Starts one.
    ///
    /// # Errors
    /// The system's.
    pub fn start() -> io::Result<Self> {
        let (begin, begins) = channel::<Job>();
        let (tell, told) = channel();
        let thread = std::thread::Builder::new().name("fuse-follow".into()).spawn(move || {
            // Who starts it waits for this.
            let _ = tell.send(gettid());
            begins.recv().map_or(Ok(()), |job| job())
        })?;
        let id = told.recv().map_err(|_| io::Error::other("a thread ended"))?;
        Ok(Self { id: id.as_raw_nonzero().get().cast_unsigned(), begin, thread })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Gives it its work.
    pub(crate) fn run(self, job: Job) -> io::Result<JoinHandle<io::Result<()>>> {
        self.begin.send(job).map_err(|_| io::Error::other("a thread ended"))?;
        Ok(self.thread)
    }
}

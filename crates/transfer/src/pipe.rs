//! Moves a tree from a source to a sink: the source runs in a thread of its own, a bounded number of events ahead.

use crate::adjust::{Adjust, Asked, LABEL, Label, Origin};
use crate::error::{Losses, Result, TransferError};
use crate::event::{Event, Hidden, Meta, Node, OverLinks};
use crate::queue::{Received, Receiver, Sender, queue};
use crate::whiteout::Whiteouts;
use std::time::Duration;

/// Most events that are sent at once.
const BATCH_EVENTS: usize = 128;
/// Bytes of contents, names and attributes after which the events are sent.
const BATCH_BYTES: usize = 1 << 20;
const CAPABILITIES: &[u8] = b"security.capability";
/// How often a sink that waits for its source checks whether it is to stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(200);

/// The side that a tree is read from.
pub trait Source: Send {
    /// Sends the whole tree.
    ///
    /// # Errors
    /// Any error that prevents the tree from being read as a whole.
    fn send(&mut self, out: &mut Outlet) -> Result<()>;

    /// What the source's directories mean where a link to a directory is in the way.
    fn over_links(&self) -> OverLinks {
        OverLinks::default()
    }

    /// What was left out so far.
    fn losses(&self) -> Losses {
        Losses::default()
    }
}

/// The side that a tree is written to.
pub trait Sink {
    /// Takes a file. Contents that are not part of the event follow.
    ///
    /// # Errors
    /// Any error that prevents it from being written.
    fn node(&mut self, node: Node) -> Result<()>;

    /// Takes contents of the last file.
    ///
    /// # Errors
    /// As [`Self::node`].
    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// The last file's contents are complete.
    ///
    /// # Errors
    /// As [`Self::node`].
    fn end(&mut self) -> Result<()>;

    /// The rest of the last file's contents cannot be read. The file is removed; a sink that cannot take back what it
    /// has written fills the rest with zeros. The losses count it.
    ///
    /// # Errors
    /// As [`Self::node`].
    fn broken(&mut self, why: &TransferError) -> Result<()>;

    /// A layer begins: what follows lies over what came before.
    ///
    /// # Errors
    /// As [`Self::node`].
    fn layer(&mut self, _: OverLinks) -> Result<()> {
        Ok(())
    }

    /// Removes what lower layers have, if they have it.
    ///
    /// # Errors
    /// As [`Self::node`].
    fn hide(&mut self, _: &Hidden) -> Result<()> {
        Ok(())
    }

    /// All events were sent.
    ///
    /// # Errors
    /// As [`Self::node`].
    fn finish(&mut self) -> Result<()>;

    /// No more events follow. If the last file is incomplete, it must be removed.
    fn abort(&mut self);

    /// What was left out so far.
    fn losses(&self) -> Losses {
        Losses::default()
    }
}

/// The kind of file at a path, as far as it matters to a [`LeaveOut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A directory. If it is left out, so is everything in it.
    Directory,
    /// Anything else. If the first name of a file is left out, its contents are sent with the next name.
    Other,
}

/// Whether a path of the tree is left out. It is called in the source's thread, before anything of the file is sent.
pub type LeaveOut<'a> = Box<dyn Fn(&[u8], Sort) -> bool + Send + 'a>;

/// Receives the progress of a transfer.
pub trait Progress {
    /// The sink is about to take the file of this path.
    fn begins(&self, _path: &[u8]) {}

    /// A part of the source cannot be read, for this reason; the losses count it.
    fn passes_over(&self, _why: &TransferError) {}

    /// This many more files and bytes are done.
    fn advance(&self, files: u64, bytes: u64);

    /// Whether the transfer is to stop early: the current file is dropped, and what is written before is completed.
    fn stopped(&self) -> bool {
        false
    }
}

/// For callers that need no progress.
impl Progress for () {
    fn advance(&self, _: u64, _: u64) {}
}

/// How the attributes of existing files and directories are treated.
#[derive(Clone, Copy, Debug, Default)]
pub enum Existing {
    /// They get those of the source.
    #[default]
    TakesAll,
    /// A directory preserves its own. A regular file that is replaced preserves its owner, permissions and extended
    /// attributes, as if it were written in place; times are the source's. An owner and a label that the caller asked
    /// for are set all the same.
    Keeps(Asked),
}

impl Existing {
    /// The attributes for a regular file that replaces one with the attributes `old`.
    pub(crate) fn meta(&self, old: Meta, new: Meta) -> Meta {
        let Self::Keeps(asked) = self else { return new };
        let mut xattrs = old.xattrs;
        // The capabilities of the old contents do not apply to the new ones.
        xattrs.retain(|(name, _)| name != CAPABILITIES);
        if asked.label == Label::OfThePath {
            xattrs.retain(|(name, _)| name != LABEL);
            xattrs.extend(new.xattrs.iter().find(|(name, _)| name == LABEL).cloned());
            xattrs.sort_unstable();
        }
        let owner = asked.owner;
        let (uid, gid) = (owner.uid.unwrap_or(old.uid), owner.gid.unwrap_or(old.gid));
        Meta { mode: old.mode, uid, gid, xattrs, ..new }
    }

    /// Whether existing files preserve any attributes.
    pub(crate) fn keeps(&self) -> bool {
        matches!(self, Self::Keeps(_))
    }
}

/// Takes what a source sends.
pub struct Outlet<'a> {
    adjust: &'a Adjust,
    whiteouts: Whiteouts,
    /// The last file was a whiteout, whose contents mean nothing.
    drops_contents: bool,
    batch: Vec<Event>,
    bytes: usize,
    sender: Sender<Vec<Event>>,
    wanted: Wanted,
}

/// How much of a tree is to be sent, the most last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    Sizes,
    Attributes,
    Contents,
}

impl Outlet<'_> {
    /// Whether contents are to be sent; otherwise files that have any are sent with [`Contents::Parts`] and without an
    /// end.
    ///
    /// [`Contents::Parts`]: crate::Contents::Parts
    pub fn wants_data(&self) -> bool {
        self.wanted >= Wanted::Contents
    }

    /// Whether extended attributes are to be sent; otherwise they may be left out.
    pub fn wants_attributes(&self) -> bool {
        self.wanted >= Wanted::Attributes
    }

    /// Begins a layer, in which names of whiteouts and entries for directories have these meanings.
    ///
    /// # Errors
    /// `Stopped` when the sink has.
    pub fn begin_layer(&mut self, whiteouts: Whiteouts, over_links: OverLinks) -> Result<()> {
        self.whiteouts = whiteouts;
        self.push(Event::Layer(over_links))
    }

    /// Sends an event. A file is adjusted first.
    ///
    /// # Errors
    /// `Stopped` when the sink has; those of the changes to a file.
    pub fn send(&mut self, event: Event) -> Result<()> {
        let event = match event {
            Event::Node(mut node) => {
                let hidden = self.whiteouts.hidden(&node)?;
                self.drops_contents = hidden.is_some();
                match hidden {
                    Some(hidden) => Event::Hide(hidden),
                    None => {
                        self.adjust.apply(&mut node, Origin::Tree)?;
                        Event::Node(node)
                    }
                }
            }
            Event::Data { .. } | Event::End | Event::Broken(_) if self.drops_contents => return Ok(()),
            event => event,
        };
        self.push(event)
    }

    /// Sends a file that a manifest makes.
    pub(crate) fn send_new(&mut self, mut node: Node) -> Result<()> {
        self.adjust.apply(&mut node, Origin::Manifest)?;
        self.push(Event::Node(node))
    }

    fn push(&mut self, event: Event) -> Result<()> {
        self.bytes += match &event {
            Event::Data { bytes, .. } => bytes.len(),
            Event::Node(node) => node.inline_bytes() + node.meta_bytes(),
            Event::Hide(_) | Event::Layer(_) | Event::End | Event::Broken(_) | Event::Unreadable(_) => 0,
        };
        self.batch.push(event);
        if self.batch.len() >= BATCH_EVENTS || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_EVENTS));
        self.sender.send(batch, bytes).map_err(|_| TransferError::Stopped)
    }
}

/// Moves a tree with its contents.
///
/// # Errors
/// Those of the source and of the sink. Each file in the sink is complete then, but the tree is not.
pub fn transfer(source: &mut dyn Source, sink: &mut dyn Sink, adjust: &Adjust, progress: &dyn Progress) -> Result<()> {
    run(source, sink, adjust, progress, Wanted::Contents)
}

/// Gives the files of a tree, without contents, to `each`.
///
/// # Errors
/// Those of the source.
pub fn survey(
    source: &mut dyn Source,
    each: &mut dyn FnMut(&Node),
    adjust: &Adjust,
    progress: &dyn Progress,
) -> Result<()> {
    run(source, &mut Each(each), adjust, progress, Wanted::Attributes)
}

/// As [`survey`], where extended attributes do not matter: some are missing, and files of the host need not be opened.
///
/// # Errors
/// Those of the source, files that may not be read among them.
pub fn survey_sizes(
    source: &mut dyn Source,
    each: &mut dyn FnMut(&Node),
    adjust: &Adjust,
    progress: &dyn Progress,
) -> Result<()> {
    run(source, &mut Each(each), adjust, progress, Wanted::Sizes)
}

/// A sink for files without contents.
struct Each<'a>(&'a mut dyn FnMut(&Node));

impl Sink for Each<'_> {
    fn node(&mut self, node: Node) -> Result<()> {
        self.0(&node);
        Ok(())
    }

    fn data(&mut self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    fn broken(&mut self, _: &TransferError) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn abort(&mut self) {}
}

fn run(
    source: &mut dyn Source,
    sink: &mut dyn Sink,
    adjust: &Adjust,
    progress: &dyn Progress,
    wanted: Wanted,
) -> Result<()> {
    if let Some(manifest) = &adjust.manifest {
        manifest.begin();
    }
    let (sender, receiver) = queue();
    let (drained, sent) = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let whiteouts = Whiteouts::default();
            let mut out =
                Outlet { adjust, whiteouts, drops_contents: false, batch: Vec::new(), bytes: 0, sender, wanted };
            source.send(&mut out)?;
            out.flush()
        });
        let drained = drain(receiver, sink, progress);
        let sent = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (drained, sent)
    });
    let result = match drained.and(sent) {
        Ok(()) => sink.finish(),
        Err(TransferError::Interrupted) => {
            sink.abort();
            return sink.finish().and(Err(TransferError::Interrupted));
        }
        failed => failed,
    };
    if result.is_err() {
        sink.abort();
    }
    result
}

fn drain(receiver: Receiver<Vec<Event>>, sink: &mut dyn Sink, progress: &dyn Progress) -> Result<()> {
    loop {
        let batch = match receiver.receive(LOOK_FOR_STOP) {
            Received::Item(batch) => batch,
            Received::Nothing if progress.stopped() => return Err(TransferError::Interrupted),
            Received::Nothing => continue,
            Received::End => return Ok(()),
        };
        let (mut files, mut bytes) = (0, 0);
        for event in batch {
            if progress.stopped() {
                return Err(TransferError::Interrupted);
            }
            match event {
                Event::Node(node) => {
                    (files, bytes) = (files + 1, bytes + node.inline_bytes());
                    progress.begins(&node.path);
                    sink.node(node)?;
                }
                Event::Data { offset, bytes: data } => {
                    bytes += data.len();
                    sink.data(offset, &data)?;
                }
                Event::End => sink.end()?,
                Event::Layer(over_links) => sink.layer(over_links)?,
                Event::Hide(hidden) => sink.hide(&hidden)?,
                Event::Broken(why) => {
                    progress.passes_over(&why);
                    sink.broken(&why)?;
                }
                Event::Unreadable(why) => progress.passes_over(&why),
            }
        }
        progress.advance(files, bytes as u64);
    }
}

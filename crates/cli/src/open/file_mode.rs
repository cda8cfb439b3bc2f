//! The permissions of a file that contains a whole tree: not all users may read it if they may not read all of the
//! tree.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use xfskit_transfer::{Hidden, Kind, Losses, Node, OverLinks, Result, Sink, TransferError};

const READ_BY_OTHERS: u32 = 0o004;
const ENTER_BY_OTHERS: u32 = 0o005;
const DEFAULT_UMASK: u32 = 0o022;

/// A sink that checks whether all users may read each file that passes through it.
pub struct Watched<'a> {
    sink: &'a mut dyn Sink,
    is_private: bool,
}

impl<'a> Watched<'a> {
    /// A sink that passes everything on to another one.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        Self { sink, is_private: false }
    }

    /// Whether a file arrived that not all users may read.
    pub fn is_private(&self) -> bool {
        self.is_private
    }
}

impl Sink for Watched<'_> {
    fn node(&mut self, node: Node) -> Result<()> {
        let needed = match node.kind {
            Kind::Directory => ENTER_BY_OTHERS,
            Kind::File { .. } => READ_BY_OTHERS,
            _ => 0,
        };
        self.is_private |= u32::from(node.meta.mode) & needed != needed;
        self.sink.node(node)
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.sink.data(offset, bytes)
    }

    fn end(&mut self) -> Result<()> {
        self.sink.end()
    }

    fn broken(&mut self, why: &TransferError) -> Result<()> {
        self.sink.broken(why)
    }

    fn layer(&mut self, over_links: OverLinks) -> Result<()> {
        self.sink.layer(over_links)
    }

    fn hide(&mut self, hidden: &Hidden) -> Result<()> {
        self.sink.hide(hidden)
    }

    fn finish(&mut self) -> Result<()> {
        self.sink.finish()
    }

    fn abort(&mut self) {
        self.sink.abort();
    }

    fn losses(&self) -> Losses {
        self.sink.losses()
    }
}

/// Whether a file of the host is one that not all users may read.
pub fn is_private(file: &Metadata) -> bool {
    file.mode() & READ_BY_OTHERS == 0
}

/// The permissions of a new file: the usual ones, or only its owner's; and no more than those of the file that it
/// replaces.
pub fn permissions(is_private: bool, replaced: Option<&Metadata>) -> std::fs::Permissions {
    let usual = if is_private { 0o600 } else { usual_permissions() };
    let mode = replaced.filter(|file| file.is_file()).map_or(usual, |file| usual & file.mode() | 0o600);
    std::fs::Permissions::from_mode(mode)
}

/// The permissions of a new file.
pub fn usual_permissions() -> u32 {
    0o666 & !umask()
}

/// The umask. The system call would change it, so it is read from `/proc`.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(DEFAULT_UMASK)
}

//! A FUSE server that does nothing: no server on the same kernel, with the same transport and options, can be faster.
//!
//! It answers the kernel's requests for creates, attributes, renames and unlinks without looking anything up: a name
//! that the kernel has not cached does not exist, a file is empty, each `user.` attribute has 64 bytes, and each folder
//! lists the same number of files, which exist.

use crate::names::{file_name, thread_of};
use anyhow::{Context, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use xfskit_fuse::protocol::abi::{ROOT, RawAttr};
use xfskit_fuse::protocol::request::{NewNode, SetAttr, SetXattr};
use xfskit_fuse::protocol::{
    Answer, Attr, Entry, Errno, Features, Filesystem, Listed, Listing, ListingPlus, Requester, Room, Session, Version,
};
use xfskit_fuse::{Opens, Options, WriteCache, attach, features, unmount};

const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
const VALUE: [u8; 64] = [7; 64];
/// Numbers of directories have this bit, so that the server needs no table of types.
const DIRECTORY: u64 = 1 << 40;
/// Names in listings are those of a thread with this number.
const LISTED: usize = 0xfe;

struct Null {
    next: AtomicU64,
    /// Files that each folder lists.
    listed: usize,
}

fn attr(number: u64) -> RawAttr {
    let is_dir = number == ROOT || number & DIRECTORY != 0;
    RawAttr {
        ino: number,
        mode: if is_dir { 0o040_755 } else { 0o100_644 },
        nlink: if is_dir { 2 } else { 1 },
        blksize: 4096,
        ..RawAttr::default()
    }
}

fn entry(number: u64) -> Entry {
    Entry { node: number, generation: 1, name_valid: FOREVER, attr_valid: FOREVER, attr: attr(number) }
}

impl Null {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn list(&self, offset: u64, mut add: impl FnMut(&[u8], u64) -> Room) {
        for n in offset as usize..self.listed {
            if add(&file_name(LISTED, n), n as u64 + 1) == Room::Full {
                break;
            }
        }
    }
}

fn listed(name: &[u8], next_offset: u64) -> Listed<'_> {
    Listed { inode: next_offset, next_offset, mode: 0o100_644, name }
}

impl Filesystem for Null {
    fn init(&mut self, offered: Features, _: Version) -> Features {
        features(offered, WriteCache::default(), Opens::default())
    }

    fn lookup(&self, _: &Requester, _: u64, name: &[u8]) -> Answer<Entry> {
        Ok(entry(if thread_of(name) == Some(LISTED) { self.number() } else { 0 }))
    }

    fn getattr(&self, node: u64, _: bool) -> Answer<Attr> {
        Ok(Attr { valid: FOREVER, attr: attr(node) })
    }

    // With the write-back cache, the kernel sends the times that it has changed itself.
    fn setattr(&self, _: &Requester, node: u64, _: &SetAttr) -> Answer<Attr> {
        Ok(Attr { valid: FOREVER, attr: attr(node) })
    }

    fn mknod(&self, _: &Requester, _: u64, _: &NewNode<'_>) -> Answer<Entry> {
        Ok(entry(self.number()))
    }

    fn mkdir(&self, _: &Requester, _: u64, _: &NewNode<'_>) -> Answer<Entry> {
        Ok(entry(self.number() | DIRECTORY))
    }

    fn unlink(&self, _: u64, _: &[u8]) -> Answer<()> {
        Ok(())
    }

    fn rmdir(&self, _: u64, _: &[u8]) -> Answer<()> {
        Ok(())
    }

    fn rename(&self, _: &Requester, _: (u64, &[u8]), _: (u64, &[u8]), _: u32) -> Answer<()> {
        Ok(())
    }

    fn readdir(&self, _: u64, offset: u64, listing: &mut Listing<'_>) -> Answer<()> {
        self.list(offset, |name, next| listing.add(&listed(name, next)));
        Ok(())
    }

    fn readdirplus(&self, _: u64, offset: u64, listing: &mut ListingPlus<'_>) -> Answer<()> {
        self.list(offset, |name, next| listing.add(&listed(name, next), Some(&entry(self.number()))));
        Ok(())
    }

    fn setxattr(&self, _: &Requester, _: u64, _: &SetXattr<'_>) -> Answer<()> {
        Ok(())
    }

    fn getxattr(&self, _: &Requester, _: u64, name: &[u8]) -> Answer<Vec<u8>> {
        if name.starts_with(b"user.") { Ok(VALUE.to_vec()) } else { Err(Errno::NODATA) }
    }

    fn removexattr(&self, _: &Requester, _: u64, _: &[u8]) -> Answer<()> {
        Ok(())
    }
}

/// The source that the mount names: it is of xfskit's kind, but has no figures.
pub(crate) const SOURCE: &str = "nothing";

/// A mounted server; it ends when it is dropped.
pub(crate) struct NullMount {
    dir: PathBuf,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl NullMount {
    pub(crate) fn new(dir: &Path, options: &Options, listed: usize) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let null = Null { next: AtomicU64::new(ROOT + 1), listed };
        let options = Options { source: SOURCE.into(), ..options.clone() };
        let attached = attach(dir, &options).context("mounting a server that does nothing")?;
        let session = Session::begin(null, attached.connection, options.session())?;
        let server = std::thread::spawn(|| session.run());
        Ok(Self { dir: dir.into(), server: Some(server) })
    }

    pub(crate) fn unmount(mut self) -> Result<()> {
        unmount(&self.dir, false).context("unmounting")?;
        let served = self.server.take().map(JoinHandle::join);
        Ok(served.unwrap_or(Ok(Ok(()))).unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    }
}

impl Drop for NullMount {
    fn drop(&mut self) {
        if self.server.is_some() {
            // Another error is reported already.
            let _ = unmount(&self.dir, true);
        }
    }
}

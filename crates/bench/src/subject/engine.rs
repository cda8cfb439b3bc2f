//! An image in this process.

use super::{About, Counts, PIECE, Target};
use crate::machine::geometry;
use crate::scratch::ImageFiles;
use anyhow::{Context, Result};
use std::ops::ControlFlow;
use xfskit_engine::{Caller, DirEntry, Error, FileType, MountOptions, NewFile, RenameFlags, SetMode, Volume};
use xfskit_ondisk::InodeNumber;

/// The engine on an image.
pub(crate) struct Engine {
    fs: Volume,
    me: Caller,
    base: InodeNumber,
    name: Vec<u8>,
}

const DELAYED: &str = "as in the kernel's delayed logging: the journal when the CIL is full or a sync is asked for, \
                       each checkpoint with flushes (fdatasync) of the image; a sync ends each phase, outside of its \
                       time";
const WSYNC: &str = "wsync: names and attributes when the call returns, by a checkpoint with flushes (fdatasync) of \
                     the image; contents with a sync, which ends each phase, outside of its time";

/// A directory, and the position where the next read goes on.
pub(crate) struct Listing {
    dir: InodeNumber,
    cookie: u64,
}

impl Listing {
    fn new(dir: InodeNumber) -> Self {
        Self { dir, cookie: 0 }
    }
}

impl Engine {
    pub(crate) fn open(files: &ImageFiles, options: MountOptions, name: &str) -> Result<Self> {
        let image = &files.image;
        let (device, log) = files.open()?;
        let fs = match log {
            Some(log) => Volume::open_with_log(device, log, options),
            None => Volume::open(device, options),
        };
        let fs = fs.with_context(|| image.display().to_string())?;
        let me = Caller::root();
        let made = fs.create(fs.root(), name.as_bytes(), &NewFile::dir(0o755), &me);
        match made.and_then(|stat| fs.sync().map(|()| stat.inode)) {
            Ok(base) => Ok(Self { fs, me, base, name: name.into() }),
            Err(error) => {
                // The first error is returned.
                let _ = fs.unmount();
                Err(error).with_context(|| format!("{}: a folder for the files", image.display()))
            }
        }
    }

    /// Removes all files of the case if `clean` is set, and closes the image.
    pub(crate) fn close(self, clean: bool) -> Result<()> {
        let cleaned = if clean { self.remove_all() } else { Ok(()) };
        self.fs.unmount()?;
        cleaned
    }

    fn remove_all(&self) -> Result<()> {
        self.empty(self.base)?;
        Ok(self.fs.rmdir(self.fs.root(), &self.name, &self.me)?)
    }

    fn empty(&self, dir: InodeNumber) -> Result<()> {
        let mut listing = Listing::new(dir);
        loop {
            let entries = self.next_entries(&mut listing, PIECE)?;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in entries {
                if entry.file_type == Some(FileType::Dir) {
                    self.empty(entry.inode)?;
                    self.fs.rmdir(dir, &entry.name, &self.me)?;
                } else {
                    self.fs.unlink(dir, &entry.name, &self.me)?;
                }
            }
        }
    }

    /// The next `most` entries, without `.` and `..`; fewer only at the end.
    fn next_entries(&self, listing: &mut Listing, most: usize) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        let Listing { dir, cookie } = listing;
        self.fs.read_dir(*dir, *cookie, |entry| {
            *cookie = entry.next_cookie;
            if entry.name != b"." && entry.name != b".." {
                entries.push(entry.into());
            }
            if entries.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(entries)
    }
}

impl Target for Engine {
    type Dir = InodeNumber;
    type File = InodeNumber;
    type Listing = Listing;

    fn about(&self) -> About {
        let options = self.fs.options();
        let on = |on| if on { "on" } else { "off" };
        About {
            how: "in this process, on the image file".into(),
            geometry: geometry(&self.fs.superblock()),
            options: format!(
                "attributes by the {:?} path, whiteouts {}, known-absent {}, attributes logged {:?}, wsync {}, \
                 cache {} MiB",
                options.attr_path,
                on(options.whiteouts),
                on(options.known_absent),
                options.attr_logging,
                on(options.wsync),
                options.cache_bytes >> 20
            )
            .to_lowercase(),
            durability: if options.wsync { WSYNC } else { DELAYED }.into(),
        }
    }

    fn base(&self) -> &InodeNumber {
        &self.base
    }

    fn make_dir(&self, parent: &InodeNumber, name: &[u8]) -> Result<InodeNumber> {
        Ok(self.fs.create(*parent, name, &NewFile::dir(0o755), &self.me)?.inode)
    }

    fn create(&self, dir: &InodeNumber, name: &[u8]) -> Result<u64> {
        Ok(self.fs.create(*dir, name, &NewFile::file(0o644), &self.me)?.inode.0)
    }

    fn file(&self, _: &InodeNumber, _: &[u8], made: u64) -> InodeNumber {
        InodeNumber(made)
    }

    fn renamed(&self, _: &InodeNumber, _: &[u8], file: InodeNumber) -> InodeNumber {
        file
    }

    fn stat(&self, dir: &InodeNumber, name: &[u8]) -> Result<()> {
        self.fs.lookup(*dir, name)?;
        Ok(())
    }

    fn ask_permission(&self, file: &InodeNumber) -> Result<()> {
        self.ask_absent(file, "system.posix_acl_access")?;
        self.ask_absent(file, "security.capability")
    }

    fn ask_absent(&self, file: &InodeNumber, name: &str) -> Result<()> {
        match self.fs.get_xattr(*file, name.as_bytes()) {
            Ok(_) | Err(Error::NoAttribute) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn unlink(&self, dir: &InodeNumber, name: &[u8]) -> Result<()> {
        Ok(self.fs.unlink(*dir, name, &self.me)?)
    }

    fn rename(&self, from: (&InodeNumber, &[u8]), to: (&InodeNumber, &[u8])) -> Result<()> {
        Ok(self.fs.rename(*from.0, from.1, *to.0, to.1, RenameFlags::default(), &self.me)?)
    }

    fn open_list(&self, dir: &InodeNumber) -> Result<Listing> {
        Ok(Listing::new(*dir))
    }

    fn next_names(&self, listing: &mut Listing, most: usize) -> Result<Vec<Vec<u8>>> {
        Ok(self.next_entries(listing, most)?.into_iter().map(|entry| entry.name).collect())
    }

    fn set_xattr(&self, file: &InodeNumber, name: &str, value: &[u8]) -> Result<()> {
        Ok(self.fs.set_xattr(*file, name.as_bytes(), value, SetMode::Any, &self.me)?)
    }

    fn get_xattr(&self, file: &InodeNumber, name: &str, _: &mut [u8]) -> Result<usize> {
        Ok(self.fs.get_xattr(*file, name.as_bytes())?.len())
    }

    fn remove_xattr(&self, file: &InodeNumber, name: &str) -> Result<()> {
        Ok(self.fs.remove_xattr(*file, name.as_bytes(), SetMode::Any, &self.me)?)
    }

    fn list_xattrs(&self, file: &InodeNumber, _: &mut [u8]) -> Result<usize> {
        Ok(self.fs.list_xattrs(*file)?.iter().map(|name| name.len() + 1).sum())
    }

    fn write(&self, file: &InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.fs.write_at(*file, offset, data)?)
    }

    fn read(&self, file: &InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.fs.read_at(*file, offset, buffer)?;
        Ok(())
    }

    fn fsync(&self, file: &InodeNumber) -> Result<()> {
        Ok(self.fs.fsync(*file)?)
    }

    fn statfs(&self) -> Result<()> {
        self.fs.statfs();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.fs.sync()?)
    }

    fn counts(&self) -> Result<Counts> {
        let counters = self.fs.counters();
        Ok(Counts {
            transactions: Some(counters.transactions.get()),
            log_bytes: Some(counters.log_bytes.get()),
            others: counters.list().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        })
    }
}

//! Makes many small files at once, with their attributes and contents, in one transaction: for a caller that
//! fills an image.
//!
//! ```text
//! 1  contents are written to free blocks near the directory       nothing is changed yet
//! 2  inodes, names, parent pointers, attributes, extents          one transaction
//! ```
//! Crash behaviour: all of them are there, or none.

use super::acl::{self, Attributes};
use super::create::check_new;
use super::protected::check_new_entry;
use super::setattr::check_time;
use super::xattr::parse_plain;
use super::{Caller, FileType, NewFile, Stat, Volume, WholeFile, check_new_name};
use crate::attr::Attr;
use crate::attr::update::{self, Logging};
use crate::data;
use crate::dir;
use crate::error::{Error, Result};
use crate::inode::default_fork_offset;
use crate::mount::AttrPath;
use crate::ops::stat::stat_of;
use crate::space;
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use std::collections::HashSet;
use xfskit_ondisk::attr::shortform::SHORTFORM_LENGTH_LIMIT;
use xfskit_ondisk::inode::{MODE_REGULAR, flags2};
use xfskit_ondisk::{ForkFormat, InodeNumber, clamp_time};

const SHORTFORM_HEADER_BYTES: usize = 4;
const SHORTFORM_ENTRY_HEADER_BYTES: usize = 3;
const PARENT_VALUE_BYTES: usize = 12;
/// Most bytes of contents of one file.
const MAX_CONTENTS_BYTES: usize = 64 << 10;
/// Share of the journal that one call may take.
const LOG_SHARE: u64 = 16;
/// Files that take as much of the journal together as one may take at worst, at least.
const FILES_PER_WORST_CASE: usize = 16;

/// Bytes of a file's attributes in shortform, its parent pointer's included.
fn shortform_bytes(file: &WholeFile<'_>) -> usize {
    let of = |(name, value): &(Vec<u8>, Vec<u8>)| SHORTFORM_ENTRY_HEADER_BYTES + name.len() + value.len();
    let parent = SHORTFORM_ENTRY_HEADER_BYTES + file.name.len() + PARENT_VALUE_BYTES;
    SHORTFORM_HEADER_BYTES + parent + file.xattrs.iter().map(of).sum::<usize>()
}

impl Volume {
    /// Whether [`Self::make_files`] can make a file: its contents are small, its attributes fit the new inode in
    /// shortform, and none is an ACL.
    pub fn is_small(&self, file: &WholeFile<'_>) -> bool {
        let (geometry, options) = (&self.mount.geometry, &self.mount.options);
        if file.contents.len() > MAX_CONTENTS_BYTES || file.xattrs.iter().any(|(name, _)| parse_plain(name).is_err()) {
            return false;
        }
        let limit = SHORTFORM_LENGTH_LIMIT;
        if file.xattrs.iter().any(|(name, value)| name.len() >= limit || value.len() >= limit) {
            return false;
        }
        // What did not fit would take transactions of its own.
        let in_shortform = options.attr_path == AttrPath::Fast;
        let room = geometry.literal_area_bytes() - 8 * usize::from(default_fork_offset(geometry, ForkFormat::Extents));
        in_shortform && (geometry.has_parent() || file.xattrs.is_empty()) && shortform_bytes(file) <= room
    }

    /// Makes small regular files in a directory that has no default ACL, the first of them at least; returns those that
    /// it made, in their order. Nothing is made when there is an error.
    ///
    /// # Errors
    /// `Exists`, `NotADirectory`, `NoSpace`, `NameTooLong`; `Invalid` for a file that is not [small](Self::is_small),
    /// and for times, permissions and attributes that the calls for one file refuse; `NotFound` in a removed directory,
    /// `NotPermitted` in an immutable one.
    pub fn make_files(&self, dir: InodeNumber, files: &[WholeFile<'_>]) -> Result<Vec<Stat>> {
        if !files.is_sorted_by(|a, b| a.name < b.name) {
            let mut names = HashSet::with_capacity(files.len());
            if !files.iter().all(|file| names.insert(file.name)) {
                return Err(Error::Exists);
            }
        }
        for file in files {
            check_new_name(file.name)?;
            check_new(&NewFile::new(FileType::File, file.permissions))?;
            check_time(file.atime)?;
            check_time(file.mtime)?;
            for (name, value) in file.xattrs {
                let (namespace, name) = parse_plain(name)?;
                acl::check_stored(namespace.flags(), name, value)?;
            }
            if !self.is_small(file) {
                return Err(Error::Invalid("the file is too large to be made in one step"));
            }
        }
        // What all of them may need together is far more than they do need: the transaction ends when it comes near to
        // what is reserved.
        let one = self.make_one_reservation();
        let most = (self.mount.journal.usage().1 / LOG_SHARE / u64::from(one.log_bytes)).max(1);
        // The contents of files that a small log has no room for are not written in vain.
        let likely = if most == 1 { 1 } else { (most as usize - 1) * FILES_PER_WORST_CASE };
        let files = &files[..files.len().min(likely)];
        let block_bytes = self.mount.geometry.block_bytes();
        let blocks: usize = files.iter().map(|file| file.contents.len().div_ceil(block_bytes)).sum();
        let count = files.len() as u64;
        let reservation = Reservation {
            log_bytes: one.log_bytes * most.min(count) as u32,
            blocks: one.blocks * count + blocks as u64,
            ..one
        };
        let log = LogRoom { all: reservation.log_bytes.into(), one: one.log_bytes.into() };
        let dir_inode = self.mount.inode(dir)?;
        loop {
            let mut tx = self.begin(reservation)?;
            let result = (|| {
                let dir = self.join_dir(&mut tx, &dir_inode)?;
                self.make_files_in(&mut tx, dir, files, log)
            })();
            match tx.finish(result) {
                // The AG that has inodes is held by another, and comes before that of the contents.
                Err(Error::WouldBlock) => crate::sync::yield_now(),
                other => return self.located(dir, other),
            }
        }
    }

    /// What one file takes, its contents' blocks apart.
    fn make_one_reservation(&self) -> Reservation {
        let create = self.create_reservation(&NewFile::file(0), Attributes::InInode);
        let levels = u64::from(self.mount.limits.data_levels);
        Reservation { log_bytes: create.log_bytes, ..create }.with_more_blocks(levels)
    }

    fn make_files_in(
        &self,
        tx: &mut Transaction,
        dir: InoId,
        files: &[WholeFile<'_>],
        log: LogRoom,
    ) -> Result<Vec<Stat>> {
        if tx.inode(dir).core.links == 0 {
            return Err(Error::NotFound);
        }
        for file in files {
            if dir::lookup(tx, dir, file.name)?.is_some() {
                return Err(Error::Exists);
            }
        }
        check_new_entry(tx, dir, MODE_REGULAR)?;
        let contents: Vec<_> = files.iter().map(|file| file.contents).filter(|bytes| !bytes.is_empty()).collect();
        let packed = if contents.is_empty() { None } else { data::pack(tx, dir, &contents)? };
        if packed.is_none() && !contents.is_empty() {
            return Err(Error::NoSpace);
        }
        let mut made = Vec::with_capacity(files.len());
        while made.len() < files.len() {
            let rest = &files[made.len()..];
            let most = log.files(tx).min(rest.len() as u64) as u32;
            if most == 0 {
                break;
            }
            let parent = tx.inode(dir).core.inode;
            let numbers = match space::inodes::allocate_inodes(tx, parent, MODE_REGULAR, most) {
                // There is no room for another inode: the others are made.
                Ok(numbers) if numbers.is_empty() && !made.is_empty() => break,
                Ok(numbers) if numbers.is_empty() => Err(Error::NoSpace),
                other => other,
            };
            match (numbers, packed) {
                (Ok(numbers), _) => {
                    for (number, file) in numbers.into_iter().zip(rest) {
                        made.push(self.make_file(tx, dir, number, file)?);
                    }
                }
                (Err(error), Some(packed)) if !tx.is_dirty() => {
                    data::unpack(tx, dir, packed, &[])?;
                    return Err(error);
                }
                (Err(error), _) => return Err(error),
            }
        }
        if let Some(packed) = packed {
            let sizes = made.iter().zip(files).map(|(id, file)| (*id, file.contents.len() as u64));
            let with_contents: Vec<_> = sizes.filter(|(_, size)| *size > 0).collect();
            data::unpack(tx, dir, packed, &with_contents)?;
        }
        Ok(made.into_iter().map(|id| stat_of(tx, tx.inode(id))).collect())
    }

    /// Makes the inode `number`, with its name and its attributes. An error here leaves one without a name, so it must
    /// not be committed.
    fn make_file(&self, tx: &mut Transaction, dir: InoId, number: InodeNumber, file: &WholeFile<'_>) -> Result<InoId> {
        let caller = Caller { uid: file.uid, gid: file.gid, groups: Vec::new() };
        let new = NewFile::new(FileType::File, file.permissions);
        let id = self.create_numbered(tx, dir, number, &new, &caller)?;
        let place = dir::vacant(tx, dir, file.name)?;
        self.enter(tx, dir, (file.name, place), id)?;
        for (name, value) in file.xattrs {
            let (namespace, name) = parse_plain(name)?;
            update::put(tx, id, Attr::new(namespace.flags(), name, value), Logging::NotLogged)?;
        }
        let core = &mut tx.inode_mut(id, InodeFields::CORE).core;
        let bigtime = core.flags2 & flags2::BIGTIME != 0;
        (core.mode, core.gid) = (new.mode(), file.gid);
        (core.atime, core.mtime) = (clamp_time(file.atime, bigtime), clamp_time(file.mtime, bigtime));
        Ok(id)
    }
}

/// How much of the log a transaction has, and a file may need.
#[derive(Clone, Copy)]
struct LogRoom {
    all: u64,
    one: u64,
}

impl LogRoom {
    /// Files for which there is room whatever they need.
    fn files(self, tx: &Transaction) -> u64 {
        let used = if tx.is_dirty() { tx.log_bytes_so_far() } else { 0 };
        self.all.saturating_sub(used) / self.one
    }
}

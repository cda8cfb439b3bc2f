//! Renames: plain, without replacing, exchanging two names, leaving a whiteout behind.
//!
//! One transaction changes both directories, the `..` of a directory that moves, link counts, parent pointers, and
//! the inode that lost its last name.
//!
//! A file that takes another one's name has its contents on disk first: what of them waits in memory is written out and
//! mapped by transactions that commit before the rename, so no checkpoint holds the new name without them, and a crash
//! never loses the contents of both files. What of them was written in place is flushed before that checkpoint, too
//! (`Journal::order_in_place`). Nothing is flushed here: the journal does it when it writes the checkpoint.
//!
//! Locking: up to five inodes, in no order that fits all cases. The first lock is waited for; the others are tried, and
//! when one is taken the transaction, which has changed nothing yet, lets go of everything and starts anew. Renames
//! between directories also exclude each other, so that the check against moving a directory below itself holds until
//! the move is done.

use super::create::{MAX_LINKS, single, touch, touch_dir};
use super::links::{check_empty_dir, check_has_subdirectory, check_named, check_project, count_links};
use super::protected::{check_lost_entry, check_new_entry};
use super::{Caller, FileType, NewFile, Permissions, RenameFlags, Volume, check_name};
use crate::cycle::CycleGuard;
use crate::dir::{self, DirEntry};
use crate::error::{Error, Result};
use crate::incore::Inode;
use crate::inode::unlinked;
use crate::mount::BlockPool;
use crate::parent;
use crate::space;
use crate::sync::atomic::Ordering;
use crate::trans::reservation_of;
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::dir::FileType as EntryType;

/// One side of a rename.
struct Side<'a> {
    dir: InoId,
    name: &'a [u8],
}

/// The inodes of a rename, all locked.
struct Locked {
    from_dir: InoId,
    to_dir: InoId,
    child: InoId,
    victim: Option<(InoId, Arc<Inode>)>,
    child_inode: Arc<Inode>,
}

/// Files that take the name of another one, and whose contents wait in memory.
enum Unsettled {
    /// Those that were found; none yet.
    Ask(Vec<Arc<Inode>>),
    /// They were written out. What others have written to them since is not waited for.
    Done,
}

impl Unsettled {
    /// Looks for such files before the first change; `WouldBlock` if there are any.
    fn look(&mut self, tx: &Transaction, locked: &Locked, flags: RenameFlags) -> Result<()> {
        let (Self::Ask(found), Some((victim, inode))) = (self, &locked.victim) else { return Ok(()) };
        let takes_name = [(locked.child, &locked.child_inode, true), (*victim, inode, flags.exchange)];
        let waits = |(id, _, takes): &(InoId, _, bool)| *takes && !tx.inode(*id).is_settled();
        found.extend(takes_name.into_iter().filter(waits).map(|(_, inode, _)| Arc::clone(inode)));
        if found.is_empty() { Ok(()) } else { Err(Error::WouldBlock) }
    }

    /// The files to write out, once.
    fn take(&mut self) -> Option<Vec<Arc<Inode>>> {
        match std::mem::replace(self, Self::Done) {
            Self::Ask(found) if !found.is_empty() => Some(found),
            Self::Ask(none) => {
                *self = Self::Ask(none);
                None
            }
            Self::Done => None,
        }
    }
}

impl Volume {
    /// Moves `name` of `dir` to `new_name` of `new_dir`.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `IsADirectory`, `NotADirectory`, `Invalid` when a directory would move below
    /// itself, `NotPermitted` in a sticky directory and for what is immutable or append-only, `CrossesProjects`,
    /// `TooManyLinks`, `NoSpace`.
    pub fn rename(
        &self,
        dir: InodeNumber,
        name: &[u8],
        new_dir: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        for name in [name, new_name] {
            if name == b"." || name == b".." {
                return Err(Error::Invalid("'.' and '..' cannot be renamed"));
            }
        }
        if flags.exchange && (flags.no_replace || flags.whiteout) {
            return Err(Error::Invalid("an exchange neither replaces nor leaves a whiteout"));
        }
        let _moves = (dir != new_dir).then(|| self.mount.moves.lock());
        let mut unsettled = Unsettled::Ask(Vec::new());
        loop {
            match self.try_rename((dir, name), (new_dir, new_name), flags, caller, &mut unsettled) {
                Err(Error::WouldBlock) => match unsettled.take() {
                    Some(inodes) => inodes.iter().try_for_each(|inode| self.write_out(inode))?,
                    None => crate::sync::yield_now(),
                },
                other => return self.located(dir, other),
            }
        }
    }

    fn try_rename(
        &self,
        from: (InodeNumber, &[u8]),
        to: (InodeNumber, &[u8]),
        flags: RenameFlags,
        caller: &Caller,
        unsettled: &mut Unsettled,
    ) -> Result<()> {
        let mut checked = (None, None);
        if from.0 != to.0 {
            checked.0 = Some(self.check_no_loop(from, to.0)?);
            if flags.exchange {
                checked.1 = Some(self.check_no_loop(to, from.0)?);
            }
        }
        let (mut tx, is_full) = self.begin_rename()?;
        let mut left_over = None;
        let result = (|| {
            let Some(locked) = self.lock_for_rename(&mut tx, from, to, flags)? else { return Ok(()) };
            let number = |ino: InoId| tx.inode(ino).core.inode;
            let other = locked.victim.as_ref().map(|(victim, _)| number(*victim));
            // A rename within one directory may have put another directory under the name since the check.
            if checked.0.is_some_and(|moved| moved != number(locked.child)) || checked.1.is_some() && checked.1 != other
            {
                return Err(Error::WouldBlock);
            }
            check(&mut tx, &locked, flags, caller)?;
            if is_full && !replaces(&locked, flags) {
                return Err(Error::NoSpace);
            }
            unsettled.look(&tx, &locked, flags)?;
            if locked.victim.is_some() {
                self.mount.journal.order_in_place();
            }
            let from_side = Side { dir: locked.from_dir, name: from.1 };
            let to_side = Side { dir: locked.to_dir, name: to.1 };
            if flags.exchange {
                return exchange(&mut tx, &locked, &from_side, &to_side);
            }
            self.move_name(&mut tx, &locked, &from_side, &to_side, flags, caller)?;
            if let Some((victim, inode)) = &locked.victim {
                let state = tx.inode(*victim);
                if state.core.links == 0 && !state.freed && inode.opens.load(Ordering::Acquire) == 0 {
                    left_over = Some(Arc::clone(inode));
                }
            }
            Ok(())
        })();
        tx.finish(result)?;
        left_over.map_or(Ok(()), |inode| self.inactivate_or_put_off(&inode))
    }

    /// Begins a rename; says whether that is one for a full image, which may only take the place of another file: then
    /// there is one name less, and the parent pointer that one inode gains is as long as the one that another loses.
    fn begin_rename(&self) -> Result<(Transaction<'_>, bool)> {
        let reservation = self.rename_reservation();
        match self.begin(reservation) {
            Err(Error::NoSpace) => Ok((self.begin(reservation.with_pool(BlockPool::Removal))?, true)),
            other => Ok((other?, false)),
        }
    }

    fn rename_reservation(&self) -> Reservation {
        let mount = &self.mount;
        let rename = reservation_of(mount.reservations.rename);
        let create = reservation_of(mount.reservations.create);
        let blocks = 2 * dir::blocks_to_add(&mount.geometry, &mount.limits)
            + 2 * parent::blocks_to_add(&mount.geometry, &mount.limits)
            + space::inode_allocation_blocks(&mount.geometry, &mount.limits);
        let both = Reservation { log_bytes: rename.log_bytes + create.log_bytes, ..rename };
        Reservation { log_count: 1, ..single(both) }.with_blocks(blocks)
    }

    /// Fails when `to` lies below the directory that `from` names: it would lose its connection to the root. Returns
    /// what `from` names.
    fn check_no_loop(&self, from: (InodeNumber, &[u8]), to: InodeNumber) -> Result<InodeNumber> {
        let moved = self.lookup_number(from.0, from.1)?;
        if !self.stat(moved).is_ok_and(|stat| stat.file_type.is_dir()) {
            return Ok(moved);
        }
        let mut at = to;
        let mut guard = CycleGuard::default();
        while at != self.root() {
            if at == moved {
                return Err(Error::Invalid("a directory cannot move below itself"));
            }
            crate::ensure_on_disk!(guard.visit(at.0), "directory", "parents lead to the root", "from inode {to}");
            at = self.lookup_number(at, b"..")?;
        }
        Ok(moved)
    }

    /// Locks everything; `None` when both names are the same file, and nothing is to be done.
    fn lock_for_rename(
        &self,
        tx: &mut Transaction,
        from: (InodeNumber, &[u8]),
        to: (InodeNumber, &[u8]),
        flags: RenameFlags,
    ) -> Result<Option<Locked>> {
        let from_dir = self.join_dir(tx, &self.mount.inode(from.0)?)?;
        let to_dir = if to.0 == from.0 { from_dir } else { self.try_join(tx, &self.mount.inode(to.0)?)? };
        if !tx.inode(to_dir).core.is_dir() {
            return Err(Error::NotADirectory);
        }
        let entry: DirEntry = dir::lookup(tx, from_dir, from.1)?.ok_or(Error::NotFound)?;
        let target = dir::lookup(tx, to_dir, to.1)?;
        if tx.inode(to_dir).core.links == 0 {
            return Err(Error::NotFound);
        }
        if target.is_some() && flags.no_replace {
            return Err(Error::Exists);
        }
        if target.is_none() && flags.exchange {
            return Err(Error::NotFound);
        }
        if target.as_ref().is_some_and(|target| target.inode == entry.inode) {
            return Ok(None);
        }
        // The moved file may not be one of the directories: a directory is not its own entry.
        if entry.inode == from.0 || entry.inode == to.0 {
            return Err(Error::Invalid("a directory cannot move below itself"));
        }
        let child_inode = self.mount.inode(entry.inode)?;
        let child = self.try_join(tx, &child_inode)?;
        let victim = match target {
            Some(target) if target.inode == from.0 || target.inode == to.0 => return Err(Error::NotEmpty),
            Some(target) => {
                let inode = self.mount.inode(target.inode)?;
                Some((self.try_join(tx, &inode)?, inode))
            }
            None => None,
        };
        Ok(Some(Locked { from_dir, to_dir, child, victim, child_inode }))
    }

    fn move_name(
        &self,
        tx: &mut Transaction,
        locked: &Locked,
        from: &Side<'_>,
        to: &Side<'_>,
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()> {
        let child = locked.child;
        let core = &tx.inode(child).core;
        let (number, is_dir, file_type) = (core.inode, core.is_dir(), EntryType::from_mode(core.mode));
        let moves = from.dir != to.dir;
        parent::verify(tx, from.dir, from.name, child)?;
        if let Some((victim, inode)) = &locked.victim {
            let held = inode.opens.load(Ordering::Acquire) > 0 || flags.whiteout;
            if !frees_now(tx, *victim, held) {
                parent::verify(tx, to.dir, to.name, *victim)?;
            }
        }
        let whiteout = if flags.whiteout { Some(self.make_whiteout(tx, locked, caller)?) } else { None };
        // Inode headers before free space, and the victim's before any other: they may be waited for only in order.
        let mut victim_was_dir = false;
        if let Some((victim, inode)) = &locked.victim {
            victim_was_dir = tx.inode(*victim).core.is_dir();
            // The whiteout's number comes from before, so that it is not one that this transaction frees and still
            // holds; and its AG may be one for which the victim's may not be waited for any more.
            let held = inode.opens.load(Ordering::Acquire) > 0 || flags.whiteout;
            drop_victim(tx, *victim, victim_was_dir, held, to)?;
            dir::replace(tx, to.dir, to.name, number, file_type)?;
        } else {
            dir::add(tx, to.dir, to.name, number, file_type)?;
        }
        if is_dir && moves {
            let new_parent = tx.inode(to.dir).core.inode;
            dir::replace(tx, child, b"..", new_parent, EntryType::Directory)?;
        }
        let came = i32::from(is_dir && moves);
        count_links(tx, to.dir, came - i32::from(victim_was_dir))?;
        count_links(tx, from.dir, -came)?;
        if let Some(whiteout) = whiteout {
            leave_whiteout(tx, from, whiteout)?;
        } else {
            dir::remove(tx, from.dir, from.name)?;
        }
        touch_dir(tx, to.dir);
        if moves {
            touch_dir(tx, from.dir);
        }
        touch(tx, child);
        parent::replace(tx, (from.dir, from.name), (to.dir, to.name), child)
    }

    /// Makes the inode of a whiteout, before anything is changed: there may be none. `WouldBlock` when another
    /// transaction holds the AG that has one.
    fn make_whiteout(&self, tx: &mut Transaction, locked: &Locked, caller: &Caller) -> Result<InoId> {
        if let Some((victim, _)) = &locked.victim {
            unlinked::lock_list(tx, *victim)?;
        }
        let new = NewFile::new(FileType::CharDevice, Permissions::new(0));
        self.create_unnamed(tx, locked.from_dir, &new, caller)
    }
}

/// Puts a whiteout under the old name.
fn leave_whiteout(tx: &mut Transaction, from: &Side<'_>, whiteout: InoId) -> Result<()> {
    let number = tx.inode(whiteout).core.inode;
    tx.inode_mut(whiteout, InodeFields::CORE).core.links = 1;
    dir::replace(tx, from.dir, from.name, number, EntryType::CharDevice)?;
    parent::add(tx, from.dir, from.name, whiteout)
}

/// Whether the rename only takes a name away.
fn replaces(locked: &Locked, flags: RenameFlags) -> bool {
    locked.victim.is_some() && !flags.whiteout && !flags.exchange
}

/// Whether the inode that is replaced goes with its name: it has no other, and no blocks to free first.
fn frees_now(tx: &Transaction, victim: InoId, held: bool) -> bool {
    let core = &tx.inode(victim).core;
    (core.is_dir() || core.links <= 1) && !held && super::inactive::goes_with_its_name(tx, victim)
}

/// Takes the name from the inode that is replaced.
fn drop_victim(tx: &mut Transaction, victim: InoId, is_dir: bool, held: bool, to: &Side<'_>) -> Result<()> {
    let frees = frees_now(tx, victim, held);
    touch(tx, victim);
    let core = &mut tx.inode_mut(victim, InodeFields::CORE).core;
    core.links = if is_dir { 0 } else { core.links.saturating_sub(1) };
    if core.links > 0 {
        return parent::remove(tx, to.dir, to.name, victim);
    }
    if frees {
        return super::inactive::free_now(tx, victim);
    }
    unlinked::insert(tx, victim)?;
    parent::remove(tx, to.dir, to.name, victim)
}

/// Checks what can be seen only of locked inodes.
fn check(tx: &mut Transaction, locked: &Locked, flags: RenameFlags, caller: &Caller) -> Result<()> {
    check_lost_entry(tx, locked.from_dir, locked.child, caller)?;
    let is_dir = tx.inode(locked.child).core.is_dir();
    let moves = locked.from_dir != locked.to_dir;
    let mut victim_is_dir = false;
    if let Some((victim, _)) = &locked.victim {
        check_lost_entry(tx, locked.to_dir, *victim, caller)?;
        victim_is_dir = tx.inode(*victim).core.is_dir();
        if !flags.exchange {
            match (is_dir, victim_is_dir) {
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                _ => {}
            }
        }
        check_project(tx, locked.to_dir, locked.child)?;
        if !flags.exchange && victim_is_dir {
            if !dir::is_empty(tx, *victim)? {
                return Err(Error::NotEmpty);
            }
            check_empty_dir(tx, *victim)?;
        }
    } else {
        // What moves keeps its kind, so a directory without links takes it.
        check_new_entry(tx, locked.to_dir, 0)?;
        check_project(tx, locked.to_dir, locked.child)?;
    }
    check_link_counts(tx, locked, is_dir, moves)?;
    if flags.exchange && moves && victim_is_dir && !is_dir && tx.inode(locked.from_dir).core.links >= MAX_LINKS {
        return Err(Error::TooManyLinks);
    }
    if moves && is_dir && !victim_is_dir && tx.inode(locked.to_dir).core.links >= MAX_LINKS {
        return Err(Error::TooManyLinks);
    }
    parent::expect_room(tx, locked.child)?;
    match locked.victim {
        Some((other, _)) if flags.exchange => parent::expect_room(tx, other),
        _ => Ok(()),
    }
}

/// Checks that all link counts allow what is going to happen to them, which damage may prevent.
fn check_link_counts(tx: &Transaction, locked: &Locked, is_dir: bool, moves: bool) -> Result<()> {
    check_named(tx, locked.child)?;
    if is_dir && moves {
        check_has_subdirectory(tx, locked.from_dir)?;
    }
    let Some((victim, _)) = &locked.victim else { return Ok(()) };
    check_named(tx, *victim)?;
    if tx.inode(*victim).core.is_dir() { check_has_subdirectory(tx, locked.to_dir) } else { Ok(()) }
}

/// The times of an inode that an exchange gave another name: those that the kernel sets. `goes_below`: it is a
/// directory and its `..` has changed; `with_dir`: so it is with the other one. Whatever the times are, the inode is
/// logged, so that an fsync makes the name durable.
fn touch_exchanged(tx: &mut Transaction, ino: InoId, goes_below: bool, with_dir: bool) {
    if goes_below {
        touch_dir(tx, ino);
    } else if with_dir || tx.geometry().has_parent() {
        touch(tx, ino);
    } else {
        tx.inode_mut(ino, InodeFields::CORE);
    }
}

fn exchange(tx: &mut Transaction, locked: &Locked, from: &Side<'_>, to: &Side<'_>) -> Result<()> {
    let Some((other, _)) = locked.victim else { return Err(Error::NotFound) };
    let child = locked.child;
    parent::verify(tx, from.dir, from.name, child)?;
    parent::verify(tx, to.dir, to.name, other)?;
    let describe = |tx: &Transaction, ino: InoId| {
        let core = &tx.inode(ino).core;
        (core.inode, core.is_dir(), EntryType::from_mode(core.mode))
    };
    let (child_number, child_is_dir, child_type) = describe(tx, child);
    let (other_number, other_is_dir, other_type) = describe(tx, other);
    dir::replace(tx, from.dir, from.name, other_number, other_type)?;
    dir::replace(tx, to.dir, to.name, child_number, child_type)?;
    if from.dir != to.dir {
        let (from_number, to_number) = (tx.inode(from.dir).core.inode, tx.inode(to.dir).core.inode);
        if child_is_dir {
            dir::replace(tx, child, b"..", to_number, EntryType::Directory)?;
        }
        if other_is_dir {
            dir::replace(tx, other, b"..", from_number, EntryType::Directory)?;
        }
        if child_is_dir != other_is_dir {
            let (gains, loses) = if child_is_dir { (to.dir, from.dir) } else { (from.dir, to.dir) };
            count_links(tx, gains, 1)?;
            count_links(tx, loses, -1)?;
        }
        touch_dir(tx, to.dir);
    }
    touch_dir(tx, from.dir);
    let moves = from.dir != to.dir;
    touch_exchanged(tx, child, moves && child_is_dir, moves && other_is_dir);
    touch_exchanged(tx, other, moves && other_is_dir, moves && child_is_dir);
    parent::replace(tx, (from.dir, from.name), (to.dir, to.name), child)?;
    parent::replace(tx, (to.dir, to.name), (from.dir, from.name), other)
}

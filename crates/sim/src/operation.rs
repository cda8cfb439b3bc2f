//! The operations of workloads, on the filesystem and on the model.

use crate::contents::bytes;
use crate::model::Model;
use crate::node::{Name, NodeId, Value, is_dir};
use crate::times::{Change, Shown};
use crate::tree::Settings;
use std::fmt;
use xfskit_engine::{
    Caller, Error, Fallocate, Flags, NewFile, Permissions, RenameFlags, SetAttr, SetMode, SetTime, Volume, XattrChange,
    xflags,
};
use xfskit_ondisk::inode::{MODE_REGULAR, MODE_SYMLINK, MODE_TYPE, flags2};
use xfskit_ondisk::{InodeNumber, Lsn, Timestamp};

/// An operation of a workload.
#[derive(Clone)]
pub enum Operation {
    /// A file, directory, pipe, socket or device node.
    Create { dir: NodeId, name: Name, mode: u16, device: u32 },
    /// A symbolic link; `target` is the length of its target in bytes.
    Symlink { dir: NodeId, name: Name, target: usize },
    /// A file without a name, with a reference.
    Tmpfile { dir: NodeId },
    /// Another name for an inode.
    Link { node: NodeId, dir: NodeId, name: Name },
    /// A name is removed.
    Unlink { dir: NodeId, name: Name },
    /// An empty directory is removed.
    Rmdir { dir: NodeId, name: Name },
    /// A name moves.
    Rename { from: (NodeId, Name), to: (NodeId, Name), flags: RenameFlags },
    /// An attribute is made or replaced.
    Set { node: NodeId, name: Name, value: Value },
    /// An attribute is removed.
    Remove { node: NodeId, name: Name },
    /// Many attributes at once.
    Batch { node: NodeId, changes: Vec<(Name, Option<Value>)> },
    /// Permissions and owner.
    Change { node: NodeId, mode: u16, uid: u32 },
    /// The group.
    ChangeGroup { node: NodeId, gid: u32 },
    /// The times that are given.
    SetTimes { node: NodeId, atime: Option<Timestamp>, mtime: Option<Timestamp> },
    /// Flags, project and hints.
    SetSettings { node: NodeId, settings: Settings },
    /// A reference is taken to an inode, which keeps it when its last name is removed.
    Hold { node: NodeId },
    /// The reference is released.
    Release { node: NodeId },
    /// Bytes of a file are written, at its end if no offset is given.
    Write { node: NodeId, offset: Option<u64>, length: usize, seed: u64 },
    /// The size of a file is set.
    Truncate { node: NodeId, size: u64 },
    /// Space of a file changes.
    Fallocate { node: NodeId, what: Fallocate, offset: u64, length: u64 },
    /// A range is copied, or its blocks are shared if `share` is set.
    Copy { from: (NodeId, u64), to: (NodeId, u64), length: u64, share: bool },
    /// One file's contents become durable.
    Fdatasync { node: NodeId },
    /// Everything becomes durable.
    Sync,
    /// One inode becomes durable.
    Fsync { node: NodeId },
    /// Write-back writes everything that it can to its place on the device.
    PushTail,
}

/// A name for display; a long one is cut short.
fn shown(name: &[u8]) -> String {
    let text = name.escape_ascii().to_string();
    if text.len() <= 40 { text } else { format!("{}...({} bytes)", &text[..32], name.len()) }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { dir, name, mode, .. } => write!(f, "create {dir}/{} mode {mode:o}", shown(name)),
            Self::Symlink { dir, name, target } => write!(f, "symlink {dir}/{} of {target} bytes", shown(name)),
            Self::Tmpfile { dir } => write!(f, "tmpfile in {dir}"),
            Self::Link { node, dir, name } => write!(f, "link {node} as {dir}/{}", shown(name)),
            Self::Unlink { dir, name } => write!(f, "unlink {dir}/{}", shown(name)),
            Self::Rmdir { dir, name } => write!(f, "rmdir {dir}/{}", shown(name)),
            Self::Rename { from, to, flags } => {
                let (old, new) = (shown(&from.1), shown(&to.1));
                write!(f, "rename {}/{old} to {}/{new}, {flags:?}", from.0, to.0)
            }
            Self::Set { node, name, value } => {
                write!(f, "set {} of {node} to {} bytes, seed {}", shown(name), value.length, value.seed)
            }
            Self::Remove { node, name } => write!(f, "remove {} of {node}", shown(name)),
            Self::Batch { node, changes } => {
                write!(f, "batch on {node}:")?;
                changes.iter().try_for_each(|(name, value)| {
                    write!(f, " {}={:?}", shown(name), value.map(|value| (value.length, value.seed)))
                })
            }
            Self::Change { node, mode, uid } => write!(f, "chmod {mode:o} and chown {uid} of {node}"),
            Self::ChangeGroup { node, gid } => write!(f, "chgrp {gid} of {node}"),
            Self::SetTimes { node, atime, mtime } => {
                let shown =
                    |time: &Option<Timestamp>| time.map_or("as it is".to_owned(), |time| Shown(time).to_string());
                write!(f, "set atime {} and mtime {} of {node}", shown(atime), shown(mtime))
            }
            Self::SetSettings { node, settings } => write!(f, "set {settings} of {node}"),
            Self::Hold { node } => write!(f, "hold {node}"),
            Self::Release { node } => write!(f, "release {node}"),
            Self::Write { node, offset: Some(offset), length, .. } => {
                write!(f, "write {length} bytes at {offset} of {node}")
            }
            Self::Write { node, length, .. } => write!(f, "append {length} bytes to {node}"),
            Self::Truncate { node, size } => write!(f, "truncate {node} to {size}"),
            Self::Fallocate { node, what, offset, length } => {
                write!(f, "{what:?} of {length} bytes at {offset} of {node}")
            }
            Self::Copy { from, to, length, share } => {
                let verb = if *share { "share" } else { "copy" };
                write!(f, "{verb} {length} bytes at {} of {} to {} of {}", from.1, from.0, to.1, to.0)
            }
            Self::Fdatasync { node } => write!(f, "fdatasync {node}"),
            Self::Sync => f.write_str("sync"),
            Self::Fsync { node } => write!(f, "fsync {node}"),
            Self::PushTail => f.write_str("push the tail"),
        }
    }
}

impl Operation {
    /// Performs the operation. Returns the number of the inode that it made, if it made one.
    ///
    /// # Errors
    /// The filesystem's.
    pub fn perform(&self, fs: &Volume, model: &Model) -> Result<Option<InodeNumber>, Error> {
        let me = Caller::root();
        let number = |node: &NodeId| model.number(*node);
        match self {
            Self::Create { dir, name, mode, device } => {
                let new = NewFile {
                    device: *device,
                    ..NewFile::of_mode(*mode).expect("workloads make files of types that exist")
                };
                fs.create(number(dir), name, &new, &me).map(|stat| Some(stat.inode))
            }
            Self::Symlink { dir, name, target } => {
                fs.symlink(number(dir), name, &target_of(*target), &me).map(|stat| Some(stat.inode))
            }
            Self::Tmpfile { dir } => {
                fs.tmpfile(number(dir), &NewFile::file(0o600), &me).map(|made| Some(made.into_raw()))
            }
            Self::Link { node, dir, name } => fs.link(number(dir), name, number(node), &Caller::root()).map(|_| None),
            Self::Unlink { dir, name } => fs.unlink(number(dir), name, &me).map(|()| None),
            Self::Rmdir { dir, name } => fs.rmdir(number(dir), name, &me).map(|()| None),
            Self::Rename { from, to, flags } => {
                fs.rename(number(&from.0), &from.1, number(&to.0), &to.1, *flags, &me).map(|()| None)
            }
            Self::Set { node, name, value } => {
                fs.set_xattr(number(node), name, &value.bytes(), SetMode::Any, &me).map(|()| None)
            }
            Self::Remove { node, name } => fs.remove_xattr(number(node), name, SetMode::Any, &me).map(|()| None),
            Self::Batch { node, changes } => {
                let changes: Vec<_> = changes
                    .iter()
                    .map(|(name, value)| XattrChange { name: name.clone(), value: value.map(Value::bytes) })
                    .collect();
                fs.change_xattrs(number(node), &changes, SetMode::Any, &me).map(|()| None)
            }
            Self::Change { node, mode, uid } => {
                let change =
                    SetAttr { permissions: Some(Permissions::new(*mode)), uid: Some(*uid), ..SetAttr::default() };
                fs.set_attr(number(node), &change, &me).map(|_| None)
            }
            Self::ChangeGroup { node, gid } => {
                let change = SetAttr { gid: Some(*gid), ..SetAttr::default() };
                fs.set_attr(number(node), &change, &me).map(|_| None)
            }
            Self::SetTimes { node, atime, mtime } => {
                let to = |time: &Option<Timestamp>| time.map(SetTime::To);
                let change = SetAttr { atime: to(atime), mtime: to(mtime), ..SetAttr::default() };
                fs.set_attr(number(node), &change, &me).map(|_| None)
            }
            Self::SetSettings { node, settings } => set_settings(fs, number(node), *settings).map(|()| None),
            Self::Hold { node } => fs.add_reference(number(node)).map(|()| None),
            // Half of them are freed at once, and half together with others.
            Self::Release { node } if number(node).0.is_multiple_of(2) => {
                fs.drop_references(number(node), 1).map(|()| None)
            }
            Self::Release { node } => fs.drop_references_lazily(number(node), 1).map(|()| None),
            Self::Write { .. } | Self::Truncate { .. } | Self::Fallocate { .. } | Self::Copy { .. } => {
                self.change_contents(fs, model).map(|()| None)
            }
            Self::Fdatasync { node } => fs.fdatasync(number(node)).map(|()| None),
            Self::Sync => fs.sync().map(|()| None),
            Self::Fsync { node } => fs.fsync(number(node)).map(|()| None),
            Self::PushTail => fs.mount().journal.push_tail(Lsn(u64::MAX)).map(|_| None),
        }
    }

    /// Performs an operation on contents; of others, nothing.
    fn change_contents(&self, fs: &Volume, model: &Model) -> Result<(), Error> {
        let number = |node: &NodeId| model.number(*node);
        match self {
            Self::Write { node, offset, length, seed } => {
                let at = offset.unwrap_or_else(|| model.contents(*node).size());
                let data = bytes(*seed, at, *length);
                match offset {
                    Some(offset) => fs.write_at(number(node), *offset, &data),
                    None => fs.append(number(node), &data).map(|_| ()),
                }
            }
            Self::Truncate { node, size } => fs.truncate(number(node), *size),
            Self::Fallocate { node, what, offset, length } => fs.fallocate(number(node), *offset, *length, *what),
            Self::Copy { from, to, length, share } => {
                let (source, target) = (number(&from.0), number(&to.0));
                if *share {
                    fs.clone_range(source, from.1, target, to.1, *length)
                } else {
                    copy_all(fs, (source, from.1), (target, to.1), *length)
                }
            }
            _ => Ok(()),
        }
    }

    /// Applies it to the model; `made` is the number of the inode that the filesystem made.
    pub fn apply(&self, model: &mut Model, made: Option<InodeNumber>) {
        let made = made.unwrap_or(InodeNumber(0));
        match self {
            Self::Create { dir, name, mode, device } => {
                let node = model.make(*dir, made, *mode, *device, Vec::new());
                model.enter(*dir, name, node);
                model.touch_contents(*dir);
            }
            Self::Symlink { dir, name, target } => {
                let node = model.make(*dir, made, MODE_SYMLINK | 0o777, 0, target_of(*target));
                model.enter(*dir, name, node);
                model.touch_contents(*dir);
            }
            Self::Tmpfile { dir } => {
                let node = model.make(*dir, made, 0o100_600, 0, Vec::new());
                model.hold(node, 1);
            }
            Self::Link { node, dir, name } => {
                model.enter(*dir, name, *node);
                model.touch_contents(*dir);
                model.touch(*node);
            }
            Self::Unlink { dir, name } | Self::Rmdir { dir, name } => {
                if let Some(node) = model.lookup(*dir, name) {
                    model.touch(node);
                }
                model.leave(*dir, name);
                model.touch_contents(*dir);
            }
            Self::Rename { from, to, flags } => model.rename(from, to, *flags),
            Self::Set { node, name, value } => model.set(*node, name, Some(*value)),
            Self::Remove { node, name } => model.set(*node, name, None),
            Self::Batch { node, changes } => {
                for (name, value) in changes {
                    model.set(*node, name, *value);
                }
            }
            Self::Change { node, mode, uid } => model.change(*node, *mode, *uid),
            Self::ChangeGroup { node, gid } => model.set_group(*node, *gid),
            Self::SetTimes { node, atime, mtime } => model.set_times(*node, *atime, *mtime),
            Self::SetSettings { node, settings } => model.set_settings(*node, *settings),
            Self::Hold { node } => model.hold(*node, 1),
            Self::Release { node } => model.hold(*node, -1),
            Self::Write { .. } | Self::Truncate { .. } | Self::Fallocate { .. } | Self::Copy { .. } => {
                self.apply_to_contents(model);
            }
            Self::Sync | Self::Fsync { .. } | Self::Fdatasync { .. } | Self::PushTail => {}
        }
    }

    fn apply_to_contents(&self, model: &mut Model) {
        if let Some((node, _)) = self.changed_file() {
            // If the file has the size already, the inode is touched, but not its contents.
            match self {
                Self::Truncate { size, .. } if *size == model.contents(node).size() => model.touch(node),
                _ => model.touch_contents(node),
            }
        }
        match self {
            Self::Write { node, offset, length, seed } => {
                let at = offset.unwrap_or_else(|| model.contents(*node).size());
                model.contents_mut(*node).write(at, &bytes(*seed, at, *length));
            }
            Self::Truncate { node, size } => model.contents_mut(*node).truncate(*size),
            Self::Fallocate { node, what, offset, length } => {
                let contents = model.contents_mut(*node);
                let size = contents.size();
                match what {
                    Fallocate::AllocateKeepSize | Fallocate::UnshareKeepSize => {}
                    Fallocate::PunchHole | Fallocate::ZeroRangeKeepSize => contents.zero(*offset, *length),
                    Fallocate::Allocate => contents.truncate(size.max(offset + length)),
                    Fallocate::ZeroRange => {
                        contents.zero(*offset, *length);
                        contents.truncate(size.max(offset + length));
                    }
                    Fallocate::CollapseRange => contents.collapse(*offset, *length),
                    Fallocate::InsertRange => contents.insert(*offset, *length),
                }
            }
            Self::Copy { from, to, length, .. } => {
                let source = model.contents(from.0).bytes(from.1, *length as usize);
                model.contents_mut(to.0).write(to.1, &source);
            }
            _ => {}
        }
    }

    /// The file whose contents it changes, and whether by moving parts of it.
    pub fn changed_file(&self) -> Option<(NodeId, bool)> {
        match self {
            Self::Write { node, .. } | Self::Truncate { node, .. } => Some((*node, false)),
            Self::Fallocate { node, what, .. } => {
                Some((*node, matches!(what, Fallocate::CollapseRange | Fallocate::InsertRange)))
            }
            Self::Copy { to, .. } => Some((to.0, false)),
            _ => None,
        }
    }

    /// What changes with the times that it sets, on a mount with or without `wsync`.
    pub fn change(&self, wsync: bool) -> Change {
        let is_late = self.changed_file().is_some() || matches!(self, Self::SetTimes { .. }) && !wsync;
        if is_late { Change::Late } else { Change::OfTheTree }
    }

    /// Whether the filesystem must refuse it, because a directory passes on its project and the inode has another.
    pub fn crosses_projects(&self, model: &Model) -> bool {
        match self {
            Self::Link { node, dir, .. } => model.refuses_project(*dir, *node),
            Self::Rename { from, to, .. } => {
                let node = model.lookup(from.0, &from.1);
                let other = model.lookup(to.0, &to.1);
                node.is_some_and(|node| other != Some(node) && model.refuses_project(to.0, node))
            }
            _ => false,
        }
    }

    /// Whether the filesystem may refuse it, because a file that has extents would get another hint for their size.
    pub fn sets_another_hint(&self, model: &Model) -> bool {
        match self {
            Self::SetSettings { node, settings } => {
                !is_dir(model.mode(*node)) && model.settings(*node).extent_blocks != settings.extent_blocks
            }
            _ => false,
        }
    }

    /// The files that take the name of another file by it. A state that shows the new name must show all that they
    /// contained before.
    pub fn replacing_files(&self, model: &Model) -> Vec<NodeId> {
        let Self::Rename { from, to, flags } = self else { return Vec::new() };
        let moved = (model.lookup(from.0, &from.1), model.lookup(to.0, &to.1));
        let (Some(node), Some(victim)) = moved else { return Vec::new() };
        let both = if flags.exchange { vec![node, victim] } else { vec![node] };
        both.into_iter().filter(|node| model.mode(*node) & MODE_TYPE == MODE_REGULAR).collect()
    }

    /// The inodes that the operation concerns: an fsync of one of them also acknowledges the operation.
    pub fn touched(&self, model: &Model) -> Vec<NodeId> {
        let named = |dir: &NodeId, name: &Name| model.lookup(*dir, name);
        match self {
            Self::Create { dir, .. } | Self::Symlink { dir, .. } | Self::Tmpfile { dir } => vec![*dir],
            Self::Link { node, dir, .. } => vec![*node, *dir],
            Self::Unlink { dir, name } | Self::Rmdir { dir, name } => {
                named(dir, name).into_iter().chain([*dir]).collect()
            }
            Self::Rename { from, to, .. } => {
                let moved = named(&from.0, &from.1).into_iter().chain(named(&to.0, &to.1));
                moved.chain([from.0, to.0]).collect()
            }
            Self::Set { node, .. } | Self::Remove { node, .. } | Self::Batch { node, .. } => vec![*node],
            Self::Change { node, .. } | Self::ChangeGroup { node, .. } => vec![*node],
            Self::SetTimes { node, .. } | Self::SetSettings { node, .. } => vec![*node],
            Self::Write { node, .. } | Self::Truncate { node, .. } | Self::Fallocate { node, .. } => vec![*node],
            Self::Copy { to, .. } => vec![to.0],
            Self::Hold { .. } | Self::Release { .. } | Self::PushTail => Vec::new(),
            Self::Sync | Self::Fsync { .. } | Self::Fdatasync { .. } => Vec::new(),
        }
    }
}

/// Sets flags, project and hints.
fn set_settings(fs: &Volume, number: InodeNumber, settings: Settings) -> Result<(), Error> {
    let block_log = fs.geometry().block_log;
    let bit = |flag: u64, bit: u32| if settings.flags2 & flag != 0 { bit } else { 0 };
    let flags = Flags {
        xflags: u32::from(settings.flags) | bit(flags2::DAX, xflags::DAX) | bit(flags2::COWEXTSIZE, xflags::COWEXTSIZE),
        project: settings.project,
        extent_size_bytes: settings.extent_blocks << block_log,
        cow_extent_size_bytes: settings.cow_extent_blocks << block_log,
    };
    fs.set_flags(number, &flags, &Caller::root())
}

/// A target of `length` bytes.
/// Copies as a program does that asks for the rest where fewer bytes were copied. Each place is an inode and an offset.
fn copy_all(fs: &Volume, from: (InodeNumber, u64), to: (InodeNumber, u64), length: u64) -> Result<(), Error> {
    let mut done = 0;
    while done < length {
        let count = fs.copy_range(from.0, from.1 + done, to.0, to.1 + done, length - done)?;
        if count == 0 {
            break;
        }
        done += count;
    }
    Ok(())
}

fn target_of(length: usize) -> Vec<u8> {
    (0..length).map(|at| if at % 40 == 39 { b'/' } else { b'a' + (at % 26) as u8 }).collect()
}

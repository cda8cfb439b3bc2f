//! Why a tree could not be moved, and which parts of it were lost.

use std::fmt;
use std::io;

/// The result of everything that can fail.
pub type Result<T, E = TransferError> = std::result::Result<T, E>;

/// Why a tree could not be moved. Paths that are not UTF-8 are shown with replacement characters.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The host refused something.
    #[error("{path}: {what}: {source}")]
    Host {
        /// The file or step at which it happened.
        path: String,
        /// The operation that was refused.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The image refused something.
    #[error("{path}: {source}")]
    Image {
        /// The file or step at which it happened.
        path: String,
        /// The engine's error.
        source: xfskit_vfs::Error,
    },
    /// A part of a directory of the image cannot be read.
    #[error("{path}: {}; {lost}", .lost.error)]
    LostNames {
        /// The directory.
        path: String,
        /// What is lost.
        lost: Box<xfskit_vfs::LostNames>,
    },
    /// A file changed while it was copied.
    #[error("{0}: it changed while it was read, or is not as long as it says; copy it when nothing writes to it")]
    Changed(String),
    /// A directory was given where only files are copied.
    #[error("{0}: it is a directory; -r copies it with everything in it")]
    NotRecursive(String),
    /// A tar stream ends before its last file does.
    #[error("the tar stream is cut short: it ends at byte {0}, within {1}")]
    CutShort(u64, &'static str),
    /// A tar stream contains something invalid.
    #[error("the tar stream is damaged at byte {at}: {what}")]
    BadTar {
        /// Offset in the stream in bytes.
        at: u64,
        /// What is wrong there.
        what: String,
    },
    /// An archive that is damaged or unsafe, by its name.
    #[error("{archive}: {place}{source}")]
    InArchive {
        /// The archive.
        archive: String,
        /// The file in it, with a colon and a blank; empty before the first one.
        place: String,
        /// What is wrong.
        source: Box<TransferError>,
    },
    /// A file of the host that must not be replaced.
    #[error("{path}: {why}")]
    NotReplaced {
        /// The file.
        path: String,
        /// Why it is not replaced, and what the user can do.
        why: NotReplaced,
    },
    /// A file whose owner or group is the number that means "none".
    #[error("{0}: its owner or group is 4294967295, the number that stands for none; --owner gives all files another")]
    NoOwner(String),
    /// A file whose owner or group is in no range of a map.
    #[error("{path}: its {what} {id} is in no range of the map that was given; each number needs one")]
    Unmapped {
        /// The file.
        path: String,
        /// Owner or group.
        what: &'static str,
        /// The number.
        id: u32,
    },
    /// A layer of a container image contains something invalid.
    #[error("{path}: {what}")]
    BadLayer {
        /// The file in the layer.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A text that describes files contains something invalid.
    #[error("{file}: line {line}: {what}")]
    BadText {
        /// The file of the host.
        file: String,
        /// The number of the line.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// A container image whose parts do not fit each other.
    #[error("{file}: {what}")]
    BadContainer {
        /// The file of the host.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// A path that leads out of the tree.
    #[error("{0}: a path with \"..\" leads out of the tree; make the archive without it")]
    UnsafePath(String),
    /// The caller asked to stop ([`Progress::stopped`](crate::Progress::stopped)).
    #[error("interrupted; every file that was copied so far is complete")]
    Interrupted,
    /// The other side has stopped; its own error is the one to report.
    #[error("the other side of the copy has stopped")]
    Stopped,
}

/// Why a file of the host is not replaced, and what the user can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplaced {
    /// Another program or the kernel uses it.
    #[error("{0}")]
    InUse(String),
    /// What kind of file it is, or what it contains.
    #[error("{0}")]
    Contents(String),
}

impl TransferError {
    /// Whether the source caused the error: it is damaged or unsafe, or changed while it was read.
    pub fn is_bad_source(&self) -> bool {
        matches!(
            self,
            Self::Changed(_)
                | Self::CutShort(..)
                | Self::BadTar { .. }
                | Self::InArchive { .. }
                | Self::UnsafePath(_)
                | Self::NoOwner(_)
                | Self::Unmapped { .. }
                | Self::BadLayer { .. }
                | Self::BadText { .. }
                | Self::BadContainer { .. }
        )
    }

    /// Whether the image has no room for the tree.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Image { source: xfskit_vfs::Error::NoSpace, .. })
    }
}

/// A path for messages. One that no program could be given is shown without its middle: a tree may be as deep as its
/// image is large, and each of its folders may be the subject of a message.
pub fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".into();
    }
    if path.len() < LONGEST_SHOWN_BYTES {
        return String::from_utf8_lossy(path).into_owned();
    }
    let (first, last) = (&path[..LONGEST_SHOWN_BYTES / 2], &path[path.len() - LONGEST_SHOWN_BYTES / 2..]);
    let left_out = path.len() - LONGEST_SHOWN_BYTES / 2 * 2;
    let (first, last) = (String::from_utf8_lossy(first), String::from_utf8_lossy(last));
    format!("{first}[... {left_out} bytes ...]{last}")
}

/// PATH_MAX of Linux.
const LONGEST_SHOWN_BYTES: usize = 4096;

/// Adds the operation and the file of the host to an error.
pub(crate) fn host<'a, E: Into<io::Error>>(path: &'a [u8], what: &'static str) -> impl FnOnce(E) -> TransferError + 'a {
    move |source| TransferError::Host { path: shown(path), what, source: source.into() }
}

/// Adds the file of the image to an error.
pub(crate) fn image(path: &[u8]) -> impl FnOnce(xfskit_vfs::Error) -> TransferError + '_ {
    move |source| TransferError::Image { path: shown(path), source }
}

/// A count of items that were left out, with the name of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of items.
    pub count: u64,
    /// Name of the first.
    pub first: String,
}

impl LeftOut {
    /// Counts an item that is left out for a reason that names it.
    pub(crate) fn note_reason(&mut self, reason: &TransferError) {
        if self.count == 0 {
            self.first = reason.to_string();
        }
        self.count += 1;
    }

    /// Counts names that a directory has lost: one at least.
    pub(crate) fn note_names(&mut self, dir: &str, names: Option<u64>) {
        if self.count == 0 {
            self.first = dir.into();
        }
        self.count += names.unwrap_or(1).max(1);
    }

    /// Counts an attribute that the system refused.
    pub(crate) fn note_attribute(&mut self, path: &[u8], name: &[u8], why: impl Into<io::Error>) {
        if self.count == 0 {
            self.first = format!("{}: {}: {}", shown(path), shown(name), why.into());
        }
        self.count += 1;
    }

    pub(crate) fn note(&mut self, path: &[u8]) {
        if self.count == 0 {
            self.first = shown(path);
        }
        self.count += 1;
    }
}

/// The parts of a tree that were lost because the host or the format refused them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Owners, which only root may set.
    pub owners: LeftOut,
    /// Device nodes, which only root may make.
    pub devices: LeftOut,
    /// Attributes of a kind that the other side does not support.
    pub attributes: LeftOut,
    /// Attributes that only root may set.
    pub roots_attributes: LeftOut,
    /// Sockets, which have no form in a tar stream.
    pub sockets: LeftOut,
    /// Names whose leading slash was dropped.
    pub absolute: LeftOut,
    /// Files of an archive whose type is unknown, taken as regular files.
    pub unknown_types: LeftOut,
    /// Archives that have no end mark, and may have been cut short behind a file.
    pub unmarked: LeftOut,
    /// The image itself, if it lies in the folder that it is filled from.
    pub itself: LeftOut,
    /// Files of a damaged image that cannot be read; the first one with the reason.
    pub unreadable: LeftOut,
    /// Names that were in parts of directories that cannot be read, one for each directory where nobody knows; and the
    /// first of these directories.
    pub lost_names: LeftOut,
    /// Files of a damaged image some of whose attributes cannot be read; the first one with the reason.
    pub unreadable_attributes: LeftOut,
    /// Files of which the rest cannot be read and is zeros in the stream; the first one with the reason.
    pub padded: LeftOut,
}

impl Losses {
    /// Whether the copy lacks something that a caller other than root could have copied too.
    pub fn are_real(&self) -> bool {
        [&self.devices, &self.attributes, &self.sockets].iter().any(|left| left.count > 0)
    }

    /// Whether a part of the source could not be read.
    pub fn are_of_damage(&self) -> bool {
        [&self.unreadable, &self.lost_names, &self.unreadable_attributes, &self.padded]
            .iter()
            .any(|left| left.count > 0)
    }

    /// Whether the copy lacks something that only root could have copied: owners, attributes.
    pub fn are_for_lack_of_privilege(&self) -> bool {
        self.owners.count > 0 || self.roots_attributes.count > 0
    }

    /// Adds the losses of the other side.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let add = |mine: &mut LeftOut, other: LeftOut| {
            if mine.count == 0 {
                mine.first = other.first;
            }
            mine.count += other.count;
        };
        add(&mut self.owners, other.owners);
        add(&mut self.devices, other.devices);
        add(&mut self.attributes, other.attributes);
        add(&mut self.roots_attributes, other.roots_attributes);
        add(&mut self.sockets, other.sockets);
        add(&mut self.absolute, other.absolute);
        add(&mut self.unknown_types, other.unknown_types);
        add(&mut self.unmarked, other.unmarked);
        add(&mut self.itself, other.itself);
        add(&mut self.unreadable, other.unreadable);
        add(&mut self.lost_names, other.lost_names);
        add(&mut self.unreadable_attributes, other.unreadable_attributes);
        add(&mut self.padded, other.padded);
        self
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            (&self.owners, ["owner was", "owners were"], "not kept: only root may give files away"),
            (&self.devices, ["device node was", "device nodes were"], "left out: only root may make them"),
            (&self.attributes, ["attribute was", "attributes were"], "not kept: the other side does not take them"),
            (&self.roots_attributes, ["attribute was", "attributes were"], "not kept: only root may set them"),
            (&self.sockets, ["socket was", "sockets were"], "left out: a tar stream cannot hold them"),
            (&self.absolute, ["name was", "names were"], "taken without the slash at the front"),
            (&self.unknown_types, ["file was", "files were"], "taken as regular: the archive has no known type for it"),
            (&self.unmarked, ["archive has", "archives have"], "no end mark: it may have been cut short"),
            (&self.unreadable, ["file was", "files were"], "left out with all below: it cannot be read"),
            (&self.lost_names, ["name was", "names were"], "lost with a part of their directory that cannot be read"),
            (&self.unreadable_attributes, ["file was", "files were"], "copied without attributes that cannot be read"),
            (&self.padded, ["file has", "files have"], "zeros in place of contents that cannot be read"),
            (&self.itself, ["file was", "files were"], "left out: the image itself lies in the folder"),
        ];
        let mut separator = "";
        for (left, [one, many], what) in lines.iter().filter(|(left, ..)| left.count > 0) {
            let subject = if left.count == 1 { one } else { many };
            write!(f, "{separator}{} {subject} {what} (the first: {})", left.count, left.first)?;
            separator = "\n";
        }
        Ok(())
    }
}

//! What files have besides their inodes: labels, ACLs, extended attributes, flags. `ls -l` and `stat` show it.

use crate::output::screen;
use crate::output::text::set_json;
use serde_json::{Value, json};
use std::io::Write;
use xfskit_engine::{Error, Flags, Stat, Volume, xflags};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::flags;
use xfskit_transfer::acl_text;

const LABEL: &[u8] = b"security.selinux";
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// The bytes of an ACL without entries, and of one with the three that say what the mode does.
const NO_ENTRIES_BYTES: usize = 4;
const MODE_ONLY_BYTES: usize = 4 + 3 * 8;
/// Names of flags: those of xfs_io's `chattr`.
const FLAGS: [(u32, &str); 15] = [
    (flags::IMMUTABLE as u32, "immutable"),
    (flags::APPEND as u32, "append-only"),
    (flags::SYNC as u32, "sync"),
    (flags::NOATIME as u32, "no-atime"),
    (flags::NODUMP as u32, "no-dump"),
    (flags::RTINHERIT as u32, "rt-inherit"),
    (flags::PROJINHERIT as u32, "proj-inherit"),
    (flags::NOSYMLINKS as u32, "nosymlinks"),
    (flags::EXTSIZE as u32, "extsize"),
    (flags::EXTSZINHERIT as u32, "extsz-inherit"),
    (flags::NODEFRAG as u32, "no-defrag"),
    (flags::FILESTREAM as u32, "filestream"),
    (xflags::REALTIME, "realtime"),
    (xflags::DAX, "dax"),
    (xflags::COWEXTSIZE, "cowextsize"),
];

/// What `ls -l` shows behind the permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Nothing,
    /// A label of SELinux, and no ACL.
    Label,
    /// An ACL that says more than the permissions.
    Acl,
    /// It could not be read.
    Unknown,
}

impl Mark {
    /// The sign in a column.
    pub fn sign(&self) -> &'static str {
        match self {
            Self::Nothing => " ",
            Self::Label => ".",
            Self::Acl => "+",
            Self::Unknown => "?",
        }
    }
}

/// What `ls -l` shows of a file behind the permissions, by the rule of GNU's ls.
///
/// # Errors
/// Those of reading attributes.
pub fn mark(filesystem: &Volume, stat: &Stat) -> Result<Mark, Error> {
    let bytes =
        |name| -> Result<usize, Error> { Ok(attribute(filesystem, stat.inode, name)?.map_or(0, |value| value.len())) };
    let has_acl = !stat.file_type.is_symlink()
        && (bytes(ACCESS_ACL)? > MODE_ONLY_BYTES || stat.file_type.is_dir() && bytes(DEFAULT_ACL)? > NO_ENTRIES_BYTES);
    Ok(match has_acl {
        true => Mark::Acl,
        false if label(filesystem, stat.inode)?.is_some() => Mark::Label,
        false => Mark::Nothing,
    })
}

fn attribute(filesystem: &Volume, inode: InodeNumber, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    match filesystem.get_xattr(inode, name) {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoAttribute) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What `stat` shows of a file besides its inode.
#[derive(Debug)]
pub struct Attributes {
    /// Names and sizes, in the order of names.
    all: Vec<(Vec<u8>, usize)>,
    label: Option<Vec<u8>>,
    acl: Option<String>,
    default_acl: Option<String>,
    flags: Flags,
}

impl Attributes {
    /// Reads them.
    ///
    /// # Errors
    /// Those of reading attributes.
    pub fn read(filesystem: &Volume, inode: InodeNumber) -> Result<Self, Error> {
        let mut names = filesystem.list_xattrs(inode)?;
        names.sort();
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            let bytes = filesystem.get_xattr(inode, &name)?.len();
            all.push((name, bytes));
        }
        let acl = |name| -> Result<Option<String>, Error> {
            let value = attribute(filesystem, inode, name)?;
            Ok(value.map(|value| acl_text(&value).unwrap_or_else(|| "?".into())))
        };
        Ok(Self {
            all,
            label: label(filesystem, inode)?,
            acl: acl(ACCESS_ACL)?,
            default_acl: acl(DEFAULT_ACL)?,
            flags: filesystem.flags(inode)?,
        })
    }

    /// The names of the flags.
    fn flags(&self) -> Vec<&'static str> {
        FLAGS.iter().filter(|(flag, _)| self.flags.xflags & flag != 0).map(|(_, name)| *name).collect()
    }

    /// Prints lines about what there is.
    ///
    /// # Errors
    /// Those of the output.
    pub fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let flags = self.flags();
        if self.flags.project != 0 {
            writeln!(out, "project:    {}", self.flags.project)?;
        }
        if !flags.is_empty() {
            writeln!(out, "flags:      {}", flags.join(", "))?;
        }
        if self.flags.extent_size_bytes != 0 {
            writeln!(out, "extents of: {} bytes", self.flags.extent_size_bytes)?;
        }
        if let Some(label) = &self.label {
            out.write_all(&[&b"label:      "[..], &screen::name(label), b"\n"].concat())?;
        }
        for (word, acl) in [("acl:        ", &self.acl), ("default:    ", &self.default_acl)] {
            if let Some(acl) = acl {
                writeln!(out, "{word}{acl}")?;
            }
        }
        for (name, bytes) in &self.all {
            let unit = if *bytes == 1 { "byte" } else { "bytes" };
            out.write_all(&[&b"attribute:  "[..], &screen::name(name)].concat())?;
            writeln!(out, " ({bytes} {unit})")?;
        }
        Ok(())
    }

    /// Adds them to the members of a file.
    pub fn add_to(&self, value: &mut Value) {
        let one = |(name, bytes): &(Vec<u8>, usize)| {
            let mut object = json!({ "size": bytes });
            set_json(&mut object, "name", name);
            object
        };
        value["attributes"] = self.all.iter().map(one).collect();
        value["flags"] = json!(self.flags());
        value["extent_size"] = json!(self.flags.extent_size_bytes);
        value["cow_extent_size"] = json!(self.flags.cow_extent_size_bytes);
        if let Some(label) = &self.label {
            set_json(value, "label", label);
        }
        for (name, acl) in [("acl", &self.acl), ("default_acl", &self.default_acl)] {
            if let Some(acl) = acl {
                value[name] = acl.as_str().into();
            }
        }
    }
}

/// The label of SELinux that a file has, without the zero byte behind it.
pub fn label(filesystem: &Volume, inode: InodeNumber) -> Result<Option<Vec<u8>>, Error> {
    match filesystem.get_xattr(inode, LABEL) {
        Ok(mut label) => {
            label.truncate(label.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
            Ok(Some(label))
        }
        Err(Error::NoAttribute) => Ok(None),
        Err(error) => Err(error),
    }
}

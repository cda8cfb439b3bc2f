//! What a user writes to name a filesystem: files, and a part of what they contain.
//!
//! ```text
//! FILE[,FILE...][#PART]
//! #3            partition 3                       #uuid=UUID       the filesystem with this UUID
//! #label=root   the filesystem with this label    #partuuid=UUID   the partition with this UUID in the table
//! #partlabel=x  the partition with this name      #lv=GROUP/NAME   a logical volume
//! #offset=1M    from this byte on                 #whole           the disk as one volume, whatever its table says
//! ```
//! A file whose name is the whole operand wins, so no file becomes unreachable. Several files, with commas between, are
//! for groups of LVM2 with several disks.

use crate::error::DiskError;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A part of a disk, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// None is named: the only XFS filesystem.
    Unnamed,
    /// The disk as a whole.
    Whole,
    /// A partition by its number.
    Partition(u32),
    /// A filesystem by its label.
    Label(String),
    /// A filesystem by its UUID.
    Uuid(String),
    /// A partition by its name in the table.
    PartLabel(String),
    /// A partition by its UUID in the table.
    PartUuid(String),
    /// A logical volume by the names of its group and its own.
    Volume {
        /// The group.
        group: String,
        /// The volume.
        name: String,
    },
    /// Everything from a byte on.
    Offset(u64),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unnamed => Ok(()),
            Self::Whole => write!(f, "#whole"),
            Self::Partition(number) => write!(f, "#{number}"),
            Self::Label(label) => write!(f, "#label={label}"),
            Self::Uuid(uuid) => write!(f, "#uuid={uuid}"),
            Self::PartLabel(label) => write!(f, "#partlabel={label}"),
            Self::PartUuid(uuid) => write!(f, "#partuuid={uuid}"),
            Self::Volume { group, name } => write!(f, "#lv={group}/{name}"),
            Self::Offset(offset) => write!(f, "#offset={offset}"),
        }
    }
}

/// Files, and the part of them that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The files; at least one.
    pub paths: Vec<PathBuf>,
    /// The part.
    pub part: Part,
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, path) in self.paths.iter().enumerate() {
            write!(f, "{}{}", if number > 0 { "," } else { "" }, path.display())?;
        }
        write!(f, "{}", self.part)
    }
}

impl Operand {
    /// The operand as a user writes it.
    pub fn to_os_string(&self) -> OsString {
        let paths: Vec<&OsStr> = self.paths.iter().map(|path| path.as_os_str()).collect();
        let mut text = paths.join(OsStr::new(","));
        text.push(self.part.to_string());
        text
    }

    /// Decodes an operand. `exists` says whether there is a file of a name; without it the meaning of `#` and `,` is
    /// not known.
    ///
    /// # Errors
    /// `Syntax` where the files exist but the part is not one of the known forms.
    ///
    /// ```
    /// use xfskit_disk::{Operand, Part};
    ///
    /// let operand = Operand::decode("disk.img#3".as_ref(), |path| path.ends_with("disk.img"))?;
    /// assert_eq!((operand.paths[0].to_str(), operand.part), (Some("disk.img"), Part::Partition(3)));
    /// # Ok::<(), xfskit_disk::DiskError>(())
    /// ```
    pub fn decode(operand: &OsStr, exists: impl Fn(&Path) -> bool) -> Result<Self, DiskError> {
        if let Some(paths) = files(operand.as_bytes(), &exists) {
            return Ok(Self { paths, part: Part::Unnamed });
        }
        let bytes = operand.as_bytes();
        let mut wrong = None;
        for at in (0..bytes.len()).rev().filter(|&at| bytes[at] == b'#') {
            let Some(paths) = files(&bytes[..at], &exists) else { continue };
            match decode_part(&String::from_utf8_lossy(&bytes[at + 1..])) {
                Ok(part) => return Ok(Self { paths, part }),
                Err(why) => wrong = Some(why),
            }
        }
        match wrong {
            Some(why) => Err(DiskError::Syntax { operand: operand.display().to_string(), why }),
            // Opening it says that there is no such file.
            None => Ok(Self { paths: vec![operand.into()], part: Part::Unnamed }),
        }
    }
}

/// The files that a text names, if they exist: one, or several with commas between.
fn files(text: &[u8], exists: &impl Fn(&Path) -> bool) -> Option<Vec<PathBuf>> {
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let whole = path(text);
    if exists(&whole) {
        return Some(vec![whole]);
    }
    let several: Vec<PathBuf> = text.split(|&byte| byte == b',').map(path).collect();
    several.iter().all(|path| exists(path)).then_some(several)
}

fn decode_part(text: &str) -> Result<Part, String> {
    const FORMS: &str =
        "a part is #NUMBER, #label=, #uuid=, #partlabel=, #partuuid=, #lv=GROUP/NAME, #offset= or #whole";
    if text == "whole" {
        return Ok(Part::Whole);
    }
    if let Ok(number) = text.parse()
        && number > 0
    {
        return Ok(Part::Partition(number));
    }
    let Some((key, value)) = text.split_once('=').filter(|(_, value)| !value.is_empty()) else {
        return Err(format!("#{text} names no part: {FORMS}"));
    };
    let value_text = value.to_string();
    match key {
        "label" => Ok(Part::Label(value_text)),
        "uuid" => Ok(Part::Uuid(value.to_ascii_lowercase())),
        "partlabel" => Ok(Part::PartLabel(value_text)),
        "partuuid" => Ok(Part::PartUuid(value.to_ascii_lowercase())),
        "lv" => match value.split_once('/') {
            Some((group, name)) if !group.is_empty() && !name.is_empty() => {
                Ok(Part::Volume { group: group.into(), name: name.into() })
            }
            _ => Err(format!("#lv={value} has not the form GROUP/NAME")),
        },
        "offset" => match decode_size(value) {
            Some(offset) => Ok(Part::Offset(offset)),
            None => Err(format!("#offset={value} is not a number of bytes, or one with k, m, g or t behind it")),
        },
        _ => Err(format!("#{text} names no part: {FORMS}")),
    }
}

/// A number of bytes, with k, m, g or t for powers of 1024.
fn decode_size(text: &str) -> Option<u64> {
    let shift = match text.chars().last()?.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(operand: &str, existing: &[&str]) -> Result<Operand, DiskError> {
        Operand::decode(operand.as_ref(), |path| existing.iter().any(|name| path == Path::new(name)))
    }

    #[test]
    fn a_file_of_that_name_wins() {
        for name in ["a#3", "a,b", "a#label=x", "#1", ","] {
            let operand = decode(name, &[name, "a", "b"]).unwrap();
            assert_eq!(operand, Operand { paths: vec![name.into()], part: Part::Unnamed });
        }
        assert_eq!(decode("a#1#2", &["a", "a#1"]).unwrap().paths, [PathBuf::from("a#1")]);
        assert_eq!(decode("none#2", &["a"]).unwrap().paths, [PathBuf::from("none#2")]);
    }

    #[test]
    fn each_part_has_a_form() {
        let parts = [
            ("3", Part::Partition(3)),
            ("label=a#b=c", Part::Label("a#b=c".into())),
            ("uuid=ABC", Part::Uuid("abc".into())),
            ("partlabel=root", Part::PartLabel("root".into())),
            ("partuuid=AB-01", Part::PartUuid("ab-01".into())),
            ("lv=rhel/root", Part::Volume { group: "rhel".into(), name: "root".into() }),
            ("offset=1M", Part::Offset(1 << 20)),
            ("offset=4096", Part::Offset(4096)),
            ("whole", Part::Whole),
        ];
        for (text, part) in parts {
            let operand = decode(&format!("d#{text}"), &["d"]).unwrap();
            assert_eq!(decode(operand.to_os_string().to_str().unwrap(), &["d"]).unwrap(), operand);
            assert_eq!((operand.paths, operand.part), (vec![PathBuf::from("d")], part));
        }
        assert_eq!(decode("a,b#lv=v/l", &["a", "b"]).unwrap().paths.len(), 2);
        for text in ["", "0", "x", "label=", "lv=a", "lv=/a", "offset=1x", "offset=99999999999t", "4294967296"] {
            assert!(matches!(decode(&format!("d#{text}"), &["d"]), Err(DiskError::Syntax { .. })), "{text}");
        }
    }
}

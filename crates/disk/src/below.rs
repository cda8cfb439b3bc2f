//! What the header of a virtual disk says that is needed before its contents are read: the names of the files below it
//! (the backing file of qcow2, the extents of vmdk), and whether another program has to read it.
//!
//! A process that can do nothing else reads the header, and another one opens the files. The answer of such a process
//! is as trustworthy as the header:
//!
//! ```text
//! answer   service 0  base 0  format 0  (name 0) * count  0      count <= 1024, name <= 4096 bytes and not empty
//! ```
//! The format is that of a backing file, if the header says it. The zero byte at the end shows that all has arrived.

use std::path::{Path, PathBuf};
use xfskit_device::Access;

/// The most files that a header names, and the longest name.
pub(crate) const MOST_NAMES: usize = 1024;
const MOST_NAME_BYTES: usize = 4096;
/// The folder under whose names open files can be opened again.
pub(crate) const OPEN_FILES: &str = "/proc/self/fd";

/// The format of a backing file whose name has no place in an answer. No such format is handled.
const UNKNOWN: &str = "?";

/// What a program that knows more formats has to do with a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// Nothing: the disk is read here, or by nobody.
    #[default]
    NotNeeded,
    /// To read it. It is not written.
    ToRead,
    /// To read or to write it.
    ToReadAndWrite,
}

impl Service {
    const WORDS: [(Self, &str); 3] = [(Self::NotNeeded, "-"), (Self::ToRead, "r"), (Self::ToReadAndWrite, "rw")];

    /// Whether the program has to do something for an access.
    pub(crate) fn is_for(self, access: Access) -> bool {
        match self {
            Self::NotNeeded => false,
            Self::ToRead => access != Access::Write,
            Self::ToReadAndWrite => true,
        }
    }
}

/// Whether a disk lies on another one, which has what is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// All that it has is in it.
    #[default]
    None,
    /// It does, also where its name cannot be used.
    Another,
}

impl Base {
    const WORDS: [(Self, &str); 2] = [(Self::None, "-"), (Self::Another, "b")];
}

/// What a header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// What another program has to do with the disk.
    pub service: Service,
    /// Whether the disk lies on another one.
    pub base: Base,
    /// The format of a backing file; empty if the header does not say it.
    pub format: String,
    /// The files, as the header writes them.
    pub names: Vec<String>,
}

impl Below {
    /// The longest answer, in bytes.
    pub const MOST_BYTES: usize = 3 + 2 + (MOST_NAMES + 1) * (MOST_NAME_BYTES + 1) + 1;

    /// The answer to the process that opens the files. A name that has no place in it is left out, and not opened.
    pub fn encode(&self) -> Vec<u8> {
        let has_place = |name: &str| name.len() <= MOST_NAME_BYTES && !name.contains('\0');
        let format = if has_place(&self.format) { &self.format } else { UNKNOWN };
        let names = self.names.iter().map(String::as_str).filter(|name| !name.is_empty() && has_place(name));
        let words = [word_of(&Service::WORDS, self.service), word_of(&Base::WORDS, self.base), format];
        let fields = words.into_iter().chain(names.take(MOST_NAMES));
        fields.flat_map(|field| field.bytes().chain([0])).chain([0]).collect()
    }

    /// Decodes an answer; none if it is no whole one.
    pub fn decode(answer: &[u8]) -> Option<Self> {
        let fields = answer.strip_suffix(&[0, 0])?;
        let mut fields = fields.split(|&byte| byte == 0).map(|field| str::from_utf8(field).ok());
        let service = meaning(&Service::WORDS, fields.next()??)?;
        let base = meaning(&Base::WORDS, fields.next()??)?;
        let format = fields.next()??.to_owned();
        let names: Vec<String> = fields.map(|name| name.map(str::to_owned)).collect::<Option<_>>()?;
        let fits = |name: &String| (1..=MOST_NAME_BYTES).contains(&name.len());
        (format.len() <= MOST_NAME_BYTES && names.len() <= MOST_NAMES && names.iter().all(fits)).then_some(Self {
            service,
            base,
            format,
            names,
        })
    }
}

/// The word for a value, and the value of a word.
fn word_of<T: PartialEq>(words: &[(T, &'static str)], value: T) -> &'static str {
    words.iter().find(|(of, _)| *of == value).map_or("", |(_, word)| word)
}

fn meaning<T: Copy>(words: &[(T, &str)], word: &str) -> Option<T> {
    words.iter().find(|(_, known)| *known == word).map(|(value, _)| *value)
}

/// The name of a file beside the open file of [`crate::header::reopened`], as the header writes it.
pub(crate) fn as_written(path: &Path) -> &Path {
    path.strip_prefix(OPEN_FILES).unwrap_or(path)
}

/// Where a file is that the disk `path` names: a relative name starts at the folder of the disk.
pub(crate) fn beside(path: &Path, name: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

/// Whether a file lies in another folder than the disk above it.
pub(crate) fn is_elsewhere(disk: &Path, below: &Path) -> bool {
    let folder = |path: &Path| path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf));
    folder(disk) != folder(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_arrives_as_it_was_given() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for below in [
            Below::default(),
            Below { format: "raw".into(), names: names(&["a b", "/é"]), ..Below::default() },
            Below { names: names(&["x"]), service: Service::ToRead, ..Below::default() },
            Below { base: Base::Another, service: Service::ToReadAndWrite, ..Below::default() },
        ] {
            assert_eq!(Below::decode(&below.encode()), Some(below));
        }
        let odd = Below { format: "a\0b".into(), names: names(&["", "c\0d", "ok"]), ..Below::default() };
        let odd = Below::decode(&odd.encode()).unwrap();
        assert!(odd.names == ["ok"] && odd.format == UNKNOWN, "{odd:?}");
        let name = "n".repeat(MOST_NAME_BYTES);
        let service = Service::ToReadAndWrite;
        let names = vec![name.clone(); MOST_NAMES + 9];
        let most = Below { format: name, names, service, base: Base::Another };
        assert_eq!(most.encode().len(), Below::MOST_BYTES);
        assert_eq!(Below::decode(&most.encode()).unwrap().names.len(), MOST_NAMES);
    }

    #[test]
    fn an_answer_that_is_none_is_refused() {
        let long = format!("-\0-\0\0{}\0\0", "n".repeat(MOST_NAME_BYTES + 1));
        let many = format!("-\0-\0\0{}\0", "n\0".repeat(MOST_NAMES + 1));
        assert!(Below::decode(b"rw\0b\0raw\0name\0\0").is_some());
        for answer in [
            "",
            "\0\0",
            "-\0\0",
            "-\0-\0\0",
            "rw\0b\0raw",
            "rw\0b\0raw\0",
            "rw\0b\0raw\0name\0",
            "w\0b\0raw\0name\0\0",
            "rw\0rw\0raw\0name\0\0",
            "\0-\0raw\0name\0\0",
            "-\0-\0\0\0name\0\0",
            "raw\0name\0\0",
            long.as_str(),
            many.as_str(),
        ] {
            assert_eq!(Below::decode(answer.as_bytes()), None, "{answer:.20}");
        }
        assert_eq!(Below::decode(b"-\0-\0\xff\0\0"), None);
    }
}

//! The names of the files below a virtual disk, as its header has them: the backing file of qcow2, the extents of vmdk.
//!
//! They are read on their own, so that a process that can do nothing else reads them, and another one opens the files.
//! The answer of such a process is as trustworthy as the header:
//!
//! ```text
//! answer   format 0  (name 0) * count  0        count <= 1024, name <= 4096 bytes and not empty
//! ```
//! The format is that of a backing file, if the header says it. The zero byte at the end shows that all has arrived.

use imago::StorageOpenOptions;
use imago::file::File as ImagoFile;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// The most files that a header names, and the longest name.
pub(crate) const MOST_NAMES: usize = 1024;
const MOST_NAME_BYTES: usize = 4096;
/// The folder under whose names open files can be opened again.
pub(crate) const OPEN_FILES: &str = "/proc/self/fd";

/// What a header names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// The format of a backing file; empty if the header does not say it.
    pub format: String,
    /// The files, as the header writes them.
    pub names: Vec<String>,
}

impl Below {
    /// The longest answer, in bytes.
    pub const MOST_BYTES: usize = (MOST_NAMES + 1) * (MOST_NAME_BYTES + 1) + 1;

    /// The answer to the process that opens the files. What has no place in it is left out, and not opened.
    pub fn encode(&self) -> Vec<u8> {
        let fits = |name: &&String| (1..=MOST_NAME_BYTES).contains(&name.len()) && !name.contains('\0');
        let format = Some(&self.format).filter(fits).map_or("", String::as_str);
        let names = self.names.iter().filter(fits).take(MOST_NAMES).map(String::as_str);
        let fields = [format].into_iter().chain(names).flat_map(|name| name.bytes().chain([0]));
        fields.chain([0]).collect()
    }

    /// Decodes an answer; none if it is no whole one.
    pub fn decode(answer: &[u8]) -> Option<Self> {
        let fields = answer.strip_suffix(&[0, 0])?;
        let mut fields = fields.split(|&byte| byte == 0).map(|field| str::from_utf8(field).ok());
        let format = fields.next()??.to_owned();
        let names: Vec<String> = fields.map(|name| name.map(str::to_owned)).collect::<Option<_>>()?;
        let fits = |name: &String| (1..=MOST_NAME_BYTES).contains(&name.len());
        (format.len() <= MOST_NAME_BYTES && names.len() <= MOST_NAMES && names.iter().all(fits))
            .then_some(Self { format, names })
    }
}

/// Another handle of an open file that has a name, beside which imago looks for others.
pub(crate) fn reopened(file: &impl AsFd) -> io::Result<ImagoFile> {
    let name = Path::new(OPEN_FILES).join(file.as_fd().as_raw_fd().to_string());
    imago::Storage::open(StorageOpenOptions::new().filename(name).write(false))
}

/// The name of a file beside the open file of [`reopened`], as the header writes it.
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
            Below { format: "raw".into(), names: names(&["a b", "/é"]) },
            Below { format: String::new(), names: names(&["x"]) },
        ] {
            assert_eq!(Below::decode(&below.encode()), Some(below));
        }
        let odd = Below { format: "a\0b".into(), names: names(&["", "c\0d", "ok"]) };
        assert_eq!(Below::decode(&odd.encode()).unwrap().names, ["ok"]);
        let most = Below { format: String::new(), names: vec!["n".repeat(MOST_NAME_BYTES); MOST_NAMES + 9] };
        assert!(most.encode().len() <= Below::MOST_BYTES);
        assert_eq!(Below::decode(&most.encode()).unwrap().names.len(), MOST_NAMES);
    }

    #[test]
    fn an_answer_that_is_none_is_refused() {
        let long = format!("\0{}\0\0", "n".repeat(MOST_NAME_BYTES + 1));
        let many = format!("\0{}\0", "n\0".repeat(MOST_NAMES + 1));
        for answer in ["", "raw", "raw\0", "raw\0name\0", "\0\0name\0\0", long.as_str(), many.as_str()] {
            assert_eq!(Below::decode(answer.as_bytes()), None, "{answer:.20}");
        }
        assert_eq!(Below::decode(b"\0\xff\0\0"), None);
    }
}

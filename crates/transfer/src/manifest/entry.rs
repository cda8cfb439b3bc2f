//! What a line of a manifest says of a path.

use crate::event::{FileKind, Meta};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::collections::BTreeMap;
use xfskit_vfs::{DeviceNumber, Timestamp};

/// The type that a value of `type=` names.
fn parse_kind(text: &str) -> Option<FileKind> {
    Some(match text {
        "file" => FileKind::File,
        "dir" => FileKind::Directory,
        "link" => FileKind::Symlink,
        "char" => FileKind::Char,
        "block" => FileKind::Block,
        "fifo" => FileKind::Fifo,
        "socket" => FileKind::Socket,
        _ => return None,
    })
}

/// What is given of a path; the rest is the tree's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) file_type: Option<FileKind>,
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<Timestamp>,
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) device: Option<u32>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) is_optional: bool,
}

/// Keywords that say something of the contents, of the file that the manifest was made from, or to mtree itself.
const PASSED_OVER: [&str; 24] = [
    "cksum",
    "contents",
    "flags",
    "ignore",
    "inode",
    "md5",
    "md5digest",
    "nlink",
    "nochange",
    "resdevice",
    "ripemd160digest",
    "rmd160",
    "rmd160digest",
    "sha1",
    "sha1digest",
    "sha256",
    "sha256digest",
    "sha384",
    "sha384digest",
    "sha512",
    "sha512digest",
    "size",
    "tags",
    "tar_time",
];

impl Entry {
    /// Takes a keyword, with its value if it has one. `value` is decoded; errors are texts.
    pub(super) fn take(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), String> {
        let text = || value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
        let wrong = || format!("{key}={}: the value makes no sense", text());
        let id = || text().parse().ok().filter(|id| *id != u32::MAX).ok_or_else(wrong);
        match key {
            "type" => self.file_type = Some(parse_kind(text()).ok_or_else(wrong)?),
            "mode" => {
                let mode = u16::from_str_radix(text(), 8).ok().filter(|mode| *mode <= 0o7777);
                self.mode = Some(mode.ok_or_else(wrong)?);
            }
            "uid" => self.uid = Some(id()?),
            "gid" => self.gid = Some(id()?),
            "time" => self.mtime = Some(parse_time(text()).ok_or_else(wrong)?),
            "link" => self.target = Some(value.filter(|value| !value.is_empty()).ok_or_else(wrong)?.to_vec()),
            "device" => self.device = Some(parse_device(text()).ok_or_else(wrong)?),
            "optional" => self.is_optional = true,
            "uname" | "gname" => {
                return Err(format!("{key}: an image has no names of users; give uid= and gid= instead"));
            }
            _ if PASSED_OVER.contains(&key) => {}
            _ => match key.strip_prefix("xattr.").or_else(|| key.strip_prefix("xattrs.")) {
                Some(name) if !name.is_empty() => {
                    let value = BASE64.decode(text()).map_err(|_| format!("{key}: its value is not base64"))?;
                    self.xattrs.insert(name.as_bytes().to_vec(), value);
                }
                _ => return Err(format!("the keyword {key} is unknown")),
            },
        }
        Ok(())
    }

    /// Bytes of what it has besides itself.
    pub(super) fn bytes(&self) -> usize {
        let target = self.target.as_ref().map_or(0, Vec::len);
        target + self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }

    /// Forgets what was given by a keyword.
    pub(super) fn drop(&mut self, key: &str) {
        match key {
            "all" => *self = Self::default(),
            "type" => self.file_type = None,
            "mode" => self.mode = None,
            "uid" => self.uid = None,
            "gid" => self.gid = None,
            "time" => self.mtime = None,
            "link" => self.target = None,
            "device" => self.device = None,
            "optional" => self.is_optional = false,
            _ => {}
        }
    }

    pub(super) fn apply(&self, meta: &mut Meta) {
        meta.mode = self.mode.unwrap_or(meta.mode);
        meta.uid = self.uid.unwrap_or(meta.uid);
        meta.gid = self.gid.unwrap_or(meta.gid);
        if let Some(mtime) = self.mtime {
            (meta.mtime, meta.atime) = (mtime, mtime);
        }
        for (name, value) in &self.xattrs {
            match meta.xattrs.binary_search_by(|(own, _)| own.cmp(name)) {
                Ok(at) => meta.xattrs[at].1 = value.clone(),
                Err(at) => meta.xattrs.insert(at, (name.clone(), value.clone())),
            }
        }
    }
}

/// Times that an image can have, in seconds since 1970: from 1901 to 2486, with the feature bigtime.
const TIMES: std::ops::RangeInclusive<i64> = -(1 << 31)..=(u64::MAX / 1_000_000_000) as i64 - (1 << 31);

/// Seconds since 1970, and behind a dot nanoseconds, which are a number and no fraction.
fn parse_time(text: &str) -> Option<Timestamp> {
    let (seconds, nanoseconds) = text.split_once('.').unwrap_or((text, "0"));
    let nanoseconds = nanoseconds.parse().ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000)?;
    let seconds = seconds.parse().ok().filter(|seconds| TIMES.contains(seconds))?;
    Some(Timestamp { seconds, nanoseconds })
}

/// `MAJOR,MINOR`, or the same behind the name of a format.
fn parse_device(text: &str) -> Option<u32> {
    let numbers: Vec<&str> = text.split(',').collect();
    let [.., major, minor] = numbers.as_slice() else { return None };
    if !matches!(numbers.as_slice(), [_, _] | ["linux" | "native", _, _]) {
        return None;
    }
    let number = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let packed = number.to_linux();
    (DeviceNumber::from_linux(packed) == number).then_some(packed)
}

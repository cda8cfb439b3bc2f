//! The mounts in `/proc/self/mountinfo`.
//!
//! ```text
//! 36 35 0:53 / /mnt/a rw,noatime shared:1 - fuse.xfskit /srv/a.img rw,user_id=0
//! id parent device root place options   ...  type     source     options of the filesystem
//! ```
//! Source of facts: proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use xfskit_device::unescape;

const KIND: &str = "fuse.xfskit";

/// A mount by xfskit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Its number, which no other mount has while this one exists.
    pub id: u64,
    /// Device number of the filesystem, as in `0:53`; all its mounts have the same.
    pub device: String,
    /// The folder of the image that it shows: `/`, unless it is a bind mount of another.
    pub root: PathBuf,
    /// The mount point.
    pub place: PathBuf,
    /// The image, by the name that its server has given.
    pub source: OsString,
    /// The user who mounted it.
    pub user_id: u32,
}

/// Decodes one line: the mount, and whether it is one by xfskit.
fn decode_line(line: &[u8]) -> Option<(MountEntry, bool)> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let options = text(fields.get(dash + 3)?);
    let user_id = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
    let entry = MountEntry {
        id: text(fields.first()?).parse().ok()?,
        device: text(fields.get(2)?),
        root: unescape(fields.get(3)?),
        place: unescape(fields.get(4)?),
        source: unescape(fields.get(dash + 2)?).into(),
        user_id: user_id.unwrap_or_default(),
    };
    Some((entry, *fields.get(dash + 1)? == KIND.as_bytes()))
}

fn read_all() -> io::Result<Vec<(MountEntry, bool)>> {
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    Ok(mounts.split(|&byte| byte == b'\n').filter_map(decode_line).collect())
}

/// The mount at a path, if it is one by xfskit.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn mount_at(path: &Path) -> io::Result<Option<MountEntry>> {
    // Of several mounts at one place, the last is on top.
    let top = read_all()?.into_iter().rfind(|(entry, _)| entry.place == path);
    Ok(top.and_then(|(entry, is_ours)| is_ours.then_some(entry)))
}

/// The mount that contains a path without symbolic links, if it is one by xfskit.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn mount_around(path: &Path) -> io::Result<Option<MountEntry>> {
    let around = read_all()?.into_iter().filter(|(entry, _)| path.starts_with(&entry.place));
    // Of several mounts at one place, the last is on top, and `max_by_key` returns the last.
    let nearest = around.max_by_key(|(entry, _)| entry.place.components().count());
    Ok(nearest.and_then(|(entry, is_ours)| is_ours.then_some(entry)))
}

/// The mounts of an image, by the name without symbolic links that its server has given; of a disk, also those of its
/// parts. Any user can give a mount any name: those of others than root, this user and the image's owner are apart.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn mounts_of(image: &Path) -> io::Result<MountsOf> {
    let is_of_image = |entry: &MountEntry| is_on(entry.source.as_bytes(), image.as_os_str().as_bytes());
    let owner = std::fs::metadata(image).ok().map(|data| data.uid());
    let this_user = rustix::process::geteuid().as_raw();
    let is_believed = |entry: &MountEntry| [0, this_user].contains(&entry.user_id) || owner == Some(entry.user_id);
    let all = read_all()?.into_iter().filter_map(|(entry, is_ours)| (is_ours && is_of_image(&entry)).then_some(entry));
    let (believed, others) = all.partition(is_believed);
    Ok(MountsOf { believed, others })
}

/// Mounts that have an image by their name.
#[derive(Clone, Debug, Default)]
pub struct MountsOf {
    /// Those of root, this user and the image's owner.
    pub believed: Vec<MountEntry>,
    /// Those of others, which may show anything.
    pub others: Vec<MountEntry>,
}

/// Whether a source is a file, or a part of it: `FILE[,FILE...][#PART]`.
fn is_on(source: &[u8], file: &[u8]) -> bool {
    let ends = |rest: &[u8]| matches!(rest.first(), None | Some(b'#' | b','));
    let starts = std::iter::once(0).chain((1..=source.len()).filter(|&at| source[at - 1] == b','));
    starts.into_iter().any(|at| source[at..].strip_prefix(file).is_some_and(ends))
}

/// The mount of the root of the image that another mount, a bind mount perhaps, shows a folder of.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn mount_of_root(of: &MountEntry) -> io::Result<Option<MountEntry>> {
    let is_root = |entry: &MountEntry| entry.device == of.device && entry.root == Path::new("/");
    if is_root(of) {
        return Ok(Some(of.clone()));
    }
    Ok(read_all()?.into_iter().find_map(|(entry, is_ours)| (is_ours && is_root(&entry)).then_some(entry)))
}

/// Whether the filesystem of a mount is mounted at any place that this process sees. (Another one may have got its
/// device number by now, but not of the same image, which is in use.)
///
/// # Errors
/// When `/proc` cannot be read.
pub fn is_mounted(of: &MountEntry) -> io::Result<bool> {
    let is_same = |entry: &MountEntry| (&entry.device, &entry.source) == (&of.device, &of.source);
    Ok(read_all()?.iter().any(|(entry, is_ours)| *is_ours && is_same(entry)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_disk_is_on_its_file() {
        for source in ["/a.img", "/a.img#3", "/a.img#label=x", "/b,/a.img", "/b,/a.img#lv=v/l", "/a.img,/b"] {
            assert!(is_on(source.as_bytes(), b"/a.img"), "{source}");
        }
        for source in ["/a.img2", "/b/a.img", "/b#/a.img", ""] {
            assert!(!is_on(source.as_bytes(), b"/a.img"), "{source}");
        }
    }

    #[test]
    fn a_line_is_taken_apart() {
        let line = b"36 35 0:53 / /mnt/a\\040b rw,noatime shared:1 master:2 - fuse.xfskit /srv/a\\134b.img \
            rw,user_id=7,group_id=8";
        let (entry, is_ours) = decode_line(line).unwrap();
        let place = PathBuf::from("/mnt/a b");
        let (device, root, source) = ("0:53".into(), "/".into(), r"/srv/a\b.img".into());
        let expected = MountEntry { id: 36, device, root, place, source, user_id: 7 };
        assert!(is_ours && entry == expected, "{entry:?}");
        assert!(!decode_line(b"1 0 8:1 / / rw - ext4 /dev/sda1 rw").unwrap().1 && decode_line(b"").is_none());
    }
}

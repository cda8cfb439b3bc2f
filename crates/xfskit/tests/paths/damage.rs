//! What is damaged is reported with its path, and the rest is reached.

use crate::image;
use std::io::ErrorKind;
use std::sync::Arc;
use xfskit::device::MemoryDevice;
use xfskit::{FileType, Filesystem};
use xfskit_engine::space::cluster::locate;
use xfskit_ondisk::{InodeNumber, set_checksum};

#[test]
fn a_walk_goes_on_past_a_damaged_directory() {
    let (device, fs) = image(32 << 20);
    for dir in ["a", "b", "c"] {
        fs.create_dir(dir).unwrap();
        fs.write(format!("{dir}/file"), "x").unwrap();
    }
    // So many names need a block of their own, and only these do.
    for number in 0..60 {
        fs.write(format!("b/a rather long name {number}"), "").unwrap();
    }
    fs.close().unwrap();
    let mut bytes = device.to_bytes();
    let blocks: Vec<_> = (0..bytes.len()).step_by(4096).filter(|&at| bytes[at..].starts_with(b"XDB3")).collect();
    assert_eq!(blocks.len(), 1);
    bytes[blocks[0] + 100] ^= 1;

    let fs = Filesystem::options().read_only(true).open_device(Arc::new(MemoryDevice::from_bytes(bytes))).unwrap();
    let (found, failed): (Vec<_>, Vec<_>) = fs.walk("/").unwrap().partition(Result::is_ok);
    let found: Vec<_> = found.into_iter().map(|entry| entry.unwrap().path().display().to_string()).collect();
    assert_eq!(found, ["/a", "/a/file", "/b", "/c", "/c/file"]);
    let [failure] = failed.as_slice() else { panic!("{} failures", failed.len()) };
    let failure = failure.as_ref().unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::InvalidData);
    assert!(failure.to_string().starts_with("list /b: "), "{failure}");
    assert_eq!(failure.cause().unwrap().errno(), 117);
    let error = std::io::Error::from(fs.read_dir("b").unwrap_err());
    assert_eq!(error.raw_os_error(), Some(117));
}

/// Changes the first entry of a small directory that lies in its inode, and mends the checksum.
fn edit_first_entry(bytes: &mut [u8], fs: &Filesystem, dir: &str, edit: impl FnOnce(&mut [u8])) {
    let inode = InodeNumber(fs.metadata(dir).unwrap().inode());
    let geometry = &fs.volume().mount().geometry;
    let (address, offset) = locate(geometry, inode).unwrap();
    let at = address.bytes() as usize + offset;
    let inode = &mut bytes[at..at + (1 << geometry.inode_log)];
    // Behind the core: the header of 6 bytes; length of the name, offset, name, type, inode.
    let entry = &mut inode[176 + 6..];
    let end = 1 + 2 + usize::from(entry[0]) + 1 + 4;
    edit(&mut entry[..end]);
    set_checksum(inode, 100);
}

/// An image with `/top/mid/below/file` and `/top/other`, changed by `edit`.
fn edited(dir: &str, edit: impl FnOnce(&Filesystem, &mut [u8])) -> Filesystem {
    let (device, fs) = image(32 << 20);
    fs.create_dir_all("top/mid/below").unwrap();
    fs.write("top/mid/below/file", "x").unwrap();
    fs.write("top/other", "x").unwrap();
    fs.close().unwrap();
    let mut bytes = device.to_bytes();
    let before = Filesystem::options().read_only(true).open_device(device).unwrap();
    edit_first_entry(&mut bytes, &before, dir, |entry| edit(&before, entry));
    crate::reopen(bytes)
}

#[test]
fn a_directory_that_leads_to_one_above_it_is_reported_and_not_followed() {
    let fs = edited("top/mid", |before, entry| {
        let top = before.metadata("top").unwrap().inode() as u32;
        let at = entry.len() - 4;
        entry[at..].copy_from_slice(&top.to_be_bytes());
    });
    let (found, failed): (Vec<_>, Vec<_>) = fs.walk("/").unwrap().partition(Result::is_ok);
    let found: Vec<_> = found.into_iter().map(|entry| entry.unwrap().path().display().to_string()).collect();
    assert_eq!(found, ["/top", "/top/mid", "/top/mid/below", "/top/other"]);
    let [Err(failure)] = failed.as_slice() else { panic!("{} failures", failed.len()) };
    assert_eq!(failure.kind(), ErrorKind::InvalidData);
    assert!(failure.to_string().starts_with("list /top/mid/below: "), "{failure}");

    let failure = fs.remove_dir_all("top").unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::InvalidData, "{failure}");
    assert!(failure.to_string().contains("leads to no directory above it"), "{failure}");
    assert_eq!(fs.read("top/other").unwrap(), b"x");
}

#[test]
fn an_entry_without_a_type_has_that_of_its_inode() {
    let fs = edited("top/mid/below", |_, entry| {
        let at = entry.len() - 5;
        entry[at] = 0;
    });
    let types: Vec<_> = fs.read_dir("top/mid/below").unwrap().map(|entry| entry.unwrap().file_type()).collect();
    assert_eq!(types, [FileType::File]);
}

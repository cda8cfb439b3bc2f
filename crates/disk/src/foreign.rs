//! Disks that are not read here and that QEMU reads: which driver each of their files needs.
//!
//! What is decided here is all that the other program is told: it looks for no format and follows no name itself. So a
//! disk that lies on another one is handled only where its chain is resolved here, which is that of qcow2.
//!
//! A process that is about to give up its rights decides it by signatures, and by what headers say, which another one
//! reads ([`below`]).

use crate::below::{Base, Below, MOST_NAMES, Service};
use crate::bytes::{u32_at, u64_at};
use crate::qcow2::{MOST_LAYERS, is_layer};
use crate::signature::{Signature, ends, refused_format};
use std::path::PathBuf;
use xfskit_device::{Access, FileDevice};

/// A disk that another program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// QEMU's names of the drivers of its files: the disk itself, then the files below it in their order.
    pub drivers: Vec<&'static str>,
}

const QCOW2: &str = "qcow2";
const RAW: &str = "raw";
/// The formats of backing files that qcow2 images are made over.
const DRIVERS: [&str; 6] = [QCOW2, RAW, "vdi", "vhdx", "vpc", "parallels"];
/// How much of a sparse vmdk is searched for the name of the disk that it lies on.
const DESCRIPTOR_BYTES: u64 = 20 << 10;
/// A length that a sparse vmdk counts.
const SECTOR_BYTES: u64 = 512;

/// The format of a file that is not read here, by QEMU's name for it.
pub(crate) fn format(file: &FileDevice) -> Option<&'static str> {
    let (first, last) = ends(file);
    refused_format(&first, &last).map(|(_, format)| format)
}

/// What is known of all disks in a format; none where it is in the header of each.
pub(crate) fn known(format: &str) -> Option<Below> {
    let service = match format {
        // QEMU refuses those that lie on others.
        "vdi" | "vhdx" | "vpc" | "parallels" => Service::ToReadAndWrite,
        "dmg" => Service::ToRead,
        _ => return None,
    };
    Some(Below { service, ..Below::default() })
}

/// What the header of another format says; `read` reads more of the file than its first bytes.
pub(crate) fn below(first: &[u8], read: impl Fn(u64, usize) -> Vec<u8>) -> Below {
    // What is cut off before its end would read as zeros.
    const FLAGS_END: usize = 24;
    const QED_HAS_BASE: u64 = 1;
    let (service, base) = match refused_format(first, &[]) {
        Some((_, "qed")) if first.len() >= FLAGS_END => {
            let has_base = u64_at(first, 16) & QED_HAS_BASE != 0;
            (Service::ToReadAndWrite, if has_base { Base::Another } else { Base::None })
        }
        Some((_, "vmdk")) => sparse_vmdk(first, read),
        // A kind of which that is not known is taken for one that lies on another.
        _ => (Service::NotNeeded, Base::Another),
    };
    Below { service, base, ..Below::default() }
}

/// What the header of a sparse vmdk and the descriptor within say.
fn sparse_vmdk(first: &[u8], read: impl Fn(u64, usize) -> Vec<u8>) -> (Service, Base) {
    const FLAGS: usize = 8;
    const IS_COMPRESSED: u32 = 1 << 16;
    const HEADER_END: usize = 44;
    let sectors = |at| u64_at(first, at).saturating_mul(SECTOR_BYTES);
    let (capacity, start, length) = (u64_at(first, 12), sectors(28), sectors(36).min(DESCRIPTOR_BYTES));
    // Without a size of its own it would be a text that names other files.
    if !first.starts_with(b"KDMV") || first.len() < HEADER_END || capacity == 0 || start == 0 {
        return (Service::NotNeeded, Base::Another);
    }
    let service = if u32_at(first, FLAGS) & IS_COMPRESSED == 0 { Service::ToReadAndWrite } else { Service::ToRead };
    let descriptor = read(start, length as usize);
    let text = String::from_utf8_lossy(&descriptor);
    let parent = text.lines().find_map(|line| line.trim().strip_prefix("parentCID="));
    let is_none = |parent: &str| parent.trim_end_matches(char::from(0)).trim().eq_ignore_ascii_case("ffffffff");
    (service, if parent.is_some_and(is_none) { Base::None } else { Base::Another })
}

/// The disk in a file, if it is such a one. `format` is that of [`format`]; `said` is what the headers of the file and
/// of those below it say that have one, `below` are the files of its chain.
pub(crate) fn foreign(
    signature: Signature,
    format: Option<&'static str>,
    said: &[Below],
    below: &[(PathBuf, FileDevice)],
    access: Access,
) -> Option<Foreign> {
    match signature {
        Signature::Vmdk | Signature::Metadump => None,
        Signature::Qcow2 => chain(said, below, access),
        Signature::Other => {
            let (format, said) = (format?, said.first()?);
            (said.base == Base::None && said.service.is_for(access)).then(|| Foreign { drivers: vec![format] })
        }
    }
}

/// The drivers of a chain. What each file is, the header of the one above it says: a guest that writes the first bytes
/// of its raw disk does not choose how it is read. A file of which the header says nothing is qcow2 or raw.
fn chain(said: &[Below], below: &[(PathBuf, FileDevice)], access: Access) -> Option<Foreign> {
    let mut said = said.iter();
    let top = said.next()?;
    // Whatever lies below it: a disk that was not closed is not written.
    if access == Access::Write && top.service == Service::ToRead {
        return None;
    }
    let (mut drivers, mut is_foreign_one, mut last) = (vec![QCOW2], top.service.is_for(access), Some(top));
    for (_, file) in below {
        // Only the last file may be no qcow2, and that of a chain which was not opened to its end is missing what it
        // lies on, which must not be taken for zeros.
        let above = last.filter(|above| above.base == Base::Another)?;
        let declared = Some(above.format.as_str()).filter(|format| !format.is_empty());
        let driver = match declared {
            _ if is_layer(declared, file) => QCOW2,
            Some(declared) => DRIVERS.iter().find(|driver| **driver == declared)?,
            None => RAW,
        };
        last = if driver == QCOW2 { Some(said.next()?) } else { None };
        is_foreign_one |= last.map_or(driver != RAW, |said| said.service.is_for(Access::Read));
        drivers.push(driver);
    }
    let is_whole = last.is_none_or(|last| last.base == Base::None);
    (is_foreign_one && is_whole && below.len() < MOST_LAYERS.min(MOST_NAMES)).then_some(Foreign { drivers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(service: Service, base: Base, format: &str) -> Below {
        Below { service, base, format: format.into(), names: Vec::new() }
    }

    /// Only a chain that is open to its end, and of which each file is known, is given away.
    #[test]
    fn a_chain_is_whole_or_not_served() {
        use Base::{Another, None as Alone};
        use Service::{NotNeeded, ToRead, ToReadAndWrite};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("raw");
        std::fs::write(&path, [0; 4096]).unwrap();
        let file = || (path.clone(), FileDevice::open(&path, Access::Read).unwrap());
        let drivers = |said: &[Below], files: usize, access| {
            let below: Vec<_> = (0..files).map(|_| file()).collect();
            foreign(Signature::Qcow2, None, said, &below, access).map(|foreign| foreign.drivers)
        };
        let read = |said: &[Below], files| drivers(said, files, Access::Read);
        let alone = said(ToReadAndWrite, Alone, "");
        assert_eq!(read(&[], 0), None);
        assert_eq!(read(std::slice::from_ref(&alone), 0), Some(vec!["qcow2"]));
        assert_eq!(read(std::slice::from_ref(&alone), 1), None);
        assert_eq!(read(&[said(ToReadAndWrite, Another, "")], 0), None);
        for (service, format, expected) in [
            (ToReadAndWrite, "raw", Some("raw")),
            (ToReadAndWrite, "", Some("raw")),
            (NotNeeded, "vhdx", Some("vhdx")),
            (NotNeeded, "raw", None),
            (ToReadAndWrite, "luks", None),
            (ToReadAndWrite, "?", None),
        ] {
            let expected = expected.map(|driver| vec!["qcow2", driver]);
            assert_eq!(read(&[said(service, Another, format)], 1), expected, "{format}");
        }
        let above = said(NotNeeded, Another, "qcow2");
        assert_eq!(read(std::slice::from_ref(&above), 1), None);
        assert_eq!(read(&[above.clone(), alone], 1), Some(vec!["qcow2"; 2]));
        assert_eq!(read(&[above.clone(), said(ToReadAndWrite, Another, "raw")], 1), None);
        let write = |said: &[Below], files| drivers(said, files, Access::Write);
        assert_eq!(write(&[said(ToRead, Alone, "")], 0), None);
        assert_eq!(write(&[said(ToRead, Another, "qcow2"), said(ToReadAndWrite, Alone, "")], 1), None);
        assert_eq!(write(&[above, said(ToRead, Alone, "")], 1), Some(vec!["qcow2"; 2]));
    }
}

//! Disks that are not read here and that QEMU reads: which driver each of their files needs.
//!
//! What is decided here is all that the other program is told: it looks for no format and follows no name itself. So a
//! disk that lies on another one is handled only where its chain is resolved here, which is that of qcow2.

use crate::below::MOST_NAMES;
use crate::bytes::{head, u32_at, u64_at};
use crate::qcow2::{MOST_LAYERS, declared_backing_format, is_foreign, names_another};
use crate::signature::{SIGNATURE_BYTES, Signature, ends, refused_format};
use std::path::PathBuf;
use xfskit_device::{Access, FileDevice};

/// A disk that another program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// QEMU's names of the drivers of its files: the disk itself, then the files below it in their order.
    pub drivers: Vec<&'static str>,
}

const QCOW2: &str = "qcow2";
/// The formats of backing files that qcow2 images are made over.
const DRIVERS: [&str; 6] = [QCOW2, "raw", "vdi", "vhdx", "vpc", "parallels"];
/// Bytes of a header with its extensions.
const EXTENSIONS_END_BYTES: usize = 64 << 10;
/// How much of a sparse vmdk is searched for the name of the disk that it lies on.
const DESCRIPTOR_BYTES: u64 = 20 << 10;

/// The disk in a file, if it is such a one; `below` are the files of its chain.
pub(crate) fn foreign(
    signature: Signature,
    file: &FileDevice,
    below: &[(PathBuf, FileDevice)],
    access: Access,
) -> Option<Foreign> {
    match signature {
        Signature::Vmdk | Signature::Metadump => None,
        Signature::Qcow2 => chain(file, below, access),
        Signature::Other => {
            let (first, last) = ends(file);
            let (_, format) = refused_format(&first, &last)?;
            let is_one = !lies_on_another(format, file) && (access != Access::Write || is_written(format, &first));
            is_one.then(|| Foreign { drivers: vec![format] })
        }
    }
}

/// The drivers of a chain. What each file is, the header of the one above it says: a guest that writes the first bytes
/// of its raw disk does not choose how it is read. A file of which the header says nothing is qcow2 or raw.
fn chain(file: &FileDevice, below: &[(PathBuf, FileDevice)], access: Access) -> Option<Foreign> {
    let header = |file: &FileDevice| head(file, 0, EXTENSIONS_END_BYTES).unwrap_or_default();
    let (mut drivers, mut is_foreign_one, mut above) = (vec![QCOW2], is_foreign(&header(file), access), header(file));
    for (number, (_, file)) in below.iter().enumerate() {
        // Only the last file may be no qcow2, and that of a chain which was not opened to its end is missing what it
        // lies on, which must not be taken for zeros.
        if drivers[number] != QCOW2 || !names_another(&above) {
            return None;
        }
        let own = header(file);
        let driver = match declared_backing_format(&above) {
            Some(declared) => DRIVERS.iter().find(|driver| **driver == declared)?,
            None if Signature::of(&own) == Signature::Qcow2 => QCOW2,
            None => "raw",
        };
        is_foreign_one |= match driver {
            QCOW2 => is_foreign(&own, Access::Read),
            driver => driver != "raw",
        };
        drivers.push(driver);
        above = own;
    }
    let is_whole = drivers.last() != Some(&QCOW2) || !names_another(&above);
    (is_foreign_one && is_whole && below.len() < MOST_LAYERS.min(MOST_NAMES)).then_some(Foreign { drivers })
}

/// Whether QEMU writes a disk, everywhere.
fn is_written(format: &str, first: &[u8]) -> bool {
    const FLAGS: usize = 8;
    const IS_COMPRESSED: u32 = 1 << 16;
    match format {
        "vmdk" => u32_at(first, FLAGS) & IS_COMPRESSED == 0,
        "dmg" => false,
        _ => true,
    }
}

/// Whether a disk needs another one below it. A kind of which that is not known is taken for one.
fn lies_on_another(format: &str, file: &FileDevice) -> bool {
    match format {
        // QEMU refuses those that lie on others.
        "vdi" | "vhdx" | "vpc" | "parallels" | "dmg" => false,
        "qed" => head(file, 0, SIGNATURE_BYTES).map_or(true, |first| u64_at(&first, 16) & 1 != 0),
        "vmdk" => !has_no_parent(file),
        _ => true,
    }
}

/// Whether the descriptor within a sparse vmdk says that it lies on no other one.
fn has_no_parent(file: &FileDevice) -> bool {
    let Ok(first) = head(file, 0, SIGNATURE_BYTES) else { return false };
    let sectors = |at| u64_at(&first, at).saturating_mul(512);
    let (capacity, start, length) = (u64_at(&first, 12), sectors(28), sectors(36).min(DESCRIPTOR_BYTES));
    // Without a size of its own it would be a text that names other files.
    if !first.starts_with(b"KDMV") || capacity == 0 || start == 0 {
        return false;
    }
    let Ok(descriptor) = head(file, start, length as usize) else { return false };
    let text = String::from_utf8_lossy(&descriptor);
    let parent = text.lines().find_map(|line| line.trim().strip_prefix("parentCID="));
    parent.is_some_and(|parent| parent.trim_end_matches(char::from(0)).trim().eq_ignore_ascii_case("ffffffff"))
}

//! What names an image on the command line: a part of a disk, or an export of a server. Nothing is opened here.
//!
//! ```text
//! disk.qcow2              the only XFS filesystem on it
//! disk.img#3              a partition; #label= #uuid= #partlabel= #partuuid= #lv=GROUP/NAME #offset= #whole
//! a.img,b.img#lv=vg/data  disks of one LVM2 group
//! nbd://host/disk#2       a disk that an NBD server has
//! ```
//! Commands keep the operand as a path: a file of that very name wins, and every message names it as the user did.

use crate::output::causes::Usage;
use std::path::{Path, PathBuf};
use xfskit_device::share_storage;
use xfskit_disk::{DiskError, Operand};
use xfskit_nbd::Address;

/// Decodes an operand.
///
/// # Errors
/// A part that has none of the known forms.
pub fn decode(operand: &Path) -> Result<Operand, DiskError> {
    Operand::decode(operand.as_os_str(), |path| path.exists() || is_address(path))
}

/// The files of an operand, which need not exist.
pub fn files(operand: &Path) -> Vec<PathBuf> {
    decode(operand).map_or_else(|_| vec![operand.into()], |decoded| decoded.paths)
}

/// Whether one of the files of an operand is on a server. A process that connects has given up opening others by then.
pub fn is_remote(operand: &Path) -> bool {
    files(operand).iter().any(|file| is_address(file))
}

/// The operand with the full paths of its files.
pub fn canonical(operand: &Path) -> PathBuf {
    let Ok(decoded) = decode(operand) else { return operand.into() };
    let paths = decoded.paths.iter().map(|path| canonical_file(path)).collect();
    Operand { paths, part: decoded.part }.to_os_string().into()
}

/// Whether two operands name the same part of the same files, by whatever names.
pub fn is_same(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (decode(a), decode(b)) else { return false };
    let data = |path: &Path| std::fs::metadata(path).ok();
    let is_same = |(a, b): (&PathBuf, &PathBuf)| data(a).zip(data(b)).is_some_and(|(a, b)| share_storage(&a, &b));
    a.part == b.part && a.paths.len() == b.paths.len() && a.paths.iter().zip(&b.paths).all(is_same)
}

/// The full path of a file, as far as it exists.
pub fn canonical_file(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.into())
}

/// Whether a name is the address of one export. A file of that very name is taken for one.
pub fn is_address(name: &Path) -> bool {
    let is_one = |text: &str| Address::looks_like_one(text) && !text.contains('#') && !text.contains(",nbd");
    name.to_str().is_some_and(is_one) && std::fs::symlink_metadata(name).is_err()
}

/// The address that a name is, if it is one.
///
/// # Errors
/// `Usage` for an address that is none.
pub fn address(name: &Path) -> Result<Option<Address>, Usage> {
    let Some(text) = name.to_str().filter(|_| is_address(name)) else { return Ok(None) };
    text.parse().map(Some).map_err(|error: xfskit_nbd::AddressError| Usage(error.to_string()))
}

/// Where an operand that begins with an address can have the colon before a path: behind `://`.
pub fn scheme_bytes(operand: &[u8]) -> usize {
    let is_address = std::str::from_utf8(operand).is_ok_and(Address::looks_like_one);
    let scheme = operand.windows(3).position(|part| part == b"://").filter(|_| is_address);
    scheme.map_or(0, |colon| colon + b"://".len())
}

//! Images that an NBD server has. `docs/network.md` says what protects them, and what does not.

use crate::exit::Usage;
use anyhow::Result;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xfskit::device::{Access, BlockDevice};
use xfskit::ondisk::{Geometry, Superblock};
use xfskit_nbd::{Address, Credentials, NbdDevice, Options, Writers};

/// The user says that no other client writes.
static OTHERS_KEPT_OUT: AtomicBool = AtomicBool::new(false);

/// What the files say that addresses over TLS name, read while this process may read them.
static CREDENTIALS: Mutex<Vec<(Address, Credentials)>> = Mutex::new(Vec::new());

fn known_credentials() -> MutexGuard<'static, Vec<(Address, Credentials)>> {
    CREDENTIALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the certificates for an address, before rights are given up: keys are among these files.
///
/// # Errors
/// They cannot be read, or cannot be used.
pub fn remember_credentials(address: &Address) -> Result<()> {
    if let Some(read) = Credentials::read(address)? {
        known_credentials().push((address.clone(), read));
    }
    Ok(())
}

/// From now on images on servers may be written.
pub fn others_are_kept_out() {
    OTHERS_KEPT_OUT.store(true, Ordering::Relaxed);
}

/// The option for a program that is started to do the same, if it was given.
pub fn option() -> Option<&'static str> {
    OTHERS_KEPT_OUT.load(Ordering::Relaxed).then_some("--others-kept-out")
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

/// Opens the export whose address this is, if it is one.
///
/// # Errors
/// `Usage` for an address that is none, and for writing without the option; those of opening the export.
pub fn open(name: &Path, access: Access) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some(address) = address(name)? else { return Ok(None) };
    let connecting = || {
        crate::confined::before_connecting(&address)?;
        let credentials = known_credentials().iter().find(|(of, _)| *of == address).map(|(_, read)| read.clone());
        anyhow::Ok(Options { credentials, ..Options::default() })
    };
    if access != Access::Write {
        let options = connecting()?;
        return Ok(Some(Arc::new(NbdDevice::open(&address, &options)?)));
    }
    if !OTHERS_KEPT_OUT.load(Ordering::Relaxed) {
        let why = "an NBD server does not say who else writes to the image, and two writers destroy it; see that no \
                   other client does (docs/network.md), and say so with --others-kept-out";
        return Err(Usage(format!("{address}: {why}")).into());
    }
    let options = connecting()?;
    let device = NbdDevice::open_writable(&address, Writers::OthersKeptOut, &options)?;
    Ok(Some(Arc::new(device)))
}

/// Where an operand that begins with an address can have the colon before a path: behind `://`.
pub fn scheme_bytes(operand: &[u8]) -> usize {
    let is_address = std::str::from_utf8(operand).is_ok_and(Address::looks_like_one);
    let scheme = operand.windows(3).position(|part| part == b"://").filter(|_| is_address);
    scheme.map_or(0, |colon| colon + b"://".len())
}

/// Refuses a server that takes no write as small as the filesystem's sector.
///
/// # Errors
/// `Usage`; those of reading the superblock.
pub fn verify_sectors(device: &dyn BlockDevice) -> Result<()> {
    let mut sector = vec![0; device.size_bytes().min(32 << 10) as usize];
    device.read(0, &mut sector)?;
    // What is wrong with a superblock is reported when the image is opened.
    let Ok(superblock) = Superblock::decode(&sector) else { return Ok(()) };
    let (has, takes) = (Geometry::new(&superblock).sector_bytes(), device.hints().sector_bytes);
    if has < takes {
        let what = format!("the server takes writes of {takes} bytes at least, and the image has sectors of {has}");
        return Err(Usage(format!("{what}: it can be read only")).into());
    }
    Ok(())
}

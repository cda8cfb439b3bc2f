//! Images that an NBD server has. `docs/network.md` says what protects them, and what does not.

use crate::operand::address;
use crate::output::causes::Usage;
use crate::output::error::Result;
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice};
use xfskit_nbd::{Address, Credentials, NbdDevice, Options, Writers};
use xfskit_ondisk::{Geometry, Superblock};

/// Whether the user says that no other client of a server writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherClients {
    /// Others may write.
    MayWrite,
    /// The user has seen to it that none does.
    KeptOut,
}

/// How servers are connected to.
pub struct Servers {
    others: OtherClients,
    /// What the files say that addresses over TLS name, read while this process may read them.
    credentials: RefCell<Vec<(Address, Credentials)>>,
}

impl Servers {
    /// Without any credentials.
    pub fn new(others: OtherClients) -> Self {
        Self { others, credentials: RefCell::default() }
    }

    /// The option for a program that is started to do the same, if it was given.
    pub fn option(&self) -> Option<&'static str> {
        (self.others == OtherClients::KeptOut).then_some("--others-kept-out")
    }

    /// Reads the certificates for an address, before rights are given up: keys are among these files.
    ///
    /// # Errors
    /// They cannot be read, or cannot be used.
    pub fn remember_credentials(&self, address: &Address) -> Result<()> {
        if let Some(read) = Credentials::read(address)? {
            self.credentials.borrow_mut().push((address.clone(), read));
        }
        Ok(())
    }

    /// Opens the export whose address this is, if it is one. `before_connecting` is called when nothing else is in the
    /// way of a connection.
    ///
    /// # Errors
    /// `Usage` for an address that is none, and for writing without the option; those of opening the export.
    pub fn open(
        &self,
        name: &Path,
        access: Access,
        before_connecting: impl FnOnce(&Address) -> Result<()>,
    ) -> Result<Option<Arc<dyn BlockDevice>>> {
        let Some(address) = address(name)? else { return Ok(None) };
        if access == Access::Write && self.others != OtherClients::KeptOut {
            let why = "an NBD server does not say who else writes to the image, and two writers destroy it; see that \
                       no other client does (docs/network.md), and say so with --others-kept-out";
            return Err(Usage(format!("{address}: {why}")).into());
        }
        before_connecting(&address)?;
        let known = self.credentials.borrow();
        let credentials = known.iter().find(|(of, _)| *of == address).map(|(_, read)| read.clone());
        let options = Options { credentials, ..Options::default() };
        Ok(Some(match access {
            Access::Write => Arc::new(NbdDevice::open_writable(&address, Writers::OthersKeptOut, &options)?),
            _ => Arc::new(NbdDevice::open(&address, &options)?),
        }))
    }
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

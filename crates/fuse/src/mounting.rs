//! A mount without its server: what the process has to do that mounts and unmounts, and reads no image.

use crate::attach::{Attached, attach};
use crate::ending::EndReport;
use crate::error::MountError;
use crate::options::Options;
use crate::place::{Abort, Place};
use crate::read_ahead;
use crate::unmount::{Served, Unmounter};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// A mount that this process has made. Requests wait until a server takes its connection.
pub struct Mounting {
    place: Arc<Place>,
    /// Ends the connection to the kernel.
    abort: Option<Arc<Abort>>,
    /// The file for the report of how the server ends. Those who unmount find it among this process's descriptors;
    /// those of a server that has given up its rights are root's.
    #[allow(dead_code)] // It is only kept open.
    report: Option<OwnedFd>,
    /// With `auto_unmount`, the connection to the helper, which unmounts when it is closed.
    _helper: Option<UnixStream>,
}

impl Mounting {
    /// Mounts. Returned besides are the connection to the kernel, and the file in which the server reports how it ends.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn new(mount_point: &Path, options: &Options) -> Result<(Self, OwnedFd, Option<OwnedFd>), MountError> {
        let at = |source| MountError::of_mount_point(mount_point, source);
        let path = mount_point.canonicalize().map_err(at)?;
        if !std::fs::metadata(&path).map_err(at)?.is_dir() {
            return Err(at(io::Error::from(io::ErrorKind::NotADirectory)));
        }
        if let Err(error) = std::fs::File::open("/dev/fuse") {
            return Err(MountError::NoFuse(error));
        }
        let Attached { connection, helper } = attach(&path, options).map_err(MountError::Mount)?;
        let place = Place::of_new(path, &connection);
        let made = place.entry().map(|entry| EndReport::file_for(entry)).transpose();
        let made = made.and_then(|report| Ok((report.as_ref().map(OwnedFd::try_clone).transpose()?, report)));
        let abort = Abort::of(&place).map(Arc::new);
        let mut mounting = Self { place: Arc::new(place), abort, report: None, _helper: helper };
        match made {
            Ok((kept, report)) => {
                mounting.report = kept;
                Ok((mounting, connection, report))
            }
            Err(error) => {
                mounting.undo();
                Err(MountError::Mount(error))
            }
        }
    }

    /// To be called when the server serves: what the kernel would set anew with the answer to its first request is set
    /// then.
    pub fn begin(&self) {
        read_ahead::widen(&self.place);
    }

    /// A handle for unmounting.
    pub fn unmounter(&self, served: Arc<dyn Served>) -> Unmounter {
        Unmounter::new(served, Arc::clone(&self.place), self.abort.clone())
    }

    /// Takes a mount away again that no server has taken over. What else is at the mount point by then stays.
    pub fn undo(&self) {
        // The error that led here is the one to report.
        let _ = self.place.unmount(true);
    }
}

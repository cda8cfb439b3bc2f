//! Making device nodes, named pipes and sockets.

use super::{AsPath, FileType, Filesystem, OnPath, Permissions, Result};
use xfskit_engine::{Caller, NewFile};
use xfskit_engine::{Error as Cause, Result as EngineResult};
use xfskit_ondisk::DeviceNumber;

/// A file that stands for something outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Node {
    /// A named pipe.
    Fifo,
    /// The name of a socket.
    Socket,
    /// A device that is read and written in blocks.
    BlockDevice {
        /// What kind of device: at most 511.
        major: u32,
        /// Which one of the kind: at most 262143.
        minor: u32,
    },
    /// Any other device.
    CharDevice {
        /// What kind of device: at most 511.
        major: u32,
        /// Which one of the kind: at most 262143.
        minor: u32,
    },
}

impl Node {
    /// What the engine makes: type, and the device number in Linux's encoding.
    fn to_make(self) -> EngineResult<(FileType, u32)> {
        let (file_type, number) = match self {
            Self::Fifo => return Ok((FileType::Fifo, 0)),
            Self::Socket => return Ok((FileType::Socket, 0)),
            Self::BlockDevice { major, minor } => (FileType::BlockDevice, DeviceNumber { major, minor }),
            Self::CharDevice { major, minor } => (FileType::CharDevice, DeviceNumber { major, minor }),
        };
        if !xfskit_ondisk::fits_device_node(number) {
            return Err(Cause::Invalid("XFS has no room for a major number above 511 or a minor number above 262143"));
        }
        Ok((file_type, number.to_linux()))
    }
}

impl Filesystem {
    /// Makes a device node, a named pipe or the name of a socket, with just these permissions.
    ///
    /// ```
    /// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    /// use xfskit::{Node, Permissions};
    ///
    /// fs.create_node("/null", Node::CharDevice { major: 1, minor: 3 }, Permissions::new(0o666))?;
    /// assert_eq!(fs.metadata("/null")?.device(), Some((1, 3)));
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Path`: `Exists`; `NotFound` or `NotADirectory` for the directory that it is to be in; `Invalid` for a device
    /// number that XFS has no room for; `NoSpace`, `NameTooLong`.
    pub fn create_node(&self, path: impl AsPath, node: Node, permissions: Permissions) -> Result<()> {
        let path = path.as_path_bytes();
        self.create_node_at(path, node, permissions).on("create node", path)
    }

    fn create_node_at(&self, path: &[u8], node: Node, permissions: Permissions) -> EngineResult<()> {
        let (file_type, device) = node.to_make()?;
        let entry = self.new_name(path)?;
        let new = NewFile { device, ..NewFile::new(file_type, permissions) };
        self.volume().create(entry.dir.number(), entry.name, &new, &Caller::root()).map(drop)
    }
}

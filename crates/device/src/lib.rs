//! The only interface through which xfskit reaches storage.
//!
//! [`BlockDevice`] is read, write, flush, discard and geometry; [`FileDevice`] is an image file or a real device,
//! [`MemoryDevice`] is a vector of bytes, [`OverlayDevice`] stores changes to another device in memory. Simulators and
//! recorders implement the same trait.
//!
//! Contract: writes may reach storage in any order until [`BlockDevice::flush`] returns. Where two writes in flight
//! overlap, each byte is from either of them. The engine relies on nothing more.
//!
//! The only unsafe code is the request to a loop device for its file, in `loop_device`.

mod at_once;
mod file;
mod holders;
mod holes;
mod locks;
mod loop_device;
mod memory;
mod overlay;
mod sysfs;

pub use at_once::{at_once, in_order};
pub use file::{Access, FileDevice, InUse, Names, OpenError};
pub use holders::{Holder, share_storage, unescape};
pub use holes::{DataPieces, data_pieces};
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;

use std::io;

/// Storage of fixed size, shared between threads. Ranges need not be whole sectors.
///
/// A device that wraps another one forwards every method, those with a default too: [`Self::identity`] keeps it from
/// being opened twice, and [`Self::is_read_only`] from being written. One that counts what is written, and refuses it
/// beyond a limit:
///
/// ```
/// use std::io::{Error, ErrorKind, Result};
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use xfskit_device::{BlockDevice, MemoryDevice};
///
/// struct Limited<D> {
///     device: D,
///     written_bytes: AtomicU64,
///     most_bytes: u64,
/// }
///
/// impl<D> Limited<D> {
///     fn count(&self, data: &[u8]) -> Result<()> {
///         let before = self.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
///         if before + data.len() as u64 > self.most_bytes {
///             return Err(Error::new(ErrorKind::QuotaExceeded, "enough was written"));
///         }
///         Ok(())
///     }
/// }
///
/// impl<D: BlockDevice> BlockDevice for Limited<D> {
///     fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
///         self.count(data)?;
///         self.device.write(offset, data)
///     }
///     // Not by way of `write` and `flush`, which for some devices are two requests instead of one.
///     fn write_durably(&self, offset: u64, data: &[u8]) -> Result<()> {
///         self.count(data)?;
///         self.device.write_durably(offset, data)
///     }
///
///     fn size_bytes(&self) -> u64 {
///         self.device.size_bytes()
///     }
///     fn sector_bytes(&self) -> usize {
///         self.device.sector_bytes()
///     }
///     fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
///         self.device.read(offset, buffer)
///     }
///     fn writes_durably(&self) -> bool {
///         self.device.writes_durably()
///     }
///     fn flush(&self) -> Result<()> {
///         self.device.flush()
///     }
///     fn discard(&self, offset: u64, length: u64) -> Result<()> {
///         self.device.discard(offset, length)
///     }
///     fn allocate(&self, offset: u64, length: u64) -> Result<()> {
///         self.device.allocate(offset, length)
///     }
///     fn may_hold_data(&self, offset: u64, length: u64) -> bool {
///         self.device.may_hold_data(offset, length)
///     }
///     fn requests_at_once(&self) -> usize {
///         self.device.requests_at_once()
///     }
///     fn identity(&self) -> usize {
///         self.device.identity()
///     }
///     fn is_read_only(&self) -> bool {
///         self.device.is_read_only()
///     }
/// }
///
/// let below = MemoryDevice::new(1 << 20);
/// let device = Limited { device: below, written_bytes: AtomicU64::new(0), most_bytes: 1000 };
/// device.write(0, &[1; 900])?;
/// assert_eq!(device.write(0, &[2; 900]).unwrap_err().kind(), ErrorKind::QuotaExceeded);
/// assert_eq!(device.written_bytes.into_inner(), 1800);
/// # Ok::<(), Error>(())
/// ```
pub trait BlockDevice: Send + Sync {
    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Size of the unit that the device writes atomically, in bytes.
    fn sector_bytes(&self) -> usize {
        512
    }

    /// Fills `buffer` from byte `offset`.
    ///
    /// # Errors
    /// Any I/O error; `UnexpectedEof` when the range reaches past the end.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes `data` at byte `offset`; it is durable only after a flush.
    ///
    /// # Errors
    /// Any I/O error; `PermissionDenied` on a device opened for reading.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Whether [`Self::write_durably`] is one request to the storage.
    fn writes_durably(&self) -> bool {
        false
    }

    /// Writes `data` at byte `offset`, durable when the call returns. Of other writes it says nothing.
    ///
    /// # Errors
    /// Any I/O error; the write is then in doubt.
    fn write_durably(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data)?;
        self.flush()
    }

    /// Makes every write that has returned durable.
    ///
    /// # Errors
    /// Any I/O error; what was written before is then in doubt.
    fn flush(&self) -> io::Result<()>;

    /// Says that a range is no longer needed. A hint: the device may ignore it.
    ///
    /// # Errors
    /// Any I/O error other than "not supported".
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// Allocates storage for a range, so that a later write to it does not fail for want of space. The contents of the
    /// range stay.
    ///
    /// # Errors
    /// `StorageFull`; `Unsupported` where storage cannot be allocated in advance.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// Whether a range may contain anything but zeros: a sparse file knows its holes.
    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        let _ = (offset, length);
        true
    }

    /// How many requests at a time a program that reads much should have on their way: more than one where each takes
    /// long, as across a network.
    fn requests_at_once(&self) -> usize {
        1
    }

    /// A number that no other device has during the lifetime of this one. A device that stands for another one returns
    /// that one's number.
    fn identity(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }

    /// Whether writes fail.
    fn is_read_only(&self) -> bool {
        false
    }
}

impl<D: BlockDevice + ?Sized> BlockDevice for std::sync::Arc<D> {
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }
    fn sector_bytes(&self) -> usize {
        (**self).sector_bytes()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).write(offset, data)
    }
    fn writes_durably(&self) -> bool {
        (**self).writes_durably()
    }
    fn write_durably(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).write_durably(offset, data)
    }
    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        (**self).discard(offset, length)
    }
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        (**self).allocate(offset, length)
    }
    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        (**self).may_hold_data(offset, length)
    }
    fn requests_at_once(&self) -> usize {
        (**self).requests_at_once()
    }
    fn identity(&self) -> usize {
        (**self).identity()
    }
    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }
}

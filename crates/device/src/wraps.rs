//! Devices that stand for another one.
//!
//! Each method but [`WrapsDevice::below`] passes its call on, so that a wrapper states only what it changes. All writes
//! go through one method, [`WrapsDevice::pass_write`]: one that counts, refuses or records them misses none. The names
//! differ from those of [`BlockDevice`], or a caller with both traits in scope would have to say which it means.

use crate::{BlockDevice, Fua, Hints};
use std::io;
use std::sync::Arc;

/// A device that stands for another one, with the same bytes at the same offsets. It is a [`BlockDevice`] by that.
///
/// One that counts what is written, and refuses it beyond a limit:
///
/// ```
/// use std::io::{Error, ErrorKind, Result};
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use xfskit_device::{BlockDevice, Fua, MemoryDevice, WrapsDevice};
///
/// struct Limited<D> {
///     device: D,
///     written_bytes: AtomicU64,
///     most_bytes: u64,
/// }
///
/// impl<D: BlockDevice> WrapsDevice for Limited<D> {
///     type Below = D;
///     fn below(&self) -> &D {
///         &self.device
///     }
///     fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> Result<()> {
///         let before = self.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
///         if before + data.len() as u64 > self.most_bytes {
///             return Err(Error::new(ErrorKind::QuotaExceeded, "enough was written"));
///         }
///         fua.write(&self.device, offset, data)
///     }
/// }
///
/// let below = MemoryDevice::new(1 << 20);
/// let device = Limited { device: below, written_bytes: AtomicU64::new(0), most_bytes: 1000 };
/// device.write(0, &[1; 900])?;
/// assert_eq!(device.write_fua(0, &[2; 900]).unwrap_err().kind(), ErrorKind::QuotaExceeded);
/// assert_eq!(device.written_bytes.into_inner(), 1800);
/// # Ok::<(), Error>(())
/// ```
pub trait WrapsDevice: Send + Sync {
    /// The type of the device below.
    type Below: BlockDevice + ?Sized;

    /// The device for which this one stands.
    fn below(&self) -> &Self::Below;

    /// [`BlockDevice::size_bytes`].
    fn pass_size_bytes(&self) -> u64 {
        self.below().size_bytes()
    }

    /// [`BlockDevice::hints`].
    fn pass_hints(&self) -> Hints {
        self.below().hints()
    }

    /// [`BlockDevice::read`].
    fn pass_read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.below().read(offset, buffer)
    }

    /// [`BlockDevice::write`] and [`BlockDevice::write_fua`]. [`Fua::write`] passes one on.
    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
        fua.write(self.below(), offset, data)
    }

    /// [`BlockDevice::flush`].
    fn pass_flush(&self) -> io::Result<()> {
        self.below().flush()
    }

    /// [`BlockDevice::discard`].
    fn pass_discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.below().discard(offset, length)
    }

    /// [`BlockDevice::allocate`].
    fn pass_allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.below().allocate(offset, length)
    }

    /// [`BlockDevice::may_hold_data`].
    fn pass_may_hold_data(&self, offset: u64, length: u64) -> bool {
        self.below().may_hold_data(offset, length)
    }
}

impl<W: WrapsDevice> BlockDevice for W {
    fn size_bytes(&self) -> u64 {
        self.pass_size_bytes()
    }
    fn hints(&self) -> Hints {
        self.pass_hints()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.pass_read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.pass_write(offset, data, Fua::No)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.pass_write(offset, data, Fua::Yes)
    }
    fn flush(&self) -> io::Result<()> {
        self.pass_flush()
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.pass_discard(offset, length)
    }
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.pass_allocate(offset, length)
    }
    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        self.pass_may_hold_data(offset, length)
    }
}

impl<D: BlockDevice + ?Sized> WrapsDevice for Arc<D> {
    type Below = D;
    fn below(&self) -> &D {
        self
    }
}

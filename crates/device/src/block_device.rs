//! The trait of a device, and what is said of one.

use std::io;

/// Storage of fixed size, shared between threads. Ranges need not be whole sectors.
///
/// A device that stands for another one implements [`WrapsDevice`](crate::WrapsDevice) instead, which passes on
/// everything that it does not change. A device of its own has five methods:
///
/// ```
/// use std::io::Result;
/// use xfskit_device::{BlockDevice, Hints};
///
/// /// A device that is all zeros.
/// struct Zeros(u64);
///
/// impl BlockDevice for Zeros {
///     fn size_bytes(&self) -> u64 {
///         self.0
///     }
///     fn hints(&self) -> Hints {
///         Hints { read_only: true, ..Hints::of(self) }
///     }
///     fn read(&self, _: u64, buffer: &mut [u8]) -> Result<()> {
///         buffer.fill(0);
///         Ok(())
///     }
///     fn write(&self, _: u64, _: &[u8]) -> Result<()> {
///         Err(std::io::ErrorKind::PermissionDenied.into())
///     }
///     fn flush(&self) -> Result<()> {
///         Ok(())
///     }
/// }
/// ```
pub trait BlockDevice: Send + Sync {
    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// What a program should know to use the device well. The answer stays the same as long as the device is open.
    fn hints(&self) -> Hints;

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

    /// Makes every write that has returned durable.
    ///
    /// # Errors
    /// Any I/O error; what was written before is then in doubt.
    fn flush(&self) -> io::Result<()>;

    /// Writes `data` at byte `offset`, durable when the call returns (FUA). Of other writes it says nothing. A device
    /// with [`Hints::supports_fua`] has a method of its own.
    ///
    /// # Errors
    /// Any I/O error; the write is then in doubt.
    fn write_fua(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        debug_assert!(!self.hints().supports_fua, "a device that supports FUA writes so by one request");
        self.write(offset, data)?;
        self.flush()
    }

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
}

/// What a program should know to use a device well. A device that wraps another one passes it on whole, with changes
/// by name: `Hints { read_only: true, ..below.hints() }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    /// Size of the unit that the device writes atomically, in bytes.
    pub sector_bytes: usize,
    /// How many requests at a time a program that reads or writes much should have in flight: more than one where each
    /// takes long, as across a network.
    pub queue_depth: usize,
    /// Whether [`BlockDevice::write_fua`] is one request to the storage.
    pub supports_fua: bool,
    /// Whether writes fail.
    pub read_only: bool,
    /// A number that no other device has during the lifetime of this one: it keeps a device from being mounted twice.
    /// A device that stands for another one has that one's number.
    pub identity: usize,
}

impl Hints {
    /// Those of a device that is written in sectors of 512 bytes by one request at a time, and has nothing special.
    /// Its identity is its address.
    pub fn of<D: ?Sized>(device: &D) -> Self {
        let identity = std::ptr::from_ref(device).cast::<()>().addr();
        Self { sector_bytes: 512, queue_depth: 1, supports_fua: false, read_only: false, identity }
    }
}

/// Whether a write is durable when it returns ("force unit access").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fua {
    /// [`BlockDevice::write`].
    No,
    /// [`BlockDevice::write_fua`].
    Yes,
}

impl Fua {
    /// Writes `data` to a device at byte `offset`, and durably so where that is asked for.
    ///
    /// # Errors
    /// Those of [`BlockDevice::write`] and [`BlockDevice::write_fua`].
    pub fn write<D: BlockDevice + ?Sized>(self, device: &D, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::No => device.write(offset, data),
            Self::Yes => device.write_fua(offset, data),
        }
    }
}

//! A device while an image is made and filled on it: until [`Unfinished::finish`], the device's first superblock says
//! that mkfs is at work (`sb_inprogress`), as that of mkfs.xfs does.
//!
//! ```text
//! the engine writes and reads    [superblock]
//! the device has                 [superblock, sb_inprogress = 1]
//! ```
//! The kernel and xfskit refuse such an image, so a run that is killed leaves none that could be taken for a complete
//! one with fewer files. The engine's flushes do nothing, for an incomplete image is of no use. `finish` makes all
//! contents durable, and only then writes the superblock without the mark:
//!
//! | cut | the device has |
//! |---|---|
//! | before the first superblock is written | no image |
//! | before `finish` writes it again | an image that is refused |
//! | later | the image |
//!
//! The lock on the first superblock is held while it is written, and no other one is taken meanwhile.

use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xfskit_device::{BlockDevice, Fua, WrapsDevice};
use xfskit_ondisk::{RawSuperblock, set_checksum};

/// What an XFS superblock begins with.
const MAGIC: &[u8] = b"XFSB";
/// Sizes of sectors that a superblock may have.
const SECTOR_BYTES: std::ops::RangeInclusive<usize> = 512..=32768;

/// A device with an image that is not complete.
pub struct Unfinished {
    device: Arc<dyn BlockDevice>,
    /// The sector of the first superblock as the engine wrote it.
    first: Mutex<Option<Vec<u8>>>,
    begun: AtomicBool,
}

impl Unfinished {
    /// The device, which has no image yet.
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, first: Mutex::new(None), begun: AtomicBool::new(false) }
    }

    /// Makes the contents durable, and then takes the mark from the image.
    ///
    /// # Errors
    /// Those of the device.
    pub fn finish(&self) -> io::Result<()> {
        self.device.flush()?;
        if let Some(sector) = self.first().as_deref() {
            self.device.write(0, sector)?;
        }
        self.device.flush()
    }

    /// Takes back an image that does not become complete: the device has none then. Nothing is done if nothing was
    /// written.
    ///
    /// # Errors
    /// Those of the device.
    pub fn give_up(&self) -> io::Result<()> {
        if self.begun.load(Ordering::Relaxed) { self.device.write(0, &[0; 4096]) } else { Ok(()) }
    }

    fn first(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The superblock at the start of what is written to the start of a device.
fn superblock_in(data: &[u8]) -> Option<&[u8]> {
    let size = data.get(offset_of!(RawSuperblock, sector_size)..)?.first_chunk::<2>()?;
    let sector_bytes = usize::from(u16::from_be_bytes(*size));
    let is_one = data.starts_with(MAGIC) && SECTOR_BYTES.contains(&sector_bytes);
    data.get(..sector_bytes).filter(|_| is_one)
}

/// The superblock with the mark.
fn marked(sector: &[u8]) -> Vec<u8> {
    let mut sector = sector.to_vec();
    sector[offset_of!(RawSuperblock, in_progress)] = 1;
    set_checksum(&mut sector, offset_of!(RawSuperblock, crc));
    sector
}

impl WrapsDevice for Unfinished {
    type Below = dyn BlockDevice;

    fn below(&self) -> &Self::Below {
        &*self.device
    }

    fn pass_read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let first = self.first();
        let Some(own) = first.as_deref().and_then(|sector| sector.get(offset.try_into().ok()?..)) else {
            drop(first);
            return self.device.read(offset, buffer);
        };
        self.device.read(offset, buffer)?;
        let shared = own.len().min(buffer.len());
        buffer[..shared].copy_from_slice(&own[..shared]);
        Ok(())
    }

    /// Nothing of an image is durable before its end, nor has to be.
    fn pass_write(&self, offset: u64, data: &[u8], _: Fua) -> io::Result<()> {
        self.begun.store(true, Ordering::Relaxed);
        let mut first = self.first();
        if offset == 0 {
            *first = superblock_in(data).map(<[u8]>::to_vec);
        } else {
            let own = first.as_deref_mut().and_then(|sector| sector.get_mut(offset.try_into().ok()?..));
            let Some(own) = own else {
                drop(first);
                return self.device.write(offset, data);
            };
            let shared = own.len().min(data.len());
            own[..shared].copy_from_slice(&data[..shared]);
        }
        let Some(sector) = first.as_deref() else { return self.device.write(offset, data) };
        self.device.write(0, &marked(sector))?;
        let behind = (sector.len() as u64).saturating_sub(offset) as usize;
        match data.get(behind..).filter(|rest| !rest.is_empty()) {
            Some(rest) => self.device.write(sector.len() as u64, rest),
            None => Ok(()),
        }
    }

    fn pass_flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn pass_discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.begun.store(true, Ordering::Relaxed);
        self.device.discard(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xfskit_device::MemoryDevice;
    use xfskit_mkfs::{Options, make};
    use xfskit_ondisk::Superblock;

    #[test]
    fn all_but_what_makes_durable_is_passed_on() {
        let below = Arc::new(xfskit_testkit::NotedDevice::default());
        assert_eq!(below.kept_by(&Unfinished::new(below.clone())), ["write_fua", "flush"]);
    }

    /// An image that is filled on a far device is written by many requests at once.
    #[test]
    fn as_many_requests_are_in_flight_as_the_device_below_takes() {
        let far = Arc::new(xfskit_testkit::FarDevice::new(MemoryDevice::new(64 << 20)));
        let unfinished = Arc::new(Unfinished::new(far.clone()));
        let options = xfskit::MkfsOptions::new().small();
        let fs = xfskit::create_on(unfinished.clone(), &options).unwrap();
        for number in 0..50 {
            fs.write(format!("{number}"), [number; 40_000]).unwrap();
        }
        far.take_most_in_flight();
        fs.sync().unwrap();
        let most = far.take_most_in_flight();
        assert!((4..=8).contains(&most), "{most} requests in flight");
        fs.close().unwrap();
        unfinished.finish().unwrap();
    }

    #[test]
    fn the_device_has_the_mark_until_the_end_and_the_engine_never_sees_it() {
        let plain = MemoryDevice::new(32 << 20);
        let options = Options { uuid: Some([3; 16]), allow_small: true, ..Options::default() };
        make(&plain, None, &options, Default::default()).unwrap();
        let device = Arc::new(MemoryDevice::new(32 << 20));
        let unfinished = Unfinished::new(device.clone());
        make(&unfinished, None, &options, Default::default()).unwrap();
        let sector = |device: &dyn BlockDevice| {
            let mut sector = [0; 4096];
            device.read(0, &mut sector).unwrap();
            sector
        };
        let refused = Superblock::decode(&sector(&*device)).unwrap_err().to_string();
        assert!(refused.contains("cut off"), "{refused}");
        assert_eq!(sector(&unfinished), sector(&plain));
        // A write of a part, and one that reaches over the end of the sector.
        unfinished.write(300, &[7; 4]).unwrap();
        unfinished.write(508, &[8; 600]).unwrap();
        plain.write(300, &[7; 4]).unwrap();
        plain.write(508, &[8; 600]).unwrap();
        assert_eq!(sector(&unfinished), sector(&plain));
        assert_eq!(sector(&*device)[offset_of!(RawSuperblock, in_progress)], 1);
        unfinished.finish().unwrap();
        assert!(device.to_bytes() == plain.to_bytes());
        unfinished.give_up().unwrap();
        assert_eq!(sector(&*device), [0; 4096]);
    }
}

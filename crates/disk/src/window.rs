//! A device that is a part of other devices: a partition, or a logical volume.
//!
//! ```text
//! window     0 ─────── segment 0 ──────┬──────── segment 1 (two stripes) ─────────── size
//!                                      │ 0 │ 1 │ 0 │ 1 │ ...   chunks of `stripe_bytes`, by turns
//! devices    [offset .. offset + n)      stripe 0: [offset ..)   stripe 1: [offset ..)
//! ```
//! A linear segment is one with a single stripe. Bounds: [`Window::new`] checks that each stripe lies within its
//! device, and [`Window::check`] that a request lies within the window; nothing else checks bounds.
//!
//! Flush goes to every device once. Discard, allocation and the search for data go to each device as one range, since
//! the chunks of a contiguous range that lie on one stripe are contiguous there. Each window has an identity of its
//! own: two windows onto one disk may be written at once if they do not overlap, see [`crate::Chosen::overlaps`].

use std::io;
use std::ops::Range;
use std::sync::Arc;
use xfskit_device::{BlockDevice, Hints};

/// Where a stripe lies.
#[derive(Clone)]
pub struct Stripe {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Its first byte on the device.
    pub offset: u64,
}

/// A contiguous part of a window.
#[derive(Clone)]
pub struct Segment {
    /// Its size in bytes.
    pub length: u64,
    /// The bytes after which the next stripe follows. Without effect where there is one stripe.
    pub stripe_bytes: u64,
    /// Where the contents lie: one stripe for a linear segment.
    pub stripes: Vec<Stripe>,
}

impl Segment {
    /// `length` bytes of `device` from `offset`.
    pub fn linear(device: Arc<dyn BlockDevice>, offset: u64, length: u64) -> Self {
        Self { length, stripe_bytes: length, stripes: vec![Stripe { device, offset }] }
    }

    /// Checks that each stripe lies within its device and that the stripes divide the segment.
    fn verify(&self) -> io::Result<()> {
        let count = self.stripes.len() as u64;
        let whole = count > 0
            && self.length > 0
            && self.stripe_bytes > 0
            && self.stripe_bytes.checked_mul(count).is_some_and(|round| self.length.is_multiple_of(round));
        if !whole {
            return Err(invalid("its stripes do not divide it"));
        }
        let each = self.length / count;
        let fits =
            |stripe: &Stripe| stripe.offset.checked_add(each).is_some_and(|end| end <= stripe.device.size_bytes());
        if self.stripes.iter().all(fits) { Ok(()) } else { Err(invalid("it reaches past the end of its disk")) }
    }

    /// How many of the first `length` bytes of the segment lie on a stripe.
    fn on_stripe(&self, stripe: usize, length: u64) -> u64 {
        let round = self.stripe_bytes * self.stripes.len() as u64;
        let rest = (length % round).saturating_sub(stripe as u64 * self.stripe_bytes);
        length / round * self.stripe_bytes + rest.min(self.stripe_bytes)
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A device made of parts of other devices.
pub struct Window {
    /// The segments, each with its first byte in the window.
    segments: Vec<(u64, Segment)>,
    size_bytes: u64,
    /// The least that its sectors have.
    sector_bytes: usize,
    /// Each device once.
    devices: Vec<Arc<dyn BlockDevice>>,
}

impl Window {
    /// A window of the given segments, one behind the other.
    ///
    /// # Errors
    /// `InvalidData` for no segment, one that reaches past the end of its device, or one that its stripes do not
    /// divide.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xfskit_device::{BlockDevice, MemoryDevice};
    /// use xfskit_disk::{Segment, Window};
    ///
    /// let disk = Arc::new(MemoryDevice::new(4096));
    /// let window = Window::new(vec![Segment::linear(Arc::clone(&disk) as _, 1024, 2048)])?;
    /// window.write(0, b"here")?;
    /// assert_eq!(&disk.to_bytes()[1024..1028], b"here");
    /// assert!(window.write(2047, b"no").is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(segments: Vec<Segment>) -> io::Result<Self> {
        let mut window = Self { segments: Vec::new(), size_bytes: 0, sector_bytes: 512, devices: Vec::new() };
        for segment in segments {
            segment.verify()?;
            for stripe in &segment.stripes {
                if !window.devices.iter().any(|device| Arc::ptr_eq(device, &stripe.device)) {
                    window.devices.push(Arc::clone(&stripe.device));
                }
            }
            let start = window.size_bytes;
            window.size_bytes = start.checked_add(segment.length).ok_or_else(|| invalid("its size is too large"))?;
            window.segments.push((start, segment));
        }
        if window.segments.is_empty() {
            return Err(invalid("it has no segment"));
        }
        Ok(window)
    }

    /// The same with sectors of this size at least: those of a disk, of which this is a copy in a file.
    #[must_use]
    pub fn with_sectors(self, sector_bytes: usize) -> Self {
        Self { sector_bytes, ..self }
    }

    /// The parts of other devices that the window consists of.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = (&Arc<dyn BlockDevice>, Range<u64>)> {
        self.segments.iter().flat_map(|(_, segment)| {
            let each = segment.length / segment.stripes.len() as u64;
            segment.stripes.iter().map(move |stripe| (&stripe.device, stripe.offset..stripe.offset + each))
        })
    }

    /// Checks that a request lies within the window.
    fn check(&self, offset: u64, length: u64) -> io::Result<Range<u64>> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size_bytes => Ok(offset..end),
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{length} bytes at {offset} reach past the end of the volume, at {}", self.size_bytes),
            )),
        }
    }

    /// The segments that a range within the window touches, each with the part of it, counted from its first byte.
    fn touched(&self, range: Range<u64>) -> impl Iterator<Item = (&Segment, Range<u64>)> {
        let first = self.segments.partition_point(|(start, segment)| start + segment.length <= range.start);
        self.segments[first..].iter().take_while(move |(start, _)| *start < range.end).map(move |(start, segment)| {
            let part = range.start.max(*start) - start..range.end.min(start + segment.length) - start;
            (segment, part)
        })
    }

    /// Calls `transfer` for each contiguous piece of a range: the device, the offset there, and the piece's position
    /// in the range.
    fn pieces(
        &self,
        range: Range<u64>,
        mut transfer: impl FnMut(&dyn BlockDevice, u64, Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        for (segment, part) in self.touched(range) {
            let mut at = part.start;
            while at < part.end {
                let (chunk, within) = (at / segment.stripe_bytes, at % segment.stripe_bytes);
                let count = segment.stripes.len() as u64;
                let stripe = &segment.stripes[(chunk % count) as usize];
                let length = (segment.stripe_bytes - within).min(part.end - at);
                let offset = stripe.offset + chunk / count * segment.stripe_bytes + within;
                transfer(&*stripe.device, offset, done..done + length as usize)?;
                at += length;
                done += length as usize;
            }
        }
        Ok(())
    }

    /// The parts of the devices on which a range lies: one a segment and stripe.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (&dyn BlockDevice, u64, u64)> {
        self.touched(range).flat_map(|(segment, part)| {
            segment.stripes.iter().enumerate().filter_map(move |(number, stripe)| {
                let start = segment.on_stripe(number, part.start);
                let length = segment.on_stripe(number, part.end) - start;
                (length > 0).then_some((&*stripe.device, stripe.offset + start, length))
            })
        })
    }
}

impl BlockDevice for Window {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn hints(&self) -> Hints {
        let mut hints = Hints { sector_bytes: self.sector_bytes, supports_fua: true, ..Hints::of(self) };
        for below in self.devices.iter().map(|device| device.hints()) {
            hints.sector_bytes = hints.sector_bytes.max(below.sector_bytes);
            hints.queue_depth = hints.queue_depth.max(below.queue_depth);
            hints.supports_fua &= below.supports_fua;
            hints.read_only |= below.read_only;
        }
        hints
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let range = self.check(offset, buffer.len() as u64)?;
        self.pieces(range, |device, offset, piece| device.read(offset, &mut buffer[piece]))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = self.check(offset, data.len() as u64)?;
        self.pieces(range, |device, offset, piece| device.write(offset, &data[piece]))
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = self.check(offset, data.len() as u64)?;
        self.pieces(range, |device, offset, piece| device.write_fua(offset, &data[piece]))
    }

    fn flush(&self) -> io::Result<()> {
        self.devices.iter().try_for_each(|device| device.flush())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let range = self.check(offset, length)?;
        self.parts(range).try_for_each(|(device, offset, length)| device.discard(offset, length))
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let range = self.check(offset, length)?;
        self.parts(range).try_for_each(|(device, offset, length)| device.allocate(offset, length))
    }

    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        match self.check(offset, length) {
            Ok(range) => self.parts(range).any(|(device, offset, length)| device.may_hold_data(offset, length)),
            Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xfskit_device::MemoryDevice;

    fn disk(size_bytes: usize) -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::new(size_bytes))
    }

    /// Two disks, of which the window has a striped segment and then a linear one.
    fn mixed() -> (Arc<MemoryDevice>, Arc<MemoryDevice>, Window) {
        let (a, b) = (disk(1000), disk(1000));
        let stripes = vec![Stripe { device: a.clone(), offset: 100 }, Stripe { device: b.clone(), offset: 300 }];
        let striped = Segment { length: 160, stripe_bytes: 16, stripes };
        let window = Window::new(vec![striped, Segment::linear(a.clone(), 500, 40)]).unwrap();
        (a, b, window)
    }

    /// Where a byte of [`mixed`] lies, said in another way than the window computes it.
    fn place(byte: usize) -> (usize, usize) {
        match byte {
            0..160 => ((byte / 16) % 2, [100, 300][(byte / 16) % 2] + byte / 32 * 16 + byte % 16),
            _ => (0, 500 + byte - 160),
        }
    }

    #[test]
    fn a_window_on_a_whole_device_is_another_device_that_passes_everything_on() {
        let below = Arc::new(xfskit_testkit::NotedDevice::default());
        let window = Window::new(vec![Segment::linear(below.clone(), 0, below.size_bytes())]).unwrap();
        assert_eq!(below.kept_by(&window), ["identity"]);
    }

    #[test]
    fn every_range_is_written_and_read_where_it_lies() {
        for start in 0..200usize {
            for end in start..=200 {
                let (a, b, window) = mixed();
                let data: Vec<u8> = (start..end).map(|byte| byte as u8 + 1).collect();
                window.write(start as u64, &data).unwrap();
                let (a, b) = (a.to_bytes(), b.to_bytes());
                let written = a.iter().chain(&b).filter(|&&byte| byte != 0).count();
                assert_eq!(written, end - start);
                for byte in start..end {
                    let (disk, at) = place(byte);
                    assert_eq!([&a, &b][disk][at], byte as u8 + 1, "byte {byte} of {start}..{end}");
                }
                let mut back = vec![0; data.len()];
                window.read(start as u64, &mut back).unwrap();
                assert_eq!(back, data);
            }
        }
    }

    #[test]
    fn the_parts_of_a_range_are_the_bytes_that_it_touches() {
        let (_, _, window) = mixed();
        for start in 0..200usize {
            for end in start..=200 {
                let mut parts: Vec<(usize, u64, u64)> = Vec::new();
                for (device, offset, length) in window.parts(start as u64..end as u64) {
                    let second = std::ptr::addr_eq(device, Arc::as_ptr(&window.devices[1]));
                    parts.push((usize::from(second), offset, length));
                }
                let holds = |disk: usize, at: usize| {
                    parts
                        .iter()
                        .filter(|part| part.0 == disk && (part.1..part.1 + part.2).contains(&(at as u64)))
                        .count()
                };
                assert_eq!(parts.iter().map(|part| part.2).sum::<u64>(), (end - start) as u64);
                assert!((start..end).all(|byte| holds(place(byte).0, place(byte).1) == 1), "{start}..{end}: {parts:?}");
            }
        }
    }

    #[test]
    fn requests_and_segments_past_the_end_are_refused() {
        let (a, _, window) = mixed();
        for (offset, length) in [(200, 1), (0, 201), (u64::MAX, 1), (199, 2)] {
            assert_eq!(window.write(offset, &vec![0; length]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert!(window.read(offset, &mut vec![0; length]).is_err());
            assert!(window.discard(offset, length as u64).is_err() && window.allocate(offset, length as u64).is_err());
        }
        for (offset, length) in [(0, 1001), (1000, 1), (u64::MAX, 2), (0, 0)] {
            assert!(Window::new(vec![Segment::linear(a.clone(), offset, length)]).is_err());
        }
        let stripes = vec![Stripe { device: a.clone(), offset: 0 }, Stripe { device: a, offset: 500 }];
        for (length, stripe_bytes) in [(100, 0), (100, 16), (96, u64::MAX), (1024, 16)] {
            let segment = Segment { length, stripe_bytes, stripes: stripes.clone() };
            assert!(Window::new(vec![segment]).is_err(), "{length} in stripes of {stripe_bytes}");
        }
        assert!(Window::new(Vec::new()).is_err());
    }
}

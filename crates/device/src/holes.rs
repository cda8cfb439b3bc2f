//! Walks through what a device may hold. The size of a device is what someone says: a sparse file, a virtual disk or a
//! server may claim exabytes of nothing. So holes are passed over in steps that double, and the walk takes time for
//! what is there.

use crate::BlockDevice;
use std::ops::Range;

/// The pieces of a range that may hold anything but zeros, in order.
pub struct DataPieces<'d> {
    device: &'d dyn BlockDevice,
    range: Range<u64>,
    piece_bytes: u64,
    questions_left: u64,
}

/// The pieces of `range` that may hold anything but zeros, of at most `piece_bytes` each. After `most_questions` to the
/// device about its holes the walk is at its end: to a server each is a request.
///
/// # Panics
/// If `piece_bytes` is 0.
pub fn data_pieces(
    device: &dyn BlockDevice,
    range: Range<u64>,
    piece_bytes: u64,
    most_questions: u64,
) -> DataPieces<'_> {
    assert!(piece_bytes > 0, "a piece has bytes");
    DataPieces { device, range, piece_bytes, questions_left: most_questions }
}

impl DataPieces<'_> {
    /// Whether the walk ended because it had asked enough.
    pub fn has_given_up(&self) -> bool {
        self.questions_left == 0 && !self.range.is_empty()
    }

    fn may_hold_data(&mut self, start: u64, length: u64) -> Option<bool> {
        self.questions_left = self.questions_left.checked_sub(1)?;
        Some(self.device.may_hold_data(start, length))
    }

    /// The length of a range from the start of what is left on that may hold data; `None` at the end.
    fn find(&mut self) -> Option<u64> {
        let mut step = self.piece_bytes;
        while !self.range.is_empty() {
            let length = step.min(self.range.end - self.range.start);
            if self.may_hold_data(self.range.start, length)? {
                return Some(length);
            }
            self.range.start += length;
            step = step.saturating_mul(2);
        }
        None
    }
}

impl Iterator for DataPieces<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let mut length = self.find()?;
        // The data is within that; halves of it are asked for until a piece is left.
        while length > self.piece_bytes {
            let half = (length / 2).next_multiple_of(self.piece_bytes);
            if self.may_hold_data(self.range.start, half)? {
                length = half;
            } else {
                self.range.start += half;
                length -= half;
            }
        }
        let piece = self.range.start..self.range.start + length;
        self.range.start = piece.end;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hints;
    use std::io;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A device that knows its holes, and counts how often it is asked.
    struct Sparse {
        data: Vec<Range<u64>>,
        asked: AtomicU64,
    }

    impl BlockDevice for Sparse {
        fn size_bytes(&self) -> u64 {
            u64::MAX
        }

        fn hints(&self) -> Hints {
            Hints::of(self)
        }

        fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn may_hold_data(&self, offset: u64, length: u64) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.data.iter().any(|data| data.start < offset + length && offset < data.end)
        }
    }

    #[test]
    fn every_byte_of_data_is_in_one_piece_and_holes_cost_little() {
        let data = vec![0..5, 4095..4097, 1 << 30..(1 << 30) + 10_000, (1 << 60) - 1..1 << 60];
        let device = Sparse { data: data.clone(), asked: AtomicU64::new(0) };
        for end in [0, 1, 4096, 1 << 31, 1 << 60, u64::MAX] {
            device.asked.store(0, Ordering::Relaxed);
            let pieces: Vec<_> = data_pieces(&device, 0..end, 4096, u64::MAX).collect();
            assert!(pieces.windows(2).all(|two| two[0].end <= two[1].start));
            assert!(pieces.iter().all(|piece| piece.end - piece.start <= 4096 && piece.end <= end));
            for byte in data.iter().flat_map(|data| [data.start, data.end - 1]).filter(|byte| *byte < end) {
                assert!(pieces.iter().any(|piece| piece.contains(&byte)), "byte {byte} of {end}");
            }
            assert!(pieces.len() <= 8 && device.asked.load(Ordering::Relaxed) < 600, "{pieces:?}");
        }
    }

    #[test]
    fn the_walk_ends_when_it_has_asked_enough() {
        let data = std::iter::once(1 << 50..1 << 51).collect();
        let device = Sparse { data, asked: AtomicU64::new(0) };
        let mut pieces = data_pieces(&device, 0..u64::MAX, 4096, 10);
        assert_eq!(pieces.next(), None);
        assert!(pieces.has_given_up());
        assert_eq!(device.asked.into_inner(), 10);
    }
}

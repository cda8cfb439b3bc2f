//! Which parts of an object changed: a bit for each chunk of a buffer, or for each part of an inode.

/// A growable set of bits. The first 64 are enough for most.
#[derive(Debug, Default, Clone)]
pub struct DirtyBits {
    first: u64,
    more: Option<Box<FarBits>>,
}

/// The words behind the first: of a block of more than 8 KiB, which is rare.
#[derive(Debug, Default, Clone)]
struct FarBits {
    words: Vec<u64>,
}

const WORD: usize = 64;

impl DirtyBits {
    /// The bits of a number.
    #[inline]
    pub fn of(first: u64) -> Self {
        Self { first, more: None }
    }

    /// Sets the bits of `range`.
    #[inline]
    pub fn set(&mut self, range: std::ops::RangeInclusive<usize>) {
        let (start, end) = range.into_inner();
        if end < WORD {
            self.first |= u64::MAX >> (WORD - 1 - end) & u64::MAX << start;
        } else {
            self.set_far(start, end);
        }
    }

    fn set_far(&mut self, start: usize, end: usize) {
        let more = &mut self.more.get_or_insert_default().words;
        if more.len() < end / WORD {
            more.resize(end / WORD, 0);
        }
        for bit in start..=end {
            let word = if bit < WORD { &mut self.first } else { &mut more[bit / WORD - 1] };
            *word |= 1 << (bit % WORD);
        }
    }

    /// The words behind the first.
    fn more(&self) -> &[u64] {
        self.more.as_deref().map_or(&[], |more| &more.words)
    }

    fn word(&self, index: usize) -> u64 {
        if index == 0 { self.first } else { self.more().get(index - 1).copied().unwrap_or(0) }
    }

    /// Sets every bit that `other` has; says whether there was a new one.
    #[inline]
    pub fn merge(&mut self, other: &Self) -> bool {
        let mut grew = other.first & !self.first != 0;
        self.first |= other.first;
        if !other.more().is_empty() {
            let own = &mut self.more.get_or_insert_default().words;
            if own.len() < other.more().len() {
                own.resize(other.more().len(), 0);
            }
            for (word, more) in own.iter_mut().zip(other.more()) {
                grew |= more & !*word != 0;
                *word |= more;
            }
        }
        grew
    }

    /// Clears all bits.
    pub fn clear(&mut self) {
        self.first = 0;
        if let Some(more) = &mut self.more {
            more.words.clear();
        }
    }

    /// Whether no bit is set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.more().iter().all(|&word| word == 0)
    }

    /// Number of set bits.
    pub fn count(&self) -> usize {
        let more: u32 = self.more().iter().map(|word| word.count_ones()).sum();
        (self.first.count_ones() + more) as usize
    }

    /// Number of set bits below `bit`.
    pub fn count_below(&self, bit: usize) -> usize {
        let whole: u32 = (0..bit / WORD).map(|index| self.word(index).count_ones()).sum();
        let part = self.word(bit / WORD) & ((1 << (bit % WORD)) - 1);
        (whole + part.count_ones()) as usize
    }

    /// The lowest 32 bits.
    pub fn low_word(&self) -> u32 {
        self.first as u32
    }

    /// The first bit at or behind `at` that is set, or is not, as `wanted` says.
    fn next(&self, at: usize, wanted: bool) -> usize {
        let words = 1 + self.more().len();
        let mut index = at / WORD;
        let mut mask = u64::MAX << (at % WORD);
        while index < words {
            let word = if wanted { self.word(index) } else { !self.word(index) };
            if word & mask != 0 {
                return index * WORD + (word & mask).trailing_zeros() as usize;
            }
            mask = u64::MAX;
            index += 1;
        }
        if wanted { usize::MAX } else { at.max(words * WORD) }
    }

    /// The runs of set bits among those in `range`.
    #[inline]
    pub fn runs(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = std::ops::Range<usize>> {
        let mut at = range.start;
        // Nearly all sets have no second word.
        let mut only = if self.more().is_empty() { self.first & low_bits(range.end) & !low_bits(at) } else { 0 };
        std::iter::from_fn(move || {
            if self.more().is_empty() {
                let start = only.trailing_zeros() as usize;
                let end = start + (!(only.checked_shr(start as u32)?)).trailing_zeros() as usize;
                only &= !low_bits(end);
                return Some(start..end);
            }
            let start = self.next(at, true);
            if start >= range.end {
                return None;
            }
            at = self.next(start, false).min(range.end);
            Some(start..at)
        })
    }
}

/// A word whose lowest `count` bits are set; all of them for more than it has.
fn low_bits(count: usize) -> u64 {
    if count < WORD { (1 << count) - 1 } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_dirty_bits_are_found_across_words() {
        let mut bits = DirtyBits::default();
        bits.set(3..=3);
        bits.set(60..=70);
        assert_eq!(bits.runs(0..128).collect::<Vec<_>>(), [3..4, 60..71]);
        assert_eq!(bits.runs(0..65).collect::<Vec<_>>(), [3..4, 60..65]);
        assert_eq!(bits.runs(62..128).next(), Some(62..71));
        assert_eq!((bits.count(), bits.count_below(3), bits.count_below(64), bits.count_below(500)), (12, 0, 5, 12));
        bits.set(500..=511);
        assert_eq!(bits.runs(0..512).collect::<Vec<_>>(), [3..4, 60..71, 500..512]);
        let mut all = DirtyBits::default();
        all.set(0..=63);
        assert_eq!(all.runs(0..64).next(), Some(0..64));
        assert!(all.merge(&bits) && !all.merge(&bits));
    }
}

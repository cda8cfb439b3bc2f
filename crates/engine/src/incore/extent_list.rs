//! The extents of a fork in btree form, in memory: a list of short lists, so that a change in the middle of millions of
//! records moves a few hundred of them.
//!
//! ```text
//! firsts  0      812     1630         first fork block of each chunk       look-up: two binary searches
//! starts  0      300     700          index of each chunk's first record
//! chunks  [....] [.....] [...]        at most CHUNK records each
//! ```
//! Invariants: no chunk is empty; `firsts` and `starts` agree with the chunks.

use std::ops::{Index, Range};
use xfskit_ondisk::search::partition_point;
use xfskit_ondisk::{Extent, FileBlock};

/// Most records of a chunk: few enough to move and to search through, and enough that the sums over the chunks of a
/// million records stay in a processor's cache.
const CHUNK: usize = 128;

/// Keys in a row of a search ([`partition_point`]).
const ROW: usize = 16;

/// Some extents that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chunk {
    /// A copy of their first fork blocks: a binary search among records that are in no processor cache would wait for
    /// memory at each step.
    keys: Vec<FileBlock>,
    extents: Vec<Extent>,
}

impl Chunk {
    fn new(extents: Vec<Extent>) -> Self {
        Self { keys: extents.iter().map(|extent| extent.file_block).collect(), extents }
    }

    fn len(&self) -> usize {
        self.extents.len()
    }

    /// How many of them start at `at` or before.
    fn index_behind(&self, at: FileBlock) -> usize {
        partition_point::<ROW, _>(&self.keys, |key| *key <= at)
    }

    fn splice(&mut self, range: Range<usize>, new: &[Extent]) {
        self.keys.splice(range.clone(), new.iter().map(|extent| extent.file_block));
        self.extents.splice(range, new.iter().copied());
    }
}

/// Extents in order, as a list of chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentList {
    chunks: Vec<Chunk>,
    firsts: Vec<FileBlock>,
    starts: Vec<usize>,
    count: usize,
}

impl ExtentList {
    /// The number of extents.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The extent at an index.
    pub fn get(&self, index: usize) -> Option<&Extent> {
        let chunk = self.chunk_of(index);
        self.chunks.get(chunk)?.extents.get(index - self.starts[chunk])
    }

    /// The chunk that contains the record at `index`, or else the last one.
    fn chunk_of(&self, index: usize) -> usize {
        self.starts.partition_point(|&start| start <= index).saturating_sub(1)
    }

    /// All extents from an index on, in order.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = &Extent> {
        let chunk = self.chunk_of(index);
        let skip = index - self.starts.get(chunk).copied().unwrap_or(0);
        self.chunks.iter().skip(chunk).flat_map(|chunk| &chunk.extents).skip(skip)
    }

    /// The index of the first extent that starts behind `at`.
    pub fn index_behind(&self, at: FileBlock) -> usize {
        let Some(chunk) = self.firsts.partition_point(|&first| first <= at).checked_sub(1) else { return 0 };
        self.starts[chunk] + self.chunks[chunk].index_behind(at)
    }

    /// The extent that contains block `at`, or else the next one.
    pub fn next_at(&self, at: FileBlock) -> Option<&Extent> {
        let Some(chunk) = self.firsts.partition_point(|&first| first <= at).checked_sub(1) else { return self.get(0) };
        let extents = &self.chunks[chunk].extents;
        let behind = self.chunks[chunk].index_behind(at);
        // The first one of the chunk does not start behind the block.
        let before = &extents[behind - 1];
        if before.end() > at {
            return Some(before);
        }
        extents.get(behind).or_else(|| self.chunks.get(chunk + 1).map(|next| &next.extents[0]))
    }

    /// Adds an extent behind all others.
    pub fn push(&mut self, extent: Extent) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.splice(last.len()..last.len(), &[extent]),
            _ => {
                self.firsts.push(extent.file_block);
                self.starts.push(self.count);
                self.chunks.push(Chunk::new(Vec::from([extent])));
            }
        }
        self.count += 1;
    }

    /// Replaces the extents of `range` (indices) by `new`.
    ///
    /// # Panics
    /// If the range does not lie within the list.
    pub fn splice(&mut self, range: Range<usize>, new: &[Extent]) {
        assert!(range.start <= range.end && range.end <= self.count, "the range lies within the list");
        let touched = self.chunk_of(range.start);
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::default());
        }
        let within = range.start - self.starts.get(touched).copied().unwrap_or(0);
        let here = range.len().min(self.chunks[touched].len() - within);
        // The part of the range in later chunks is removed first; chunks that it covers are dropped.
        let mut left = range.len() - here;
        while left > 0 {
            let next = &mut self.chunks[touched + 1];
            let gone = left.min(next.len());
            next.splice(0..gone, &[]);
            left -= gone;
            if next.len() == 0 {
                self.chunks.remove(touched + 1);
            }
        }
        self.chunks[touched].splice(within..within + here, new);
        self.count = self.count - range.len() + new.len();
        let length = self.chunks[touched].len();
        if here == range.len() && (CHUNK / 4..=CHUNK).contains(&length) && touched < self.starts.len() {
            self.firsts[touched] = self.chunks[touched].keys[0];
            for start in &mut self.starts[touched + 1..] {
                *start = *start + new.len() - here;
            }
        } else {
            self.settle(touched);
        }
    }

    /// Splits, merges or drops a changed chunk so that its length is in bounds, and brings the sums up to date.
    fn settle(&mut self, chunk: usize) {
        let length = self.chunks[chunk].len();
        let mut first = chunk;
        if length > CHUNK {
            let whole = std::mem::take(&mut self.chunks[chunk]).extents;
            let part = length.div_ceil(length.div_ceil(CHUNK / 2));
            self.chunks.splice(chunk..=chunk, whole.chunks(part).map(|part| Chunk::new(part.to_vec())));
        } else if length < CHUNK / 4 {
            for left in [Some(chunk), chunk.checked_sub(1)].into_iter().flatten() {
                let both = |list: &Self| Some(list.chunks[left].len() + list.chunks.get(left + 1)?.len());
                if both(self).is_some_and(|both| both <= CHUNK / 2) {
                    let right = self.chunks.remove(left + 1);
                    let end = self.chunks[left].len();
                    self.chunks[left].splice(end..end, &right.extents);
                    first = left;
                }
            }
            if self.chunks[first].len() == 0 {
                self.chunks.remove(first);
            }
        }
        self.recount(first);
    }

    fn recount(&mut self, from: usize) {
        self.firsts.truncate(from);
        self.starts.truncate(from);
        let mut start = from.checked_sub(1).map_or(0, |before| self.starts[before] + self.chunks[before].len());
        for chunk in &self.chunks[from..] {
            self.firsts.push(chunk.keys[0]);
            self.starts.push(start);
            start += chunk.len();
        }
        debug_assert_eq!(start, self.count, "the chunks hold as many records as the list");
    }
}

impl FromIterator<Extent> for ExtentList {
    fn from_iter<I: IntoIterator<Item = Extent>>(extents: I) -> Self {
        let mut list = Self::default();
        extents.into_iter().for_each(|extent| list.push(extent));
        list
    }
}

/// The extents of a fork in either form, for looking at.
#[derive(Clone, Copy, Debug)]
pub enum Extents<'a> {
    /// Those of an inode.
    Few(&'a [Extent]),
    /// Those of a btree.
    Many(&'a ExtentList),
}

impl<'a> Extents<'a> {
    /// The number of extents.
    pub fn len(self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(list) => list.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The extent at an index.
    pub fn get(self, index: usize) -> Option<&'a Extent> {
        match self {
            Self::Few(list) => list.get(index),
            Self::Many(list) => list.get(index),
        }
    }

    /// The last extent.
    pub fn last(self) -> Option<&'a Extent> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The extents from an index on, in order.
    pub fn iter_from(self, index: usize) -> impl Iterator<Item = &'a Extent> {
        let (few, many) = match self {
            Self::Few(list) => (Some(list.iter().skip(index)), None),
            Self::Many(list) => (None, Some(list.iter_from(index))),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }

    /// All extents in order.
    pub fn iter(self) -> impl Iterator<Item = &'a Extent> {
        self.iter_from(0)
    }

    /// A copy of all extents.
    pub fn to_vec(self) -> Vec<Extent> {
        self.iter().copied().collect()
    }

    /// The index of the first extent that starts behind `at`.
    pub fn index_behind(self, at: FileBlock) -> usize {
        match self {
            Self::Few(list) => list.partition_point(|extent| extent.file_block <= at),
            Self::Many(list) => list.index_behind(at),
        }
    }

    /// The index of the first extent for which `before` is false. It must be true for all extents before that one and
    /// false for all behind it.
    pub fn partition_point(self, mut before: impl FnMut(&Extent) -> bool) -> usize {
        match self {
            Self::Few(list) => list.partition_point(before),
            Self::Many(list) => {
                let Some(chunk) = list.chunks.partition_point(|chunk| before(&chunk.extents[0])).checked_sub(1) else {
                    return 0;
                };
                list.starts[chunk] + list.chunks[chunk].extents.partition_point(before)
            }
        }
    }

    /// The extent that contains block `at`, or else the next one.
    pub fn next_at(self, at: FileBlock) -> Option<&'a Extent> {
        match self {
            Self::Few(list) => list.get(self.index_at(at)),
            Self::Many(list) => list.next_at(at),
        }
    }

    /// The index of the first extent that ends behind `at`: the one that contains it, or the next.
    pub fn index_at(self, at: FileBlock) -> usize {
        let behind = self.index_behind(at);
        match behind.checked_sub(1).and_then(|index| self.get(index)) {
            Some(extent) if extent.end() > at => behind - 1,
            _ => behind,
        }
    }
}

impl Index<usize> for Extents<'_> {
    type Output = Extent;

    fn index(&self, index: usize) -> &Extent {
        self.get(index).expect("an index below the length of the list")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::Random;
    use xfskit_ondisk::FsBlock;

    fn extent(at: u64) -> Extent {
        Extent { file_block: FileBlock(at), block: FsBlock(at + 7), count: 2, unwritten: false }
    }

    fn check(list: &ExtentList, model: &[Extent], random: &mut Random) {
        assert_eq!(list.len(), model.len());
        let view = Extents::Many(list);
        assert!(list.chunks.iter().all(|chunk| (1..=CHUNK).contains(&chunk.len())));
        for _ in 0..4 {
            let at = FileBlock(random.below(model.last().map_or(10, |last| last.end().0 + 10)));
            assert_eq!(view.index_behind(at), model.partition_point(|extent| extent.file_block <= at));
            assert_eq!(view.next_at(at), model.iter().find(|extent| extent.end() > at));
            assert_eq!(view.index_at(at), model.partition_point(|extent| extent.end() <= at));
            let index = random.below(model.len() as u64 + 2) as usize;
            assert_eq!(view.get(index), model.get(index));
            assert!(view.iter_from(index).take(600).eq(model.iter().skip(index).take(600)));
        }
    }

    #[test]
    fn it_does_what_a_vector_does() {
        let mut random = Random::new(3);
        let (mut list, mut model) = (ExtentList::default(), Vec::<Extent>::new());
        for round in 0..6000 {
            let grows = (round / 1500) % 2 == 0;
            let start = random.below(model.len() as u64 + 1) as usize;
            let most = if random.below(50) == 0 { 2000 } else { 3 };
            let gone = (random.below(if grows { 2 } else { most }) as usize).min(model.len() - start);
            let room_from = start.checked_sub(1).map_or(0, |before: usize| model[before].end().0);
            let room_to = model.get(start + gone).map_or(room_from + 1_000_000, |next: &Extent| next.file_block.0);
            let wanted = if grows && random.below(100) == 0 { 1500 } else { random.below(if grows { 4 } else { 2 }) };
            let step = (room_to - room_from) / (wanted + 1);
            let new: Vec<_> =
                if step < 2 { Vec::new() } else { (1..=wanted).map(|n| extent(room_from + n * step - 2)).collect() };
            list.splice(start..start + gone, &new);
            model.splice(start..start + gone, new);
            check(&list, &model, &mut random);
        }
        assert!(model.len() < 20_000 && list.chunks.len() < model.len() / (CHUNK / 10) + 10);
        assert_eq!(list.iter_from(0).copied().collect::<Vec<_>>(), model);
        let pushed: ExtentList = model.iter().copied().collect();
        assert_eq!(pushed.iter_from(0).copied().collect::<Vec<_>>(), model);
        list.splice(0..model.len(), &[]);
        assert_eq!(list, ExtentList::default());
        assert_eq!((Extents::Many(&list).index_at(FileBlock(5)), list.iter_from(0).count()), (0, 0));
    }
}

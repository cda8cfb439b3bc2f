//! The contents of a file of the model: pages that were written, and holes.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a page, and of a block of the image.
pub const PAGE: u64 = 4096;

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Contents {
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let start = (at % PAGE) as usize;
            let (part, behind) = rest.split_at(rest.len().min(PAGE as usize - start));
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
            page[start..start + part.len()].copy_from_slice(part);
            at += part.len() as u64;
            rest = behind;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size..self.size);
        }
        self.size = size;
    }

    pub fn zero(&mut self, range: Range<u64>) {
        for (number, page) in self.pages.range_mut(range.start / PAGE..range.end.div_ceil(PAGE)) {
            let start = number * PAGE;
            let from = range.start.clamp(start, start + PAGE) - start;
            let to = range.end.clamp(start, start + PAGE) - start;
            page[from as usize..to as usize].fill(0);
        }
    }

    /// Removes whole pages; the contents after them move down.
    pub fn collapse(&mut self, range: Range<u64>) {
        let (first, end) = (range.start / PAGE, range.end / PAGE);
        let moved = self.pages.split_off(&end);
        self.pages.split_off(&first);
        self.pages.extend(moved.into_iter().map(|(number, page)| (number - (end - first), page)));
        self.size -= range.end - range.start;
    }

    /// Inserts a hole of whole pages; the contents after it move up.
    pub fn insert(&mut self, range: Range<u64>) {
        let (first, count) = (range.start / PAGE, (range.end - range.start) / PAGE);
        let moved = self.pages.split_off(&first);
        self.pages.extend(moved.into_iter().map(|(number, page)| (number + count, page)));
        self.size += range.end - range.start;
    }

    /// The bytes from `offset` on, at most `length`, and none beyond the end.
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end {
            return Vec::new();
        }
        let mut bytes = vec![0; (end - offset) as usize];
        for (number, page) in self.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let start = number * PAGE;
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            bytes[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
        }
        bytes
    }
}

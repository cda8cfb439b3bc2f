//! Searches in arrays that are larger than the processor's caches.

/// As [`slice::partition_point`]: the number of `entries` before the first one for which `is_before` is false. A binary
/// search would wait for memory at each step. This search has two rounds, and the reads of a round do not wait for each
/// other: it looks at every `ROW`th entry, then at all entries of the last row whose first entry is before. The result
/// lies within the array whatever the entries are.
pub fn partition_point<const ROW: usize, T>(entries: &[T], is_before: impl Fn(&T) -> bool) -> usize {
    let counts = |entry: &T| usize::from(is_before(entry));
    let rows: usize = entries.iter().step_by(ROW).map(counts).sum();
    let Some(start) = rows.checked_sub(1).map(|row| row * ROW) else { return 0 };
    start + entries[start..entries.len().min(start + ROW)].iter().map(counts).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_a_search_in_halves_finds() {
        const ROW: usize = 32;
        for count in [0, 1, 2, ROW - 1, ROW, ROW + 1, 3 * ROW, 504] {
            for repeat in [1, 3, 40] {
                let entries: Vec<u32> = (0..count).map(|index| (index / repeat * 2 + 1) as u32).collect();
                for hash in 0..2 * count as u32 + 3 {
                    let expected = entries.partition_point(|&entry| entry < hash);
                    let found = partition_point::<ROW, _>(&entries, |&entry| entry < hash);
                    assert_eq!(found, expected, "{count} {repeat} {hash}");
                }
            }
        }
    }
}

//! Two sorted lists side by side.

use std::cmp::Ordering;

/// Calls `found` for every key of two lists that are sorted by it: with both elements where both have it, with one
/// where the other list has none.
pub(crate) fn join<T, K: Ord>(
    left: &[T],
    right: &[T],
    key: impl Fn(&T) -> K,
    mut found: impl FnMut(Option<&T>, Option<&T>),
) {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some(a), Some(b)) => key(a).cmp(&key(b)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        let first = if order.is_le() { left.next() } else { None };
        let second = if order.is_ge() { right.next() } else { None };
        found(first, second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_alone_comes_alone() {
        let mut seen = Vec::new();
        join(&[1, 2, 4], &[2, 3], |&n| n, |a, b| seen.push((a.copied(), b.copied())));
        assert_eq!(seen, [(Some(1), None), (Some(2), Some(2)), (None, Some(3)), (Some(4), None)]);
    }
}

//! Notices that a walk along a list goes in circles, which only damage can bring about.

/// Remembers one place of the walk, a later one each time the number of steps doubles (Brent's method): a circle of any
/// length is noticed within two rounds after it was entered, without memory for the places seen.
#[derive(Debug, Default)]
pub(crate) struct CycleGuard {
    seen: u64,
    visits: u64,
}

impl CycleGuard {
    /// Counts a visit; `false` when `place` was visited before.
    #[must_use]
    pub fn visit(&mut self, place: u64) -> bool {
        if self.visits > 0 && self.seen == place {
            return false;
        }
        self.visits += 1;
        if self.visits.is_power_of_two() {
            self.seen = place;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_noticed_soon_and_a_line_never() {
        let mut line = CycleGuard::default();
        assert!((0..10_000).all(|place| line.visit(place)));
        for (tail, circle) in [(0, 1), (5, 3), (100, 64), (3, 1000)] {
            let mut guard = CycleGuard::default();
            let place = |n: u64| if n < tail { n } else { tail + (n - tail) % circle };
            let steps = (0..).take_while(|&n| guard.visit(place(n))).count() as u64;
            assert!(steps <= 4 * (tail + circle), "{steps} steps for {tail} and {circle}");
        }
    }
}

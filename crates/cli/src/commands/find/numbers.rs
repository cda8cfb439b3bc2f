//! What tests of `find` compare with: counts, sizes, ages, permissions.

use crate::output::text::ModeChange;
use std::cmp::Ordering;
use std::str::FromStr;
use xfskit_ondisk::Timestamp;

const NANOSECONDS: i128 = 1_000_000_000;

/// The sign before a number, and the rest: `+N` is more, `-N` is less.
fn signed(text: &str) -> (Ordering, &str) {
    match text.as_bytes().first() {
        Some(b'+') => (Ordering::Greater, &text[1..]),
        Some(b'-') => (Ordering::Less, &text[1..]),
        _ => (Ordering::Equal, text),
    }
}

/// A number without a sign.
pub(super) fn whole<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A comparison with a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    order: Ordering,
    number: u64,
}

impl Count {
    /// The same number.
    pub(super) fn exactly(number: u64) -> Self {
        Self { order: Ordering::Equal, number }
    }

    pub(super) fn holds(self, number: u64) -> bool {
        number.cmp(&self.number) == self.order
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (order, digits) = signed(text);
        let number = whole(digits).ok_or("expected a number; +N is more than N, -N less")?;
        Ok(Self { order, number })
    }
}

/// A comparison with a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeTest {
    count: Count,
    unit_bytes: u64,
}

impl SizeTest {
    /// Whether a size, rounded up to whole units, passes the comparison.
    pub(super) fn holds(self, bytes: u64) -> bool {
        self.count.holds(bytes.div_ceil(self.unit_bytes))
    }
}

impl FromStr for SizeTest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit_bytes = match &text[digits.len()..] {
            "" | "b" => 512,
            "c" => 1,
            "w" => 2,
            "k" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            _ => return Err("the units are c, w, b, k, M and G".into()),
        };
        let count = digits.parse().map_err(|_| "expected a number of units, as in +10M".to_owned())?;
        Ok(Self { count, unit_bytes })
    }
}

/// The unit of an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Minutes,
    Days,
}

/// A comparison with an age. Exactly N is the Nth minute, but of days the one behind N whole ones, as in find(1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Age {
    order: Ordering,
    /// The youngest age, in nanoseconds, that is not less.
    least: i128,
    unit: Unit,
    /// When ages are taken, in nanoseconds since 1970.
    now: i128,
}

impl Age {
    pub(super) fn parse(text: &str, unit: Unit, now: i128) -> Result<Self, String> {
        let (order, number) = signed(text);
        let expected = || "expected a number; +N is more than N, -N less".to_owned();
        let is_number = number.starts_with(|digit: char| digit.is_ascii_digit() || digit == '.');
        let units: f64 = number.parse().ok().filter(|_| is_number).ok_or_else(expected)?;
        // The conversion takes what is too large to the largest.
        let least = (units * unit.nanoseconds() as f64).round() as i128;
        Ok(Self { order, least: least.min(i128::from(i64::MAX) * NANOSECONDS), unit, now })
    }

    pub(super) fn holds(&self, time: Timestamp) -> bool {
        let age = self.now - nanoseconds(time);
        let one = self.unit.nanoseconds();
        match (self.order, self.unit) {
            (Ordering::Less, _) => age < self.least,
            (Ordering::Equal, Unit::Days) => (self.least..self.least + one).contains(&age),
            (Ordering::Greater, Unit::Days) => age >= self.least + one,
            (Ordering::Equal, Unit::Minutes) => (self.least - one..self.least).contains(&age),
            (Ordering::Greater, Unit::Minutes) => age > self.least,
        }
    }
}

impl Unit {
    fn nanoseconds(self) -> i128 {
        let seconds = if self == Self::Days { 86_400 } else { 60 };
        seconds * NANOSECONDS
    }
}

/// A time in nanoseconds since 1970.
pub(super) fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NANOSECONDS + i128::from(time.nanoseconds)
}

/// A comparison with permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Perm {
    kind: PermKind,
    of_file: u16,
    /// `X` says something else of directories.
    of_dir: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PermKind {
    Exact,
    /// `-MODE`: all of the bits.
    All,
    /// `/MODE`: one of the bits, if there are any.
    Any,
}

impl Perm {
    pub(super) fn holds(self, permissions: u16, is_dir: bool) -> bool {
        let asked = if is_dir { self.of_dir } else { self.of_file };
        match self.kind {
            PermKind::Exact => permissions == asked,
            PermKind::All => permissions & asked == asked,
            PermKind::Any => asked == 0 || permissions & asked != 0,
        }
    }
}

impl FromStr for Perm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, mode) = match text.as_bytes().first() {
            Some(b'-') => (PermKind::All, &text[1..]),
            Some(b'/') => (PermKind::Any, &text[1..]),
            _ => (PermKind::Exact, text),
        };
        let is_old = mode.starts_with('+') && mode[1..].starts_with(|digit: char| digit.is_ascii_digit());
        if is_old {
            return Err(format!("one of several bits is written /{}", &mode[1..]));
        }
        let change: ModeChange = mode.parse().map_err(|_| "expected permissions as in 644, -u+w or /222".to_owned())?;
        Ok(Self { kind, of_file: change.apply(0, false), of_dir: change.apply(0, true) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_by_find() {
        let count = |text: &str, number| text.parse::<Count>().unwrap().holds(number);
        assert!(count("3", 3) && count("+3", 4) && count("-3", 2) && !count("+3", 3) && !count("-0", 0));
        for wrong in ["", "+", "x", "++1", "1.5", "-", "99999999999999999999"] {
            assert!(wrong.parse::<Count>().is_err(), "{wrong}");
        }
        let perm = |text: &str, mode, is_dir| text.parse::<Perm>().unwrap().holds(mode, is_dir);
        assert!(perm("644", 0o644, false) && !perm("644", 0o1644, false) && perm("-u+w,g+w", 0o664, false));
        assert!(perm("/222", 0o200, false) && !perm("/222", 0o555, false) && perm("/0", 0, false));
        assert!(perm("a+X", 0o111, true) && perm("a+X", 0, false) && perm("u=rw,go=r", 0o644, false));
        for wrong in ["", "+222", "-", "8", "z", "u", "-+222"] {
            assert!(wrong.parse::<Perm>().is_err(), "{wrong}");
        }
        let age = |text: &str, unit, seconds: i64| {
            let time = Timestamp { seconds: 1_000_000 - seconds, nanoseconds: 0 };
            Age::parse(text, unit, 1_000_000 * NANOSECONDS).unwrap().holds(time)
        };
        let (minutes, days) = (Unit::Minutes, Unit::Days);
        assert!(age("1", minutes, 59) && !age("1", minutes, 61) && age("+1", minutes, 61) && age("-2", minutes, 70));
        assert!(age("0", days, 86_399) && age("1", days, 86_400) && !age("+0", days, 86_399) && age("-1", days, 9));
        assert!(age("0.5", days, 50_000) && !age("0.5", days, 40_000) && age("-1e30", days, 9));
        for wrong in ["", "+", "x", "-nan", "inf", "--1"] {
            assert!(Age::parse(wrong, days, 0).is_err(), "{wrong}");
        }
    }
}

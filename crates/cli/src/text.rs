//! Numbers, modes and times as people write and read them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::str::FromStr;
use xfskit::ondisk::Timestamp;
use xfskit::ondisk::inode::{
    MODE_BLOCK, MODE_CHAR, MODE_DIR, MODE_FIFO, MODE_REGULAR, MODE_SOCKET, MODE_SYMLINK, MODE_TYPE,
};

/// A mode as `ls -l` shows it.
pub fn mode_string(mode: u16) -> String {
    let kind = match mode & MODE_TYPE {
        MODE_DIR => 'd',
        MODE_SYMLINK => 'l',
        MODE_CHAR => 'c',
        MODE_BLOCK => 'b',
        MODE_FIFO => 'p',
        MODE_SOCKET => 's',
        MODE_REGULAR => '-',
        _ => '?',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The kind of file that a mode says, in a word.
pub fn kind_name(mode: u16) -> &'static str {
    match mode & MODE_TYPE {
        MODE_DIR => "directory",
        MODE_SYMLINK => "symbolic link",
        MODE_CHAR => "character device",
        MODE_BLOCK => "block device",
        MODE_FIFO => "pipe",
        MODE_SOCKET => "socket",
        MODE_REGULAR => "file",
        _ => "unknown",
    }
}

/// A time for people, in UTC, for an image belongs to no place: `2026-01-31 12:00:00.000000001 +0000`.
pub fn time_string(time: Timestamp) -> String {
    let (date, second, fraction) = time_parts(time);
    format!("{date} {second}.{fraction} +0000")
}

/// A time to the second, in UTC: `2026-01-31 12:00:00Z`.
pub fn short_time_string(time: Timestamp) -> String {
    let (date, second, _) = time_parts(time);
    format!("{date} {second}Z")
}

/// A time as RFC 3339 has it, in UTC: `2026-01-31T12:00:00.000000001Z`.
pub fn json_time(time: Timestamp) -> String {
    let (date, second, fraction) = time_parts(time);
    format!("{date}T{second}.{fraction}Z")
}

/// Date, time of day and nanoseconds.
fn time_parts(time: Timestamp) -> (String, String, String) {
    const DAY: i64 = 86_400;
    let (days, second) = (time.seconds.div_euclid(DAY), time.seconds.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let date = format!("{year:04}-{month:02}-{day:02}");
    (date, format!("{hour:02}:{minute:02}:{second:02}"), format!("{:09}", time.nanoseconds))
}

/// Sets a member of a JSON object to bytes: as text, and where that is not all of them, as base64 under `NAME_base64`
/// too.
pub fn set_json(object: &mut Value, name: &str, bytes: &[u8]) {
    object[name] = String::from_utf8_lossy(bytes).into();
    if std::str::from_utf8(bytes).is_err() {
        object[format!("{name}_base64")] = BASE64.encode(bytes).into();
    }
}

/// Bytes in a JSON list: text, or an object of `text` and `text_base64` where text is not all of them.
pub fn json_bytes(bytes: &[u8]) -> Value {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut object = json!({});
    set_json(&mut object, "text", bytes);
    object
}

/// Year, month and day of a number of days since 1970, by eras of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097;
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(ERA), shifted.rem_euclid(ERA));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Seconds since 1970 with up to nine decimals.
///
/// # Errors
/// A message for anything else.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let fail = || "expected seconds since 1970, as in 1700000000.5".to_owned();
    let text = text.strip_prefix('@').unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().map_err(|_| fail())?;
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(fail());
    }
    let nanoseconds: u32 = format!("{fraction:0<9}").parse().map_err(|_| fail())?;
    let before = whole.starts_with('-') && nanoseconds > 0;
    Ok(match before {
        true => Timestamp { seconds: seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
        false => Timestamp { seconds, nanoseconds },
    })
}

/// A size in bytes: a number, with a suffix k, M, G, T if need be (powers of 1024).
///
/// # Errors
/// A message for anything else.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let fail = || format!("{text}: expected a size such as 500M or 10G");
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
    let shift = match lower.bytes().last() {
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(b't') => 40,
        _ => 0,
    };
    let digits = if shift == 0 { lower } else { &lower[..lower.len() - 1] };
    if !digits.starts_with(|digit: char| digit.is_ascii_digit()) {
        return Err(fail());
    }
    let number: u64 = digits.parse().map_err(|_| fail())?;
    number.checked_mul(1 << shift).ok_or_else(fail)
}

/// A size as `du -h` shows it: at most three digits, rounded up.
pub fn human_size(bytes: u64) -> String {
    let mut unit = 1_u64;
    for letter in ["", "K", "M", "G", "T", "P"] {
        let tenths = (u128::from(bytes) * 10).div_ceil(unit.into());
        if tenths < 100 && !letter.is_empty() {
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
        let whole = bytes.div_ceil(unit);
        if whole < 1024 {
            return format!("{whole}{letter}");
        }
        unit <<= 10;
    }
    format!("{}E", bytes.div_ceil(unit))
}

/// What `chown` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| -> Result<Option<u32>, String> {
            if part.is_empty() {
                return Ok(None);
            }
            part.parse().map(Some).map_err(|_| format!("{part:?} is not a number: an image has no names of users"))
        };
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let owner = Self { uid: number(user)?, gid: number(group)? };
        if owner.uid.is_none() && owner.gid.is_none() {
            return Err("expected OWNER, OWNER:GROUP or :GROUP".into());
        }
        Ok(owner)
    }
}

/// What `chmod` does to permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModeChange {
    /// Sets them.
    Set(u16),
    /// Changes some of them.
    Clauses(Vec<Clause>),
}

/// A part of a symbolic mode, as in `go-w`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Bits of the users that it is about, special bits included.
    who: u16,
    operation: char,
    /// The letters behind the operation.
    what: String,
}

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return match u16::from_str_radix(text, 8) {
                Ok(mode) if mode <= 0o7777 => Ok(Self::Set(mode)),
                _ => Err("expected an octal number up to 7777".into()),
            };
        }
        text.split(',').map(Clause::parse).collect::<Result<_, _>>().map(Self::Clauses)
    }
}

impl Clause {
    fn parse(text: &str) -> Result<Self, String> {
        let fail = || format!("{text:?}: expected something like u+w or go-rwx");
        let at = text.find(['+', '-', '=']).ok_or_else(fail)?;
        let mut who = 0;
        for letter in text[..at].chars() {
            who |= match letter {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => 0o7777,
                _ => return Err(fail()),
            };
        }
        let what = text[at + 1..].to_owned();
        if !what.chars().all(|letter| "rwxXst".contains(letter)) {
            return Err(fail());
        }
        let operation = text[at..].chars().next().ok_or_else(fail)?;
        Ok(Self { who: if who == 0 { 0o7777 } else { who }, operation, what })
    }

    fn apply(&self, mode: u16, is_dir: bool) -> u16 {
        let bits = self.what.chars().fold(0, |bits, letter| {
            bits | match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                'X' if is_dir || mode & 0o111 != 0 => 0o111,
                's' => 0o6000,
                't' => 0o1000,
                _ => 0,
            }
        }) & self.who;
        match self.operation {
            '+' => mode | bits,
            '-' => mode & !bits,
            _ => mode & !(self.who & 0o777) | bits,
        }
    }
}

impl ModeChange {
    /// The permissions after the change.
    pub fn apply(&self, mode: u16, is_dir: bool) -> u16 {
        match self {
            Self::Set(mode) => *mode,
            Self::Clauses(clauses) => clauses.iter().fold(mode & 0o7777, |mode, clause| clause.apply(mode, is_dir)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_and_changed_as_by_ls_and_chmod() {
        assert_eq!(mode_string(0o104_755), "-rwsr-xr-x");
        assert_eq!(mode_string(0o041_776), "drwxrwxrwT");
        let change = |text: &str, mode| text.parse::<ModeChange>().unwrap().apply(mode, false);
        assert_eq!(change("u+s,go-w", 0o777), 0o4755);
        assert_eq!(change("a=rX", 0o600), 0o444);
        assert_eq!(change("+x", 0o644), 0o755);
        assert_eq!(change("0640", 0o777), 0o640);
        assert!("u*w".parse::<ModeChange>().is_err());
    }

    #[test]
    fn times_are_read_and_shown_before_and_after_1970() {
        assert_eq!(time_string(Timestamp { seconds: 0, nanoseconds: 7 }), "1970-01-01 00:00:00.000000007 +0000");
        assert_eq!(
            time_string(Timestamp { seconds: 951_782_400, nanoseconds: 0 }),
            "2000-02-29 00:00:00.000000000 +0000"
        );
        assert_eq!(time_string(Timestamp { seconds: -1, nanoseconds: 0 }), "1969-12-31 23:59:59.000000000 +0000");
        assert_eq!(parse_time("-1.5").unwrap(), Timestamp { seconds: -2, nanoseconds: 500_000_000 });
        assert!(parse_time("yesterday").is_err());
    }

    #[test]
    fn sizes_are_shown_as_by_du() {
        let shown = [0, 1, 1023, 1024, 1025, 10_239, 10_240, 10_241, 1 << 20, u64::MAX].map(human_size);
        assert_eq!(shown, ["0", "1", "1023", "1.0K", "1.1K", "10K", "10K", "11K", "1.0M", "16E"]);
    }

    #[test]
    fn sizes_and_owners_are_parsed() {
        assert_eq!(parse_size("10G"), Ok(10 << 30));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert!(parse_size("x").is_err() && parse_size("99999999999T").is_err());
        assert_eq!(":7".parse(), Ok(Owner { uid: None, gid: Some(7) }));
        assert!("root".parse::<Owner>().is_err());
    }
}

//! Numbers, modes and times in the form that people write and read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::str::FromStr;
use xfskit_engine::FileType;
use xfskit_ondisk::Timestamp;
use xfskit_ondisk::inode::{
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

/// The kind of file as a word.
pub fn kind_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::File => "file",
        FileType::Dir => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
    }
}

/// A time for people, in the zone of `TZ` or the machine: `2026-01-31 12:00:00.000000001 +0000`.
pub fn time_string(time: Timestamp) -> String {
    let (local, zone) = local(time);
    format!("{local}.{:09} {zone}", time.nanoseconds)
}

/// A time to the second, as [`time_string`]: `2026-01-31 12:00:00 +0000`.
pub fn short_time_string(time: Timestamp) -> String {
    let (local, zone) = local(time);
    format!("{local} {zone}")
}

/// Date and time of day, and the offset of the zone from UTC. Years of more than four digits have no zone and are in
/// UTC.
fn local(time: Timestamp) -> (String, String) {
    let Ok(instant) = jiff::Timestamp::from_second(time.seconds) else {
        let (date, second, _) = time_parts(time);
        return (format!("{date} {second}"), "+0000".into());
    };
    let zoned = instant.to_zoned(zone());
    (zoned.strftime("%Y-%m-%d %H:%M:%S").to_string(), zoned.strftime("%z").to_string())
}

/// The zone in which times are read and shown. An unknown zone is UTC.
fn zone() -> TimeZone {
    // The library keeps it.
    TimeZone::try_system().unwrap_or(TimeZone::UTC)
}

/// A time in a form of strftime(3), in the zone of `TZ` or the machine. Outside the years of four digits it is the
/// number of seconds since 1970.
pub fn formatted_time(time: Timestamp, format: &str) -> String {
    let zoned = jiff::Timestamp::from_second(time.seconds).ok().map(|instant| instant.to_zoned(zone()));
    let text = zoned.and_then(|zoned| jiff::fmt::strtime::format(format, &zoned).ok());
    text.unwrap_or_else(|| time.seconds.to_string())
}

/// When a day ends, in the zone of `TZ` or the machine: 24 hours after its midnight. Both in seconds since 1970.
pub fn end_of_day(seconds: i64) -> i64 {
    let Ok(instant) = jiff::Timestamp::from_second(seconds) else { return seconds };
    let time = instant.to_zoned(zone()).time();
    let since_midnight = i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second());
    seconds - since_midnight + 86_400
}

/// A time in the form of RFC 3339, in UTC: `2026-01-31T12:00:00.000000001Z`.
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

/// Sets a member of a JSON object to bytes: as text, and if they are not valid text, also as base64 under
/// `NAME_base64`.
pub fn set_json(object: &mut Value, name: &str, bytes: &[u8]) {
    object[name] = String::from_utf8_lossy(bytes).into();
    if std::str::from_utf8(bytes).is_err() {
        object[format!("{name}_base64")] = BASE64.encode(bytes).into();
    }
}

/// An element of a JSON list: an object with one member, set by [`set_json`].
pub fn json_of(name: &str, bytes: &[u8]) -> Value {
    let mut object = json!({});
    set_json(&mut object, name, bytes);
    object
}

/// Year, month and day from the days since 1970. It counts in eras of 400 years that begin in March.
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

/// Parses a time: seconds since 1970 with up to nine decimals and an optional `@` before them, or a date with an
/// optional time of day and an optional zone.
///
/// # Errors
/// A message for anything else.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let time = match text.strip_prefix('@') {
        Some(seconds) => parse_seconds(seconds),
        None => parse_seconds(text).or_else(|| parse_date(text)),
    };
    time.ok_or_else(|| {
        "expected @SECONDS since 1970, or a date as in 2026-01-31 or \"2026-01-31 12:00:00 +0100\"".to_owned()
    })
}

fn parse_seconds(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: u32 = format!("{fraction:0<9}").parse().ok()?;
    let before = whole.starts_with('-') && nanoseconds > 0;
    Some(match before {
        true => Timestamp { seconds: seconds.checked_sub(1)?, nanoseconds: 1_000_000_000 - nanoseconds },
        false => Timestamp { seconds, nanoseconds },
    })
}

/// Parses `YYYY-MM-DD[ HH:MM[:SS[.FRACTION]]][ ZONE]`. The first space may be a `T`. A zone is `Z`, `UTC`, or as in
/// `+0100` or `+01:00`; without one it is that of `TZ`.
fn parse_date(text: &str) -> Option<Timestamp> {
    const DATE_BYTES: usize = 10;
    let (date, rest) = text.split_at_checked(DATE_BYTES)?;
    let at = rest.find(['+', '-', 'Z', 'U']).unwrap_or(rest.len());
    let (time, zone_text) = (rest[..at].trim_end(), &rest[at..]);
    let is_date = date.bytes().enumerate().all(|(n, b)| if n == 4 || n == 7 { b == b'-' } else { b.is_ascii_digit() });
    if !is_date || !(time.is_empty() || time.starts_with([' ', 'T'])) {
        return None;
    }
    let civil: jiff::civil::DateTime = format!("{date}{time}").parse().ok()?;
    let zone = match zone_text {
        "" => zone(),
        "Z" | "UTC" => TimeZone::UTC,
        offset => TimeZone::fixed(parse_offset(offset)?),
    };
    let instant = civil.to_zoned(zone).ok()?.timestamp();
    let nanoseconds = instant.as_nanosecond();
    let seconds = nanoseconds.div_euclid(1_000_000_000);
    let rest = nanoseconds.rem_euclid(1_000_000_000);
    Some(Timestamp { seconds: seconds.try_into().ok()?, nanoseconds: rest.try_into().ok()? })
}

/// A zone as in `+0100`, `+01:00` or `+01`.
fn parse_offset(text: &str) -> Option<jiff::tz::Offset> {
    let digits: String = text[1..].chars().filter(|c| *c != ':').collect();
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes): (i32, i32) = (digits[..2].parse().ok()?, digits[2..].parse().unwrap_or(0));
    let seconds = hours * 3600 + minutes * 60;
    let sign = if text.starts_with('-') { -1 } else { 1 };
    if minutes > 59 { None } else { jiff::tz::Offset::from_seconds(sign * seconds).ok() }
}

/// Parses a size in bytes: a number with an optional suffix k, M, G, T, P, E (powers of 1024).
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
        Some(b'p') => 50,
        Some(b'e') => 60,
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

/// The owner and group that `chown` sets.
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
            match part.parse() {
                // To the kernel this number means "leave it as it is", and no user or group has it.
                Ok(u32::MAX) => Err(format!("{part} is the number of no user or group")),
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(format!("{part:?} is not a number: an image has no names of users")),
            }
        };
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let owner = Self { uid: number(user)?, gid: number(group)? };
        if owner.uid.is_none() && owner.gid.is_none() {
            return Err("expected OWNER, OWNER:GROUP or :GROUP".into());
        }
        Ok(owner)
    }
}

/// A change of permissions by `chmod`.
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
    /// Permission bits of the users that it applies to, special bits included.
    who: u16,
    operation: char,
    /// The letters after the operation.
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
        assert_eq!(json_time(Timestamp { seconds: 0, nanoseconds: 7 }), "1970-01-01T00:00:00.000000007Z");
        assert_eq!(json_time(Timestamp { seconds: 951_782_400, nanoseconds: 0 }), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(json_time(Timestamp { seconds: -1, nanoseconds: 0 }), "1969-12-31T23:59:59.000000000Z");
        // A time that no image can store is shown too.
        assert!(time_string(Timestamp { seconds: i64::MAX / 2, nanoseconds: 0 }).ends_with(" +0000"));
        assert_eq!(parse_time("-1.5").unwrap(), Timestamp { seconds: -2, nanoseconds: 500_000_000 });
        for wrong in [
            "yesterday",
            "",
            "@",
            "2026-13-01",
            "2026-02-30",
            "2026-01-31x",
            "2026-01-31 25:00",
            "2026-01-31 10:00 +9x",
        ] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
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
        assert_eq!((parse_size("1P"), parse_size("2E")), (Ok(1 << 50), Ok(2 << 60)));
        assert!(parse_size("x").is_err() && parse_size("99999999999T").is_err());
        assert_eq!(":7".parse(), Ok(Owner { uid: None, gid: Some(7) }));
        assert!("root".parse::<Owner>().is_err());
    }
}

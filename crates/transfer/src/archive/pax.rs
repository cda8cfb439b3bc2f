//! PAX records: `LENGTH KEY=VALUE\n`. The length is decimal and counts its own digits.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use xfskit_vfs::Timestamp;

const SCHILY: &[u8] = b"SCHILY.xattr.";
const LIBARCHIVE: &[u8] = b"LIBARCHIVE.xattr.";
/// Red Hat's key of SELinux's label, which GNU tar writes.
const RED_HAT: &[u8] = b"RHT.security.selinux";

/// A key and a value.
type Record<'a> = (&'a [u8], &'a [u8]);
/// The name and the value of an attribute.
type Attribute = (Vec<u8>, Vec<u8>);

/// Appends a record.
pub(super) fn push(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// The records in a sequence. They are as many as a stream likes, so they are taken one by one.
pub(super) fn parse(mut bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, &'static str>> {
    std::iter::from_fn(move || {
        if bytes.first().is_none_or(|&byte| byte == 0) {
            return None;
        }
        let record = first_record(bytes);
        bytes = record.map_or(b"", |(_, rest)| rest);
        Some(record.map(|(record, _)| record))
    })
}

/// The first record, and what is behind it.
fn first_record(bytes: &[u8]) -> Result<(Record<'_>, &[u8]), &'static str> {
    let space = bytes.iter().take(20).position(|&byte| byte == b' ').ok_or("a PAX record without a length")?;
    let length: usize = std::str::from_utf8(&bytes[..space])
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or("a PAX record's length that is no number")?;
    if length > bytes.len() || length < space + 3 || bytes[length - 1] != b'\n' {
        return Err("a PAX record of another length than it says");
    }
    let record = &bytes[space + 1..length - 1];
    let equals = record.iter().position(|&byte| byte == b'=').ok_or("a PAX record without a value")?;
    Ok(((&record[..equals], &record[equals + 1..]), &bytes[length..]))
}

/// The attribute that a record describes, and its value.
pub(super) fn attribute(key: &[u8], value: &[u8]) -> Option<Result<Attribute, &'static str>> {
    if let Some(name) = key.strip_prefix(SCHILY) {
        return Some(Ok((decode_name(name), value.to_vec())));
    }
    if key == RED_HAT {
        // The attribute ends with a zero, as libselinux stores it.
        let label = [value.strip_suffix(b"\0").unwrap_or(value), b"\0"].concat();
        return Some(Ok((b"security.selinux".to_vec(), label)));
    }
    let name = key.strip_prefix(LIBARCHIVE)?;
    let value: Vec<u8> = value.iter().copied().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=').collect();
    let decoded = STANDARD_NO_PAD.decode(&value).or_else(|_| STANDARD.decode(&value));
    Some(decoded.map(|value| (decode_name(name), value)).map_err(|_| "an attribute that is not in base64"))
}

/// The key of an attribute.
pub(super) fn attribute_key(name: &[u8]) -> Vec<u8> {
    let mut key = SCHILY.to_vec();
    for &byte in name {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'=' => key.extend_from_slice(b"%3D"),
            other => key.push(other),
        }
    }
    key
}

/// Decodes a name whose special bytes are written as `%` and two hex digits.
fn decode_name(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let hex = hex.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| byte == b'%') {
            Some(value) => {
                decoded.push(value);
                rest = &after[2..];
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    decoded
}

/// A time as seconds with a fraction.
pub(super) fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    Some(match whole.starts_with('-') && nanoseconds > 0 {
        true => Timestamp { seconds: seconds.checked_sub(1)?, nanoseconds: 1_000_000_000 - nanoseconds },
        false => Timestamp { seconds, nanoseconds },
    })
}

/// A time as text, without a fraction of zero.
pub(super) fn time_text(time: Timestamp) -> String {
    match (time.seconds, time.nanoseconds) {
        (seconds, 0) => seconds.to_string(),
        (seconds, nanoseconds) if seconds >= 0 => format!("{seconds}.{nanoseconds:09}"),
        // -0.25 is a quarter of a second before 1970: second -1 and three quarters.
        (seconds, nanoseconds) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_records_length_counts_its_own_digits() {
        for length in [1, 5, 80, 90, 91, 95, 980, 990, 995] {
            let mut records = Vec::new();
            push(&mut records, b"key", &vec![b'x'; length]);
            push(&mut records, b"b", b"\n=");
            let parsed: Vec<_> = parse(&records).collect::<Result<_, _>>().unwrap();
            assert_eq!((parsed[0].1.len(), parsed[1]), (length, (&b"b"[..], &b"\n="[..])));
        }
        assert_eq!(parse(b"6 a=b\n").collect::<Vec<_>>(), [Ok((&b"a"[..], &b"b"[..]))]);
        for wrong in [&b"7 a=b\n"[..], b"a=b\n", b"3 \n"] {
            assert!(matches!(parse(wrong).collect::<Vec<_>>()[..], [Err(_)]), "{wrong:?}");
        }
    }

    #[test]
    fn times_keep_their_fractions_on_both_sides_of_1970() {
        for (seconds, nanoseconds) in [(0, 0), (5, 250_000_000), (-1, 750_000_000), (-7, 0), (1 << 33, 1)] {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(parse_time(time_text(time).as_bytes()), Some(time));
        }
        assert_eq!(time_text(Timestamp { seconds: -1, nanoseconds: 750_000_000 }), "-0.250000000");
        assert_eq!(parse_time(b"1.5x"), None);
    }

    #[test]
    fn names_of_attributes_survive() {
        let key = attribute_key(b"user.a=b%41");
        assert_eq!(attribute(&key, b"\0v").unwrap().unwrap(), (b"user.a=b%41".to_vec(), b"\0v".to_vec()));
        let theirs = attribute(b"LIBARCHIVE.xattr.user.%41", b"aGk").unwrap().unwrap();
        assert_eq!(theirs, (b"user.A".to_vec(), b"hi".to_vec()));
        assert!(attribute(b"path", b"x").is_none());
    }
}

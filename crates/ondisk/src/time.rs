//! Timestamps: 64 bits on disk in two encodings.
//!
//! Legacy: 32 bits of seconds since 1970, signed, then 32 bits of nanoseconds. Bigtime: nanoseconds since
//! December 1901, the earliest legacy time, unsigned. What does not fit is clamped, as the kernel does.

use crate::Timestamp;

const NANOSECONDS: u64 = 1_000_000_000;
/// Seconds between the bigtime epoch and 1970.
const BIGTIME_EPOCH: i64 = 1 << 31;
/// The last second that bigtime can represent.
const BIGTIME_LAST: i64 = (u64::MAX / NANOSECONDS) as i64 - BIGTIME_EPOCH;
/// The last one that the kernel sets: it counts in units of four seconds, as the limits of quotas do.
const BIGTIME_LAST_SET: i64 = ((u64::MAX / NANOSECONDS) & !3) as i64 - BIGTIME_EPOCH;

/// Decodes nanoseconds since 1901.
pub fn decode_bigtime(raw: u64) -> Timestamp {
    Timestamp { seconds: (raw / NANOSECONDS) as i64 - BIGTIME_EPOCH, nanoseconds: (raw % NANOSECONDS) as u32 }
}

/// Encodes as nanoseconds since 1901.
pub fn encode_bigtime(time: Timestamp) -> u64 {
    let seconds = time.seconds.clamp(-BIGTIME_EPOCH, BIGTIME_LAST);
    ((seconds + BIGTIME_EPOCH) as u64 * NANOSECONDS).saturating_add(time.nanoseconds.into())
}

/// The time that is stored when `time` is set. A time before the first or after the last second of the encoding becomes
/// that second, and these two seconds have no nanoseconds, as with the kernel.
pub fn clamp_time(time: Timestamp, bigtime: bool) -> Timestamp {
    let (first, last) = if bigtime { (-BIGTIME_EPOCH, BIGTIME_LAST_SET) } else { (i32::MIN.into(), i32::MAX.into()) };
    let seconds = time.seconds.clamp(first, last);
    let nanoseconds = if seconds == first || seconds == last { 0 } else { time.nanoseconds };
    Timestamp { seconds, nanoseconds }
}

/// Decodes seconds and nanoseconds, 32 bits each.
pub fn decode_legacy(raw: u64) -> Timestamp {
    Timestamp { seconds: i64::from((raw >> 32) as i32), nanoseconds: (raw as u32).min(999_999_999) }
}

/// Encodes as seconds and nanoseconds, 32 bits each.
pub fn encode_legacy(time: Timestamp) -> u64 {
    let seconds = time.seconds.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    u64::from(seconds as u32) << 32 | u64::from(time.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_encodings_keep_what_they_can_hold() {
        for seconds in [i64::from(i32::MIN), -1, 0, 915_148_800, i64::from(i32::MAX)] {
            let time = Timestamp { seconds, nanoseconds: 123_456_789 };
            assert_eq!(decode_bigtime(encode_bigtime(time)), time);
            assert_eq!(decode_legacy(encode_legacy(time)), time);
        }
        let late = Timestamp { seconds: 16_000_000_000, nanoseconds: 5 };
        assert_eq!(decode_bigtime(encode_bigtime(late)), late);
    }
}

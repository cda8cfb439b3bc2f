//! What to do with a range of a file.

/// What to do with a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// It gets space; the file grows to the end of the range.
    Allocate,
    /// It gets space, behind the end of the file too.
    AllocateKeepSize,
    /// As [`Self::AllocateKeepSize`], and blocks of its own for those that it shares: what is written to the range
    /// afterwards finds its space there. Contents stay as they are, however far it gets.
    UnshareKeepSize,
    /// It loses its space and reads as zeros.
    PunchHole,
    /// It reads as zeros and has space; the file grows to the end of the range.
    ZeroRange,
    /// It reads as zeros and has space, behind the end of the file too.
    ZeroRangeKeepSize,
    /// It goes, and what is behind it moves up. Whole blocks only.
    CollapseRange,
    /// A hole comes in its place, and what was there and behind moves back. Whole blocks only.
    InsertRange,
}

//! Options of mkfs.xfs that ask for nothing with the values that this table has: what they would switch on is off, or
//! the default. They are taken, for programs that give them always. Other values of the same options ask for something,
//! and are refused by what that is.
//!
//! The options that xfskit has are not here; `crates/cli/tests/mkfs_options.rs` compares both with the man page of
//! mkfs.xfs.

/// Why an option is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Only with this value, which is off or the default.
    With(&'static str),
    /// With any number: it changes a realtime section, and there is none.
    Always,
}

/// An option: its section and name, when it asks for nothing, and what it asks for else.
type Row = (char, &'static str, Option<Idle>, &'static str);

const INHERITED: &str = "inherited flags of the root directory";
const REALTIME: &str = "realtime sections";
const QUOTA: &str = "quota";

/// Options that xfskit takes only where they ask for nothing, or never.
const TABLE: [Row; 31] = [
    ('d', "concurrency", Some(Idle::With("0")), "a number of AGs by concurrency; use agcount"),
    ('d', "cowextsize", Some(Idle::With("0")), INHERITED),
    ('d', "daxinherit", Some(Idle::With("0")), INHERITED),
    ('d', "extszinherit", Some(Idle::With("0")), INHERITED),
    ('d', "file", Some(Idle::With("0")), "naming the image in an option"),
    ('d', "name", None, "naming the image in an option"),
    ('d', "projinherit", Some(Idle::With("0")), INHERITED),
    ('d', "rtinherit", Some(Idle::With("0")), REALTIME),
    ('i', "max_atomic_write", None, "a log sized for atomic writes"),
    ('l', "concurrency", Some(Idle::With("0")), "a log sized by concurrency; use size"),
    ('l', "file", Some(Idle::With("0")), "naming the log in another way than logdev"),
    ('l', "name", None, "naming the log in another way than logdev"),
    ('m', "crc", Some(Idle::With("1")), "version 4, which has no checksums"),
    ('m', "metadir", Some(Idle::With("0")), "metadata directory trees"),
    ('m', "uquota", Some(Idle::With("0")), QUOTA),
    ('m', "gquota", Some(Idle::With("0")), QUOTA),
    ('m', "pquota", Some(Idle::With("0")), QUOTA),
    ('m', "uqnoenforce", Some(Idle::With("0")), QUOTA),
    ('m', "gqnoenforce", Some(Idle::With("0")), QUOTA),
    ('m', "pqnoenforce", Some(Idle::With("0")), QUOTA),
    ('r', "concurrency", Some(Idle::Always), REALTIME),
    ('r', "file", Some(Idle::With("0")), REALTIME),
    ('r', "name", None, REALTIME),
    ('r', "noalign", Some(Idle::Always), REALTIME),
    ('r', "reserved", Some(Idle::With("0")), REALTIME),
    ('r', "rgcount", None, REALTIME),
    ('r', "rgsize", Some(Idle::With("0")), REALTIME),
    ('r', "rtdev", None, REALTIME),
    ('r', "size", None, REALTIME),
    ('r', "start", None, REALTIME),
    ('r', "zoned", Some(Idle::With("0")), REALTIME),
];

/// What a value of an option asks for; `None` for an option that is not in the table.
pub(crate) fn asks_for(section: char, name: &str, value: Option<&str>) -> Option<Result<(), &'static str>> {
    let (.., idle, what) = TABLE.iter().find(|row| row.0 == section && row.1 == name)?;
    // Without a value a switch is on.
    let value = value.unwrap_or("1");
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_idle = match idle {
        Some(Idle::With(only)) => value == *only,
        Some(Idle::Always) => is_number(value) || value == "nr_cpus",
        None => false,
    };
    Some(if is_idle { Ok(()) } else { Err(what) })
}

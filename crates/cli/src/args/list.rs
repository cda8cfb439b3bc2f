//! Arguments of the commands that list and find files.

use super::{ReadArgs, examples};
use crate::glob::{Case, Glob};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::str::FromStr;
use xfskit::FileType;
use xfskit::ondisk::Timestamp;

/// Arguments of `ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Paths within the image, or inode:NUMBER
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
    /// One line for each entry, with its attributes; times are those of the zone in TZ, with their distance from UTC
    #[arg(short)]
    pub long: bool,
    /// Show inode numbers
    #[arg(short)]
    pub inode: bool,
    /// Show . and .. too; other names that begin with a dot are always shown
    #[arg(short, long)]
    pub all: bool,
    /// Show directories themselves, not what is in them
    #[arg(short, long, conflicts_with = "recursive")]
    pub directory: bool,
    /// Everything below directories too; with --json a line for each entry, with its path
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// With -l: sizes with units
    #[arg(short, long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Paths within the image, or inode:NUMBER; with --json and several, a list of what was found, each with its path
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
}

const FIND_NOTES: &str = "\
A file is listed if it passes all tests that are given. They may be written with one dash, as in find(1): \
-name '*.conf' -type f. A pattern has *, ?, [a-z], [!a-z], and a backslash before what stands for itself; put it \
in quotes.";

/// Arguments of `find`.
#[derive(Debug, Args)]
#[command(after_help = examples::with(FIND_NOTES, examples::FIND))]
pub struct FindArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Where to begin: paths within the image, or inode:NUMBER
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
    /// The last name of the path matches a pattern
    #[arg(long, value_name = "PATTERN", value_parser = glob(Case::Counts))]
    pub name: Vec<Glob>,
    /// As -name; small and capital letters are the same
    #[arg(long, value_name = "PATTERN", value_parser = glob(Case::IsIgnored))]
    pub iname: Vec<Glob>,
    /// The kind, one or several: f (file), d (directory), l (symbolic link), p (pipe), s (socket), b, c (devices)
    #[arg(long = "type", value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<FileKind>,
    /// The inode number
    #[arg(long, value_name = "NUMBER")]
    pub inum: Option<u64>,
    /// It has an attribute whose whole name, as in security.selinux, matches a pattern
    #[arg(long, value_name = "PATTERN", value_parser = glob(Case::Counts))]
    pub xattr: Vec<Glob>,
    /// The size, rounded up to whole units: c (bytes), k, M, G, or blocks of 512 bytes without a letter; +N is more
    /// than N units, -N less
    #[arg(long, value_name = "[+-]N[ckMG]", allow_hyphen_values = true)]
    pub size: Vec<SizeTest>,
    /// Contents changed later than those of a path within the image
    #[arg(long, value_name = "PATH")]
    pub newer: Option<OsString>,
    /// Contents changed later than a time, which is given as to touch -d
    #[arg(long, value_name = "DATE", value_parser = crate::text::parse_time)]
    pub newermt: Option<Timestamp>,
    /// A zero byte behind each path instead of the end of a line
    #[arg(long)]
    pub print0: bool,
}

/// The parser of a pattern.
pub(super) fn glob(case: Case) -> impl TypedValueParser<Value = Glob> {
    OsStringValueParser::new().try_map(move |text| Glob::parse(&text, case))
}

/// Whether an argument of `find` is an option that find(1) writes with one dash: a word of small letters.
fn is_find_test(arg: &OsStr) -> bool {
    let word = arg.as_encoded_bytes().strip_prefix(b"-").unwrap_or_default();
    word.len() > 1 && word[0].is_ascii_lowercase() && word[1..].iter().all(u8::is_ascii_alphanumeric)
}

/// The program's arguments, where the options that find(1) writes with one dash get two, those too that there are not:
/// the message about one then has the whole word.
pub fn with_two_dashes(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_command = |at: &usize| !args[*at].as_encoded_bytes().starts_with(b"-") && args[at - 1] != "--wait";
    let command = (1..args.len()).find(is_command);
    if let Some(command) = command.filter(|command| args[*command] == "find") {
        let tests = args[command + 1..].iter_mut().take_while(|arg| *arg != "--");
        for arg in tests.filter(|arg| is_find_test(arg)) {
            *arg = [OsStr::new("-"), arg].into_iter().collect();
        }
    }
    args
}

/// A kind of file, by the letter that find(1) has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKind(FileType);

impl FileKind {
    /// The type of the file.
    pub fn file_type(self) -> FileType {
        self.0
    }
}

impl FromStr for FileKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(match text {
            "f" => FileType::File,
            "d" => FileType::Dir,
            "l" => FileType::Symlink,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            "b" => FileType::BlockDevice,
            "c" => FileType::CharDevice,
            _ => return Err("expected one of f, d, l, p, s, b, c, or several with commas".into()),
        }))
    }
}

/// A comparison with a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeTest {
    order: Ordering,
    units: u64,
    unit_bytes: u64,
}

impl SizeTest {
    /// Whether a size passes the comparison.
    pub fn holds(&self, bytes: u64) -> bool {
        bytes.div_ceil(self.unit_bytes).cmp(&self.units) == self.order
    }
}

impl FromStr for SizeTest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (order, rest) = match text.as_bytes().first() {
            Some(b'+') => (Ordering::Greater, &text[1..]),
            Some(b'-') => (Ordering::Less, &text[1..]),
            _ => (Ordering::Equal, text),
        };
        let digits = rest.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit_bytes = match &rest[digits.len()..] {
            "" | "b" => 512,
            "c" => 1,
            "w" => 2,
            "k" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            _ => return Err("the units are c, k, M and G".into()),
        };
        match digits.parse() {
            Ok(units) if digits.starts_with(|digit: char| digit.is_ascii_digit()) => {
                Ok(Self { order, units, unit_bytes })
            }
            _ => Err("expected a number of units, as in +10M".into()),
        }
    }
}

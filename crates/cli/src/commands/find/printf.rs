//! What `-printf` and `-ls` print.

use super::owners::{List, Owners};
use super::test::{Entry, Time};
use crate::commands::list::device;
use crate::output::error::{Context, Result};
use crate::output::screen;
use crate::output::text::{formatted_time, mode_string};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::FileType;
use xfskit_engine::{Error, Volume};
use xfskit_ondisk::Timestamp;

/// The letters that strftime(3) and GNU's find know of a time.
const TIME_LETTERS: &[u8] = b"@aAbBcCdDeFgGhHIjklmMnprRsSTtuUVwWxXyYzZ+";
/// The letters of [`What`], for the message about another one.
const LETTERS: &str = "%p %P %f %h %H %s %m %M %u %U %g %G %i %n %l %y %Y %d %k %b %F %S %Z %a %c %t, and %Ak %Bk \
                       %Ck %Tk with a letter of strftime(3) or @ for k";
/// The widest field: more is a mistake.
const MOST_WIDE: usize = 4096;
/// What `ls` and `find -ls` take for long ago: half a year of months of 30 days.
const LONG_AGO_SECONDS: i64 = 6 * 30 * 86_400;

/// A format.
#[derive(Clone, Debug)]
pub struct Format(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(Vec<u8>),
    Field(Field),
    /// `\c`: what follows is not printed.
    End,
}

#[derive(Clone, Debug, Default)]
struct Field {
    is_left: bool,
    has_zeros: bool,
    /// `#`: an octal number begins with a zero.
    is_marked: bool,
    has_sign: bool,
    width: usize,
    precision: Option<usize>,
    what: What,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum What {
    /// One letter of [`LETTERS`].
    #[default]
    Path,
    Letter(u8),
    /// A time, and how.
    Time(Time, u8),
}

impl Format {
    /// Parses a format.
    ///
    /// # Errors
    /// A message for what is not known.
    pub(super) fn parse(text: &OsStr) -> Result<Self, String> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), Vec::new(), text.as_bytes());
        let end = |parts: &mut Vec<Part>, plain: &mut Vec<u8>| {
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(plain)));
            }
        };
        while let [first, after @ ..] = rest {
            rest = after;
            match (*first, after) {
                (b'%', [b'%', after @ ..]) => {
                    plain.push(b'%');
                    rest = after;
                }
                (b'%', _) => {
                    let (field, after) = parse_field(after)?;
                    end(&mut parts, &mut plain);
                    parts.push(Part::Field(field));
                    rest = after;
                }
                (b'\\', [b'c', ..]) => {
                    end(&mut parts, &mut plain);
                    parts.push(Part::End);
                    return Ok(Self(parts));
                }
                (b'\\', _) => {
                    let (byte, after) = parse_escape(after)?;
                    plain.push(byte);
                    rest = after;
                }
                (byte, _) => plain.push(byte),
            }
        }
        end(&mut parts, &mut plain);
        Ok(Self(parts))
    }

    /// The text for a file.
    ///
    /// # Errors
    /// Those of reading what it asks for.
    pub fn text(&self, filesystem: &Volume, owners: &mut Owners, entry: &Entry<'_>) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(plain) => text.extend_from_slice(plain),
                Part::Field(field) => {
                    let value = field.what.text(filesystem, owners, entry)?;
                    field.put(&mut text, value);
                }
                Part::End => break,
            }
        }
        Ok(text)
    }
}

/// The byte that a backslash and what follows stand for, and the rest.
fn parse_escape(text: &[u8]) -> Result<(u8, &[u8]), String> {
    let digits = text.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    if digits > 0 {
        let value = text[..digits].iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
        return Ok((value as u8, &text[digits..]));
    }
    let Some((letter, rest)) = text.split_first() else { return Ok((b'\\', text)) };
    let byte = match letter {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' => b'\\',
        _ => {
            let shown = String::from_utf8_lossy(&text[..1]);
            return Err(format!(r"\{shown}: expected one of \a \b \c \f \n \r \t \v \\, or octal digits"));
        }
    };
    Ok((byte, rest))
}

/// The field behind a `%`, and the rest.
fn parse_field(text: &[u8]) -> Result<(Field, &[u8]), String> {
    let (mut field, mut rest) = (Field::default(), text);
    while let [flag @ (b'-' | b'0' | b'+' | b' ' | b'#'), after @ ..] = rest {
        match flag {
            b'-' => field.is_left = true,
            b'0' => field.has_zeros = true,
            b'#' => field.is_marked = true,
            b'+' => field.has_sign = true,
            _ => {}
        }
        rest = after;
    }
    (field.width, rest) = parse_width(rest)?;
    if let [b'.', after @ ..] = rest {
        let (precision, after) = parse_width(after)?;
        (field.precision, rest) = (Some(precision), after);
    }
    let (what, after) = parse_what(rest).ok_or_else(|| {
        let directive = &text[..(text.len() - rest.len() + 2).min(text.len())];
        format!("%{}: expected one of {LETTERS}", String::from_utf8_lossy(directive))
    })?;
    field.what = what;
    Ok((field, after))
}

fn parse_width(text: &[u8]) -> Result<(usize, &[u8]), String> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = str::from_utf8(&text[..digits]).unwrap_or_default();
    let width = if digits == 0 { Some(0) } else { number.parse().ok().filter(|width| *width <= MOST_WIDE) };
    Ok((width.ok_or_else(|| format!("{number}: a field has {MOST_WIDE} characters at most"))?, &text[digits..]))
}

fn parse_what(text: &[u8]) -> Option<(What, &[u8])> {
    let (letter, rest) = text.split_first()?;
    let of_time = |time| {
        let (how, rest) = rest.split_first().filter(|(how, _)| TIME_LETTERS.contains(how))?;
        Some((What::Time(time, *how), rest))
    };
    match letter {
        b'A' => of_time(Time::Accessed),
        b'B' => of_time(Time::Made),
        b'C' => of_time(Time::Changed),
        b'T' => of_time(Time::Modified),
        b'p' => Some((What::Path, rest)),
        letter if b"PfhHsmMuUgGinlyYdkbFSZact".contains(letter) => Some((What::Letter(*letter), rest)),
        _ => None,
    }
}

impl Field {
    /// Adds a value, as wide as it is to be.
    fn put(&self, text: &mut Vec<u8>, mut value: Vec<u8>) {
        // GNU's find hands these two to printf(3) as numbers, and all others as text.
        let is_number = matches!(self.what, What::Letter(b'm' | b'd'));
        let zeros = |count: usize| std::iter::repeat_n(b'0', count);
        if let Some(precision) = self.precision {
            if is_number {
                value.splice(0..0, zeros(precision.saturating_sub(value.len())));
            } else {
                value.truncate(precision);
            }
        }
        if self.is_marked && self.what == What::Letter(b'm') && !value.starts_with(b"0") {
            value.insert(0, b'0');
        }
        if self.has_sign && self.what == What::Letter(b'd') {
            value.insert(0, b'+');
        }
        let missing = self.width.saturating_sub(value.len());
        let spaces = std::iter::repeat_n(b' ', missing);
        if self.is_left {
            value.extend(spaces);
        } else if self.has_zeros && is_number && self.precision.is_none() {
            let behind_sign = usize::from(value.starts_with(b"+"));
            value.splice(behind_sign..behind_sign, zeros(missing));
        } else {
            value.splice(0..0, spaces);
        }
        text.extend(value);
    }
}

impl What {
    fn text(self, filesystem: &Volume, owners: &mut Owners, entry: &Entry<'_>) -> Result<Vec<u8>> {
        let stat = entry.stat();
        let letter = match self {
            Self::Path => return Ok(screen::name(&entry.found.path).into_owned()),
            Self::Time(time, how) => return Ok(time_text(time.of(stat), how).into_bytes()),
            Self::Letter(letter) => letter,
        };
        Ok(match letter {
            b'P' => screen::name(entry.below()).into_owned(),
            b'f' => screen::name(entry.name()).into_owned(),
            b'h' => screen::name(entry.dir()).into_owned(),
            b'H' => screen::name(entry.start).into_owned(),
            b'u' => owners.name(filesystem, List::Users, stat.uid),
            b'g' => owners.name(filesystem, List::Groups, stat.gid),
            b'l' => target(filesystem, entry)?.map(|target| screen::name(&target).into_owned()).unwrap_or_default(),
            b'Y' => vec![followed_letter(filesystem, entry)?],
            b'Z' => entry.label(filesystem)?.unwrap_or_default(),
            b'y' => vec![type_letter(stat.file_type)],
            letter => number_text(letter, entry).into_bytes(),
        })
    }
}

/// Numbers, modes and times of an inode.
fn number_text(letter: u8, entry: &Entry<'_>) -> String {
    let stat = entry.stat();
    match letter {
        b's' => stat.size.to_string(),
        b'm' => format!("{:o}", stat.permissions.bits()),
        b'M' => mode_string(stat.mode()),
        b'U' => stat.uid.to_string(),
        b'G' => stat.gid.to_string(),
        b'i' => stat.inode.0.to_string(),
        b'n' => stat.links.to_string(),
        b'd' => entry.depth.to_string(),
        b'k' => stat.blocks.div_ceil(2).to_string(),
        b'b' => stat.blocks.to_string(),
        b'F' => "xfs".into(),
        b'S' => sparseness(stat.blocks, stat.size),
        b'a' => ctime_text(stat.atime),
        b'c' => ctime_text(stat.ctime),
        b't' => ctime_text(stat.mtime),
        _ => String::new(),
    }
}

/// How much of a file is allocated, as printf(3) shows it with `%g`.
fn sparseness(blocks: u64, size: u64) -> String {
    let share = match (blocks, size) {
        (0, 0) => 1.0,
        (_, 0) => return "inf".into(),
        _ => blocks as f64 * 512.0 / size as f64,
    };
    if share != 0.0 && !(1e-4..1e6).contains(&share) {
        let text = format!("{share:.5e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{}e{sign}{exponent:0>2}", without_zeros(digits));
    }
    let whole_digits = if share >= 1.0 { share.log10().floor() as usize + 1 } else { 0 };
    let leading_zeros = if share > 0.0 && share < 1.0 { (-share.log10()).ceil() as usize - 1 } else { 0 };
    without_zeros(&format!("{share:.*}", 6_usize.saturating_sub(whole_digits) + leading_zeros)).to_owned()
}

/// A number with decimals, without the zeros at its end.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// A time in the form of ctime(3), with the fraction of the second that GNU's find has.
fn ctime_text(time: Timestamp) -> String {
    format!("{}.{:09}0 {}", formatted_time(time, "%a %b %e %H:%M:%S"), time.nanoseconds, formatted_time(time, "%Y"))
}

fn time_text(time: Timestamp, how: u8) -> String {
    let same = format!("%{}", char::from(how));
    let (format, has_fraction) = match how {
        b'@' => ("%s", true),
        b'+' => ("%Y-%m-%d+%H:%M:%S", true),
        b'S' => ("%S", true),
        b'T' | b'X' => ("%H:%M:%S", true),
        b'c' => ("%a %b %e %H:%M:%S %Y", false),
        b'x' | b'D' => ("%m/%d/%y", false),
        b'r' => ("%I:%M:%S %p", false),
        b'h' => ("%b", false),
        _ => (same.as_str(), false),
    };
    let text = formatted_time(time, format);
    if has_fraction { format!("{text}.{:09}0", time.nanoseconds) } else { text }
}

fn type_letter(file_type: FileType) -> u8 {
    match file_type {
        FileType::File => b'f',
        FileType::Dir => b'd',
        FileType::Symlink => b'l',
        FileType::CharDevice => b'c',
        FileType::BlockDevice => b'b',
        FileType::Fifo => b'p',
        FileType::Socket => b's',
    }
}

/// The type of what a link leads to; `N` where it leads nowhere, `L` where it leads back to itself.
fn followed_letter(filesystem: &Volume, entry: &Entry<'_>) -> Result<u8> {
    if !entry.stat().file_type.is_symlink() {
        return Ok(type_letter(entry.stat().file_type));
    }
    match entry.followed(filesystem) {
        Ok(stat) => Ok(type_letter(stat.file_type)),
        Err(Error::NotFound | Error::NotADirectory) => Ok(b'N'),
        Err(Error::TooManySymlinks) => Ok(b'L'),
        Err(error) => Err(error).at(entry.path()),
    }
}

/// Where a symbolic link leads.
fn target(filesystem: &Volume, entry: &Entry<'_>) -> Result<Option<Vec<u8>>> {
    if !entry.stat().file_type.is_symlink() {
        return Ok(None);
    }
    filesystem.read_link(entry.stat().inode).map(Some).at(entry.path())
}

/// The line of `-ls`, of a search that began at `now`.
///
/// # Errors
/// Those of reading a link.
pub fn list_line(filesystem: &Volume, owners: &mut Owners, entry: &Entry<'_>, now: i64) -> Result<Vec<u8>> {
    let stat = entry.stat();
    let (user, group) =
        (owners.name(filesystem, List::Users, stat.uid), owners.name(filesystem, List::Groups, stat.gid));
    let size = match device(stat) {
        Some((major, minor)) => format!("{major}, {minor}"),
        None => stat.size.to_string(),
    };
    let is_near = (now - LONG_AGO_SECONDS..=now + 3600).contains(&stat.mtime.seconds);
    let time = formatted_time(stat.mtime, if is_near { "%b %e %H:%M" } else { "%b %e  %Y" });
    let mut line = format!(
        "{:>9} {:>6} {} {:>3} {:<8} {:<8} {size:>8} {time} ",
        stat.inode.0,
        stat.blocks.div_ceil(2),
        mode_string(stat.mode()),
        stat.links,
        String::from_utf8_lossy(&screen::name(&user)),
        String::from_utf8_lossy(&screen::name(&group)),
    )
    .into_bytes();
    line.extend_from_slice(&screen::name(&entry.found.path));
    if let Some(target) = target(filesystem, entry)? {
        line.extend_from_slice(b" -> ");
        line.extend_from_slice(&screen::name(&target));
    }
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_parsed() {
        for wrong in ["%", "%q", "%T", "%Tq", "%99999p", r"\q", "%-", "%A!"] {
            assert!(Format::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
        for right in [r"%p\n%%\0\101\\", "%-20p%5.3f%#m%05m", r"\c%q", "", "\\", "%T@%AY%C+"] {
            assert!(Format::parse(OsStr::new(right)).is_ok(), "{right}");
        }
    }

    #[test]
    fn shares_are_shown_as_by_printf() {
        let shown = [(0, 0), (8, 1), (1, 512), (0, 5), (8, 4097), (1, 10_000_000), (1, 3_000_000)];
        let shown = shown.map(|(blocks, size)| sparseness(blocks, size));
        assert_eq!(shown, ["1", "4096", "1", "0", "0.999756", "5.12e-05", "0.000170667"]);
        assert_eq!(sparseness(1 << 40, 1), "5.6295e+14");
    }
}

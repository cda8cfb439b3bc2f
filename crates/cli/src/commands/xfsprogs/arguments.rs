//! Arguments in the form of getopt(3): single letters that may be joined (`-fq`), values that may be attached
//! (`-Llabel`), and operands anywhere among them.

use crate::output::causes::Usage;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What a program gets one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// A letter without a value.
    Switch(char),
    /// A letter and its value.
    Valued(char, OsString),
    /// A word that begins with `--`, without these.
    Long(OsString),
    /// Anything else.
    Operand(OsString),
}

/// Takes arguments apart. `valued` are the letters that have values, `switches` those that have none.
pub(super) fn parse(
    words: impl IntoIterator<Item = OsString>,
    valued: &str,
    switches: &str,
) -> Result<Vec<Argument>, Usage> {
    let mut words: VecDeque<OsString> = words.into_iter().collect();
    let mut parsed = Vec::new();
    while let Some(word) = words.pop_front() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            parsed.extend(words.drain(..).map(Argument::Operand));
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            parsed.push(Argument::Long(OsStr::from_bytes(long).into()));
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            take_letters(&bytes[1..], valued, switches, &mut words, &mut parsed)?;
        } else {
            parsed.push(Argument::Operand(word));
        }
    }
    Ok(parsed)
}

fn take_letters(
    letters: &[u8],
    valued: &str,
    switches: &str,
    words: &mut VecDeque<OsString>,
    parsed: &mut Vec<Argument>,
) -> Result<(), Usage> {
    for (at, &byte) in letters.iter().enumerate() {
        let letter = char::from(byte);
        if switches.contains(letter) {
            parsed.push(Argument::Switch(letter));
        } else if valued.contains(letter) {
            let attached = &letters[at + 1..];
            let value =
                if attached.is_empty() { words.pop_front() } else { Some(OsString::from_vec(attached.to_vec())) };
            let value = value.ok_or_else(|| Usage(format!("-{letter} needs a value")))?;
            parsed.push(Argument::Valued(letter, value));
            return Ok(());
        } else {
            return Err(Usage(format!("unknown option -{letter}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_join_and_values_attach() {
        let words = ["-fq", "disk", "-Lname", "-m", "crc=1", "--unsupported", "--", "-f"].map(OsString::from);
        let expected = [
            Argument::Switch('f'),
            Argument::Switch('q'),
            Argument::Operand("disk".into()),
            Argument::Valued('L', "name".into()),
            Argument::Valued('m', "crc=1".into()),
            Argument::Long("unsupported".into()),
            Argument::Operand("-f".into()),
        ];
        assert_eq!(parse(words, "Lm", "fq").unwrap(), expected);
        for (wrong, why) in [("-x", "unknown option -x"), ("-fx", "unknown option -x"), ("-m", "-m needs a value")] {
            assert_eq!(parse([wrong.into()], "Lm", "fq").unwrap_err().to_string(), why);
        }
    }
}

//! Patterns for names, as in the shell and fnmatch(3): `*`, `?`, `[a-z]`, `[!a-z]`, and `\` before a character that
//! stands for itself.
//!
//! A character is one of UTF-8, or a byte that is not part of one, so that every name can be matched.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    tokens: Vec<Token>,
    case: Case,
}

/// Whether small and capital letters are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    Counts,
    /// They are.
    IsIgnored,
}

#[derive(Clone, Debug)]
enum Token {
    /// `*`
    Any,
    /// `?`
    One,
    /// A character.
    Char(u32),
    /// `[…]`
    Set { is_negated: bool, ranges: Vec<(u32, u32)> },
}

/// Added to a byte that is not part of a character.
const BYTES_FROM: u32 = 0x11_0000;

fn chars(bytes: &[u8]) -> Vec<u32> {
    let chunks = bytes.utf8_chunks();
    let of_chunk = |chunk: std::str::Utf8Chunk<'_>| -> Vec<u32> {
        let bytes = chunk.invalid().iter().map(|byte| BYTES_FROM + u32::from(*byte));
        chunk.valid().chars().map(u32::from).chain(bytes).collect()
    };
    chunks.flat_map(of_chunk).collect()
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A message for a class of characters such as `[:alpha:]`.
    pub fn parse(text: &OsStr, case: Case) -> Result<Self, String> {
        if text.as_bytes().windows(2).any(|pair| pair == b"[:") {
            return Err("classes of characters such as [:alpha:] are not understood: name a range".into());
        }
        let pattern = chars(text.as_bytes());
        let (mut tokens, mut rest) = (Vec::new(), pattern.as_slice());
        while let [first, after @ ..] = rest {
            rest = after;
            tokens.push(match (char::from_u32(*first), after) {
                (Some('*'), _) => Token::Any,
                (Some('?'), _) => Token::One,
                (Some('\\'), [next, after @ ..]) => {
                    rest = after;
                    Token::Char(*next)
                }
                (Some('['), _) => match set(after) {
                    Some((token, after)) => {
                        rest = after;
                        token
                    }
                    None => Token::Char(*first),
                },
                _ => Token::Char(*first),
            });
        }
        Ok(Self { tokens, case })
    }

    /// Whether a whole name matches.
    pub fn matches(&self, name: &[u8]) -> bool {
        let name = chars(name);
        let (mut token, mut at) = (0, 0);
        // The position after the last star, and where the part that the star matches ends so far.
        let mut star = None;
        while at < name.len() {
            match self.tokens.get(token) {
                Some(Token::Any) => {
                    star = Some((token, at));
                    token += 1;
                }
                Some(one) if one.takes(name[at], self.case) => (token, at) = (token + 1, at + 1),
                _ => {
                    let Some((star_token, end)) = star else { return false };
                    star = Some((star_token, end + 1));
                    (token, at) = (star_token + 1, end + 1);
                }
            }
        }
        self.tokens[token..].iter().all(|token| matches!(token, Token::Any))
    }
}

impl Token {
    fn takes(&self, char: u32, case: Case) -> bool {
        let forms = match case {
            Case::Counts => [char; 3],
            Case::IsIgnored => [char, other_case(char, char::to_lowercase), other_case(char, char::to_uppercase)],
        };
        let is_in = |(first, last): &(u32, u32)| forms.iter().any(|form| (*first..=*last).contains(form));
        match self {
            Self::Any | Self::One => true,
            Self::Char(own) => forms.contains(own),
            Self::Set { is_negated, ranges } => ranges.iter().any(is_in) != *is_negated,
        }
    }
}

/// A character as a small or a capital letter; itself where that is not one character.
fn other_case<C: Iterator<Item = char>>(char: u32, change: impl Fn(char) -> C) -> u32 {
    let mut changed = char::from_u32(char).into_iter().flat_map(change);
    match (changed.next(), changed.next()) {
        (Some(one), None) => one.into(),
        _ => char,
    }
}

/// The set after a bracket, and the text after the set; `None` if the set does not end.
fn set(text: &[u32]) -> Option<(Token, &[u32])> {
    const fn is(char: u32, expected: char) -> bool {
        char == expected as u32
    }
    let is_negated = text.first().is_some_and(|char| is(*char, '!') || is(*char, '^'));
    let mut rest = &text[usize::from(is_negated)..];
    let mut ranges = Vec::new();
    loop {
        let [first, after @ ..] = rest else { return None };
        // A closing bracket at the front stands for itself.
        if is(*first, ']') && !ranges.is_empty() {
            return Some((Token::Set { is_negated, ranges }, after));
        }
        let (first, after) = match after {
            [next, after @ ..] if is(*first, '\\') => (*next, after),
            _ => (*first, after),
        };
        (rest, _) = match after {
            [dash, last, after @ ..] if is(*dash, '-') && !is(*last, ']') => (after, ranges.push((first, *last))),
            _ => (after, ranges.push((first, first))),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_as_by_the_shell() {
        let glob = |pattern: &str, case| Glob::parse(OsStr::new(pattern), case).unwrap();
        let matches = |pattern: &str, name: &[u8]| glob(pattern, Case::Counts).matches(name);
        for (pattern, name) in [
            ("*", &b""[..]),
            ("*.o", b".o"),
            ("a*b*c", b"aXbXbc"),
            ("?", "ä".as_bytes()),
            ("?", b"\xff"),
            ("[a-c]x", b"bx"),
            ("[!a-c]", b"d"),
            ("[]]", b"]"),
            ("[a-]", b"-"),
            (r"\*", b"*"),
            ("[", b"["),
            ("a[b", b"a[b"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name:?}");
        }
        for (pattern, name) in [
            ("", &b"a"[..]),
            ("a", b""),
            ("*.o", b"a.oo"),
            ("[a-c]", b"d"),
            ("[^a]", b"a"),
            (r"\*", b"x"),
            ("??", b"a"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name:?}");
        }
        // A pattern with many stars is matched in reasonable time.
        assert!(!matches(&"*a".repeat(200), &[b'a'; 199]));
        assert!(Glob::parse(OsStr::new("[[:alpha:]]"), Case::Counts).is_err());
        let alike = |pattern: &str, name: &str| glob(pattern, Case::IsIgnored).matches(name.as_bytes());
        assert!(alike("*.TXT", "a.txt") && alike("ä?[b-d]", "ÄßC") && alike("ß", "ß") && alike("[A-C]", "b"));
        assert!(!alike("[!a]", "A") && !alike("[A-C]", "d") && !matches("[A-C]", b"b"));
        assert!(glob("\\xff", Case::IsIgnored).matches(b"XFF") && !alike("a", "b"));
    }
}

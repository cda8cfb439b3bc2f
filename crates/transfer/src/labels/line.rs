//! A line of a file of contexts.

use super::FileKind;
use crate::error::{Result, TransferError};
use regex::bytes::{Regex, RegexBuilder};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Characters that make a pattern of a path.
const SPECIAL: &[u8] = b".^$?*+|[({";
/// Longest expression.
const MAX_BYTES: usize = 64 * 1024;
/// Memory that an expression may take when it is compiled: nearly all take less than the first number; so many of a
/// file may take up to the second.
const SMALL_BYTES: usize = 32 << 10;
const LARGE_BYTES: usize = 1 << 20;
const MAX_LARGE: usize = 256;
/// Memory for what is remembered of earlier matches, of one expression.
const MATCHER_BYTES: usize = 64 << 10;

/// In place of a label: the paths get none.
const NONE: &str = "<<none>>";

/// Whether a text has the form of a label. Which users, roles and types there are is known to the policy alone.
fn is_label(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(4, ':').collect();
    parts.len() >= 3 && parts.iter().all(|part| !part.is_empty())
}

/// A line: which paths get which label.
#[derive(Debug)]
pub(super) struct Spec {
    expression: String,
    /// What a path must begin with to match, as far as it is known without the expression.
    prefix: Vec<u8>,
    kind: Option<FileKind>,
    /// None for `<<none>>`.
    label: Option<Vec<u8>>,
    is_exact: bool,
    /// Compiled when a path begins like it: of the thousands in a file most never are.
    compiled: OnceLock<Result<Regex, String>>,
    file: String,
    line: usize,
}

impl Spec {
    /// Parses a line; `None` for an empty one or a comment. The file and number are for messages.
    pub(super) fn parse(line: &[u8], file: &str, number: usize) -> Result<Option<Self>, String> {
        let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (expression, kind, label) = match fields.as_slice() {
            [_] => return Err("it has no label behind the path".into()),
            [expression, label] => (*expression, None, *label),
            [expression, kind, label] => (*expression, Some(parse_kind(kind)?), *label),
            _ => return Err("it has more than the three fields path, type and label".into()),
        };
        if !expression.starts_with(['/', '.', '^', '(', '[']) {
            return Err(format!("the path {expression} does not begin with a slash"));
        }
        if label != NONE && !is_label(label) {
            return Err(format!("{label}: expected user:role:type, user:role:type:level, or {NONE}"));
        }
        if expression.len() > MAX_BYTES {
            return Err(format!("its expression has more than {MAX_BYTES} bytes"));
        }
        let mut parser = regex_syntax::ParserBuilder::new().utf8(false).unicode(false).build();
        parser.parse(expression).map_err(|error| format!("{expression}: {}", reason(&error)))?;
        Ok(Some(Self {
            prefix: prefix_of(expression),
            is_exact: !has_special(expression),
            expression: expression.to_owned(),
            kind,
            label: (label != NONE).then(|| label.as_bytes().to_vec()),
            compiled: OnceLock::new(),
            file: file.to_owned(),
            line: number,
        }))
    }

    /// Whether the line is for one path only.
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    pub(super) fn label(&self) -> Option<&[u8]> {
        self.label.as_deref()
    }

    /// Whether a path matches. `large` counts the expressions of the file that take much memory.
    pub(super) fn matches(&self, path: &[u8], kind: FileKind, large: &AtomicUsize) -> Result<bool> {
        if self.kind.is_some_and(|own| own != kind) || !path.starts_with(&self.prefix) {
            return Ok(false);
        }
        let compiled = self.compiled.get_or_init(|| {
            // Without a group around it: libselinux puts the same characters before and behind it.
            let mut builder = RegexBuilder::new(&format!("^{}$", self.expression));
            builder.unicode(false).dot_matches_new_line(true).dfa_size_limit(MATCHER_BYTES);
            let small = builder.size_limit(SMALL_BYTES).build();
            let is_large = matches!(small, Err(regex::Error::CompiledTooBig(_)));
            let built = match is_large && large.fetch_add(1, Ordering::Relaxed) < MAX_LARGE {
                true => builder.size_limit(LARGE_BYTES).build(),
                false => small,
            };
            built.map_err(|error| format!("{}: {error}", self.expression))
        });
        match compiled {
            Ok(regex) => Ok(regex.is_match(path)),
            Err(what) => Err(TransferError::BadText { file: self.file.clone(), line: self.line, what: what.clone() }),
        }
    }
}

/// The reason for which an expression is refused, without the drawing of its place.
fn reason(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        other => other.to_string(),
    }
}

fn parse_kind(text: &str) -> Result<FileKind, String> {
    Ok(match text {
        "--" => FileKind::File,
        "-d" => FileKind::Directory,
        "-l" => FileKind::Symlink,
        "-c" => FileKind::Char,
        "-b" => FileKind::Block,
        "-p" => FileKind::Fifo,
        "-s" => FileKind::Socket,
        _ => return Err(format!("the type {text} is none of -- -d -l -c -b -p -s")),
    })
}

/// Whether a character of the expression, one behind a backslash apart, is special.
fn has_special(expression: &str) -> bool {
    let mut bytes = expression.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' {
            bytes.next();
        } else if SPECIAL.contains(&byte) {
            return true;
        }
    }
    false
}

/// The bytes with which everything begins that an expression matches.
fn prefix_of(expression: &str) -> Vec<u8> {
    let bytes = expression.as_bytes();
    // An alternative that is not within a group may match anywhere.
    if expression.contains('|') && has_outer_alternative(bytes) {
        return Vec::new();
    }
    let mut prefix = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = bytes.get(at + 1).filter(|_| byte == b'\\');
        match (byte, escaped) {
            (b'\\', Some(escaped)) if escaped.is_ascii_punctuation() => prefix.push(*escaped),
            (b'\\', _) => break,
            // These may make the character before them occur not at all.
            (b'?' | b'*' | b'{', _) => {
                prefix.pop();
                break;
            }
            (byte, _) if SPECIAL.contains(&byte) => break,
            (byte, _) => prefix.push(byte),
        }
        at += if escaped.is_some() { 2 } else { 1 };
    }
    prefix
}

fn has_outer_alternative(expression: &[u8]) -> bool {
    let (mut depth, mut in_class, mut at) = (0_usize, false, 0);
    while let Some(&byte) = expression.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'(' if !in_class => depth += 1,
            b')' if !in_class => depth = depth.saturating_sub(1),
            b'|' if !in_class && depth == 0 => return true,
            _ => {}
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_expression_is_known() {
        for (expression, prefix) in [
            ("/usr/bin(/.*)?", "/usr/bin"),
            ("/a\\.b", "/a.b"),
            ("/ab?c", "/a"),
            ("/ab{0,1}", "/a"),
            ("/ab+", "/ab"),
            ("/a|/b", ""),
            ("/(a|b)", "/"),
            ("/x[|]y", "/x"),
            ("/a\\d", "/a"),
        ] {
            assert_eq!(String::from_utf8(prefix_of(expression)).unwrap(), prefix, "{expression}");
        }
        assert!(has_special("/a.") && !has_special("/a\\.b\\["));
    }
}

//! The text in which LVM2 stores its metadata.
//!
//! ```text
//! # a comment
//! name {                    a section, with values and sections in it
//!     key = 17              a number, a text in quotes, or a list of them in brackets
//!     stripes = ["pv0", 0]
//! }
//! ```
//! Bounds: sections nest at most [`MOST_DEPTH`] deep, and the text has at most [`MOST_VALUES`] values and sections.
//!
//! Source of facts: lvm.conf(5), and the text that lvm2 writes.

use std::iter::Peekable;
use std::str::CharIndices;

const MOST_DEPTH: usize = 8;
const MOST_VALUES: usize = 1 << 20;

/// A value or a section.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Number(i64),
    Text(String),
    List(Vec<Node>),
    Section(Section),
}

/// The entries of a section, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Section(pub(crate) Vec<(String, Node)>);

impl Section {
    fn get(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, node)| node)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Node::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self, name: &str) -> Option<&[Node]> {
        match self.get(name)? {
            Node::List(list) => Some(list),
            _ => None,
        }
    }

    /// Whether a list of texts has one.
    pub(crate) fn has(&self, name: &str, text: &str) -> bool {
        self.list(name).is_some_and(|list| list.iter().any(|node| matches!(node, Node::Text(t) if t == text)))
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        match self.get(name)? {
            Node::Section(section) => Some(section),
            _ => None,
        }
    }

    /// The sections in this one, with their names.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.0.iter().filter_map(|(name, node)| match node {
            Node::Section(section) => Some((name.as_str(), section)),
            _ => None,
        })
    }
}

struct Parser<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
    values: usize,
}

/// Decodes a text; the error says what is wrong and where.
pub(crate) fn decode(text: &str) -> Result<Section, String> {
    let mut parser = Parser { text, chars: text.char_indices().peekable(), values: 0 };
    parser.section(0)
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        self.chars.peek().map(|(_, c)| *c)
    }

    fn wrong<T>(&mut self, what: &str) -> Result<T, String> {
        let at = self.chars.peek().map_or(self.text.len(), |(at, _)| *at);
        Err(format!("{what} at byte {at} of the text"))
    }

    fn skip_space(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.chars.next();
                }
            } else if c.is_whitespace() {
                self.chars.next();
            } else {
                return;
            }
        }
    }

    fn count(&mut self) -> Result<(), String> {
        self.values += 1;
        if self.values > MOST_VALUES { self.wrong("too many values") } else { Ok(()) }
    }

    /// A section up to its brace, or at depth 0 up to the end of the text.
    fn section(&mut self, depth: usize) -> Result<Section, String> {
        if depth > MOST_DEPTH {
            return self.wrong("sections in sections too deep");
        }
        let mut entries = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                None if depth == 0 => return Ok(Section(entries)),
                None => return self.wrong("a section without an end"),
                Some('}') if depth > 0 => {
                    self.chars.next();
                    return Ok(Section(entries));
                }
                // The text ends with a zero byte.
                Some('\0') if depth == 0 => return Ok(Section(entries)),
                Some(_) => {}
            }
            let key = self.key()?;
            self.count()?;
            self.skip_space();
            match self.peek() {
                Some('{') => {
                    self.chars.next();
                    entries.push((key, Node::Section(self.section(depth + 1)?)));
                }
                Some('=') => {
                    self.chars.next();
                    self.skip_space();
                    let value = self.value()?;
                    entries.push((key, value));
                }
                _ => return self.wrong("neither '=' nor '{'"),
            }
        }
    }

    fn key(&mut self) -> Result<String, String> {
        let mut key = String::new();
        while let Some(c) = self.peek() {
            if !(c.is_ascii_alphanumeric() || "_+.-/".contains(c)) {
                break;
            }
            key.push(c);
            self.chars.next();
        }
        if key.is_empty() { self.wrong("no name") } else { Ok(key) }
    }

    fn value(&mut self) -> Result<Node, String> {
        if self.peek() != Some('[') {
            return self.scalar();
        }
        self.chars.next();
        let mut list = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                Some(']') => {
                    self.chars.next();
                    return Ok(Node::List(list));
                }
                Some(',') => {
                    self.chars.next();
                }
                _ => {
                    self.count()?;
                    list.push(self.scalar()?);
                }
            }
        }
    }

    fn scalar(&mut self) -> Result<Node, String> {
        if self.peek() == Some('"') {
            self.chars.next();
            return self.quoted();
        }
        let mut digits = String::new();
        while let Some(c) = self.peek() {
            if !(c.is_ascii_digit() || "-+.".contains(c)) {
                break;
            }
            digits.push(c);
            self.chars.next();
        }
        match digits.parse() {
            Ok(number) => Ok(Node::Number(number)),
            Err(_) => self.wrong("neither a number nor a text"),
        }
    }

    fn quoted(&mut self) -> Result<Node, String> {
        let mut text = String::new();
        loop {
            match self.chars.next() {
                Some((_, '"')) => return Ok(Node::Text(text)),
                Some((_, '\\')) => match self.chars.next() {
                    Some((_, c)) => text.push(c),
                    None => return self.wrong("a text without an end"),
                },
                Some((_, c)) => text.push(c),
                None => return self.wrong("a text without an end"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lists_and_sections() {
        let section =
            decode("# x\nvg {\nseqno = 3\nid = \"a\\\"b\" # end\nflags = [] s = [\"pv0\", 0]\nin { x = -1 } }\n\0");
        let section = section.unwrap();
        let vg = section.section("vg").unwrap();
        assert_eq!((vg.number("seqno"), vg.text("id")), (Some(3), Some("a\"b")));
        assert_eq!(vg.list("flags"), Some(&[][..]));
        assert!(vg.has("s", "pv0") && vg.section("in").unwrap().number("x").is_none());
    }

    #[test]
    fn broken_texts_are_refused() {
        for text in
            ["a", "a {", "a = ", "a = [1", "a = \"b", "= 3", "a = x", "a { b = 1 ", "}", "a = 99999999999999999999"]
        {
            assert!(decode(text).is_err(), "{text}");
        }
        assert!(decode(&"a {".repeat(100_000)).is_err());
        assert!(decode(&"a=1 ".repeat(MOST_VALUES + 1)).is_err());
    }
}

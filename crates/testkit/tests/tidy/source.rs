//! The Rust files of the tree, and what is code in them.

use std::fs;
use std::path::{Path, PathBuf};

/// The top of the tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the top of the tree")
}

/// Every file below a folder that is no build output, sorted.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the tree") {
            let entry = entry.expect("an entry of a folder");
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().expect("the type of an entry");
            if kind.is_dir() && name != "target" && name != ".git" {
                folders.push(path);
            } else if kind.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The folders of the crates.
pub fn crates() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("crates")).expect("the folder of the crates");
    let mut found: Vec<_> = entries.map(|entry| entry.expect("an entry of a folder").path()).collect();
    found.retain(|path| path.join("Cargo.toml").exists());
    found.sort();
    found
}

/// A Rust file.
pub struct Source {
    pub path: PathBuf,
    /// The path from the top of the tree.
    pub name: String,
    pub text: String,
    /// The text with comments, strings and characters as spaces: each line is where it was.
    pub code: String,
    /// The same without unit tests.
    pub shipped: String,
}

impl Source {
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a Rust file");
        let name = path.strip_prefix(root()).expect("a file of the tree").display().to_string();
        let code = code_of(&text);
        let shipped = without_tests(&code);
        Self { path: path.to_owned(), name, text, code, shipped }
    }
}

/// Every Rust file of the tree.
pub fn sources() -> Vec<Source> {
    let mut files = files_below(&root().join("crates"));
    files.extend(files_below(&root().join("fuzz")));
    files.iter().filter(|path| path.extension().is_some_and(|it| it == "rs")).map(|path| Source::read(path)).collect()
}

/// The Rust files of a crate's library or program, with their paths from `src`.
pub fn sources_of(krate: &Path) -> Vec<(String, Source)> {
    let src = krate.join("src");
    let files = files_below(&src).into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let below_src = |path: &Path| path.strip_prefix(&src).expect("a file below src").display().to_string();
    files.map(|path| (below_src(&path), Source::read(&path))).collect()
}

/// Whether a byte may be part of a name.
pub fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where comments, strings and characters are spaces.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + literal_bytes(bytes, at);
        for byte in code[at..end].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
        at = end.max(at + 1);
    }
    String::from_utf8(code).expect("what is not blanked is whole characters")
}

/// The length of the comment, string or character that begins here; 0 where none does.
fn literal_bytes(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let is_within_name = at > 0 && is_of_name(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_bytes(rest),
        [b'r', b'"' | b'#', ..] if !is_within_name => raw_string_bytes(rest, 1),
        [b'b', b'r', b'"' | b'#', ..] if !is_within_name => raw_string_bytes(rest, 2),
        [b'"', ..] => quoted_bytes(rest, b'"'),
        [b'\'', b'\\', ..] => quoted_bytes(rest, b'\''),
        // A character has its end within five bytes; a lifetime has none.
        [b'\'', ..] => {
            let width = std::str::from_utf8(&rest[1..rest.len().min(5)])
                .map_or_else(|error| error.valid_up_to(), str::len)
                .min(4);
            let first = std::str::from_utf8(&rest[1..=width]).ok().and_then(|text| text.chars().next());
            let length = first.map_or(0, char::len_utf8);
            if length > 0 && rest.get(1 + length) == Some(&b'\'') { length + 2 } else { 0 }
        }
        _ => 0,
    }
}

fn block_comment_bytes(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// A string from the first `#` or quote, which `prefix` bytes precede. 0 for a raw name like `r#type`.
fn raw_string_bytes(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let start = prefix + hashes + 1;
    if rest.get(start - 1) != Some(&b'"') {
        return 0;
    }
    let end = [&b"\""[..], &b"#".repeat(hashes)].concat();
    let length = rest[start..].windows(end.len()).position(|bytes| bytes == end);
    length.map_or(rest.len(), |length| start + length + end.len())
}

fn quoted_bytes(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Behind the brace that closes the one at `open`.
pub fn end_of_block(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The code with unit tests, and items for tests alone, as spaces.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = code.as_bytes().to_vec();
    for (at, _) in code.match_indices(MARK) {
        let rest = &code[at + MARK.len()..];
        let Some(first) = rest.find([';', '{']) else { continue };
        let open = at + MARK.len() + first;
        let end = if code.as_bytes()[open] == b'{' { end_of_block(code, open) } else { open + 1 };
        for byte in kept[at..end].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
    }
    String::from_utf8(kept).expect("what is not blanked is whole characters")
}

#[test]
fn what_is_no_code_is_blanked() {
    let text = "a /* b /* c */ d */ 'x' \"y\\\"z\" r#\"{\"# 'l: b'{' r#type '\\'' // e\n\"é\" 'é'";
    let code = code_of(text);
    assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "'l:", "b", "r#type"]);
    assert_eq!((code.len(), code.matches('\n').count()), (text.len(), 1));
    let tested = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n#[cfg(test)]\nmod more;\nfn c() {}\n";
    assert_eq!(without_tests(tested).split_whitespace().collect::<Vec<_>>(), ["fn", "a()", "{}", "fn", "c()", "{}"]);
}

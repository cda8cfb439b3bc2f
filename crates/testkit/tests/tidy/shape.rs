//! Sizes that a reader can hold: lines within 120 columns, functions within 70 lines, files within 600.

use crate::source::{end_of_block, files_below, is_of_name, root, sources};
use std::fs;

const MOST_COLUMNS: usize = 120;
const MOST_LINES_OF_FUNCTION: usize = 70;
const MOST_LINES_OF_FILE: usize = 600;

/// Files with longer lines, and why.
const WIDE: &[(&str, &str)] = &[
    ("docs/results.md", "generated"),
    ("crates/xfskit/public-api.txt", "generated"),
    ("CHANGELOG.md", "an entry may be one line"),
];

/// Whether people write and read a file as text.
fn is_text(name: &str) -> bool {
    let is_written = ["rs", "md", "toml", "sh", "css", "txt"].iter().any(|end| name.ends_with(&format!(".{end}")));
    let is_script = name.starts_with("scripts/") || name == "Makefile";
    (is_written || is_script) && !name.starts_with("fuzz/corpus/") && !name.starts_with("packaging/third-party/")
}

#[test]
fn lines_have_at_most_120_columns() {
    let root = root();
    let mut found = Vec::new();
    for path in files_below(&root) {
        let name = path.strip_prefix(&root).expect("a file of the tree").display().to_string();
        if !is_text(&name) || WIDE.iter().any(|(wide, _)| *wide == name) {
            continue;
        }
        // A script is text whatever it is called, and a file that is none has no lines.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let wide = text.lines().enumerate().filter(|(_, line)| line.chars().count() > MOST_COLUMNS);
        // A link cannot be broken, nor a row of a table.
        let may_break = |line: &str| !name.ends_with(".md") || !(line.contains("](") || line.starts_with('|'));
        found.extend(wide.filter(|(_, line)| may_break(line)).map(|(at, _)| format!("{name}:{}", at + 1)));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Each function of some code: its name, its first line, and how many lines it has.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let name = code[at + 3..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        if code[..at].bytes().last().is_some_and(is_of_name) || name.is_empty() {
            continue;
        }
        // A declaration without a body ends with a semicolon; an array in a signature has one within brackets.
        let mut depth = 0;
        let body = code[at..].bytes().position(|byte| {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth -= 1,
                _ => {}
            }
            depth == 0 && (byte == b'{' || byte == b';')
        });
        let Some(open) = body.map(|body| at + body).filter(|open| code.as_bytes()[*open] == b'{') else { continue };
        let lines = code[at..end_of_block(code, open)].lines().count();
        found.push((name, code[..at].matches('\n').count() + 1, lines));
    }
    found
}

/// Longer functions, and why.
const LONG: &[(&str, &str)] = &[
    ("open_at", "the opening of a mount in its order; a value for what is gathered meanwhile will cut it"),
    ("summary", "command: one line of `info` after the other"),
    ("of_cause", "command: goes when an error has its kind from where it is made"),
];

#[test]
fn functions_have_at_most_70_lines() {
    let mut found = Vec::new();
    for source in sources() {
        for (name, at, lines) in functions(&source.code).into_iter().filter(|it| it.2 > MOST_LINES_OF_FUNCTION) {
            if LONG.iter().any(|(long, _)| *long == name) {
                continue;
            }
            found.push(format!("{}:{at}: {name} has {lines} lines", source.name));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn files_have_at_most_600_lines() {
    let long = |name: &str, text: &str| (text.lines().count() > MOST_LINES_OF_FILE).then(|| name.to_owned());
    let found: Vec<_> = sources().iter().filter_map(|source| long(&source.name, &source.text)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_function_ends_where_its_body_does() {
    let code = "fn a(b: [u8; 4]) {\n    if c {\n    }\n}\ntrait T {\n    fn d();\n}\nfn e() {}\n";
    assert_eq!(functions(code), [("a", 1, 4), ("e", 8, 1)]);
}

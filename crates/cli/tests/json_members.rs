//! The members of JSON that docs/scripts.md lists: those that commands print, no more and no less.

mod common;

use common::{ok, with_input};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Paths of all members, as the table writes them. What the test has no example of ends with its list.
fn members(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                members(value, &at, found);
            }
        }
        Value::Array(list) if list.iter().all(|value| value.is_object()) && !list.is_empty() => {
            list.iter().for_each(|value| members(value, &format!("{at}[]"), found));
        }
        Value::Array(_) if !at.is_empty() && !at.ends_with("device") => drop(found.insert(format!("{at}[]"))),
        _ => drop(found.insert(at.to_owned())),
    }
}

/// The rows of the table: for each command the members that are always there, and those that may be.
fn documented() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scripts.md");
    let page = fs::read_to_string(page).unwrap();
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.trim_matches('|').split(" | ");
        let (commands, text) = (cells.next().unwrap(), cells.next().unwrap());
        let quoted = |text: &str, sort: &dyn Fn(&str) -> bool| -> BTreeSet<String> {
            let words = text.split_whitespace().filter(|word| sort(word));
            words.map(|word| word.trim_matches(['(', ')', '`', ',']).to_owned()).collect()
        };
        let always = quoted(text, &|word| word.starts_with('`'));
        let sometimes = quoted(text, &|word| word.starts_with("(`"));
        for command in commands.split(',') {
            let command = command.trim().trim_matches('`').to_owned();
            rows.insert(command, (always.clone(), sometimes.clone()));
        }
    }
    rows
}

#[test]
fn the_page_lists_what_commands_print() {
    let scratch = xfskit_testkit::scratch();
    let image = common::image(&scratch);
    assert!(with_input("write IMAGE /f", &image, b"text").status.success());
    for line in ["ln -s IMAGE f /l", "mknod IMAGE /n c 1 3", "mkdir IMAGE /d", "xattr set IMAGE /f user.a b"] {
        ok(line, &image);
    }
    let examples = [
        ("ls", "ls IMAGE"),
        ("find", "find IMAGE"),
        ("tree", "tree IMAGE"),
        ("stat", "stat IMAGE /f"),
        ("stat", "stat IMAGE /n"),
        ("df", "df IMAGE"),
        ("du", "du IMAGE"),
        ("readlink", "readlink IMAGE /l"),
        ("parents", "parents IMAGE /f"),
        ("path", "path IMAGE 131"),
        ("xattr list", "xattr list IMAGE /f"),
        ("xattr get", "xattr get IMAGE /f user.a"),
        ("xattr dump", "xattr dump IMAGE /f"),
        ("info", "info IMAGE"),
        ("check", "check IMAGE"),
        ("log print", "log print IMAGE"),
        ("admin label", "admin label IMAGE"),
        ("admin uuid", "admin uuid IMAGE"),
        ("admin trim", "admin trim IMAGE"),
        ("admin grow", "admin grow IMAGE 600M"),
        ("log replay", "log replay IMAGE"),
        ("mkfs", "mkfs -f IMAGE --size 300M"),
    ];
    let rows = documented();
    let mut shown = BTreeSet::new();
    for (command, line) in examples {
        shown.insert(command);
        let output = ok(&format!("--json {line}"), &image);
        let (always, sometimes) = &rows[command];
        let whole: Vec<Value> = match serde_json::from_str(&output) {
            Ok(value) => vec![value],
            Err(_) => output.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        };
        for value in &whole {
            let mut found = BTreeSet::new();
            match value {
                Value::Array(list) => list.iter().for_each(|value| members(value, "[]", &mut found)),
                value => members(value, "", &mut found),
            }
            let unlisted: Vec<_> =
                found.iter().filter(|name| !always.contains(*name) && !sometimes.contains(*name)).collect();
            assert!(unlisted.is_empty(), "{line} prints what the page does not list: {unlisted:?}");
            let missing: Vec<_> = always.iter().filter(|name| !found.contains(*name)).collect();
            assert!(missing.is_empty(), "{line} lacks what the page lists: {missing:?}");
        }
    }
    let without: Vec<_> = rows.keys().filter(|name| !shown.contains(name.as_str())).collect();
    assert!(without.is_empty(), "no example of {without:?}");
}

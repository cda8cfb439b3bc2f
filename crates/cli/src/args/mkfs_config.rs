//! Configuration files of mkfs.xfs (`-c options=FILE`, `-c defaults=FILE`), such as the `lts_*.conf` that xfsprogs
//! installs.
//!
//! ```text
//! # a comment
//! [metadata]
//! reflink=1        ; a comment after a blank
//! ```
//! Sections are named; each line of one is a sub-option of the letter that belongs to it.

use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Letters of mkfs.xfs and the names of their sections.
const SECTIONS: [(char, &str); 9] = [
    ('b', "block"),
    ('d', "data"),
    ('i', "inode"),
    ('l', "log"),
    ('m', "metadata"),
    ('n', "naming"),
    ('p', "proto"),
    ('r', "realtime"),
    ('s', "sector"),
];
/// The files of xfsprogs have less than 1 KiB.
const MAX_BYTES: u64 = 1 << 20;

/// The files that `-c` names.
#[derive(Debug, Default)]
pub struct Files {
    /// What it says counts as if it stood on the command line.
    pub options: Option<PathBuf>,
    /// What it says counts where nothing else says it.
    pub defaults: Option<PathBuf>,
}

impl Files {
    /// Takes what one `-c` says.
    pub fn take(&mut self, list: &str) -> Result<(), Usage> {
        for item in list.split(',') {
            let place = match item.split_once('=') {
                Some(("options", path)) if !path.is_empty() => (&mut self.options, path),
                Some(("defaults", path)) if !path.is_empty() => (&mut self.defaults, path),
                Some(("makecfg", _)) => {
                    let why = "no configuration file is written here; xfs_db's makecfg writes one of an image";
                    return Err(Usage(format!("-c {item}: {why}")));
                }
                _ => return Err(Usage(format!("-c {item}: expected options=FILE or defaults=FILE"))),
            };
            if place.0.replace(place.1.into()).is_some() {
                return Err(Usage("-c: one configuration file of each kind only".into()));
            }
        }
        Ok(())
    }
}

/// The file that `-c options=` names.
pub fn path_of(list: &str) -> Result<PathBuf, Usage> {
    let mut files = Files::default();
    files.take(list)?;
    match files {
        Files { options: Some(path), defaults: None } => Ok(path),
        _ => Err(Usage(format!("-c {list}: expected options=FILE"))),
    }
}

/// Reads a file: letters, each with one sub-option.
pub fn read(path: &Path) -> Result<Vec<(char, String)>> {
    let shown = || path.display().to_string();
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(shown)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).with_context(shown)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Usage(format!("{}: it is no configuration file: it has more than 1 MiB", shown())).into());
    }
    parse(&text).map_err(|(line, what)| Usage(format!("{}: line {line}: {what}", shown())).into())
}

/// Takes a file apart; an error has the number of its line.
fn parse(text: &str) -> Result<Vec<(char, String)>, (usize, String)> {
    let mut section = None;
    let mut parsed = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = without_comment(line);
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| (number, "a section without ]".into()))?;
            let known = SECTIONS.iter().find(|(_, known)| *known == name);
            section = Some(known.ok_or_else(|| (number, format!("unknown section [{name}]")))?.0);
            continue;
        }
        let letter = section.ok_or_else(|| (number, "an option before the first section".into()))?;
        let (name, value) = line.split_once('=').ok_or_else(|| (number, format!("expected {line}=VALUE")))?;
        let (name, value) = (name.trim_end(), value.trim_start());
        if name.contains(',') || value.contains(',') {
            return Err((number, "expected one option in a line".into()));
        }
        parsed.push((letter, format!("{name}={value}")));
    }
    Ok(parsed)
}

/// A line without blanks at its ends and without a comment: a whole line, or what follows a blank and a semicolon.
fn without_comment(line: &str) -> &str {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return "";
    }
    let end = line.as_bytes().windows(2).position(|pair| pair[0].is_ascii_whitespace() && pair[1] == b';');
    line[..end.unwrap_or(line.len())].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_become_letters() {
        let text = "# lts\n[metadata]\nreflink = 0   ; off\n\n[inode]\nsparse=1\n";
        assert_eq!(parse(text).unwrap(), [('m', "reflink=0".to_owned()), ('i', "sparse=1".to_owned())]);
        let wrong = [
            ("reflink=1", 1, "before the first section"),
            ("[metadata]\nreflink", 2, "expected reflink=VALUE"),
            ("[colour]", 1, "unknown section [colour]"),
            ("[metadata", 1, "without ]"),
            ("[data]\nsu=64k,sw=2", 2, "one option"),
        ];
        for (text, line, what) in wrong {
            let (number, why) = parse(text).unwrap_err();
            assert!(number == line && why.contains(what), "{text:?}: line {number}: {why}");
        }
    }

    #[test]
    fn only_a_file_with_options_is_taken() {
        assert_eq!(path_of("options=/etc/a.conf").unwrap(), Path::new("/etc/a.conf"));
        for wrong in ["options=", "makecfg=a", "a.conf", "options=a,defaults=b"] {
            assert!(path_of(wrong).is_err(), "{wrong}");
        }
    }
}

//! The lines of mtree(5).
//!
//! A name with a slash is a path from the root; one without is a name in the directory that was entered last, which a
//! line with `type=dir` does and a line `..` leaves. Blanks and others are written `\040`, as vis(3) does.

use super::entry::Entry;
use crate::event::MAX_TEXT_PATH_BYTES;
use std::collections::HashSet;

/// The number of a line, the path in it, and what is said of that.
type Numbered = (usize, Vec<u8>, Entry);

/// Most bytes that are kept of a manifest: millions of paths. A short line may stand for much, since `/set` is for all
/// that follow, and a name lies in the directories that were entered before.
const MAX_KEPT_BYTES: usize = 1 << 30;

/// Parses a manifest. An error has the number of its line.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Numbered>, (usize, String)> {
    let mut entries = Vec::new();
    let mut defaults = Entry::default();
    let mut dir: Vec<Vec<u8>> = Vec::new();
    let mut kept_bytes = 0;
    for (number, line) in lines(text) {
        let bad = |what: String| (number, what);
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(first) = words.next() else { continue };
        match first {
            b"/set" => take_all(&mut defaults, words).map_err(bad)?,
            b"/unset" => words.for_each(|word| defaults.drop(&String::from_utf8_lossy(word))),
            b".." => drop(dir.pop().ok_or_else(|| bad(".. leads out of the tree".into()))?),
            _ => {
                let name = decode(first).map_err(bad)?;
                let mut entry = defaults.clone();
                take_all(&mut entry, words).map_err(bad)?;
                let path = if name.contains(&b'/') { name.clone() } else { join(&dir, &name) };
                let path = clean(&path).map_err(bad)?;
                kept_bytes += size_of::<Numbered>() + path.len() + entry.bytes();
                if kept_bytes > MAX_KEPT_BYTES {
                    return Err(bad(format!(
                        "the lines so far say more than the {MAX_KEPT_BYTES} bytes that are kept"
                    )));
                }
                // A name without a slash that is a directory is entered, but for the root, whose names are its own.
                let is_entered = !name.contains(&b'/') && entry.file_type == Some(crate::event::FileKind::Directory);
                if is_entered && name != b"." {
                    dir.push(name);
                }
                entries.push((number, path, entry));
            }
        }
    }
    Ok(entries)
}

/// Lines with the number of their beginning: without comments, and joined where one ends with a backslash.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    let mut single = (1..).zip(text.split(|&byte| byte == b'\n')).map(|(number, line)| (number, line.trim_ascii()));
    std::iter::from_fn(move || {
        let (number, first) = single.by_ref().find(|(_, line)| !line.starts_with(b"#"))?;
        let mut whole = first.to_vec();
        while let Some(open) = whole.strip_suffix(b"\\").map(<[u8]>::len) {
            whole.truncate(open);
            let Some((_, line)) = single.next() else { break };
            whole.push(b' ');
            whole.extend_from_slice(line);
        }
        Some((number, whole))
    })
}

fn take_all<'a>(entry: &mut Entry, words: impl Iterator<Item = &'a [u8]>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for word in words {
        let equals = word.iter().position(|&byte| byte == b'=');
        let (key, value) = equals.map_or((word, None), |at| (&word[..at], Some(&word[at + 1..])));
        let key = std::str::from_utf8(key).map_err(|_| "a keyword that is not UTF-8".to_owned())?;
        let value = value.map(decode).transpose()?;
        // Both spellings of an attribute are the same.
        let name = key.strip_prefix("xattrs.").map_or_else(|| key.to_owned(), |name| format!("xattr.{name}"));
        if !seen.insert(name) {
            return Err(format!("{key} stands in the line twice"));
        }
        entry.take(key, value.as_deref())?;
    }
    Ok(())
}

fn join(dir: &[Vec<u8>], name: &[u8]) -> Vec<u8> {
    let mut path = dir.join(&b'/');
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// A path without empty and `.` components.
fn clean(path: &[u8]) -> Result<Vec<u8>, String> {
    if path.len() > MAX_TEXT_PATH_BYTES {
        let beginning = String::from_utf8_lossy(&path[..60]);
        return Err(format!("{beginning}...: a path of {} bytes; {MAX_TEXT_PATH_BYTES} are the most", path.len()));
    }
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&&b".."[..]) {
        return Err(format!("{}: a path with \"..\" leads out of the tree", String::from_utf8_lossy(path)));
    }
    Ok(parts.join(&b'/'))
}

/// Decodes `\040` and the escapes of C.
fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    let wrong = || format!("{}: a backslash that begins nothing known", String::from_utf8_lossy(text));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte != b'\\' {
            decoded.push(byte);
            continue;
        }
        let digits = text.get(at..at + 3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        if let Some(digits) = digits {
            let number = digits.iter().fold(0_u32, |number, digit| number * 8 + u32::from(digit - b'0'));
            decoded.push(u8::try_from(number).map_err(|_| wrong())?);
            at += 3;
            continue;
        }
        decoded.push(match text.get(at) {
            Some(b'\\') => b'\\',
            Some(b's') => b' ',
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'#') => b'#',
            _ => return Err(wrong()),
        });
        at += 1;
    }
    if decoded.contains(&0) { Err(wrong()) } else { Ok(decoded) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_of_paths_are_read() {
        let text = b"#mtree\n/set uid=3\n. type=dir\n  usr type=dir\n    a\\040b mode=0600\n  ..\netc type=dir \\\n\
            \x20mode=700\n..\n./opt/x gid=4\n";
        let paths: Vec<_> = parse(text).unwrap().into_iter().map(|(line, path, _)| (line, path)).collect();
        let expected: [(usize, &[u8]); 5] = [(3, b""), (4, b"usr"), (5, b"usr/a b"), (7, b"etc"), (10, b"opt/x")];
        assert_eq!(paths, expected.map(|(line, path)| (line, path.to_vec())));
        assert_eq!(parse(b"..\n").unwrap_err().0, 1);
        assert!(parse(b"./a\\9\n").is_err() && parse(b"./a\\000\n").is_err());
    }
}

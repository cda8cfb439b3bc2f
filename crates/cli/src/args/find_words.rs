//! Which arguments of `find` are words of its expression. The others are the command's own, and go to clap.

use super::find_refused::Follows;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Words without an argument.
const ALONE: [&str; 26] = [
    "a",
    "and",
    "o",
    "or",
    "not",
    "true",
    "false",
    "empty",
    "nouser",
    "nogroup",
    "daystart",
    "depth",
    "d",
    "xdev",
    "mount",
    "noleaf",
    "ignore_readdir_race",
    "noignore_readdir_race",
    "warn",
    "nowarn",
    "P",
    "print",
    "print0",
    "ls",
    "prune",
    "quit",
];
/// Words with one.
const WITH_ONE: [&str; 33] = [
    "name",
    "iname",
    "path",
    "wholename",
    "ipath",
    "iwholename",
    "lname",
    "ilname",
    "type",
    "xtype",
    "size",
    "perm",
    "user",
    "group",
    "uid",
    "gid",
    "links",
    "inum",
    "samefile",
    "newer",
    "anewer",
    "cnewer",
    "mtime",
    "atime",
    "ctime",
    "mmin",
    "amin",
    "cmin",
    "xattr",
    "context",
    "maxdepth",
    "mindepth",
    "printf",
];
/// Options of the command whose value is the next argument.
const VALUES: [&str; 2] = ["--wait", "--logdev"];

/// The name of a word, without its dashes.
pub fn name(word: &OsStr) -> Option<&str> {
    let text = word.to_str()?;
    let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
    (!name.is_empty()).then_some(name)
}

/// What follows a word; `None` for one that find(1) does not know.
pub fn follows(name: &str) -> Option<Follows> {
    if ALONE.contains(&name) {
        Some(Follows::Nothing)
    } else if WITH_ONE.contains(&name) || name.len() == "newerXY".len() && name.starts_with("newer") {
        Some(Follows::One)
    } else {
        super::find_refused::follows(name).or((name == "exec").then_some(Follows::Command))
    }
}

/// Whether a word is an operator that is no option.
pub fn is_sign(word: &OsStr) -> bool {
    ["(", ")", "!", ","].iter().any(|sign| word == *sign)
}

/// Where the command that begins at a word ends: at `;`, or at the `+` behind `{}`.
pub fn command_end(words: &[OsString], begin: usize) -> Option<usize> {
    let ends = |at: &usize| words[*at] == ";" || words[*at] == "+" && *at > begin && words[*at - 1] == "{}";
    (begin..words.len()).find(ends)
}

/// The place of the word `find` in the program's arguments, if that is the command.
pub fn position(args: &[OsString]) -> Option<usize> {
    let is_command = |at: &usize| !args[*at].as_bytes().starts_with(b"-") && args[at - 1] != "--wait";
    (1..args.len()).find(is_command).filter(|at| args[*at] == "find")
}

/// What stands behind `find`, taken apart: what is the command's own, and the words of the expression. Options may
/// have two dashes, and then `=` before the argument; options of the command may stand anywhere.
pub fn split(args: &[OsString]) -> (Vec<OsString>, Vec<OsString>) {
    let (mut own, mut expression) = (Vec::new(), Vec::new());
    let (mut at, mut operands) = (0, 0);
    while let Some(arg) = args.get(at) {
        at += 1;
        if arg == "--" {
            own.extend_from_slice(&args[at - 1..]);
            break;
        }
        let (word, value) = with_value(arg);
        match name(&word).and_then(follows) {
            Some(follows) => {
                let end = match follows {
                    _ if value.is_some() => at,
                    Follows::Nothing => at,
                    Follows::One => at + 1,
                    Follows::Command => command_end(args, at).map_or(args.len(), |end| end + 1),
                };
                let end = end.min(args.len());
                expression.push(word);
                expression.extend(value);
                expression.extend_from_slice(&args[at..end]);
                at = end;
            }
            None if is_sign(arg) || is_unknown(arg) => expression.push(arg.clone()),
            None if arg.as_bytes().starts_with(b"-") => {
                own.push(arg.clone());
                if VALUES.iter().any(|option| arg == *option) {
                    own.extend(args.get(at).cloned());
                    at += 1;
                }
            }
            // Behind the expression only what looks like a path of the image is one: a pattern that the shell has
            // replaced by names does not.
            None if expression.is_empty() || operands == 0 || is_path(arg) => {
                own.push(arg.clone());
                operands += 1;
            }
            None => expression.push(arg.clone()),
        }
    }
    (own, expression)
}

/// A word and its value, where that is behind `=` in the same argument.
fn with_value(arg: &OsStr) -> (OsString, Option<OsString>) {
    let bytes = arg.as_bytes();
    let equals = bytes.iter().position(|&byte| byte == b'=').filter(|_| bytes.starts_with(b"--"));
    match equals {
        Some(at) if name(OsStr::from_bytes(&bytes[..at])).and_then(follows) == Some(Follows::One) => {
            (OsStr::from_bytes(&bytes[..at]).into(), Some(OsStr::from_bytes(&bytes[at + 1..]).into()))
        }
        _ => (arg.into(), None),
    }
}

/// Whether an argument is an option that find(1) might have: one dash and a word. The message is then about all of it.
fn is_unknown(arg: &OsStr) -> bool {
    let word = arg.as_bytes().strip_prefix(b"-").unwrap_or_default();
    word.len() > 1 && word[0].is_ascii_lowercase() && word[1..].iter().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_path(arg: &OsStr) -> bool {
    arg.as_bytes().starts_with(b"/") || arg.as_bytes().starts_with(b"inode:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_expression_are_told_from_the_command_s_own() {
        let split = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let (own, expression) = split(&args);
            let text = |words: &[OsString]| words.join(OsStr::new(" ")).into_string().unwrap();
            (text(&own), text(&expression))
        };
        for (line, own, expression) in [
            ("a.img", "a.img", ""),
            ("a.img / -name *.c -o -type f", "a.img /", "-name *.c -o -type f"),
            ("--wait 3 a.img ( -name --json ) --json", "--wait 3 a.img --json", "( -name --json )"),
            ("--name=x a.img --size=-3M /etc", "a.img /etc", "--name x --size -3M"),
            ("a.img -exec rm -rf {} + -print", "a.img", "-exec rm -rf {} + -print"),
            ("a.img -exec a + {} ; --json", "a.img --json", "-exec a + {} ;"),
            ("a.img -name a.conf b.conf", "a.img", "-name a.conf b.conf"),
            ("a.img -mtim 3", "a.img", "-mtim 3"),
            ("a.img --maxdept 3", "a.img --maxdept 3", ""),
            ("a.img -name", "a.img", "-name"),
            ("-h", "-h", ""),
            ("-- -a.img -name", "-- -a.img -name", ""),
        ] {
            assert_eq!(split(line), (own.to_owned(), expression.to_owned()), "{line}");
        }
    }
}

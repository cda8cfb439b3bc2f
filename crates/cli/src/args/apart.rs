//! Both ways to write a path in an image: `IMAGE /PATH`, and `IMAGE:/PATH` as for `cp`.
//!
//! The parser knows the first. An operand of the second form is taken apart before it parses: the image becomes the
//! first operand of the command, and the paths stay where they are.
//!
//! ```text
//! cat a.img:/etc/motd             cat a.img /etc/motd
//! mv a.img:/a a.img:/b            mv a.img /a /b
//! chmod 600 a.img:/etc/shadow     chmod a.img 600 /etc/shadow
//! ```
//! A file of the host that is named like that comes first, as for `cp`.

use crate::exit::Usage;
use crate::operand;
use clap::Command;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Names of operands that are paths in the image.
const PATHS: [&str; 6] = ["path", "paths", "from", "to", "target", "dir"];

/// An operand `IMAGE:/PATH`, or `IMAGE:` for the root: what is before the colon, and behind it. `None` for everything
/// else, and for what exists on the host.
pub fn split(text: &OsStr) -> Option<(PathBuf, OsString)> {
    let bytes = text.as_bytes();
    let scheme = crate::network::scheme_bytes(bytes);
    let slash = bytes[scheme..].windows(2).position(|pair| pair == b":/").map(|colon| scheme + colon);
    let colon = slash.or(bytes.strip_suffix(b":").map(<[u8]>::len)).filter(|colon| *colon > 0)?;
    if std::fs::symlink_metadata(text).is_ok() {
        return None;
    }
    let (image, path) = (&bytes[..colon], &bytes[colon + 1..]);
    let path = if path.is_empty() { b"/" } else { path };
    Some((OsStr::from_bytes(image).into(), OsStr::from_bytes(path).into()))
}

/// As [`split`], where the part before the colon is an image, as far as that can be seen without opening it.
fn of_image(text: &OsStr) -> Option<(PathBuf, OsString)> {
    let there_is = |file: &PathBuf| crate::network::is_address(file) || file.exists();
    split(text).filter(|(image, _)| operand::files(image).iter().all(there_is))
}

/// The arguments of the program with the images apart from their paths.
///
/// # Errors
/// `Usage` for paths in several images.
pub fn with_images_apart(mut args: Vec<OsString>, mut command: Command) -> Result<Vec<OsString>, Usage> {
    command.build();
    let (mut at, mut operands) = (1, Vec::new());
    let mut called = &command;
    while let Some(arg) = args.get(at) {
        at += 1;
        if arg == "--" {
            operands.extend(at..args.len());
            break;
        }
        if takes_next(called, arg) {
            at += 1;
        } else if !arg.as_bytes().starts_with(b"-") || arg == "-" {
            match called.find_subcommand(arg) {
                Some(below) if operands.is_empty() => called = below,
                _ => operands.push(at - 1),
            }
        }
    }
    let known: Vec<&str> = called.get_positionals().map(|operand| operand.get_id().as_str()).collect();
    if known.first() != Some(&"image") {
        return Ok(args);
    }
    if known.len() == 1 {
        // The root stands for the whole image.
        for at in operands {
            if let Some((image, _)) = of_image(&args[at]).filter(|(_, path)| path == "/") {
                args[at] = image.into();
            }
        }
        return Ok(args);
    }
    let is_path = |number: usize| {
        let id = known[number.min(known.len() - 1)];
        PATHS.contains(&id) || id == "name" && called.get_name() == "ln"
    };
    let apart = |number: usize, at: usize| if is_path(number) { of_image(&args[at]) } else { None };
    // Where the image is not the first operand, the others are one place further.
    let without_image: Vec<_> = operands.iter().enumerate().map(|(number, at)| apart(number + 1, *at)).collect();
    let Some(image) = without_image.iter().flatten().map(|(image, _)| image.clone()).next() else { return Ok(args) };
    let is_first = operands.first().is_some_and(|first| args[*first] == image.as_os_str());
    let found: Vec<_> = match is_first {
        true => operands.iter().enumerate().map(|(number, at)| apart(number, *at)).collect(),
        false => without_image,
    };
    if let Some((other, _)) = found.iter().flatten().find(|(other, _)| *other != image) {
        let (command, image, other) = (called.get_name(), image.display(), other.display());
        return Err(Usage(format!(
            "{command}: {image} and {other} are two images; a command changes one, and 'xfskit cp' copies between them"
        )));
    }
    for (at, (_, path)) in operands.iter().zip(found).filter_map(|(at, found)| Some((*at, found?))) {
        args[at] = path;
    }
    if !is_first {
        args.insert(operands[0], image.into());
    }
    Ok(args)
}

/// Whether an argument is an option whose value is the next argument.
fn takes_next(command: &Command, arg: &OsStr) -> bool {
    let Some(text) = arg.to_str() else { return false };
    let takes = |option: &clap::Arg| option.get_action().takes_values();
    if let Some(name) = text.strip_prefix("--") {
        let has = |option: &&clap::Arg| option.get_long() == Some(name);
        return command.get_arguments().find(has).is_some_and(takes);
    }
    // Of several letters, the value of one that takes it is what is left.
    let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else { return false };
    let has = |letter: char| move |option: &&clap::Arg| option.get_short() == Some(letter);
    let first =
        letters.char_indices().find(|(_, letter)| command.get_arguments().find(has(*letter)).is_some_and(takes));
    first.is_some_and(|(at, letter)| at + letter.len_utf8() == letters.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;
    use std::path::Path;

    fn apart(line: &str, images: [&Path; 2]) -> Result<String, String> {
        let [a, b] = images.map(|image| image.to_str().unwrap());
        let words = line.split(' ').map(|word| word.replace("A.img", a).replace("B.img", b).into());
        let done = with_images_apart(words.collect(), Cli::command()).map_err(|Usage(text)| text)?;
        let words: Vec<String> = done.into_iter().map(|word| word.into_string().unwrap()).collect();
        Ok(words.join(" ").replace(a, "A.img").replace(b, "B.img"))
    }

    #[test]
    fn images_come_first() {
        let [a, b] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        let images = [a.path(), b.path()];
        for (typed, taken) in [
            ("xfskit cat A.img:/etc/motd", "xfskit cat A.img /etc/motd"),
            ("xfskit ls -l A.img:", "xfskit ls -l A.img /"),
            ("xfskit --wait 3 ls A.img:/a A.img:/b", "xfskit --wait 3 ls A.img /a /b"),
            ("xfskit ls A.img A.img:/b", "xfskit ls A.img /b"),
            ("xfskit ls A.img /b", "xfskit ls A.img /b"),
            ("xfskit mv A.img:/a A.img:/b", "xfskit mv A.img /a /b"),
            ("xfskit mv A.img /a A.img:/b", "xfskit mv A.img /a /b"),
            ("xfskit chmod -R 600 A.img:/etc A.img:/b", "xfskit chmod -R A.img 600 /etc /b"),
            ("xfskit chown 0:0 A.img:/etc", "xfskit chown A.img 0:0 /etc"),
            ("xfskit ln -s target A.img:/link", "xfskit ln -s A.img target /link"),
            ("xfskit ln A.img:/a A.img:/b", "xfskit ln A.img /a /b"),
            ("xfskit xattr set A.img:/f user.a A.img:/v", "xfskit xattr set A.img /f user.a A.img:/v"),
            ("xfskit write --offset 3 A.img:/f", "xfskit write --offset 3 A.img /f"),
            ("xfskit write -m600 A.img:/f", "xfskit write -m600 A.img /f"),
            ("xfskit write -m 600 A.img:/f", "xfskit write -m 600 A.img /f"),
            ("xfskit find A.img:/etc -name x", "xfskit find A.img /etc -name x"),
            ("xfskit mkdir -p -- A.img:/etc", "xfskit mkdir -p -- A.img /etc"),
            ("xfskit du A.img#1:/etc", "xfskit du A.img#1 /etc"),
            ("xfskit cat nbd://host/x:/etc", "xfskit cat nbd://host/x /etc"),
            ("xfskit cp A.img:/a out", "xfskit cp A.img:/a out"),
            ("xfskit cat none.img:/a", "xfskit cat none.img:/a"),
        ] {
            assert_eq!(apart(typed, images).unwrap(), taken, "{typed}");
        }
        assert!(apart("xfskit mv A.img:/a B.img:/b", images).unwrap_err().contains("two images"));
    }
}

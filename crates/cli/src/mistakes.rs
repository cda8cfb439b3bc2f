//! What is said of arguments that make no sense: what is missing, and where what people type leads.

use crate::args::Cli;
use crate::screen;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use std::process::ExitCode;

/// The exit code of wrong usage, for `check` and for every other command.
const USAGE: u8 = crate::exit::USAGE;
const USAGE_OF_CHECK: u8 = 16;
/// The exit code where help cannot be written.
const NOT_WRITTEN: u8 = 1;
const NOT_WRITTEN_BY_CHECK: u8 = 8;

/// Words that people try as commands, and where they lead. Each is none of the commands.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["repair", "fix", "xfs_repair", "recover", "rescue", "salvage"],
        "'xfskit check IMAGE' shows what is wrong, 'xfskit log replay IMAGE' finishes what a power cut interrupted, \
         and xfs_repair of xfsprogs repairs; of a damaged image, 'xfskit cp -r IMAGE:/ FOLDER' copies what can be read",
    ),
    (&["fsck", "verify", "scrub", "xfs_scrub"], "'xfskit check IMAGE' verifies a whole image"),
    (
        &["resize", "grow", "growfs", "xfs_growfs", "extend", "expand", "enlarge"],
        "'xfskit admin grow IMAGE SIZE' makes an image larger",
    ),
    (
        &["shrink", "reduce", "minimize"],
        "an image is not made smaller: 'xfskit export a.img / | xfskit mkfs --from - --minimize b.img' makes a small \
         copy",
    ),
    (
        &["dump", "xfsdump", "backup", "archive", "tar", "pack"],
        "'xfskit export IMAGE -o FILE.tar' writes a tree as an archive, 'xfskit xattr dump IMAGE PATH' its attributes",
    ),
    (&["xfsrestore", "restore", "unpack", "untar"], "'xfskit import IMAGE FILE.tar' unpacks an archive into an image"),
    (&["metadump", "xfs_metadump", "mdrestore", "xfs_mdrestore"], "xfs_metadump and xfs_mdrestore of xfsprogs do that"),
    (&["extract", "get", "pull", "fetch"], "'xfskit cp -r IMAGE:/PATH FOLDER' copies a tree out of an image"),
    (&["put", "push", "add", "insert"], "'xfskit cp -r FOLDER IMAGE:/PATH' copies a tree into an image"),
    (&["copy", "rsync"], "'xfskit cp' copies between the host and images: xfskit cp -r IMAGE:/PATH FOLDER"),
    (&["rename", "move"], "'xfskit mv IMAGE FROM TO' moves and renames"),
    (&["remove", "delete", "del", "unlink", "rmdir", "erase"], "'xfskit rm [-r] IMAGE PATH' removes"),
    (&["list", "dir", "ll"], "'xfskit ls IMAGE PATH' lists a folder"),
    (&["show", "type", "read", "less", "more", "head", "tail", "print"], "'xfskit cat IMAGE PATH' prints a file"),
    (&["edit", "put-file", "tee", "save"], "'xfskit write IMAGE PATH' writes standard input to a file"),
    (&["link", "symlink"], "'xfskit ln [-s] IMAGE TARGET NAME' makes links"),
    (&["md", "makedir"], "'xfskit mkdir IMAGE PATH' makes folders"),
    (&["reflink", "snapshot", "dedupe"], "'xfskit clone IMAGE FROM TO' copies a file by sharing its blocks"),
    (
        &["quota", "xfs_quota", "repquota", "quotacheck", "quotaon", "quotaoff"],
        "quotas are not kept; the kernel counts anew at its next mount with quotas. 'xfskit du' shows what trees take",
    ),
    (&["label", "name", "e2label"], "'xfskit admin label IMAGE [LABEL]' shows or changes the label"),
    (&["uuid", "xfs_admin", "tune", "tune2fs"], "'xfskit admin' changes label and UUID: see 'xfskit admin --help'"),
    (
        &["trim", "fstrim", "discard", "sparsify", "compact"],
        "'xfskit admin trim IMAGE' gives free space back to the host",
    ),
    (
        &["format", "create", "new", "make", "init", "mkfs.xfs", "build"],
        "'xfskit mkfs IMAGE --size SIZE' makes an image",
    ),
    (&["unmount", "eject", "detach", "fusermount", "fusermount3"], "'xfskit umount MOUNT_POINT' unmounts"),
    (&["attach", "open", "serve", "fuse"], "'xfskit mount IMAGE MOUNT_POINT' mounts an image"),
    (
        &["getfattr", "attr", "xattrs", "getxattr", "listxattr", "attributes"],
        "'xfskit xattr dump IMAGE PATH' shows attributes, 'xfskit xattr get' the value of one",
    ),
    (&["setfattr", "setxattr"], "'xfskit xattr set IMAGE PATH NAME VALUE' sets an attribute"),
    (
        &["getfacl", "setfacl", "acl", "chacl"],
        "'xfskit stat IMAGE PATH' shows an ACL; on a mount getfacl and setfacl work",
    ),
    (&["chgrp"], "'xfskit chown IMAGE :GROUP PATH' changes the group"),
    (&["chcon", "restorecon", "setfiles"], "'xfskit xattr label IMAGE PATH' gives files their labels"),
    (
        &["replay", "journal", "logprint", "xfs_logprint", "recovery"],
        "'xfskit log print IMAGE' shows the journal, 'xfskit log replay IMAGE' replays it",
    ),
    (
        &["size", "usage", "space", "statfs", "free"],
        "'xfskit df IMAGE' shows how full an image is, 'xfskit du' what trees take",
    ),
    (
        &["partitions", "parts", "disks", "fdisk", "lsblk", "blkid", "file", "geometry", "xfs_info"],
        "'xfskit info DISK' shows what there is",
    ),
    (&["search", "locate", "grep", "which"], "'xfskit find IMAGE PATH -name PATTERN' finds files"),
    (&["inode", "ncheck", "inum"], "'xfskit path IMAGE NUMBER' lists the paths of an inode"),
    (&["defrag", "xfs_fsr", "fsr"], "there is no such command: a copy of the tree lies in one piece"),
    (&["db", "xfs_db", "debug", "debugfs", "xfs_io"], "xfs_db of xfsprogs shows single structures"),
    (
        &["freeze", "unfreeze", "xfs_freeze"],
        "an image that is unmounted is whole; 'sync' makes a mount's changes durable",
    ),
    (&["version"], "'xfskit --version' shows the version"),
    (&["man-page", "manual", "usage-help"], "'xfskit --help' and 'xfskit COMMAND --help' show what there is"),
];

/// Options of other programs that people may try, and what to use instead.
const OTHERS: [(&str, &str, &str); 8] = [
    ("mkfs", "-K", "leave it out: nothing is discarded anyway"),
    ("mkfs", "-N", "there is no dry run: a new image file shows what would be made"),
    ("mkfs", "-p", "--from FOLDER fills the image"),
    ("mkfs", "-r", "realtime devices are not supported"),
    ("ln", "-n", "a name that is given is never followed"),
    ("touch", "-a", "both times are set"),
    ("touch", "-t", "-d takes dates, as in 2026-01-31 12:00:00"),
    ("tree", "-a", "all names are shown anyway"),
];

/// Commands that only a build with the feature `bench` has.
const MEASURING: [&str; 2] = ["bench", "crash-test"];
const WITH_MEASURING: &str = "it is in builds that measure: 'cargo install xfskit-cli --features bench', or in the \
    source 'make bench' and 'make crash'";

/// Prints help, a version, or what is wrong with the arguments. Returns the exit code.
pub fn report(error: clap::Error) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_check = words.iter().find(|word| !word.starts_with('-')).is_some_and(|word| word == "check");
    if error.exit_code() == 0 {
        // A reader that closes the pipe has read enough of it.
        return match screen::print_clap(&error).and_then(|()| screen::end()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                screen::report(&format!("standard output: {error}"));
                ExitCode::from(if is_check { NOT_WRITTEN_BY_CHECK } else { NOT_WRITTEN })
            }
            _ => ExitCode::SUCCESS,
        };
    }
    let code = if is_check { USAGE_OF_CHECK } else { USAGE };
    let as_json = words.iter().any(|word| word == "--json");
    screen::set_style(screen::Style { json: as_json, quiet: false });
    match explain(&error, &words) {
        Some(message) => screen::report_error(&message, code),
        None if as_json => screen::report_error(error.render().to_string().trim_end(), code),
        // The error of standard error could not be reported.
        None => drop(screen::print_clap(&error)),
    }
    ExitCode::from(code)
}

/// What is wrong, in words of our own where the parser's lead nowhere.
fn explain(error: &clap::Error, words: &[String]) -> Option<String> {
    let (command, name) = command_of(words);
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            Some(unknown_command(&of(ContextKind::InvalidSubcommand)?, &command, &name, error))
        }
        ErrorKind::MissingRequiredArgument => {
            let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return None };
            Some(missing_arguments(missing, &command, &name))
        }
        ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            let missing: Vec<String> = of(ContextKind::InvalidArg)?.split(' ').skip(1).map(Into::into).collect();
            Some(missing_arguments(&missing, &command, &name))
        }
        ErrorKind::UnknownArgument => {
            let argument = of(ContextKind::InvalidArg)?;
            let what = if argument.starts_with('-') { "there is no option" } else { "there is no use for" };
            let tip = OTHERS.iter().find(|(of, option, _)| words.iter().any(|word| word == of) && argument == *option);
            let similar = of(ContextKind::SuggestedArg).map(|option| format!("; did you mean {option}?"));
            let tip = tip.map(|(.., tip)| format!("; {tip}")).or(similar).unwrap_or_default();
            Some(format!("{name}: {what} {argument}{tip}\n{}", usage(&command)))
        }
        _ => None,
    }
}

/// The command that the words call, as far as they do, and its name.
fn command_of(words: &[String]) -> (Command, String) {
    let mut command = Cli::command();
    command.build();
    let mut name = Vec::new();
    for word in words.iter().filter(|word| !word.starts_with('-')) {
        let Some(below) = command.find_subcommand(word).cloned() else {
            if name.is_empty() && !command.get_arguments().any(|argument| argument.is_positional()) {
                continue;
            }
            break;
        };
        name.push(word.clone());
        command = below;
    }
    (command, name.join(" "))
}

fn unknown_command(word: &str, command: &Command, above: &str, error: &clap::Error) -> String {
    let full = if above.is_empty() { word.to_owned() } else { format!("{above} {word}") };
    let said = format!("there is no command '{full}'");
    let measures = MEASURING.contains(&word).then_some(WITH_MEASURING);
    if let Some(tip) = measures.or_else(|| elsewhere(word, above)) {
        return format!("{said}: {tip}");
    }
    if std::path::Path::new(word).exists() || word.contains(['/', '#']) {
        return format!("{said}: the command comes before the image, as in 'xfskit ls {word}'");
    }
    let similar: Vec<String> = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.iter().filter(|name| is_slip(word, name)).cloned().collect(),
        Some(ContextValue::String(name)) => Some(name.clone()).into_iter().filter(|name| is_slip(word, name)).collect(),
        _ => Vec::new(),
    };
    match similar.last() {
        Some(name) => format!("{said}: did you mean '{name}'?"),
        None => {
            let names = command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
            format!("{said}; there are {}", names.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Words that people try below a command, and where they lead.
const BELOW: &[(&str, &[&str], &str)] = &[
    ("xattr", &["remove", "delete", "del", "unset"], "'xfskit xattr rm IMAGE PATH NAME' removes an attribute"),
    ("xattr", &["show", "read", "ls"], "'xfskit xattr list' shows the names, 'xfskit xattr get' the value of one"),
    ("xattr", &["add", "put", "write"], "'xfskit xattr set IMAGE PATH NAME VALUE' sets an attribute"),
    ("log", &["show", "dump", "list"], "'xfskit log print IMAGE' shows the journal"),
    ("log", &["recover", "repair"], "'xfskit log replay IMAGE' replays the journal"),
    ("admin", &["rename", "name"], "'xfskit admin label IMAGE LABEL' changes the label"),
    ("admin", &["resize", "growfs", "extend"], "'xfskit admin grow IMAGE SIZE' makes an image larger"),
    ("admin", &["fstrim", "discard"], "'xfskit admin trim IMAGE' gives free space back to the host"),
];

/// Where a word leads that is no command, or none below `above`.
fn elsewhere(word: &str, above: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    if !above.is_empty() {
        let found = BELOW.iter().find(|(command, words, _)| *command == above && words.contains(&word.as_str()));
        return found.map(|(.., tip)| *tip);
    }
    ELSEWHERE.iter().find(|(words, _)| words.contains(&word.as_str())).map(|(_, tip)| *tip)
}

/// Whether a word is the name of a command with a letter or two that are wrong, missing, or in another order.
fn is_slip(word: &str, name: &str) -> bool {
    strsim::damerau_levenshtein(word, name) <= word.len().div_ceil(4)
}

fn missing_arguments(missing: &[String], command: &Command, name: &str) -> String {
    let plain = |argument: &str| argument.trim_matches(['<', '>', '.', '[', ']']).to_owned();
    let help = |argument: &str| {
        let found = command.get_arguments().find(|known| {
            known.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == plain(argument)))
                || known.get_id().as_str().eq_ignore_ascii_case(&plain(argument))
        });
        let help = found.and_then(|known| known.get_help()).map(ToString::to_string).unwrap_or_default();
        if help.is_empty() { help } else { format!(" ({})", help.trim_end_matches('.')) }
    };
    let named: Vec<String> = missing.iter().map(|argument| format!("{}{}", plain(argument), help(argument))).collect();
    let verb = if named.len() == 1 { "is" } else { "are" };
    format!("{name}: {} {verb} missing\n{}", named.join(", and "), usage(command))
}

/// The line that shows how a command is used.
fn usage(command: &Command) -> String {
    command.clone().render_usage().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_the_table_is_a_command_and_each_is_there_once() {
        let mut seen = std::collections::HashSet::new();
        for word in ELSEWHERE.iter().flat_map(|(words, _)| words.iter()) {
            assert!(Cli::command().find_subcommand(word).is_none(), "{word}");
            assert!(seen.insert(word), "{word}");
        }
    }

    /// The commands that the table names exist.
    #[test]
    fn the_table_leads_somewhere() {
        for (_, tip) in ELSEWHERE {
            for call in tip.split('\'').filter_map(|part| part.strip_prefix("xfskit ")) {
                let first = call.split_whitespace().next().unwrap();
                let known = Cli::command().find_subcommand(first).is_some();
                assert!(known || first.starts_with('-') || first == "COMMAND", "{call}");
            }
        }
    }

    #[test]
    fn a_slip_is_near() {
        assert!(is_slip("exprot", "export") && is_slip("mout", "mount") && is_slip("stats", "stat"));
        assert!(!is_slip("repair", "readlink") && !is_slip("dump", "du") && !is_slip("quota", "umount"));
    }
}

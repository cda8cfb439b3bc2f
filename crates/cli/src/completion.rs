//! What a shell may complete: paths within the image that the line names, and the values of options.
//!
//! A completion script asks this program (the variable `COMPLETE` is set then). Paths are those that `xfskit ls`
//! prints, which runs in a process of its own with its sandbox; a slow or busy image gives none.

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long the shell waits for names at the most.
const PATIENCE: Duration = Duration::from_secs(2);

/// Operands that are paths within the image.
const PATHS: [&str; 6] = ["path", "paths", "from", "to", "dir", "newer"];

/// Options of `mount -o`, and of mkfs.xfs's letters, as the help has them.
const VALUES: [(&str, &str, &[&str]); 9] = [
    (
        "mount",
        "options",
        &[
            "ro",
            "rw",
            "norecovery",
            "wsync",
            "logdev=",
            "cache=",
            "commit=",
            "threads=",
            "placement=client",
            "placement=scheduler",
            "writeback",
            "nowriteback",
            "discard",
            "nodiscard",
            "larp=always",
            "larp=never",
            "attrpath=fast",
            "attrpath=general",
            "attrpath=intents",
            "nowhiteout",
            "noknownabsent",
            "errortag=",
            "allow_other",
            "allow_root",
            "auto_unmount",
            "dev",
            "suid",
            "noexec",
            "noatime",
            "dirsync",
            "remount",
        ],
    ),
    ("mkfs", "block", &["size=1024", "size=2048", "size=4096", "size=8192", "size=16384", "size=32768", "size=65536"]),
    ("mkfs", "data", &["agcount=", "agsize=", "size=", "su=", "sw=", "sunit=", "swidth=", "noalign"]),
    (
        "mkfs",
        "inode",
        &["size=512", "size=1024", "size=2048", "perblock=", "maxpct=", "sparse=0", "nrext64=0", "exchange=0"],
    ),
    ("mkfs", "log", &["size=", "agnum=", "logdev=", "su=", "sunit=", "sectsize="]),
    (
        "mkfs",
        "metadata",
        &["uuid=", "finobt=0", "inobtcount=0", "rmapbt=0", "reflink=0", "bigtime=0", "autofsck=0", "autofsck=1"],
    ),
    ("mkfs", "naming", &["size=", "parent=0"]),
    ("mkfs", "sector", &["size=512", "size=4096"]),
    ("mkfs", "readers", &[]),
];

/// The commands with what can be completed of them.
pub fn with_candidates(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let has_image = command.get_arguments().any(|arg| arg.get_id() == "image");
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| with_values(arg, &name, has_image));
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_candidates))
}

fn with_values(arg: Arg, command: &str, has_image: bool) -> Arg {
    let id = arg.get_id().to_string();
    if let Some((.., values)) = VALUES.iter().find(|(of, known, _)| *of == command && *known == id) {
        let values: Vec<String> = match id.as_str() {
            "readers" => xfskit_mkfs::reader_names().map(Into::into).collect(),
            _ => values.iter().map(|value| (*value).to_owned()).collect(),
        };
        return arg.add(ArgValueCandidates::new(move || values.iter().map(CompletionCandidate::new).collect()));
    }
    let is_path = PATHS.contains(&id.as_str()) || id == "name" && command == "ln";
    if is_path && has_image && !(id == "from" && arg.get_long().is_some()) {
        return arg.add(ArgValueCompleter::new(|word: &OsStr| paths_in_image(word)));
    }
    arg
}

/// The entries of the directory in which a path ends that is being written.
fn paths_in_image(word: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(image), Some(word)) = (image_of_line(), word.to_str()) else { return Vec::new() };
    let (dir, _) = word.rsplit_once('/').map_or(("", word), |(dir, name)| (dir, name));
    let Some(listing) = list(&image, if dir.is_empty() { "/" } else { dir }) else { return Vec::new() };
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&listing).unwrap_or_default();
    let candidates = entries.iter().filter_map(|entry| {
        let name = entry["name"].as_str().filter(|name| name.chars().all(is_plain))?;
        let slash = if entry["type"] == "directory" { "/" } else { "" };
        Some(format!("{dir}/{name}{slash}")).filter(|path| path.starts_with(word))
    });
    candidates.map(CompletionCandidate::new).collect()
}

/// The image on the line: the first word that names an existing file. The shell gives the line behind two dashes.
fn image_of_line() -> Option<PathBuf> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(3);
    let is_image = |word: &OsString| {
        let files = crate::operand::files(word.as_ref());
        files.iter().all(|file| file.metadata().is_ok_and(|data| !data.is_dir()))
    };
    words.filter(|word| !word.as_encoded_bytes().starts_with(b"-")).find(is_image).map(Into::into)
}

/// Whether a letter of a name means nothing to any shell. A shell puts what it is given into the line as it is, so a
/// name from an image could be a command; names with other letters are not offered.
fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || "._-+@%=,".contains(letter)
}

fn list(image: &PathBuf, dir: &str) -> Option<Vec<u8>> {
    let mut ls = std::process::Command::new(std::env::current_exe().ok()?);
    ls.args(["--json", "--quiet", "--no-helpers", "ls", "--norecovery"]).arg(image).arg(dir).env_remove("COMPLETE");
    let mut ls = ls.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut out = ls.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut listing = Vec::new();
        out.read_to_end(&mut listing).map(|_| listing)
    });
    let until = Instant::now() + PATIENCE;
    while !reader.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = ls.kill();
    let _ = ls.wait();
    reader.join().ok()?.ok()
}

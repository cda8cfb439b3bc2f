//! What a traced command did: whether it had given up its rights when it read an image, and what it was refused.
#![allow(dead_code)] // Each test uses a part.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How much of an image may be read before rights are given up: the first bytes of a file, or the last, for a
/// signature.
pub const SIGNATURE_BYTES: u64 = 512;
/// How many filters of system calls a process installs.
const FILTERS: usize = 3;

/// strace with these options before a command, and its result in a file.
pub fn strace(calls: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-e", "signal=none", "-o"]).arg(calls);
    strace
}

/// What a process has given up.
#[derive(Clone, Copy, Default)]
struct Rights {
    is_landlocked: bool,
    filters: usize,
    /// It is qemu-nbd, under Landlock's rules for the files of the disk.
    serves: bool,
}

impl Rights {
    fn has_entered(self) -> bool {
        self.is_landlocked && self.filters == FILTERS
    }
}

#[derive(Default)]
pub struct Traced {
    /// How many processes gave up their rights.
    pub entered: usize,
    /// How many times qemu-nbd was started, under Landlock's rules.
    pub served: usize,
    /// Reads of the images by processes that had not, of more than signatures.
    pub before: Vec<String>,
    /// The longest read by one that had.
    pub read_after: u64,
    /// What one that had was refused.
    pub refused: Vec<String>,
    /// What Landlock's rules are for, by its path.
    pub allowed: Vec<String>,
    /// The last call that gave up capabilities.
    pub capabilities: String,
}

impl Traced {
    /// What a trace says of images.
    pub fn of(calls: &Path, images: &[PathBuf]) -> Self {
        let sizes: Vec<u64> = images.iter().map(size).collect();
        Self::of_sized(calls, images, &sizes)
    }

    /// As [`Self::of`], with the sizes that the images had before.
    fn of_sized(calls: &Path, images: &[PathBuf], sizes: &[u64]) -> Self {
        let named = |image: &PathBuf| format!("<{}>", image.canonicalize().unwrap().display());
        let images: Vec<_> = images.iter().map(named).zip(sizes.iter().copied()).collect();
        let mut traced = Self::default();
        let mut processes: HashMap<&str, Rights> = HashMap::new();
        // A thread has what its process has. Only processes that have given up all start threads that read images.
        let mut last = Rights::default();
        let text = fs::read_to_string(calls).unwrap();
        let calls = whole_calls(&text);
        let parents = parents(&calls);
        for (process, call) in &calls {
            let process = *process;
            let by_qemu = parents.get(process).and_then(|parent| processes.get(*parent)).filter(|rights| rights.serves);
            let first = by_qemu.copied().unwrap_or(last);
            let rights = processes.entry(process).or_insert(first);
            // A new program has what this one had: none that had entered starts one.
            if call.starts_with("execve(") && !call.contains(") = -1 ") {
                let is_qemu = call.split('"').nth(1).is_some_and(|program| program.ends_with("/qemu-nbd"));
                *rights = Rights { serves: is_qemu && rights.is_landlocked, ..Rights::default() };
                traced.served += usize::from(rights.serves);
            }
            rights.is_landlocked |= call.starts_with("landlock_restrict_self(") && call.ends_with("= 0");
            let has_filtered = call.starts_with("seccomp(SECCOMP_SET_MODE_FILTER") && call.ends_with("= 0");
            rights.filters += usize::from(has_filtered);
            if has_filtered && rights.has_entered() {
                traced.entered += 1;
                last = *rights;
            }
            if call.starts_with("landlock_add_rule(") {
                traced.allowed.extend(call.split_once("parent_fd=").map(|(_, fd)| fd.to_owned()));
            }
            if call.starts_with("capset(") {
                traced.capabilities.clone_from(call);
            }
            let rights = *rights;
            let is_refused = [" = -1 EPERM", " = -1 EACCES"].iter().any(|refusal| call.contains(refusal));
            // Whose file a loop device has was asked before, and is asked again.
            if rights.has_entered() && is_refused && !call.contains("\"/dev/loop") {
                traced.refused.push(call.clone());
            }
            for (_, size) in images.iter().filter(|(name, _)| call.contains(name.as_str())) {
                traced.note_read(call, *size, rights);
            }
        }
        traced
    }

    fn note_read(&mut self, call: &str, size: u64, rights: Rights) {
        let is_positioned = ["pread64(", "preadv(", "preadv2("].iter().any(|name| call.starts_with(name));
        let is_read = is_positioned || ["read(", "readv(", "mmap("].iter().any(|name| call.starts_with(name));
        let Some((arguments, result)) = call.rsplit_once(") = ").filter(|_| is_read) else { return };
        if rights.serves {
            return;
        }
        let bytes: u64 = result.trim().parse().unwrap_or(0);
        if rights.has_entered() {
            self.read_after = self.read_after.max(bytes);
            return;
        }
        let last = |arguments: &str| arguments.rsplit(", ").next().and_then(|offset| offset.parse::<u64>().ok());
        let offset = is_positioned.then(|| last(arguments)).flatten();
        let is_end = |offset| offset == 0 || offset + SIGNATURE_BYTES == size;
        if bytes > SIGNATURE_BYTES || !offset.is_some_and(is_end) {
            self.before.push(call.into());
        }
    }
}

/// The calls of a trace, each with its process, in the order in which they end: strace cuts those in two during which
/// another process does something.
fn whole_calls(text: &str) -> Vec<(&str, String)> {
    let mut begun: HashMap<&str, &str> = HashMap::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let (process, call) = line.trim_start().split_once(' ').unwrap();
        let call = call.trim_start();
        if let Some(start) = call.strip_suffix("<unfinished ...>") {
            begun.insert(process, start.trim_end());
        } else if let Some((_, end)) = call.strip_prefix("<... ").and_then(|call| call.split_once(" resumed>")) {
            let start = begun.remove(process).unwrap_or_default();
            calls.push((process, format!("{start}{end}")));
        } else {
            calls.push((process, call.into()));
        }
    }
    calls
}

/// Which process or thread started each.
fn parents<'a>(calls: &'a [(&'a str, String)]) -> HashMap<&'a str, &'a str> {
    let starts = |call: &str| ["clone(", "clone3(", "fork(", "vfork("].iter().any(|name| call.starts_with(name));
    let starts = calls.iter().filter(|(_, call)| starts(call));
    starts.filter_map(|(process, call)| Some((call.rsplit_once(") = ")?.1.trim(), *process))).collect()
}

fn size(image: &PathBuf) -> u64 {
    fs::metadata(image).map_or(0, |data| data.len())
}

/// Runs a command that must succeed; none if this machine has no strace.
pub fn traced(arguments: &[impl AsRef<OsStr>], images: &[PathBuf], calls: &Path) -> Option<Traced> {
    let sizes: Vec<u64> = images.iter().map(size).collect();
    let mut command = strace(calls);
    command.arg(env!("CARGO_BIN_EXE_xfskit")).args(arguments).env("TZ", "UTC");
    let output = command.stdin(Stdio::null()).output().ok()?;
    let line = arguments.iter().map(|argument| argument.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    Some(Traced::of_sized(calls, images, &sizes))
}

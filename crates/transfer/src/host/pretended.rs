//! Owners, permissions and device numbers that a program around this one pretends: fakeroot, pseudo.
//!
//! Such a program puts a library in front of the C library of each program that it starts, and the library answers for
//! the kernel. A program that is linked statically is not reached by it, and nor is what asks the kernel without the C
//! library. So what is pretended of a tree is asked beforehand of programs that are reached: `find` runs `stat`, whose
//! answers are kept by device and inode number. Where that cannot be, the tree is refused: without the answers it would
//! belong to whoever runs this, and have no devices.
//!
//! A dynamic program under fakeroot asks its own C library instead, file by file (`super::source`).

use rustix::fs::{Stat, makedev};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Device, inode, mode, owner, group, and the numbers of a device node.
const FORMAT: &str = "%d %i %f %u %g %t %T";
/// Program headers of an ELF file begin at these places of its header; such an entry names the dynamic linker.
const LINKER_ENTRY: u32 = 3;
/// Bytes of a program that have its headers.
const HEAD_BYTES: u64 = 64 * 1024;
/// Bytes of complaints that are shown.
const MAX_COMPLAINT_BYTES: u64 = 4096;

/// What was asked before; it is the same for the whole program.
static ASKED: OnceLock<Pretended> = OnceLock::new();

/// Why what is pretended cannot be found out.
#[derive(Debug, thiserror::Error)]
#[error("{who} pretends what this program cannot see: {why}; {advice}", advice = who.advice())]
pub struct NotSeen {
    who: Pretender,
    why: String,
}

/// The program that pretends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pretender {
    Fakeroot,
    Pseudo,
    Fakechroot,
}

impl std::fmt::Display for Pretender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fakeroot => "fakeroot",
            Self::Pseudo => "pseudo",
            Self::Fakechroot => "fakechroot",
        })
    }
}

impl Pretender {
    fn advice(self) -> String {
        match self {
            Self::Fakechroot => "run it outside fakechroot, and give it the whole paths".into(),
            _ => format!(
                "install find and stat as dynamic programs, or run it outside {self}, with --owner, --uid-map or \
                 --manifest for owners and devices"
            ),
        }
    }

    /// The one around this program.
    fn around() -> Option<Self> {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let is_preloaded = |name: &[u8]| preloaded.as_bytes().windows(name.len()).any(|part| part == name);
        if is_set("FAKECHROOT_BASE") && is_preloaded(b"libfakechroot") {
            return Some(Self::Fakechroot);
        }
        if is_preloaded(b"libpseudo") && !std::env::var_os("PSEUDO_DISABLED").is_some_and(|value| value == "1") {
            return Some(Self::Pseudo);
        }
        is_set("FAKEROOTKEY").then_some(Self::Fakeroot)
    }
}

/// Mode, owner, group and device number by device and inode.
#[derive(Debug, Default)]
struct Pretended(HashMap<(u64, u64), (u32, u32, u32, u64)>);

/// Asks what is pretended of files and folders with everything in them, if this program could not find it out later.
/// It starts other programs, so it is called before rights are given up.
///
/// # Errors
/// [`NotSeen`].
pub fn ask_pretender(paths: &[PathBuf]) -> Result<(), NotSeen> {
    let Some(who) = Pretender::around() else { return Ok(()) };
    let is_reached = who == Pretender::Fakeroot && !cfg!(target_feature = "crt-static");
    if is_reached || paths.is_empty() || who == Pretender::Fakechroot {
        return Ok(());
    }
    let pretended = ask(paths).map_err(|why| NotSeen { who, why })?;
    // A second question would be one of the same command.
    let _ = ASKED.set(pretended);
    Ok(())
}

/// Refuses to run where names mean other files for the program around this one.
///
/// # Errors
/// [`NotSeen`].
pub fn refuse_other_names() -> Result<(), NotSeen> {
    match Pretender::around() {
        Some(who @ Pretender::Fakechroot) => {
            Err(NotSeen { who, why: "names mean other files for it than for this program".into() })
        }
        _ => Ok(()),
    }
}

/// Puts what is pretended of a file into what the kernel says of it. False if the file was not there when that was
/// asked.
pub(super) fn apply(stat: &mut Stat) -> bool {
    let Some(Pretended(files)) = ASKED.get() else { return true };
    let Some((mode, uid, gid, device)) = files.get(&(stat.st_dev, stat.st_ino)) else { return false };
    (stat.st_mode, stat.st_uid, stat.st_gid, stat.st_rdev) = (*mode, *uid, *gid, *device);
    true
}

/// Whether something was asked.
pub(super) fn is_known() -> bool {
    ASKED.get().is_some()
}

fn ask(paths: &[PathBuf]) -> Result<Pretended, String> {
    let stat = find_program("stat").ok_or("there is no program stat")?;
    if !is_dynamic(&stat) {
        return Err(format!("{} is linked statically, too", stat.display()));
    }
    // `find` takes a name that begins like an option for one.
    let paths = paths.iter().map(|path| if path.is_relative() { Path::new(".").join(path) } else { path.clone() });
    let mut find = Command::new("find");
    find.args(paths).arg("-exec").arg(stat).args(["-c", FORMAT, "{}", "+"]).env("LC_ALL", "C").stdin(Stdio::null());
    let child = find.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("find: {error}"))?;
    let (output, complaints) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let complaints = std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut complaints = complaints;
        let read = (&mut complaints).take(MAX_COMPLAINT_BYTES).read_to_end(&mut text);
        // The rest is read so that the program does not wait.
        read.and_then(|_| std::io::copy(&mut complaints, &mut std::io::sink())).map(|_| text)
    });
    let pretended = read_answers(BufReader::new(output));
    let status = child.wait().map_err(|error| format!("find: {error}"))?;
    let complaint = complaints.join().ok().and_then(Result::ok).unwrap_or_default();
    // The dynamic linker complains, and goes on, where it cannot load the library.
    if !status.success() || !complaint.is_empty() {
        return Err(format!("find and stat: {}", String::from_utf8_lossy(&complaint).trim_end()));
    }
    pretended
}

fn read_answers(output: impl BufRead) -> Result<Pretended, String> {
    let mut files = HashMap::new();
    for line in output.lines() {
        let line = line.map_err(|error| format!("stat: {error}"))?;
        let (key, value) = parse(&line).ok_or_else(|| format!("stat says {line:?}"))?;
        files.insert(key, value);
    }
    Ok(Pretended(files))
}

/// A line of `stat`.
fn parse(line: &str) -> Option<((u64, u64), (u32, u32, u32, u64))> {
    let mut words = line.split(' ');
    let mut next = || words.next();
    let key = (next()?.parse().ok()?, next()?.parse().ok()?);
    let mode = u32::from_str_radix(next()?, 16).ok()?;
    let (uid, gid) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let mut hex = || u32::from_str_radix(next()?, 16).ok();
    let device = makedev(hex()?, hex()?);
    next().is_none().then_some((key, (mode, uid, gid, device)))
}

/// A program in the path.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").into());
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Whether a program is an ELF file that the dynamic linker starts.
fn is_dynamic(program: &Path) -> bool {
    let mut head = Vec::new();
    let read = std::fs::File::open(program).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.is_ok() && has_linker(&head).unwrap_or(false)
}

fn has_linker(head: &[u8]) -> Option<bool> {
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = head.get(at..at.checked_add(length)?)?;
        let is_big = head.get(5) == Some(&2);
        let digit = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if is_big { bytes.iter().fold(0, digit) } else { bytes.iter().rev().fold(0, digit) })
    };
    // The table of program headers: its place, the size of an entry, and how many there are.
    let places = match (head.get(..4)?, head.get(4)?) {
        (b"\x7fELF", 1) => ((28, 4), 42, 44),
        (b"\x7fELF", 2) => ((32, 8), 54, 56),
        _ => return Some(false),
    };
    let ((at, length), entry, count) = places;
    let (start, size) = (usize::try_from(number(at, length)?).ok()?, number(entry, 2)? as usize);
    let mut entries = (0..number(count, 2)? as usize).map(|number| start.checked_add(number * size));
    Some(entries.any(|at| at.and_then(|at| number(at, 4)) == Some(LINKER_ENTRY.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_stat_are_read() {
        let expected = ((2051, 77), (0o20_644, 12, 34, makedev(1, 3)));
        assert_eq!(parse("2051 77 21a4 12 34 1 3"), Some(expected));
        for wrong in ["", "2051 77 21a4 12 34 1", "2051 77 21a4 12 34 1 3 4", "x 77 21a4 12 34 1 3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn dynamic_programs_are_told_from_others() {
        // This test is dynamic unless it is built otherwise.
        let own = std::env::current_exe().unwrap();
        assert_eq!(is_dynamic(&own), !cfg!(target_feature = "crt-static"));
        for other in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01", &[0x7f; 64]] {
            assert!(!has_linker(other).unwrap_or(false), "{other:?}");
        }
    }
}

//! Files that the process has inherited: those that no argument names are closed.
//!
//! A shell hands `<(...)` over as an open file and its name, `/dev/fd/63`. Whatever else is open, a caller has
//! forgotten to close, or means for others: an attacker in this process would have it.
//!
//! Two kinds stay open besides. A file with a lock: it may be there so that the lock lasts as long as this program
//! (`flock --no-fork`); the process that reads headers needs none. And all files of a program with preloaded libraries,
//! which may have opened them themselves.

use crate::open::header;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

/// What the names of open files have in common: `/dev/fd/3`, `/proc/self/fd/3`.
const NAMED: &[u8] = b"/fd/";
const PRELOADED: &str = "LD_PRELOAD";

/// Closes the files that no argument names. It is called before this program opens any.
pub fn close_unnamed() {
    if std::env::var_os(PRELOADED).is_some_and(|libraries| !libraries.is_empty()) {
        return;
    }
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    let named: Vec<RawFd> = std::env::args_os().flat_map(|argument| numbers(&argument)).collect();
    // What the header process inherits, it inherits from a command that has the locks, too.
    let stays = |number: &RawFd| named.contains(number) || !header::is_this() && has_lock(*number);
    for number in open.into_iter().filter(|number| !stays(number)) {
        // One of the numbers was that of the directory that was read.
        let _ = nix::unistd::close(number);
    }
}

/// The numbers of open files that an argument names, wherever they stand in it.
fn numbers(argument: &OsStr) -> Vec<RawFd> {
    let bytes = argument.as_bytes();
    let places = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(NAMED)).map(|at| &bytes[at + NAMED.len()..]);
    let digits = places.map(|rest| &rest[..rest.iter().take_while(|byte| byte.is_ascii_digit()).count()]);
    digits.filter_map(|digits| str::from_utf8(digits).ok()?.parse().ok()).collect()
}

fn has_lock(number: RawFd) -> bool {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
    about.is_ok_and(|about| about.lines().any(|line| line.starts_with("lock:")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_open_files_are_found_in_arguments() {
        let of = |argument: &str| numbers(OsStr::new(argument));
        assert_eq!(of("/dev/fd/63"), [63]);
        assert_eq!(of("--from=/proc/self/fd/5"), [5]);
        assert_eq!(of("options=/dev/fd/7,/dev/fd/8#1"), [7, 8]);
        assert!(of("disk.img").is_empty());
        assert!(of("/fd/").is_empty());
        assert!(of("/dev/fd/99999999999").is_empty());
    }
}

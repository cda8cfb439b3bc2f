//! Sources of `cp` that are names of open files: `/dev/stdin`, and `/dev/fd/63`, which a shell makes of `<(...)`.
//!
//! Such a name is a symbolic link that leads nowhere in an image. As cp(1) does with a link on the command line, the
//! contents are copied. Links within trees stay links.

use crate::args::copy_operand::CopyOperand;
use crate::open::new_file::NewFile;
use crate::open::paths::shown;
use crate::open::session::Session;
use crate::open::standard_input::PIPE_ENDS_WITHIN;
use crate::output::error::{Context, Result};
use std::fs::{File, Metadata};
use std::io::{Read, stdin};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The number of symbolic links that the kernel follows.
const MAX_LINKS: usize = 40;

/// The contents of those sources that are names of open files, in the order of the sources.
///
/// # Errors
/// Those of reading them, and of a file without a name in which contents that are no file's are kept.
pub fn read(session: &Session, sources: &[CopyOperand], target: &CopyOperand) -> Result<Vec<Option<File>>> {
    let keep_beside = match target {
        CopyOperand::Host(path) | CopyOperand::Image(path, _) => path,
    };
    let read = |source: &CopyOperand| match source {
        CopyOperand::Host(path) => read_one(session, path, keep_beside).with_context(|| shown(path.as_os_str())),
        CopyOperand::Image(..) => Ok(None),
    };
    sources.iter().map(read).collect()
}

fn read_one(session: &Session, path: &Path, keep_beside: &Path) -> Result<Option<File>> {
    let Some(place) = place_of_open_file(path) else { return Ok(None) };
    let metadata = std::fs::metadata(&place)?;
    if metadata.is_dir() {
        return Ok(None);
    }
    if metadata.is_file() {
        return Ok(Some(File::open(place)?));
    }
    if metadata.file_type().is_fifo() {
        session.wait.at_least(PIPE_ENDS_WITHIN);
    }
    let (unnamed, dir) = NewFile::to_keep_input(keep_beside)?;
    let kept = || format!("{}: keeping it there until it ends", dir.display());
    let mut input: Box<dyn Read> = if is_standard_input(&metadata) {
        // It may be another user's, or a socket, and cannot be opened again then.
        Box::new(stdin().lock())
    } else {
        Box::new(File::open(place)?)
    };
    std::io::copy(&mut input, &mut unnamed.file()).with_context(kept)?;
    Ok(Some(unnamed.file().try_clone()?))
}

/// Whether standard input is the same pipe, socket or device.
fn is_standard_input(file: &Metadata) -> bool {
    let stat = rustix::fs::fstat(rustix::stdio::stdin());
    stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (file.dev(), file.ino()))
}

/// The path in `/proc/PID/fd` to which the symbolic links lead that a path is.
fn place_of_open_file(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = parent.canonicalize().ok()?;
        let place = parent.join(path.file_name()?);
        if parent.starts_with("/proc") && parent.ends_with("fd") {
            return Some(place);
        }
        path = parent.join(std::fs::read_link(place).ok()?);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_open_files_are_known() {
        for name in ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
            let place = place_of_open_file(Path::new(name)).expect(name);
            assert_eq!(place, Path::new(&format!("/proc/{}/fd/0", std::process::id())));
        }
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        for (target, is_open_file) in [("/dev/stdin", true), ("/dev/null", false), ("link", false), ("none", false)] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(place_of_open_file(&link).is_some(), is_open_file, "{target}");
            std::fs::remove_file(&link).unwrap();
        }
        assert_eq!(place_of_open_file(dir.path()), None);
    }
}

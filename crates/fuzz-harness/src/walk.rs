//! Reads everything that can be reached, with a bound on the work.

use std::collections::{HashSet, VecDeque};
use xfskit_engine::{Error, FileType, Volume};
use xfskit_ondisk::InodeNumber;

/// What a walk found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Inodes read.
    pub inodes: usize,
    /// Names seen.
    pub names: usize,
    /// Attributes read.
    pub attributes: usize,
    /// All errors.
    pub errors: Vec<Error>,
}

impl Findings {
    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    /// The errors as text, one a line.
    pub fn messages(&self) -> String {
        self.errors.iter().map(|error| format!("{error}\n")).collect()
    }
}

/// Reads up to `most` inodes, from the root on.
pub fn walk(fs: &Volume, most: usize) -> Findings {
    let mut findings = Findings::default();
    let _ = fs.statfs();
    let mut seen = HashSet::from([fs.root()]);
    let mut queue = VecDeque::from([fs.root()]);
    while let Some(inode) = queue.pop_front() {
        if findings.inodes >= most {
            break;
        }
        look(fs, inode, &mut findings, &mut |child| {
            if seen.len() < 4 * most && seen.insert(child) {
                queue.push_back(child);
            }
        });
    }
    findings
}

/// Reads one inode. If it is a directory, calls `each` for every entry's inode.
pub fn look(fs: &Volume, inode: InodeNumber, findings: &mut Findings, each: &mut dyn FnMut(InodeNumber)) {
    findings.inodes += 1;
    let Some(stat) = findings.note(fs.stat(inode)) else { return };
    match stat.file_type {
        FileType::Dir => look_at_dir(fs, inode, findings, each),
        FileType::Symlink => drop(findings.note(fs.read_link(inode))),
        _ => {}
    }
    look_at_attributes(fs, inode, findings);
    if fs.geometry().has_parent() {
        findings.note(fs.parents(inode));
        // The path above is the same for all files of a directory.
        if findings.inodes.is_multiple_of(4) {
            findings.note(fs.paths(inode));
        }
    }
}

fn look_at_dir(fs: &Volume, dir: InodeNumber, findings: &mut Findings, each: &mut dyn FnMut(InodeNumber)) {
    findings.note(fs.lookup_number(dir, b".."));
    let Some(entries) = findings.note(fs.list_dir(dir)) else { return };
    findings.names += entries.len();
    for (index, entry) in entries.iter().enumerate() {
        if index < 8 || index.is_multiple_of(17) {
            match fs.lookup(dir, &entry.name) {
                Ok(_) => {}
                Err(error) => findings.errors.push(error),
            }
        }
        each(entry.inode);
    }
    // Reads that go on in the middle, and past the end.
    let beyond = [1 << 20, i32::MAX as u64, u64::from(u32::MAX), u64::MAX];
    for cookie in entries.iter().step_by(97).map(|entry| entry.next_cookie).chain(beyond) {
        findings.note(fs.read_dir(dir, cookie, |_| std::ops::ControlFlow::Break(())));
    }
    match fs.lookup_number(dir, b"a name that is not there") {
        Err(Error::NotFound) => {}
        other => drop(findings.note(other)),
    }
}

fn look_at_attributes(fs: &Volume, inode: InodeNumber, findings: &mut Findings) {
    let Some(names) = findings.note(fs.list_xattrs(inode)) else { return };
    for name in names.iter().take(400) {
        findings.attributes += 1;
        findings.note(fs.get_xattr(inode, name));
    }
    match fs.get_xattr(inode, b"user.a name that is not there") {
        Err(Error::NoAttribute) => {}
        other => drop(findings.note(other)),
    }
}

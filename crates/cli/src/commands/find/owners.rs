//! Names of users and groups, from the image's own `/etc/passwd` and `/etc/group`: those of the host say nothing about
//! an image.

use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use std::collections::HashMap;
use xfskit_engine::{Error, LastLink, Volume};
use xfskit_ondisk::InodeNumber;

/// More of a list is not read.
const MOST_BYTES: u64 = 64 << 20;

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Users,
    Groups,
}

impl List {
    fn path(self) -> &'static str {
        match self {
            Self::Users => "/etc/passwd",
            Self::Groups => "/etc/group",
        }
    }
}

/// The names that a list has.
#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<Vec<u8>, u32>,
    names: HashMap<u32, Vec<u8>>,
}

/// The users and groups of an image. A list is read when it is first needed.
#[derive(Debug, Default)]
pub struct Owners {
    users: Option<Option<Names>>,
    groups: Option<Option<Names>>,
}

impl Owners {
    /// The number of a name.
    ///
    /// # Errors
    /// `Usage` when the image does not know it; those of reading the list.
    pub(super) fn number(&mut self, filesystem: &Volume, list: List, name: &str) -> Result<u32> {
        let known = self.known(filesystem, list)?.numbers.get(name.as_bytes()).copied();
        known.ok_or_else(|| Usage(format!("{name:?} is not in the image's {}; give the number", list.path())).into())
    }

    /// Whether a number has a name.
    ///
    /// # Errors
    /// As [`Self::number`].
    pub(super) fn knows(&mut self, filesystem: &Volume, list: List, number: u32) -> Result<bool> {
        Ok(self.known(filesystem, list)?.names.contains_key(&number))
    }

    /// The name of a number, or the number where it has none.
    pub(super) fn name(&mut self, filesystem: &Volume, list: List, number: u32) -> Vec<u8> {
        let names = self.read(filesystem, list).ok().flatten();
        let name = names.and_then(|names| names.names.get(&number)).cloned();
        name.unwrap_or_else(|| number.to_string().into_bytes())
    }

    fn known(&mut self, filesystem: &Volume, list: List) -> Result<&Names> {
        let none = || Usage(format!("the image has no {}, which has the names; give the number", list.path()));
        Ok(self.read(filesystem, list)?.ok_or_else(none)?)
    }

    fn read(&mut self, filesystem: &Volume, list: List) -> Result<Option<&Names>> {
        let kept = match list {
            List::Users => &mut self.users,
            List::Groups => &mut self.groups,
        };
        if kept.is_none() {
            *kept = Some(read_list(filesystem, list.path()).with_context(|| list.path())?);
        }
        Ok(kept.as_ref().and_then(Option::as_ref))
    }
}

/// The list at a path; `None` if there is none.
fn read_list(filesystem: &Volume, path: &str) -> Result<Option<Names>, Error> {
    let stat = match filesystem.resolve(path.as_bytes(), LastLink::Follow) {
        Err(Error::NotFound | Error::NotADirectory) => return Ok(None),
        found => found?,
    };
    if !stat.file_type.is_file() {
        return Ok(None);
    }
    Ok(Some(names_in(&contents(filesystem, stat.inode, stat.size.min(MOST_BYTES))?)))
}

fn contents(filesystem: &Volume, inode: InodeNumber, bytes: u64) -> Result<Vec<u8>, Error> {
    const PIECE_BYTES: u64 = 64 << 10;
    let mut contents = Vec::new();
    while (contents.len() as u64) < bytes {
        let at = contents.len();
        contents.resize(at + PIECE_BYTES.min(bytes - at as u64) as usize, 0);
        let count = filesystem.read_at(inode, at as u64, &mut contents[at..])?;
        contents.truncate(at + count);
        if count == 0 {
            break;
        }
    }
    Ok(contents)
}

/// The names in lines of `NAME:PASSWORD:NUMBER:…`. Of several with one name or one number the first counts.
fn names_in(list: &[u8]) -> Names {
    let mut names = Names::default();
    for line in list.split(|&byte| byte == b'\n') {
        let mut fields = line.split(|&byte| byte == b':');
        let (name, number) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
        let number = std::str::from_utf8(number).ok().and_then(super::numbers::whole);
        if let Some(number) = number.filter(|_| !name.is_empty()) {
            names.numbers.entry(name.to_vec()).or_insert(number);
            names.names.entry(number).or_insert_with(|| name.to_vec());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_lists() {
        let names = names_in(b"root:x:0:0::/root:/bin/sh\n#comment\n:x:3\nother:*:0\nroot:x:7\n\nlast:x:4294967294");
        assert_eq!(names.numbers.get(&b"root"[..]), Some(&0));
        assert_eq!(names.numbers.get(&b"other"[..]), Some(&0));
        assert_eq!(names.names.get(&0).unwrap(), b"root");
        assert_eq!(names.names.get(&4_294_967_294).unwrap(), b"last");
        assert_eq!(names.numbers.len(), 3);
    }
}

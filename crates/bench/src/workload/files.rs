//! Files that several experiments make, each thread in a directory of its own.

use crate::lab::Work;
use crate::measure::Bench;
use crate::names::file_name;
use crate::subject::Target;
use anyhow::Result;

/// The phase in which files are made and given their attribute.
pub(super) const CREATE_AND_SET: &str = "create and set";

/// What follows the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// They are removed, in a phase of its own.
    Unlink,
}

/// Files that are made and given an attribute in one phase.
#[derive(Clone, Copy)]
pub(super) struct FilesWithValues {
    /// Files of each thread.
    pub(super) each: usize,
    /// Bytes of a value.
    pub(super) bytes: usize,
    pub(super) then: Then,
}

impl Work for FilesWithValues {
    fn run<T: Target>(&self, bench: &Bench<'_, T>) -> Result<()> {
        let target = bench.target;
        let dirs = make_dirs(target, bench.threads)?;
        let value = vec![7; self.bytes];
        target.sync()?;
        bench.phase(CREATE_AND_SET, self.each, |thread, n| {
            let name = file_name(thread, n);
            let made = target.create(&dirs[thread], &name)?;
            target.set_xattr(&target.file(&dirs[thread], &name, made), "user.test", &value)
        })?;
        match self.then {
            Then::Nothing => Ok(()),
            Then::Unlink => {
                bench.phase("unlink", self.each, |thread, n| target.unlink(&dirs[thread], &file_name(thread, n)))
            }
        }
    }
}

/// Makes `count` directories.
pub(super) fn make_dirs<T: Target>(target: &T, count: usize) -> Result<Vec<T::Dir>> {
    (0..count).map(|n| target.make_dir(target.base(), format!("dir{n}").as_bytes())).collect()
}

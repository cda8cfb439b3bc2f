//! xfskit in this process.

use crate::{Arguments, Phase, Target, run};
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use xfskit::device::{Access, FileDevice};
use xfskit::ondisk::InodeNumber;
use xfskit::{Caller, Filesystem, MountOptions, NewFile, SetMode};

struct Ours {
    fs: Filesystem,
    me: Caller,
    dirs: Vec<InodeNumber>,
}

impl Target for Ours {
    type File = InodeNumber;

    fn create(&self, thread: usize, name: &str) -> InodeNumber {
        let new = NewFile::new(0o100_644);
        self.fs.create(self.dirs[thread], name.as_bytes(), &new, &self.me).expect("a file is made").inode
    }

    fn set(&self, file: &InodeNumber, value: &[u8]) {
        self.fs.set_xattr(*file, b"user.test", value, SetMode::Any, &self.me).expect("an attribute is set");
    }

    fn get(&self, file: &InodeNumber, value: &mut [u8]) {
        value.copy_from_slice(&self.fs.get_xattr(*file, b"user.test").expect("an attribute is read"));
    }

    fn remove(&self, file: &InodeNumber) {
        self.fs.remove_xattr(*file, b"user.test", &self.me).expect("an attribute is removed");
    }

    fn unlink(&self, thread: usize, name: &str) {
        self.fs.unlink(self.dirs[thread], name.as_bytes(), &self.me).expect("a file is removed");
    }

    fn sync(&self) {
        self.fs.sync().expect("a sync");
    }

    fn counts(&self) -> (u64, u64) {
        let counters = &self.fs.mount().counters;
        (counters.transactions.get(), counters.log_bytes.get())
    }
}

/// What was measured: the phases, and the mount's counters with their names.
pub(crate) type Measured = (Vec<Phase>, Vec<(&'static str, u64)>);

/// Runs all phases on `image`; also returns the mount's counters.
pub(crate) fn measure(image: &Path, arguments: &Arguments) -> Result<Measured> {
    let device = Arc::new(FileDevice::open(image, Access::Write)?);
    let fs = Filesystem::open(device, MountOptions::default())?;
    let me = Caller::root();
    let dirs = (0..arguments.threads)
        .map(|n| Ok(fs.create(fs.root(), format!("dir{n}").as_bytes(), &NewFile::new(0o040_755), &me)?.inode))
        .collect::<Result<_>>()?;
    fs.sync()?;
    let ours = Ours { fs, me, dirs };
    let phases = run(&ours, arguments);
    let counters = ours.fs.mount().counters.list();
    ours.fs.unmount()?;
    Ok((phases, counters))
}

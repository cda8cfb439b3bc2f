//! A FUSE mount of xfskit, served by threads of this process.

use anyhow::{Context, Result};
use std::path::Path;
use std::thread::JoinHandle;
use xfskit_engine::Volume;
use xfskit_fuse::{MountError, Options, Session, Unmounter};

/// A mount; it ends when it is dropped.
pub(crate) struct FuseMount {
    unmounter: Unmounter,
    server: Option<JoinHandle<Result<(), MountError>>>,
}

impl FuseMount {
    pub(crate) fn new(filesystem: Volume, dir: &Path, options: &Options) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let session = Session::mount(filesystem, dir, options)?;
        let unmounter = session.unmounter();
        Ok(Self { unmounter, server: Some(std::thread::spawn(|| session.run())) })
    }

    /// Unmounts, and waits until the image is closed.
    pub(crate) fn unmount(mut self) -> Result<()> {
        self.unmounter.unmount()?;
        let served = self.server.take().map(JoinHandle::join);
        Ok(served.unwrap_or(Ok(Ok(()))).unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if self.server.is_some() {
            // Another error is reported already.
            let _ = self.unmounter.unmount();
        }
    }
}

//! A side of a comparison: what it works on, and how it is opened for a case.

use crate::BenchError;
use crate::case::Case;
use crate::fuse_mount::FuseMount;
use crate::loop_mount::{LoopMount, obstacle};
use crate::machine::{has_parent, kernel_release, mount_point, superblock_of};
use crate::null::NullMount;
use crate::scratch::{ImageFiles, Scratch};
use crate::subject::{Engine, PathTarget};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::Volume;
use xfskit_fuse::{KernelClock, Options as FuseOptions};
use xfskit_ondisk::Superblock;

const MOUNT: &str = "mount";

/// What a side works on.
#[derive(Clone, Debug)]
pub(crate) enum SideKind {
    /// The engine, on a scratch image made for each case.
    Scratch,
    /// The engine, on the user's image.
    Image { path: PathBuf, parent: bool },
    /// System calls, in the user's directory.
    Dir { path: PathBuf, parent: Option<bool> },
    /// System calls, on a loop mount of a scratch image made for each case.
    Kernel,
    /// System calls, on xfskit's FUSE mount of a scratch image, served by this process.
    Fuse,
    /// System calls, on a FUSE mount of a server that does nothing, in this process; each folder lists so many files.
    Null { listed: usize },
}

/// A side of the comparison.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) kind: SideKind,
}

/// An open target, with the mount below it.
pub(crate) enum Opened {
    Engine(Engine),
    Path(PathTarget, Mounted),
}

/// The mount below a directory, if one was made for the case.
pub(crate) enum Mounted {
    Nothing,
    Loop(LoopMount),
    Fuse(FuseMount),
    Null(NullMount),
}

impl Mounted {
    fn unmount(self) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Loop(mount) => mount.unmount(),
            Self::Fuse(mount) => mount.unmount(),
            Self::Null(mount) => mount.unmount(),
        }
    }
}

impl Side {
    pub(crate) fn scratch() -> Self {
        Self { name: "xfskit".into(), kind: SideKind::Scratch }
    }

    pub(crate) fn kernel() -> Result<Self> {
        if let Some(why) = obstacle() {
            return Err(BenchError::NoKernel(why.into()).into());
        }
        let release = kernel_release();
        let short = release.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        Ok(Self { name: format!("kernel {short}"), kind: SideKind::Kernel })
    }

    pub(crate) fn fuse() -> Self {
        Self { name: "xfskit over FUSE".into(), kind: SideKind::Fuse }
    }

    pub(crate) fn null(listed: usize) -> Self {
        Self { name: "FUSE server that does nothing".into(), kind: SideKind::Null { listed } }
    }

    pub(crate) fn dir(path: &Path) -> Result<Self> {
        let path = path.canonicalize().map_err(|_| BenchError::Missing(path.into()))?;
        ensure!(path.is_dir(), BenchError::Usage(format!("{}: not a folder", path.display())));
        let probe = tempfile::Builder::new().prefix(".xfskit-bench-").tempdir_in(&path);
        drop(probe.map_err(|source| BenchError::NotWritable { path: path.clone(), source })?);
        let filesystem = mount_point(&path).map_or_else(|| "folder".into(), |mount| mount.kind);
        let parent = has_parent(&path);
        Ok(Self { name: format!("{filesystem} {}", path.display()), kind: SideKind::Dir { path, parent } })
    }

    /// The user's image or directory.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        ensure!(path.exists(), BenchError::Missing(path.into()));
        if path.is_dir() {
            return Self::dir(path);
        }
        // These steps report what is wrong with the image: missing, in use, not XFS.
        let device = FileDevice::open(path, Access::Write)?;
        let mut sector = vec![0; 4096];
        xfskit_device::BlockDevice::read(&device, 0, &mut sector).with_context(|| path.display().to_string())?;
        Superblock::decode(&sector)
            .and_then(|superblock| superblock.check_writable().map(|()| superblock).map_err(Into::into))
            .with_context(|| path.display().to_string())?;
        drop(device);
        let parent = superblock_of(path)
            .is_some_and(|superblock| superblock.incompat().contains(xfskit_ondisk::features::Incompat::PARENT));
        Ok(Self { name: "xfskit".into(), kind: SideKind::Image { path: path.into(), parent } })
    }

    /// Whether the side can run a case.
    pub(crate) fn can(&self, case: &Case) -> bool {
        let wants = |parent: Option<bool>| case.parent.is_none() || parent == case.parent;
        match &self.kind {
            SideKind::Scratch | SideKind::Fuse => true,
            SideKind::Kernel | SideKind::Null { .. } => !case.switched,
            SideKind::Image { parent, .. } => wants(Some(*parent)),
            // A directory whose image cannot be read is taken to have the default, parent pointers.
            SideKind::Dir { parent, .. } => !case.switched && wants(parent.or(Some(true))),
        }
    }

    pub(crate) fn is_engine(&self) -> bool {
        matches!(self.kind, SideKind::Scratch | SideKind::Image { .. })
    }

    pub(crate) fn open(&self, case: &Case, scratch: &Scratch) -> Result<Opened> {
        let folder = format!("xfskit-bench-{}", std::process::id());
        match &self.kind {
            SideKind::Scratch => {
                Ok(Opened::Engine(Engine::open(&scratch.make_for(case)?, case.mount.clone(), &folder)?))
            }
            SideKind::Image { path, .. } => {
                Ok(Opened::Engine(Engine::open(&ImageFiles::alone(path), case.mount.clone(), &folder)?))
            }
            SideKind::Dir { path, .. } => Ok(Opened::Path(PathTarget::open(path, &folder)?, Mounted::Nothing)),
            SideKind::Kernel => {
                let ImageFiles { image, log } = scratch.make_for(case)?;
                let mount = LoopMount::new(&image, log.as_deref(), &scratch.file(MOUNT))?;
                Ok(Opened::Path(PathTarget::open(&scratch.file(MOUNT), &folder)?, Mounted::Loop(mount)))
            }
            SideKind::Fuse => {
                let made = scratch.make_for(case)?;
                let (device, log) = made.open()?;
                let log = log.map(|device| device as _);
                let filesystem = Volume::open_in(device, log, case.mount.clone(), Arc::new(KernelClock::default()))?;
                let options = FuseOptions { source: made.image.into(), ..FuseOptions::default() };
                let mount = FuseMount::new(filesystem, &scratch.file(MOUNT), &options)?;
                Ok(Opened::Path(PathTarget::open(&scratch.file(MOUNT), &folder)?, Mounted::Fuse(mount)))
            }
            SideKind::Null { listed } => {
                let options = FuseOptions { source: "nothing".into(), ..FuseOptions::default() };
                let mount = NullMount::new(&scratch.file(MOUNT), &options, *listed)?;
                Ok(Opened::Path(PathTarget::open(&scratch.file(MOUNT), &folder)?, Mounted::Null(mount)))
            }
        }
    }

    /// Closes a target. In the user's image or directory, it removes the files of the case first.
    pub(crate) fn close(&self, opened: Opened) -> Result<()> {
        let theirs = matches!(self.kind, SideKind::Image { .. } | SideKind::Dir { .. });
        match opened {
            Opened::Engine(engine) => engine.close(theirs),
            Opened::Path(target, mount) => {
                target.close(theirs)?;
                mount.unmount()
            }
        }
    }
}

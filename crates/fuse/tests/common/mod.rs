//! An image, mounted for one test.
#![allow(dead_code)] // No test uses all of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use xfskit_check::{CheckOptions, Quiet};
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_engine::{MountOptions, Volume};
use xfskit_fuse::{KernelClock, MountError, Options, Session, Unmounted, Unmounter, WriteCache};
use xfskit_testkit::{Mount, Scratch, kernel_mount, reference, scratch, skip};

pub const IMAGE_BYTES: u64 = 512 << 20;

/// A mounted image in a folder of its own.
pub struct Fixture {
    pub mount: Served,
    pub scratch: Scratch,
}

/// A server, which is stopped also when the test fails.
pub struct Served {
    pub unmounter: Unmounter,
    pub thread: Option<JoinHandle<Result<(), MountError>>>,
}

impl Served {
    pub fn stop(&mut self) -> Result<Unmounted, MountError> {
        let Some(thread) = self.thread.take() else { return Ok(Unmounted::Gone) };
        let unmounted = self.unmounter.unmount()?;
        if unmounted == Unmounted::Gone {
            thread.join().unwrap()?;
        }
        Ok(unmounted)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

/// Whether FUSE cannot be used; then the reason has been printed.
pub fn skip_without_fuse() -> bool {
    let is_missing = fs::File::open("/dev/fuse").is_err();
    if is_missing {
        skip("this machine has no /dev/fuse");
    }
    is_missing
}

/// `None`, after printing the reason, if FUSE cannot be used.
pub fn mounted() -> Option<Fixture> {
    mounted_with(IMAGE_BYTES)
}

/// As [`mounted`], with an image of another size.
pub fn mounted_with(bytes: u64) -> Option<Fixture> {
    if skip_without_fuse() {
        return None;
    }
    let scratch = scratch();
    format(&FileDevice::create(scratch.file("a.img"), bytes).unwrap());
    fs::create_dir(scratch.file("mount")).unwrap();
    let mount = serve(&scratch);
    Some(Fixture { mount, scratch })
}

/// Makes a filesystem on a device.
pub fn format(device: &dyn BlockDevice) {
    let options = xfskit_mkfs::Options { uuid: Some([5; 16]), allow_small: true, ..xfskit_mkfs::Options::default() };
    xfskit_mkfs::make(device, None, &options, xfskit_ondisk::Timestamp::default()).unwrap();
}

pub fn serve(scratch: &Scratch) -> Served {
    serve_with(scratch, WriteCache::default())
}

/// As [`serve`], with or without the kernel's writeback cache.
pub fn serve_with(scratch: &Scratch, cache: WriteCache) -> Served {
    let device = FileDevice::open(scratch.file("a.img"), Access::Write).unwrap();
    serve_device(scratch, Arc::new(device), cache)
}

/// As [`serve_with`], on a device that the caller has made of the image.
pub fn serve_device(scratch: &Scratch, device: Arc<dyn BlockDevice>, cache: WriteCache) -> Served {
    serve_as(scratch, device, Options { cache, ..Options::default() })
}

/// As [`serve_device`], with options of which some are those of all tests.
pub fn serve_as(scratch: &Scratch, device: Arc<dyn BlockDevice>, options: Options) -> Served {
    let filesystem = Volume::open_in(device, None, MountOptions::default(), Arc::new(KernelClock::default())).unwrap();
    let kernel = vec![xfskit_fuse::KernelOption::Suid];
    let options = Options { allow_other: true, kernel, ..options };
    let session = Session::mount(filesystem, &scratch.file("mount"), &options).unwrap();
    Served { unmounter: session.unmounter(), thread: Some(std::thread::spawn(|| session.run())) }
}

impl Fixture {
    /// Mounts the image again, with or without the kernel's writeback cache.
    pub fn remount(&mut self, cache: WriteCache) {
        self.mount.stop().unwrap();
        self.mount = serve_with(&self.scratch, cache);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.file("mount").join(name)
    }

    /// Unmounts in good order and returns the folder with the image.
    pub fn unmount(mut self) -> Scratch {
        assert_eq!(self.mount.stop().unwrap(), Unmounted::Gone);
        self.scratch
    }

    /// Unmounts. xfs_repair and xfskit's check must find nothing, and `look` examines the kernel's mount of the image.
    pub fn judge(self, look: impl FnOnce(&Path)) {
        let scratch = self.unmount();
        let image = scratch.file("a.img");
        if let Some(reference) = reference() {
            reference.repair_finds_nothing(&image);
        }
        let device = Arc::new(FileDevice::open(&image, Access::Read).unwrap());
        let report = xfskit_check::check(device, None, &CheckOptions::default(), &Quiet).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let Some(kernel) = kernel_mount(&image) else { return };
        look(kernel.path());
        kernel.unmount();
    }
}

/// Runs a program and returns its output.
pub fn run(program: &str, arguments: &[&str], path: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(path).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?} {}: {error}", path.display());
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a program is installed; prints a line if not.
pub fn has(program: &str) -> bool {
    let found = std::env::var("PATH").unwrap_or_default().split(':').any(|dir| Path::new(dir).join(program).exists());
    if !found {
        skip(&format!("this machine has no {program}"));
    }
    found
}

/// Pseudo-random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ self.0 >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ mixed >> 29
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// The seeds to try: `usual` ones, or `XFSKIT_STRESS` times as many, from `XFSKIT_SEED` on.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let first = number("XFSKIT_SEED").unwrap_or(1);
    first..first + usual * number("XFSKIT_STRESS").unwrap_or(1)
}

/// Arguments of setpriv for a user without rights.
pub const NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// A mount by xfskit, and the kernel's mount of another new image. The folder of that image is dropped last.
pub fn both(cache: WriteCache) -> Option<(Fixture, Mount, Scratch)> {
    let other = mounted()?.unmount();
    let kernel = kernel_mount(&other.file("a.img"))?;
    let mut fixture = mounted()?;
    fixture.remount(cache);
    for path in [kernel.path(), fixture.scratch.path(), &fixture.scratch.file("mount")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    Some((fixture, kernel, other))
}

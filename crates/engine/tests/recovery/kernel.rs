//! The kernel makes the crash image: a loop mount is shut down in the middle of random work. We recover one copy, the
//! kernel another, and both must show the same tree.

use crate::workload::{Random, Work};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_engine::journal::RecoveryReport;
use xfskit_engine::{MountOptions, Volume};
use xfskit_testkit::{Reference, Scratch, copy_image, kernel_mount_with, try_kernel_mount};

/// A shape of images: arguments of mkfs.xfs, options of the mount.
struct Shape {
    mkfs: &'static [&'static str],
    mount: &'static [&'static str],
    external_log: bool,
}

const fn shape(mkfs: &'static [&'static str], mount: &'static [&'static str]) -> Shape {
    Shape { mkfs, mount, external_log: false }
}

const SHAPES: &[Shape] = &[
    shape(&[], &[]),
    shape(&["-b", "size=1024"], &[]),
    shape(&["--unsupported", "-l", "size=8m"], &[]),
    shape(&["-n", "parent=0", "-m", "rmapbt=0,reflink=0"], &["logbsize=256k"]),
    shape(&["-l", "su=64k"], &[]),
    shape(&["-b", "size=16384"], &["logbsize=64k"]),
    shape(&["-s", "size=4096"], &[]),
    shape(&["--unsupported", "-l", "size=5m", "-b", "size=1024", "-n", "size=4096"], &["logbsize=32k"]),
    shape(&["-b", "size=65536", "-i", "size=2048"], &[]),
    shape(&["-l", "su=256k", "-i", "size=1024"], &[]),
    Shape { mkfs: &[], mount: &[], external_log: true },
    shape(&["-n", "size=65536", "-m", "bigtime=0", "-i", "nrext64=0"], &["logbsize=128k"]),
    shape(&["--unsupported", "-l", "size=8m", "-d", "agcount=7"], &["wsync"]),
    shape(
        &["-m", "finobt=0,rmapbt=0,inobtcount=0,bigtime=0,reflink=0", "-i", "sparse=0,exchange=0", "-n", "parent=0"],
        &[],
    ),
];

/// An image and the device of its log.
#[derive(Clone)]
pub struct Image {
    pub data: PathBuf,
    pub log: Option<PathBuf>,
}

impl Image {
    pub fn copy(&self, scratch: &Scratch, name: &str) -> Self {
        let copy = |from: &PathBuf, end: &str| {
            let to = scratch.file(&format!("{name}{end}"));
            copy_image(from, &to);
            to
        };
        Self { data: copy(&self.data, ".img"), log: self.log.as_ref().map(|log| copy(log, ".log")) }
    }

    pub fn open(&self, options: MountOptions) -> xfskit_engine::Result<Volume> {
        let access = if options.read_only { Access::Read } else { Access::Write };
        let device = |path| Arc::new(FileDevice::open(path, access).expect("an image")) as Arc<dyn BlockDevice>;
        match &self.log {
            Some(log) => Volume::open_with_log(device(&self.data), device(log), options),
            None => Volume::open(device(&self.data), options),
        }
    }

    /// Recovers and unmounts.
    pub fn recover(&self) -> xfskit_engine::Result<Option<RecoveryReport>> {
        let fs = self.open(MountOptions::default())?;
        let report = fs.mount().recovery.clone();
        fs.unmount()?;
        Ok(report)
    }

    /// The tree that the kernel shows, or why it refuses the image.
    pub fn kernel_tree(&self) -> Result<Vec<xfskit_testkit::TreeEntry>, String> {
        let kernel = try_kernel_mount(&self.data, self.log.as_deref(), &[]).expect("a kernel")?;
        Ok(kernel.into_tree())
    }
}

/// Makes an image of a shape and leaves it in the state of a crash in the middle of work. `None` without a kernel.
fn crash(reference: &Reference, scratch: &Scratch, shape: &Shape, seed: u64) -> Option<Image> {
    let data = scratch.image("crash.img", 400 << 20);
    let log = shape.external_log.then(|| scratch.image("crash.log", 64 << 20));
    let log_option = log.as_ref().map(|log| format!("logdev={},size=64m", log.display()));
    let mut arguments = vec!["-q"];
    arguments.extend(shape.mkfs);
    if let Some(option) = &log_option {
        arguments.extend(["-l", option]);
    }
    arguments.push(data.to_str().expect("a plain path"));
    reference.tool_output("mkfs.xfs", arguments);
    // The UUID of a clone is changed: records carry the new one, metadata the old one.
    if seed % 3 == 1 && !shape.external_log {
        reference.tool_output("xfs_admin", ["-U".as_ref(), "generate".as_ref(), data.as_os_str()]);
    }
    let image = Image { data, log };
    let mut random = Random::new(seed.wrapping_mul(77));
    for round in 0..1 + random.below(3) {
        let before = image.copy(scratch, "before");
        let kernel = match try_kernel_mount(&image.data, image.log.as_deref(), shape.mount)? {
            Ok(kernel) => kernel,
            // The kernel refuses an image that it left itself, so there is nothing to compare with; the image before is
            // used.
            Err(_) if round > 0 => return Some(before),
            Err(refusal) => panic!("the kernel refuses a new image: {refusal}"),
        };
        let mut work = Work::new(kernel.path(), seed ^ (round as u64) << 32);
        // A small log is to be filled more than once.
        let most = if shape.mkfs.contains(&"--unsupported") { 10_000 } else { 2500 };
        for _ in 0..100 + random.below(most) {
            work.operate();
        }
        reference.shut_down(kernel.path(), random.below(2) == 0);
        drop(work);
        kernel.unmount();
    }
    Some(image)
}

/// A crash image in a folder of its own.
pub struct Owned {
    pub image: Image,
    _scratch: Scratch,
}

impl std::ops::Deref for Owned {
    type Target = Image;

    fn deref(&self) -> &Image {
        &self.image
    }
}

/// The crash image of a seed.
pub fn crash_image(reference: &Reference, seed: u64) -> Option<Owned> {
    let scratch = xfskit_testkit::scratch();
    let image = crash(reference, &scratch, &SHAPES[seed as usize % SHAPES.len()], seed)?;
    Some(Owned { image, _scratch: scratch })
}

fn run(reference: &Reference, seed: u64) -> Option<()> {
    let shape = &SHAPES[seed as usize % SHAPES.len()];
    let scratch = xfskit_testkit::scratch();
    let image = crash(reference, &scratch, shape, seed)?;
    let (ours, theirs) = (image.copy(&scratch, "ours"), image.copy(&scratch, "theirs"));
    let report = match ours.recover() {
        Ok(report) => report,
        Err(error) => keep(&image, seed, &format!("recovery failed: {error}")),
    };
    if let Some(findings) = reference.repair_findings(&ours.data, ours.log.as_deref()) {
        keep(&image, seed, &findings);
    }
    let trees = match (ours.kernel_tree(), theirs.kernel_tree()) {
        (Ok(ours), Ok(theirs)) => [ours, theirs],
        (Ok(_), Err(refusal)) => {
            println!("seed {seed} {:?}: recovered, but the kernel refuses it: {refusal}", shape.mkfs);
            return Some(());
        }
        (Err(refusal), _) => keep(&image, seed, &format!("the kernel refuses what we recovered: {refusal}")),
    };
    if trees[0] != trees[1] {
        let difference = trees[0].iter().zip(&trees[1]).find(|(ours, theirs)| ours != theirs);
        let text =
            difference.map_or_else(String::new, |(ours, theirs)| format!("ours   {ours:.2000}\ntheirs {theirs:.2000}"));
        keep(&image, seed, &format!("two trees, {} and {} files\n{text}", trees[0].len(), trees[1].len()));
    }
    let report = report.map_or_else(|| "a clean log".into(), |report| report.to_string());
    println!("seed {seed} {:?}: {report}; {} files", shape.mkfs, trees[0].len());
    Some(())
}

/// Fails, and keeps the crash image if `XFSKIT_KEEP` names a folder for it.
fn keep(image: &Image, seed: u64, why: &str) -> ! {
    if let Some(folder) = std::env::var_os("XFSKIT_KEEP") {
        copy_image(&image.data, &Path::new(&folder).join(format!("seed-{seed}.img")));
    }
    panic!("seed {seed}, shape {}: {why}", seed as usize % SHAPES.len());
}

/// `XFSKIT_RECOVERY_RUNS=500` for a long run, from the seed `XFSKIT_RECOVERY_SEED` on.
#[test]
fn crash_images_of_the_kernel_are_recovered_as_the_kernel_does() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (runs, first) = (number("XFSKIT_RECOVERY_RUNS", 14), number("XFSKIT_RECOVERY_SEED", 0));
    for seed in first..first + runs {
        if run(&reference, seed).is_none() {
            return;
        }
    }
}

#[test]
fn a_newer_kernel_that_is_stopped_in_its_work_is_recovered() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    for round in 0..2 {
        let data = scratch.image("uml.img", 400 << 20);
        reference.tool_output("mkfs.xfs", ["-q".as_ref(), "-f".as_ref(), data.as_os_str()]);
        // Two processes work, and one of them makes everything durable now and then, until the kernel is killed under
        // them.
        let script = format!(
            "mount /dev/ubda /mnt || exit 1; cd /mnt; mkdir a b
             (n=0; while :; do n=$((n + 1)); echo $n >a/f$n; setfattr -n user.x -v $n a/f$n; mv a/f$n b/g$n
               [ $((n % 3)) = 0 ] && rm b/g$n; [ $((n % 5)) = 0 ] && ln b/g$n a/h$n; done) 2>/dev/null &
             (while :; do dd if=/dev/urandom of=a/big bs=64k count=20 2>/dev/null; cp --reflink=always a/big b/big
               truncate -s 100000 a/big; sync -f a/big; done) 2>/dev/null &
             sleep {}; sync -f a; sleep 0.3; exit 99",
            2 + round
        );
        assert_eq!(reference.uml(&data, &script).status, 99);
        let image = Image { data, log: None };
        let (ours, theirs) = (image.copy(&scratch, "ours"), image.copy(&scratch, "theirs"));
        let report = ours.recover().expect("a recovery").expect("a dirty log");
        if let Some(findings) = reference.repair_findings(&ours.data, None) {
            panic!("{findings}");
        }
        let Some(kernel) = kernel_mount_with(&theirs.data, None, &[]) else { return };
        let expected = xfskit_testkit::tree(kernel.path());
        kernel.unmount();
        let files = expected.len();
        assert!(ours.kernel_tree() == Ok(expected), "two trees");
        println!("{report}; {files} files");
    }
}

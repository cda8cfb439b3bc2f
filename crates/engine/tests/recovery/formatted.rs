//! Journals that another tool formatted, with the head in any place. Both kernels, xfs_repair and xfskit must recover
//! everything that xfskit appends there and acknowledges.
//!
//! A new journal is zeros behind its first record. One that xfsprogs formats anew for metadata that carries LSNs is
//! not:
//!
//! ```text
//! sector   0    2           512               end
//!          | n  | zeros ... | n - 1 ......... |     n: a pass after every LSN that the metadata carries
//! ```

use crate::kernel::Image;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use xfskit_engine::{Caller, MountOptions, NewFile, SetMode, Volume};
use xfskit_testkit::{Reference, Scratch, TreeEntry, UML_DISKS};

const SIZE_BYTES: u64 = 320 << 20;

/// The tool that formats the journal after metadata got LSNs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tool {
    /// It is as its maker left it, with what xfskit wrote since.
    Nothing,
    Repair,
    MetadumpAndRestore,
    NewUuid,
    /// The journal keeps its records; the superblock changes through them.
    Grow,
    /// The kernel stamps sectors ahead of the head at each mount; then it is killed.
    KernelMount,
}

const TOOLS: [Tool; 7] = [
    Tool::Repair,
    Tool::NewUuid,
    Tool::KernelMount,
    Tool::Nothing,
    Tool::MetadumpAndRestore,
    Tool::KernelMount,
    Tool::Grow,
];

/// Options of mkfs.xfs: those of four distributions' kernels, and journals of several sizes and stripe units.
const MAKERS: &[&[&str]] = &[
    &[],
    &["-c", "options=/usr/share/xfsprogs/mkfs/lts_4.19.conf"],
    &["--unsupported", "-l", "size=13m", "-n", "parent=0"],
    // A small journal of 1,536 blocks: the records that may be in flight take two thirds of it.
    &["--unsupported", "-c", "options=/usr/share/xfsprogs/mkfs/lts_4.19.conf", "-b", "size=2048", "-l", "size=3m"],
    &["-c", "options=/usr/share/xfsprogs/mkfs/lts_5.15.conf"],
    &["--unsupported", "-l", "size=14m,su=32k"],
    &["-c", "options=/usr/share/xfsprogs/mkfs/lts_6.12.conf"],
    &["--unsupported", "-l", "size=16m,su=256k", "-i", "size=1024"],
    &["-s", "size=4096"],
    &["-c", "options=/usr/share/xfsprogs/mkfs/lts_6.6.conf"],
];

/// How far the head is moved before the tool formats the journal and before the crash, in 16ths of the journal.
const DISTANCES: [u64; 7] = [0, 15, 1, 16, 7, 31, 33];

struct Case<'a> {
    reference: &'a Reference,
    scratch: &'a Scratch,
    number: usize,
}

/// An image that a crash left, and what a sync had acknowledged.
struct Crashed {
    image: PathBuf,
    what: String,
    tree: Vec<TreeEntry>,
}

fn open(path: &Path) -> Volume {
    Image { data: path.into(), log: None }.open(MountOptions::default()).expect("a sound image")
}

/// Writes `bytes` to the journal by changing an attribute of the root directory.
fn fill_journal(fs: &Volume, bytes: u64) {
    let written = || fs.mount().counters.log_bytes.get();
    let end = written() + bytes;
    let mut value = [0; 60];
    for turn in 0u32.. {
        if written() >= end {
            break;
        }
        value[..4].copy_from_slice(&turn.to_le_bytes());
        fs.set_xattr(fs.root(), b"user.turn", &value, SetMode::Any, &Caller::root()).unwrap();
        fs.sync().unwrap();
    }
}

impl Case<'_> {
    fn tool(&self, program: &str, arguments: &[&OsStr]) {
        self.reference.tool_output(program, arguments);
    }

    /// Formats the journal of the image, which is clean.
    fn format(&self, tool: Tool, image: &Path) {
        let path = image.as_os_str();
        match tool {
            Tool::Nothing => {}
            Tool::Repair => self.tool("xfs_repair", &["-L".as_ref(), "-o".as_ref(), "force_geometry".as_ref(), path]),
            Tool::NewUuid => self.tool("xfs_admin", &["-U".as_ref(), "generate".as_ref(), path]),
            Tool::MetadumpAndRestore => {
                let dump = self.scratch.file("dump");
                self.tool("xfs_metadump", &["-o".as_ref(), "-a".as_ref(), path, dump.as_os_str()]);
                std::fs::remove_file(image).unwrap();
                self.tool("xfs_mdrestore", &[dump.as_os_str(), path]);
            }
            Tool::KernelMount => {
                let kernel = xfskit_testkit::kernel_mount(image).expect("it worked before");
                self.reference.shut_down(kernel.path(), false);
                kernel.unmount();
            }
            Tool::Grow => {
                let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
                file.set_len(file.metadata().unwrap().len() + (64 << 20)).unwrap();
                let run = self.reference.uml(image, "mount /dev/ubda /mnt && xfs_growfs /mnt && umount /mnt");
                assert_eq!(run.status, 0, "{}", run.output);
            }
        }
    }

    /// Crashes with the tool, maker and distances that belong to the case's number.
    fn crash(&self) -> Crashed {
        let distances = [self.number / 2, self.number].map(|at| DISTANCES[at % DISTANCES.len()]);
        self.crash_of(TOOLS[self.number % TOOLS.len()], MAKERS[self.number % MAKERS.len()], distances)
    }

    /// Makes an image, lets the tool format its journal, works on it, and cuts the power after a sync.
    fn crash_of(&self, tool: Tool, maker: &[&str], distances: [u64; 2]) -> Crashed {
        let what = format!("case {}: mkfs.xfs {maker:?}, head {distances:?}, {tool:?}", self.number);
        let image = self.scratch.image(&format!("crashed-{}.img", self.number % UML_DISKS), SIZE_BYTES);
        self.reference.mkfs(&image, &[&["-f"], maker].concat());
        let fs = open(&image);
        let me = Caller::root();
        // The whole of a journal of 64 MiB takes too long for each case.
        let unit = (fs.mount().journal.usage().1 / 16).min(512 << 10);
        let before = fs.create(fs.root(), b"before", &NewFile::dir(0o755), &me).unwrap().inode;
        fill_journal(&fs, unit * distances[0]);
        fs.unmount().unwrap();
        self.format(tool, &image);
        let fs = open(&image);
        fill_journal(&fs, unit * distances[1]);
        let file = fs.create(before, b"file", &NewFile::file(0o644), &me).unwrap().inode;
        fs.set_xattr(file, b"user.name", what.as_bytes(), SetMode::Any, &me).unwrap();
        fs.sync().unwrap();
        // Dropped without an unmount, as a process that is killed: nothing more is written.
        drop(fs);
        let mut crashed = Crashed { image, what, tree: Vec::new() };
        crashed.tree = self.judged_here(&crashed);
        crashed
    }

    /// The tree after recovery by this machine's kernel and by xfskit, which must be the same.
    fn judged_here(&self, crashed: &Crashed) -> Vec<TreeEntry> {
        let what = &crashed.what;
        let image = Image { data: crashed.image.clone(), log: None };
        let [ours, theirs] = ["ours", "theirs"].map(|name| image.copy(self.scratch, name));
        assert!(!self.reference.log_is_clean(&theirs.data), "{what}: xfs_logprint sees a clean journal");
        let report = ours.recover().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(report.is_some(), "{what}: xfskit sees a clean journal");
        assert!(self.reference.log_is_clean(&ours.data), "{what}: xfs_logprint sees a dirty journal after an unmount");
        let trees = [ours.kernel_tree(), theirs.kernel_tree()]
            .map(|tree| tree.unwrap_or_else(|refusal| panic!("{what}: the kernel refuses it: {refusal}")));
        for image in [ours, theirs] {
            if let Some(findings) = self.reference.repair_findings(&image.data, None) {
                panic!("{what}: {findings}");
            }
        }
        let [ours, theirs] = trees;
        assert!(ours == theirs, "{what}: xfskit's tree has {} files, the kernel's {}", ours.len(), theirs.len());
        let acknowledged = theirs.iter().any(|entry| format!("{entry}").contains("before/file"));
        assert!(acknowledged, "{what}: what a sync acknowledged is gone");
        theirs
    }
}

/// Lets the 7.2 kernel recover what the first kernel has recovered.
fn judged_by_newest_kernel(reference: &Reference, crashed: &[Crashed]) {
    let images: Vec<PathBuf> = crashed.iter().map(|crashed| crashed.image.clone()).collect();
    let count = images.len();
    let script = format!(
        "for disk in $(ls /dev/ubd? | head -n {count}); do echo $disk
           mount -t xfs -o nouuid $disk /mnt && umount /mnt || exit 1; done"
    );
    let run = reference.uml_with(&images, &script);
    assert_eq!(run.status, 0, "{}", run.output);
    for Crashed { image, what, tree } in crashed {
        let image = Image { data: image.clone(), log: None };
        let newest = image.kernel_tree().unwrap_or_else(|refusal| panic!("{what}: {refusal}"));
        assert!(newest == *tree, "{what}: the kernels' trees differ");
    }
}

/// In a journal of less than 4,608 sectors, the sectors that may have been in flight wrap around to those that xfsprogs
/// leaves empty.
#[test]
fn a_journal_that_was_formatted_and_is_as_small_as_what_may_be_in_flight_is_read() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    // With a stripe unit of a few blocks and without further trees mkfs.xfs makes them so small.
    let maker = |log| {
        let features = ["-i", "nrext64=0,exchange=0", "-n", "parent=0", "-m", "reflink=0,rmapbt=0", "-l", log];
        [&["--unsupported", "-b", "size=1024"], &features[..]].concat()
    };
    let probe = scratch.image("probe.img", SIZE_BYTES);
    reference.mkfs(&probe, &[]);
    if xfskit_testkit::kernel_mount(&probe).is_none() {
        return;
    }
    let mut waiting = Vec::new();
    let cases = [
        (Tool::Repair, "size=2184k,su=4096", 0),
        (Tool::NewUuid, "size=2284k,su=4096", 1),
        (Tool::Repair, "size=2300k,su=4096", 15),
    ];
    for (number, (tool, log, distance)) in cases.into_iter().enumerate() {
        let case = Case { reference: &reference, scratch: &scratch, number };
        waiting.push(case.crash_of(tool, &maker(log), [1, distance]));
    }
    judged_by_newest_kernel(&reference, &waiting);
}

/// `XFSKIT_FORMATTED_RUNS=490` for every combination of tool, maker and head.
#[test]
fn what_is_acknowledged_in_a_journal_of_another_tool_is_recovered_by_all() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let probe = scratch.image("probe.img", SIZE_BYTES);
    reference.mkfs(&probe, &[]);
    if xfskit_testkit::kernel_mount(&probe).is_none() {
        return;
    }
    let runs = std::env::var("XFSKIT_FORMATTED_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let mut waiting = Vec::new();
    for number in 0..runs {
        waiting.push(Case { reference: &reference, scratch: &scratch, number }.crash());
        if waiting.len() == UML_DISKS || number + 1 == runs {
            judged_by_newest_kernel(&reference, &std::mem::take(&mut waiting));
        }
    }
}

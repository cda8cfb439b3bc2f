//! A sample of crash states, judged by other programs: recovered by this machine's kernel, by the 7.2 kernel and by
//! xfskit, each state gives the same tree, and xfs_repair finds nothing. `XFSKIT_OUTSIDE_STATES` sets the number of
//! states, `XFSKIT_SEED` the first seed.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{MountOptions, Volume};
use xfskit_sim::{BadPlace, Crashed, RunOptions, TornWrite, WORKLOADS, bad_place, crash_for_kernel, record};
use xfskit_testkit::{Reference, Scratch, TreeEntry, UML_DISKS, kernel_mount, tree};

fn save(state: &Crashed, path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(state.size_bytes).unwrap();
    for (offset, bytes) in state.contents() {
        file.write_all_at(bytes, offset).unwrap();
    }
}

/// The tree as this machine's kernel sees it, after recovery if the log is dirty.
fn kernel_tree(image: &Path) -> Option<Vec<TreeEntry>> {
    let mount = kernel_mount(image)?;
    let found = tree(mount.path());
    mount.unmount();
    Some(found)
}

/// The entries in which two trees differ.
fn difference(ours: &[TreeEntry], theirs: &[TreeEntry]) -> String {
    let only = |these: &[TreeEntry], others: &[TreeEntry], sign: char| -> Vec<String> {
        let lines = these.iter().filter(|entry| !others.contains(entry));
        lines.map(|entry| format!("{sign} {entry:.600}")).collect()
    };
    [only(ours, theirs, '+'), only(theirs, ours, '-')].concat().join("\n")
}

/// A state that this machine's kernel has recovered, for the 7.2 kernel to recover.
struct Recovered {
    what: String,
    image: PathBuf,
    tree: Vec<TreeEntry>,
}

/// One state, recovered by this machine's kernel and by xfskit. `None` without a kernel.
fn by_kernel_and_xfskit(reference: &Reference, scratch: &Scratch, number: u64, first: u64) -> Option<Recovered> {
    let workload = &WORKLOADS[number as usize % WORKLOADS.len()];
    let seed = first + number;
    let (mut recording, _) = record(workload, seed, RunOptions::default()).unwrap();
    // One state in four is from a device with a bad place. A refused write is lost as a whole, because the kernel's
    // recovery does not repair torn metadata.
    let place = bad_place(&recording, seed)
        .filter(|_| number % 4 == 3)
        .map(|place| BadPlace { around: TornWrite::IsLost, ..place });
    if place.is_some() {
        (recording, _) = record(workload, seed, RunOptions { bad_place: place, ..RunOptions::default() }).unwrap();
    }
    let at = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % (recording.events.len() + 1);
    let (state, _) = crash_for_kernel(&recording, at, seed);
    let bad = place.map_or(String::new(), |place| format!(", bad place {place}"));
    let what = format!("workload {} seed {seed}{bad}, cut after event {at}", workload.name);
    let [theirs, ours] = ["theirs.img", "ours.img"].map(|name| scratch.file(name));
    save(&state, &theirs);
    let tree = kernel_tree(&theirs)?;
    reference.repair_finds_nothing(&theirs);
    save(&state, &ours);
    let device = Arc::new(FileDevice::open(&ours, Access::Write).unwrap());
    let fs = Volume::open(device, MountOptions::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&ours);
    let found = kernel_tree(&ours).unwrap();
    if let Some(folder) = std::env::var_os("XFSKIT_KEEP").filter(|_| found != tree) {
        save(&state, &Path::new(&folder).join("outside.img"));
    }
    assert!(found == tree, "{what}: xfskit's tree is not the kernel's\n{}", difference(&found, &tree));
    let image = scratch.file(&format!("newest-{}.img", number as usize % UML_DISKS));
    save(&state, &image);
    Some(Recovered { what, image, tree })
}

/// Lets the 7.2 kernel recover the states that this machine's kernel has recovered. There are as many as it has disks,
/// so that it boots once for all of them.
fn by_newest_kernel(reference: &Reference, states: &[Recovered]) {
    let images: Vec<PathBuf> = states.iter().map(|state| state.image.clone()).collect();
    let script = format!(
        "for disk in $(ls /dev/ubd? | head -n {}); do echo $disk; mount -t xfs -o nouuid $disk /mnt && umount /mnt ||
           exit 1
         done",
        images.len()
    );
    let run = reference.uml_with(&images, &script);
    let last = run.output.lines().filter(|line| line.starts_with("/dev/ubd")).count();
    let what = last.checked_sub(1).map_or("", |disk| &states[disk].what);
    assert!(run.status == 0 && last == images.len(), "{what}: {}", run.output);
    for Recovered { what, image, tree } in states {
        reference.repair_finds_nothing(image);
        let newest = kernel_tree(image).expect("it worked before");
        assert!(newest == *tree, "{what}: the kernels' trees differ\n{}", difference(&newest, tree));
    }
}

#[test]
fn both_kernels_and_xfskit_recover_the_same_tree() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let states = number("XFSKIT_OUTSIDE_STATES").unwrap_or(32);
    let first = number("XFSKIT_SEED").unwrap_or(1);
    let scratch = xfskit_testkit::scratch();
    let mut waiting = Vec::new();
    for number in 0..states {
        let Some(state) = by_kernel_and_xfskit(&reference, &scratch, number, first) else { return };
        waiting.push(state);
        if waiting.len() == UML_DISKS || number + 1 == states {
            by_newest_kernel(&reference, &std::mem::take(&mut waiting));
        }
    }
}

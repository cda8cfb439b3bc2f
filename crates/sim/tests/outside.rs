//! A sample of crash states before the outside judges: recovered by this machine's kernel, by the 7.2 kernel and by xfskit,
//! each ends as the same tree, and xfs_repair finds nothing. `XFSKIT_OUTSIDE_STATES` sets how many, `XFSKIT_SEED` where to begin.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use xfskit::device::{Access, FileDevice};
use xfskit::{Filesystem, MountOptions};
use xfskit_sim::{Crashed, WORKLOADS, Wishes, crash_for_kernel, record};
use xfskit_testkit::{Entry, kernel_mount, tree};

/// One state in so many is also recovered by the 7.2 kernel, which has to boot for it.
const UML_ONE_IN: u64 = 4;

fn save(state: &Crashed, path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(state.size_bytes).unwrap();
    for (offset, bytes) in state.contents() {
        file.write_all_at(bytes, offset).unwrap();
    }
}

/// The tree as this machine's kernel sees it, after recovery if the log is dirty.
fn kernel_tree(image: &Path) -> Option<Vec<Entry>> {
    let mount = kernel_mount(image)?;
    let found = tree(mount.path());
    mount.unmount();
    Some(found)
}

/// The entries in which two trees differ.
fn difference(ours: &[Entry], theirs: &[Entry]) -> String {
    let only = |these: &[Entry], others: &[Entry], sign: char| -> Vec<String> {
        let lines = these.iter().filter(|entry| !others.contains(entry));
        lines.map(|entry| format!("{sign} {entry:.600}")).collect()
    };
    [only(ours, theirs, '+'), only(theirs, ours, '-')].concat().join("\n")
}

#[test]
fn both_kernels_and_xfskit_recover_the_same_tree() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let states = number("XFSKIT_OUTSIDE_STATES").unwrap_or(14);
    let first = number("XFSKIT_SEED").unwrap_or(1);
    let scratch = xfskit_testkit::scratch();
    for number in 0..states {
        let workload = &WORKLOADS[number as usize % WORKLOADS.len()];
        let seed = first + number / WORKLOADS.len() as u64;
        let (recording, _) = record(workload, seed, Wishes::default()).unwrap();
        let at = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % (recording.events.len() + 1);
        let (state, _) = crash_for_kernel(&recording, at, seed);
        let what = format!("workload {} seed {seed}, cut after event {at}", workload.name);
        let [theirs, newest, ours] = ["theirs.img", "newest.img", "ours.img"].map(|name| scratch.file(name));
        save(&state, &theirs);
        let Some(expected) = kernel_tree(&theirs) else { return };
        reference.repair_finds_nothing(&theirs);
        save(&state, &ours);
        let device = Arc::new(FileDevice::open(&ours, Access::Write).unwrap());
        let fs = Filesystem::open(device, MountOptions::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
        fs.unmount().unwrap();
        reference.repair_finds_nothing(&ours);
        let found = kernel_tree(&ours).unwrap();
        if let Some(folder) = std::env::var_os("XFSKIT_KEEP").filter(|_| found != expected) {
            save(&state, &Path::new(&folder).join("outside.img"));
        }
        assert!(found == expected, "{what}: xfskit's tree is not the kernel's\n{}", difference(&found, &expected));
        if number.is_multiple_of(UML_ONE_IN) {
            save(&state, &newest);
            let run = reference.uml(&newest, "mount -t xfs /dev/ubda /mnt && umount /mnt");
            assert_eq!(run.status, 0, "{what}: {}", run.output);
            reference.repair_finds_nothing(&newest);
            assert!(kernel_tree(&newest).unwrap() == expected, "{what}: the kernels' trees differ");
        }
    }
}

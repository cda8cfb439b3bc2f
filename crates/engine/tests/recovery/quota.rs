//! Images that keep quotas, and that were grown. The kernel's records are replayed. The kernel counts our later changes
//! at its next mount, because the superblock says that the usage on disk was not kept.

use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, Volume};
use xfskit_testkit::{Reference, copy_image};

/// Makes files of several users and groups and grows the filesystem; then the power fails.
const WORK: &str = "mount -o uquota,gquota,pquota /dev/ubda /mnt || exit 1; cd /mnt; mkdir d
    for i in $(seq 1 40); do head -c $((i * 3000)) /dev/zero >d/f$i; chown $i:$((i % 7)) d/f$i; done; sync
    xfs_growfs -D 100000 /mnt >/dev/null || exit 2
    for i in $(seq 41 60); do head -c 9000 /dev/zero >d/f$i; chown $i:$((i % 7)) d/f$i; done
    rm d/f1 d/f2 d/f3; xfs_io -x -c 'shutdown -f' /mnt; exit 99";

/// Usage as the kernel accounts it, and as the files have it (but for root, who also has inodes without names); then
/// the size of the filesystem.
const REPORT: &str = "mount -o uquota,gquota,pquota /dev/ubda /mnt || exit 1; cd /mnt
    xfs_quota -x -c 'report -n -N -u -b -i' /mnt |
        awk '$1 != \"#0\" && ($2 || $7) { print \"user\", $1, $2, $7 }' | sort
    find . ! -uid 0 -printf '#%U %k\\n' |
        awk '{ k[$1] += $2; n[$1]++ } END { for (u in k) print \"user\", u, k[u], n[u] }' | sort | sed 's/^/found /'
    echo size $(stat -f -c %b /mnt)";

fn report(reference: &Reference, image: &Path) -> Vec<String> {
    let run = reference.uml(image, REPORT);
    assert_eq!(run.status, 0, "{}", run.output);
    run.output.lines().map(str::to_owned).collect()
}

fn open(image: &Path) -> Volume {
    let device = Arc::new(FileDevice::open(image, Access::Write).unwrap());
    Volume::open(device, MountOptions::default()).unwrap()
}

#[test]
fn quotas_and_growth_are_replayed_and_later_usage_is_counted_anew() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let ours = scratch.image("ours.img", 1 << 30);
    reference.tool_output("mkfs.xfs", ["-q".as_ref(), "-dsize=320m".as_ref(), ours.as_os_str()]);
    let run = reference.uml(&ours, WORK);
    assert_eq!(run.status, 99, "{}", run.output);
    let theirs = scratch.file("theirs.img");
    copy_image(&ours, &theirs);
    let fs = open(&ours);
    let replayed = fs.mount().recovery.clone().expect("a dirty log");
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&ours);
    let recovered = scratch.file("recovered.img");
    copy_image(&ours, &recovered);
    let (a, b) = (report(&reference, &recovered), report(&reference, &theirs));
    assert_eq!(a, b, "{replayed}");
    assert!(a.len() > 100, "{a:?}");

    // Now we change the owners of files, and the kernel's own counting must agree with the files.
    let fs = open(&ours);
    let dir = fs.lookup(fs.root(), b"d").unwrap().inode;
    let user = Caller { uid: 1000, gid: 1000, ..Caller::root() };
    let new = fs.create(dir, b"ours", &NewFile::file(0o644), &user).unwrap().inode;
    fs.write_at(new, 0, &[7; 50_000]).unwrap();
    fs.unlink(dir, b"f50", &Caller::root()).unwrap();
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&ours);
    let lines = report(&reference, &ours);
    let accounted: Vec<_> = lines.iter().filter(|line| line.starts_with("user #")).collect();
    let found: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("found ")).collect();
    assert_eq!(accounted, found);
    assert!(found.contains(&"user #1000 52 1"), "{found:?}");
}

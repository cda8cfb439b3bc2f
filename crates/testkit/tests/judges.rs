//! Tests of the judges: each must accept an image of mkfs.xfs and reject a broken one.

use std::os::unix::fs::FileExt;
use xfskit_testkit::{kernel_mount, reference, scratch, tree};

#[test]
fn repair_and_logprint_judge_images() {
    let Some(reference) = reference() else { return };
    let dir = scratch();
    let image = dir.image("image", 300 << 20);
    reference.tool_output("mkfs.xfs", ["-f".as_ref(), "-q".as_ref(), image.as_os_str()]);
    reference.repair_finds_nothing(&image);
    assert!(reference.log_is_clean(&image));
    assert!(reference.db(&image, &["sb 0", "print blocksize"]).contains("blocksize = 4096"));
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0xff; 64], 512).unwrap();
    assert!(reference.repair_findings(&image, None).is_some());
}

#[test]
fn both_kernels_see_the_same_tree() {
    let Some(reference) = reference() else { return };
    let dir = scratch();
    let image = dir.image("image", 300 << 20);
    reference.tool_output("mkfs.xfs", ["-f".as_ref(), "-q".as_ref(), image.as_os_str()]);
    let script = "mount -t xfs /dev/ubda /mnt && mkdir /mnt/d && echo hello >/mnt/d/f && ln /mnt/d/f /mnt/g && \
                  setfattr -n user.a -v 1 /mnt/g && setfacl -m u:7:r /mnt/g && stat -c %i /mnt && exit 3";
    let run = reference.uml(&image, script);
    assert_eq!((run.status, run.output.trim()), (3, "128"));
    let Some(mount) = kernel_mount(&image) else { return };
    let entries = tree(mount.path());
    let paths: Vec<_> = entries.iter().map(|entry| entry.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["", "d", "d/f", "g"]);
    let names: Vec<_> = entries[3].xattrs.iter().map(|(name, _)| name.as_str()).collect();
    // Root also sees the attribute in which XFS stores the ACL.
    assert_eq!(names, ["system.posix_acl_access", "trusted.SGI_ACL_FILE", "user.a"]);
    assert_eq!(entries[0].xattrs[0].0, "trusted.xfs:autofsck");
    assert_eq!((entries[3].links, entries[3].size, entries[3].contents), (2, 6, entries[2].contents));
    mount.unmount();
    reference.repair_finds_nothing(&image);
}

#[test]
fn a_power_cut_leaves_a_dirty_log() {
    let Some(reference) = reference() else { return };
    let dir = scratch();
    let image = dir.image("image", 300 << 20);
    reference.tool_output("mkfs.xfs", ["-f".as_ref(), "-q".as_ref(), image.as_os_str()]);
    let run = reference.uml(&image, "mount -t xfs /dev/ubda /mnt && touch /mnt/a && sync && touch /mnt/b && exit 99");
    assert_eq!(run.status, 99);
    assert!(!reference.log_is_clean(&image));
}

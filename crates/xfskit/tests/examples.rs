//! The examples do what they say; the kernel and xfs_repair check the images that they leave.

#[allow(dead_code)] // Their `main` is for cargo.
#[path = "../examples/crash.rs"]
mod crash;
#[allow(dead_code)]
#[path = "../examples/labels.rs"]
mod labels;
#[allow(dead_code)]
#[path = "../examples/manifest.rs"]
mod manifest;
#[allow(dead_code)]
#[path = "../examples/tour.rs"]
mod tour;

use std::fs;
use xfskit_testkit::{kernel_mount, reference, scratch};

const MANIFEST: &str = "\
# what a small system needs
dir   0755 0:0  /etc
dir   1777 0:0  /tmp
file  0640 0:42 /etc/shadow root:*:19000:0:99999:7:::
file  0644 0:0  /etc/empty
link  /etc/mtab             ../proc/self/mounts
xattr /etc/shadow           security.selinux system_u:object_r:shadow_t:s0
";

#[test]
fn a_manifest_becomes_an_image_whose_labels_can_be_audited_and_that_the_tour_can_use() {
    let scratch = scratch();
    let image = scratch.file("disk.img");
    manifest::build(MANIFEST, &image).unwrap();
    let findings = labels::audit(&image, "/").unwrap();
    let shadow = "/etc/shadow: system_u:object_r:shadow_t:s0, unlike its directory";
    assert_eq!(findings, ["/etc: no label", shadow, "/etc/empty: no label", "/etc/mtab: no label", "/tmp: no label"]);
    assert_eq!(tour::tour(image.to_str().unwrap()).unwrap(), ["/etc/motd", "/message"]);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    let Some(mount) = kernel_mount(&image) else { return };
    let entries = mount.into_tree();
    let shown: Vec<_> = entries.iter().map(ToString::to_string).collect();
    let find = |path: &str| shown.iter().find(|line| line.starts_with(&format!("{path} "))).unwrap().as_str();
    assert!(find("/tmp").contains("41777"), "{}", find("/tmp"));
    assert!(find("/etc/shadow").contains("100640 0:42 1 links 25 bytes"), "{}", find("/etc/shadow"));
    assert!(find("/etc/mtab").contains("-> ../proc/self/mounts"), "{}", find("/etc/mtab"));
    assert!(find("/message").contains("2 links 6 bytes"), "{}", find("/message"));
    assert!(find("/etc/motd").contains("security.selinux=system_u:object_r:etc_t:s0"), "{}", find("/etc/motd"));
}

#[test]
fn a_manifest_with_a_wrong_line_leaves_no_image_and_names_the_line() {
    let scratch = scratch();
    let image = scratch.file("disk.img");
    let error = manifest::build("dir 0755 0:0 /etc\n\nfile 0644 0:0 /missing/motd hello\n", &image).unwrap_err();
    assert_eq!(error.to_string(), "line 3: open /missing/motd: no such file or directory");
    assert!(!fs::exists(&image).unwrap());
}

#[test]
fn letters_that_were_removed_in_memory_only_are_back_after_the_crash() {
    let (recovery, names) = crash::crash().unwrap();
    assert!(recovery.contains("replayed"), "{recovery}");
    assert_eq!(names.len(), 101);
}

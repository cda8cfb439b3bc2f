//! Changed archives of GNU tar and bsdtar: each fills an image or is refused. If GNU tar extracts it too, the kernel
//! must find the same tree in the image.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use xfskit_fuzz_harness::Random;
use xfskit_fuzz_harness::archive::{fill, mend, tar};
use xfskit_fuzz_harness::fuzz::{self, Target, change, corpus};
use xfskit_testkit::{Scratch, TreeEntry, kernel_mount, reference, scratch, skip, tree};

/// Archives that are extracted by another program as well.
const COMPARED: u64 = 60;
const BLOCK: usize = 512;

const MAKERS: [&[&str]; 12] = [
    &["tar", "--format=gnu", "--sparse"],
    &["tar", "--format=gnu", "--incremental"],
    &["tar", "--format=pax", "--sparse", "--sparse-version=0.0", "--xattrs"],
    &["tar", "--format=pax", "--sparse", "--sparse-version=0.1", "--xattrs", "--acls"],
    &["tar", "--format=pax", "--sparse", "--sparse-version=1.0", "--xattrs"],
    &["tar", "--format=ustar"],
    &["tar", "--format=v7"],
    &["tar", "--format=oldgnu"],
    &["bsdtar", "--format=pax", "--xattrs"],
    &["bsdtar", "--format=ustar"],
    &["bsdtar", "--format=gnutar"],
    &["tar", "--format=pax", "--pax-option=globexthdr.name=g,comment=all,uname=everybody"],
];

fn make_tree(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("dir/below")).unwrap();
    fs::write(at("dir/file"), "some contents\n").unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::hard_link(at("dir/file"), at("again")).unwrap();
    symlink("dir/file", at("link")).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(300_000).unwrap();
    for place in [0, 8192, 100_000, 250_000] {
        sparse.write_all_at(b"data", place).unwrap();
    }
    rustix::fs::setxattr(at("empty"), "user.one", b"1", rustix::fs::XattrFlags::empty()).unwrap();
}

/// Names that are too long for some formats.
fn make_long_names(root: &Path) {
    fs::write(root.join("n".repeat(120)), "long").unwrap();
    symlink("t".repeat(130), root.join("long-link")).unwrap();
}

fn archives(scratch: &Scratch) -> Vec<Vec<u8>> {
    let root = scratch.file("tree");
    make_tree(&root);
    let mut archives = Vec::new();
    for (number, maker) in MAKERS.iter().enumerate() {
        if number == 5 {
            continue;
        }
        archives.extend(archive(maker, &root));
    }
    archives.extend(archive(MAKERS[5], &root));
    make_long_names(&root);
    archives.extend(archive(MAKERS[0], &root));
    archives.extend(archive(MAKERS[4], &root));
    archives
}

fn archive(maker: &[&str], root: &Path) -> Option<Vec<u8>> {
    let mut command = Command::new(maker[0]);
    command.args(&maker[1..]).args(["-c", "-f", "-", "-C"]).arg(root);
    let output = match command.arg(".").output() {
        Ok(output) => output,
        Err(error) => {
            skip(&format!("{}: {error}", maker[0]));
            return None;
        }
    };
    assert!(output.status.success(), "{maker:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut bytes = output.stdout;
    // The padding after the end mark is left out.
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    bytes.truncate((end + 1).next_multiple_of(BLOCK) + 2 * BLOCK);
    Some(bytes)
}

fn seeds() -> Vec<Vec<u8>> {
    archives(&scratch())
}

#[test]
fn fuzz_tar() {
    fuzz::run(&Target { name: "tar", seeds, run: tar });
}

/// The parts of entries that both programs must agree on. Times of directories depend on the order in which their files
/// are made.
fn compared(entries: Vec<TreeEntry>) -> BTreeMap<PathBuf, TreeEntry> {
    let mut found = BTreeMap::new();
    for mut entry in entries {
        let is_dir = entry.mode & 0o170_000 == 0o040_000;
        if is_dir {
            (entry.mtime, entry.links) = ((0, 0), 0);
        }
        entry.xattrs.retain(|(name, _)| name.starts_with("user."));
        if !entry.path.as_os_str().is_empty() {
            found.insert(entry.path.clone(), entry);
        }
    }
    found
}

/// Extracts an archive with GNU tar, and compares the tree with an image that is filled from the archive. Returns false
/// if GNU tar or xfskit refuses the archive or complains.
fn is_the_same(scratch: &Scratch, archive: &[u8], what: &str) -> bool {
    let filled = fill(archive);
    if !filled.is_whole {
        return false;
    }
    let (path, image) = (scratch.file("a.tar"), scratch.file("a.img"));
    fs::write(&path, archive).unwrap();
    let folder = scratch.file("extracted");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let mut command = Command::new("timeout");
    command.args(["20", "tar", "-x", "--xattrs", "--numeric-owner", "-p", "-f"]).arg(&path).arg("-C").arg(&folder);
    let output = command.output().unwrap();
    if !output.status.success() || !output.stderr.is_empty() {
        return false;
    }
    fs::write(&image, filled.image.to_bytes()).unwrap();
    let Some(kernel) = kernel_mount(&image) else { return false };
    let (theirs, ours) = (compared(tree(&folder)), compared(kernel.into_tree()));
    for (path, entry) in &theirs {
        assert_eq!(ours.get(path), Some(entry), "{what}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
    true
}

#[test]
fn what_another_program_extracts_is_in_the_image() {
    let scratch = scratch();
    let seeds = archives(&scratch);
    let pool: Vec<Vec<u8>> = seeds.iter().cloned().chain(corpus("tar")).collect();
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |number| number.parse().unwrap());
    let (seed, count) = (number("XFSKIT_SEED", 5), number("XFSKIT_COMPARED", COMPARED));
    let mut random = Random::new(seed);
    let (mut same, mut repaired) = (0, 0);
    for number in 0..count {
        let mut input = random.pick(&seeds).unwrap().clone();
        // The first archives are not changed.
        for _ in 0..usize::from(number >= 12) * (1 + random.below(3)) {
            change(&mut input, &pool, &mut random);
        }
        if !is_the_same(&scratch, &mend(&input), &format!("archive {number} of seed {seed}")) {
            continue;
        }
        same += 1;
        if same % 8 == 0
            && let Some(reference) = reference()
        {
            reference.repair_finds_nothing(&scratch.file("a.img"));
            repaired += 1;
        }
    }
    println!("{same} trees are the same, {repaired} images were shown to xfs_repair");
    assert!(same > 10 || rustix::process::geteuid().as_raw() != 0, "{same} trees were compared");
}

/// The header of an entry without contents may have a size. Contents do not follow it, so the next header must be
/// found.
#[test]
fn the_size_of_what_has_no_contents_counts_for_nothing() {
    let scratch = scratch();
    let root = scratch.file("tree");
    make_tree(&root);
    for format in ["--format=gnu", "--format=ustar"] {
        let Some(mut archive) = archive(&["tar", format], &root) else { return };
        let mut changed = 0;
        let mut at = 0;
        while archive[at..at + BLOCK] != [0; BLOCK] {
            let size = std::str::from_utf8(&archive[at + 124..at + 135]).unwrap();
            let contents = u64::from_str_radix(size, 8).unwrap().next_multiple_of(BLOCK as u64);
            if b"125".contains(&archive[at + 156]) {
                archive[at + 124..at + 135].copy_from_slice(b"00000002000");
                changed += 1;
            }
            at += BLOCK + contents as usize;
        }
        assert!(changed >= 4, "{changed} headers");
        let is_same = is_the_same(&scratch, &mend(&archive), format);
        assert!(is_same || rustix::process::geteuid().as_raw() != 0, "the archive of {format} is refused");
    }
}

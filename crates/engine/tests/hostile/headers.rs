//! What a mount checks before it succeeds: the root directory, the AGs' headers, maps of directories. Each test also
//! checks whether the kernel mounts the same image.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit::rescue::{Loss, Search};
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, Error, MountOptions, NewFile, Volume};
use xfskit_ondisk::AgNumber;
use xfskit_testkit::{Reference, Scratch, try_kernel_mount};

fn open(path: &Path, access: Access) -> Result<Volume, Error> {
    let options = MountOptions { read_only: access == Access::Read, ..MountOptions::default() };
    Volume::open(Arc::new(FileDevice::open(path, access).expect("an image")), options)
}

/// An image by mkfs.xfs.
fn new_image(reference: &Reference, scratch: &Scratch) -> PathBuf {
    let path = scratch.image("a.img", 320 << 20);
    reference.mkfs(&path, &["-f"]);
    path
}

/// An image by mkfs.xfs, changed by xfs_db.
fn changed(reference: &Reference, scratch: &Scratch, commands: &[&str]) -> PathBuf {
    let path = new_image(reference, scratch);
    change(reference, &path, commands);
    path
}

fn change(reference: &Reference, path: &Path, commands: &[&str]) {
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    reference.tool_output("xfs_db", ["-x"].into_iter().chain(commands).chain([path.to_str().expect("a plain path")]));
}

/// The error for an image that both the kernel and we refuse; `None` without a kernel.
fn refused_by_both(path: &Path) -> Option<String> {
    let kernel = try_kernel_mount(path, None, &[])?;
    assert!(kernel.is_err(), "the kernel mounts it");
    let before = std::fs::read(path).expect("an image");
    let errors = [Access::Read, Access::Write].map(|access| open(path, access).err().expect("a refusal"));
    assert!(errors.iter().all(Error::is_damage), "{errors:?}");
    assert!(std::fs::read(path).expect("an image") == before, "a refused image was changed");
    Some(errors[0].to_string())
}

#[test]
fn a_mount_needs_a_root_directory() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    for (field, named) in [("core.magic 0", "magic"), ("core.mode 0100644", "root inode"), ("core.size 0", "size")] {
        let path = changed(&reference, &scratch, &["sb 0", "addr rootino", &format!("write -d {field}")]);
        let Some(error) = refused_by_both(&path) else { return };
        assert!(error.contains(named) || error.contains("format fits"), "{field}: {error}");
    }
}

#[test]
fn an_ag_has_no_more_btree_blocks_than_blocks() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = changed(&reference, &scratch, &["agf 1", "write -d btreeblks 900000"]);
    let kernel = try_kernel_mount(&path, None, &[]);
    let error = open(&path, Access::Write).err().expect("a refusal").to_string();
    assert!(error.contains("AGF") && error.contains("btree block counters"), "{error}");
    // The kernel reads the header when it first needs it, and then shuts down.
    if let Some(Ok(kernel)) = kernel {
        let full = std::fs::write(kernel.path().join("file"), vec![1; 100 << 20]).is_err();
        let gone = std::fs::read_dir(kernel.path()).is_err();
        assert!(full || gone, "the kernel allocates from all AGs");
        drop(kernel);
    }
}

/// Kernels before 4.17 wrote a ring of another length: its ends and its count contradict each other for other kernels,
/// which then empty it and go on.
#[test]
fn a_free_list_of_an_old_kernel_is_emptied_as_by_the_kernel() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let commands = ["agf 0", "write -d fllast 9", "agf 1", "write -d fllast 9"];
    let path = changed(&reference, &scratch, &commands);
    let theirs = scratch.file("theirs.img");
    xfskit_testkit::copy_image(&path, &theirs);
    let Some(kernel) = try_kernel_mount(&theirs, None, &[]) else { return };
    let kernel = kernel.expect("the kernel mounts it");
    // The kernel empties the list when it first allocates from the AG.
    std::fs::write(kernel.path().join("file"), vec![1; 1 << 20]).expect("room");
    kernel.unmount();
    // Looking at it changes nothing.
    drop(open(&path, Access::Read).expect("an image to look at"));
    let fs = open(&path, Access::Write).expect("an image that the kernel mounts");
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).expect("room").inode;
    fs.write_at(file, 0, &vec![1; 1 << 20]).expect("room");
    fs.unmount().expect("a clean end");
    let consistent = |path: &Path| {
        let text = reference.db(path, &["agf 0", "print flfirst fllast flcount"]);
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a field of the AGF");
            line.trim_start_matches(" = ").parse::<u32>().expect("a number")
        };
        // A ring of 119 entries, as large as a sector of 512 bytes holds.
        (number("fllast") + 1 + 119 - number("flfirst")) % 119 == number("flcount")
    };
    assert!(consistent(&theirs), "the kernel's list");
    assert!(consistent(&path), "our list");
    // The blocks of the old lists are lost until a repair; nothing else is wrong.
    let ours = reference.tool("xfs_repair", [path.as_os_str()]);
    assert!(ours.status.success(), "{}", String::from_utf8_lossy(&ours.stderr));
    reference.repair_finds_nothing(&path);
    let fs = open(&path, Access::Read).expect("a sound image");
    assert_eq!(fs.lookup(fs.root(), b"file").expect("the file").size, 1 << 20);
}

/// A directory whose map names the same blocks for all of its length would be listed without an end.
#[test]
fn a_directory_whose_map_names_a_block_twice_is_refused() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = new_image(&reference, &scratch);
    let fs = open(&path, Access::Write).expect("a sound image");
    let me = Caller::root();
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).expect("room").inode;
    for n in 0..200 {
        let name = format!("a name that takes some of a directory's space {n}");
        fs.create(dir, name.as_bytes(), &NewFile::file(0o644), &me).expect("room");
        // Another file's blocks lie between those of the directory, so that its map has several extents.
        let other = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &me).expect("room").inode;
        fs.write_at(other, 0, &[1; 4096]).expect("room");
        fs.fsync(other).expect("a device that works");
    }
    fs.unmount().expect("a clean end");
    let inode = format!("inode {}", dir.0);
    let first = reference.db(&path, &[&inode, "print u3.bmx[0].startblock"]);
    let first = first.split("= ").nth(1).and_then(|text| text.split_whitespace().next()).expect("a block").to_owned();
    change(&reference, &path, &[&inode, &format!("write -d u3.bmx[1].startblock {first}")]);
    let error = open(&path, Access::Read).expect("a sound root").list_dir(dir).expect_err("damage").to_string();
    assert!(error.contains("blocks mapped once"), "{error}");
}

/// The copies of the superblock that mkfs.xfs wrote, and what is left of an image that was cut short.
#[test]
fn an_image_without_its_first_superblock_or_its_end_is_rescued() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = new_image(&reference, &scratch);
    let fs = open(&path, Access::Write).expect("a sound image");
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).expect("room").inode;
    fs.write_at(file, 0, b"contents").expect("room");
    // The superblock of another image in a file is not taken for a copy of this one's.
    fs.write_at(file, 4096, &std::fs::read(&path).expect("an image")[..4096]).expect("room");
    fs.sync().expect("a device that works");
    let dirty = std::fs::read(&path).expect("an image");
    fs.unmount().expect("a clean end");
    let clean = std::fs::read(&path).expect("an image");
    let look = |bytes: Vec<u8>| {
        let device = Arc::new(xfskit_device::MemoryDevice::from_bytes(bytes));
        let rescued =
            xfskit::rescue::rescue(device, Search::Whole).expect("a device that works").expect("an image to rescue");
        let fs = Volume::open(rescued.device, MountOptions::read_only()).expect("a root directory");
        let file = fs.lookup(fs.root(), b"file").expect("the file, from the journal").inode;
        let mut contents = [0; 8];
        fs.read_at(file, 0, &mut contents).expect("its contents");
        assert_eq!(&contents, b"contents");
        rescued.losses
    };
    let without_first = |whole: &[u8]| {
        let mut bytes = whole.to_vec();
        bytes[..512].fill(0);
        bytes
    };
    assert!(matches!(look(without_first(&dirty))[..], [Loss::FirstSuperblock { copy: AgNumber(1..) }]));
    // The second AG's copy is still there, and so is the file in the first.
    let quarter = clean.len() / 4;
    let cut = |bytes: Vec<u8>| bytes[..3 * quarter + 8192].to_vec();
    assert!(matches!(look(cut(clean.clone()))[..], [Loss::End { .. }]));
    assert!(matches!(look(cut(without_first(&clean)))[..], [Loss::FirstSuperblock { .. }, Loss::End { .. }]));
    let sound = Arc::new(xfskit_device::MemoryDevice::from_bytes(clean));
    assert!(xfskit::rescue::rescue(sound, Search::Whole).expect("a device that works").is_none());
}

/// The kernel removes a link's target in one transaction and its inode in the next: a crash between them leaves a link
/// without a target on an unlinked list, which must not keep the image from being opened.
#[test]
fn a_link_whose_removal_was_cut_off_is_removed() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = new_image(&reference, &scratch);
    let fs = open(&path, Access::Write).expect("a sound image");
    let me = Caller::root();
    let target = [b't'; 900];
    let link = NewFile::symlink(&target);
    let link = fs.create(fs.root(), b"link", &link, &me).expect("room").inode;
    fs.add_reference(link).expect("the link");
    fs.unlink(fs.root(), b"link", &me).expect("the link");
    fs.unmount().expect("a clean end");
    let zero = ["core.size", "core.nextents", "core.nblocks"].map(|field| format!("write -d {field} 0"));
    let commands: Vec<&str> = zero.iter().map(String::as_str).collect();
    change(&reference, &path, &[&[format!("inode {}", link.0).as_str()], &commands[..]].concat());
    let fs = open(&path, Access::Write).expect("an image that the kernel takes");
    assert!(matches!(fs.stat(link), Err(Error::Stale(_))), "its inode is free");
    fs.unmount().expect("a clean end");
    let mended = reference.tool("xfs_repair", [path.as_os_str()]);
    assert!(mended.status.success(), "{}", String::from_utf8_lossy(&mended.stderr));
    reference.repair_finds_nothing(&path);
}

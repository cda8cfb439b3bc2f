//! What the kernel refuses of an inode, xfskit refuses: fields are set by xfs_db in files of each kind, with the
//! checksum mended, and each file is looked at on the kernel's mount and by the library. And the totals of AG headers.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{FileType, MountOptions, Volume};
use xfskit_testkit::{Reference, kernel_mount, kernel_mount_with, reference, scratch, try_kernel_mount};

const KINDS: [&str; 11] =
    ["dir0", "dir5", "dirblock", "dirleaf", "data", "small", "empty", "link", "longlink", "device", "fifo"];

/// Fields and what they are set to. A field that an image does not have is not set.
const CHANGES: [&str; 45] = [
    "core.mode 010644",
    "core.mode 020644",
    "core.mode 040644",
    "core.mode 060644",
    "core.mode 0100644",
    "core.mode 0120644",
    "core.mode 0140644",
    "core.mode 030644",
    "core.size 0",
    "core.size 10",
    "core.size 400",
    "core.size 100000",
    "core.size 0x8000000000000000",
    "core.nblocks 0",
    "core.nblocks 5",
    "core.nextents 0",
    "core.nextents 1",
    "core.nextents 30",
    "core.naextents 1",
    "core.forkoff 0",
    "core.forkoff 1",
    "core.forkoff 5",
    "core.forkoff 100",
    "core.aformat 0",
    "core.aformat 2",
    "core.aformat 3",
    "core.format 0",
    "core.format 1",
    "core.format 2",
    "core.format 3",
    "core.extsize 3",
    "core.extsz 1",
    "core.extszinherit 1",
    "core.realtime 1",
    "core.prealloc 1",
    "core.immutable 1",
    "core.onlink 3",
    "core.nrext64_pad 3",
    "core.v3_pad 4",
    "v3.reflink 1",
    "v3.cowextsz 1",
    "v3.cowextsize 2",
    "v3.bigtime 0",
    "v3.bigtime 1",
    "v3.nrext64 1",
];

fn make(root: &Path, kind: &str, number: usize) {
    let path = root.join(format!("{kind}-{number}"));
    let dir = |names: usize, name: &str| {
        fs::create_dir(&path).unwrap();
        (0..names).for_each(|n| fs::write(path.join(format!("{name}{n}")), "").unwrap());
    };
    let node = |kind: &str| {
        let mut command = Command::new("mknod");
        command.arg(&path).args(kind.split(' '));
        assert!(command.status().unwrap().success());
    };
    match kind {
        "dir0" => dir(0, ""),
        "dir5" => dir(5, "name-of-a-file-"),
        "dirblock" => dir(25, "name-of-a-file-"),
        "dirleaf" => dir(80, "a-name-of-a-file-that-takes-some-more-space-"),
        "data" => fs::write(&path, [b'd'; 9000]).unwrap(),
        "small" => fs::write(&path, "123").unwrap(),
        "empty" => fs::write(&path, "").unwrap(),
        "link" => symlink("some/target", &path).unwrap(),
        "longlink" => symlink("t".repeat(900), &path).unwrap(),
        "device" => node("c 1 1"),
        _ => node("p"),
    }
}

/// Runs commands on an image, which may fail.
fn change(reference: &Reference, image: &Path, commands: &str) {
    let input = image.with_extension("commands");
    fs::write(&input, commands).unwrap();
    let mut command = Command::new("chroot");
    command.arg(reference.root()).args(["xfs_db", "-x"]).arg(image).stdin(fs::File::open(&input).unwrap());
    assert!(command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok());
}

/// The first MiB of a file.
fn contents(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a file is, and how much is in it; or which of both fails.
fn of_kernel(path: &Path) -> String {
    let Ok(data) = fs::symlink_metadata(path) else { return "refused".into() };
    let kind = data.file_type();
    let (name, size) = match () {
        () if kind.is_dir() => {
            ("dir", fs::read_dir(path).and_then(|dir| dir.collect::<Result<Vec<_>, _>>()).map(|d| d.len()))
        }
        () if kind.is_symlink() => ("link", fs::read_link(path).map(|target| target.as_os_str().len())),
        () if kind.is_file() => ("file", contents(path).map(|bytes| bytes.len())),
        () if kind.is_fifo() || kind.is_socket() => ("special", Ok(0)),
        () => ("device", Ok(data.rdev() as usize & 0xff)),
    };
    let mode = data.permissions().mode() & 0o7777;
    size.map_or_else(|_| format!("{name} {mode:o}: unreadable"), |size| format!("{name} {mode:o}: {size}"))
}

fn of_volume(volume: &Volume, name: &str) -> String {
    let Ok(stat) = volume.lookup(volume.root(), name.as_bytes()) else { return "refused".into() };
    let (kind, size) = match stat.file_type {
        FileType::Dir => ("dir", volume.list_dir(stat.inode).map(|entries| entries.len())),
        FileType::Symlink => ("link", volume.read_link(stat.inode).map(|target| target.len())),
        FileType::File => {
            let mut bytes = vec![0; stat.size.min(1 << 20) as usize];
            ("file", volume.read_at(stat.inode, 0, &mut bytes))
        }
        FileType::Fifo | FileType::Socket => ("special", Ok(0)),
        FileType::CharDevice | FileType::BlockDevice => ("device", Ok(stat.device as usize & 0xff)),
    };
    let mode = stat.permissions.bits();
    size.map_or_else(|_| format!("{kind} {mode:o}: unreadable"), |size| format!("{kind} {mode:o}: {size}"))
}

#[test]
fn an_inode_that_the_kernel_refuses_is_refused() {
    let Some(reference) = reference() else { return };
    let old = ["-m", "bigtime=0,reflink=0,rmapbt=0", "-i", "nrext64=0,exchange=0", "-n", "parent=0"];
    for options in [&[][..], &old] {
        let scratch = scratch();
        let image = scratch.image("a.img", 400 << 20);
        reference.mkfs(&image, options);
        let Some(mount) = kernel_mount(&image) else { return };
        let files = || KINDS.iter().flat_map(|kind| (0..CHANGES.len()).map(move |number| (*kind, number)));
        files().for_each(|(kind, number)| make(mount.path(), kind, number));
        let inode = |(kind, number): (&str, usize)| {
            let inode = fs::symlink_metadata(mount.path().join(format!("{kind}-{number}"))).unwrap().ino();
            format!("inode {inode}\nwrite -d {}\n", CHANGES[number])
        };
        let commands: String = files().map(inode).collect();
        mount.unmount();
        change(&reference, &image, &commands);
        let Some(mount) = kernel_mount_with(&image, None, &["ro", "norecovery"]) else { return };
        let theirs: Vec<String> =
            files().map(|(kind, number)| of_kernel(&mount.path().join(format!("{kind}-{number}")))).collect();
        mount.unmount();
        let device = Arc::new(FileDevice::open(&image, Access::Read).unwrap());
        let volume = Volume::open(device, MountOptions { no_recovery: true, ..MountOptions::read_only() }).unwrap();
        let mut different = Vec::new();
        for ((kind, number), theirs) in files().zip(&theirs) {
            let ours = of_volume(&volume, &format!("{kind}-{number}"));
            if ours != *theirs {
                different.push(format!("{kind}, {}: {ours}, and the kernel's is {theirs}", CHANGES[number]));
            }
        }
        assert!(different.is_empty(), "{options:?}:\n{}", different.join("\n"));
        assert!(theirs.iter().filter(|theirs| *theirs == "refused").count() > 100);
    }
}

/// As xfstests' xfs/493: the superblock's count is wrong, and those of the AGs cannot stand for it.
#[test]
fn headers_that_count_more_than_there_is_are_refused() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let image = scratch.image("a.img", 400 << 20);
    reference.mkfs(&image, &[]);
    let value = |field: &str, of: &str| -> u64 {
        let shown = reference.db(&image, &[of, &format!("print {field}")]);
        shown.trim().rsplit(' ').next().unwrap().parse().unwrap()
    };
    let (blocks, length) = (value("dblocks", "sb 0"), value("length", "agf 0"));
    let commands = |btree_blocks: u64| {
        format!("sb 0\nwrite -d fdblocks {}\nagf 0\nwrite -d btreeblks {btree_blocks}\n", 2 * blocks)
    };
    for (btree_blocks, is_refused) in [(length, true), (0, false)] {
        change(&reference, &image, &commands(btree_blocks));
        let open = || Volume::open(Arc::new(FileDevice::open(&image, Access::Write).unwrap()), MountOptions::default());
        let Some(theirs) = try_kernel_mount(&image, None, &["ro"]) else { return };
        assert_eq!(theirs.is_err(), is_refused);
        if let Ok(mount) = theirs {
            mount.unmount();
        }
        match open() {
            Ok(volume) => {
                assert!(!is_refused, "free space beyond the image is believed");
                volume.unmount().unwrap();
            }
            Err(error) => assert!(is_refused && error.to_string().contains("no more free blocks"), "{error}"),
        }
    }
}

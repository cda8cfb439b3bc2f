//! What new inodes inherit from their directory: the same as in the kernel, for each flag and each type of file.

use crate::stress::Image;
use rustix::fs::{CWD, FileType, Mode};
use std::path::Path;
use xfskit_engine::{Caller, NewFile, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::{kernel_mount, reference};

/// What xfs_io does to a directory: its flags by their letters, hints, projects.
const KINDS: &[(&str, &[&str])] = &[
    ("plain", &[]),
    ("append", &["chattr +a"]),
    ("sync", &["chattr +s"]),
    ("noatime", &["chattr +A"]),
    ("nodump", &["chattr +d"]),
    ("nosymlinks", &["chattr +n"]),
    ("nodefrag", &["chattr +f"]),
    ("filestream", &["chattr +S"]),
    ("rtinherit", &["chattr +t"]),
    ("project", &["chproj 70001", "chattr +P"]),
    ("project-only", &["chproj 42"]),
    ("extsize", &["extsize 64k", "chattr +E"]),
    ("cowextsize", &["cowextsize 128k"]),
    ("dax", &["chattr +x"]),
    ("many", &["chproj 7", "chattr +PsAdf", "extsize 16k", "cowextsize 32k", "chattr +x"]),
];

const TYPES: &[(&str, FileType, u16)] = &[
    ("file", FileType::RegularFile, 0o100_000),
    ("dir", FileType::Directory, 0o040_000),
    ("symlink", FileType::Symlink, 0o120_000),
    ("pipe", FileType::Fifo, 0o010_000),
    ("socket", FileType::Socket, 0o140_000),
    ("char", FileType::CharacterDevice, 0o020_000),
    ("block", FileType::BlockDevice, 0o060_000),
];

/// What can be made in a directory of a kind.
fn types(kind: &str) -> impl Iterator<Item = &'static (&'static str, FileType, u16)> {
    TYPES.iter().filter(move |(name, ..)| (kind, *name) != ("nosymlinks", "symlink"))
}

fn make_by_kernel(dir: &Path, name: &str, file_type: FileType) {
    let path = dir.join(format!("kernel-{name}"));
    let made = match file_type {
        FileType::Directory => rustix::fs::mkdir(&path, Mode::from(0o755)),
        FileType::Symlink => rustix::fs::symlink("target", &path),
        other => rustix::fs::mknodat(CWD, &path, other, Mode::from(0o755), 0x0103),
    };
    made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn make_by_us(fs: &Volume, dir: InodeNumber, name: &str, mode: u16) {
    let target: &[u8] = if mode == 0o120_000 { b"target" } else { b"" };
    let device = if matches!(mode, 0o020_000 | 0o060_000) { 0x0103 } else { 0 };
    let permissions = if mode == 0o120_000 { 0o777 } else { 0o755 };
    let new = NewFile { target, device, ..NewFile::of_mode(mode | permissions).unwrap() };
    fs.create(dir, format!("ours-{name}").as_bytes(), &new, &Caller::root()).unwrap();
}

/// The lines of xfs_db's print that show what was inherited.
fn handed_down(print: &str) -> Vec<&str> {
    const FIELDS: &[&str] = &[
        "core.projid_lo",
        "core.projid_hi",
        "core.extsize",
        "core.newrtbm",
        "core.prealloc",
        "core.realtime",
        "core.immutable",
        "core.append",
        "core.sync",
        "core.noatime",
        "core.nodump",
        "core.rtinherit",
        "core.projinherit",
        "core.nosymlinks",
        "core.extsz",
        "core.extszinherit",
        "core.nodefrag",
        "core.filestream",
        "v3.flags2",
        "v3.cowextsize",
        "v3.reflink",
        "v3.dax",
    ];
    let is_one = |line: &&str| line.split_once(" = ").is_some_and(|(name, _)| FIELDS.contains(&name));
    print.lines().filter(is_one).collect()
}

#[test]
fn what_a_directory_hands_down_is_what_the_kernel_hands_down() {
    let image = Image::new(320, &[]);
    let (Some(reference), Some(kernel)) = (reference(), kernel_mount(&image.path)) else { return };
    for (kind, commands) in KINDS {
        let dir = kernel.path().join(kind);
        std::fs::create_dir(&dir).unwrap();
        commands.iter().for_each(|command| drop(reference.io(&dir, command)));
        for (name, file_type, _) in types(kind) {
            make_by_kernel(&dir, name, *file_type);
        }
    }
    kernel.unmount();
    let fs = image.open();
    let mut pairs = Vec::new();
    for (kind, _) in KINDS {
        let dir = fs.lookup(fs.root(), kind.as_bytes()).unwrap().inode;
        for (name, _, mode) in types(kind) {
            make_by_us(&fs, dir, name, *mode);
            let inode = |maker: &str| fs.lookup(dir, format!("{maker}-{name}").as_bytes()).unwrap().inode;
            pairs.push((format!("{kind}/{name}"), inode("kernel"), inode("ours")));
        }
    }
    image.close(fs);
    let commands: Vec<String> = pairs
        .iter()
        .flat_map(|(_, theirs, ours)| [theirs, ours])
        .flat_map(|inode| [format!("inode {inode}"), "print".to_owned()])
        .collect();
    let printed = reference.db(&image.path, &commands.iter().map(String::as_str).collect::<Vec<_>>());
    let inodes: Vec<_> = printed.split("core.magic").skip(1).map(handed_down).collect();
    assert_eq!(inodes.len(), 2 * pairs.len());
    let differ = pairs.iter().zip(inodes.chunks(2)).filter(|(_, pair)| pair[0] != pair[1]);
    let report: Vec<_> =
        differ.map(|((name, ..), pair)| format!("{name}: {:?}\n  and ours {:?}", pair[0], pair[1])).collect();
    assert!(report.is_empty(), "the kernel's differ from ours:\n{}", report.join("\n"));
}

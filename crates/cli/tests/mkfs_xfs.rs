//! xfskit called as `mkfs.xfs`, `fsck.xfs` and `xfs_info`: the images and what is in them, beside those of xfsprogs.

mod common;

use common::trees::{is_root, make_tree, run};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use xfskit_testkit::{Reference, Scratch, TreeEntry, kernel_mount, reference, scratch, tree, try_kernel_mount};

const UUID: &str = "uuid=6b1ff5a1-2d3c-4e5f-8a9b-0c1d2e3f4a5b";
const MIB: u64 = 1 << 20;
const EPOCH: &str = "1700000000";
/// Where xfsprogs has its configuration files.
const CONFIGS: &str = "/usr/share/xfsprogs/mkfs";

/// A folder with the command under other names.
fn programs(scratch: &Scratch) -> PathBuf {
    let dir = scratch.file("bin");
    fs::create_dir_all(&dir).unwrap();
    for name in ["mkfs.xfs", "fsck.xfs", "xfs_info"] {
        let link = dir.join(name);
        if !link.exists() {
            symlink(env!("CARGO_BIN_EXE_xfskit"), link).unwrap();
        }
    }
    dir
}

fn ours(scratch: &Scratch, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(programs(scratch).join(program));
    command.args(arguments).output().unwrap()
}

fn make(scratch: &Scratch, arguments: &[&str]) {
    let output = ours(scratch, "mkfs.xfs", arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an image with a fixed clock.
fn make_at_epoch(scratch: &Scratch, arguments: &[&str]) {
    run(Command::new(programs(scratch).join("mkfs.xfs")).args(arguments).env("SOURCE_DATE_EPOCH", EPOCH));
}

/// Makes an image by the reference, with a fixed clock.
fn make_theirs(reference: &Reference, arguments: &[&str]) {
    let clock = format!("SOURCE_DATE_EPOCH={EPOCH}");
    let all = [clock.as_str(), "DETERMINISTIC_SEED=1", "mkfs.xfs"].into_iter().chain(arguments.iter().copied());
    reference.tool_output("env", all);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The image without what differs between any two runs of mkfs.xfs, the generations of inodes and the checksums over
/// these, and without the second to last superblocks: mkfs.xfs writes them before it knows the root directory.
fn comparable(image: &Path, chunk_bytes: u64) -> Vec<u8> {
    let mut bytes = fs::read(image).unwrap();
    let ag_bytes = u64::from(u32::from_be_bytes(bytes[84..88].try_into().unwrap())) * 4096;
    for ag in (ag_bytes..bytes.len() as u64).step_by(ag_bytes as usize) {
        bytes[ag as usize..][..512].fill(0);
    }
    for inode in 0..64 {
        let inode = (chunk_bytes + inode * 512) as usize;
        bytes[inode + 92..][..4].fill(0);
        bytes[inode + 100..][..4].fill(0);
    }
    bytes
}

#[test]
fn every_long_term_configuration_gives_the_same_image() {
    let Some(reference) = reference() else { return };
    let installed = std::env::var_os("XFS_REFERENCE").unwrap_or_else(|| "/opt/xfs-reference".into());
    let configs = Path::new(&installed).join(CONFIGS.trim_start_matches('/'));
    let mut compared = 0;
    for config in fs::read_dir(&configs).unwrap() {
        let name = config.unwrap().file_name().into_string().unwrap();
        if !name.starts_with("lts_") {
            continue;
        }
        let scratch = scratch();
        let (our, their) = (scratch.image("ours", 512 * MIB), scratch.image("theirs", 512 * MIB));
        let here = format!("options={}/{name}", configs.display());
        make_at_epoch(&scratch, &["-q", "-m", UUID, "-c", &here, text(&our)]);
        make_theirs(&reference, &["-q", "-m", UUID, "-c", &format!("options={CONFIGS}/{name}"), text(&their)]);
        let root = reference.db(&their, &["convert inode 128 byte"]);
        let chunk = root.split(['(', ')']).nth(1).unwrap().parse().unwrap();
        let (our, their) = (comparable(&our, chunk), comparable(&their, chunk));
        let differs = our.iter().zip(&their).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}: the first byte that differs");
        compared += 1;
    }
    assert!(compared >= 8, "{compared} configurations");
}

/// What a comparison with mkfs.xfs covers: it gives the root and the access times the time now, symbolic links the
/// modes of a protofile, stores ACLs as attributes that no program looks for, and leaves out attributes without a
/// value.
fn comparable_tree(root: &Path) -> Vec<String> {
    let mut entries: Vec<TreeEntry> = tree(root);
    for entry in &mut entries {
        let kept =
            |name: &str| !name.contains("posix_acl") && !name.contains("SGI_ACL") && name != "trusted.xfs:autofsck";
        entry.xattrs.retain(|(name, value)| kept(name) && !value.is_empty());
    }
    entries.iter().skip(1).map(TreeEntry::to_string).collect()
}

fn compare_trees(our: &Path, their: &Path) {
    let Some(kernel) = kernel_mount(our) else { return };
    let ours = comparable_tree(kernel.path());
    let root = fs::metadata(kernel.path()).unwrap();
    kernel.unmount();
    let kernel = kernel_mount(their).unwrap();
    let theirs = comparable_tree(kernel.path());
    let their_root = fs::metadata(kernel.path()).unwrap();
    kernel.unmount();
    for (a, b) in ours.iter().zip(&theirs) {
        assert_eq!(a, b);
    }
    assert_eq!(ours.len(), theirs.len());
    let owner = |data: &fs::Metadata| (data.mode(), data.uid(), data.gid());
    assert_eq!(owner(&root), owner(&their_root), "the root");
}

#[test]
fn a_folder_comes_into_the_image_as_by_mkfs_xfs() {
    let Some(reference) = reference() else { return };
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let source = scratch.file("source");
    make_tree(&source);
    // mkfs.xfs opens devices, and there is none of this number.
    fs::remove_file(source.join("disk")).unwrap();
    let (our, their) = (scratch.image("ours", 300 * MIB), scratch.image("theirs", 300 * MIB));
    let before = fs::metadata(&our).unwrap();
    let open = File::open(&our).unwrap();
    // As systemd-repart calls it.
    let line = ["-L", "root", "-m", UUID, "-m", "reflink=1", "-K", "-p", text(&source), "-q"];
    make(&scratch, &[&line[..], &[text(&our)]].concat());
    reference.tool_output("mkfs.xfs", [&line[..], &[text(&their)]].concat());
    reference.repair_finds_nothing(&our);
    compare_trees(&our, &their);
    let after = fs::metadata(&our).unwrap();
    assert_eq!((before.ino(), before.len()), (after.ino(), after.len()), "the file is the same");
    let mut magic = [0; 4];
    open.read_exact_at(&mut magic, 0).unwrap();
    assert_eq!(&magic, b"XFSB", "who has the file open sees the image");
    // Without -f it is in the way of the next one, with it it is not.
    assert_eq!(ours(&scratch, "mkfs.xfs", &["-q", text(&our)]).status.code(), Some(1));
    make(&scratch, &["-fq", text(&our)]);
}

#[test]
fn a_protofile_makes_the_tree_that_mkfs_xfs_makes() {
    let Some(reference) = reference() else { return };
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let contents = scratch.file("contents");
    fs::write(&contents, vec![7; 100_000]).unwrap();
    rustix::fs::setxattr(&contents, "user.x", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    let file = text(&contents);
    let proto = scratch.file("proto");
    let lines = format!(
        "/stand/diskboot\n4872 110\nd--751 3 1\nusr d--777 3 1\nsh ---755 3 1 {file}\nsu -ug755 0x10 010 {file}\n\
         ken d--755 6 1\n$\nb0 b--644 3 1 3 4\nc0 c--644 3 1 0 5\nfifo p--644 3 1\n: a comment $ $\n\
         slink l--777 3 1 /a/symbolic/link\na/b ---600 0 0 {file}\n$\n$\n"
    );
    fs::write(&proto, lines).unwrap();
    let (our, their) = (scratch.image("ours", 300 * MIB), scratch.image("theirs", 300 * MIB));
    let option = format!("slashes_are_spaces=1,file={}", proto.display());
    make_at_epoch(&scratch, &["-q", "-p", &option, text(&our)]);
    make_theirs(&reference, &["-q", "-p", &option, text(&their)]);
    reference.repair_finds_nothing(&our);
    compare_trees(&our, &their);
}

#[test]
fn what_would_be_made_is_shown_as_by_mkfs_xfs_and_nothing_is_written() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let image = scratch.image("a.img", 4096 * MIB);
    for options in [&[][..], &["-d", "agcount=5"], &["-b", "size=1k", "-m", "rmapbt=0"], &["-d", "su=64k,sw=4"]] {
        let line = [options, &["-N", text(&image)]].concat();
        let output = ours(&scratch, "mkfs.xfs", &line);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), reference.tool_output("mkfs.xfs", line));
    }
    assert_eq!(fs::metadata(&image).unwrap().blocks(), 0);
    // A file that is made and has a size of its own.
    let made = scratch.file("made");
    make(&scratch, &["-q", "-d", &format!("file=1,name={},size=300m", made.display())]);
    assert_eq!(fs::metadata(&made).unwrap().len(), 300 * MIB);
    let info = ours(&scratch, "xfs_info", &[text(&made)]);
    assert_eq!(String::from_utf8(info.stdout).unwrap(), reference.tool_output("xfs_info", [&made]));
    let version = String::from_utf8(ours(&scratch, "mkfs.xfs", &["-V"]).stdout).unwrap();
    assert!(version.starts_with(reference.tool_output("mkfs.xfs", ["-V"]).trim()), "{version}");
    assert!(ours(&scratch, "fsck.xfs", &["-a", text(&made)]).status.success());
    assert_eq!(ours(&scratch, "fsck.xfs", &["-a", "/nosuch"]).status.code(), Some(8));
}

#[test]
fn what_mkfs_xfs_refuses_is_refused_and_nothing_is_changed() {
    let scratch = scratch();
    let image = scratch.image("a.img", 300 * MIB);
    let file = |name: &str, contents: &str| {
        let path = scratch.file(name);
        fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let config = format!("options={}", file("wrong.conf", "[metadata]\nreflink=1\n[colour]\n"));
    let doubled = format!("options={}", file("doubled.conf", "[metadata]\nreflink=1\n"));
    let proto = file("proto", "x\n0 0\nd--755 0 0\nmotd ---644 0 0 /nosuch/file\n$\n");
    let image = text(&image);
    let none = scratch.file("none");
    for (line, what) in [
        (vec!["-Z", image], "unknown option -Z"),
        (vec!["-L", "1234567890123", image], "12 bytes"),
        (vec!["-m", "reflink=1", "-m", "reflink=0", image], "-m reflink: the option is given twice"),
        (vec!["-r", "extsize=64k", image], "realtime"),
        (vec!["-c", &config, image], "line 3: unknown section [colour]"),
        (vec!["-c", &doubled, "-m", "reflink=0", image], "given twice"),
        (vec!["-c", "options=/nosuch", image], "/nosuch"),
        (vec!["-p", "/nosuch", image], "/nosuch"),
        (vec!["-p", &proto, image], "/nosuch/file"),
        (vec!["-d", "agcount=1", image], "AG"),
        (vec![image, "other"], "one device or file only"),
        (vec!["-q"], "expected a device"),
        (vec!["-q", text(&none)], "no such file"),
    ] {
        let output = ours(&scratch, "mkfs.xfs", &line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line:?}: {error}");
        assert!(error.contains(what), "{line:?}: {error}");
    }
    assert!(fs::read(image).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn an_unknown_format_is_in_nobodys_way_and_a_known_one_is() {
    let scratch = scratch();
    let image = scratch.image("a.img", 300 * MIB);
    File::options().write(true).open(&image).unwrap().write_all_at(b"left over", 5000).unwrap();
    make(&scratch, &["-q", text(&image)]);
    assert!(!fs::read(&image).unwrap()[4096..].windows(9).any(|bytes| bytes == b"left over"));
    let disk = scratch.image("disk.img", 300 * MIB);
    File::options().write(true).open(&disk).unwrap().write_all_at(&[0x55, 0xaa], 510).unwrap();
    let output = ours(&scratch, "mkfs.xfs", &["-q", text(&disk)]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("-f overwrites it"));
}

/// The first superblock of a file says so while it is filled. A run that is killed then leaves an image that the kernel
/// does not mount, with the same mark as one of mkfs.xfs.
#[test]
fn a_killed_run_leaves_no_image_that_could_be_mounted() {
    let scratch = scratch();
    let root = scratch.file("root");
    fs::create_dir(&root).unwrap();
    for number in 0..400 {
        fs::write(root.join(number.to_string()), vec![number as u8; MIB as usize / 2]).unwrap();
    }
    let image = scratch.image("a.img", 400 * MIB);
    let mut command = Command::new(programs(&scratch).join("mkfs.xfs"));
    let mut child = command.args(["-q", "-p", text(&root), text(&image)]).spawn().unwrap();
    let has = |bytes: &[u8], at: u64| {
        let mut found = vec![0; bytes.len()];
        File::open(&image).unwrap().read_exact_at(&mut found, at).is_ok_and(|()| found == bytes)
    };
    let began = std::time::Instant::now();
    while !has(b"XFSB", 0) {
        assert!(began.elapsed().as_secs() < 60 && child.try_wait().unwrap().is_none(), "no superblock was seen");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(has(b"XFSB", 0) && has(&[1], 126), "the mark is missing");
    let error = Command::new(env!("CARGO_BIN_EXE_xfskit")).args(["info", text(&image)]).output().unwrap().stderr;
    assert!(String::from_utf8_lossy(&error).contains("mkfs was cut off here"), "{}", String::from_utf8_lossy(&error));
    if let Some(mounted) = try_kernel_mount(&image, None, &[]) {
        assert!(mounted.is_err(), "the kernel mounts an image that is not complete");
    }
    if let Some(reference) = reference() {
        let read = ["xfs_db", "-r", "-c", "sb 0", "-c", "print inprogress", text(&image)];
        assert_eq!(reference.tool_output("env", read).trim(), "inprogress = 1");
    }
    // The next run needs -f, since there is an image, and completes it.
    make(&scratch, &["-q", "-f", "-p", text(&root), text(&image)]);
    assert!(has(&[0], 126));
    let Some(kernel) = kernel_mount(&image) else { return };
    assert_eq!(fs::read_dir(kernel.path()).unwrap().count(), 400);
    kernel.unmount();
}

/// Programs that make another format in a file, and their options.
const OTHERS: [(&str, &[&str]); 24] = [
    ("mkswap", &[]),
    ("mkfs.minix", &["-1"]),
    ("mkfs.minix", &["-2"]),
    ("mkfs.minix", &["-3"]),
    ("mkfs.fat", &["-F", "12"]),
    ("mkfs.fat", &["-F", "16"]),
    ("mkfs.fat", &["-F", "32"]),
    ("mkfs.exfat", &[]),
    ("mkfs.ntfs", &["-F", "-Q", "-q"]),
    ("mkfs.btrfs", &["-q"]),
    ("mkfs.f2fs", &["-q"]),
    ("mkfs.jfs", &["-q"]),
    ("mkfs.reiserfs", &["-q", "-f", "-f"]),
    ("mkfs.nilfs2", &["-q"]),
    ("mkfs.udf", &[]),
    ("mkfs.hfsplus", &[]),
    ("mkfs.ext2", &["-q", "-F"]),
    ("mkfs.ocfs2", &["-q", "-F", "-M", "local"]),
    ("mkfs.gfs2", &["-q", "-O", "-p", "lock_nolock"]),
    ("mkfs.bfs", &[]),
    ("make-bcache", &["-B"]),
    ("bcache", &["make", "-B"]),
    ("qemu-img", &["create", "-q", "-f", "vpc"]),
    ("qemu-img", &["create", "-q", "-f", "vdi"]),
];

#[test]
fn what_other_programs_make_is_in_the_way() {
    let scratch = scratch();
    let mut seen = Vec::new();
    for (number, (program, options)) in OTHERS.iter().enumerate() {
        let other = scratch.image(&format!("{number}.img"), 310 * MIB);
        let size: &[&str] = if *program == "qemu-img" { &["310M"] } else { &[] };
        let made = Command::new(program).args(*options).arg(&other).args(size).output();
        if !made.is_ok_and(|made| made.status.success()) {
            continue;
        }
        // What libblkid does not know is in nobody's way, but for disks of virtual machines.
        let blkid = Command::new("blkid").args(["-p", "-o", "value", "-s", "TYPE"]).arg(&other).output();
        let by_blkid = blkid.map(|found| String::from_utf8_lossy(&found.stdout).trim().to_owned()).unwrap_or_default();
        if by_blkid.is_empty() && size.is_empty() {
            continue;
        }
        let before = fs::read(&other).unwrap();
        let output = ours(&scratch, "mkfs.xfs", &["-q", text(&other)]);
        let error = String::from_utf8_lossy(&output.stderr);
        let what = format!("{program} {options:?}, {by_blkid} for blkid");
        assert!(output.status.code() == Some(1) && error.contains("-f overwrites it"), "{what}: {error}");
        assert!(fs::read(&other).unwrap() == before, "{what}");
        fs::remove_file(&other).unwrap();
        seen.push(what);
    }
    // Those of util-linux are on every machine.
    assert!(
        seen.iter().any(|what| what.contains("swap")) && seen.iter().any(|what| what.contains("minix")),
        "{seen:?}"
    );
}

/// A superblock of md's version 1, which says where it lies itself.
fn raid_superblock(at: u64) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    bytes[4] = 1;
    bytes[16..32].fill(9);
    bytes[144..152].copy_from_slice(&(at / 512).to_le_bytes());
    bytes
}

/// What needs a device or a program that is rarely there is written as libblkid expects it.
#[test]
fn what_libblkid_knows_is_in_the_way() {
    let scratch = scratch();
    let size = 310 * MIB;
    let mut old_raid = vec![0; 4096];
    old_raid[..12].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 0, 0, 0, 0, 90, 0, 0, 0]);
    old_raid[20..24].fill(9);
    let uberblocks: Vec<u8> = [0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0].into_iter().chain([0; 1016]).collect();
    let mut lvm = b"LABELONE".to_vec();
    lvm.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0]);
    lvm.extend(b"LVM2 001");
    let last = (size / 512 - 16) / 8 * 8 * 512;
    let ceph = b"bluestore block device\n0123".to_vec();
    let mut needed = vec!["linux_raid_member", "zfs_member", "ceph_bluestore"];
    for (at, bytes) in [
        (0, raid_superblock(0)),
        (4096, raid_superblock(4096)),
        (last, raid_superblock(last)),
        (size / 65536 * 65536 - 65536, old_raid),
        (128 << 10, uberblocks.repeat(8)),
        (size - (128 << 10), uberblocks.repeat(8)),
        (512, lvm),
        (0, ceph),
        (0, b"LUKS\xba\xbe\0\x01".to_vec()),
    ] {
        let other = scratch.image("other.img", size);
        File::options().write(true).open(&other).unwrap().write_all_at(&bytes, at).unwrap();
        let blkid = Command::new("blkid").args(["-p", "-o", "value", "-s", "TYPE"]).arg(&other).output();
        let by_blkid = blkid.map(|found| String::from_utf8_lossy(&found.stdout).trim().to_owned()).unwrap_or_default();
        needed.retain(|name| *name != by_blkid);
        let output = ours(&scratch, "mkfs.xfs", &["-q", text(&other)]);
        let error = String::from_utf8_lossy(&output.stderr);
        let refused = output.status.code() == Some(1) && error.contains("-f overwrites it");
        assert!(refused, "at {at}, {by_blkid} for blkid: {error}");
        fs::remove_file(&other).unwrap();
    }
    assert!(needed.is_empty(), "blkid knows other forms of {needed:?}");
}

/// By the rule of systemd, a program that formats a block device locks it and then calls the one that does.
#[test]
fn a_lock_that_the_caller_holds_on_a_device_is_no_refusal() {
    let scratch = scratch();
    let image = scratch.image("a.img", 300 * MIB);
    let Some(device) = common::loops::Loop::attach(&[], &image) else { return };
    let mkfs = programs(&scratch).join("mkfs.xfs");
    let (mkfs, device, file) = (text(&mkfs), text(&device.0), text(&image));
    for locked in [device, file] {
        run(Command::new("flock").args([locked, mkfs, "-q", "-f", device]));
    }
    // One that another program holds is, and so is one on an image file.
    let refused = |script: &str| {
        let output = Command::new("bash").args(["-c", script]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains("in use by"), "{script}: {error}");
    };
    refused(&format!("flock -F {device} sleep 30 & sleep 1; {mkfs} -q -f {device}; code=$?; kill $!; exit $code"));
}

/// The image in a disk's first partition, which begins at 1 MiB.
fn first_partition(scratch: &Scratch, disk: &Path) -> PathBuf {
    let disk = fs::read(disk).unwrap();
    let image = scratch.file("part.img");
    let blocks = u64::from_be_bytes(disk[MIB as usize + 8..][..8].try_into().unwrap());
    fs::write(&image, &disk[MIB as usize..(MIB + blocks * 4096) as usize]).unwrap();
    image
}

/// Runs systemd-repart of the reference as an ordinary user, who finds this program as `mkfs.xfs`.
#[test]
fn systemd_repart_fills_a_partition_as_an_ordinary_user() {
    let Some(reference) = reference() else { return };
    if !reference.tool("sh", ["-c", "command -v systemd-repart"]).status.success() {
        xfskit_testkit::skip("the reference has no systemd-repart: run scripts/reference");
        return;
    }
    let scratch = scratch();
    let dir = scratch.path();
    for name in ["bin", "defs", "tree/etc"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    fs::copy(env!("CARGO_BIN_EXE_xfskit"), dir.join("bin/mkfs.xfs")).unwrap();
    fs::write(dir.join("tree/etc/motd"), "hello\n").unwrap();
    rustix::fs::setxattr(dir.join("tree/etc/motd"), "user.x", b"y", rustix::fs::XattrFlags::empty()).unwrap();
    let place = dir.display();
    let definition = format!("[Partition]\nType=root\nFormat=xfs\nCopyFiles={place}/tree:/\nSizeMinBytes=400M\n");
    fs::write(dir.join("defs/root.conf"), definition).unwrap();
    run(Command::new("chown").args(["-R", "65534:65534"]).arg(dir));
    let line = format!(
        "cd {place} && PATH={place}/bin:$PATH TMPDIR={place} exec setpriv --reuid 65534 --regid 65534 --clear-groups \
         systemd-repart --empty=create --size=500M --offline=yes --definitions=defs --dry-run=no disk.img"
    );
    reference.tool_output("sh", ["-c", &line]);
    let image = first_partition(&scratch, &dir.join("disk.img"));
    reference.repair_finds_nothing(&image);
    let Some(kernel) = kernel_mount(&image) else { return };
    let motd = kernel.path().join("etc/motd");
    assert_eq!(fs::read_to_string(&motd).unwrap(), "hello\n");
    assert_eq!(fs::metadata(&motd).unwrap().uid(), 65534);
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(&motd, "user.x", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"y");
    kernel.unmount();
}

/// Runs mkosi of the reference as an ordinary user. It makes namespaces, which the kernel refuses below chroot, so the
/// reference becomes the root of a mount namespace.
#[test]
fn mkosi_builds_a_disk_as_an_ordinary_user() {
    let Some(reference) = reference() else { return };
    if !reference.tool("sh", ["-c", "command -v mkosi"]).status.success() {
        xfskit_testkit::skip("the reference has no mkosi: run scripts/reference");
        return;
    }
    let scratch = scratch();
    let dir = scratch.path();
    for name in ["bin", "project/mkosi.repart", "project/tree/usr/lib", "project/tree/etc", "out", "work", "cache"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    fs::copy(env!("CARGO_BIN_EXE_xfskit"), dir.join("bin/mkfs.xfs")).unwrap();
    fs::write(dir.join("project/tree/usr/lib/os-release"), "ID=test\nNAME=test\n").unwrap();
    fs::write(dir.join("project/tree/etc/motd"), "hello\n").unwrap();
    let partition = "[Partition]\nType=root\nFormat=xfs\nCopyFiles=/\nSizeMinBytes=400M\n";
    fs::write(dir.join("project/mkosi.repart/root.conf"), partition).unwrap();
    let place = dir.display();
    let config = format!(
        "[Distribution]\nDistribution=custom\n[Output]\nFormat=disk\nImageId=test\nOutputDirectory={place}/out\n\
         [Content]\nBootable=no\nElTorito=no\nSkeletonTrees=tree\n\
         [Build]\nBuildSources=\nCacheDirectory={place}/cache\nWorkspaceDirectory={place}/work\nRepartOffline=yes\n\
         ExtraSearchPaths={place}/bin\n"
    );
    fs::write(dir.join("project/mkosi.conf"), config).unwrap();
    run(Command::new("chown").args(["-R", "65534:65534"]).arg(dir));
    let root = std::env::var("XFS_REFERENCE").unwrap_or_else(|_| "/opt/xfs-reference".into());
    let script = format!(
        "mount --make-rprivate / && mount --rbind {root} {root} && cd {root} && pivot_root . mnt && cd / && \
         umount -l /mnt && cd {place}/project && \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups \
         env HOME={place} USER=nobody PATH={place}/bin:/usr/bin:/usr/sbin TMPDIR={place} mkosi build"
    );
    run(Command::new("unshare").args(["-m", "bash", "-c", &script]));
    let image = first_partition(&scratch, &dir.join("out/test.raw"));
    reference.repair_finds_nothing(&image);
    let Some(kernel) = kernel_mount(&image) else { return };
    let motd = kernel.path().join("etc/motd");
    assert_eq!(fs::read_to_string(&motd).unwrap(), "hello\n");
    assert_eq!((fs::metadata(&motd).unwrap().uid(), fs::metadata(kernel.path()).unwrap().uid()), (0, 0));
    kernel.unmount();
}

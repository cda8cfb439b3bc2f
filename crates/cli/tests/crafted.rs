//! Damaged images: trees with cycles, in which every walk must end, numbers that are too large, and names with control
//! sequences for a terminal.

mod common;

use common::trees::is_root;
use common::{fails, image, ok, words, xfskit};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use xfskit_testkit::{reference, scratch, skip};

const INODE_BYTES: usize = 512;
const BLOCKS_OFFSET: usize = 64;
const INODE_CRC_OFFSET: usize = 100;

/// The inode that contains some bytes, which no other inode contains, and the offset of the bytes in it.
fn find<'a>(image: &'a mut [u8], what: &[u8]) -> (&'a mut [u8], usize) {
    let at = |inode: &[u8]| inode.starts_with(b"IN").then(|| inode.windows(what.len()).position(|part| part == what));
    let mut inodes = image.chunks_exact_mut(INODE_BYTES);
    inodes.find_map(|inode| at(inode).flatten().map(|at| (inode, at))).unwrap()
}

/// Runs a line that must end within a time limit.
fn bounded(line: &str, image: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_xfskit")]).args(words(line, image)).current_dir(image.parent().unwrap());
    command.output().unwrap()
}

/// Makes the entry `name` of an inline directory refer to another inode. No other entry has this name.
fn redirect(image: &Path, name: &str, inode: u32) {
    let mut bytes = fs::read(image).unwrap();
    let (dir, at) = find(&mut bytes, name.as_bytes());
    // The type and the inode number follow the name.
    let number = at + name.len() + 1;
    dir[number..number + 4].copy_from_slice(&inode.to_be_bytes());
    xfskit_ondisk::set_checksum(dir, INODE_CRC_OFFSET);
    fs::write(image, bytes).unwrap();
}

fn inode_of(path: &str, image: &Path) -> u32 {
    let stat: serde_json::Value = serde_json::from_str(&ok(&format!("--json stat IMAGE {path}"), image)).unwrap();
    stat["inode"].as_u64().unwrap().try_into().unwrap()
}

/// `tree`, `xattr dump -R` and `rm -r` must not follow such an entry without end.
#[test]
fn a_directory_in_itself_is_corruption_and_no_endless_tree() {
    for target in ["/a/b", "/a", "/"] {
        let scratch = scratch();
        let image = image(&scratch);
        ok("mkdir -p IMAGE /a/b/loop-entry /keep", &image);
        ok("touch IMAGE /a/b/first /keep/file", &image);
        redirect(&image, "loop-entry", inode_of(target, &image));
        if let Some(reference) = reference() {
            assert!(reference.repair_findings(&image, None).is_some());
        }
        assert_eq!(bounded("check IMAGE", &image).status.code(), Some(1));
        for line in [
            "tree IMAGE",
            "--json tree IMAGE",
            "xattr dump -R IMAGE",
            "du IMAGE",
            "export IMAGE -o out.tar",
            "rm -r IMAGE /a",
            "chown -R IMAGE 5 /a",
            "chmod -R IMAGE 755 /a",
        ] {
            let output = bounded(line, &image);
            let message = String::from_utf8_lossy(&output.stderr);
            let is_told = message.contains("a/b/loop-entry: corrupt directory") && message.contains("one name");
            assert!(output.status.code() == Some(3) && is_told, "{line}, {target}: {output:?}");
        }
        assert!(ok("ls IMAGE /a/b", &image).contains("loop-entry"));
        assert_eq!(ok("ls IMAGE /keep", &image), "file\n", "rm -r /a leaves alone what is above it");
        assert!(ok("stat IMAGE /keep", &image).contains(" 0:0\n"));
    }
}

/// A failed export must not remove an existing device such as `/dev/null`.
#[test]
fn a_failed_export_removes_no_device() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, device) = (image(&scratch), scratch.file("null"));
    ok("mkdir -p IMAGE /loop-entry", &image);
    redirect(&image, "loop-entry", inode_of("/", &image));
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &device, kind, rustix::fs::Mode::RUSR, rustix::fs::makedev(1, 3)).unwrap();
    // The archive contains what can be read, but the export fails.
    for name in ["null", "out.tar"] {
        assert_eq!(bounded(&format!("export IMAGE -o {name}"), &image).status.code(), Some(3));
        assert!(scratch.file(name).exists(), "{name}");
    }
}

/// The number of bytes in the file's blocks does not fit 64 bits: damage, not an overflow in a sum.
#[test]
fn a_file_of_more_blocks_than_can_be_is_damaged() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("touch IMAGE /file", &image);
    ok("xattr set IMAGE /file user.name find-this-inode", &image);
    let mut bytes = fs::read(&image).unwrap();
    let (inode, _) = find(&mut bytes, b"find-this-inode");
    inode[BLOCKS_OFFSET..BLOCKS_OFFSET + 8].copy_from_slice(&(1_u64 << 59).to_be_bytes());
    xfskit_ondisk::set_checksum(inode, INODE_CRC_OFFSET);
    fs::write(&image, bytes).unwrap();
    let out = scratch.file("out.tar");
    for line in ["du IMAGE", &format!("export IMAGE -o {}", out.display())] {
        let (code, message) = fails(line, &image);
        assert!(code == 3 && message.contains("blocks take less than"), "{line}: {code}, {message}");
    }
}

/// The second line of a name must not look like a line of the list.
#[test]
fn names_are_no_lines_of_a_list_on_a_terminal() {
    let scratch = scratch();
    let image = image(&scratch);
    let name = "/two\n-forged";
    ok(&format!("touch IMAGE {name}"), &image);
    ok(&format!("ln -s IMAGE {name} /link"), &image);
    assert!(ok("ls IMAGE", &image).contains("two\n-forged"), "what is no terminal gets names as they are");
    if Command::new("script").arg("--version").output().is_err() {
        return skip("this machine has no script(1)");
    }
    let lines = ["ls IMAGE", "ls -l IMAGE", "tree IMAGE", "du IMAGE NAME", "stat IMAGE /link", "parents IMAGE NAME"];
    for line in lines {
        let line = line.replace("IMAGE", image.to_str().unwrap()).replace("NAME", &format!("'{name}'"));
        let command = format!("{} {line}", env!("CARGO_BIN_EXE_xfskit"));
        let output = Command::new("script").args(["-qc", &command, "/dev/null"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("two?-forged") && !text.contains("\n-forged"), "{line}: {text:?}");
    }
}

/// A boot sector was written over the first superblock.
#[test]
fn an_image_below_a_partition_table_is_found() {
    use std::os::unix::fs::FileExt;
    let scratch = scratch();
    let image = scratch.file("a.img");
    for options in ["--size 2G", "--size 3000M -d agcount=7", "--size 1G -d su=64k,sw=3", "--small --size 40M"] {
        ok(&format!("mkfs IMAGE -f -q {options}"), &image);
        ok("touch IMAGE /file", &image);
        let file = fs::File::options().write(true).open(&image).unwrap();
        file.write_all_at(&[0; 512], 0).unwrap();
        file.write_all_at(&[0x55, 0xaa], 510).unwrap();
        // The first superblock is gone, which the exit code says.
        let output = xfskit(words("ls IMAGE", &image));
        assert!(output.status.code() == Some(3) && output.stdout == b"file\n", "{options}: {output:?}");
    }
}

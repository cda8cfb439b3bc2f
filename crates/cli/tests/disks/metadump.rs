//! Metadumps are read as disks without contents of files; xfs_metadump makes them. And what else an operator of XFS has
//! that is no image.

use crate::common::trees::make_tree;
use crate::common::{fails, ok, words, xfskit};
use std::fs;
use std::path::{Path, PathBuf};
use xfskit_testkit::{Scratch, reference, scratch};

/// An image with a tree, and its metadumps of both versions, with the names as they are.
fn dumps(scratch: &Scratch) -> Option<(PathBuf, Vec<PathBuf>)> {
    let reference = reference()?;
    let (image, tree) = (scratch.file("a.img"), scratch.file("tree"));
    make_tree(&tree);
    ok(&format!("mkfs IMAGE -q --size 300M --from {}", tree.display()), &image);
    ok("mkdir IMAGE /large", &image);
    for n in 0..3 {
        let names: Vec<String> = (0..100).map(|i| format!("/large/a-name-that-takes-some-space-{n}-{i}")).collect();
        ok(&format!("touch IMAGE {}", names.join(" ")), &image);
    }
    let dump = |version: &str| {
        let dump = scratch.file(&format!("version-{version}"));
        let arguments = ["-o", "-w", "-v", version, image.to_str().unwrap(), dump.to_str().unwrap()];
        reference.tool_output("xfs_metadump", arguments);
        dump
    };
    let dumps = ["1", "2"].map(dump).to_vec();
    Some((image, dumps))
}

/// What a line prints, without the name of the image and what is said of its disk.
fn shown(line: &str, image: &Path) -> String {
    let name = image.to_str().unwrap();
    let output = xfskit(words(line, image));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).replace(name, "IMAGE");
    let lines = text.lines().filter(|line| !line.starts_with("disk ") && !line.starts_with("meta-data="));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_metadump_is_read_as_its_image() {
    let scratch = scratch();
    let Some((image, dumps)) = dumps(&scratch) else { return };
    for dump in dumps {
        for line in ["info IMAGE", "find IMAGE", "ls -lR IMAGE /", "check IMAGE", "df IMAGE", "xattr dump -R IMAGE /"] {
            assert_eq!(shown(line, &dump), shown(line, &image), "{line} {}", dump.display());
        }
        assert!(ok("info IMAGE", &dump).contains("metadump"));
        assert!(ok("log print IMAGE", &dump).contains("unmount"));
    }
}

/// Zeros must not be given for contents that are not there.
#[test]
fn contents_of_a_metadump_are_refused() {
    let scratch = scratch();
    let Some((image, dumps)) = dumps(&scratch) else { return };
    let name = ok("find IMAGE -type f -size +8k", &image).lines().next().unwrap().to_owned();
    for dump in dumps {
        let before = fs::read(&dump).unwrap();
        let output = xfskit(words(&format!("cat IMAGE {name}"), &dump));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{text}");
        assert!(text.contains("metadump does not have it"), "{text}");
        let out = scratch.file("out");
        let (code, text) = fails(&format!("cp -r {}:/. {}", dump.display(), out.display()), &dump);
        assert!(code == 3 && text.contains("left out"), "{code} {text}");
        for line in ["touch IMAGE /new", "mkfs IMAGE", "mkfs -f IMAGE"] {
            let (code, text) = fails(line, &dump);
            assert!(code != 0 && text.contains("xfs_mdrestore"), "{line}: {text}");
        }
        assert!(fs::read(&dump).unwrap() == before);
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn a_damaged_metadump_is_refused() {
    let scratch = scratch();
    let Some((_, dumps)) = dumps(&scratch) else { return };
    for dump in dumps {
        let whole = fs::read(&dump).unwrap();
        let second = if whole.starts_with(b"XFSM") { 64 * 512 } else { 24 };
        for (what, change) in [
            ("cut", &(|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 100)) as &dyn Fn(&mut Vec<u8>)),
            ("header", &|bytes| bytes[4..8].fill(0xff)),
            ("second header", &|bytes| bytes[second..second + 12].fill(0xff)),
        ] {
            let mut bytes = whole.clone();
            change(&mut bytes);
            fs::write(&dump, bytes).unwrap();
            let (code, text) = fails("info IMAGE", &dump);
            assert!(code == 3 && text.contains("damaged: metadump"), "{what}: {code} {text}");
        }
    }
}

#[test]
fn what_is_no_image_is_named() {
    let scratch = scratch();
    let file = scratch.file("f");
    for (start, name) in
        [(&b"xFSdump0"[..], "xfsdump"), (b"partclone-image", "partclone"), (b"\xfe\xed\xba\xbe", "--logdev")]
    {
        let mut bytes = vec![0; 100_000];
        bytes[..start.len()].copy_from_slice(start);
        fs::write(&file, &bytes).unwrap();
        let (code, text) = fails("info IMAGE", &file);
        assert!(code == 3 && text.contains(name) && !text.contains("first four bytes"), "{text}");
        assert_eq!(fails("mkfs IMAGE", &file).0, 2);
        assert!(fs::read(&file).unwrap() == bytes);
    }
    // The journal of mkfs.xfs, and one whose first record is not at its beginning.
    let Some(reference) = reference() else { return };
    let (image, log) = (scratch.image("b.img", 300 << 20), scratch.image("log", 64 << 20));
    let option = format!("logdev={},size=64m", log.display());
    reference.mkfs(&image, &["-l", &option]);
    let bytes = fs::read(&log).unwrap();
    for (what, at) in [("first", 0), ("later", 20 << 10)] {
        let moved = [&vec![0; at][..], &bytes[..bytes.len() - at]].concat();
        fs::write(&log, moved).unwrap();
        let (code, text) = fails("info IMAGE", &log);
        assert!(code == 3 && text.contains("external journal"), "{what}: {text}");
        assert_eq!(fails("mkfs IMAGE", &log).0, 2, "{what}");
    }
}

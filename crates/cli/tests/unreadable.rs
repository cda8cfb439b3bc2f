//! Commands that read many files of an image of which some cannot be read: they continue, report each file that they
//! skip, and exit with 3.

mod common;

use common::{fails, ok, with_input};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use xfskit_testkit::{Reference, Scratch, reference, scratch};

/// Damages a field of an inode, or of the first block of a directory.
fn damage(reference: &Reference, image: &Path, path: &str, at: &[&str], field: &str) {
    let stat: serde_json::Value = serde_json::from_str(&ok(&format!("stat IMAGE {path} --json"), image)).unwrap();
    let inode = format!("inode {}", stat["inode"]);
    let write = format!("write -d {field}");
    let commands = [&[inode.as_str()], at, &[&write]].concat();
    let mut arguments = vec!["-x"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(image.to_str().unwrap());
    reference.tool_output("xfs_db", arguments);
}

/// An image with directories of files, in which a file, a symbolic link and a whole directory are damaged.
fn damaged(reference: &Reference, scratch: &Scratch) -> PathBuf {
    let image = scratch.file("a.img");
    ok("mkfs IMAGE -q --small --size 64M", &image);
    ok("mkdir IMAGE /aa /bb /bb/in /mm /mm/below /zz", &image);
    for path in ["/aa/1", "/aa/2", "/aa/3", "/bb/in/lost", "/mm/1", "/zz/1", "/zz/2"] {
        ok(&format!("touch IMAGE {path}"), &image);
        ok(&format!("xattr set IMAGE {path} user.path {path}"), &image);
    }
    ok("ln -s IMAGE target /mm/link", &image);
    for n in 0..60 {
        ok(&format!("touch IMAGE /bb/in/a-name-that-takes-some-space-{n}"), &image);
    }
    damage(reference, &image, "/aa/2", &[], "core.onlink 7");
    damage(reference, &image, "/bb/in", &["dblock 0"], "bhdr.hdr.magic 7");
    damage(reference, &image, "/mm/link", &[], "core.size 200");
    image
}

/// The commands must not end at the first such file.
#[test]
fn listings_go_on_behind_what_cannot_be_read() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let image = damaged(&reference, &scratch);
    for line in [
        "ls -lR IMAGE /",
        "ls -R IMAGE /",
        "tree IMAGE",
        "du IMAGE",
        "find IMAGE",
        "xattr dump -R IMAGE /",
        "ls -R --json IMAGE /",
        "tree --json IMAGE",
    ] {
        let output = common::xfskit(common::words(line, &image));
        let (shown, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(3), "{line}: {errors}");
        for part in ["aa", "mm", "zz"] {
            assert!(shown.contains(part), "{line}: {part}: {shown}");
        }
        let times = |path: &str| errors.lines().filter(|message| message.contains(path)).count();
        assert_eq!((times("aa/2:"), times("bb/in:")), (1, 1), "{line}: {errors}");
        if line.starts_with("du") {
            assert_eq!(shown.lines().last().unwrap().split('\t').nth(1), Some("/"), "{shown}");
        }
    }
    let (_, errors) = fails("ls -l IMAGE /aa", &image);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let listed = String::from_utf8(common::xfskit(common::words("ls -l IMAGE /aa", &image)).stdout).unwrap();
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 3 && lines[1].starts_with("?????????? ") && lines[1].ends_with(" 2"), "{listed}");
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{listed}");
    // A file that does not exist is a failed operation, and a tree contains what follows the damage.
    assert_eq!(fails("ls -l IMAGE /none", &image).0, 1);
    let tree = String::from_utf8(common::xfskit(common::words("tree IMAGE", &image)).stdout).unwrap();
    assert!(tree.lines().any(|line| line == "├── zz" || line == "└── zz"), "{tree}");
}

/// The archive must not have two entries of one name, since the second would replace the first.
#[test]
fn a_name_that_is_there_twice_is_damage() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let (image, out, tar) = (scratch.file("a.img"), scratch.file("out"), scratch.file("a.tar"));
    ok("mkfs IMAGE -q --small --size 64M", &image);
    for name in ["aa", "ab", "zz"] {
        assert!(with_input(&format!("write IMAGE /{name}"), &image, name.as_bytes()).status.success());
    }
    damage(&reference, &image, "/", &[], "u3.sfdir3.list[1].name \"aa\"");
    fs::create_dir(&out).unwrap();
    for line in
        [format!("export IMAGE -o {}", tar.display()), format!("cp -r {}:/. {}", image.display(), out.display())]
    {
        let (code, message) = fails(&line, &image);
        assert!(code == 3 && message.contains("each name is there once") && message.contains("aa"), "{code} {message}");
    }
    let listed = Command::new("tar").arg("-tf").arg(&tar).output().unwrap().stdout;
    assert_eq!(String::from_utf8(listed).unwrap(), "./\naa\nzz\n");
    assert_eq!(fs::read(out.join("aa")).unwrap(), b"aa");
    for line in ["tree IMAGE", "find IMAGE", "du IMAGE"] {
        let (code, message) = fails(line, &image);
        assert!(code == 3 && message.contains("/aa: corrupt directory"), "{line}: {code} {message}");
    }
}

/// The copy must continue after a file whose contents lie beyond the end of a truncated image.
#[test]
fn a_copy_goes_on_behind_a_large_file_that_cannot_be_read() {
    let scratch = scratch();
    let (image, out, tar) = (scratch.file("a.img"), scratch.file("out"), scratch.file("a.tar"));
    ok("mkfs IMAGE -q --small --size 64M", &image);
    assert!(with_input("write IMAGE /z", &image, b"at the end").status.success());
    let contents: Vec<u8> = (0..14_000_000_u32).map(|n| (n % 251) as u8 + 1).collect();
    assert!(with_input("write IMAGE /large", &image, &contents).status.success());
    assert!(with_input("write IMAGE /a", &image, b"at the start").status.success());
    ok("ln IMAGE /large /large.again", &image);
    let whole = scratch.file("whole");
    ok(&format!("cp -r IMAGE:/. {}", whole.display()).replace("IMAGE", image.to_str().unwrap()), &image);
    File::options().write(true).open(&image).unwrap().set_len(8 << 20).unwrap();

    fs::create_dir(&out).unwrap();
    fs::write(out.join("large"), "an older copy").unwrap();
    let copy = format!("cp --norecovery -r {}:/. {}", image.display(), out.display());
    let (code, message) = fails(&copy, &image);
    assert!(code == 3 && message.contains("2 files were left out"), "{code} {message}");
    let offset: usize = message.split("large at byte ").nth(1).unwrap().split(':').next().unwrap().parse().unwrap();
    assert!(offset > 0 && offset < contents.len() && offset.is_multiple_of(4096), "{message}");
    let names = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // No incomplete file has a name, and existing files stay.
    assert_eq!(names(&out), ["a", "large", "z"]);
    assert_eq!(fs::read(out.join("large")).unwrap(), b"an older copy");
    assert_eq!(fs::read(out.join("z")).unwrap(), b"at the end");

    // In a stream the header is already written, so zeros replace the rest.
    let export = format!("export --norecovery IMAGE / -o {}", tar.display());
    let (code, message) = fails(&export, &image);
    assert!(code == 3 && message.contains("zeros in place") && message.contains("at byte"), "{code} {message}");
    let unpacked = scratch.file("unpacked");
    fs::create_dir(&unpacked).unwrap();
    assert!(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&unpacked).status().unwrap().success());
    assert_eq!(names(&unpacked), names(&whole));
    let padded = fs::read(unpacked.join("large")).unwrap();
    assert!(padded.len() == contents.len() && padded[..1 << 20] == contents[..1 << 20]);
    assert!(padded[offset..].iter().all(|&byte| byte == 0));
    // The contents before the damage can be read.
    let output = common::xfskit(common::words("cat --norecovery IMAGE /large", &image));
    assert!(output.status.code() == Some(3) && contents.starts_with(&output.stdout) && !output.stdout.is_empty());
}

/// Its contents are copied, and without attributes there is no error at all.
#[test]
fn a_file_is_copied_without_attributes_that_cannot_be_read() {
    let scratch = scratch();
    let (image, out, tar) = (scratch.file("a.img"), scratch.file("out"), scratch.file("a.tar"));
    ok("mkfs IMAGE -q --small --size 64M", &image);
    let value = "a-value-that-lies-in-a-block-of-its-own.".repeat(20);
    for name in ["f1", "f2", "f3", "f4"] {
        assert!(with_input(&format!("write IMAGE /{name}"), &image, name.as_bytes()).status.success());
    }
    for name in ["f2", "f3"] {
        ok(&format!("xattr set IMAGE /{name} user.{name} {value}"), &image);
    }
    ok("xattr set IMAGE /f4 user.f4 good", &image);
    let mut bytes = fs::read(&image).unwrap();
    let wanted = value.as_bytes();
    let found: Vec<usize> = (0..bytes.len() - wanted.len())
        .filter(|&at| bytes[at] == wanted[0] && bytes[at..].starts_with(wanted))
        .collect();
    assert!(found.len() >= 2);
    found.iter().for_each(|&at| bytes[at] ^= 1);
    fs::write(&image, bytes).unwrap();
    let copy = |options: &str| format!("cp -r {options} -p {}:/. {}", image.display(), out.display());
    let export = |options: &str| format!("export IMAGE {options} -o {}", tar.display());
    let unpack = || {
        fs::create_dir_all(&out).unwrap();
        assert!(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&out).status().unwrap().success());
    };
    for (line, is_export) in [(copy("--force"), false), (export(""), true)] {
        drop(fs::remove_dir_all(&out));
        fs::create_dir(&out).unwrap();
        let (code, message) = fails(&line, &image);
        assert!(code == 3 && message.contains("2 files were copied without attributes"), "{line}: {code} {message}");
        for name in ["f2:", "f3:"] {
            assert!(message.lines().any(|line| line.starts_with(&format!("xfskit: {name}"))), "{line}: {message}");
        }
        if is_export {
            unpack();
        }
        for name in ["f1", "f2", "f3", "f4"] {
            assert_eq!(fs::read(out.join(name)).unwrap(), name.as_bytes(), "{line}");
        }
    }
    for (line, is_export) in [(copy("--no-xattrs"), false), (export("--no-xattrs"), true)] {
        drop(fs::remove_dir_all(&out));
        fs::create_dir(&out).unwrap();
        let output = common::xfskit(common::words(&line, &image));
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        if is_export {
            unpack();
        }
        assert_eq!(fs::read(out.join("f3")).unwrap(), b"f3", "{line}");
    }
}

/// A person who has to find a backup needs the names of all files.
#[test]
fn a_copy_names_each_file_that_cannot_be_read() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let (image, out, tar) = (damaged(&reference, &scratch), scratch.file("out"), scratch.file("a.tar"));
    fs::create_dir(&out).unwrap();
    let copy = format!("cp -r {}:/. {}", image.display(), out.display());
    for line in [copy, format!("export IMAGE -o {}", tar.display())] {
        let (code, message) = fails(&line, &image);
        assert_eq!(code, 3, "{line}: {message}");
        for name in ["aa/2:", "bb/in:", "mm/link:"] {
            let is_named = message.lines().any(|line| line.starts_with(&format!("xfskit: {name}")));
            assert!(is_named, "{line}: {name} {message}");
        }
    }
}

/// A wrong bit in the version must not make the image an unsupported one, since the copies have the right version.
#[test]
fn a_version_that_the_copies_contradict_is_damage() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    ok("mkfs IMAGE -q --small --size 64M", &image);
    assert!(with_input("write IMAGE /file", &image, b"contents").status.success());
    let good = fs::read(&image).unwrap();
    for bit in [1, 10] {
        let mut bytes = good.clone();
        bytes[101] ^= bit;
        fs::write(&image, bytes).unwrap();
        let output = common::xfskit(common::words("cat IMAGE /file", &image));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(3) && output.stdout == b"contents", "{message}");
        assert!(message.contains("the first superblock is damaged"), "{message}");
        let (code, message) = fails("touch IMAGE /new", &image);
        assert!(code == 3 && message.contains("xfs_repair puts it back"), "{code} {message}");
    }
    // If all superblocks have the older version, the image is not supported.
    let mut bytes = good.clone();
    let superblocks: Vec<usize> = (0..good.len()).step_by(4096).filter(|&at| good[at..].starts_with(b"XFSB")).collect();
    superblocks.iter().for_each(|&at| bytes[at + 101] ^= 1);
    fs::write(&image, bytes).unwrap();
    assert!(superblocks.len() > 1);
    assert_eq!(fails("ls IMAGE", &image).0, 7);
}

/// The first byte of a directory block in the image, as xfs_db says.
fn place(reference: &Reference, image: &Path, dir: &str, block: u64) -> u64 {
    let stat: serde_json::Value = serde_json::from_str(&ok(&format!("stat IMAGE {dir} --json"), image)).unwrap();
    let commands = [format!("inode {}", stat["inode"]), format!("dblock {block}"), "daddr".into()];
    let shown = reference.db(image, &commands.iter().map(String::as_str).collect::<Vec<_>>());
    512 * shown.trim().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
}

fn strike(image: &Path, at: u64) {
    let file = File::options().write(true).open(image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x55; 16], at + 1000).unwrap();
}

/// An image with a directory of 401 files in several blocks, and the names that its second block has.
fn large_dir(reference: &Reference, scratch: &Scratch) -> (PathBuf, Vec<String>) {
    let image = scratch.file("a.img");
    ok("mkfs IMAGE -q --small --size 64M", &image);
    ok("mkdir IMAGE /dir", &image);
    let names: Vec<String> = (0..401).map(|n| format!("a-name-that-takes-some-space-{n:03}")).collect();
    for some in names.chunks(100) {
        let paths: Vec<String> = some.iter().map(|name| format!("/dir/{name}")).collect();
        ok(&format!("touch IMAGE {}", paths.join(" ")), &image);
    }
    let at = place(reference, &image, "/dir", 1) as usize;
    let block = fs::read(&image).unwrap()[at..at + 4096].to_vec();
    let has = |name: &&String| block.windows(name.len()).any(|part| part == name.as_bytes());
    let lost = names.iter().filter(has).cloned().collect();
    (image, lost)
}

/// A block of a directory that is damaged loses its own names, each command says so once, and all others are there.
#[test]
fn a_damaged_block_of_a_directory_loses_its_own_names() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let (image, lost) = large_dir(&reference, &scratch);
    assert!(lost.len() > 20 && lost.len() < 200);
    let left = 401 - lost.len();
    strike(&image, place(&reference, &image, "/dir", 1));
    let (out, tar) = (scratch.file("out"), scratch.file("a.tar"));
    let copy = format!("cp -r {}:/dir {}", image.display(), out.display());
    let export = format!("export IMAGE /dir -o {}", tar.display());
    for line in ["ls IMAGE /dir", "ls -lR IMAGE /dir", "find IMAGE /dir", "tree IMAGE /dir", "du IMAGE", &copy, &export]
    {
        let output = common::xfskit(common::words(line, &image));
        let (shown, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(3), "{line}: {errors}");
        let names = format!("a block of the directory is lost, and {} names with it", lost.len());
        let told = errors.lines().filter(|line| line.contains(&names)).count();
        assert!(told == 1 && errors.contains("checksum"), "{line}: {errors}");
        let counted = format!("{} names were lost", lost.len());
        assert!(errors.contains(&counted) || !(line == copy || line == export), "{line}: {errors}");
        let listed = shown.lines().filter(|line| line.contains("a-name-that")).count();
        assert!(listed == left || line == "du IMAGE" || line == copy || line == export, "{line}: {listed}");
        assert!(!lost.iter().any(|name| shown.contains(name)), "{line}");
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), left);
    let listed = Command::new("tar").arg("-tf").arg(&tar).output().unwrap().stdout;
    assert_eq!(String::from_utf8(listed).unwrap().lines().filter(|line| line.contains("a-name-that")).count(), left);
    // A change of what is damaged is refused, and nothing is removed in part.
    assert_ne!(fails("rm -r IMAGE /dir", &image).0, 0);
    let listed = common::xfskit(common::words("ls IMAGE /dir", &image)).stdout;
    assert_eq!(String::from_utf8(listed).unwrap().lines().count(), left);
}

/// The index is for finding names: without it they are listed, and found by those who only read.
#[test]
fn a_damaged_index_of_a_directory_loses_no_name() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let (image, _) = large_dir(&reference, &scratch);
    strike(&image, place(&reference, &image, "/dir", 8_388_608));
    assert_eq!(ok("ls IMAGE /dir", &image).lines().count(), 401);
    assert_eq!(ok("find IMAGE /dir", &image).lines().count(), 402);
    assert!(ok("stat IMAGE /dir/a-name-that-takes-some-space-333", &image).contains("file"));
    let (code, message) = fails("stat IMAGE /dir/none", &image);
    assert!(code == 1 && message.contains("no such file"), "{code} {message}");
    assert_eq!(fails("touch IMAGE /dir/new", &image).0, 3);
    // A name that may have been in a block that is lost too is not known to be missing.
    strike(&image, place(&reference, &image, "/dir", 1));
    assert_eq!(fails("stat IMAGE /dir/none", &image).0, 3);
}

/// What one place of damage explains is one to a person, and single for programs.
#[test]
fn check_names_paths_and_what_one_place_explains() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let (image, _) = large_dir(&reference, &scratch);
    let dir = place(&reference, &image, "/dir", 1);
    let whole = fs::read(&image).unwrap();
    strike(&image, dir);
    let (code, shown) = {
        let output = common::xfskit(common::words("check IMAGE", &image));
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert!(code == Some(1) && shown.contains("(/dir) at disk address"), "{shown}");
    // Inodes of most of the files are gone.
    fs::write(&image, &whole).unwrap();
    let stat: serde_json::Value =
        serde_json::from_str(&ok("stat IMAGE /dir/a-name-that-takes-some-space-200 --json", &image)).unwrap();
    let shown = reference.db(&image, &[&format!("inode {}", stat["inode"]), "daddr"]);
    let at = 512 * shown.trim().rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 64 << 10], at & !0xffff).unwrap();
    let output = common::xfskit(common::words("check IMAGE", &image));
    let shown = String::from_utf8(output.stdout).unwrap();
    let json = common::xfskit(common::words("--json check IMAGE", &image)).stdout;
    let found: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let faults = found["faults"].as_array().unwrap();
    assert!(faults.len() >= 60, "{shown}");
    assert!(shown.lines().count() < faults.len() / 2 && shown.contains("more of that kind"), "{shown}");
    assert!(faults.iter().any(|fault| fault["path"].as_str().is_some_and(|path| path.starts_with("/dir/"))), "{shown}");
}

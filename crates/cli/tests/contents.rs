//! `cat`, `write`, `df`, `du` and `clone`, compared with the kernel and its tools.

mod common;

use common::trees::{is_root, make_tree, run};
use common::{fails, image, ok, with_input, words, xfskit};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use xfskit_testkit::{kernel_mount, reference, scratch};

#[test]
fn files_are_written_and_read_back() {
    let scratch = scratch();
    let image = image(&scratch);
    let write = |line: &str, input: &[u8]| {
        let output = with_input(line, &image, input);
        assert!(output.status.success(), "{line}: {output:?}");
    };
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n >> 3) as u8).collect();
    write("write IMAGE /large -m 600", &large);
    write("write IMAGE /text", b"one\ntwo\n");
    write("write IMAGE /text --append", b"three\n");
    write("write IMAGE /text --offset 4", b"TWO");
    write("write IMAGE /hole --offset 1M", b"behind");
    write("write IMAGE /empty", b"");
    write("write IMAGE /short", &large);
    write("write IMAGE /short", b"now short");
    ok("ln -s IMAGE text /link", &image);
    write("write IMAGE /link -a", b"four\n");
    assert_eq!(ok("cat IMAGE /link /empty /short", &image), "one\nTWO\nthree\nfour\nnow short");
    assert!(xfskit(words("cat IMAGE /large", &image)).stdout == large);
    assert_eq!(fails("cat IMAGE /", &image).0, 1);
    assert_eq!(fails("cat IMAGE /none", &image).0, 1);
    assert_eq!(fails("write IMAGE /none/x", &image).0, 1);
    assert_eq!(fails("write IMAGE /", &image).0, 1);
    assert_eq!(fails("write IMAGE /x -a --offset 3", &image).0, 2);
    if let Some(kernel) = kernel_mount(&image) {
        let read = |name: &str| fs::read(kernel.path().join(name)).unwrap();
        assert!(read("large") == large && read("text") == b"one\nTWO\nthree\nfour\n" && read("short") == b"now short");
        let hole = read("hole");
        assert!(hole.len() == (1 << 20) + 6 && hole.ends_with(b"\0behind"));
        let stat = |name: &str| fs::metadata(kernel.path().join(name)).unwrap();
        assert_eq!((stat("large").mode() & 0o7777, stat("hole").blocks()), (0o600, 8));
        kernel.unmount();
    }
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

/// Parts of files, with holes and beyond the end, as dd reads them.
#[test]
fn parts_of_files_are_those_of_dd() {
    let scratch = scratch();
    let image = image(&scratch);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 + n / 1000) as u8).collect();
    assert!(with_input("write IMAGE /file", &image, &bytes).status.success());
    assert!(with_input("write IMAGE /sparse --offset 1M", &image, b"in the middle").status.success());
    assert!(with_input("write IMAGE /sparse --offset 5M", &image, b"at the end").status.success());
    let Some(kernel) = kernel_mount(&image) else { return };
    for name in ["file", "sparse"] {
        for (offset, length) in [
            (0, 0),
            (0, 1),
            (1, 1),
            (4095, 2),
            (1_048_570, 20),
            (1_048_576, 1 << 20),
            (1_000_000, 5_000_000),
            (2_999_999, 10),
            (3_000_000, 10),
            (5_242_880, 100),
            (9_000_000, 1),
            (0, 9_000_000),
        ] {
            let mut dd = Command::new("dd");
            dd.args([&format!("skip={offset}"), &format!("count={length}"), "iflag=skip_bytes,count_bytes,fullblock"]);
            let theirs = run(dd.args(["bs=64k", "status=none"]).arg(format!("if={}/{name}", kernel.path().display())));
            // To dd a count of nothing is all.
            let expected = if length == 0 { Vec::new() } else { theirs.stdout };
            let line = format!("cat IMAGE /{name} --offset {offset} --length {length}");
            let output = xfskit(words(&line, &image));
            assert!(output.status.success() && output.stdout == expected, "{line}: {} bytes", output.stdout.len());
        }
        let tail = run(Command::new("tail").args(["-c", "+1048577"]).arg(kernel.path().join(name))).stdout;
        assert!(xfskit(words(&format!("cat IMAGE /{name} --offset 1M"), &image)).stdout == tail);
        let head = run(Command::new("head").args(["-c", "1048577"]).arg(kernel.path().join(name))).stdout;
        assert!(xfskit(words(&format!("cat IMAGE /{name} --length 1048577"), &image)).stdout == head);
    }
    kernel.unmount();
    let last = format!("cat IMAGE /file --offset {} --length {}", u64::MAX, u64::MAX);
    assert_eq!(ok(&last, &image), "");
    for wrong in ["/file /sparse --offset 1", "/file /sparse --length 1", "/file --offset -1", "/file --length x"] {
        assert_eq!(fails(&format!("cat IMAGE {wrong}"), &image).0, 2, "{wrong}");
    }
    assert_eq!(fails("cat IMAGE / --length 0", &image).0, 1);
}

#[test]
fn space_is_counted_as_by_du_and_df() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, source) = (scratch.file("a.img"), scratch.file("source"));
    make_tree(&source);
    ok(&format!("mkfs IMAGE --from {} -q", source.display()), &image);
    let ours = |line: &str| ok(line, &image);
    let lines =
        [ours("du IMAGE"), ours("du IMAGE -s"), ours("du IMAGE /dir -h"), ours("du IMAGE --apparent-size -s /dir")];
    let json: serde_json::Value = serde_json::from_str(&ours("--json df IMAGE")).unwrap();
    let table = ours("df IMAGE -h");
    assert!(table.contains("space") && table.contains("inodes") && table.contains('M'), "{table}");
    let one: serde_json::Value = serde_json::from_str(&ours("--json du IMAGE /big")).unwrap();
    assert_eq!(one[0]["path"], "/big");
    let Some(kernel) = kernel_mount(&image) else { return };
    let du = |arguments: &[&str]| {
        let output = run(Command::new("du").args(arguments).current_dir(kernel.path()));
        String::from_utf8(output.stdout).unwrap()
    };
    let sorted = |text: &str| {
        let mut lines: Vec<String> =
            text.lines().map(|line| line.replace("\t./", "\t/").replace("\t.", "\t/")).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&lines[0]), sorted(&du(&["."])));
    assert_eq!(sorted(&lines[1]), sorted(&du(&["-s", "."])));
    assert_eq!(sorted(&lines[2]), sorted(&du(&["-h", "./dir"])));
    // How much a directory counts for itself differs between tools.
    let files =
        fs::read_dir(kernel.path().join("dir/many")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().size());
    let expected = files.sum::<u64>() + 3_000_001 + 6;
    assert_eq!(lines[3], format!("{}\t/dir\n", expected.div_ceil(1024)));
    let stat = rustix::fs::statvfs(kernel.path()).unwrap();
    let bytes = |blocks: u64| blocks * stat.f_frsize;
    assert_eq!(json["space"]["bytes"], bytes(stat.f_blocks));
    assert_eq!(json["inodes"]["used"], stat.f_files - stat.f_ffree);
    kernel.unmount();
}

/// The sum must not overflow.
#[test]
fn sizes_that_no_number_holds_are_the_largest() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE /dir", &image);
    for name in ["a", "b", "dir/c"] {
        let line = format!("write IMAGE /{name} --offset {}", i64::MAX - 1);
        assert!(with_input(&line, &image, b"x").status.success(), "{line}");
    }
    let all = u64::MAX.div_ceil(1024);
    assert_eq!(ok("du IMAGE --apparent-size", &image), format!("{}\t/dir\n{all}\t/\n", all / 2));
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

#[test]
fn a_clone_shares_blocks_until_one_is_written() {
    let scratch = scratch();
    let image = image(&scratch);
    let large: Vec<u8> = (0..4_000_123_u32).map(|n| (n >> 4) as u8).collect();
    assert!(with_input("write IMAGE /from -m 750", &image, &large).status.success());
    ok("xattr set IMAGE /from user.a b", &image);
    ok("mkdir IMAGE /dir", &image);
    let free = || {
        let json: serde_json::Value = serde_json::from_str(&ok("--json df IMAGE", &image)).unwrap();
        json["space"]["free"].as_u64().unwrap()
    };
    let before = free();
    ok("touch IMAGE /old", &image);
    ok("clone IMAGE /from /to", &image);
    ok("clone IMAGE /from /dir", &image);
    ok("clone IMAGE /from /old", &image);
    assert!(before - free() < 200_000, "{} bytes more", before - free());
    let written = with_input("write IMAGE /to --offset 1000000", &image, b"changed");
    assert!(written.status.success(), "{written:?}");
    assert_eq!(fails("clone IMAGE /dir /x", &image).0, 1);
    let mut changed = large.clone();
    changed[1_000_000..1_000_007].copy_from_slice(b"changed");
    if let Some(kernel) = kernel_mount(&image) {
        let read = |name: &str| fs::read(kernel.path().join(name)).unwrap();
        assert!(read("from") == large && read("dir/from") == large && read("old") == large && read("to") == changed);
        let to = kernel.path().join("to");
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o750);
        let mut value = [0; 8];
        assert_eq!(rustix::fs::getxattr(&to, "user.a", &mut value[..]).unwrap(), 1);
        fs::File::options().write(true).open(&to).unwrap().write_all_at(b"again", 0).unwrap();
        assert!(read("from") == large);
        kernel.unmount();
    }
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    let plain = scratch.file("b.img");
    ok("mkfs IMAGE --size 512M -q -m reflink=0", &plain);
    assert!(with_input("write IMAGE /from", &plain, b"x").status.success());
    let (code, message) = fails("clone IMAGE /from /to", &plain);
    assert!(code == 1 && message.contains("reflink"), "{message}");
    assert_eq!(ok("ls IMAGE", &plain), "from\n");
}

/// A file keeps everything but its contents. If its inode has further names, these show the new contents too.
#[test]
fn a_written_file_keeps_what_is_not_contents() {
    let scratch = scratch();
    let image = image(&scratch);
    let write = |line: &str, input: &[u8]| assert!(with_input(line, &image, input).status.success(), "{line}");
    for name in ["plain", "linked"] {
        write(&format!("write IMAGE /{name}"), &[1; 100_000]);
        ok(&format!("chown IMAGE 12:34 /{name}"), &image);
        ok(&format!("chmod IMAGE 4751 /{name}"), &image);
        ok(&format!("xattr set IMAGE /{name} security.selinux label"), &image);
        ok(&format!("xattr set IMAGE /{name} user.large {}", "x".repeat(5000)), &image);
    }
    ok("ln IMAGE /linked /again", &image);
    ok("ln -s IMAGE linked /link", &image);
    ok("mkdir IMAGE /d", &image);
    ok("ln -s IMAGE ../plain /d/link", &image);
    write("write IMAGE /d/link", b"new");
    write("write IMAGE /link", b"newer");
    assert_eq!(ok("cat IMAGE /plain /linked /again", &image), "newnewernewer");
    let Some(kernel) = kernel_mount(&image) else { return };
    for name in ["plain", "linked"] {
        let path = kernel.path().join(name);
        let stat = fs::metadata(&path).unwrap();
        assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (0o4751, 12, 34), "{name}");
        let mut value = vec![0; 6000];
        assert_eq!(rustix::fs::getxattr(&path, "security.selinux", &mut value[..]).unwrap(), 5, "{name}");
        assert_eq!(rustix::fs::getxattr(&path, "user.large", &mut value[..]).unwrap(), 5000, "{name}");
    }
    kernel.unmount();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

/// A file that is larger than half of an image is overwritten in place.
#[test]
fn a_large_file_is_replaced_where_there_is_no_room_for_two() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    ok("mkfs IMAGE --size 40M --small -q", &image);
    for byte in [1, 2] {
        assert!(with_input("write IMAGE /file", &image, &vec![byte; 24 << 20]).status.success());
    }
    let out = with_input("cat IMAGE /file", &image, b"").stdout;
    assert!(out.len() == 24 << 20 && out.iter().all(|byte| *byte == 2));
}

#[test]
fn a_shared_file_that_cannot_be_written_keeps_its_contents() {
    let scratch = scratch();
    let image = image(&scratch);
    let old: Vec<u8> = (0..8_000_000_u32).map(|n| (n >> 3) as u8).collect();
    let new: Vec<u8> = old.iter().map(|byte| byte ^ 0x55).collect();
    assert!(with_input("write IMAGE /file", &image, &old).status.success());
    // A file with two names is not replaced by a new inode, and neither is one that is written at an offset.
    ok("ln IMAGE /file /name", &image);
    ok("clone IMAGE /file /clone", &image);
    let mut fillers = Vec::new();
    for mib in [64, 16, 4, 1] {
        let path = |count: usize| format!("write IMAGE /filler{count}");
        while with_input(&path(fillers.len()), &image, &vec![7; mib << 20]).status.success() {
            fillers.push(format!("rm IMAGE /filler{}", fillers.len()));
        }
    }
    for line in ["write IMAGE /file", "write IMAGE /file --offset 4097"] {
        let output = with_input(line, &image, &new);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && message.contains("no space left"), "{line}: {message}");
        for path in ["/file", "/clone"] {
            assert!(xfskit(words(&format!("cat IMAGE {path}"), &image)).stdout == old, "{path} after {line}");
        }
    }
    // When there is room, the file is written, and the clone keeps its contents.
    fillers.iter().for_each(|line| drop(ok(line, &image)));
    assert!(with_input("write IMAGE /file", &image, &new).status.success());
    assert!(xfskit(words("cat IMAGE /name", &image)).stdout == new);
    assert!(xfskit(words("cat IMAGE /clone", &image)).stdout == old);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

#[test]
fn a_pipeline_may_begin_and_end_at_one_file() {
    let scratch = scratch();
    let image = image(&scratch);
    let text = "a line of text\n".repeat(20_000);
    assert!(with_input("write IMAGE /file", &image, text.as_bytes()).status.success());
    let (program, path) = (env!("CARGO_BIN_EXE_xfskit"), image.display());
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "g")] {
        let line = format!("{program} cat {path} /file | sed s/^{from}/{to}/ | {program} write {path} /file");
        let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(ok("cat IMAGE /file", &image), text.replace("a line", "g line"));
}

/// As cat(1).
#[test]
fn a_missing_file_does_not_keep_cat_from_the_next() {
    let scratch = scratch();
    let image = image(&scratch);
    assert!(with_input("write IMAGE /a", &image, b"first ").status.success());
    assert!(with_input("write IMAGE /b", &image, b"last").status.success());
    ok("mkdir IMAGE /dir", &image);
    let output = common::xfskit(common::words("cat IMAGE /a /missing /dir /b", &image));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), b"first last".to_vec()), "{message}");
    assert!(message.contains("/missing: no such file") && message.contains("/dir: "), "{message}");
}

#[test]
fn a_busy_image_is_waited_for_if_that_is_asked() {
    let scratch = scratch();
    let image = image(&scratch);
    let holder = fs::File::open(&image).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for line in ["touch IMAGE /a", "ls IMAGE", "mkfs -f IMAGE", "check IMAGE", "log print IMAGE"] {
        let (code, message) = fails(line, &image);
        assert!(code == 4 || line.starts_with("check") && code == 8, "{line}: {code}");
        assert!(message.contains("--wait SECONDS waits"), "{line}: {message}");
    }
    let (code, message) = fails("--wait 0.1 touch IMAGE /a", &image);
    assert!(code == 4 && !message.contains("--wait"), "{code} {message}");
    assert_eq!(fails("--wait soon touch IMAGE /a", &image).0, 2);
    let release = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(holder);
    });
    ok("touch IMAGE /a --wait 30", &image);
    release.join().unwrap();
}

/// The folder beside the image may be closed to this user.
#[test]
fn much_input_needs_no_writable_folder_beside_the_image() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = scratch();
    let closed = scratch.file("closed");
    fs::create_dir(&closed).unwrap();
    let image = closed.join("a.img");
    ok("mkfs IMAGE --small --size 100M -q", &image);
    if !rustix::process::geteuid().is_root() {
        return xfskit_testkit::skip("only root can become another user");
    }
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o666)).unwrap();
    let input = scratch.file("input");
    fs::write(&input, vec![7; 20 << 20]).unwrap();
    let program = env!("CARGO_BIN_EXE_xfskit");
    let write = |temporary: &std::path::Path| {
        let mut command = std::process::Command::new("setpriv");
        command
            .args(["--reuid", "1000", "--regid", "1000", "--clear-groups", program, "write"])
            .arg(&image)
            .arg("/file");
        command.env("TMPDIR", temporary).stdin(fs::File::open(&input).unwrap()).output().unwrap()
    };
    let refused = write(&closed);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && message.contains("TMPDIR"), "{message}");
    let written = write(&std::env::temp_dir());
    assert!(written.status.success(), "{written:?}");
    assert_eq!(ok("cat IMAGE /file", &image).len(), 20 << 20);
}

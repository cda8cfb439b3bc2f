//! Files and devices that a command writes to: neither a mistake in typing nor a refusal destroys their contents.

mod common;

use common::loops::Loop;
use common::mounts::SmallHost;
use common::{fails, image, ok, with_input, words, xfskit};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use xfskit_testkit::{kernel_mount, reference, scratch, skip};

/// The size of a disk that mkfs.xfs takes.
const DISK_BYTES: u64 = 512 << 20;

#[test]
fn export_overwrites_no_device_that_holds_something() {
    let scratch = scratch();
    let (source, other) = (image(&scratch), scratch.file("b.img"));
    ok("mkfs IMAGE --size 300M -q", &other);
    let Some(device) = Loop::attach(&[], &other) else { return };
    let export = format!("export IMAGE -o {}", device.0.display());
    let dir = scratch.file("mount");
    fs::create_dir(&dir).unwrap();
    let mounted = Command::new("mount").args(["-i", "-t", "xfs"]).arg(&device.0).arg(&dir).status().unwrap();
    if mounted.success() {
        for force in ["", " -f"] {
            let (code, message) = fails(&format!("{export}{force}"), &source);
            assert!(code == 4 && message.contains("in use"), "{code} {message}");
        }
        assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    } else {
        skip("this kernel mounts no XFS");
    }
    let (code, message) = fails(&export, &source);
    assert!(code == 2 && message.contains("-f overwrites"), "{code} {message}");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&other);
    }
    ok(&format!("{export} -f"), &source);
    let listed = Command::new("tar").arg("-tf").arg(&device.0).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
}

#[test]
fn a_device_is_no_target_for_what_it_holds_itself() {
    let scratch = scratch();
    let victim = image(&scratch);
    assert!(with_input("write IMAGE /a.img", &victim, b"victim").status.success());
    let before = fs::read(&victim).unwrap();
    let Some(device) = Loop::attach(&[], &victim) else { return };
    for (from, to) in [(&device.0, &device.0), (&device.0, &victim), (&victim, &device.0)] {
        let (_, message) = fails(&format!("export IMAGE -f -o {}", to.display()), from);
        assert!(message.contains("the image that is exported"), "{message}");
    }
    let copy = format!("cp -f {}:/a.img {}", device.0.display(), victim.display());
    let (code, message) = fails(&copy, &victim);
    assert!(code == 2 && message.contains("copied from"), "{code} {message}");
    drop(device);
    assert!(fs::read(&victim).unwrap() == before);
}

#[test]
fn a_refused_mkfs_leaves_what_was_there() {
    let scratch = scratch();
    let (disk, source) = (image(&scratch), scratch.file("source"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    ok("mkdir IMAGE /kept", &disk);
    let before = fs::read(&disk).unwrap();
    let Some(device) = Loop::attach(&[], &disk) else { return };
    let from = format!("mkfs IMAGE -f -q --from {}", source.display());
    let refused = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        let output = command.args(words(line, &device.0)).env("SOURCE_DATE_EPOCH", "no time").output().unwrap();
        assert!(!output.status.success(), "{line}");
        assert!(fs::read(&device.0).unwrap() == before, "{line}");
    };
    refused(&from);
    refused("mkfs IMAGE -f -q");
    for options in [" -l logdev=/no/such/device", " -d agcount=100000", " -l size=100G"] {
        fails(&format!("{from}{options}"), &device.0);
        assert!(fs::read(&device.0).unwrap() == before, "{options}");
    }
    drop(device);
    let line = "trap '' XFSZ; ulimit -f 1000000; exec \"$0\" mkfs \"$1\" -f -q --size 20G";
    let program = env!("CARGO_BIN_EXE_xfskit");
    let output = Command::new("sh").args(["-c", line, program]).arg(&disk).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(fs::read(&disk).unwrap() == before, "{output:?}");
}

#[test]
fn an_image_in_use_is_replaced_by_no_copy() {
    let scratch = scratch();
    let (source, target) = (image(&scratch), scratch.file("k.img"));
    ok("touch IMAGE /f", &source);
    ok("mkfs IMAGE --size 300M -q", &target);
    let Some(kernel) = kernel_mount(&target) else { return };
    let before = fs::metadata(&target).unwrap();
    let same = || {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(&target).unwrap().ino() == before.ino()
    };
    for line in [
        format!("cp -f {}:/f {}", source.display(), target.display()),
        format!("export -f IMAGE -o {}", target.display()),
    ] {
        let (_, message) = fails(&line, &source);
        assert!(message.contains("in use") && same(), "{line}: {message}");
    }
    kernel.unmount();
    ok(&format!("export -f IMAGE -o {}", target.display()), &source);
}

#[test]
fn what_a_disk_image_is_known_by_keeps_it() {
    let scratch = scratch();
    let (source, target) = (image(&scratch), scratch.file("k.img"));
    ok("touch IMAGE /f", &source);
    let cases: [(usize, &[u8]); 6] = [
        (0, b"KDMV"),
        (0x40, &[0x7f, 0x10, 0xda, 0xbe]),
        (0, b"vhdxfile"),
        (0, b"conectix"),
        (0, b"QED\0"),
        (510, &[0x55, 0xaa]),
    ];
    for (offset, bytes) in cases {
        let mut contents = vec![0; 1 << 20];
        contents[offset..offset + bytes.len()].copy_from_slice(bytes);
        fs::write(&target, &contents).unwrap();
        let (code, _) = fails(&format!("export IMAGE -o {}", target.display()), &source);
        assert_eq!(code, 2, "{bytes:?}");
        let (code, _) = fails(&format!("cp {}:/f {}", source.display(), target.display()), &source);
        assert_eq!(code, 2, "{bytes:?}");
        assert!(fs::read(&target).unwrap() == contents, "{bytes:?}");
    }
    ok("mkfs IMAGE -f --size 300M -q", &target);
    let file = fs::File::options().write(true).open(&target).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 0).unwrap();
    let (code, _) = fails(&format!("cp {}:/f {}", source.display(), target.display()), &source);
    assert_eq!(code, 2, "an image without its first superblock");
}

#[test]
fn what_does_not_fit_leaves_the_old_contents() {
    let scratch = scratch();
    let disk = scratch.file("a.img");
    ok("mkfs IMAGE --small --size 20M -l size=12M -q", &disk);
    let old = vec![7; 1 << 20];
    for line in ["write IMAGE /keep", "write IMAGE /linked"] {
        assert!(with_input(line, &disk, &old).status.success());
    }
    ok("ln IMAGE /linked /again", &disk);
    for path in ["/keep", "/linked"] {
        for options in ["", " --offset 0", " --append"] {
            let output = with_input(&format!("write IMAGE {path}{options}"), &disk, &vec![0; 20 << 20]);
            assert!(!output.status.success());
            let kept = xfskit(words(&format!("cat IMAGE {path}"), &disk)).stdout;
            assert!(kept == old, "{path}{options}");
        }
    }
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&disk);
    }
}

#[test]
fn a_backup_that_is_cut_off_is_no_success() {
    let scratch = scratch();
    let disk = image(&scratch);
    assert!(with_input("write IMAGE /f", &disk, &vec![7; 4 << 20]).status.success());
    for line in ["export IMAGE", "cat IMAGE /f"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        let mut child = command.args(words(line, &disk)).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert!(!child.wait().unwrap().success(), "{line}");
    }
    let pipe = scratch.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut reader = Command::new("head").args(["-c", "100"]).arg(&pipe).stdout(Stdio::null()).spawn().unwrap();
    let (code, message) = fails(&format!("export IMAGE -o {}", pipe.display()), &disk);
    assert!(code == 1 && message.contains("pipe"), "{code} {message}");
    reader.wait().unwrap();
}

#[test]
fn no_owner_is_the_number_that_means_none() {
    let scratch = scratch();
    let disk = image(&scratch);
    ok("touch IMAGE /a", &disk);
    for line in ["chown IMAGE 4294967295 /a", "chown IMAGE :4294967295 /a", "mkfs IMAGE -f -q --owner 4294967295:0"] {
        let (code, _) = fails(line, &disk);
        assert_eq!(code, 2, "{line}");
    }
    assert!(ok("stat IMAGE /a", &disk).contains("0:0"));
}

/// The file must not be emptied before there is room for the new image.
#[test]
fn mkfs_on_a_full_host_leaves_the_old_contents() {
    let scratch = scratch();
    let Some(host) = SmallHost::new(scratch.file("host"), "24m") else { return };
    let (small, sparse) = (host.0.join("small.img"), host.0.join("sparse.img"));
    let old = b"what was there before ".repeat(50_000);
    fs::write(&small, &old).unwrap();
    fs::write(&sparse, &old).unwrap();
    fs::File::options().write(true).open(&sparse).unwrap().set_len(64 << 20).unwrap();
    let mut junk = fs::File::create(host.0.join("junk")).unwrap();
    while junk.write_all(&[1; 65536]).is_ok() {}
    for (line, image, bytes) in [
        ("mkfs -f -q --small --size 64M IMAGE", &small, old.len()),
        ("mkfs -f -q --small --size 100M IMAGE", &sparse, 64 << 20),
        ("mkfs -f -q --small IMAGE", &sparse, 64 << 20),
    ] {
        let (code, message) = fails(line, image);
        assert!(code == 1 && message.contains("No space left"), "{line}: {code} {message}");
        let kept = fs::read(image).unwrap();
        assert!(kept.len() == bytes && kept.starts_with(&old), "{line}: {}", kept.len());
    }
    drop(junk);
    fs::remove_file(host.0.join("junk")).unwrap();
    for image in [&small, &sparse] {
        ok("mkfs -f -q --small --size 64M IMAGE", image);
        assert!(ok("check IMAGE", image).contains("no faults"));
        fs::remove_file(image).unwrap();
    }
}

/// The device must not be written before the source is measured.
#[test]
fn a_source_that_a_device_cannot_hold_leaves_what_it_holds() {
    let scratch = scratch();
    let (disk, source, archive) = (scratch.file("disk"), scratch.file("source"), scratch.file("a.tar"));
    fs::write(&disk, b"what was there before ".repeat(3_000_000)).unwrap();
    fs::create_dir(&source).unwrap();
    fs::write(source.join("large"), vec![7; 80 << 20]).unwrap();
    let made = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&source).arg(".").status().unwrap();
    assert!(made.success());
    let Some(device) = Loop::attach(&[], &disk) else { return };
    let before = fs::read(&device.0).unwrap();
    for from in [&source, &archive] {
        let (code, message) = fails(&format!("mkfs -f -q --small IMAGE --from {}", from.display()), &device.0);
        assert!(code == 1 && message.contains("what it holds stays"), "{code} {message}");
        assert!(fs::read(&device.0).unwrap() == before, "{from:?}");
    }
    // A source that fits is copied.
    fs::write(source.join("large"), vec![7; 30 << 20]).unwrap();
    ok(&format!("mkfs -f -q --small IMAGE --from {}", source.display()), &device.0);
    assert_eq!(ok("ls IMAGE", &device.0), "large\n");
}

/// The permission must be missed before the device is written, though the survey opens no file.
#[test]
fn a_source_with_a_file_that_may_not_be_read_leaves_what_a_file_holds() {
    let scratch = scratch();
    if !rustix::process::geteuid().is_root() {
        return skip("this user cannot make files that he may not read");
    }
    let (disk, source) = (scratch.file("disk"), scratch.file("source"));
    let program = scratch.file("mkfs.xfs");
    symlink(env!("CARGO_BIN_EXE_xfskit"), &program).unwrap();
    fs::create_dir(&source).unwrap();
    fs::write(source.join("other"), "of another user").unwrap();
    let before = b"what was there before ".repeat(4000);
    fs::write(&disk, &before).unwrap();
    fs::File::options().write(true).open(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    for path in [scratch.path(), &disk] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let make = || {
        let mut line = Command::new("setpriv");
        line.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program).args(["-q", "-f", "-p"]);
        line.arg(&source).arg(&disk).output().unwrap()
    };
    let set = |mode| fs::set_permissions(source.join("other"), fs::Permissions::from_mode(mode)).unwrap();
    set(0o600);
    let output = make();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("other: opening it"), "{message}");
    assert!(fs::read(&disk).unwrap().starts_with(&before));
    set(0o644);
    let output = make();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(ok("cat IMAGE /other", &disk), "of another user");
}

/// The survey asks what a file is by its name: to open each one again would cost as much as to copy a small one.
#[test]
fn a_source_that_is_measured_is_opened_once() {
    let scratch = scratch();
    let (image, source, calls) = (scratch.image("a.img", DISK_BYTES), scratch.file("source"), scratch.file("calls"));
    let program = scratch.file("mkfs.xfs");
    symlink(env!("CARGO_BIN_EXE_xfskit"), &program).unwrap();
    fs::create_dir(&source).unwrap();
    for name in ["file-1", "file-2", "file-3"] {
        fs::write(source.join(name), name).unwrap();
    }
    fs::hard_link(source.join("file-1"), source.join("file-4")).unwrap();
    symlink("target", source.join("file-5")).unwrap();
    fs::File::create(source.join("file-holes")).unwrap().set_len(1 << 20).unwrap();
    let mut command = common::trace::strace(&calls);
    command.arg(&program).args(["-q", "-p"]).arg(&source).arg(&image);
    let Ok(output) = command.output() else { return skip("there is no strace") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&calls).unwrap();
    let opened = |name: &str| {
        let quoted = format!("\"{name}\"");
        text.lines().filter(|line| line.contains("openat(") && line.contains(&quoted)).count()
    };
    assert_eq!(["file-1", "file-2", "file-3", "file-4", "file-5"].map(opened), [1; 5]);
    // Where its holes are only an open file says.
    assert_eq!(opened("file-holes"), 2);
}

/// A pipe can be read only once, though the image's size must be found before it is filled.
#[test]
fn an_archive_may_be_read_from_a_named_pipe() {
    let scratch = scratch();
    let (image, source) = (scratch.file("a.img"), scratch.file("source"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    for size in ["", "--size 64M"] {
        let script = format!("\"$0\" mkfs -f -q --small {size} \"$1\" --from <(tar -c -C \"$2\" .)");
        let mut bash = Command::new("bash");
        bash.args(["-c", &script, env!("CARGO_BIN_EXE_xfskit")]).arg(&image).arg(&source);
        let output = bash.output().unwrap();
        assert!(output.status.success(), "{size}: {output:?}");
        assert_eq!(ok("cat IMAGE /file", &image), "contents");
    }
}

/// A mistake in the name may hit any other file.
#[test]
fn export_replaces_archives_and_what_is_empty() {
    let scratch = scratch();
    let (source, target) = (image(&scratch), scratch.file("target"));
    ok("touch IMAGE /f", &source);
    let export = format!("export IMAGE -o {}", target.display());
    fs::write(&target, "").unwrap();
    ok(&export, &source);
    // Archives of other programs, too.
    assert!(Command::new("tar").arg("-cf").arg(&target).arg("/dev/null").output().unwrap().status.success());
    ok(&export, &source);
    for contents in [&b"x"[..], b"\x1f\x8b\x08\x00 is compressed", &[0; 8192]] {
        fs::write(&target, contents).unwrap();
        let (code, message) = fails(&export, &source);
        assert!(code == 2 && message.contains("-f replaces"), "{code} {message}");
        assert_eq!(fs::read(&target).unwrap(), contents);
        // As with cp(1).
        let copy = scratch.file("copy.gz");
        fs::write(&copy, contents).unwrap();
        ok(&format!("cp {}:/f {}", source.display(), copy.display()), &source);
        assert_eq!(fs::read(&copy).unwrap(), b"");
    }
    ok(&format!("{export} -f"), &source);
    assert!(Command::new("tar").arg("-tf").arg(&target).output().unwrap().status.success());
}

/// The message contains the name once.
#[test]
fn an_archive_that_cannot_be_made_is_a_failed_operation() {
    let scratch = scratch();
    let image = common::image(&scratch);
    let target = scratch.file("none/a.tar");
    let (code, message) = common::fails(&format!("export IMAGE / -o {}", target.display()), &image);
    assert!(code == 1 && message.contains("there is no folder"), "{code} {message}");
    assert_eq!(message.matches("a.tar").count(), 1, "{message}");
}

/// A script that gets the name from mktemp(1) has an empty file.
#[test]
fn an_image_made_of_a_folder_fits_it_where_an_empty_file_has_the_name() {
    let scratch = scratch();
    let (image, folder) = (scratch.file("a.img"), scratch.file("folder"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), "contents").unwrap();
    for size in [0, 1000] {
        std::fs::File::create(&image).unwrap().set_len(size).unwrap();
        common::ok(&format!("mkfs -q --from {} IMAGE", folder.display()), &image);
        assert_eq!(common::ok("cat IMAGE /file", &image), "contents");
        if let Some(reference) = xfskit_testkit::reference() {
            reference.repair_finds_nothing(&image);
        }
    }
}

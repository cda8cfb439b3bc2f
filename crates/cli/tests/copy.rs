//! `cp` in all directions: the result as the kernel sees it, and what is refused.

mod common;

use common::trees::{assert_same, is_root, make_tree, run};
use common::{fails, image, ok, xfskit};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use xfskit_testkit::{kernel_mount, reference, scratch, skip};

fn words(line: &str, image: &Path) -> Vec<String> {
    line.split(' ').map(|word| word.replace("IMAGE", image.to_str().unwrap())).collect()
}

/// Runs a line in which `IMAGE` may be a part of a word.
fn copies(line: &str, image: &Path) {
    let output = xfskit(words(line, image));
    assert!(output.status.success(), "xfskit {line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn refused(line: &str, image: &Path) -> (i32, String) {
    let output = xfskit(words(line, image));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!message.contains("panicked"), "{message}");
    (output.status.code().unwrap(), message)
}

#[test]
fn trees_survive_the_way_in_through_images_and_out() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, second) = (image(&scratch), scratch.file("b.img"));
    ok("mkfs IMAGE --size 400M -q -n parent=0 -b size=1024", &second);
    let source = scratch.file("source");
    make_tree(&source);
    let names = (scratch.path().display(), second.display());
    copies(&format!("cp -r {}/source IMAGE:/", names.0), &image);
    copies(&format!("cp -r IMAGE:/source {}:/new", names.1), &image);
    copies(&format!("cp -r {}:/new {}/out", names.1, names.0), &image);
    assert_same(&source, &scratch.file("out"), "through both images");
    copies(&format!("cp -a IMAGE:/source/. {}/out", names.0), &image);
    assert_same(&source, &scratch.file("out"), "over what is there");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
        reference.repair_finds_nothing(&second);
    }
    let Some(kernel) = kernel_mount(&image) else { return };
    assert_same(&source, &kernel.path().join("source"), "as the kernel sees it");
    run(Command::new("diff")
        .args(["-r", "--no-dereference", "--exclude=pipe", "--exclude=socket"])
        .args(["--exclude=null", "--exclude=disk"])
        .arg(&source)
        .arg(kernel.path().join("source")));
    if Command::new("rsync").arg("--version").output().is_ok() {
        let mut rsync = Command::new("rsync");
        // XFS lists its ACLs a second time under names of its own.
        rsync
            .args(["-aHAXni", "--checksum", "--delete", "--filter=-x trusted.SGI_ACL_*"])
            .arg(format!("{}/", source.display()));
        let found = run(rsync.arg(kernel.path().join("source")));
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    } else {
        skip("rsync is not installed");
    }
    kernel.unmount();
}

#[test]
fn places_are_those_of_cp() {
    let scratch = scratch();
    let image = image(&scratch);
    let dir = scratch.path().display();
    fs::write(scratch.file("a"), "first").unwrap();
    fs::write(scratch.file("b"), "second").unwrap();
    fs::create_dir_all(scratch.file("tree/below")).unwrap();
    fs::write(scratch.file("tree/below/c"), "third").unwrap();
    ok("mkdir IMAGE /d", &image);
    copies(&format!("cp {dir}/a {dir}/b IMAGE:/d"), &image);
    copies(&format!("cp {dir}/a IMAGE:/renamed"), &image);
    copies(&format!("cp {dir}/b IMAGE:/renamed"), &image);
    copies(&format!("cp -r {dir}/tree IMAGE:/d"), &image);
    copies(&format!("cp -r {dir}/tree IMAGE:/new"), &image);
    copies(&format!("cp -r {dir}/tree/. IMAGE:/new"), &image);
    copies("cp -r IMAGE:/d/tree IMAGE:/new/inner", &image);
    copies("cp -r --owner 12:34 IMAGE:/d/a IMAGE:/owned", &image);
    let listing = ok("tree IMAGE", &image);
    let expected = "/\n├── d\n│   ├── a\n│   ├── b\n│   └── tree\n│       └── below\n│           └── c\n\
                    ├── new\n│   ├── below\n│   │   └── c\n│   └── inner\n│       └── below\n│           └── c\n\
                    ├── owned\n└── renamed\n";
    assert_eq!(listing, expected);
    assert_eq!(ok("cat IMAGE /renamed /d/tree/below/c", &image), "secondthird");
    assert!(ok("stat IMAGE /owned", &image).contains("12:34"));
    for (line, code, part) in [
        ("cp DIR/tree IMAGE:/x", 1, "-r"),
        ("cp DIR/a DIR/b IMAGE:/renamed", 2, "into a directory"),
        ("cp -r IMAGE:/d IMAGE:/d/tree", 2, "into itself"),
        ("cp DIR/none IMAGE:/d", 1, "No such file"),
        ("cp IMAGE:/none DIR", 1, "no such file"),
        ("cp -T DIR/a IMAGE:/d", 1, "directory"),
        ("cp DIR/a DIR/none.img:/d", 6, "no such image"),
        ("cp DIR/a", 2, ""),
        ("cp /proc/self/status IMAGE:/d", 5, "not as long as it says"),
    ] {
        let (got, message) = refused(&line.replace("DIR", &dir.to_string()), &image);
        assert!(got == code && message.contains(part), "{line}: {got} {message}");
    }
    assert_eq!(ok("tree IMAGE", &image), expected);
}

#[test]
fn no_link_leads_a_copy_out_of_its_tree() {
    let scratch = scratch();
    let image = image(&scratch);
    let dir = scratch.path().display();
    fs::create_dir_all(scratch.file("source/dir")).unwrap();
    fs::write(scratch.file("source/dir/file"), "new").unwrap();
    fs::create_dir_all(scratch.file("outside")).unwrap();
    fs::create_dir_all(scratch.file("target/source")).unwrap();
    symlink(scratch.file("outside"), scratch.file("target/source/dir")).unwrap();
    copies(&format!("cp -r {dir}/source IMAGE:/"), &image);
    let (code, message) = refused(&format!("cp -r IMAGE:/source {dir}/target"), &image);
    assert!(code == 1 && message.contains("source/dir"), "{message}");
    assert_eq!(fs::read_dir(scratch.file("outside")).unwrap().count(), 0);
    // The same in the other direction.
    ok("mkdir IMAGE /outside /target /target/source", &image);
    ok("ln -s IMAGE /outside /target/source/dir", &image);
    let (code, message) = refused(&format!("cp -r {dir}/source IMAGE:/target"), &image);
    assert!(code == 1 && message.contains("not a directory"), "{message}");
    assert_eq!(ok("ls IMAGE /outside", &image), "");
    // A symbolic link is copied as a link.
    symlink("/etc/passwd", scratch.file("link")).unwrap();
    copies(&format!("cp {dir}/link IMAGE:/link"), &image);
    assert_eq!(ok("readlink IMAGE /link", &image), "/etc/passwd\n");
}

#[test]
fn what_the_host_refuses_is_reported_once_at_the_end() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    ok("mknod IMAGE /zero c 1 5", &image);
    ok("touch IMAGE /a /b", &image);
    ok("chown IMAGE 1:1 /a /b", &image);
    ok("chmod IMAGE 4755 /a", &image);
    fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_xfskit"), "cp", "-a"]);
    command.arg(format!("{}:/.", image.display())).arg(scratch.file("out"));
    fs::create_dir(scratch.file("out")).unwrap();
    std::os::unix::fs::chown(scratch.file("out"), Some(65534), Some(65534)).unwrap();
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{message}");
    assert!(message.contains("3 owners") && message.contains("1 device node was"), "{message}");
    let copied = fs::metadata(scratch.file("out/a")).unwrap();
    assert_eq!((copied.uid(), copied.mode() & 0o7777), (65534, 0o755), "nobody else's program runs as nobody");
    assert!(!scratch.file("out/zero").exists());
}

/// `--logdev` belongs to the one image that has an external journal.
#[test]
fn an_external_journal_is_that_of_the_image_that_needs_it() {
    let scratch = scratch();
    let (plain, image, log) = (image(&scratch), scratch.file("b.img"), scratch.file("log.img"));
    fs::File::create(&log).unwrap().set_len(64 << 20).unwrap();
    ok(&format!("mkfs IMAGE --size 512M -q -l logdev={}", log.display()), &image);
    fs::write(scratch.file("file"), "contents").unwrap();
    let (dir, log) = (scratch.path().display(), log.display());
    let (code, message) = refused(&format!("cp {dir}/file IMAGE:/"), &image);
    assert!(code == 2 && message.contains("--logdev DEVICE"), "{code} {message}");
    copies(&format!("cp --logdev {log} {dir}/file IMAGE:/"), &image);
    copies(&format!("cp --logdev {log} IMAGE:/file {}:/", plain.display()), &image);
    copies(&format!("cp --logdev {log} {}:/file IMAGE:/again", plain.display()), &image);
    copies(&format!("cp --norecovery --logdev {log} IMAGE:/again {dir}/out"), &image);
    assert_eq!(fs::read_to_string(scratch.file("out")).unwrap(), "contents");
    let (code, message) = refused(&format!("cp --norecovery --logdev {log} {dir}/out IMAGE:/third"), &image);
    assert!(code == 2 && message.contains("--norecovery"), "{code} {message}");
    if let Some(reference) = reference() {
        assert_eq!(reference.repair_findings(&image, Some(&scratch.file("log.img"))), None);
        reference.repair_finds_nothing(&plain);
    }
}

#[test]
fn a_full_image_keeps_no_half_of_a_file() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    ok("mkfs IMAGE --size 20M --small -q", &image);
    let large = scratch.file("large");
    fs::write(&large, vec![5; 30 << 20]).unwrap();
    fs::write(scratch.file("small"), "fits").unwrap();
    let dir = scratch.path().display();
    copies(&format!("cp {dir}/small IMAGE:/large"), &image);
    let (code, message) = refused(&format!("cp {dir}/large IMAGE:/"), &image);
    assert!(code == 1 && message.contains("no space left"), "{message}");
    assert_eq!(ok("ls IMAGE", &image), "large\n");
    assert_eq!(ok("cat IMAGE /large", &image), "fits");
    let (code, _) = refused(&format!("cp {dir}/large IMAGE:/other"), &image);
    assert_eq!((code, ok("ls IMAGE", &image).as_str()), (1, "large\n"));
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    assert_eq!(fails("cat IMAGE /other", &image).0, 1);
}

/// On the host this number leaves the owner as it is, and the system call succeeds.
#[test]
fn an_owner_that_the_host_cannot_have_gets_no_set_id_program() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    let Some(reference) = reference() else { return };
    for (name, uid, gid) in [("both", u32::MAX, u32::MAX), ("user", u32::MAX, 65534), ("group", 65534, u32::MAX)] {
        ok(&format!("mknod IMAGE /{name} f"), &image);
        let inode = ok(&format!("stat IMAGE /{name} --json"), &image);
        let inode: serde_json::Value = serde_json::from_str(&inode).unwrap();
        let (uid, gid) = (format!("write -d core.uid {uid}"), format!("write -d core.gid {gid}"));
        let commands = [&format!("inode {}", inode["inode"]), &uid, &gid, "write -d core.mode 0106755"];
        let arguments = commands.iter().flat_map(|command| ["-c", command]);
        reference.tool_output("xfs_db", ["-x"].into_iter().chain(arguments).chain([image.to_str().unwrap()]));
    }
    fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    fs::create_dir(scratch.file("out")).unwrap();
    std::os::unix::fs::chown(scratch.file("out"), Some(65534), Some(65534)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_xfskit"), "cp", "-a"]);
    let output = command.arg(format!("{}:/.", image.display())).arg(scratch.file("out")).output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["both", "user", "group"] {
        let copied = fs::metadata(scratch.file("out").join(name)).unwrap();
        assert_eq!(copied.mode() & 0o7777, 0o755, "{name}");
    }
}

/// As by cp(1), the contents of a name that a shell has made for an open file are copied, not the name; other links
/// stay links, and so do such ones in a tree.
#[test]
fn contents_of_open_files_are_copied() {
    let scratch = scratch();
    let image = image(&scratch);
    let dir = scratch.path().display();
    fs::write(scratch.file("file"), "a file").unwrap();
    fs::set_permissions(scratch.file("file"), std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    fs::create_dir(scratch.file("tree")).unwrap();
    symlink("/dev/stdin", scratch.file("tree/link")).unwrap();
    symlink("file", scratch.file("other")).unwrap();
    let program = format!("{} cp", env!("CARGO_BIN_EXE_xfskit"));
    let target = format!("{}:/", image.display());
    for (copy, target) in [("cp".to_owned(), format!("{dir}/")), (program.clone(), target.clone())] {
        for line in [
            format!("head -c 100000 /dev/zero | {copy} /dev/stdin {target}1"),
            format!("{copy} <(echo one) {target}2"),
            format!("{copy} /dev/stdin {target}3 < {dir}/file"),
            format!("exec 7< {dir}/file; {copy} /dev/fd/7 {target}4"),
            format!("{copy} /proc/self/fd/0 {target}5 < /dev/null"),
        ] {
            let output = Command::new("bash").args(["-c", &line]).current_dir(scratch.path()).output().unwrap();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    for made in ["1", "2", "3", "4", "5"] {
        assert_eq!(
            ok(&format!("cat IMAGE /{made}"), &image).as_bytes(),
            fs::read(scratch.file(made)).unwrap(),
            "{made}"
        );
        let stat: serde_json::Value = serde_json::from_str(&ok(&format!("--json stat IMAGE /{made}"), &image)).unwrap();
        assert_eq!(stat["type"], "file", "{made}: {stat}");
    }
    assert!(ok("stat IMAGE /3", &image).contains("0640"));
    // Several sources, recursively, and what is in a tree.
    let line = format!("{program} -r <(echo two) {dir}/tree {dir}/other {target}");
    assert!(Command::new("bash").args(["-c", &line]).status().unwrap().success());
    assert_eq!(ok("ls IMAGE /", &image).lines().filter(|name| name.starts_with('6')).count(), 1);
    assert_eq!(ok("readlink IMAGE /tree/link", &image), "/dev/stdin\n");
    assert_eq!(ok("readlink IMAGE /other", &image), "file\n");
    // A file of the image itself: the program before it closes the image a moment later.
    let line =
        format!("{} cat {} /1 | {program} /dev/stdin {target}again", env!("CARGO_BIN_EXE_xfskit"), image.display());
    assert!(Command::new("bash").args(["-c", &line]).status().unwrap().success());
    assert_eq!(ok("cat IMAGE /again", &image).len(), 100_000);
    let line = format!("{program} /dev/stdin {target} < {}", image.display());
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("into itself"), "{output:?}");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

/// A user who may write to the folder can exchange an incomplete file for a link to another user's file.
#[test]
fn what_is_exchanged_while_it_is_made_is_left_alone() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    let (source, out, victim) = (scratch.file("source"), scratch.file("out"), scratch.file("victim"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&out).unwrap();
    fs::write(&victim, "private").unwrap();
    fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    for number in 0..200 {
        let name = source.join(number.to_string());
        rustix::fs::mknodat(rustix::fs::CWD, &name, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fs::set_permissions(&name, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        // Setting these takes a while, and precedes setting the permissions.
        for attribute in 0..120 {
            let attribute = format!("trusted.number-{attribute}");
            rustix::fs::setxattr(&name, &attribute, &[1; 100], rustix::fs::XattrFlags::empty()).unwrap();
        }
    }
    let mut exchanged = 0;
    copies(&format!("cp -rT {} IMAGE:/source", source.display()), &image);
    for _ in 0..4 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_xfskit"))
            .args(["cp", "-rT"])
            .arg(format!("{}:/source", image.display()))
            .arg(&out)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let link = out.join("link");
        symlink(&victim, &link).unwrap();
        let mut number = 1;
        while child.try_wait().unwrap().is_none() {
            // Tries one of the next names: the exchange succeeds as soon as the name exists.
            for next in number..number + 200 {
                let name = out.join(format!(".xfskit-{}-{next}", child.id()));
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                if rustix::fs::renameat_with(rustix::fs::CWD, &link, rustix::fs::CWD, &name, flags).is_ok() {
                    fs::remove_file(&link).unwrap();
                    symlink(&victim, &link).unwrap();
                    number = next + 1;
                    break;
                }
            }
        }
        exchanged += number - 1;
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o600, "another file's permissions were changed");
        fs::remove_dir_all(&out).unwrap();
        fs::create_dir(&out).unwrap();
    }
    println!("{exchanged} exchanges came in time");
}

/// ext4 refuses a value of 5,000 bytes. The copy must continue.
#[test]
fn an_attribute_that_the_host_refuses_is_a_loss_and_no_end() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE -p /etc/d", &image);
    for number in 0..20 {
        ok(&format!("touch IMAGE /etc/file-{number}"), &image);
    }
    ok(&format!("xattr set IMAGE /etc/file-7 user.large {}", "x".repeat(5000)), &image);
    ok("xattr set IMAGE /etc/file-7 user.small y", &image);
    let ext4 = scratch.image("ext4", 64 << 20);
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&ext4).output();
    let dir = scratch.file("mnt");
    fs::create_dir(&dir).unwrap();
    let is_mounted = made.is_ok_and(|made| made.status.success())
        && Command::new("mount")
            .args(["-o", "loop"])
            .args([&ext4, &dir])
            .output()
            .is_ok_and(|out| out.status.success());
    if !is_mounted {
        return skip("this machine has no ext4");
    }
    let results = ["", " --no-xattrs"].map(|option| {
        let result = refused(&format!("cp -r{option} IMAGE:/etc {}/out", dir.display()), &image);
        let mut small = [0; 10];
        let small = rustix::fs::getxattr(dir.join("out/file-7"), "user.small", &mut small[..]).is_ok();
        let count = fs::read_dir(dir.join("out")).unwrap().count();
        fs::remove_dir_all(dir.join("out")).unwrap();
        (result, small, count)
    });
    run(Command::new("umount").arg(&dir));
    let [((code, message), small, count), (without, _, others)] = results;
    assert!(code == 9 && message.contains("1 attribute was not kept"), "{code} {message}");
    // The message names the attribute and the reason.
    assert!(message.contains("file-7: user.large: No space left on device"), "{message}");
    assert_eq!((small, count, without.0, others), (true, 21, 0, 21));
}

/// Losses that tar and cp(1) do not mention are not errors: owners without -p, and attributes of the filesystem itself.
#[test]
fn an_ordinary_users_copy_succeeds() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    ok("touch IMAGE /a", &image);
    ok("xattr set IMAGE /a trusted.x y", &image);
    fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let copy = |options: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_xfskit"), "cp", options]);
        let output = command.arg(format!("{}:/.", image.display())).arg(scratch.file("out")).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, message) = copy("-r");
    assert!(code == Some(0) && message.contains("owner") && message.contains("1 attribute was"), "{code:?} {message}");
    let (code, message) = copy("-a");
    assert!(code == Some(9), "{message}");
    // Root does not copy attributes of the filesystem either.
    copies(&format!("cp -a IMAGE:/. {}/root", scratch.path().display()), &image);
    let names = rustix::fs::listxattr(scratch.file("root"), &mut vec![0; 1000][..]).unwrap();
    assert_eq!(names, 0);
}

/// After a file that cannot be read, the copy must continue with the others.
#[test]
fn what_can_be_read_of_a_damaged_image_is_copied() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let (image, out, tar) = (scratch.file("a.img"), scratch.file("out"), scratch.file("a.tar"));
    ok("mkfs IMAGE -q --small --size 64M", &image);
    for dir in ["aa", "mm", "zz"] {
        ok(&format!("mkdir IMAGE /{dir}"), &image);
        for file in 0..4 {
            ok(&format!("touch IMAGE /{dir}/{file}"), &image);
        }
    }
    let stat: serde_json::Value = serde_json::from_str(&ok("stat IMAGE /mm/2 --json", &image)).unwrap();
    let inode = format!("inode {}", stat["inode"]);
    let arguments = ["-x", "-c", &inode, "-c", "write -d core.onlink 7", image.to_str().unwrap()];
    reference.tool_output("xfs_db", arguments);
    for line in [format!("cp -r IMAGE:/ {}", out.display()), format!("export IMAGE / -o {}", tar.display())] {
        let line = line.replace("IMAGE:/", &format!("{}:/", image.display()));
        let (code, message) = fails(&line, &image);
        assert!(code == 3 && message.contains("1 file was left out") && message.contains("mm/2"), "{code} {message}");
    }
    let names = |dir: &str| fs::read_dir(out.join(dir)).unwrap().count();
    assert_eq!(["aa", "mm", "zz"].map(names), [4, 3, 4]);
    let listed = run(Command::new("tar").arg("-tf").arg(&tar)).stdout;
    assert_eq!(String::from_utf8_lossy(&listed).lines().filter(|name| !name.ends_with('/')).count(), 11);
}

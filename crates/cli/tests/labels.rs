//! Labels, owners and manifests, beside matchpathcon, setfiles, bsdtar, setcap and fakeroot.

mod common;

use common::trees::{is_root, run};
use common::{fails, ok};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use xfskit_testkit::{Scratch, kernel_mount, reference, scratch, skip};

/// Every form that a file of contexts has.
const CONTEXTS: &str = r"# the last line that matches decides
/.*                             system_u:object_r:default_t:s0
/                       -d      system_u:object_r:root_t:s0
/usr(/.*)?                      system_u:object_r:usr_t:s0
/usr/bin(/.*)?                  system_u:object_r:bin_t:s0
/usr/bin/su             --      system_u:object_r:su_exec_t:s0
/usr/bin/[^/]*\.sh      --      system_u:object_r:script_t:s0
/etc/.*                         system_u:object_r:etc_t:s0
/etc/shadow.*           --      system_u:object_r:shadow_t:s0
/etc/motd                       system_u:object_r:motd_t:s0
/etc/m.*                        system_u:object_r:m_t:s0
/dev/null               -c      system_u:object_r:null_device_t:s0
/dev/.*                 -b      system_u:object_r:block_t:s0
/dev/pipe               -p      system_u:object_r:fifo_t:s0
/lib                    -l      system_u:object_r:link_t:s0
/tmp/.*                         <<none>>
/var/(log|lib)/a+               system_u:object_r:var_t:s0
/opt/x{2,3}/.           -d      system_u:object_r:opt_t:s0
/a\.b                           system_u:object_r:dot_t:s0
/srv|/other                     system_u:object_r:alternative_t:s0
";
const HOMEDIRS: &str = "/home/[^/]+/.+  system_u:object_r:user_home_t:s0\n";
const LOCAL: &str = "/etc/local-only  system_u:object_r:local_t:s0\n/usr/bin/su -- system_u:object_r:local_su_t:s0\n";
const SUBS: &str = "/lib64 /usr/bin\n";

const FILES: [&str; 20] = [
    "usr/bin/su",
    "usr/bin/run.sh",
    "usr/bin/sub/x.sh",
    "usr/share/doc",
    "etc/shadow",
    "etc/shadow-",
    "etc/motd",
    "etc/mtab",
    "etc/other/file",
    "etc/local-only",
    "tmp/none",
    "var/log/aaa",
    "var/log/ab",
    "opt/xx/y/",
    "opt/xxxx/y/",
    "a.b",
    "aXb",
    "srv/file",
    "home/me/.profile",
    "lib64/ld.so",
];

fn tree(scratch: &Scratch) -> PathBuf {
    let root = scratch.file("root");
    for file in FILES {
        let path = root.join(file);
        match file.ends_with('/') {
            true => fs::create_dir_all(path).unwrap(),
            false => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, file).unwrap();
            }
        }
    }
    fs::create_dir(root.join("dev")).unwrap();
    symlink("usr/lib", root.join("lib")).unwrap();
    run(Command::new("mkfifo").arg(root.join("dev/pipe")));
    root
}

fn contexts(scratch: &Scratch) -> PathBuf {
    let path = scratch.file("file_contexts");
    fs::write(&path, CONTEXTS).unwrap();
    for (suffix, text) in [("homedirs", HOMEDIRS), ("local", LOCAL), ("subs_dist", SUBS)] {
        fs::write(scratch.file(&format!("file_contexts.{suffix}")), text).unwrap();
    }
    path
}

/// The labels in an image by paths, as the kernel shows them.
fn labels(image: &Path) -> Option<BTreeMap<String, String>> {
    let kernel = kernel_mount(image)?;
    let find = run(Command::new("find").arg(kernel.path()).args(["-printf", "/%P\n"]));
    let mut found = BTreeMap::new();
    for path in String::from_utf8(find.stdout).unwrap().lines() {
        let mut value = [0; 300];
        let file = kernel.path().join(&path[1..]);
        if let Ok(length) = rustix::fs::lgetxattr(&file, "security.selinux", &mut value[..]) {
            assert_eq!(value[length - 1], 0, "{path}: the label ends with a zero, as setfiles stores it");
            found.insert(path.to_owned(), String::from_utf8(value[..length - 1].to_vec()).unwrap());
        }
    }
    kernel.unmount();
    Some(found)
}

/// The labels that matchpathcon gives the paths of a tree.
fn expected(root: &Path, contexts: &Path) -> Option<BTreeMap<String, String>> {
    let find = run(Command::new("find").arg(root).args(["-printf", "%y /%P\n"]));
    let mut expected = BTreeMap::new();
    for line in String::from_utf8(find.stdout).unwrap().lines() {
        let (kind, path) = line.split_once(' ').unwrap();
        let kind = match kind {
            "f" => "file",
            "d" => "dir",
            "l" => "link",
            _ => "pipe",
        };
        let output = Command::new("matchpathcon").args(["-n", "-m", kind, "-f"]).arg(contexts).arg(path).output();
        let Ok(output) = output else {
            skip("no matchpathcon: install selinux-utils");
            return None;
        };
        let label = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        if !label.is_empty() && label != "<<none>>" {
            expected.insert(path.to_owned(), label);
        }
    }
    Some(expected)
}

#[test]
fn every_path_has_the_label_that_matchpathcon_gives_it() {
    let scratch = scratch();
    let (root, contexts) = (tree(&scratch), contexts(&scratch));
    let Some(expected) = expected(&root, &contexts) else { return };
    assert!(expected.len() > 25 && !expected.contains_key("/tmp/none"), "{expected:#?}");
    let image = scratch.file("a.img");
    let with = format!("--file-contexts {}", contexts.display());
    ok(&format!("mkfs -q IMAGE --from {} {with}", root.display()), &image);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    let Some(found) = labels(&image) else { return };
    assert_eq!(found, expected);
    // By cp and by import, where the labels depend on the place in the image.
    ok("mkfs -f -q IMAGE --size 300M", &image);
    ok(&format!("cp -r {} {}:/ {with}", root.join("usr").display(), image.display()), &image);
    ok("mkdir IMAGE /etc", &image);
    ok(&format!("import IMAGE /etc --from {} {with}", root.join("etc").display()), &image);
    let found = labels(&image).unwrap();
    let below = |path: &str| path.starts_with("/usr") || path.starts_with("/etc");
    assert_eq!(found, expected.iter().filter(|(path, _)| below(path)).map(|(a, b)| (a.clone(), b.clone())).collect());
    // A file that is there keeps its attributes, but gets the label that was asked for.
    ok("xattr set IMAGE /etc/motd user.own kept", &image);
    ok("xattr set IMAGE /etc/motd security.selinux old", &image);
    ok(&format!("cp {} {}:/etc/motd {with}", root.join("etc/motd").display(), image.display()), &image);
    assert_eq!(ok("xattr get IMAGE /etc/motd security.selinux", &image), "system_u:object_r:motd_t:s0\0");
    assert_eq!(ok("xattr get IMAGE /etc/motd user.own", &image), "kept");
    // What is there already.
    ok(&format!("mkfs -f -q IMAGE --size auto --from {}", root.display()), &image);
    assert_eq!(labels(&image).unwrap().len(), 0);
    let changes = ok(&format!("xattr label -v IMAGE /etc {with}"), &image);
    assert!(changes.contains("/etc/motd system_u:object_r:motd_t:s0\n"), "{changes}");
    ok(&format!("xattr label IMAGE {with}"), &image);
    assert_eq!(labels(&image).unwrap(), expected);
    assert_eq!(ok(&format!("xattr label -v IMAGE {with}"), &image), "", "nothing is left to change");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

#[test]
fn numbers_of_users_are_mapped_and_one_without_a_range_is_an_error() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (root, image) = (scratch.file("root"), scratch.file("a.img"));
    fs::create_dir(&root).unwrap();
    for (name, uid, gid) in [("a", 100_000, 100_000), ("b", 101_000, 100_005), ("c", 165_535, 165_535)] {
        fs::write(root.join(name), name).unwrap();
        std::os::unix::fs::chown(root.join(name), Some(uid), Some(gid)).unwrap();
    }
    std::os::unix::fs::chown(&root, Some(100_000), Some(100_000)).unwrap();
    let map = "--uid-map 100000:0:65536 --gid-map 100000:0:1 --gid-map 100005:50:1 --gid-map 165535:7:1";
    ok(&format!("mkfs -q IMAGE --from {} {map}", root.display()), &image);
    let Some(kernel) = kernel_mount(&image) else { return };
    for (name, uid, gid) in [("a", 0, 0), ("b", 1000, 50), ("c", 65_535, 7)] {
        let data = fs::metadata(kernel.path().join(name)).unwrap();
        assert_eq!((data.uid(), data.gid()), (uid, gid), "{name}");
    }
    kernel.unmount();
    let new = scratch.file("b.img");
    for (map, what) in [
        ("--uid-map 100000:0:1000", "b: its owner 101000 is in no range"),
        ("--uid-map 100000:0:9 --uid-map 100005:20:9", "have numbers in common"),
        ("--uid-map 1:2", "FROM:TO:COUNT"),
        ("--uid-map 0:0:1 --owner 1:1", "cannot be used with"),
    ] {
        let (_, error) = fails(&format!("mkfs -q IMAGE --from {} {map}", root.display()), &new);
        assert!(error.contains(what) && !new.exists(), "{map}: {error}");
    }
}

#[test]
fn owners_that_fakeroot_pretends_are_those_in_the_image() {
    let scratch = scratch();
    if Command::new("fakeroot").arg("true").output().is_err() {
        skip("no fakeroot");
        return;
    }
    let (root, image) = (scratch.file("root"), scratch.file("a.img"));
    fs::create_dir(&root).unwrap();
    let script = format!(
        "cd {} && touch file && chown 12:34 file && chmod 4755 file && mknod null c 1 3 && chown 0:5 null && \
         {} mkfs.xfs -q -p . {}",
        root.display(),
        "PATH=$BIN:$PATH",
        image.display()
    );
    let bin = scratch.file("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_xfskit"), bin.join("mkfs.xfs")).unwrap();
    fs::File::create(&image).unwrap().set_len(300 << 20).unwrap();
    run(Command::new("fakeroot").args(["sh", "-c", &script]).env("BIN", &bin));
    let Some(kernel) = kernel_mount(&image) else { return };
    let stat = |name: &str| fs::symlink_metadata(kernel.path().join(name)).unwrap();
    let (file, null) = (stat("file"), stat("null"));
    assert_eq!((file.uid(), file.gid(), file.mode()), (12, 34, 0o104_755));
    assert_eq!((null.uid(), null.gid(), null.rdev()), (0, 5, rustix::fs::makedev(1, 3)));
    kernel.unmount();
}

#[test]
fn a_manifest_decides_and_makes_what_has_no_contents() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (root, image) = (scratch.file("root"), scratch.file("a.img"));
    for dir in ["bin", "etc"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::write(root.join("bin/ping"), "ping").unwrap();
    fs::write(root.join("etc/a b"), "blank").unwrap();
    // The value of a capability is what setcap makes of it.
    let sample = scratch.file("sample");
    fs::write(&sample, "").unwrap();
    // Version 2, effective: cap_net_raw (13) is permitted.
    let value = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let base64 = "AQAAAgAgAAAAAAAAAAAAAAAAAAA=";
    let manifest = scratch.file("manifest");
    fs::write(
        &manifest,
        format!(
            "#mtree\n/set uid=0 gid=0\n./bin/ping mode=0755 uid=7 gid=8 xattr.security.capability={base64} size=4\n\
             ./etc/a\\040b mode=0600 time=1000000000.5\n./dev type=dir mode=0755\n\
             ./dev/console type=char mode=0600 device=5,1 uid=3\n./etc/link type=link link=../bin/ping\n\
             ./var/empty type=dir mode=0700 uid=9\n./var type=dir mode=0711\n./gone optional mode=1\n"
        ),
    )
    .unwrap();
    let line = format!("mkfs -q IMAGE --from {} --manifest {}", root.display(), manifest.display());
    ok(&line, &image);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    let Some(kernel) = kernel_mount(&image) else { return };
    let stat = |name: &str| fs::symlink_metadata(kernel.path().join(name)).unwrap();
    let owner = |name: &str| (stat(name).mode(), stat(name).uid(), stat(name).gid());
    assert_eq!(owner("bin/ping"), (0o100_755, 7, 8));
    assert_eq!((owner("etc/a b"), stat("etc/a b").mtime()), ((0o100_600, 0, 0), 1_000_000_000));
    assert_eq!((owner("dev/console"), stat("dev/console").rdev()), ((0o020_600, 3, 0), rustix::fs::makedev(5, 1)));
    assert_eq!((owner("var"), owner("var/empty")), ((0o040_711, 0, 0), (0o040_700, 9, 0)));
    assert_eq!(fs::read_link(kernel.path().join("etc/link")).unwrap(), Path::new("../bin/ping"));
    let mut found = [0; 64];
    let length = rustix::fs::getxattr(kernel.path().join("bin/ping"), "security.capability", &mut found[..]).unwrap();
    assert_eq!(&found[..length], value);
    if let Ok(output) = Command::new("getcap").arg(kernel.path().join("bin/ping")).output() {
        assert!(String::from_utf8_lossy(&output.stdout).contains("cap_net_raw=ep"));
    }
    kernel.unmount();
    let new = scratch.file("b.img");
    for (text, what) in [
        ("./bin/none mode=0755\n", "line 1: ./bin/none: the tree has no such file"),
        ("./bin/ping type=dir\n", "line 1: ./bin/ping: the tree has no directory there"),
        ("./dev/null type=char\n", "a new device needs device=MAJOR,MINOR"),
        ("#\n./bin/ping mode=0999\n", "line 2: mode=0999"),
    ] {
        fs::write(&manifest, text).unwrap();
        let line = format!("mkfs -q IMAGE --from {} --manifest {}", root.display(), manifest.display());
        let (code, error) = fails(&line, &new);
        assert!(code == 5 && error.contains(what) && !new.exists(), "{text}: {code}: {error}");
    }
}

#[test]
fn the_manifest_that_bsdtar_writes_of_a_tree_changes_nothing() {
    let scratch = scratch();
    let (root, manifest) = (tree(&scratch), scratch.file("manifest"));
    let bsdtar = Command::new("bsdtar")
        .args(["-C", root.to_str().unwrap(), "-c", "--format=mtree", "--options=!all,type,mode,uid,gid,time,link,size"])
        .args(["-f", manifest.to_str().unwrap(), "."])
        .output();
    if !bsdtar.is_ok_and(|output| output.status.success()) {
        skip("no bsdtar: install libarchive-tools");
        return;
    }
    let (plain, image) = (scratch.file("plain.img"), scratch.file("a.img"));
    let uuid = "uuid=6b1ff5a1-2d3c-4e5f-8a9b-0c1d2e3f4a5b";
    for (image, with) in [(&plain, String::new()), (&image, format!(" --manifest {}", manifest.display()))] {
        let line = format!("mkfs -q {} -m {uuid} --from {}{with}", image.display(), root.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        run(command.args(line.split(' ')).env("SOURCE_DATE_EPOCH", "4000000000"));
    }
    assert!(fs::read(&plain).unwrap() == fs::read(&image).unwrap());
}

#[test]
fn texts_that_make_no_sense_are_refused_by_their_line() {
    let scratch = scratch();
    let (root, image) = (tree(&scratch), scratch.file("a.img"));
    let file = scratch.file("text");
    let large = format!("/x({}) u:r:t", "a|".repeat(40_000));
    for (text, what) in [
        ("/a u:r:t\n/b(", "line 2: it has no label"),
        ("/b( u:r:t", "line 1: /b(: unclosed group"),
        ("/b -q u:r:t", "the type -q"),
        ("/(?=a) u:r:t", "look-around"),
        (large.as_str(), "bytes"),
        ("\u{0}\u{1}\u{2}", "line 1: it has no label"),
    ] {
        fs::write(&file, text).unwrap();
        let line = format!("mkfs -q IMAGE --from {} --file-contexts {}", root.display(), file.display());
        let (code, error) = fails(&line, &image);
        assert!(code == 5 && error.contains(what) && !image.exists(), "{text:.40}: {code}: {error}");
    }
    fs::write(&file, [0xff, 0xfe, b' ', b'x']).unwrap();
    let line = format!("mkfs -q IMAGE --from {} --file-contexts {}", root.display(), file.display());
    assert!(fails(&line, &image).1.contains("line 1: it is not UTF-8"));
    let (code, error) = fails("mkfs -q IMAGE --size 300M --file-contexts /nosuch", &image);
    assert!(code == 2 && error.contains("--file-contexts is for what --from copies"), "{error}");
}

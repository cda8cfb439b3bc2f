//! `find`, compared with GNU's find on the kernel's mount.

mod common;

use common::{fails, image, ok, with_input, words, xfskit};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use xfskit_testkit::{kernel_mount, scratch};

fn set(bytes: &[u8], end: u8) -> BTreeSet<Vec<u8>> {
    bytes.split(|&byte| byte == end).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
}

fn prepare(image: &Path) {
    ok("mkdir -p IMAGE /etc/conf.d /home/a /var", image);
    ok("touch IMAGE /etc/a.conf /etc/b.CONF /etc/conf.d/[x].conf /home/a/.profile -d @1000000000", image);
    ok("touch IMAGE /home/a/later -d @1500000000", image);
    ok("ln -s IMAGE ../etc /home/link.conf", image);
    ok("mknod IMAGE /var/pipe p", image);
    ok("mknod IMAGE /var/socket s", image);
    ok("mknod IMAGE /var/null c 1 3", image);
    ok("mknod IMAGE /var/loop b 7 0", image);
    for bytes in [1, 511, 512, 513, 1024, 1025, 3 << 20] {
        let made = with_input(&format!("write IMAGE /home/a/{bytes}"), image, &vec![1; bytes]);
        assert!(made.status.success());
        ok(&format!("touch IMAGE /home/a/{bytes} -d @1200000000"), image);
    }
    for name in [&b"bytes-\xff\xfe"[..], "grün".as_bytes(), b"two\nlines", b"spa ce"] {
        let path = OsStr::from_bytes(&[b"/home/", name].concat()).to_owned();
        assert!(xfskit([OsStr::new("touch"), image.as_os_str(), &path]).status.success());
    }
    ok("xattr set IMAGE /etc/a.conf user.one 1", image);
    ok("xattr set IMAGE /var security.selinux label", image);
}

#[test]
fn it_finds_what_find_does() {
    let scratch = scratch();
    let image = image(&scratch);
    prepare(&image);
    let inode: serde_json::Value = serde_json::from_str(&ok("--json stat IMAGE /etc/a.conf", &image)).unwrap();
    let inum = format!("-inum {}", inode["inode"]);
    let Some(kernel) = kernel_mount(&image) else { return };
    for tests in [
        "",
        "-name *.conf",
        "-name *.[cC][oO]*",
        "-name .*",
        "-name [[]x]*",
        "-name gr?n",
        "-name \\*",
        "-iname *.CONF",
        "-iname [A-F]*",
        "-iname [!A-F]*.c?nf",
        "-iname GRÜN",
        "-name *f -name a*",
        "-type f",
        "-type d",
        "-type l,p,s",
        "-type b,c",
        "-size 1",
        "-size +1",
        "-size -2",
        "-size +1k",
        "-size 1025c",
        "-size -3M",
        "-size 3M -type f",
        "-newer /home/a/1",
        "-newermt @1200000000",
        "-newermt 2010-01-01 -type f",
        &inum,
    ] {
        let theirs = tests.replace("-newer /", "-newer ./");
        let mut find = Command::new("find");
        find.arg(".").args(theirs.split(' ').filter(|word| !word.is_empty())).arg("-print0");
        let output = find.current_dir(kernel.path()).env("LC_ALL", "C.UTF-8").env("TZ", "UTC").output().unwrap();
        assert!(output.status.success(), "{tests}: {}", String::from_utf8_lossy(&output.stderr));
        // In GNU's output the root is a dot; in xfskit's it has no name.
        let theirs: BTreeSet<Vec<u8>> = set(&output.stdout, 0)
            .into_iter()
            .filter(|path| path != b"." || !tests.contains("-name"))
            .map(|path| if path == b"." { b"/".to_vec() } else { path[1..].to_vec() })
            .collect();
        let line = format!("find IMAGE {tests}{}-print0", if tests.is_empty() { "" } else { " " });
        for line in [line.clone(), line.replace(" -", " --").replace("--3M", "-3M").replace("--2 ", "-2 ")] {
            let ours = xfskit(words(&line, &image));
            assert!(ours.status.success(), "{line}: {}", String::from_utf8_lossy(&ours.stderr));
            assert_eq!(set(&ours.stdout, 0), theirs, "{line}");
        }
    }
    kernel.unmount();
}

#[test]
fn it_begins_at_the_given_path_and_names_what_it_cannot_do() {
    let scratch = scratch();
    let image = image(&scratch);
    prepare(&image);
    assert_eq!(ok("find IMAGE -xattr user.*", &image), "/etc/a.conf\n");
    assert_eq!(ok("find IMAGE -xattr security.selinux -type d", &image), "/var\n");
    assert_eq!(ok("--wait 1 find IMAGE /var /etc -name *l*", &image), "/var/loop\n/var/null\n");
    let line = ok("--json find IMAGE -name a.conf", &image);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&value["path"], line.lines().count()), (&"/etc/a.conf".into(), 1));
    let output = xfskit(words("find IMAGE /missing /etc -name a.conf", &image));
    assert_eq!((output.status.code(), output.stdout), (Some(1), b"/etc/a.conf\n".to_vec()));
    for wrong in
        ["-size 10X", "-size +", "-type x", "-inum a", "-newermt never", "-name [[:alpha:]]", "-iname [[:alpha:]]"]
    {
        assert_eq!(fails(&format!("find IMAGE {wrong}"), &image).0, 2, "{wrong}");
    }
    let (code, message) = fails("find IMAGE -maxdepth 1", &image);
    assert!(code == 2 && message.contains("'--maxdepth'"), "{message}");
    assert_eq!(fails("find IMAGE -newer /missing", &image).0, 1);
    // The tests of `find` are not options of another command.
    assert_eq!(fails("ls IMAGE -name", &image).0, 2);
}

//! What `ls -l`, `ls -Z`, `stat` and `xattr dump` show of labels, ACLs, attributes and flags, compared with GNU's ls,
//! getfattr, getfacl and xfs_io on the kernel's mount.

mod common;

use common::disks::have;
use common::trees::{is_root, run};
use common::{image, ok, with_input, words, xfskit};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xfskit_testkit::{Scratch, kernel_mount, reference, scratch, skip};

const LABEL: &[u8] = b"system_u:object_r:etc_t:s0\0";

/// A tree with ACLs and labels.
fn prepared() -> Option<(Scratch, PathBuf)> {
    if !is_root() || !have(&["setfacl", "getfacl", "getfattr"]) {
        return None;
    }
    let scratch = scratch();
    let (image, source) = (scratch.file("a.img"), scratch.file("source"));
    let at = |name: &str| source.join(name);
    fs::create_dir_all(at("default")).unwrap();
    fs::create_dir_all(at("plain/below")).unwrap();
    for name in ["acl", "mode-only", "label", "both", "nothing", "plain/file"] {
        fs::write(at(name), "contents").unwrap();
    }
    std::os::unix::fs::symlink("acl", at("link")).unwrap();
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::lsetxattr(at(name), key, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    for name in ["label", "both", "link"] {
        set(name, "security.selinux", LABEL);
    }
    set("acl", "user.one", b"1");
    set("acl", "user.empty", b"");
    set("acl", "trusted.large", &[7; 1500]);
    run(Command::new("setfacl").args(["-m", "u:1234:rwx,g:77:r-x"]).args([at("acl"), at("both")]));
    run(Command::new("setfacl").args(["-m", "d:u:1234:rwx,d:g:5:-"]).arg(at("default")));
    run(Command::new("setfacl").args(["-m", "u::rw,g::r,o::-"]).arg(at("mode-only")));
    ok(&format!("mkfs IMAGE --from {} -q", source.display()), &image);
    Some((scratch, image))
}

#[test]
fn marks_and_labels_are_those_of_ls() {
    let Some((_scratch, image)) = prepared() else { return };
    let Some(kernel) = kernel_mount(&image) else { return };
    let theirs = |options: &str, dir: &str| {
        let mut ls = Command::new("ls");
        let output = run(ls.args([options, dir]).env("LC_ALL", "C").current_dir(kernel.path()));
        String::from_utf8(output.stdout).unwrap()
    };
    // The permissions with their mark, the number of names, and the name.
    let marked = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.len() > 11 && !line.ends_with(':'));
        let words = |line: &str| {
            let name = line.split(" -> ").next().unwrap().split(' ').next_back().unwrap().to_owned();
            format!("{} {name}", &line[..11])
        };
        lines.map(words).collect()
    };
    let listed = marked(&theirs("-lA", "."));
    assert!(listed.contains(&"-rw-rwxr--+ acl".to_owned()), "{listed:?}");
    // GNU's ls without SELinux in the kernel may not look at labels.
    let shows_labels = listed.contains(&"-rw-r--r--. label".to_owned());
    let ours = marked(&ok("ls -l IMAGE /", &image));
    if shows_labels {
        assert_eq!(ours, listed);
    } else {
        skip("this ls shows no labels");
    }
    let of = |name: &str| ours.iter().find(|line| line.ends_with(&format!(" {name}"))).unwrap().as_bytes()[10];
    let marks = ["acl", "both", "default", "label", "link", "mode-only", "nothing", "plain"].map(of);
    assert_eq!(&marks, b"+++..   ");
    // Where nothing is marked there is no column for it.
    assert_eq!(marked(&ok("ls -l IMAGE /plain", &image)), marked(&theirs("-lA", "plain")));
    assert_eq!(marked(&ok("ls -lR IMAGE /plain", &image)), marked(&theirs("-lA", "plain")));
    let labels = ok("ls -Z IMAGE /", &image);
    assert_eq!(labels, theirs("-1AZ", ".").lines().map(|line| line.trim_start().to_owned() + "\n").collect::<String>());
    assert!(ok("ls -lZ IMAGE /label", &image).contains(" system_u:object_r:etc_t:s0 "));
    let list: Value = serde_json::from_str(&ok("--json ls -Z IMAGE /", &image)).unwrap();
    let with_label: Vec<&Value> = list.as_array().unwrap().iter().filter(|file| file["label"].is_string()).collect();
    assert_eq!(with_label.len(), 3);
    assert!(with_label.iter().all(|file| file["label"] == "system_u:object_r:etc_t:s0"));
    kernel.unmount();
}

#[test]
fn stat_shows_attributes_acls_and_labels() {
    let Some((_scratch, image)) = prepared() else { return };
    let Some(kernel) = kernel_mount(&image) else { return };
    let lines = |program: &str, options: &[&str], name: &str| -> Vec<String> {
        let output = run(Command::new(program).args(options).arg(name).current_dir(kernel.path()));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
    };
    for name in ["acl", "both", "default", "label", "link", "mode-only", "nothing", "plain"] {
        let stat: Value = serde_json::from_str(&ok(&format!("--json stat IMAGE /{name}"), &image)).unwrap();
        let text = ok(&format!("stat IMAGE /{name}"), &image);
        let theirs = lines("getfattr", &["-h", "-m", "-", "-e", "hex", "-d"], name);
        let mut expected: Vec<(String, usize)> = theirs
            .iter()
            .map(|line| line.split_once('=').unwrap_or((line, "0x")))
            .map(|(name, value)| (name.to_owned(), (value.len() - 2) / 2))
            .collect();
        expected.sort();
        let ours = stat["attributes"].as_array().unwrap().iter();
        let ours: Vec<(String, usize)> = ours
            .map(|one| (one["name"].as_str().unwrap().to_owned(), one["size"].as_u64().unwrap() as usize))
            // The kernel lists the forms of ACLs on disk for root only where they are asked for by name.
            .filter(|(name, _)| expected.iter().any(|(known, _)| known == name) || !name.starts_with("trusted.SGI_ACL"))
            .collect();
        assert_eq!(ours, expected, "{name}");
        for (attribute, bytes) in &expected {
            let unit = if *bytes == 1 { "byte" } else { "bytes" };
            assert!(text.contains(&format!("attribute:  {attribute} ({bytes} {unit})\n")), "{text}");
        }
        let acl = |options: &[&str]| lines("getfacl", options, name).join(",");
        let (access, default) =
            if name == "link" { (String::new(), String::new()) } else { (acl(&["-ncEa"]), acl(&["-ncEd"])) };
        match stat["acl"].as_str() {
            Some(text) => assert_eq!(text, access, "{name}"),
            None => assert!(!["acl", "both"].contains(&name)),
        }
        let shown = text.lines().find_map(|line| line.strip_prefix("acl:        "));
        assert_eq!(shown, stat["acl"].as_str(), "{text}");
        assert_eq!(stat["default_acl"].as_str().unwrap_or_default(), default, "{name}");
        assert_eq!(text.contains(&format!("default:    {default}\n")), name == "default", "{text}");
        let has_label = ["both", "label", "link"].contains(&name);
        assert_eq!(stat["label"], if has_label { json!("system_u:object_r:etc_t:s0") } else { Value::Null });
        assert_eq!(text.contains("label:      system_u:object_r:etc_t:s0\n"), has_label, "{text}");
    }
    kernel.unmount();
    // The other commands do not ask for attributes.
    for line in ["--json ls -d IMAGE /acl", "--json find IMAGE /acl"] {
        assert!(!ok(line, &image).contains("attributes"), "{line}");
    }
}

#[test]
fn stat_shows_flags_and_projects() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE /plain /flagged /hinted /dir", &image);
    let Some(kernel) = kernel_mount(&image) else { return };
    let xfs_io = |command: &str, name: &str| reference.io(&kernel.path().join(name), command);
    for (name, command) in [
        ("hinted", "extsize 64k"),
        ("hinted", "cowextsize 128k"),
        ("hinted", "chproj 7"),
        ("dir", "chattr +AdfP"),
        ("dir", "chproj 9"),
        ("flagged", "chattr +isd"),
    ] {
        xfs_io(command, name);
    }
    fs::write(kernel.path().join("hinted/file"), "contents").unwrap();
    let names = ["plain", "flagged", "hinted", "dir"];
    let theirs = names.map(|name| {
        let listed = xfs_io("lsattr -v", name);
        let flags = listed.split_once('[').unwrap().1.split_once(']').unwrap().0;
        let flags = flags.split(',').map(str::trim).filter(|flag| !flag.is_empty() && *flag != "has-xattr");
        let mut flags: Vec<String> = flags.map(str::to_owned).collect();
        flags.sort();
        flags
    });
    kernel.unmount();
    let flags = |stat: &Value| {
        let flags = stat["flags"].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap().to_owned());
        let mut flags: Vec<String> = flags.collect();
        flags.sort();
        flags
    };
    let stat =
        |name: &str| -> Value { serde_json::from_str(&ok(&format!("--json stat IMAGE /{name}"), &image)).unwrap() };
    for (name, theirs) in names.into_iter().zip(theirs) {
        assert_eq!(flags(&stat(name)), theirs, "{name}");
    }
    assert_eq!(flags(&stat("hinted/file")), ["cowextsize", "extsize"]);
    let text = ok("stat IMAGE /hinted", &image);
    assert!(text.contains("project:    7\n") && text.contains("extents of: 65536 bytes\n"), "{text}");
    let hinted = stat("hinted");
    assert_eq!((&hinted["extent_size"], &hinted["cow_extent_size"]), (&json!(65536), &json!(131_072)));
    assert!(ok("stat IMAGE /flagged", &image).contains("flags:      immutable, sync, no-dump\n"));
    assert!(!ok("stat IMAGE /plain", &image).contains("flags:"));
}

/// Attributes that cannot be read hide neither their file nor others.
#[test]
fn damaged_attributes_are_told_from_none() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("touch IMAGE /bad /good", &image);
    let dump: String = (0..100).map(|n| format!("user.{n:03}=\"{}\"\n", "v".repeat(100))).collect();
    assert!(with_input("xattr restore IMAGE", &image, format!("# file: bad\n{dump}").as_bytes()).status.success());
    let mut bytes = fs::read(&image).unwrap();
    const BLOCK_BYTES: usize = 4096;
    const LEAF_MAGIC: [u8; 2] = [0x3b, 0xee];
    let leaves: Vec<usize> =
        (0..bytes.len()).step_by(BLOCK_BYTES).filter(|at| bytes[at + 8..at + 10] == LEAF_MAGIC).collect();
    assert!(!leaves.is_empty());
    leaves.iter().for_each(|at| bytes[at + 100] ^= 1);
    fs::write(&image, bytes).unwrap();
    let run = |line: &str| {
        let output = xfskit(words(line, &image));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(output.status.code(), Some(3), "{line}: {output:?}");
        assert!(text(&output.stderr).contains("/bad: "), "{output:?}");
        text(&output.stdout)
    };
    let listed = run("ls -l IMAGE /");
    assert!(listed.contains("-rw-r--r--?") && listed.contains("-rw-r--r-- "), "{listed}");
    assert!(run("stat IMAGE /bad /good").matches("inode:").count() == 2);
    let stat: Value = serde_json::from_str(&run("--json stat IMAGE /bad")).unwrap();
    assert!(stat["inode"].is_u64() && stat["attributes"].is_null());
    // Who does not ask for attributes is not told of them.
    assert_eq!(ok("ls IMAGE /", &image), "bad\ngood\n");
    assert_eq!(ok("find IMAGE -type f", &image), "/bad\n/good\n");
    assert_eq!(run("find IMAGE -xattr user.*"), "");
}

/// A backup by `xattr dump` that lacks what one might expect says so.
#[test]
fn a_dump_says_what_it_left_out() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("touch IMAGE /a /b /c", &image);
    for (path, name) in [("/a", "user.x"), ("/a", "trusted.y"), ("/b", "trusted.z"), ("/b", "security.selinux")] {
        ok(&format!("xattr set IMAGE {path} {name} value"), &image);
    }
    let said = |line: &str| {
        let output = xfskit(words(line, Path::new(&image)));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let line = "xfskit: left out, since they do not begin with user.: 3 attributes of 2 files; -m - shows all\n";
    assert_eq!(said("xattr dump -R IMAGE /"), line);
    assert!(said("xattr dump IMAGE /a").contains(": 1 attribute of 1 file;"));
    for quiet in [
        "xattr dump IMAGE /c",
        "xattr dump -R IMAGE / -m -",
        "xattr dump -R IMAGE / -m user.",
        "--json xattr dump -R IMAGE /",
        "-q xattr dump -R IMAGE /",
    ] {
        assert_eq!(said(quiet), "", "{quiet}");
    }
}

//! `parents`, `path` and `info` of a mount answer as they do of the image itself, whatever the host looks like.

mod common;

use common::mounts::{Prepared, prepared, prepared_for_root, run, server_of, signal, wait_for_end};
use common::{ok, words, xfskit};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

/// The exit code, the output and the message of a line, in which `IMAGE` is an image or a mount of it.
fn answer(line: &str, image: &Path) -> (i32, String, String) {
    let output = xfskit(words(line, image));
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(image.to_str().unwrap(), "IMAGE");
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn at(prepared: &Prepared, name: &str) -> std::path::PathBuf {
    prepared.dir.join(name)
}

/// Files with several names, links of all kinds, and a directory that leads the host astray.
fn fill(prepared: &Prepared, other: &Path) {
    fs::create_dir_all(at(prepared, "a/b")).unwrap();
    fs::create_dir(at(prepared, "other")).unwrap();
    for name in ["x", "a/x", "other/bf", "inode:5"] {
        fs::write(at(prepared, name), name).unwrap();
    }
    fs::hard_link(at(prepared, "a/x"), at(prepared, "a/b/name of\nax")).unwrap();
    symlink("a", at(prepared, "lp")).unwrap();
    symlink("lp/", at(prepared, "to-link")).unwrap();
    symlink("/a/x", at(prepared, "absolute")).unwrap();
    symlink("a/../x", at(prepared, "way")).unwrap();
    symlink("../../../x", at(prepared, "a/above")).unwrap();
    symlink(other, at(prepared, "host")).unwrap();
    symlink("loop", at(prepared, "loop")).unwrap();
}

/// Ways to name what [`fill`] makes, and what is not there.
const PATHS: [&str; 37] = [
    "/",
    "x",
    "/x",
    "/a/x",
    "//a//x",
    "/a/..",
    "/a/../x",
    "/../x",
    "/./x/.",
    "/x/",
    "/lp",
    "/lp/",
    "/lp/x",
    "/to-link",
    "/to-link/",
    "/absolute",
    "/absolute/",
    "/lp/../way",
    "/way/..",
    "/a/above",
    "/host/bf",
    "/host",
    "/loop",
    "/loop/",
    "/other/bf",
    "/nothing",
    "/nothing/x",
    "/x/y",
    "inode:5",
    "/inode:5",
    "inode:0",
    "inode:999999999999",
    "inode:18446744073709551615",
    ".",
    "..",
    "",
    "a/b/name of\nax",
];

#[test]
fn the_answers_of_a_mount_are_those_of_the_image() {
    let Some(prepared) = prepared() else { return };
    let host = prepared.scratch.file("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("bf"), "").unwrap();
    prepared.line("mount IMAGE DIR");
    fill(&prepared, &host);
    let number = fs::metadata(at(&prepared, "a/x")).unwrap().ino();
    let mut lines: Vec<String> = vec!["path IMAGE 128".into(), "path IMAGE inode:1".into(), "path IMAGE 999".into()];
    lines.extend([format!("path IMAGE {number}"), format!("path IMAGE inode:{number}")]);
    lines.extend([format!("parents IMAGE inode:{number}"), format!("--json parents IMAGE inode:{number}")]);
    lines.push(format!("parents IMAGE /{}", "n".repeat(256)));
    lines.push(format!("parents IMAGE {}/x", "/a/..".repeat(2000)));
    lines.extend(PATHS.iter().filter(|path| !path.contains(' ')).map(|path| format!("parents IMAGE {path}")));
    lines.extend(PATHS.iter().filter(|path| !path.contains(' ')).map(|path| format!("parents -i IMAGE {path}")));
    // Another filesystem on the way.
    let covered = rustix::process::geteuid().is_root();
    if covered {
        run("mount", &["--bind", host.to_str().unwrap()], &at(&prepared, "other"));
    }
    let live: Vec<_> = lines.iter().map(|line| answer(line, &prepared.dir)).collect();
    let link = prepared.scratch.file("a-link");
    symlink(&prepared.dir, &link).unwrap();
    assert_eq!(answer("parents IMAGE /a/x", &link).1, ok("parents IMAGE /a/x", &prepared.dir));
    if covered {
        run("umount", &[], &at(&prepared, "other"));
    }
    prepared.line("umount DIR");
    for (line, live) in lines.iter().zip(live) {
        assert_eq!(live, answer(line, &prepared.image), "{line}");
    }
}

#[test]
fn a_folder_that_is_not_the_root_is_refused_with_the_root_named() {
    let Some(prepared) = prepared() else { return };
    prepared.line("mount IMAGE DIR");
    fill(&prepared, Path::new("/nowhere"));
    let dir = prepared.dir.to_str().unwrap();
    let folder = at(&prepared, "a");
    for line in ["parents IMAGE x", "path IMAGE 128", "info IMAGE"] {
        let (code, out, message) = answer(line, &folder);
        assert!(code == 2 && out.is_empty() && message.contains(&format!("{dir} /a")), "{line}: {code} {message}");
        let mut inside = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        let output = inside.args(line.replace("IMAGE", ".").split(' ')).current_dir(&folder).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && message.contains(&format!("{dir} /a")), "{line}: {message}");
    }
    // A file is no image: one sentence, without what its first bytes are.
    let (code, _, message) = answer("info IMAGE", &at(&prepared, "x"));
    assert!(code == 2 && message.contains("this is /x on") && message.matches("IMAGE:").count() == 1, "{message}");
    assert!(!message.contains("XFSB"), "{message}");
    // A path of the host: as the host has it.
    assert_eq!(answer("parents IMAGE", &at(&prepared, "lp")).1, "/lp\n");
    let slash = format!("{}/", at(&prepared, "lp").display());
    assert_eq!(answer("parents IMAGE", Path::new(&slash)).1, "/a\n");
    let link = prepared.scratch.file("link");
    symlink(at(&prepared, "a/b"), &link).unwrap();
    assert_eq!(answer("parents IMAGE", &link).1, "/a/b\n");
    // A path that was forgotten.
    let (code, _, message) = answer("parents IMAGE", &prepared.image);
    assert!(code == 2 && message.contains(&format!("{dir} /PATH")), "{message}");
    prepared.line("umount DIR");
}

#[test]
fn a_bind_mount_of_a_folder_is_not_taken_for_the_root() {
    let Some(prepared) = prepared_for_root() else { return };
    prepared.line("mount IMAGE DIR");
    fill(&prepared, Path::new("/nowhere"));
    let bound = prepared.scratch.file("bound");
    fs::create_dir(&bound).unwrap();
    run("mount", &["--bind", at(&prepared, "a").to_str().unwrap()], &bound);
    let (code, _, message) = answer("parents IMAGE /x", &bound);
    let file = answer("parents IMAGE", &bound.join("x"));
    run("umount", &[], &bound);
    assert!(code == 2 && message.contains(&format!("{} /a", prepared.dir.display())), "{message}");
    assert_eq!(file.1, answer("parents IMAGE /a/x", &prepared.dir).1);
    prepared.line("umount DIR");
}

#[test]
fn more_names_than_an_attribute_has_room_for_come_in_pages() {
    let Some(prepared) = prepared() else { return };
    prepared.line("mount IMAGE DIR");
    let name = |n: usize| at(&prepared, &format!("{n:04}{}", "n".repeat(200)));
    fs::write(name(0), "").unwrap();
    for n in 1..1000 {
        fs::hard_link(name(0), name(n)).unwrap();
    }
    // One path that is longer than an attribute.
    let mut deep = String::new();
    for _ in 0..270 {
        deep.push_str(&format!("/{}", "d".repeat(250)));
    }
    let long = ["parents IMAGE /0000", &"n".repeat(200)].concat();
    let lines = [long.clone(), long.replace("parents", "parents -i"), format!("parents IMAGE {deep}")];
    prepared.line("umount DIR");
    ok(&format!("mkdir -p IMAGE {deep}"), &prepared.image);
    let number = ok(&format!("ls -di IMAGE {deep}"), &prepared.image);
    let by_number = format!("path IMAGE {}", number.trim_start().split(' ').next().unwrap());
    let lines = lines.map(|line| if line.contains(&deep) { by_number.clone() } else { line });
    prepared.line("mount IMAGE DIR");
    let live = lines.clone().map(|line| answer(&line, &prepared.dir));
    let (code, _, message) = answer(&format!("parents IMAGE {deep}"), &prepared.dir);
    assert!(code == 1 && message.contains("use inode:NUMBER"), "{message}");
    prepared.line("umount DIR");
    assert!(live[0].1.len() > 200_000 && live[2].1.len() > 65_536);
    for (line, live) in lines.iter().zip(live) {
        assert!(live == answer(line, &prepared.image), "{line}");
    }
}

#[test]
fn an_image_without_parent_pointers_is_not_an_old_server() {
    let Some(prepared) = prepared() else { return };
    ok("mkfs -f -q IMAGE --size 512M -n parent=0", &prepared.image);
    prepared.line("mount IMAGE DIR");
    fs::write(at(&prepared, "x"), "").unwrap();
    let number = fs::metadata(at(&prepared, "x")).unwrap().ino();
    let lines = ["parents IMAGE /x".to_owned(), format!("path IMAGE {number}")];
    let live = lines.clone().map(|line| answer(&line, &prepared.dir));
    let (_, _, of_file) = answer("parents IMAGE", &at(&prepared, "x"));
    prepared.line("umount DIR");
    for (line, live) in lines.iter().zip(live) {
        assert_eq!(live, answer(line, &prepared.image), "{line}");
        assert!(live.2.contains("made without them"), "{line}: {}", live.2);
    }
    assert!(of_file.contains("made without them") && !of_file.contains("older"), "{of_file}");
}

#[test]
fn a_mount_without_its_server_is_named_with_its_cure() {
    let Some(prepared) = prepared() else { return };
    prepared.line("mount IMAGE DIR");
    fs::write(at(&prepared, "x"), "").unwrap();
    let server = server_of(&prepared.image);
    signal(server, "-KILL");
    wait_for_end(server);
    while fs::metadata(&prepared.dir).is_ok() {
        std::thread::yield_now();
    }
    let cure = format!("'xfskit umount {}'", prepared.dir.display());
    for (line, path) in [
        ("parents IMAGE /x", ""),
        ("path IMAGE 128", ""),
        ("info IMAGE", ""),
        ("parents IMAGE", ""),
        ("parents IMAGE", "x"),
        ("parents IMAGE", "no/such"),
    ] {
        let path = if path.is_empty() { prepared.dir.clone() } else { at(&prepared, path) };
        let output = xfskit(words(line, &path));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(&cure), "{line}: {message}");
    }
    xfskit(["umount".as_ref(), prepared.dir.as_os_str()]);
}

#[test]
fn help_names_mounts() {
    for command in ["parents", "path", "info"] {
        let help = String::from_utf8(xfskit([command, "--help"]).stdout).unwrap();
        assert!(help.contains("mount point instead of the image"), "{command}: {help}");
    }
}

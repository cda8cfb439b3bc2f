//! `cp` of a part of a tree: what it leaves out, what it does not replace, and what it prints; compared with GNU's cp
//! and tar.

mod common;

use common::{fails, image, ok};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use xfskit_testkit::scratch;

/// The contents of all files below a folder, by path.
fn contents(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in xfskit_testkit::tree(dir) {
        let path = dir.join(&entry.path);
        let text = if path.is_file() { fs::read_to_string(&path).unwrap() } else { "no file".into() };
        found.insert(entry.path.display().to_string(), text);
    }
    found
}

fn prepare(dir: &Path) {
    for folder in ["sub", "obj.o", "deep/er"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    let names = ["1.o", "keep", "sub/2.o", "sub/o", "obj.o/inner", "deep/er/x.o", "deep/er/y", "old", "sub/old"];
    for name in names {
        fs::write(dir.join(name), format!("new {name}")).unwrap();
    }
    // Further names, which sort after the first name: of a file that is left out, and of one that exists already.
    fs::hard_link(dir.join("1.o"), dir.join("further")).unwrap();
    fs::hard_link(dir.join("1.o"), dir.join("further again")).unwrap();
    fs::hard_link(dir.join("old"), dir.join("older")).unwrap();
    std::os::unix::fs::symlink("keep", dir.join("link")).unwrap();
}

#[test]
fn names_are_left_out_as_by_tar() {
    let scratch = scratch();
    let (image, source, theirs) = (image(&scratch), scratch.file("source"), scratch.file("theirs"));
    prepare(&source);
    fs::create_dir(&theirs).unwrap();
    let script = "tar -C \"$1\" --exclude='*.o' --exclude='y*' -cf - . | tar -C \"$2\" -xf -";
    assert!(Command::new("bash").args(["-c", script, "tar"]).args([&source, &theirs]).status().unwrap().success());
    let (path, picture) = (source.display(), image.display());
    let printed = ok(&format!("cp -rv --exclude *.o --exclude y* {path} {picture}:/in"), &image);
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> =
        contents(&theirs).keys().map(|path| if path.is_empty() { "in".into() } else { format!("in/{path}") }).collect();
    assert_eq!(lines, expected);
    // A copy of the whole tree, from which the copy out of the image leaves out the same names.
    ok(&format!("cp -r {path} {picture}:/all"), &image);
    for (from, exclude) in [("in", ""), ("all", "--exclude *.o --exclude y* ")] {
        let out = scratch.file(&format!("out-{from}"));
        ok(&format!("cp -r {exclude}{picture}:/{from} {}", out.display()), &image);
        assert_eq!(contents(&out), contents(&theirs), "{from}");
    }
    // An operand is copied even if it matches a pattern.
    ok(&format!("cp --exclude *.o {path}/1.o {picture}:/"), &image);
    assert_eq!(ok("cat IMAGE /1.o", &image), "new 1.o");
    ok("check IMAGE", &image);
}

#[test]
fn what_is_there_stays_as_by_cp() {
    let scratch = scratch();
    let (image, source) = (image(&scratch), scratch.file("source"));
    prepare(&source);
    let (theirs, into) = (scratch.file("theirs"), scratch.file("into"));
    for dir in [&theirs, &into] {
        fs::create_dir_all(dir.join("sub")).unwrap();
        for name in ["old", "sub/old", "link"] {
            fs::write(dir.join(name), "old").unwrap();
        }
    }
    let picture = image.display();
    ok(&format!("cp -r {} {picture}:/into", into.display()), &image);
    ok(&format!("cp -r {} {picture}:/source", source.display()), &image);
    let copied = Command::new("cp").args(["-rnPT"]).args([&source, &theirs]).status().unwrap();
    // Some versions report in their status that a file was not replaced.
    assert!(copied.code().is_some());
    let before = ok("ls -i IMAGE /into/old /into/sub/old", &image);
    ok(&format!("cp -rnT {} {picture}:/into", source.display()), &image);
    assert_eq!(ok("ls -i IMAGE /into/old /into/sub/old", &image), before);
    ok(&format!("cp -rnT {picture}:/source {}", into.display()), &image);
    let out = scratch.file("out");
    ok(&format!("cp -r {picture}:/into {}", out.display()), &image);
    assert_eq!(contents(&into), contents(&theirs));
    assert_eq!(contents(&out), contents(&theirs));
    // A single file, and options that contradict each other.
    ok(&format!("cp -nv {}/old {picture}:/into", source.display()), &image);
    assert_eq!(ok("cat IMAGE /into/old", &image), "old");
    assert_eq!(fails(&format!("cp -n -f {}/old {picture}:/into", source.display()), &image).0, 2);
    ok("check IMAGE", &image);
}

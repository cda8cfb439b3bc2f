//! Archives of all kinds, before GNU tar and bsdtar: what both read without complaint, the command reads with the same
//! result. The cases follow POSIX's pax, the formats of both programs' manuals, and what programs of other times and
//! systems write.

#[path = "../common/mod.rs"]
mod common;
mod forms;
mod make;
mod memory;
mod sparse;

use common::trees::is_root;
use make::Case;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use xfskit_testkit::{Scratch, kernel_mount, scratch, skip, tree};

/// A tree as lines that can be compared.
fn lines(root: &Path, has_root: bool) -> Vec<String> {
    let mut entries = tree(root);
    entries.retain(|entry| has_root || !entry.path.as_os_str().is_empty());
    for entry in &mut entries {
        entry.xattrs.retain(|(name, _)| name.starts_with("user.") || name.starts_with("system.posix_acl"));
        if entry.mode & 0o170_000 == 0o40_000 {
            entry.links = 0;
            // GNU tar leaves some with the time of now, as those that have no entry of their own.
            entry.mtime = (0, 0);
        }
    }
    entries.iter().map(ToString::to_string).collect()
}

/// What a program unpacks; `None` where it complains.
fn unpacked(program: &str, archive: &Path, scratch: &Scratch, has_root: bool) -> Option<Vec<String>> {
    let dir = scratch.file(program);
    fs::create_dir(&dir).unwrap();
    let mut command = Command::new(program);
    command.arg("-C").arg(&dir).args(["--numeric-owner", "--same-owner", "-p", "--xattrs", "--acls"]);
    if program == "tar" {
        command.args(["--xattrs-include=*", "--warning=no-unknown-keyword"]);
    }
    let output = command.arg("-xf").arg(archive).output().unwrap();
    let tree = output.status.success().then(|| lines(&dir, has_root));
    fs::remove_dir_all(&dir).unwrap();
    tree
}

/// What the kernel sees in an image of it, or the command's refusal. `None` where nothing can mount it.
fn filled(archive: &Path, scratch: &Scratch, has_root: bool) -> Option<Result<Vec<String>, Output>> {
    let image = scratch.file("a.img");
    let output =
        common::xfskit(["mkfs", "-q", "-f", "--small", "--from"].map(Path::new).into_iter().chain([archive, &image]));
    if !output.status.success() {
        return Some(Err(output));
    }
    let kernel = kernel_mount(&image)?;
    let tree = lines(kernel.path(), has_root);
    kernel.unmount();
    fs::remove_file(&image).unwrap();
    Some(Ok(tree))
}

fn compare(cases: Vec<Case>, read_by_both: &[&str]) {
    let missing =
        ["tar", "bsdtar"].into_iter().find(|program| Command::new(program).arg("--version").output().is_err());
    if let Some(program) = missing {
        return skip(&format!("{program} is not installed"));
    }
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (mut wrong, mut both) = (Vec::new(), BTreeSet::new());
    for Case { name, bytes } in &cases {
        let archive = scratch.file("archive");
        fs::write(&archive, bytes).unwrap();
        let has_root = name.starts_with("root");
        let theirs = ["tar", "bsdtar"].map(|program| unpacked(program, &archive, &scratch, has_root));
        let [Some(gnu), Some(bsd)] = theirs else { continue };
        if gnu != bsd {
            continue;
        }
        both.insert(name.as_str());
        match filled(&archive, &scratch, has_root) {
            None => return,
            Some(Ok(ours)) if ours == gnu => {}
            Some(ours) => wrong.push(format!("{name}:\n  theirs {gnu:#?}\n  ours {ours:#?}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    // The cases say what they are meant to.
    for name in read_by_both {
        assert!(both.contains(name), "{name}: GNU tar and bsdtar differ, or complain");
    }
}

#[test]
fn headers_of_all_forms() {
    compare(
        forms::headers(),
        &["old-dirs", "label", "label-only", "zeros", "one-zero", "no-zero", "signed-sum", "v7", "star", "contiguous"],
    );
}

#[test]
fn entries_of_all_kinds() {
    compare(forms::entries(), &["size-type-1", "dumpdir", "unknown-Z", "dup-kind", "dir-over-file", "link-to-symlink"]);
}

#[test]
fn names_and_attributes_in_headers_before_them() {
    compare(
        forms::extensions(),
        &["gnu-long", "pax-newline", "pax-binary", "pax-size", "x-then-L", "git-empty", "pax-xattr-dir", "acl"],
    );
}

#[test]
fn sparse_files_of_all_forms() {
    compare(sparse::cases(), &["old", "old-ext", "old-25", "pax-0.0", "pax-0.1", "pax-1.0", "pax-1.0-size"]);
}

/// What only one of the two reads, or neither: it is refused, or read as said here.
#[test]
fn what_the_two_do_not_agree_about() {
    let scratch = scratch();
    let archive = scratch.file("archive");
    for (bytes, expected) in forms::told() {
        fs::write(&archive, bytes).unwrap();
        let image = scratch.file("a.img");
        let line = format!("mkfs IMAGE -q -f --small --from {}", archive.display());
        let output = common::xfskit(common::words(&line, &image));
        let message = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().unwrap();
        assert!(message.contains(expected.1) && code == expected.0, "{expected:?}: {code}: {message}");
    }
}

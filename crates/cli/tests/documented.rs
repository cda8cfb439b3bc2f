//! Runs the examples in README.md, docs/transfer.md, docs/builders.md, docs/admin.md and `--help`, and compares the
//! output in the README with the real one.

mod common;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use xfskit::device::{Access, FileDevice};
use xfskit::volume::{Caller, MountOptions, NewFile, Volume};
use xfskit_testkit::{Scratch, reference, scratch, skip};

fn read(page: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap()
}

/// The blocks of a page that are marked with a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let mark = format!("```{language}\n");
    page.split(mark.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// Runs a script with the command in its path.
fn bash(script: &str, scratch: &Scratch) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_xfskit")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-eu", "-c", script]).current_dir(scratch.path()).env("PATH", &path);
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Runs the commands of a session, which are the lines with a prompt. The other lines are their output: numbers may
/// differ, and dots at the end of a line stand for the rest of the line.
fn session(block: &str, scratch: &Scratch) {
    let (commands, shown): (Vec<_>, Vec<_>) = block.lines().partition(|line| line.starts_with("$ "));
    let commands: Vec<_> = commands.iter().map(|line| &line[2..]).collect();
    let leave = "trap '! mountpoint -q mnt || xfskit umount mnt' EXIT";
    let output = bash(&format!("{leave}\n{}", commands.join("\n")), scratch);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().count(), shown.len(), "{block}\nprints:\n{printed}");
    for (printed, shown) in printed.lines().zip(shown) {
        let matches = match shown.strip_suffix(" ...") {
            Some(start) => without_numbers(printed).starts_with(&without_numbers(start)),
            None => without_numbers(printed) == without_numbers(shown),
        };
        assert!(matches, "shown:   {shown}\nprinted: {printed}");
    }
}

fn without_numbers(line: &str) -> Vec<&str> {
    // A UUID may begin with a letter.
    let is_uuid = |word: &str| word.len() == 36 && word.split('-').count() == 5;
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) || is_uuid(word);
    line.split_whitespace().map(|word| if is_number(word) { "N" } else { word }).collect()
}

/// Makes the journal of an image dirty: opens it, changes it, syncs it and does not close it.
fn crash(image: &Path) {
    let device = FileDevice::open(image, Access::Write).unwrap();
    let filesystem = Volume::open(Arc::new(device), MountOptions::default()).unwrap();
    let root = Caller::root();
    for step in 0..2 {
        for number in 0..20 {
            let name = format!("{step}-{number}");
            filesystem.create(filesystem.root(), name.as_bytes(), &NewFile::file(0o644), &root).unwrap();
        }
        filesystem.sync().unwrap();
    }
}

#[test]
fn the_examples_of_the_readme_run() {
    let readme = read("README.md");
    let [mounted, trees, crashed] = blocks(&readme, "console")[..] else { panic!("the README has other sessions") };
    let scratch = scratch();
    session(trees, &scratch);

    let image = scratch.file("crashed.img");
    bash("xfskit mkfs -q --size 1G crashed.img", &scratch);
    crash(&image);
    session(crashed, &scratch);

    let setfattr = Command::new("setfattr").arg("--version").output().is_ok();
    if std::fs::File::open("/dev/fuse").is_err() || !setfattr {
        return skip("this machine has no /dev/fuse or no setfattr");
    }
    session(mounted, &scratch);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&scratch.file("disk.img"));
    }
}

#[test]
fn the_readme_shows_the_tour() {
    let readme = read("README.md");
    let tour: Vec<String> = without_indentation(&read("crates/xfskit/examples/tour.rs"));
    let shown = without_indentation(blocks(&readme, "rust")[0]);
    assert!(tour.windows(shown.len()).any(|lines| lines == shown), "{shown:#?}");
}

fn without_indentation(code: &str) -> Vec<String> {
    code.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn the_session_about_administration_runs() {
    let page = read("docs/admin.md");
    let scratch = scratch();
    session(blocks(&page, "console")[0], &scratch);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&scratch.file("disk.img"));
        reference.repair_finds_nothing(&scratch.file("copy.img"));
    }
}

#[test]
fn the_examples_about_trees_run() {
    let page = read("docs/transfer.md");
    let examples = blocks(&page, "sh");
    assert_eq!(examples.len(), 4);
    for example in examples {
        bash(&format!("set -o pipefail\n{example}"), &scratch());
    }
}

#[test]
fn the_examples_about_disks_run() {
    if !common::disks::have(&["qemu-img", "sfdisk"]) {
        return;
    }
    let page = read("docs/disks.md");
    let [example] = blocks(&page, "sh")[..] else { panic!("the page has other examples") };
    let scratch = scratch();
    bash(&format!("set -o pipefail\n{example}"), &scratch);
    let output = bash("xfskit ls disk.qcow2#label=boot /", &scratch);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "etc-table\n");
}

#[test]
fn the_examples_for_builders_run() {
    let page = read("docs/builders.md");
    let examples = blocks(&page, "sh");
    assert_eq!(examples.len(), 6);
    for example in examples {
        bash(&format!("set -o pipefail\n{example}"), &scratch());
    }
}

/// The commands, and those of `xattr`, `log` and `admin`, as they are given.
fn commands() -> Vec<String> {
    let listed = |command: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_xfskit")).args(command.split_whitespace()).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let (_, rest) = help.split_once("\nCommands:\n").unwrap();
        let names = rest.lines().take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
        names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (groups, mut found): (Vec<_>, Vec<_>) =
        listed("--help").into_iter().partition(|name| ["xattr", "log", "admin"].contains(&name.as_str()));
    for group in groups {
        found.extend(listed(&format!("{group} --help")).into_iter().map(|name| format!("{group} {name}")));
    }
    found.retain(|name| name.split(' ').next_back() != Some("help"));
    found
}

#[test]
fn the_examples_of_help_run() {
    let mut run = Vec::new();
    for command in commands() {
        let arguments = command.split(' ').chain(["--help"]);
        let output = Command::new(env!("CARGO_BIN_EXE_xfskit")).args(arguments).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let Some((_, examples)) = help.split_once("\nExamples:\n") else { continue };
        if command == "mount" && std::fs::File::open("/dev/fuse").is_err() {
            skip("this machine has no /dev/fuse");
            continue;
        }
        let scratch = scratch();
        bash(
            "mkdir -p folder mnt; echo text > folder/file; xfskit mkfs -q --size 1G disk.img; xfskit mkdir disk.img /etc
             echo hello | xfskit write disk.img /etc/motd",
            &scratch,
        );
        bash(&format!("set -o pipefail\n{examples}"), &scratch);
        run.push(command);
    }
    assert!(run.len() >= 20, "{run:?}");
}

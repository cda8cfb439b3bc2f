//! Runs the examples of the documents and of `--help`. In a document a block's language says how it is judged:
//!
//! | language | |
//! |---|---|
//! | `console` | the commands behind `$ ` run, as root those behind `# `; the other lines are what they print |
//! | `sh` | runs with `bash -eu`, in an empty folder |
//! | `rust` | stands in the example of the library |
//! | `text` | is no example; one that shows commands is listed in [`NOT_RUN`], with the reason |
//!
//! The sessions of a document share a folder, in which hidden commands ([`common::pages`]) prepare what they need. In
//! the output numbers may differ, ` ...` at the end of a line stands for the rest of the line, and a line of `...` for
//! any lines. A command whose comment begins with "fails" must fail. Of `make`, `cargo` and `xfskit bench` only that
//! they can be called so is tested: they are these tests, or take hours. What xfs_repair says of the images that are
//! left is the judge of the commands that write.

mod common;

use common::commands;
use common::disks::have;
use common::pages::{Block, Page, Part, pages, root};
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use xfskit_testkit::{Scratch, reference, scratch, skip};

const LANGUAGES: [&str; 4] = ["console", "sh", "rust", "text"];
/// Blocks of `text` that show commands: the page, how the block begins, and why it does not run.
const NOT_RUN: [(&str, &str, &str); 8] = [
    ("README.md", "apt install ./xfskit", "would install packages; scripts/packages does, in clean systems"),
    ("docs/benchmarks.md", "$ RUSTFLAGS=", "a profile with perf of a release build takes minutes, and inferno"),
    ("docs/design/sandbox.md", "xfskit mount      starts", "is no command, but the processes of a mount"),
    ("docs/mounting.md", "cp packaging/systemd", "needs systemd as the first process, and libfuse 3.19"),
    ("docs/network.md", "qemu-nbd -t -e 4 -k /tmp/nbd.sock -f raw rbd:", "needs a Ceph cluster"),
    ("docs/results.md", "xfskit bench all", "takes an hour of a quiet machine, and writes that page"),
    ("fuzz/README.md", "cargo install cargo-fuzz", "needs a nightly toolchain"),
    ("scripts/mutants.md", "cargo mutants", "takes a night"),
];
/// Programs that a machine may lack. An example that names one is skipped there.
const OUTSIDE: [&str; 8] = ["qemu-img", "qemu-nbd", "nbdkit", "sfdisk", "setfattr", "getfattr", "python3", "zstd"];

/// A part of a document that runs in a folder of its own.
enum Example {
    Script(Block),
    Session(Vec<Part>),
}

/// The examples of a document: each script, and all sessions as one.
fn examples(page: &Page) -> Vec<Example> {
    let (mut examples, mut session, mut has_session) = (Vec::new(), Vec::new(), false);
    for part in page.parts() {
        match part {
            Part::Block(block) if block.language == "sh" => examples.push(Example::Script(block)),
            Part::Block(block) if block.language != "console" => {}
            part => {
                has_session |= matches!(part, Part::Block(_));
                session.push(part);
            }
        }
    }
    assert!(has_session || session.is_empty(), "{}: hidden commands without a session", page.name);
    if has_session {
        examples.push(Example::Session(session));
    }
    examples
}

impl Example {
    fn text(&self) -> String {
        match self {
            Example::Script(block) => block.text.clone(),
            Example::Session(parts) => {
                let text = |part: &Part| match part {
                    Part::Block(block) => block.text.clone(),
                    Part::Hidden(commands) => commands.clone(),
                };
                parts.iter().map(text).collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Whether this machine has what the example needs. If not, says that it is skipped.
    fn can_run(&self) -> bool {
        let text = self.text();
        if text.contains("xfskit mount") && fs::File::open("/dev/fuse").is_err() {
            skip("this machine has no /dev/fuse");
            return false;
        }
        let words: Vec<_> = text.split_whitespace().collect();
        let named: Vec<_> = OUTSIDE.into_iter().filter(|program| words.contains(program)).collect();
        have(&named)
    }

    fn run(&self, page: &Page) {
        let folder = Folder(scratch());
        match self {
            Example::Script(block) => drop(folder.bash(&block.text, &place(page, block))),
            Example::Session(parts) => {
                for part in parts {
                    match part {
                        Part::Hidden(commands) => drop(folder.bash(commands, &page.name)),
                        Part::Block(block) => session(block, &folder, &place(page, block)),
                    }
                }
            }
        }
        folder.judge_images();
    }
}

fn place(page: &Page, block: &Block) -> String {
    format!("{}:{}", page.name, block.line)
}

/// A folder in which examples run.
struct Folder(Scratch);

impl Folder {
    /// Runs a script with the command in its path, and returns what it prints.
    fn bash(&self, script: &str, place: &str) -> String {
        let program = Path::new(env!("CARGO_BIN_EXE_xfskit")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        let script = format!("exec 2>&1\n{}\n{script}", called_only(script));
        bash.args(["-eu", "-o", "pipefail", "-c", &script]).current_dir(self.0.path());
        bash.env("PATH", &path).env("REPOSITORY", root()).env("LC_ALL", "C").env_remove("MAKEFLAGS");
        let output = bash.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{place}: {}\n{script}\nprints:\n{printed}", output.status);
        printed
    }

    /// Images that the examples have left are sound, unless their journal is dirty.
    fn judge_images(&self) {
        let Some(reference) = reference() else { return };
        for entry in fs::read_dir(self.0.path()).unwrap().map(Result::unwrap) {
            let (path, mut magic) = (entry.path(), [0; 4]);
            let is_image = entry.file_type().unwrap().is_file()
                && fs::File::open(&path).unwrap().read_exact_at(&mut magic, 0).is_ok()
                && magic == *b"XFSB";
            let info =
                Command::new(env!("CARGO_BIN_EXE_xfskit")).args(["info", "--export"]).arg(&path).output().unwrap();
            if is_image && String::from_utf8_lossy(&info.stdout).contains("XFS_JOURNAL=clean") {
                reference.repair_finds_nothing(&path);
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let below = self.0.path().to_str().unwrap();
        for mount in fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines() {
            let mount_point = mount.split(' ').nth(1).unwrap_or_default();
            if mount_point.starts_with(below) {
                let unmounted = Command::new(env!("CARGO_BIN_EXE_xfskit")).args(["umount", mount_point]).output();
                if !unmounted.is_ok_and(|output| output.status.success()) {
                    drop(Command::new("umount").args(["-l", mount_point]).output());
                }
            }
        }
    }
}

/// Definitions for what is not run: that make has the target, that cargo has the command, its options and the package,
/// and that the arguments of `xfskit bench` can be parsed.
fn called_only(script: &str) -> String {
    let bench = r#"xfskit() { if [ "${1-}" = bench ]; then command xfskit "$@" --help > /dev/null
        else command xfskit "$@"; fi; }"#;
    let others = r#"make() { command make -n -C "$REPOSITORY" "$@" > /dev/null; }
        cargo() {
          local help; help=$(command cargo "$1" -h); shift
          while [ $# -gt 0 ]; do
            case $1 in
              --) break;;
              -p) (cd "$REPOSITORY" && command cargo pkgid --offline --locked -p "$2" > /dev/null); shift;;
              -*) grep -qw -e "$1" <<< "$help";;
            esac
            shift
          done
        }"#;
    format!("{others}\n{}", if script.contains("xfskit bench") { bench } else { "" })
}

/// Runs a session, and compares what it prints.
fn session(block: &Block, folder: &Folder, place: &str) {
    let (mut script, mut shown, mut continues) = (String::new(), Vec::new(), false);
    for line in block.text.lines() {
        let command = line.strip_prefix("$ ").or(line.strip_prefix("# ")).or(continues.then_some(line));
        let Some(command) = command else {
            shown.push(line);
            continue;
        };
        if line.starts_with("# ") && !geteuid().is_root() {
            return skip(&format!("{place} needs root"));
        }
        continues = command.ends_with('\\');
        // In a list like `a && b` the shell goes on when `a` fails.
        let fails = command.contains("  # fails");
        let line = match (fails, continues) {
            (true, _) => format!("if {command}\nthen echo 'it does not fail'; exit 1; fi\n"),
            (false, true) => format!("{command}\n"),
            (false, false) => format!("{command}\n(exit $?)\n"),
        };
        script.push_str(&line);
    }
    let printed = folder.bash(&script, place);
    let printed: Vec<&str> = printed.lines().collect();
    assert!(is_shown(&printed, &shown), "{place} shows:\n{}\nbut prints:\n{}", shown.join("\n"), printed.join("\n"));
}

/// Whether lines are as they are shown.
fn is_shown(printed: &[&str], shown: &[&str]) -> bool {
    match (printed, shown) {
        ([], []) => true,
        (_, [first, rest @ ..]) if first.trim() == "..." => {
            (0..=printed.len()).any(|skipped| is_shown(&printed[skipped..], rest))
        }
        ([printed, more @ ..], [shown, rest @ ..]) => {
            let is_same = match shown.strip_suffix(" ...") {
                Some(start) => without_numbers(printed).starts_with(&without_numbers(start)),
                None => without_numbers(printed) == without_numbers(shown),
            };
            is_same && is_shown(more, rest)
        }
        _ => false,
    }
}

fn without_numbers(line: &str) -> Vec<&str> {
    // A UUID may begin with a letter.
    let is_uuid = |word: &str| word.len() == 36 && word.split('-').count() == 5;
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) || is_uuid(word);
    line.split_whitespace().map(|word| if is_number(word) { "N" } else { word }).collect()
}

#[test]
fn the_examples_of_the_documents_run() {
    let pages = pages();
    let all = pages.iter().flat_map(|page| examples(page).into_iter().map(move |example| (page, example)));
    let all: Vec<_> = all.collect();
    assert!(all.len() >= 20, "{}", all.len());
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((page, example)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let run = || example.can_run().then(|| example.run(page));
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                failed.lock().unwrap().push(&page.name);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
}

/// Whether a block shows a command.
fn shows_a_command(block: &Block) -> bool {
    let programs = ["$", "#", "xfskit", "make", "cargo", "systemctl", "qemu-nbd", "qemu-img", "nbdkit", "perf"];
    let mut first_words = block.text.lines().filter_map(|line| line.split_whitespace().next());
    first_words.any(|word| programs.contains(&word) || word.starts_with("scripts/"))
}

#[test]
fn every_block_says_how_it_is_judged() {
    let mut not_run = NOT_RUN.to_vec();
    for page in pages() {
        for block in page.blocks() {
            let place = place(&page, &block);
            assert!(
                LANGUAGES.contains(&&*block.language),
                "{place}: a block of {:?}, not {LANGUAGES:?}",
                block.language
            );
            if block.language == "text" {
                let listed = not_run.len();
                not_run.retain(|(name, start, _)| *name != page.name || !block.text.starts_with(start));
                let is_listed = not_run.len() < listed;
                assert_eq!(shows_a_command(&block), is_listed, "{place}: a command that no test runs, and why not");
            }
        }
    }
    assert!(not_run.is_empty(), "there are no such blocks: {not_run:?}");
}

#[test]
fn what_is_shown_is_compared() {
    assert!(
        is_shown(&["a 1", "b", "c"], &["a 2", "...", "c"]) && is_shown(&["recovery: 5 of 6"], &["recovery: 7 ..."])
    );
    assert!(is_shown(&[], &["..."]) && is_shown(&["a"], &["...", "a"]));
    assert!(!is_shown(&["a"], &[]) && !is_shown(&[], &["a"]) && !is_shown(&["a x"], &["a y"]));
    assert!(!is_shown(&["a", "b"], &["...", "a"]));
}

#[test]
fn rust_of_the_documents_stands_in_an_example() {
    let lines = |code: &str| code.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let examples = fs::read_dir(root().join("crates/xfskit/examples")).unwrap();
    let sources = examples.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let sources: Vec<_> = sources.map(|source| lines(&source)).collect();
    for page in pages() {
        for block in page.blocks().iter().filter(|block| block.language == "rust") {
            let shown = lines(&block.text);
            let stands_in = |source: &Vec<String>| source.windows(shown.len()).any(|found| found == shown);
            assert!(sources.iter().any(stands_in), "{}: {shown:#?}", place(&page, block));
        }
    }
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
        let folder = Folder(scratch());
        folder.bash(
            "mkdir -p folder mnt; echo text > folder/file; xfskit mkfs -q --size 1G disk.img; xfskit mkdir disk.img /etc
             echo hello | xfskit write disk.img /etc/motd",
            &command,
        );
        folder.bash(examples, &command);
        run.push(command);
    }
    assert!(run.len() >= 20, "{run:?}");
}

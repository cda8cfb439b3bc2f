//! `xfskit bench`: a small run of each experiment, its output, and the files that it leaves.
#![cfg(feature = "bench")]

mod common;

use common::{fails, image, ok, xfskit};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use xfskit_testkit::{reference, scratch};

const EXPERIMENTS: [&str; 5] = ["fsmark", "xattr", "whiteout", "noxattr", "rename"];

fn report(line: &str, image: &Path) -> Value {
    serde_json::from_str(&ok(&format!("bench {line} --rounds 1 --json"), image)).unwrap()
}

fn runs(report: &Value) -> &Vec<Value> {
    report["experiments"][0]["runs"].as_array().unwrap()
}

fn phase<'a>(run: &'a Value, name: &str) -> &'a Value {
    run["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == name).unwrap()
}

#[test]
fn each_experiment_runs_on_an_image_and_cleans_up() {
    let scratch = scratch();
    let image = image(&scratch);
    for name in EXPERIMENTS {
        let report = report(&format!("{name} --files 64 --threads 2 --quick --on IMAGE"), &image);
        for key in ["command", "date", "machine"] {
            assert!(!report[key].is_null(), "{name}: {key}");
        }
        for run in runs(&report) {
            assert!(run["target"]["geometry"].as_str().unwrap().contains("parent=1"), "{run:#}");
            assert!(run["target"]["durability"].as_str().unwrap().len() > 10);
            for phase in run["phases"].as_array().unwrap() {
                assert!(phase["operations"].as_u64().unwrap() > 0);
                assert!(phase["wall_seconds"].as_f64().unwrap() > 0.0);
                assert!(phase["transactions"].is_u64() && phase["log_bytes"].is_u64());
            }
        }
    }
    assert_eq!(ok("ls IMAGE", &image), "");
    assert!(ok("check IMAGE", &image).contains("no faults"));
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

#[test]
fn each_experiment_runs_in_a_folder_and_cleans_up() {
    let scratch = scratch();
    for name in EXPERIMENTS {
        let report = report(&format!("{name} --files 64 --threads 2 --quick --on IMAGE"), scratch.path());
        let phases = runs(&report).iter().flat_map(|run| run["phases"].as_array().unwrap());
        assert!(phases.map(|phase| phase["transactions"].clone()).all(|count| count.is_null()), "a folder has none");
    }
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
}

#[test]
fn the_experiments_that_make_their_own_images_run_and_clean_up() {
    for name in ["fuse", "cpus"] {
        if name == "fuse" && std::fs::File::open("/dev/fuse").is_err() {
            xfskit_testkit::skip("this machine has no FUSE");
            continue;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        command.args(["bench", name, "--files", "64", "--quick", "--rounds", "1", "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let scratch_of_child = format!("xfskit-bench-{}-", child.id());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!runs(&report).is_empty() && !report["experiments"][0]["tables"].as_array().unwrap().is_empty());
        for dir in [Path::new("/dev/shm"), &std::env::temp_dir()] {
            let names = dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
            let mut left = names.filter(|left| left.to_string_lossy().starts_with(&scratch_of_child));
            assert_eq!(left.next(), None, "{name}");
        }
    }
}

/// Counts are exact: an fsync in place costs one flush, an append two, and more writers share them.
#[test]
fn fsync_counts_flushes_on_each_side_and_uses_the_folder_that_was_named() {
    let scratch = scratch();
    for (threads, case) in [("1", "1 writer"), ("8", "8 writers")] {
        let report = report(&format!("fsync --quick --threads {threads} --scratch IMAGE"), scratch.path());
        let section = &report["experiments"][0];
        assert!(section["about"].as_str().unwrap().contains(scratch.path().to_str().unwrap()));
        let notes = section["notes"].as_array().unwrap();
        assert_eq!(runs(&report).len() + notes.len(), 3, "a side is measured, or the report says why not: {notes:?}");
        for run in runs(&report) {
            assert_eq!(run["case"], case);
            let side = run["side"].as_str().unwrap();
            for (name, most) in [("overwrite", 1), ("append", 2)] {
                let phase = phase(run, name);
                let fsyncs = phase["operations"].as_u64().unwrap();
                let flushes = phase["counters"]["device_flushes"].as_u64().unwrap();
                assert!(flushes > 0, "{side}, {name}");
                if side.starts_with("xfskit") {
                    // A server's checkpoints may add some: the names of new files, times of the cache of the mount.
                    assert!(flushes <= most * fsyncs + fsyncs / 10 + 2, "{side}, {name}: {flushes} for {fsyncs}");
                }
            }
        }
    }
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_create_is_one_transaction_and_the_log_has_as_many_bytes() {
    let scratch = scratch();
    let image = image(&scratch);
    let report = report("fsmark --files 1000 --threads 1 --on IMAGE", &image);
    let run = runs(&report).iter().find(|run| run["case"] == "parent=1").unwrap();
    let create = phase(run, "create");
    assert_eq!(create["transactions"], 1000);
    let per_file = create["log_bytes"].as_f64().unwrap() / 1000.0;
    // The range of the kernel's own statistics for a create on such an image, with a checkpoint that is not full.
    assert!((380.0..520.0).contains(&per_file), "{per_file}");
    let Some(reference) = reference() else { return };
    let all = runs(&report).iter().flat_map(|run| run["phases"].as_array().unwrap());
    let counted: u64 = all.map(|phase| phase["log_bytes"].as_u64().unwrap()).sum();
    // The log of a new image is written from its beginning, so the position of its end shows how much was written: the
    // counted bytes, the directories around, and a record for each unmount.
    let printed = reference.tool_output("xfs_logprint", ["-t".as_ref(), image.as_os_str()]);
    let head = printed.split("head: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let written = head.parse::<u64>().unwrap() * 512;
    assert!((counted..counted + counted / 20).contains(&written), "{counted} were counted, {written} were written");
}

#[test]
fn reports_are_written_and_well_formed() {
    let scratch = scratch();
    let (page, json, table) = (scratch.file("a.html"), scratch.file("a.json"), scratch.file("a.md"));
    let mut line = vec!["bench", "fsmark", "--files", "20", "--rounds", "1", "--on"];
    let folder = scratch.file("folder");
    std::fs::create_dir(&folder).unwrap();
    line.extend([folder.to_str().unwrap(), "--against", folder.to_str().unwrap()]);
    for path in [&page, &json, &table] {
        line.extend(["--report", path.to_str().unwrap()]);
    }
    let output = xfskit(&line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(!page.contains("http"), "the page needs nothing from elsewhere");
    assert_well_formed(page.trim_start_matches("<!DOCTYPE html>\n"));
    let _: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert!(std::fs::read_to_string(table).unwrap().contains("|---|---:|"));
}

/// Verifies that every element is closed, in the right order.
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{}", &rest[..end.min(200)]);
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let scratch = scratch();
    let file = scratch.file("text");
    std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    for (line, code, message) in [
        ("bench fsmark --threads 0", 2, "--threads 0"),
        ("bench fsmark --files 1 --threads 2", 2, "--files 1"),
        ("bench fsmark --on /nowhere/x", 6, "no such image"),
        ("bench fsmark --against /nowhere/x", 6, "no such image"),
        ("bench fsmark --against IMAGE", 2, "not a folder"),
        ("bench fsmark --on IMAGE", 3, "not an XFS image"),
        ("bench fsmark --report a.pdf", 2, ".html, .json or .md"),
        ("bench fsmark --on /proc", 6, "cannot be written to"),
        ("bench xattr -o larp=always,wsync --on /tmp", 2, "-o larp=always,wsync: these are options of the engine"),
    ] {
        let (found, error) = fails(line, &file);
        assert_eq!((found, error.contains(message)), (code, true), "{line}: {found} {error}");
    }
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let scratch = scratch();
    let image = image(&scratch);
    let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    command.args(["bench", "fsmark", "--files", "10000000", "--size", "512M", "--on"]).arg(&image);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let message = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    assert!(!status.success() && message.contains("interrupted"), "{status}: {message}");
    assert_eq!(ok("ls IMAGE", &image), "");
    assert!(ok("check IMAGE", &image).contains("no faults"));
}

/// What is durable, and when, with `wsync`.
#[test]
fn a_report_says_that_every_change_was_durable_at_once() {
    let scratch = scratch();
    let image = image(&scratch);
    for (options, durability, wsync) in [("-o wsync ", "wsync: ", "wsync on"), ("", "as in the kernel's", "wsync off")]
    {
        let report = report(&format!("fsmark {options}--files 16 --threads 2 --quick --on IMAGE"), &image);
        for run in runs(&report) {
            let of = |key: &str| run["target"][key].as_str().unwrap();
            assert!(of("durability").starts_with(durability) && of("options").contains(wsync), "{run:#}");
        }
    }
}

#[test]
fn what_dbench_said_when_it_failed_is_passed_on() {
    let scratch = scratch();
    let programs = scratch.file("bin");
    std::fs::create_dir(&programs).unwrap();
    let script =
        "#!/bin/sh\n[ $# -gt 1 ] || exit 0\necho '[7] write failed on handle 9 (No space left on device)'\nexit 1\n";
    std::fs::write(programs.join("dbench"), script).unwrap();
    std::fs::set_permissions(programs.join("dbench"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let on = scratch.file("on");
    std::fs::create_dir(&on).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    command.args(["bench", "noxattr", "--files", "10", "--quick", "--rounds", "1", "--on"]).arg(&on).env("PATH", path);
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("No space left on device"), "{message}");
}

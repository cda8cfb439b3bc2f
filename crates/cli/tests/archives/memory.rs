//! An archive does not choose how much memory is taken.

use crate::make::{Entry, end, padded, pax, record, small};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use xfskit_testkit::scratch;

/// Most memory of a run, in bytes: several times what it takes, and a part of what the archives ask for.
const LIMIT: u64 = 700 << 20;

/// Runs a command that may have no more memory than that.
fn limited(arguments: &[&Path]) -> Output {
    let mut command = Command::new("prlimit");
    command.arg(format!("--data={LIMIT}")).arg("--").arg(env!("CARGO_BIN_EXE_xfskit")).args(arguments).process_group(0);
    command.output().unwrap()
}

fn fill(archive: &[u8], what: &str) -> Output {
    let scratch = scratch();
    let path = scratch.file("archive");
    fs::write(&path, archive).unwrap();
    let image = scratch.file("a.img");
    let line = ["mkfs", "-q", "--small", "--from"].map(Path::new);
    let output = limited(&[line.as_slice(), &[path.as_path(), image.as_path()]].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 100), "{what}: {:?}: {message}", output.status);
    output
}

/// Packs, since what is behind these archives is small.
fn packed(parts: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    use std::io::Write;
    use std::process::Stdio;
    let mut zstd =
        Command::new("zstd").args(["-q", "-c", "-3"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = zstd.stdin.take().unwrap();
    let output = std::thread::spawn(move || zstd.wait_with_output().unwrap().stdout);
    parts.for_each(|part| input.write_all(&part).unwrap());
    drop(input);
    output.join().unwrap()
}

fn refused(output: &Output, part: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(5) && message.contains(part), "{:?} {message}", output.status);
}

#[test]
fn global_headers_are_bounded() {
    let headers = (0..60_000).map(|n| pax(b'g', &[(&format!("SCHILY.xattr.user.{n}"), &[b'v'; 400])]));
    let output = fill(&packed(headers.chain([small("f"), end()])), "global attributes");
    refused(&output, "global PAX headers with more than 64 KiB");
    // What is not kept may be there as often as it likes.
    let headers = (0..60_000).map(|n| pax(b'g', &[("comment", format!("number {n}").as_bytes())]));
    assert!(fill(&packed(headers.chain([small("f"), end()])), "comments").status.success());
}

#[test]
fn headers_before_one_file_are_bounded() {
    let headers = (0..40).map(|n| pax(b'x', &[(&format!("SCHILY.xattr.user.{n}"), &vec![b'v'; 4 << 20])]));
    let output = fill(&packed(headers.chain([small("f"), end()])), "attributes of a file");
    refused(&output, "with more than 64 MiB of names and attributes");
    let tiny = record("a", b"").repeat(12 << 20);
    let header = Entry::new(b"PaxHeader", b'x').with(&tiny).bytes();
    assert!(fill(&packed([header, small("f"), end()].into_iter()), "tiny records").status.success());
}

#[test]
fn maps_of_sparse_files_are_bounded() {
    let many = 6 << 20;
    let map = b"0,".repeat(2 * many);
    let zero_one = pax(b'x', &[("GNU.sparse.map", &map[..map.len() - 1]), ("GNU.sparse.size", b"1")]);
    let output = fill(&packed([zero_one, Entry::new(b"s", b'0').bytes(), end()].into_iter()), "a map in a record");
    refused(&output, "more than 4 million parts");
    let pair = [record("GNU.sparse.offset", b"0"), record("GNU.sparse.numbytes", b"0")].concat();
    let zero_zero = Entry::new(b"PaxHeader", b'x').with(&pair.repeat(1 << 20)).bytes();
    let output =
        fill(&packed([zero_zero, Entry::new(b"s", b'0').bytes(), small("g"), end()].into_iter()), "a million pairs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = padded(&[format!("{many}\n").into_bytes(), b"0\n".repeat(2 * many)].concat());
    let header = pax(b'x', &[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"1")]);
    let output = fill(&packed([header, Entry::file(b"s", &lines).bytes(), end()].into_iter()), "a map in contents");
    refused(&output, "more than 4 million parts");
    let mut block = vec![0; 512];
    for at in 0..21 {
        block[at * 24..at * 24 + 24].copy_from_slice(b"00000000000\x0000000000000\0");
    }
    block[504] = 1;
    let header = Entry::new(b"s", b'S').magic(crate::make::GNU).at(482, &[1]).bytes();
    let blocks = std::iter::once(header).chain(std::iter::repeat_n(block.repeat(100), 3000));
    refused(&fill(&packed(blocks), "blocks of a map"), "more than 4 million parts");
}

#[test]
fn many_large_attributes_are_not_kept_at_once() {
    let values = |files: usize, kind: u8| {
        let records: Vec<u8> =
            (0..60).flat_map(|n| record(&format!("SCHILY.xattr.trusted.{n}"), &[b'v'; 60_000])).collect();
        let header = Entry::new(b"PaxHeader", b'x').with(&records).bytes();
        let file =
            move |n: usize| Entry::new(format!("{n}{}", if kind == b'5' { "/" } else { "" }).as_bytes(), kind).bytes();
        packed((0..files).flat_map(move |n| [header.clone(), file(n)]).chain([end()]))
    };
    for (kind, what) in [(b'0', "files"), (b'5', "directories"), (b'6', "pipes")] {
        let output = fill(&values(400, kind), what);
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

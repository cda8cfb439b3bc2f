//! Every option that the man page of mkfs.xfs has: what is off or the default gives the image that mkfs.xfs makes, and
//! what asks for something that xfskit has not is refused by its name.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use xfskit_testkit::{Reference, Scratch, reference, scratch};

const UUID: &str = "uuid=6b1ff5a1-2d3c-4e5f-8a9b-0c1d2e3f4a5b";
const EPOCH: &str = "1700000000";
const IMAGE_BYTES: u64 = 400 << 20;

/// What is expected of an option.
enum Expected {
    /// The image of mkfs.xfs, for each of these values. An empty one is the option alone.
    Same(&'static [&'static str]),
    /// The same for the first values, and a refusal for the others, which ask for something.
    SameBut(&'static [&'static str], &'static [&'static str]),
    /// A refusal for each of these.
    Refused(&'static [&'static str]),
}

use Expected::{Refused, Same, SameBut};

/// The options of the man page.
const OPTIONS: [(char, &str, Expected); 71] = [
    ('b', "size", Same(&["4096", "4k"])),
    ('c', "defaults", Same(&["EMPTY"])),
    ('c', "makecfg", Refused(&["/nowhere"])),
    ('c', "options", Same(&["EMPTY"])),
    ('m', "bigtime", Same(&["", "1", "0"])),
    ('m', "crc", SameBut(&["", "1"], &["0"])),
    ('m', "finobt", Same(&["", "1"])),
    ('m', "inobtcount", Same(&["", "1", "0"])),
    ('m', "metadir", SameBut(&["0"], &["", "1"])),
    ('m', "rmapbt", Same(&["", "1"])),
    ('m', "reflink", Same(&["", "1", "0"])),
    ('m', "autofsck", Same(&["", "0", "1", "none", "check", "repair", "optimize"])),
    ('m', "uuid", Same(&[])),
    ('m', "uquota", SameBut(&["0"], &["", "1"])),
    ('m', "gquota", SameBut(&["0"], &["", "1"])),
    ('m', "pquota", SameBut(&["0"], &["", "1"])),
    ('m', "uqnoenforce", SameBut(&["0"], &["", "1"])),
    ('m', "gqnoenforce", SameBut(&["0"], &["", "1"])),
    ('m', "pqnoenforce", SameBut(&["0"], &["", "1"])),
    ('d', "agcount", Same(&["4", "5"])),
    ('d', "agsize", Same(&["100m"])),
    ('d', "cowextsize", SameBut(&["0"], &["8"])),
    ('d', "name", Same(&[])),
    ('d', "file", Same(&["0", "1,size=400m"])),
    ('d', "size", Same(&["400m", "390m"])),
    ('d', "sunit", Same(&["0,swidth=0"])),
    ('d', "su", Same(&["0,sw=0"])),
    ('d', "swidth", Same(&[])),
    ('d', "sw", Same(&[])),
    ('d', "noalign", Same(&["", "0", "1"])),
    ('d', "rtinherit", SameBut(&["0"], &["", "1"])),
    ('d', "projinherit", SameBut(&["0"], &["5"])),
    ('d', "extszinherit", SameBut(&["0"], &["8"])),
    ('d', "daxinherit", SameBut(&["0"], &["", "1"])),
    ('d', "concurrency", SameBut(&["0"], &["8"])),
    ('d', "sectsize", Same(&["512", "4096"])),
    ('i', "size", Same(&["512", "1024"])),
    ('i', "perblock", Same(&["8"])),
    ('i', "maxpct", Same(&["25", "0"])),
    ('i', "align", SameBut(&["", "1"], &["0"])),
    ('i', "attr", SameBut(&["2"], &["1"])),
    ('i', "projid32bit", SameBut(&["", "1"], &["0"])),
    ('i', "sparse", Same(&["", "1", "0"])),
    ('i', "nrext64", Same(&["", "1", "0"])),
    ('i', "exchange", Same(&["", "1"])),
    ('i', "max_atomic_write", Refused(&["64k"])),
    ('l', "agnum", Same(&["1"])),
    ('l', "internal", SameBut(&["", "1"], &["0"])),
    ('l', "logdev", Same(&[])),
    ('l', "size", Same(&["64m"])),
    ('l', "version", SameBut(&["2"], &["1"])),
    ('l', "sunit", Same(&["8"])),
    ('l', "su", Same(&["4096"])),
    ('l', "lazy-count", SameBut(&["", "1"], &["0"])),
    ('l', "concurrency", SameBut(&["0"], &["8"])),
    ('l', "sectsize", Same(&["512"])),
    ('n', "size", Same(&["4096", "8192"])),
    ('n', "version", SameBut(&["2"], &["ci"])),
    ('n', "ftype", SameBut(&["", "1"], &["0"])),
    ('n', "parent", Same(&["", "1", "0"])),
    ('r', "concurrency", Same(&["", "0", "4"])),
    ('r', "rtdev", Refused(&["/nowhere"])),
    ('r', "extsize", SameBut(&["4096", "4k"], &["8192", "1m"])),
    ('r', "size", Refused(&["10m"])),
    ('r', "noalign", Same(&["", "1"])),
    ('r', "rgcount", Refused(&["4"])),
    ('r', "start", Refused(&["0"])),
    ('r', "reserved", SameBut(&["0"], &["5"])),
    ('r', "rgsize", SameBut(&["0"], &["16m"])),
    ('r', "zoned", SameBut(&["0"], &["1"])),
    ('s', "size", Same(&["512", "4096"])),
];

/// The options of a section, by the man page: in its text each begins a paragraph of its own.
fn documented(page: &str) -> Vec<(char, String)> {
    let mut section = None;
    let mut options = Vec::new();
    let mut begins = false;
    for line in page.lines() {
        let line = line.replace("\\-", "-");
        let words = line.strip_prefix(".BI ").or_else(|| line.strip_prefix(".B ")).unwrap_or_default();
        if let Some(rest) = words.strip_prefix('-') {
            // In the text an option has no description behind it.
            section = rest.chars().next().filter(|_| rest.contains('"')).or(section);
        } else if begins && let Some(letter) = section.filter(|letter| *letter != 'p') {
            if words.starts_with("\"Section") {
                continue;
            }
            // `size= value " | perblock=" value`
            for word in words.split(['"', ' ', '|']).filter(|word| !word.is_empty()) {
                let name = word.split(['=', '[', ']']).next().unwrap_or_default();
                let is_name = word.contains('=') || word.ends_with('[') || words == name || words.contains('[');
                if is_name && name.len() > 1 && name != "value" && name != "num" && name != "name" {
                    options.push((letter, name.to_owned()));
                }
            }
        }
        begins = line.starts_with(".TP");
    }
    options
}

/// The superblock: it says which features, sizes and places an image has. (`mkfs_xfs.rs` compares whole images.)
fn superblock(image: &Path) -> Vec<u8> {
    let mut sector = vec![0; 512];
    File::open(image).unwrap().read_exact_at(&mut sector, 0).unwrap();
    sector
}

/// The arguments of an option with a value.
fn arguments(letter: char, name: &str, value: &str, empty: &str) -> Vec<String> {
    let value = value.replace("EMPTY", empty);
    let option = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
    let mut arguments = vec!["-q".into(), "-f".into(), "-m".into(), UUID.into()];
    // mkfs.xfs takes the options of a letter from several places.
    arguments.extend([format!("-{letter}"), option]);
    arguments
}

fn theirs(reference: &Reference, arguments: &[String], image: &Path) -> Output {
    let clock = format!("SOURCE_DATE_EPOCH={EPOCH}");
    let fixed = [clock.as_str(), "DETERMINISTIC_SEED=1", "mkfs.xfs"];
    let all = fixed.into_iter().chain(arguments.iter().map(String::as_str)).chain([image.to_str().unwrap()]);
    reference.tool("env", all)
}

fn ours(scratch: &Scratch, arguments: &[String], image: &Path) -> Output {
    let program = scratch.file("mkfs.xfs");
    if !program.exists() {
        symlink(env!("CARGO_BIN_EXE_xfskit"), &program).unwrap();
    }
    Command::new(program).args(arguments).arg(image).env("SOURCE_DATE_EPOCH", EPOCH).output().unwrap()
}

#[test]
fn every_option_of_the_man_page_is_taken_or_refused_by_its_name() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let empty = scratch.file("empty.conf");
    fs::write(&empty, "# nothing\n").unwrap();
    let mut wrong = Vec::new();
    for (letter, name, expected) in &OPTIONS {
        let (same, refused): (&[&str], &[&str]) = match expected {
            Same(values) => (values, &[]),
            SameBut(values, refused) => (values, refused),
            Refused(values) => (&[], values),
        };
        for value in same {
            let arguments = arguments(*letter, name, value, empty.to_str().unwrap());
            let (our, their) = (scratch.image("ours", IMAGE_BYTES), scratch.image("theirs", IMAGE_BYTES));
            let judged = theirs(&reference, &arguments, &their);
            let output = ours(&scratch, &arguments, &our);
            let option = format!("-{letter} {name}={value}");
            if !judged.status.success() {
                wrong.push(format!("{option}: mkfs.xfs: {}", String::from_utf8_lossy(&judged.stderr)));
            } else if !output.status.success() {
                wrong.push(format!("{option}: {}", String::from_utf8_lossy(&output.stderr)));
            } else if superblock(&our) != superblock(&their) {
                wrong.push(format!("{option}: the superblocks differ"));
            }
        }
        for value in refused {
            let arguments = arguments(*letter, name, value, empty.to_str().unwrap());
            let image = scratch.image("ours", IMAGE_BYTES);
            let output = ours(&scratch, &arguments, &image);
            let message = String::from_utf8_lossy(&output.stderr);
            if output.status.success() || !message.contains(&format!("-{letter} {name}")) {
                wrong.push(format!("-{letter} {name}={value} is not refused by its name: {message}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_man_page_has_no_other_options() {
    if reference().is_none() {
        return;
    }
    let installed = std::env::var_os("XFS_REFERENCE").unwrap_or_else(|| "/opt/xfs-reference".into());
    let page = Path::new(&installed).join("usr/share/man/man8/mkfs.xfs.8.gz");
    let page = Command::new("gzip").arg("-dc").arg(page).output().unwrap();
    let documented = documented(&String::from_utf8(page.stdout).unwrap());
    assert!(documented.len() > 50, "{documented:?}");
    let is_known =
        |letter: char, name: &str| OPTIONS.iter().any(|(known, other, _)| *known == letter && *other == name);
    let missing: Vec<_> = documented.iter().filter(|(letter, name)| !is_known(*letter, name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// What a file of defaults says gives way to what the command line or another file says.
#[test]
fn a_file_of_defaults_gives_way() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let (defaults, options) = (scratch.file("defaults.conf"), scratch.file("options.conf"));
    fs::write(&defaults, "[inode]\nsize=1024\n[metadata]\nreflink=0\nbigtime=0\n[naming]\nparent=0\n").unwrap();
    fs::write(&options, "[metadata]\nbigtime=1\n").unwrap();
    let (our, their) = (scratch.image("ours", IMAGE_BYTES), scratch.image("theirs", IMAGE_BYTES));
    let config = format!("defaults={},options={}", defaults.display(), options.display());
    let arguments = ["-q", "-m", UUID, "-c", &config, "-n", "parent=1"].map(String::from);
    assert!(theirs(&reference, &arguments, &their).status.success());
    let output = ours(&scratch, &arguments, &our);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(superblock(&our) == superblock(&their), "the superblocks differ");
}

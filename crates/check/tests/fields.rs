//! Every field of every structure, set to its boundary values with the checksum mended: the check and xfs_repair agree
//! on whether the image is damaged, or `DISAGREEMENTS` says why not.
//!
//! `XFSKIT_FIELD_CASES=all` for every field and value, `XFSKIT_FIELD_CASES=N` for N of them; `XFSKIT_SEED` picks
//! others.

#[path = "common/mod.rs"]
mod common;

use common::{check_file, findings, kernel_image_then};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use xfskit_testkit::{Reference, Scratch, copy_image, reference, scratch};

/// Cases of a run, unless `XFSKIT_FIELD_CASES` says otherwise.
const CASES: usize = 150;

/// The verbs of xfs_db's `fuzz` command: what it does to the bits of a field.
const VERBS: [&str; 7] = ["zeroes", "ones", "firstbit", "middlebit", "lastbit", "add", "sub"];

/// xfs_db's commands for the first block of a directory's index and of its free index, in blocks of 1 KiB.
const LEAF_BLOCK: &str = "dblock 33554432";
const FREE_BLOCK: &str = "dblock 67108864";

/// The structures, with the commands that bring xfs_db there. `{name}` is the inode number of a file.
const STRUCTURES: &[(&str, &[&str])] = &[
    ("superblock", &["sb 0"]),
    ("secondary superblock", &["sb 1"]),
    ("AGF", &["agf 1"]),
    ("AGI", &["agi 0"]),
    ("AGFL", &["agfl 1"]),
    ("bnobt", &["agf 0", "addr bnoroot"]),
    ("cntbt", &["agf 1", "addr cntroot"]),
    ("rmapbt", &["agf 0", "addr rmaproot"]),
    ("rmapbt leaf", &["agf 0", "addr rmaproot", "addr ptrs[1]"]),
    ("refcountbt", &["agf 0", "addr refcntroot"]),
    ("inobt", &["agi 0", "addr root"]),
    ("finobt", &["agi 0", "addr free_root"]),
    ("root directory", &["inode {.}"]),
    ("shortform directory", &["inode {shortform}"]),
    ("directory", &["inode {node}"]),
    ("file", &["inode {source}"]),
    ("file with shortform attributes", &["inode {x short}"]),
    ("file with a bmbt", &["inode {fragments}"]),
    ("bmbt", &["inode {fragments}", "addr u3.bmbt.ptrs[1]"]),
    ("symbolic link", &["inode {link}"]),
    ("long symbolic link", &["inode {long link}"]),
    ("target", &["inode {long link}", "dblock 0"]),
    ("pipe", &["inode {pipe}"]),
    ("device", &["inode {null}"]),
    ("block directory", &["inode {block}", "dblock 0"]),
    ("directory data", &["inode {leaf}", "dblock 0"]),
    ("directory leaf", &["inode {leaf}", LEAF_BLOCK]),
    ("directory node", &["inode {node}", LEAF_BLOCK]),
    ("directory free index", &["inode {node}", FREE_BLOCK]),
    ("attr leaf", &["inode {x leaf}", "ablock 0"]),
    ("attr node", &["inode {x node}", "ablock 0"]),
    ("attr leaf with remote values", &["inode {x remote}", "ablock 0"]),
];

/// Files that the structures name.
const FILES: &[&str] = &[
    ".",
    "shortform",
    "block",
    "leaf",
    "node",
    "fragments",
    "source",
    "x short",
    "x leaf",
    "x node",
    "x remote",
    "link",
    "long link",
    "pipe",
    "null",
];

/// Which of the two finds something that the other does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Only {
    Check,
    Repair,
}

/// Disagreements that are right: which of the two finds something, in which structures (by the start of their names),
/// in which fields (by a part of their names), and why.
const DISAGREEMENTS: &[(Only, &str, &str, &str)] = &[
    (Only::Check, "", "lsn", "xfs_repair -n does not compare LSNs with the log's"),
    (Only::Check, "", "sib", "xfs_repair builds trees anew and does not follow siblings"),
    (
        Only::Check,
        "rmapbt",
        "keys[",
        "xfs_repair compares keys of blocks with their first record by block number alone",
    ),
    (Only::Check, "refcountbt", "keys[", "xfs_repair does not compare keys with records"),
    (Only::Repair, "rmapbt", "keys[", "the bit of unwritten extents counts in records, not in keys"),
    (Only::Check, "superblock", "quotino", "xfs_repair does not look at quota inodes while quotas are off"),
    (Only::Check, "superblock", "logsunit", "0 and 1 both mean none, and xfs_repair does not compare the copies"),
    (Only::Check, "secondary superblock", "logsunit", "xfs_repair does not compare it"),
    (Only::Check, "secondary superblock", "dirblklog", "xfs_repair does not compare it"),
    (Only::Check, "secondary superblock", "uuid", "xfs_repair does not compare it"),
    (Only::Repair, "superblock", "features_compat", "compatible bits without a name are a newer tool's, no damage"),
    (Only::Repair, "secondary superblock", "features_compat", "as in the first superblock"),
    (Only::Repair, "superblock", "features_log_incompat", "the bit of logged attributes is set while they are in use"),
    (Only::Check, "AGI", "newino", "a hint that xfs_repair does not look at; the kernel's scrub does"),
    (Only::Check, "directory", "hdr.back", "xfs_repair builds the index anew and does not follow siblings"),
    (Only::Check, "directory", "core.size", "xfs_repair reads on while blocks are mapped"),
    (Only::Check, "", "u3.bmbt.ptrs", "xfs_repair leaves out the bits of a block number that no device reaches"),
    (Only::Check, "attr leaf with remote values", "value", "xfs_repair reads no values but ACLs"),
    (
        Only::Check,
        "file with shortform attributes",
        "name",
        "xfs_repair does not look for names that stand there twice",
    ),
];

/// A field that is set.
#[derive(Clone, Debug)]
struct Case {
    structure: &'static str,
    go: Vec<String>,
    field: String,
    verb: &'static str,
}

/// An image, and all cases for it.
struct Base {
    image: PathBuf,
    cases: Vec<Case>,
}

/// Options of mkfs: the features of today, and those of RHEL 8, whose inodes have other times and counters.
const BASES: [&[(char, &str)]; 2] = [
    &[('b', "size=1024"), ('n', "size=4096"), ('d', "agcount=2"), ('l', "size=8m")],
    &[
        ('b', "size=1024"),
        ('n', "size=4096,parent=0"),
        ('d', "agcount=2"),
        ('l', "size=8m"),
        ('m', "bigtime=0,inobtcount=0"),
        ('i', "nrext64=0,exchange=0"),
    ],
];

/// The names of the fields that xfs_db prints of a structure; of an array, its first and its last element.
fn field_names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(" = ") else { continue };
        // `name[1-12] = [startblock,blockcount] 1:[10,3] 2:...`, or without fields.
        let Some((array, range)) = name.split_once('[').filter(|(_, range)| range.contains('-')) else {
            let index = name.split(['[', ']']).nth(1).and_then(|index| index.parse::<u32>().ok());
            let is_first = index.is_none_or(|index| index < 2);
            if is_first && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._[]".contains(&b)) {
                names.push(name.to_owned());
            }
            continue;
        };
        let (Some((first, last)), Some(end)) =
            (range.split_once(']').and_then(|(range, _)| range.split_once('-')), value.find(']'))
        else {
            continue;
        };
        let members = value.strip_prefix('[').filter(|_| !value.starts_with("[]")).map(|_| &value[1..end]);
        for index in [first, last] {
            match members {
                Some(members) => names.extend(members.split(',').map(|member| format!("{array}[{index}].{member}"))),
                None => names.push(format!("{array}[{index}]")),
            }
        }
    }
    names
}

fn base(reference: &Reference, scratch: &Scratch, options: &[(char, &str)]) -> Option<Base> {
    let mut numbers = BTreeMap::new();
    let mut look = |root: &Path| {
        for path in FILES {
            let inode = std::fs::symlink_metadata(root.join(path)).expect("a file of the tree").ino();
            numbers.insert(*path, inode);
        }
    };
    let image = kernel_image_then(scratch, "base.img", 64, options, &mut look)?;
    let mut cases = Vec::new();
    for &(structure, commands) in STRUCTURES {
        let numbered = |command: &&str| {
            numbers.iter().fold((*command).to_owned(), |text, (name, number)| {
                text.replace(&format!("{{{name}}}"), &number.to_string())
            })
        };
        let go: Vec<String> = commands.iter().map(numbered).collect();
        let mut arguments: Vec<&str> = go.iter().map(String::as_str).collect();
        arguments.push("print");
        let names = field_names(&reference.db(&image, &arguments));
        assert!(names.len() > 2, "{structure} has the fields {names:?}");
        for field in names {
            let case = |verb| Case { structure, go: go.clone(), field: field.clone(), verb };
            cases.extend(VERBS.map(case));
        }
    }
    Some(Base { image, cases })
}

/// Sets the field in a copy of the image. `false` where that changes nothing.
fn set(reference: &Reference, base: &Base, case: &Case, copy: &Path) -> bool {
    copy_image(&base.image, copy);
    let fuzz = format!("fuzz -d {} {}", case.field, case.verb);
    let commands = case.go.iter().chain([&fuzz]).flat_map(|command| ["-c", command.as_str()]);
    let output =
        reference.tool("xfs_db", ["-x"].into_iter().chain(commands).chain([copy.to_str().expect("a plain path")]));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // xfs_db prints the new value, or why there is none.
    output.status.success() && text.contains(" = ")
}

/// The disagreement of a case, if there is one.
fn disagreement(reference: &Reference, base: &Base, case: &Case, copy: &Path) -> Option<(Only, String)> {
    if !set(reference, base, case, copy) {
        return None;
    }
    let ours = match std::panic::catch_unwind(|| try_check(copy)) {
        Ok(found) => found,
        Err(_) => panic!("the check panics: {case:?}"),
    };
    let theirs = reference.repair_findings(copy, None);
    match (ours, theirs) {
        (Some(ours), None) => Some((Only::Check, ours)),
        (None, Some(theirs)) => Some((Only::Repair, theirs)),
        _ => None,
    }
}

/// What the check finds, or why it cannot check.
fn try_check(image: &Path) -> Option<String> {
    let device = xfskit_device::FileDevice::open(image, xfskit_device::Access::Read).expect("an image");
    let options = xfskit_check::CheckOptions::default();
    match xfskit_check::check(std::sync::Arc::new(device), None, &options, &xfskit_check::Quiet) {
        Ok(report) => (!report.is_clean()).then(|| findings(&report)),
        Err(error) => Some(error.to_string()),
    }
}

/// The cases of this run.
fn chosen(cases: &[Case]) -> Vec<&Case> {
    let seed = std::env::var("XFSKIT_SEED").ok().and_then(|seed| seed.parse::<usize>().ok()).unwrap_or(1);
    let count = match std::env::var("XFSKIT_FIELD_CASES").as_deref() {
        Ok("all") => return cases.iter().collect(),
        Ok(count) => count.parse().expect("a number of cases, or `all`"),
        Err(_) => CASES,
    };
    // A step that shares no divisor with the number of cases meets all of them.
    let step = (cases.len() * 5 / 13..).find(|step| gcd(*step, cases.len()) == 1);
    let step = step.expect("there are infinitely many");
    (0..count.min(cases.len())).map(|n| &cases[(seed * 1009 + n * step) % cases.len()]).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Judges the cases of one image, and returns how many disagreements are explained.
fn judge(reference: &Reference, scratch: &Scratch, base: &Base, wrong: &mut Vec<String>) -> usize {
    let copy = scratch.file("copy.img");
    let mut explained = 0;
    for case in chosen(&base.cases) {
        let Some((only, text)) = disagreement(reference, base, case, &copy) else { continue };
        let known = DISAGREEMENTS.iter().any(|(who, structure, field, _)| {
            *who == only && case.structure.starts_with(structure) && case.field.contains(field)
        });
        if known {
            explained += 1;
            continue;
        }
        let noise = ["Phase", "No modify", "Cannot get host", "Repair may fail", "the image and", "xfs_repair on"];
        let interesting = |line: &&str| !noise.iter().any(|noise| line.starts_with(noise)) && !line.contains("- ");
        let lines: Vec<&str> =
            text.lines().filter(interesting).filter(|line| !line.ends_with("faults")).take(2).collect();
        let Case { structure, field, verb, .. } = case;
        wrong.push(format!("only {only:?}: {structure}: {field} {verb}: {}", lines.join(" / ")));
    }
    explained
}

#[test]
fn each_field_is_judged_as_by_xfs_repair() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let mut wrong = Vec::new();
    for options in BASES {
        let Some(base) = base(&reference, &scratch, options) else { return };
        reference.repair_finds_nothing(&base.image);
        assert!(check_file(&base.image).is_clean());
        let explained = judge(&reference, &scratch, &base, &mut wrong);
        println!("{} of {} cases, {explained} disagreements explained", chosen(&base.cases).len(), base.cases.len());
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

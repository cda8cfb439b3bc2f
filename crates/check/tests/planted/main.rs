//! Planted faults: one for each verifier and each cross-reference. Each is found and named, and the table says whether
//! xfs_repair sees it too.

#[path = "../common/mod.rs"]
mod common;
mod table;

use common::{check_file, findings, kernel_image_then};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use table::{ALL, Plant};
use xfskit_testkit::{Reference, Scratch, copy_image, reference, scratch};

/// An image, and the numbers for the placeholders of the table.
struct Base {
    image: PathBuf,
    numbers: HashMap<String, u64>,
}

const FILES: &[&str] = &[
    ".",
    "shortform",
    "block",
    "leaf",
    "node",
    "fragments",
    "fragments copy",
    "punched",
    "unwritten",
    "source",
    "x short",
    "x leaf",
    "x node",
    "x remote",
    "link",
    "long link",
    "pipe",
    "level 0",
    "level 0/level 1",
    "level 0/level 1/level 2",
];

fn number_after(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.trim().strip_prefix(key)?.trim().strip_prefix('=')).expect(key);
    value.trim().parse().expect(key)
}

/// The index in a line such as `bu[7].name = ...`.
fn bracketed(line: &str) -> u64 {
    let index = line.split(['[', ']']).nth(1).and_then(|index| index.parse().ok());
    index.expect("an index in brackets")
}

fn base(reference: &Reference, scratch: &Scratch) -> Option<Base> {
    let options = [('b', "size=1024"), ('n', "size=4096"), ('d', "agcount=2"), ('l', "size=8m")];
    let mut numbers = HashMap::new();
    let mut look = |root: &Path| {
        for path in FILES {
            let inode = std::fs::symlink_metadata(root.join(path)).expect("a file of the tree").ino();
            numbers.insert((*path).to_owned(), inode);
            numbers.insert(format!("{path}%64"), inode % 64);
        }
    };
    let image = kernel_image_then(scratch, "base.img", 64, &options, &mut look)?;
    let root = numbers["."];
    let text = reference.db(&image, &["agf 0", "print fllast"]);
    numbers.insert("fllast".into(), number_after(&text, "fllast"));
    // The index of an entry in the root directory's block.
    let text = reference.db(&image, &[&format!("inode {root}"), "dblock 0", "print"]);
    let entry = text.lines().find(|line| line.ends_with("= \"level 0\"")).expect("an entry");
    numbers.insert("entry".into(), bracketed(entry));
    // The first attribute with a value in blocks of its own.
    let text = reference.db(&image, &[&format!("inode {}", numbers["x remote"]), "ablock 0", "print"]);
    let value = text.lines().find(|line| line.contains(".valueblk")).expect("a remote value");
    numbers.insert("value".into(), bracketed(value));
    free_extents(reference, &image, &mut numbers);
    twins(reference, &image, &mut numbers);
    Some(Base { image, numbers })
}

/// Notes lengths of free extents of AG 0, which differ from run to run, for the kernel's write-back thread chooses when
/// it allocates: three blocks less than the second extent, and one more than the third by length.
fn free_extents(reference: &Reference, image: &Path, numbers: &mut HashMap<String, u64>) {
    let length = |root: &str, index: usize| {
        let text = reference.db(image, &["agf 0", root, &format!("print recs[{index}].blockcount")]);
        number_after(&text, &format!("recs[{index}].blockcount"))
    };
    let second = length("addr bnoroot", 1);
    assert!(second > 3, "the second free extent has {second} blocks");
    numbers.insert("fewer free".into(), second - 3);
    numbers.insert("longer than the next".into(), length("addr cntroot", 2) + 1);
}

/// Finds two entries of the leaf form whose hashes are adjacent in the index. Notes where the first is in the index and
/// in the data, and the hash and the name of the second.
fn twins(reference: &Reference, image: &Path, numbers: &mut HashMap<String, u64>) {
    let inode = format!("inode {}", numbers["leaf"]);
    let text = reference.db(image, &[&inode, "dblock 33554432", "print"]);
    let number = |line: &str| {
        let value = line.split("= ").nth(1)?.trim();
        value.strip_prefix("0x").map_or_else(|| value.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
    };
    let hashes: Vec<u64> = text.lines().filter(|line| line.contains("].hashval")).filter_map(number).collect();
    let places: Vec<u64> = text.lines().filter(|line| line.contains("].address")).filter_map(number).collect();
    // `.` and `..` lie below 0x18, and the second data block has addresses from 0x200 on.
    let fits = |index: &usize| places[*index..*index + 2].iter().all(|&place| (0x18..0x200).contains(&place));
    let first = (2..places.len() - 1).find(fits).expect("two entries");
    let data = reference.db(image, &[&inode, "dblock 0", "print"]);
    let entry = |index: usize| {
        let tag = format!(".tag = {:#x}", places[index] * 8);
        bracketed(data.lines().find(|line| line.ends_with(&tag)).expect("an entry"))
    };
    let start = format!("du[{}].name =", entry(first + 1));
    let name = data.lines().find(|line| line.starts_with(&start)).and_then(|line| line.split_whitespace().last());
    numbers.insert("twin".into(), entry(first));
    numbers.insert("twin place".into(), first as u64);
    numbers.insert("twin hash".into(), hashes[first + 1]);
    numbers.insert("name".into(), name.and_then(|n| n.trim_end_matches('"').parse().ok()).expect("a number"));
}

/// Plants a fault in a copy of the image.
fn plant(reference: &Reference, base: &Base, copy: &Path, plant: &Plant) -> Result<(), String> {
    copy_image(&base.image, copy);
    let mut arguments = vec!["-x".to_owned()];
    for command in plant.commands {
        let mut command = (*command).to_owned();
        for (name, value) in &base.numbers {
            command = command.replace(&format!("{{{name}}}"), &value.to_string());
        }
        assert!(!command.contains('{'), "{command}");
        arguments.extend(["-c".into(), command]);
    }
    arguments.push(copy.display().to_string());
    let output = reference.tool("xfs_db", &arguments);
    assert!(output.status.success(), "{}: {}", plant.name(), String::from_utf8_lossy(&output.stderr));
    let same = Command::new("cmp").arg("-s").arg(&base.image).arg(copy).status().expect("cmp").success();
    if !same {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("{}: nothing was changed: {}", plant.name(), String::from_utf8_lossy(&text)))
}

#[test]
fn every_planted_fault_is_found_and_named() {
    let scratch = scratch();
    let Some(reference) = reference() else { return };
    let Some(base) = base(&reference, &scratch) else { return };
    reference.repair_finds_nothing(&base.image);
    assert!(check_file(&base.image).is_clean());
    let copy = scratch.file("copy.img");
    let mut wrong = Vec::new();
    for fault in ALL.iter().copied().flatten() {
        if let Err(why) = plant(&reference, &base, &copy, fault) {
            wrong.push(why);
            continue;
        }
        let report = check_file(&copy);
        let named = report.faults.iter().find(|found| found.structure == fault.structure && found.check == fault.check);
        match named {
            None => wrong.push(format!("{}: not found, but {}", fault.name(), findings(&report))),
            Some(named) => {
                assert!(named.address.is_some() && named.owner.is_some() || named.structure == "superblock", "{named}")
            }
        }
        let seen = reference.repair_findings(&copy, None);
        if seen.is_some() != fault.repair {
            wrong.push(format!("{}: xfs_repair {:?}", fault.name(), seen.map(|text| text.len())));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    println!(
        "{} faults, {} of them seen by xfs_repair",
        ALL.iter().map(|list| list.len()).sum::<usize>(),
        ALL.iter().copied().flatten().filter(|fault| fault.repair).count()
    );
}

//! Planted faults: one for each verifier and each cross-reference. Each is found and named, and the table says whether
//! xfs_repair sees it too.

#[path = "../common/mod.rs"]
mod common;
mod table;

use common::{check_file, findings, kernel_image_then};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use table::{ALL, Plant};
use xfskit_testkit::{Reference, Scratch, reference, scratch};

/// An image with the numbers that the table's placeholders stand for.
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
    // The place of an entry in the root directory's block.
    let text = reference.db(&image, &[&format!("inode {root}"), "dblock 0", "print"]);
    let entry = text.lines().find(|line| line.ends_with("= \"level 0\"")).expect("an entry");
    let index = entry.trim_start_matches("bu[").split(']').next().and_then(|index| index.parse().ok());
    numbers.insert("entry".into(), index.expect("an entry of the block form"));
    Some(Base { image, numbers })
}

/// Plants a fault in a copy of the image.
fn plant(reference: &Reference, base: &Base, copy: &Path, plant: &Plant) -> Result<(), String> {
    std::fs::copy(&base.image, copy).expect("a copy");
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
    let changed = std::fs::read(copy).unwrap() != std::fs::read(&base.image).unwrap();
    if changed {
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

//! The layers of ARCHITECTURE.md: a `use` that points up fails.

use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest to the highest; modules on one line are one layer.
const LAYERS: &[&[&str]] = &[
    &["error", "sync", "counters", "credits", "cycle", "error_tags", "env", "hash"],
    &["item"],
    &["cache"],
    &["journal"],
    &["trans"],
    &["btree"],
    &["space"],
    &["inode"],
    &["dabtree", "dir", "attr", "parent", "symlink", "data"],
    &["recover"],
    &["ops", "rescue"],
];

/// What may point up, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("", "mount", "the context that every layer from transactions upwards shares; it has no logic of theirs"),
    ("space/inodes", "inode", "new inode chunks are written in the form of inode clusters"),
];

fn rank(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Modules named by `crate::NAME` in the text.
fn uses(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    for line in code {
        for (at, _) in line.match_indices("crate::") {
            // A macro's own `$crate` is another thing.
            if at > 0 && line.as_bytes()[at - 1] == b'$' {
                continue;
            }
            let rest = &line[at + 7..];
            let names = rest.strip_prefix('{').and_then(|list| list.split('}').next()).unwrap_or(rest);
            for name in names.split(',') {
                let name: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                found.push(name);
            }
        }
    }
    found
}

#[test]
fn no_module_uses_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap().with_extension("");
        let name = relative.to_str().unwrap();
        let module = name.split('/').next().unwrap();
        let Some(own) = rank(module) else { continue };
        if name.ends_with("tests") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        // Unit tests may build on anything.
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        for used in uses(code) {
            let above = rank(&used).is_some_and(|rank| rank > own) || used == "mount";
            let excused = EXCEPTIONS.iter().any(|(from, to, _)| name.starts_with(from) && used == *to);
            let too_low = used == "mount" && own < rank("trans").unwrap();
            if above && (!excused || too_low) {
                wrong.push(format!("{name} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

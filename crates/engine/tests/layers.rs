//! The layers of ARCHITECTURE.md: a module that uses one above it fails, whether by a path, or by a method that a
//! module above adds to a type from below. Within a folder no two files use each other, also not by way of others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest to the highest; modules on one line are one layer.
const LAYERS: &[&[&str]] = &[
    &["error", "sync", "counters", "credits", "cycle", "error_tags", "env", "hash", "value"],
    &["item"],
    &["buffer"],
    &["incore"],
    &["journal"],
    &["mount"],
    &["trans"],
    &["btree"],
    &["space"],
    &["inode"],
    &["dabtree", "dir", "attr", "parent", "symlink", "data"],
    &["open"],
    &["finish"],
    &["ops"],
    &["test_image"],
];

fn rank(module: &str) -> usize {
    let found = LAYERS.iter().position(|layer| layer.contains(&module));
    found.unwrap_or_else(|| panic!("the module {module} has no layer"))
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

/// A source file without comments and unit tests, which may build on anything.
struct Source {
    name: String,
    module: String,
    code: String,
}

fn engine() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap().with_extension("").to_str().unwrap().to_owned();
        let module = name.split('/').next().unwrap().to_owned();
        if module == "lib" || name.ends_with("tests") || name.contains("/tests/") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        found.push(Source { name, module, code });
    }
    found
}

/// Modules named by `crate::NAME` in the text.
fn uses(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        // A macro's own `$crate` is another thing.
        if code[..at].ends_with('$') {
            continue;
        }
        let rest = &code[at + 7..];
        let names = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default().split(',').collect(),
            None => vec![rest],
        };
        for name in names {
            let name: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.insert(name);
        }
    }
    found
}

/// The methods that a text adds to `type_name` in blocks `impl TYPE {`.
fn methods_of(code: &str, type_name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in code.lines() {
        if line.starts_with("impl") {
            let head = line.trim_end_matches('{').trim();
            let subject = head.rsplit(' ').next().unwrap().split('<').next().unwrap();
            inside = subject == type_name && !head.contains(" for ");
        } else if line.starts_with('}') {
            inside = false;
        }
        let Some(at) = line.find("fn ").filter(|at| inside && *at <= 20) else { continue };
        found.push(line[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
    }
    found
}

#[test]
fn no_module_uses_one_above_it() {
    let sources = engine();
    let modules: BTreeSet<_> = sources.iter().map(|source| source.module.clone()).collect();
    let mut wrong = Vec::new();
    for Source { name, module, code } in &sources {
        for used in uses(code).intersection(&modules) {
            if rank(used) > rank(module) {
                wrong.push(format!("{name} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Types to which several layers add methods, and how a value of each is called where it is used.
const SHARED: &[(&str, &[&str])] = &[
    ("Mount", &["mount", "mount()", "self.mount"]),
    ("Journal", &["journal", "self.journal"]),
    ("Transaction", &["tx", "self.tx"]),
    ("Inode", &["inode"]),
    ("InodeState", &["state"]),
];

#[test]
fn no_module_calls_a_method_that_one_above_it_adds() {
    let sources = engine();
    let mut wrong = Vec::new();
    for (type_name, receivers) in SHARED {
        // The lowest layer that has a method of that name.
        let mut layer_of: BTreeMap<String, usize> = BTreeMap::new();
        for source in &sources {
            for method in methods_of(&source.code, type_name) {
                let rank = rank(&source.module);
                layer_of.entry(method).and_modify(|lowest| *lowest = rank.min(*lowest)).or_insert(rank);
            }
        }
        assert!(!layer_of.is_empty(), "{type_name} has methods");
        for Source { name, module, code } in &sources {
            for (method, layer) in &layer_of {
                let calls = receivers.iter().any(|receiver| code.contains(&format!("{receiver}.{method}(")));
                if calls && *layer > rank(module) {
                    wrong.push(format!("{name} calls {type_name}::{method} of layer {layer}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The names that follow each `prefix` in the code: one, or the heads of a list in braces.
fn names_behind(code: &str, prefix: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with("super::") || code[..at].ends_with('$') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            continue;
        };
        let (mut depth, mut name) = (0, String::new());
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => drop(found.insert(std::mem::take(&mut name))),
                c if depth == 0 => name.push(c),
                _ => {}
            }
        }
        found.insert(name);
    }
    let head = |name: String| name.split("::").next().unwrap_or_default().trim().to_owned();
    found.into_iter().map(head).collect()
}

#[test]
fn no_two_files_of_a_folder_use_each_other() {
    // Folder, then file or folder in it, then what that uses of its neighbours.
    let mut folders: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for Source { name, code, .. } in engine() {
        let steps: Vec<_> = name.split('/').collect();
        for depth in 1..steps.len() {
            let (folder, member) = (steps[..depth].join("/"), steps[depth]);
            if member == "mod" || member.ends_with("_tests") {
                continue;
            }
            // How the code of a neighbour is named from the file.
            let levels = steps.len() - depth - usize::from(steps.last() == Some(&"mod"));
            let mut uses = names_behind(&code, &format!("crate::{}::", steps[..depth].join("::")));
            uses.extend(names_behind(&code, &"super::".repeat(levels)));
            uses.remove(member);
            folders.entry(folder).or_default().entry(member.to_owned()).or_default().extend(uses);
        }
    }
    let mut circles = Vec::new();
    for (folder, mut members) in folders {
        loop {
            let names: BTreeSet<_> = members.keys().cloned().collect();
            let before = members.len();
            members.retain(|_, uses| uses.intersection(&names).next().is_some());
            if members.len() == before {
                break;
            }
        }
        circles.extend(members.into_keys().map(|member| format!("{folder}/{member}")));
    }
    assert!(circles.is_empty(), "in a circle, or above one: {circles:#?}");
}

//! The layers of ARCHITECTURE.md. A module of the engine that uses one above it fails, whether by a path, or by a
//! method that a module above adds to a type from below; and so does a crate that is built on one above it.

use crate::circles::Modules;
use crate::source::{crates, root, sources_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, from the lowest to the highest; those on one line do not use each other. Tests may use any.
const CRATES: &[&[&str]] = &[
    &["model-sync", "vfs"],
    &["ondisk", "device", "sandbox", "fuse-session"],
    &["nbd", "disk", "mkfs", "check", "testkit", "conformance"],
    &["engine"],
    &["xfskit"],
    &["fuse", "transfer", "sim"],
    &["bench", "fuzz-harness"],
    &["cli"],
];

/// The modules of the engine and of its face, from the lowest to the highest; those on one line are one layer.
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
    &["vfs", "rescue"],
    &["paths", "volume"],
    &["test_image"],
];

fn position(layers: &[&[&str]], member: &str) -> usize {
    let found = layers.iter().position(|layer| layer.contains(&member));
    found.unwrap_or_else(|| panic!("{member} has no layer"))
}

fn rank(module: &str) -> usize {
    position(LAYERS, module)
}

fn name_of(krate: &Path) -> String {
    krate.file_name().expect("the crate's folder").display().to_string()
}

/// The project's crates with which a crate is built.
fn built_on(krate: &Path) -> BTreeSet<String> {
    let manifest = fs::read_to_string(krate.join("Cargo.toml")).expect("a manifest");
    let mut is_wanted = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_wanted = line.ends_with("dependencies]") && !line.contains("dev-");
        } else if let Some(name) =
            line.split([' ', '.', '=']).next().filter(|name| is_wanted && name.starts_with("xfskit"))
        {
            found.insert(name.strip_prefix("xfskit-").unwrap_or(name).to_owned());
        }
    }
    found
}

#[test]
fn no_crate_is_built_on_one_beside_or_above_it() {
    let mut wrong = Vec::new();
    let mut edges = 0;
    for krate in crates() {
        let name = name_of(&krate);
        for below in built_on(&krate) {
            edges += 1;
            if position(CRATES, &below) >= position(CRATES, &name) {
                wrong.push(format!("{name} on {below}"));
            }
        }
    }
    assert!(wrong.is_empty() && edges > 20, "{wrong:#?}");
}

/// The crates that know no filesystem: they are built on these alone.
const KNOW_NO_FILESYSTEM: &[&str] =
    &["model-sync", "vfs", "device", "sandbox", "fuse-session", "nbd", "disk", "fuse", "transfer"];

#[test]
fn crates_that_know_no_filesystem_are_built_on_none() {
    for name in KNOW_NO_FILESYSTEM {
        let below = built_on(&root().join("crates").join(name));
        let wrong: Vec<_> = below.iter().filter(|below| !KNOW_NO_FILESYSTEM.contains(&below.as_str())).collect();
        assert!(wrong.is_empty(), "{name} on {wrong:?}");
    }
}

/// The folders of the engine's modules.
fn engine() -> Vec<PathBuf> {
    let found: Vec<_> = ["engine", "xfskit"].map(|name| root().join("crates").join(name)).into();
    found.into_iter().filter(|path| path.exists()).collect()
}

#[test]
fn no_module_uses_one_above_it() {
    let mut wrong = Vec::new();
    for krate in engine() {
        let uses = Modules::of(sources_of(&krate)).uses();
        for (module, used) in uses.get(&Vec::new()).into_iter().flatten() {
            wrong.extend(used.iter().filter(|(used, _)| rank(used) > rank(module)).map(|(_, what)| what.clone()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A file of the engine.
struct Source {
    name: String,
    module: String,
    code: String,
}

fn files() -> Vec<Source> {
    let mut found = Vec::new();
    for (name, source) in engine().iter().flat_map(|krate| sources_of(krate)) {
        let name = name.trim_end_matches(".rs").to_owned();
        let module = name.split('/').next().expect("a name").to_owned();
        if module != "lib" && !name.ends_with("tests") && !name.contains("/tests/") {
            found.push(Source { name, module, code: source.shipped });
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
    let sources = files();
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

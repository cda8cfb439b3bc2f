//! The packages of others that this program contains: their source, their licence, and the number of their versions.

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// The source of every package that is not part of this project.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Licences under which a package may be distributed in programs under MIT and Apache-2.0.
const LICENCES: [&str; 9] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// Packages in two versions, and why.
const TWICE: [(&str, &str); 3] = [
    ("getrandom", "ring is on the version before that of tempfile; both are some lines around one system call"),
    ("syn", "derive macros are between its second and its third version; nothing of it is linked"),
    ("console", "public-api, which a test of the library uses, shows differences in colours; nothing of it is linked"),
];

fn packages() -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--offline", "--locked"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Whether one of the alternatives of a licence allows it.
fn is_allowed(licence: &str) -> bool {
    let alternatives = licence.split(" OR ").flat_map(|part| part.split('/')).collect::<Vec<_>>();
    let is_known = |part: &str| LICENCES.contains(&part.trim_matches(['(', ')', ' ']));
    // "(A OR B) AND C" is split at AND first.
    match licence.split_once(") AND ") {
        Some((left, right)) => is_allowed(left.trim_start_matches('(')) && is_allowed(right),
        None => alternatives.iter().any(|part| part.split(" AND ").all(is_known)),
    }
}

#[test]
fn every_package_is_from_the_registry_under_a_licence_that_is_known() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        assert!(
            package["source"].is_null() || package["source"] == REGISTRY,
            "{name} comes from {}",
            package["source"]
        );
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_allowed(licence), "{name} has the licence {licence:?}");
    }
    assert!(is_allowed("(MIT OR GPL-2.0) AND Zlib") && is_allowed("MIT/GPL-2.0"));
    assert!(!is_allowed("GPL-2.0") && !is_allowed("MIT AND GPL-2.0") && !is_allowed("(MIT OR Zlib) AND GPL-2.0"));
    assert!(!is_allowed(""));
}

#[test]
fn no_package_is_there_twice() {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages() {
        let text = |key: &str| package[key].as_str().unwrap().to_owned();
        versions.entry(text("name")).or_default().push(text("version"));
    }
    for (name, found) in versions {
        let is_excused = TWICE.iter().any(|(twice, _)| *twice == name) && found.len() == 2;
        assert!(found.len() == 1 || is_excused, "{name} is there in the versions {found:?}");
    }
}

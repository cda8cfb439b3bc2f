//! `public-api.txt` lists what a caller of the library can name without the feature `internals`, so that a person can
//! review the list and its changes.

use public_api::PublicApi;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{env, fs};

/// Renews the list.
const RENEW: &str = "XFSKIT_RENEW_PUBLIC_API=1 cargo test -p xfskit --test public_api";

/// The modules that `lib.rs` hides.
fn engine() -> Vec<String> {
    let (_, declarations) = include_str!("../src/lib.rs").split_once("\nmod engine {").unwrap();
    let (declarations, _) = declarations.split_once("\n}").unwrap();
    let declared = |line: &str| line.trim().strip_prefix("pub mod ")?.strip_suffix(';').map(str::to_owned);
    let engine: Vec<_> = declarations.lines().filter_map(declared).collect();
    assert!(engine.contains(&"error".to_owned()) && engine.len() > 20, "{engine:?}");
    engine
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library's documentation as JSON, built as a caller gets it: with the default features.
///
/// The format is not stable, so rustdoc requires an option for it. A warning of rustdoc is an error.
fn document() -> PathBuf {
    let target = folder().join("../../target/public-api");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["rustdoc", "--locked", "--quiet", "--lib", "--manifest-path"]).arg(folder().join("Cargo.toml"));
    cargo.args(["--", "-Zunstable-options", "--output-format=json", "-Dwarnings"]);
    cargo.env("CARGO_TARGET_DIR", &target).env("RUSTC_BOOTSTRAP", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTDOCFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(variable);
    }
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("doc/xfskit.json")
}

/// Every public item, a line each; `None` where this toolchain's rustdoc writes another format.
static API: LazyLock<Option<Vec<String>>> = LazyLock::new(|| {
    let json = document();
    let text = fs::read_to_string(&json).unwrap();
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match api {
        Ok(api) => Some(lines(&api)),
        Err(error) => {
            let version = text.rsplit("\"format_version\":").next().unwrap();
            let version: String = version.chars().take_while(char::is_ascii_digit).collect();
            let why =
                format!("rustdoc writes format {version}, which this version of public-api does not read: {error}");
            assert!(env::var_os("CI").is_none(), "{why}; take another in the workspace's Cargo.toml");
            eprintln!("skipped: {why}");
            None
        }
    }
});

fn lines(api: &PublicApi) -> Vec<String> {
    api.items().map(|item| item.to_string()).collect()
}

#[test]
fn what_callers_can_name_is_what_the_list_says() {
    let Some(api) = API.as_ref() else { return };
    let path = folder().join("public-api.txt");
    if env::var_os("XFSKIT_RENEW_PUBLIC_API").is_some() {
        fs::write(&path, api.join("\n") + "\n").unwrap();
    }
    let list = fs::read_to_string(&path).unwrap_or_default();
    let listed: Vec<&str> = list.lines().collect();
    let added: Vec<_> = api.iter().filter(|line| !listed.contains(&line.as_str())).collect();
    let removed: Vec<_> = listed.iter().filter(|line| !api.iter().any(|item| item == *line)).collect();
    assert!(
        added.is_empty() && removed.is_empty(),
        "the library has other public items than {}:\nadded {added:#?}\nremoved {removed:#?}\n\
         Where that is intended, renew the list with `{RENEW}` and commit it.",
        path.display()
    );
}

#[test]
fn no_public_item_shows_a_type_of_the_engine() {
    let Some(api) = API.as_ref() else { return };
    // The list has a type that callers can name under the path that they use.
    let modules: Vec<String> = engine().into_iter().map(|module| format!("xfskit::{module}::")).collect();
    let shown: Vec<_> = api.iter().filter(|line| modules.iter().any(|module| line.contains(module))).collect();
    assert!(shown.is_empty(), "callers cannot name the engine's types in these: {shown:#?}");
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The simulator cuts the power between steps of the engine, the fuzz targets begin below it, and `xfskit log print`
/// shows the contents of the journal record by record. All other crates use the public interface.
const INSIDERS: [&str; 3] = ["sim", "fuzz-harness", "cli/src/commands/log"];

#[test]
fn no_other_crate_uses_the_engine() {
    let crates = folder().join("..");
    let modules: Vec<String> = engine().into_iter().map(|module| format!("xfskit::{module}")).collect();
    let mut users = Vec::new();
    for path in sources(&crates) {
        let name = path.strip_prefix(&crates).unwrap();
        if name.starts_with("xfskit") || INSIDERS.iter().any(|insider| name.starts_with(insider)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        let uses_engine = modules.iter().any(|module| code.split(module.as_str()).skip(1).any(ends_a_name));
        if uses_engine || code.contains("system.mount()") || code.contains("fs.mount()") {
            users.push(name.to_owned());
        }
    }
    assert!(users.is_empty(), "{users:?} use the engine of xfskit");
    for name in ["bench", "check", "fuse", "transfer"] {
        let manifest = fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
        assert!(!manifest.contains("internals"), "{name} does without the feature internals");
    }
}

/// A program that uses the library has other options and other commands.
#[test]
fn no_error_gives_advice_for_the_command_line() {
    for name in ["check", "device", "ondisk", "xfskit"] {
        for path in sources(&folder().join("..").join(name).join("src")) {
            let text = fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| line.trim_start().starts_with("#[error(")) {
                let advises = line.contains("`xfskit") || line.contains("'xfskit") || line.contains(" --");
                assert!(!advises, "{}: {line}", path.display());
            }
        }
    }
}

fn ends_a_name(rest: &str) -> bool {
    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

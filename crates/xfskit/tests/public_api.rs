//! `public-api.txt` lists what a caller of the library can name, so that a person can review the list and its changes.
//! What `xfskit::volume` shows of the crates `xfskit-engine` and `xfskit-vfs` is listed with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{env, fs};

/// Renews the list.
const RENEW: &str = "XFSKIT_RENEW_PUBLIC_API=1 cargo test -p xfskit --test public_api";

/// The modules of the crate `xfskit-engine`.
fn engine() -> Vec<String> {
    let declared = |line: &str| line.strip_prefix("pub mod ")?.strip_suffix(';').map(str::to_owned);
    let engine: Vec<_> = include_str!("../../engine/src/lib.rs").lines().filter_map(declared).collect();
    assert!(engine.contains(&"error".to_owned()) && engine.len() > 20, "{engine:?}");
    engine
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A crate's documentation as JSON, built as a caller gets it: with the default features.
///
/// The format is not stable, so rustdoc requires an option for it. A warning of rustdoc is an error.
fn document(name: &str) -> PathBuf {
    let target = folder().join("../../target/public-api");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["rustdoc", "--locked", "--quiet", "--lib", "--package", name]);
    cargo.current_dir(folder());
    cargo.args(["--", "-Zunstable-options", "--output-format=json", "-Dwarnings"]);
    cargo.env("CARGO_TARGET_DIR", &target).env("RUSTC_BOOTSTRAP", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTDOCFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(variable);
    }
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("doc").join(name.replace('-', "_")).with_extension("json")
}

/// The public items of a crate, a line each; `None` where this toolchain's rustdoc writes another format.
fn items(name: &str) -> Option<Vec<String>> {
    let json = document(name);
    let text = fs::read_to_string(&json).unwrap();
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match api {
        Ok(api) => Some(api.items().map(|item| item.to_string()).collect()),
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
}

/// Every public item of the library, and of the engine what `xfskit::volume` shows, by the names that callers use.
static API: LazyLock<Option<Vec<String>>> = LazyLock::new(|| {
    let face = items("xfskit")?;
    let shown: Vec<&str> = face.iter().filter_map(|line| line.strip_prefix("pub use xfskit::volume::")).collect();
    assert!(shown.contains(&"Volume"), "{shown:?}");
    let renamed_of = |krate: &str, line: &str| {
        let mut pieces = line.split(krate);
        let mut renamed = pieces.next().unwrap().to_owned();
        for piece in pieces {
            let module_end = piece.find(|c: char| !(c.is_lowercase() || "_:".contains(c))).unwrap_or(piece.len());
            let (modules, rest) = piece.split_at(piece[..module_end].rfind("::").map_or(0, |at| at + 2));
            let name = rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap();
            // The floor's trait has the name of the engine's type.
            let is_trait = krate == "xfskit_vfs::" && modules == "volume::";
            let is_shown = shown.contains(&name) || modules.split("::").any(|module| shown.contains(&module));
            match modules.rfind("xflags::").or(modules.rfind("error_tags::")) {
                Some(at) if is_shown => renamed += &format!("xfskit::volume::{}{rest}", &modules[at..]),
                _ if is_shown && !is_trait => renamed += &format!("xfskit::volume::{rest}"),
                _ => renamed += &format!("{krate}{piece}"),
            }
        }
        renamed
    };
    let renamed = |line: &str| {
        let crates = ["xfskit_engine::", "xfskit_vfs::", "xfskit_ondisk::"];
        crates.iter().fold(line.to_owned(), |line, krate| renamed_of(krate, &line))
    };
    let is_of_shown = |line: &String| {
        let subject = line.rsplit(" for ").next().unwrap();
        let at = subject.find("xfskit");
        at.is_some_and(|at| subject[at..].starts_with("xfskit::volume::"))
    };
    let below = [items("xfskit-engine")?, items("xfskit-vfs")?].concat();
    let mut all: Vec<String> = below.iter().map(|line| renamed(line)).filter(is_of_shown).collect();
    all.retain(|line| !line.starts_with("pub use "));
    all.extend(face.iter().filter(|line| !line.starts_with("pub use xfskit::volume::")).map(|line| renamed(line)));
    all.sort_by_key(|line| (line.find("xfskit::").map(|at| line[at..].to_owned()), line.clone()));
    all.dedup();
    Some(all)
});

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
    let shown: Vec<_> = api.iter().filter(|line| line.contains("xfskit_engine")).collect();
    assert!(shown.is_empty(), "callers cannot name the engine's types in these: {shown:#?}");
}

/// What is on disk in which form is no promise: of the crate that knows it callers see the few types that they need.
#[test]
fn no_public_item_shows_a_form_on_disk() {
    let Some(api) = API.as_ref() else { return };
    let is_named =
        |name: &str| api.iter().any(|line| line.starts_with("pub use") && line.ends_with(&format!("::{name}")));
    for line in api {
        for piece in line.split("xfskit_ondisk::").skip(1) {
            let path = piece.split(|c: char| !(c.is_alphanumeric() || "_:".contains(c))).next().unwrap();
            let name = path.rsplit("::").next().unwrap();
            assert!(is_named(name), "callers cannot name {path} of the crate xfskit-ondisk in: {line}");
        }
    }
    assert!(!api.iter().any(|line| line.starts_with("pub use xfskit::ondisk")), "the crate is shown whole");
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
    let modules: Vec<String> = engine().into_iter().map(|module| format!("xfskit_engine::{module}::")).collect();
    let mut users = Vec::new();
    for path in sources(&crates) {
        let name = path.strip_prefix(&crates).unwrap();
        if name.starts_with("engine")
            || name.starts_with("xfskit/tests")
            || INSIDERS.iter().any(|insider| name.starts_with(insider))
        {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        let uses_engine = modules.iter().any(|module| code.contains(module.as_str()) && !module.contains("error_tags"));
        if uses_engine || code.contains("system.mount()") || code.contains("fs.mount()") {
            users.push(name.to_owned());
        }
    }
    assert!(users.is_empty(), "{users:?} use the engine of xfskit");
}

/// A program that uses the library has other options and other commands.
#[test]
fn no_error_gives_advice_for_the_command_line() {
    for name in ["check", "device", "engine", "ondisk", "xfskit"] {
        for path in sources(&folder().join("..").join(name).join("src")) {
            let text = fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| line.trim_start().starts_with("#[error(")) {
                let advises = line.contains("`xfskit") || line.contains("'xfskit") || line.contains(" --");
                assert!(!advises, "{}: {line}", path.display());
            }
        }
    }
}

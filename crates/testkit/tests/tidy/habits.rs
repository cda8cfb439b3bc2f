//! What no crate does: keep state in statics, forget a test file, wrap a device by half, or use a word that was left.

use crate::source::{Source, crates, end_of_block, files_below, is_of_name, root, sources, sources_of};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Statics that change, and why each is none of the state that a value could be.
const MUTABLE_STATICS: &[(&str, &str, &str)] = &[
    ("device", "PICK", "the order that a test decides for the work of its thread, and for no other's"),
    ("device", "LOCKED", "the files that the process has locked, which its locks cannot tell"),
    ("engine", "CLAIMED", "the devices that the process has mounted, whoever opened them"),
    ("engine", "NEXT_NUMBER", "gives each mount of the process another number"),
    ("engine", "NEXT", "deals out the parts of a divided counter to threads"),
    ("engine", "SLOT", "a thread's part of a divided counter"),
    ("engine", "LISTS", "a thread's memory for the lists of a transaction, empty between two"),
    ("engine", "BLOCKS", "a thread's memory for the blocks of values, which mean nothing between two calls"),
    ("transfer", "FAKED", "whether fakeroot's library is loaded, which is so for the whole program"),
    ("transfer", "ASKED", "what that library pretends, which is the same for the whole program"),
    ("vfs", "SEED", "a thread's count for numbers that are hard to predict"),
    ("fuzz-harness", "LOCK", "the report of all targets is one file"),
    ("cli", "ASKED", "what a handler of signals sets, which is called with nothing"),
];

/// Types of statics that change.
/// A `LazyLock` is a constant that is made when it is first read, unless it has one of these within.
const MUTABLE: &[&str] = &["Mutex", "RwLock", "Atomic", "OnceLock", "Cell<", "Condvar"];

/// The names of the statics of some code that change.
fn mutable_statics(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("static ") {
        let before = code[..at].trim_end_matches(' ');
        if !(before.is_empty() || before.ends_with(['\n', ')', '{', ';']) || before.ends_with("pub")) {
            continue;
        }
        let rest = &code[at + 7..];
        let Some((name, rest)) = rest.split_once(':') else { continue };
        let kind = rest.split(['=', ';']).next().unwrap_or_default();
        let name = name.trim();
        if name.starts_with("mut ") || MUTABLE.iter().any(|mutable| kind.contains(mutable)) {
            found.push(name.trim_start_matches("mut ").to_owned());
        }
    }
    found
}

#[test]
fn no_static_changes() {
    let mut found = BTreeSet::new();
    for krate in crates() {
        for (_, source) in sources_of(&krate) {
            let of = krate.file_name().expect("the crate's folder").display().to_string();
            found.extend(mutable_statics(&source.shipped).into_iter().map(|name| (of.clone(), name)));
        }
    }
    let is_allowed = |(krate, name): &&(String, String)| {
        MUTABLE_STATICS.iter().any(|(of, allowed, _)| of == krate && allowed == name)
    };
    let wrong: Vec<_> = found.iter().filter(|it| !is_allowed(it)).collect();
    assert!(wrong.is_empty(), "a value that is passed on says who uses it: {wrong:#?}");
    let is_gone = |krate: &str, name: &str| !found.contains(&(krate.to_owned(), name.to_owned()));
    let gone: Vec<_> = MUTABLE_STATICS.iter().filter(|(krate, name, _)| is_gone(krate, name)).collect();
    assert!(gone.is_empty(), "no longer there, so no exceptions: {gone:#?}");
}

#[test]
fn statics_that_change_are_seen() {
    let code = "static A: u8 = 1;\npub static B: Mutex<u8> = x;\nthread_local! {\n    static C: RefCell<u8> = x;\n}\n\
                static mut D: u8 = 1;\nfn f(a: &'static AtomicU8) {}\nstatic E: [AtomicU8; 2] = x;\n";
    assert_eq!(mutable_statics(code), ["B", "C", "D", "E"]);
}

/// The files that cargo builds by itself.
fn roots(krate: &Path) -> Vec<PathBuf> {
    let manifest = fs::read_to_string(krate.join("Cargo.toml")).expect("a manifest");
    let named = manifest.lines().filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
    let mut found: Vec<_> = named.map(|path| krate.join(path)).filter(|path| path.is_file()).collect();
    found.extend(["src/lib.rs", "src/main.rs", "build.rs"].map(|path| krate.join(path)));
    for folder in ["tests", "examples", "benches", "src/bin"].map(|name| krate.join(name)) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry of a folder").path();
            found.push(if path.is_dir() { path.join("main.rs") } else { path });
        }
    }
    found.retain(|path| path.is_file());
    found
}

/// The files that a file names as its modules.
fn modules(source: &Source, is_root: bool) -> Vec<PathBuf> {
    let folder = source.path.parent().expect("a folder");
    let stem = source.path.file_stem().expect("a name");
    let below = if is_root || stem == "mod" { folder.to_owned() } else { folder.join(stem) };
    let mut found = Vec::new();
    for (at, _) in source.code.match_indices("mod ") {
        let before = &source.code[..at];
        let name: String = source.code[at + 4..].bytes().take_while(|byte| is_of_name(*byte)).map(char::from).collect();
        let end = at + 4 + name.len();
        if before.bytes().last().is_some_and(is_of_name) || source.code.as_bytes().get(end) != Some(&b';') {
            continue;
        }
        // The path is a string, which is blank in the code.
        let item = before.rfind([';', '}', '{']).map_or(0, |end| end + 1);
        let path = source.text.get(item..at).and_then(|item| item.split("#[path = \"").nth(1)?.split('"').next());
        match path {
            Some(path) => found.push(folder.join(path)),
            None => found.extend([below.join(format!("{name}.rs")), below.join(&name).join("mod.rs")]),
        }
    }
    found
}

#[test]
fn every_file_is_built() {
    let mut wrong = Vec::new();
    for krate in crates().into_iter().chain([root().join("fuzz")]) {
        let mut built = BTreeSet::new();
        let mut next: Vec<_> = roots(&krate).into_iter().map(|path| (path, true)).collect();
        while let Some((path, is_root)) = next.pop() {
            let Ok(path) = path.canonicalize() else { continue };
            if built.insert(path.clone()) {
                next.extend(modules(&Source::read(&path), is_root).into_iter().map(|path| (path, false)));
            }
        }
        let files = files_below(&krate).into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs"));
        wrong.extend(files.filter(|path| !built.contains(path)));
    }
    assert!(wrong.is_empty(), "no other file has `mod` for them: {wrong:#?}");
}

/// A device over another one is [`WrapsDevice`](xfskit_device::WrapsDevice), or it says itself what each verb does: one
/// that it left to the trait's default would be lost.
#[test]
fn a_device_over_others_forgets_no_verb() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| source.name.contains("/src/")) {
        for (at, _) in source.shipped.match_indices(" BlockDevice for ") {
            let Some(open) = source.code[at..].find('{').map(|open| at + open) else { continue };
            let body = &source.code[open..end_of_block(&source.code, open)];
            let body = body.replace("self.size_bytes()", "");
            let is_over_another = body.contains(".hints()") || body.contains(".size_bytes()");
            let is_whole =
                ["discard", "allocate", "may_hold_data"].iter().all(|verb| body.contains(&format!("fn {verb}(")));
            if is_over_another && !is_whole {
                wrong.push(format!("{}:{}", source.name, source.code[..at].lines().count()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Words that were left for better ones: the word as a whole, and what is said instead. Add a row when a name changes.
const WORDS: &[(&str, &str)] = &[("requests_at_once", "queue_depth"), ("writes_durably", "supports_fua")];

#[test]
fn words_that_were_left_do_not_come_back() {
    let mut wrong = Vec::new();
    let this = Path::new(file!()).file_name().expect("a name");
    for path in files_below(&root()) {
        let is_text = path.extension().is_some_and(|end| ["rs", "md", "toml"].iter().any(|it| end == *it));
        // The history names things as they were called.
        if !is_text || path.ends_with("CHANGELOG.md") || path.file_name() == Some(this) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a text");
        for (word, instead) in WORDS {
            let is_whole = |at: usize| {
                let around = [text[..at].bytes().last(), text[at + word.len()..].bytes().next()];
                !around.into_iter().flatten().any(is_of_name)
            };
            for (at, _) in text.match_indices(word).filter(|(at, _)| is_whole(*at)) {
                wrong.push(format!("{}:{}: {instead}", path.display(), text[..at].lines().count()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

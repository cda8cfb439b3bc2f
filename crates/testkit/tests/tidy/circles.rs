//! Files of a folder do not use each other, also not by way of others: who reads one from the bottom up knows all that
//! it needs. The file of a folder itself (`mod.rs`, `lib.rs`) is what they share, and is not counted.

use crate::source::{Source, crates, is_of_name, sources_of};
use std::collections::{BTreeMap, BTreeSet};

/// What a name in a file stands for.
type Names = BTreeMap<String, Vec<String>>;

/// A crate as modules: the names in a path from the crate's root.
pub struct Modules {
    /// The code of each module, and the names that its `use` brings in, each with the whole path.
    files: BTreeMap<Vec<String>, (String, Names)>,
}

/// The module of a file: `a/mod.rs` and `a.rs` are both `a`.
fn module_of(file: &str) -> Vec<String> {
    let mut steps: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if steps.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        steps.pop();
    }
    steps
}

/// The modules that a file declares for its tests alone.
fn tests_of(module: &[String], source: &Source) -> Vec<Vec<String>> {
    let declared = source.code.match_indices("#[cfg(test)]").filter_map(|(at, mark)| {
        let rest = source.code[at + mark.len()..].trim_start();
        let rest = rest.strip_prefix("pub ").unwrap_or(rest).strip_prefix("mod ")?;
        let name = rest.split(';').next().filter(|name| name.bytes().all(is_of_name))?;
        Some([module, &[name.to_owned()]].concat())
    });
    declared.collect()
}

impl Modules {
    pub fn of(sources: Vec<(String, Source)>) -> Self {
        let of_tests: BTreeSet<_> =
            sources.iter().flat_map(|(file, source)| tests_of(&module_of(file), source)).collect();
        let is_of_tests = |file: &str| of_tests.iter().any(|it| module_of(file).starts_with(it));
        let sources = sources.into_iter().filter(|(file, _)| !is_of_tests(file));
        let mut files: BTreeMap<_, _> =
            sources.into_iter().map(|(file, source)| (module_of(&file), (source.shipped, BTreeMap::new()))).collect();
        let modules: BTreeSet<_> = files.keys().cloned().collect();
        for (module, (code, names)) in &mut files {
            for path in used_paths(code) {
                let Some(full) = absolute(module, &path, &modules) else { continue };
                if let Some(name) = path.last() {
                    names.insert(name.clone(), full);
                }
            }
        }
        Self { files }
    }

    /// The module that has the item at a path: names that a file takes from another one lead there.
    fn owner(&self, path: &[String]) -> Vec<String> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let module =
                (0..=path.len()).rev().map(|length| &path[..length]).find(|path| self.files.contains_key(*path));
            let module = module.unwrap_or_default().to_vec();
            let Some(name) = path.get(module.len()) else { return module };
            let Some(taken) = self.files[&module].1.get(name) else { return module };
            let next: Vec<_> = taken.iter().chain(&path[module.len() + 1..]).cloned().collect();
            if next == path {
                return module;
            }
            path = next;
        }
        path
    }

    /// What each file uses of its neighbours: folder, then member of the folder, then the members that it uses with
    /// the file that does.
    pub fn uses(&self) -> BTreeMap<Vec<String>, BTreeMap<String, BTreeMap<String, String>>> {
        let modules: BTreeSet<_> = self.files.keys().cloned().collect();
        let mut folders: BTreeMap<_, BTreeMap<_, BTreeMap<_, _>>> = BTreeMap::new();
        for (module, (code, _)) in &self.files {
            for path in used_paths(code).into_iter().chain(named_paths(code)) {
                let Some(full) = absolute(module, &path, &modules) else { continue };
                let owner = self.owner(&full);
                let shared = owner.iter().zip(module).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(shared), owner.get(shared)) {
                    let members = folders.entry(module[..shared].to_vec()).or_default();
                    let what = format!("{} uses {} of {}", module.join("::"), full.join("::"), owner.join("::"));
                    members.entry(from.clone()).or_default().entry(to.clone()).or_insert(what);
                }
            }
        }
        folders
    }
}

/// A path from the crate's root; none for one that leads out of the crate.
fn absolute(module: &[String], path: &[String], modules: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
    let mut base = module.to_vec();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|step| step == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        first => {
            let child = [&base[..], &[first.to_owned()]].concat();
            if !modules.contains(&child) {
                return None;
            }
        }
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// Every path of the `use` items of some code.
fn used_paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let is_item = at == 0 || code[..at].trim_end_matches(' ').ends_with(['\n', ')', '{', '}', ';', 'b']);
        let Some(end) = code[at..].find(';').filter(|_| is_item) else { continue };
        let tree = &code[at + 4..at + end];
        flatten(tree.trim(), &[], &mut found);
    }
    found
}

/// Adds each path of a tree like `a::{b, c::d as e}`; the name is the one that the item has in its own file.
fn flatten(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let Some((head, list)) = tree.split_once('{') else {
        let steps = tree.split(" as ").next().unwrap_or_default().split("::").map(|step| step.trim().to_owned());
        let mut path: Vec<_> = before.iter().cloned().chain(steps.filter(|step| !step.is_empty())).collect();
        path.pop_if(|last| ["self", "*"].contains(&last.as_str()) && !before.is_empty());
        return found.push(path);
    };
    let before: Vec<_> = before
        .iter()
        .cloned()
        .chain(head.split("::").map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()))
        .collect();
    let list = list.trim_end().strip_suffix('}').unwrap_or(list);
    let (mut depth, mut start) = (0, 0);
    for (at, byte) in list.bytes().enumerate().chain([(list.len(), b',')]) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                let part = list[start..at].trim();
                if !part.is_empty() {
                    flatten(part, &before, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Paths that are named where they are used: those that begin with `crate`, `super` or `self`.
fn named_paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for beginning in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(beginning) {
            if code[..at].ends_with("::")
                || code[..at].ends_with('$')
                || code[..at].bytes().last().is_some_and(is_of_name)
            {
                continue;
            }
            let end = code[at..].bytes().position(|byte| !is_of_name(byte) && byte != b':').unwrap_or(code.len() - at);
            let path: Vec<_> = code[at..at + end].split("::").map(str::to_owned).filter(|it| !it.is_empty()).collect();
            found.push(path);
        }
    }
    found
}

/// The members that can reach themselves.
fn in_circles(uses: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<String> {
    let reached = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(member) = next.pop() {
            for used in uses.get(member).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(used) {
                    next.push(used);
                }
            }
        }
        seen
    };
    let all: BTreeMap<_, _> = uses.keys().map(|member| (member, reached(member))).collect();
    let mut found = Vec::new();
    for (member, seen) in all.iter().filter(|(member, seen)| seen.contains(*member)) {
        for (used, what) in &uses[*member] {
            if seen.contains(used) && all.get(used).is_some_and(|back| back.contains(member)) {
                found.push(what.clone());
            }
        }
    }
    found
}

/// Circles that are not open yet: how what they consist of begins, and why.
const NOT_YET: &[(&str, &str)] = &[
    ("cli: ", "entering the sandbox is a side effect of opening a file, from many places"),
    ("xfskit: ops::", "opens when `SetAttr` is a type of its own floor, which every filesystem shares"),
];

#[test]
fn no_files_of_a_folder_use_each_other() {
    let mut found = Vec::new();
    for krate in crates() {
        let name = krate.file_name().expect("the crate's folder").display().to_string();
        for members in Modules::of(sources_of(&krate)).uses().values() {
            found.extend(in_circles(members).into_iter().map(|what| format!("{name}: {what}")));
        }
    }
    found.retain(|what| !NOT_YET.iter().any(|(beginning, _)| what.starts_with(beginning)));
    assert!(found.is_empty(), "circles, each by what it consists of: {found:#?}");
}

#[test]
fn a_circle_is_found_by_whatever_way_it_is_named() {
    let file = |name: &str, code: &str| {
        let (text, shipped) = (String::new(), code.to_owned());
        (name.to_owned(), Source { path: name.into(), name: name.into(), text, code: shipped.clone(), shipped })
    };
    let circles = |files: Vec<(String, Source)>| -> Vec<String> {
        Modules::of(files).uses().values().flat_map(in_circles).collect()
    };
    let lib = || file("lib.rs", "mod a;\nmod b;\npub use b::B;\n");
    assert_eq!(circles(vec![lib(), file("a.rs", "use crate::b::B;"), file("b.rs", "struct B;")]), [""; 0]);
    for (of_a, of_b) in [
        ("use crate::{c, b::{B, D}};", "fn f(a: super::a::A) {}"),
        ("use crate::B;", "use super::a::A;"),
        ("fn f(b: &crate::B) {}", "use crate::{a::A};"),
    ] {
        let found = circles(vec![lib(), file("a.rs", of_a), file("b.rs", of_b)]);
        assert_eq!(found.len(), 2, "{of_a} {of_b}: {found:?}");
    }
    let deep =
        vec![file("a/x.rs", "use super::y::Y;"), file("a/mod.rs", "mod x; mod y;"), file("a/y.rs", "use super::x::X;")];
    assert_eq!(circles(deep).len(), 2);
}

//! The links of the documents, and of the site that `scripts/site` makes of them: every file, heading and page that one
//! names is there. Addresses of other sites are not visited.

mod common;

use common::pages::{Page, pages, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use xfskit_testkit::skip;

/// The table of contents of the site.
const SUMMARY: &str = "docs/SUMMARY.md";

/// A path without `.` and `..`; `None` if it leads out.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir if normal.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(normal)
}

/// Where a link of a page leads: a path from the root, and an anchor. `None`: to another site.
fn target(page: &Path, link: &str) -> Option<(Option<PathBuf>, String)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => Some(page.to_owned()),
        path => normal(&page.parent().unwrap_or(Path::new("")).join(path)),
    };
    Some((target, anchor.to_owned()))
}

/// What is wrong with the links of a page; `anchors` has those of the pages.
fn faults(page: &Page, root: &Path, anchors: &BTreeMap<PathBuf, Vec<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for link in page.links() {
        let Some((path, anchor)) = target(Path::new(&page.name), &link) else { continue };
        let is_there = path.as_ref().is_some_and(|path| root.join(path).exists());
        let is_heading = path.is_some_and(|path| anchors.get(&path).is_some_and(|all| all.contains(&anchor)));
        if !is_there || !(anchor.is_empty() || is_heading) {
            faults.push(format!("{}: {link}", page.name));
        }
    }
    faults
}

fn anchors(pages: &[Page]) -> BTreeMap<PathBuf, Vec<String>> {
    pages.iter().map(|page| (PathBuf::from(&page.name), page.anchors())).collect()
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let pages = pages();
    let (root, anchors) = (root(), anchors(&pages));
    let faults: Vec<_> = pages.iter().flat_map(|page| faults(page, &root, &anchors)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    let links: usize = pages.iter().map(|page| page.links().len()).sum();
    assert!(links >= 100, "{links}");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let text = "# A `b` & c: d_e\n## A\n## A\n[1](#a-b--c-d_e) [2](#a-1) [3](b.md#a) [4](#a-2) [5](no.md) [6](../../x) \
                [7](https://example.org/x) [8](README.md#no)\n";
    let page = Page { name: "docs/page.md".into(), text: text.into() };
    assert_eq!(page.anchors(), ["a-b--c-d_e", "a", "a-1"]);
    let other = Page { name: "docs/b.md".into(), text: "# B".into() };
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("docs")).unwrap();
    for page in [&page, &other] {
        fs::write(root.path().join(&page.name), &page.text).unwrap();
    }
    let found = faults(&page, root.path(), &anchors(&[other]));
    let expected = ["b.md#a", "#a-2", "no.md", "../../x", "README.md#no", "#a-b--c-d_e", "#a-1"];
    let expected: BTreeSet<_> = expected.iter().map(|link| format!("docs/page.md: {link}")).collect();
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn the_files_that_the_documents_name_are_there() {
    let (root, mut named) = (root(), 0);
    for page in pages() {
        for code in page.code_spans() {
            let is_path = |start: &&str| code.starts_with(start) && !code.contains(['{', '*', ' ', '<']);
            if ["crates/", "scripts/", "docs/", "fuzz/", ".ci/"].iter().any(is_path) {
                assert!(root.join(&code).exists(), "{}: there is no {code}", page.name);
                named += 1;
            }
        }
    }
    assert!(named >= 20, "{named}");
}

#[test]
fn the_site_has_every_page() {
    let pages = pages();
    let summary = pages.iter().find(|page| page.name == SUMMARY).expect(SUMMARY);
    let listed: Vec<_> =
        summary.links().iter().map(|link| target(Path::new(SUMMARY), link).unwrap().0.unwrap()).collect();
    let once: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let is_listed = |name: &str| name != SUMMARY && (name.starts_with("docs/") || !name.contains('/'));
    let all: BTreeSet<PathBuf> =
        pages.iter().filter(|page| is_listed(&page.name)).map(|page| (&page.name).into()).collect();
    assert_eq!(once, all);
    assert_eq!(listed[0], Path::new("README.md"));
}

/// The values of an attribute in HTML that mdBook has written.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let mark = format!(" {name}=\"");
    html.split(mark.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

fn find_pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            find_pages(&entry.path(), found);
        } else if entry.path().extension().is_some_and(|extension| extension == "html") {
            found.push(entry.path());
        }
    }
}

#[test]
fn every_link_of_the_site_leads_somewhere() {
    let script = root().join("scripts/site");
    if !Command::new(&script).arg("--is-installed").status().unwrap().success() {
        return skip("mdbook is not installed: scripts/site --install");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(&script).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = Vec::new();
    find_pages(folder.path(), &mut found);
    let relative = |path: &PathBuf| path.strip_prefix(folder.path()).unwrap().to_owned();
    let site: BTreeMap<_, _> = found.iter().map(|path| (relative(path), fs::read_to_string(path).unwrap())).collect();
    let (mut links, mut faults) = (0, Vec::new());
    for (page, html) in &site {
        for link in [attributes(html, "href"), attributes(html, "src")].concat() {
            let Some((path, anchor)) = target(page, &link.replace("&amp;", "&")) else { continue };
            let Some(path) = path else {
                faults.push(format!("{}: {link}", page.display()));
                continue;
            };
            let is_there = folder.path().join(&path).is_file();
            let is_place = || site.get(&path).is_some_and(|html| attributes(html, "id").contains(&&*anchor));
            if !is_there || !(anchor.is_empty() || is_place()) {
                faults.push(format!("{}: {link}", page.display()));
            }
            links += 1;
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(site.len() >= 30 && links >= 500, "{} pages, {links} links", site.len());
}

//! The documents of the repository, in parts: blocks of code, headings, links.
//!
//! ````text
//! <!-- run:                  commands that the next blocks need, for the tests only; readers do not see them
//! xfskit mkfs -q --size 1G disk.img
//! -->
//! ```console                 a session: a prompt and a command, and what it prints
//! ````
//! Source of the facts: CommonMark, which pulldown-cmark parses; how GitHub makes anchors of headings.
#![allow(dead_code)] // Each test uses a part.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A document.
pub struct Page {
    /// Its path from the root of the repository.
    pub name: String,
    pub text: String,
}

/// What a test runs of a document.
pub enum Part {
    /// A block of code.
    Block(Block),
    /// Commands that readers do not see.
    Hidden(String),
}

/// A block of code.
pub struct Block {
    pub language: String,
    pub text: String,
    /// The line of the page in which it begins.
    pub line: usize,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All documents, in order.
pub fn pages() -> Vec<Page> {
    let (root, mut names) = (root(), Vec::new());
    find(&root, &root, &mut names);
    names.sort();
    let page = |name: String| Page { text: fs::read_to_string(root.join(&name)).unwrap(), name };
    names.into_iter().map(page).collect()
}

fn find(root: &Path, folder: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() && name != "target" && !name.starts_with('.') {
            find(root, &path, names);
        } else if name.ends_with(".md") {
            names.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

impl Page {
    fn parser(&self) -> Parser<'_> {
        Parser::new_ext(&self.text, Options::ENABLE_TABLES)
    }

    /// Its blocks and hidden commands, in order.
    pub fn parts(&self) -> Vec<Part> {
        let (mut parts, mut code, mut html) = (Vec::new(), None, None);
        for (event, range) in self.parser().into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let language = match kind {
                        CodeBlockKind::Fenced(language) => language.into_string(),
                        CodeBlockKind::Indented => "indented".to_owned(),
                    };
                    let line = self.text[..range.start].matches('\n').count() + 1;
                    code = Some(Block { language, text: String::new(), line });
                }
                Event::Text(text) => code.iter_mut().for_each(|block| block.text.push_str(&text)),
                Event::End(TagEnd::CodeBlock) => parts.extend(code.take().map(Part::Block)),
                Event::Start(Tag::HtmlBlock) => html = Some(String::new()),
                Event::Html(text) => html.iter_mut().for_each(|block| block.push_str(&text)),
                Event::End(TagEnd::HtmlBlock) => parts.extend(html.take().and_then(|block| hidden(&block))),
                _ => {}
            }
        }
        parts
    }

    /// Its blocks of code, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let block = |part| if let Part::Block(block) = part { Some(block) } else { None };
        self.parts().into_iter().filter_map(block).collect()
    }

    /// The places that its links name.
    pub fn links(&self) -> Vec<String> {
        let target = |event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.into_string()),
            _ => None,
        };
        self.parser().filter_map(target).collect()
    }

    /// What stands between backticks in its text.
    pub fn code_spans(&self) -> Vec<String> {
        let code = |event| if let Event::Code(code) = event { Some(code.into_string()) } else { None };
        self.parser().filter_map(code).collect()
    }

    /// The anchors of its headings.
    pub fn anchors(&self) -> Vec<String> {
        let (mut anchors, mut heading, mut times) = (Vec::new(), None, HashMap::new());
        for event in self.parser() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => heading.iter_mut().for_each(|all| all.push_str(&text)),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap());
                    let before = *times.entry(anchor.clone()).and_modify(|count| *count += 1).or_insert(0);
                    anchors.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
                }
                _ => {}
            }
        }
        anchors
    }
}

/// The commands of a comment for the tests.
fn hidden(html: &str) -> Option<Part> {
    let commands = html.trim().strip_prefix("<!-- run:")?.strip_suffix("-->")?;
    Some(Part::Hidden(commands.trim().to_owned()))
}

/// The anchor of a heading: small letters, digits, `_` and `-` stay, a space becomes `-`, the rest goes.
fn anchor(heading: &str) -> String {
    let stays = |letter: &char| letter.is_alphanumeric() || "_- ".contains(*letter);
    heading.to_lowercase().chars().filter(stays).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

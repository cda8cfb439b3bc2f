//! What the programs work on: a tree of source files, an archive of it, and a repository.

use crate::names::mix;
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILES_PER_DIR: usize = 20;
const DIRS_PER_DIR: usize = 20;
const LINE: &[u8] = b"static int count; /* a line of text like others */\n";
/// Modules of the program that is built.
const MODULES: usize = 40;
const FUNCTIONS: usize = 25;

/// The sources, outside of what is measured.
pub(super) struct Sources {
    pub(super) files: usize,
    pub(super) tree: PathBuf,
    pub(super) archive: PathBuf,
    pub(super) repository: Option<PathBuf>,
    pub(super) package: PathBuf,
}

impl Sources {
    /// Makes all of them in a folder.
    pub(super) fn make(folder: &Path, files: usize) -> Result<Self> {
        let tree = folder.join("tree");
        make_tree(&tree, files)?;
        let archive = folder.join("tree.tar");
        run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(folder).arg("tree"))?;
        let package = folder.join("package");
        make_package(&package)?;
        let repository = has("git").then(|| make_repository(&tree, &folder.join("repository"))).transpose()?;
        Ok(Self { files, tree, archive, repository, package })
    }
}

/// Whether a program is there.
pub(super) fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Runs a command; its output is shown if it fails.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Files as a tree of sources has them: most have some KiB, a few some ten.
fn make_tree(tree: &Path, files: usize) -> Result<()> {
    for n in 0..files {
        let dir = n / FILES_PER_DIR;
        let path = tree.join(format!("d{:03}/s{:02}", dir / DIRS_PER_DIR, dir % DIRS_PER_DIR));
        if n % FILES_PER_DIR == 0 {
            fs::create_dir_all(&path)?;
        }
        let random = mix(n as u64);
        let (least, span) = match random % 10 {
            0..=5 => (500, 3500),
            6..=8 => (4000, 12_000),
            _ => (16_000, 48_000),
        };
        let bytes = least + (random >> 8) as usize % span;
        let text: Vec<u8> = LINE.iter().copied().cycle().take(bytes).collect();
        fs::write(path.join(format!("file{:02}.c", n % FILES_PER_DIR)), text)?;
    }
    Ok(())
}

fn make_repository(tree: &Path, repository: &Path) -> Result<PathBuf> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(repository).arg("--work-tree").arg(tree);
        run(command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"]).args(arguments))
    };
    run(Command::new("git").args(["init", "-q", "--bare"]).arg(repository))?;
    git(&["-c", "core.bare=false", "add", "."])?;
    git(&["-c", "core.bare=false", "commit", "-q", "-m", "all"])?;
    // As what is cloned usually is: one file of objects.
    git(&["repack", "-adq"])?;
    Ok(repository.into())
}

/// A package without dependencies that takes a compiler some seconds.
fn make_package(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), "[package]\nname = \"built\"\nversion = \"0.1.0\"\nedition = \"2021\"\n")?;
    let mut main = String::new();
    for module in 0..MODULES {
        writeln!(main, "mod m{module};")?;
        let mut text = String::new();
        for function in 0..FUNCTIONS {
            writeln!(text, "pub fn f{function}(list: &[u64]) -> Vec<String> {{")?;
            writeln!(text, "    list.iter().map(|n| format!(\"{{}} {function}\", n * {module})).collect()\n}}")?;
        }
        fs::write(folder.join(format!("src/m{module}.rs")), text)?;
    }
    main.push_str("fn main() {\n    let list = [1, 2, 3];\n");
    for module in 0..MODULES {
        for function in 0..FUNCTIONS {
            writeln!(main, "    println!(\"{{:?}}\", m{module}::f{function}(&list));")?;
        }
    }
    main.push_str("}\n");
    fs::write(folder.join("src/main.rs"), main)?;
    Ok(())
}

//! Man pages and completion scripts, from the arguments themselves.

use crate::args::Cli;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::io::{Write, stdout};
use std::path::Path;

/// Writes a man page for each command.
pub fn man(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    clap_mangen::generate_to(Cli::command(), dir).with_context(|| dir.display().to_string())?;
    Ok(())
}

/// Prints a completion script.
pub fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "xfskit", &mut script);
    Ok(stdout().write_all(&script)?)
}

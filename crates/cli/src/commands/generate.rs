//! Man pages and completion scripts, from the arguments themselves.

use crate::args::Cli;
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use std::io::Write;
use std::path::Path;

/// Writes a man page for each command.
pub fn man(dir: &Path) -> Result<()> {
    let context = || dir.display().to_string();
    std::fs::create_dir_all(dir).with_context(context)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(command, dir).with_context(context)
}

fn write_pages(command: Command, dir: &Path) -> std::io::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(command.clone(), dir)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    std::fs::write(dir.join(page.get_filename()), with_tables(&String::from_utf8_lossy(&text)))
}

/// Preserves the lines of tables, which begin with spaces, in the section of notes; the formatter would fill them.
fn with_tables(page: &str) -> String {
    let (mut text, mut is_notes, mut is_table) = (String::new(), false, false);
    for line in page.lines() {
        if line.starts_with(".SH") {
            is_notes = line == ".SH EXTRA";
        }
        let begins_table = is_notes && line.starts_with("  ");
        if begins_table != is_table {
            text.push_str(if begins_table { ".nf\n" } else { ".fi\n" });
            is_table = begins_table;
        }
        text.push_str(if line == ".SH EXTRA" { ".SH NOTES" } else { line });
        text.push('\n');
    }
    if is_table {
        text.push_str(".fi\n");
    }
    text
}

/// Prints a completion script.
pub fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "xfskit", &mut script);
    Ok(crate::screen::data().write_all(&script)?)
}

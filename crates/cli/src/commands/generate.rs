//! Man pages and completion scripts, from the arguments themselves.

use crate::output::error::{Context, Result};
use clap::{Arg, Command};
use std::io::Write;
use std::path::Path;

/// Writes a man page for each command.
pub fn man(dir: &Path) -> Result<()> {
    let context = || dir.display().to_string();
    std::fs::create_dir_all(dir).with_context(context)?;
    let mut command = crate::args::command().disable_help_subcommand(true);
    command.build();
    write_pages(command, dir).with_context(context)
}

fn write_pages(command: Command, dir: &Path) -> std::io::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(command.clone(), dir)?;
    }
    let synopsis = synopsis(&command);
    let has_notes = command.get_after_help().is_some() || command.get_after_long_help().is_some();
    let (has_commands, has_version) = (command.has_subcommands(), command.get_version().is_some());
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    text.extend_from_slice(synopsis.as_bytes());
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if has_commands {
        page.render_subcommands_section(&mut text)?;
    }
    if has_notes {
        page.render_extra_section(&mut text)?;
    }
    if has_version {
        page.render_version_section(&mut text)?;
    }
    std::fs::write(dir.join(page.get_filename()), with_tables(&String::from_utf8_lossy(&text)))
}

/// The synopsis, with the names of values.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut text = format!(".SH SYNOPSIS\n\\fB{}\\fR", roff(name));
    let shown =
        |arg: &&Arg| !arg.is_hide_set() && !arg.is_positional() && !matches!(arg.get_id().as_str(), "help" | "version");
    for option in command.get_arguments().filter(shown) {
        let flags =
            [option.get_short().map(|letter| format!("-{letter}")), option.get_long().map(|name| format!("--{name}"))];
        let flags: Vec<_> = flags.iter().flatten().map(|flag| format!("\\fB{}\\fR", roff(flag))).collect();
        let values = option.get_value_names().filter(|_| option.get_action().takes_values()).unwrap_or_default();
        let values: String = values.iter().map(|name| format!(" \\fI{}\\fR", roff(name))).collect();
        text.push_str(&format!(" [{}{values}]", flags.join("|")));
    }
    for operand in command.get_positionals().filter(|operand| !operand.is_hide_set()) {
        let shown = roff(&operand.to_string().replace(['<', '>', '[', ']'], ""));
        let shown = format!("\\fI{shown}\\fR");
        text.push_str(&if operand.is_required_set() { format!(" {shown}") } else { format!(" [{shown}]") });
    }
    if command.has_subcommands() {
        text.push_str(" \\fICOMMAND\\fR");
    }
    text + "\n"
}

/// Text in which the formatter takes nothing for its own, and breaks no line at a dash.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
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

/// Prints a completion script, which asks this program for what it completes.
pub fn completions(shell: clap_complete::Shell) -> Result<()> {
    let (mut script, shell) = (Vec::new(), shell.to_string());
    let shells = clap_complete::env::Shells::builtins();
    let writer = shells.completer(&shell).with_context(|| format!("there are no completions for {shell}"))?;
    writer.write_registration("COMPLETE", "xfskit", "xfskit", "xfskit", &mut script)?;
    Ok(crate::output::screen::data().write_all(&script)?)
}

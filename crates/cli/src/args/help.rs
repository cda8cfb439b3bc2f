//! The arguments as help, man pages and completions show them: commands in groups, the options of the whole program
//! apart from those of a command, and what a shell may complete.

use super::Cli;
use crate::completion;
use clap::{Command, CommandFactory};

/// The heading of options that every command has.
pub const EVERY_COMMAND: &str = "Options of every command";

/// The commands by what they are for. One that stands in no group is hidden from the list.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Images", &["mkfs", "info", "check", "df", "admin", "log"]),
    ("Mounts", &["mount", "umount", "stats"]),
    ("Trees, in and out", &["cp", "import", "export"]),
    ("Look at files", &["ls", "tree", "find", "cat", "stat", "readlink", "du", "parents", "path"]),
    ("Change files", &["mkdir", "mknod", "touch", "write", "clone", "ln", "mv", "rm", "chmod", "chown", "xattr"]),
    ("This program", &["bench", "crash-test", "man", "completions"]),
];

/// Columns of the list of commands.
const COLUMNS: usize = 100;

/// The whole command line.
pub fn command() -> Command {
    let (list, options) = (groups(&Cli::command()), options(&Cli::command()));
    let template = format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{options}\n{{after-help}}");
    completion::with_candidates(Cli::command().help_template(template))
}

/// The list of commands, each with what it does.
fn groups(command: &Command) -> String {
    let widest = command.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, names) in GROUPS {
        let commands = names.iter().filter_map(|name| command.find_subcommand(name));
        let lines = commands.map(|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            format!("  {:widest$}  {}\n", command.get_name(), wrapped(&about, widest + 4))
        });
        let lines: String = lines.collect();
        if !lines.is_empty() {
            text.push_str(&format!("{title}:\n{lines}\n"));
        }
    }
    text
}

/// The list of options, which all commands have.
fn options(command: &Command) -> String {
    let mut text = format!("{EVERY_COMMAND}:\n");
    for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
        let short = option.get_short().map_or("   ".into(), |letter| format!("-{letter},"));
        let value = option.get_value_names().filter(|_| option.get_action().takes_values()).unwrap_or_default();
        let value: String = value.iter().map(|name| format!(" <{name}>")).collect();
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        let (long, help) = (option.get_long().unwrap_or_default(), wrapped(&help, 10));
        text.push_str(&format!("  {short} --{long}{value}\n          {help}\n"));
    }
    text + "  -h, --help\n          Print help\n  -V, --version\n          Print version\n"
}

/// A text in lines that begin in a column, but for the first.
fn wrapped(text: &str, column: usize) -> String {
    let (mut lines, mut width) = (String::new(), column);
    for word in text.split(' ') {
        if width > column && width + 1 + word.len() > COLUMNS {
            lines.push('\n');
            lines.push_str(&" ".repeat(column));
            width = column;
        } else if width > column {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += word.len();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_one_group() {
        let command = Cli::command();
        for below in command.get_subcommands().filter(|command| command.get_name() != "help") {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&below.get_name())).count();
            assert_eq!(groups, 1, "{}", below.get_name());
        }
        let text = groups(&command);
        assert!(text.lines().all(|line| line.len() <= COLUMNS) && text.contains("Look at files:\n  ls "), "{text}");
    }
}

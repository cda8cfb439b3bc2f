//! Plain text.

use super::{Report, Section, Table, all_goals, caution, goals_table, places};
use std::fmt::Write;

/// The report as text.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for (name, value) in report.machine.lines() {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name:12} {value}");
    }
    let _ = writeln!(out, "{:12} {}", "command", report.command);
    for text in caution::of_run(report) {
        let _ = writeln!(out, "{:12} {text}", "caution");
    }
    for section in &report.experiments {
        write_section(&mut out, section);
    }
    if let Some(table) = all_goals(report) {
        let _ = writeln!(out);
        write_table(&mut out, &table);
    }
    out
}

fn write_section(out: &mut String, section: &Section) {
    let _ = writeln!(out, "\n{}\n{}", section.title, "=".repeat(section.title.chars().count()));
    let _ = writeln!(out, "{}", section.about);
    for (side, lines) in places(section) {
        let _ = writeln!(out, "\n{side}");
        for (name, text) in lines {
            let _ = writeln!(out, "  {name:9} {text}");
        }
    }
    for table in section.tables.iter().chain(&goals_table(&section.goals)) {
        let _ = writeln!(out);
        write_table(out, table);
    }
    for note in section.notes.iter().chain(&caution::of_section(section)) {
        let _ = writeln!(out, "\n{note}");
    }
}

fn write_table(out: &mut String, table: &Table) {
    let _ = writeln!(out, "{}", table.title);
    let width = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count());
        cells.chain([table.columns[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (column, cell) in cells.enumerate() {
            let _ = match column {
                0 => write!(text, "  {cell:<width$}", width = widths[0]),
                _ => write!(text, "  {cell:>width$}", width = widths[column]),
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    };
    line(&mut table.columns.iter().map(String::as_str));
    for row in &table.rows {
        line(&mut row.iter().map(|cell| cell.text.as_str()));
    }
}

//! Markdown, for a page that is kept with the source.

use super::{Report, Section, Table, all_goals, caution, goals_table, places};
use std::fmt::Write;

/// The report as Markdown.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "# Results of xfskit bench\n\nWhat is measured, how, and what the figures mean: docs/benchmarks.md. Only \
         ratios within this run mean anything.\n\n```text\n{}\n```\n\n| | |\n|---|---|\n| date | {} |",
        report.command, report.date
    );
    for (name, value) in report.machine.lines() {
        let _ = writeln!(out, "| {name} | {} |", cell(&value));
    }
    for text in caution::of_run(report) {
        let _ = writeln!(out, "\n**{text}**");
    }
    if let Some(goals) = all_goals(report) {
        write_table(&mut out, &goals);
    }
    for section in &report.experiments {
        write_section(&mut out, section);
    }
    out
}

fn write_section(out: &mut String, section: &Section) {
    let _ = writeln!(out, "\n## {}\n\n{}\n", section.title, section.about);
    for (side, lines) in places(section) {
        let lines: Vec<String> = lines.into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        let _ = writeln!(out, "- **{side}**: {}", lines.join("; "));
    }
    for table in section.tables.iter().chain(&goals_table(&section.goals)) {
        write_table(out, table);
    }
    for note in section.notes.iter().chain(&caution::of_section(section)) {
        let _ = writeln!(out, "\n{note}");
    }
}

fn write_table(out: &mut String, table: &Table) {
    let _ = writeln!(out, "\n**{}**\n", table.title);
    let headings: Vec<String> = table.columns.iter().map(|column| cell(column)).collect();
    let rule: Vec<&str> = (0..table.columns.len()).map(|column| if column == 0 { "---" } else { "---:" }).collect();
    let _ = writeln!(out, "| {} |\n|{}|", headings.join(" | "), rule.join("|"));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|value| cell(&value.text)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

//! A page that needs no other file: it contains its style and its plots.

use super::markup::escape;
use super::plot::svg;
use super::{Report, Section, Table, all_goals, caution, goals_table, places};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// The report as a page.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>xfskit bench</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>xfskit bench</h1>\n\
         <p class=\"command\"><code>{}</code></p>\n",
        escape(&report.command)
    );
    let mut facts = report.machine.lines();
    facts.push(("date".into(), report.date.clone()));
    write_facts(&mut out, facts.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    write_cautions(&mut out, &caution::of_run(report));
    if report.experiments.len() > 1 {
        out.push_str("<nav><ul>\n");
        for section in &report.experiments {
            let _ = writeln!(out, "<li><a href=\"#{}\">{}</a></li>", section.name, escape(&section.title));
        }
        out.push_str("</ul></nav>\n");
    }
    if let Some(goals) = all_goals(report) {
        write_table(&mut out, &goals);
    }
    for section in &report.experiments {
        write_section(&mut out, section);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn write_cautions(out: &mut String, cautions: &[String]) {
    for text in cautions {
        let _ = writeln!(out, "<p class=\"caution\" role=\"note\">{}</p>", escape(text));
    }
}

fn write_facts<'a>(out: &mut String, facts: impl Iterator<Item = (&'a str, &'a str)>) {
    out.push_str("<dl>\n");
    for (name, value) in facts {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    out.push_str("</dl>\n");
}

fn write_section(out: &mut String, section: &Section) {
    let _ = writeln!(out, "<section id=\"{}\">\n<h2>{}</h2>", section.name, escape(&section.title));
    let _ = writeln!(out, "<p>{}</p>", escape(&section.about));
    if let Some(goals) = goals_table(&section.goals) {
        write_cautions(out, caution::of_section(section).as_slice());
        write_table(out, &goals);
    }
    if !section.plots.is_empty() {
        out.push_str("<div class=\"plots\">\n");
        for plot in &section.plots {
            out.push_str(&svg(plot));
        }
        out.push_str("</div>\n");
    }
    for table in &section.tables {
        write_table(out, table);
    }
    for note in &section.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    out.push_str("<details>\n<summary>Geometry, options, durability</summary>\n");
    for (side, lines) in places(section) {
        let _ = writeln!(out, "<h4>{}</h4>", escape(&side));
        write_facts(out, lines.iter().map(|(name, text)| (*name, text.as_str())));
    }
    out.push_str("</details>\n</section>\n");
}

fn write_table(out: &mut String, table: &Table) {
    let _ = writeln!(out, "<h3>{}</h3>\n<div class=\"table\"><table>\n<thead><tr>", escape(&table.title));
    for column in &table.columns {
        let _ = write!(out, "<th>{}</th>", escape(column));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let tag = if column == 0 { "th" } else { "td" };
            let class = match cell.text.as_str() {
                "yes" => " class=\"good\"",
                "no" => " class=\"bad\"",
                _ => "",
            };
            let _ = write!(out, "<{tag}{class}>{}</{tag}>", escape(&cell.text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

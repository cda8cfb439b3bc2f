//! What was measured, in a form that every output shares.

mod caution;
mod html;
mod json;
mod markdown;
mod markup;
mod plot;
mod table;

pub use html::page;
pub use json::json;
pub use markdown::markdown;
pub use table::text;

use crate::lab::Run;
use crate::machine::Machine;
use crate::subject::About;
use serde::Serialize;
use std::collections::BTreeMap;

/// A whole run of the command.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub(crate) command: String,
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) experiments: Vec<Section>,
}

/// One experiment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    pub name: String,
    pub title: String,
    /// What is done, and how it is measured.
    pub about: String,
    pub tables: Vec<Table>,
    pub plots: Vec<Plot>,
    pub goals: Vec<Goal>,
    pub notes: Vec<String>,
    pub runs: Vec<Run>,
}

/// A table. The first column names the rows.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

/// A cell: its number if it has one, and how it is shown.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    pub number: Option<f64>,
    pub text: String,
}

impl Serialize for Cell {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.number {
            Some(number) => serializer.serialize_f64(number),
            None if self.text.is_empty() => serializer.serialize_none(),
            None => serializer.serialize_str(&self.text),
        }
    }
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { number: None, text: text.into() }
    }

    /// A number with thousands set apart, or nothing.
    pub(crate) fn number(number: impl Into<Option<f64>>, decimals: usize) -> Self {
        let Some(number) = number.into().filter(|number| number.is_finite()) else { return Self::default() };
        Self { number: Some(number), text: grouped(number, decimals) }
    }

    /// A ratio, as in `1.25×`.
    pub(crate) fn ratio(number: impl Into<Option<f64>>) -> Self {
        Self::with_unit(number, 2, "×")
    }

    /// A change in percent with its sign.
    pub(crate) fn percent(number: impl Into<Option<f64>>) -> Self {
        let Some(number) = number.into().filter(|number| number.is_finite()) else { return Self::default() };
        Self { number: Some(number), text: format!("{number:+.1} %") }
    }

    pub(crate) fn with_unit(number: impl Into<Option<f64>>, decimals: usize, unit: &str) -> Self {
        let mut cell = Self::number(number, decimals);
        if cell.number.is_some() {
            cell.text.push_str(unit);
        }
        cell
    }
}

fn grouped(number: f64, decimals: usize) -> String {
    let plain = format!("{:.decimals$}", number.abs());
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), None), |(whole, part)| (whole, Some(part)));
    let mut text = String::new();
    if number < 0.0 && plain.bytes().any(|byte| matches!(byte, b'1'..=b'9')) {
        text.push('-');
    }
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// A plot.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Plot {
    /// For each group a bar of each series.
    Bars { title: String, unit: String, groups: Vec<String>, series: Vec<BarSeries> },
    /// Points of each series joined, the horizontal axis in steps of a factor of two.
    Lines { title: String, x: String, y: String, series: Vec<LineSeries> },
}

#[derive(Clone, Debug, Serialize)]
pub struct BarSeries {
    pub name: String,
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct LineSeries {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A goal: the value to reach, and the value measured.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    pub what: String,
    pub wanted: f64,
    /// Whether more is better.
    pub at_least: bool,
    pub measured: f64,
    pub reached: bool,
}

impl Goal {
    pub(crate) fn at_least(what: impl Into<String>, wanted: f64, measured: f64) -> Self {
        Self { what: what.into(), wanted, at_least: true, measured, reached: measured >= wanted }
    }

    pub(crate) fn at_most(what: impl Into<String>, wanted: f64, measured: f64) -> Self {
        Self { what: what.into(), wanted, at_least: false, measured, reached: measured <= wanted }
    }
}

/// The goals of an experiment as a table.
pub(crate) fn goals_table(goals: &[Goal]) -> Option<Table> {
    let row = |goal: &Goal| {
        let bound = if goal.at_least { "at least" } else { "at most" };
        vec![
            Cell::text(&goal.what),
            Cell::text(format!(
                "{bound} {}",
                format!("{:.3}", goal.wanted).trim_end_matches('0').trim_end_matches('.')
            )),
            Cell::number(goal.measured, 3),
            Cell::text(if goal.reached { "yes" } else { "no" }),
        ]
    };
    (!goals.is_empty()).then(|| Table {
        title: "Goals".into(),
        columns: ["", "wanted", "measured", "reached"].map(String::from).to_vec(),
        rows: goals.iter().map(row).collect(),
    })
}

/// The goals of all experiments together, where there are several.
pub(crate) fn all_goals(report: &Report) -> Option<Table> {
    if report.experiments.len() < 2 {
        return None;
    }
    let named = |section: &Section| {
        let name = section.name.clone();
        let goals = section.goals.iter().cloned();
        goals.map(move |goal| Goal { what: format!("{name}: {}", goal.what), ..goal }).collect::<Vec<_>>()
    };
    let goals: Vec<Goal> = report.experiments.iter().flat_map(named).collect();
    Some(Table { title: "Goals of all experiments".into(), ..goals_table(&goals)? })
}

/// The sides that were measured, each once, with all that is known of them.
pub(crate) fn places(section: &Section) -> Vec<(String, Vec<(&'static str, String)>)> {
    type Field = (&'static str, fn(&About) -> &String);
    const FIELDS: [Field; 4] = [
        ("reached", |about| &about.how),
        ("geometry", |about| &about.geometry),
        ("options", |about| &about.options),
        ("durable", |about| &about.durability),
    ];
    let mut sides: Vec<&str> = section.runs.iter().map(|run| run.side.as_str()).collect();
    let mut seen = std::collections::HashSet::new();
    sides.retain(|side| seen.insert(*side));
    let line = |side: &str, (name, field): Field| {
        let mut texts: Vec<&str> = Vec::new();
        for run in section.runs.iter().filter(|run| run.side == side) {
            let text = field(&run.target).as_str();
            if !text.is_empty() && !texts.contains(&text) {
                texts.push(text);
            }
        }
        (!texts.is_empty()).then(|| (name, texts.join("; or ")))
    };
    let lines = |side: &str| {
        let threads = Some(("threads", threads_of(section, side)));
        threads.into_iter().chain(FIELDS.into_iter().filter_map(|field| line(side, field))).collect()
    };
    sides.into_iter().map(|side| (side.to_owned(), lines(side))).collect()
}

/// The numbers of threads that ran on a side; where they differ, with the cases.
fn threads_of(section: &Section, side: &str) -> String {
    let mut cases: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for run in section.runs.iter().filter(|run| run.side == side) {
        cases.entry(run.threads).or_default().push(&run.case);
    }
    let is_one = cases.len() == 1;
    let lines = cases.into_iter().map(|(threads, cases)| match is_one {
        true => threads.to_string(),
        false => {
            format!("{threads} for {}", cases.iter().map(|case| format!("\"{case}\"")).collect::<Vec<_>>().join(", "))
        }
    });
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(1234567.891, 1), "1,234,567.9");
        assert_eq!(grouped(-1000.0, 0), "-1,000");
        assert_eq!(grouped(-0.001, 1), "0.0");
        assert_eq!(Cell::percent(8.04).text, "+8.0 %");
        assert_eq!(Cell::number(f64::NAN, 1).text, "");
    }
}

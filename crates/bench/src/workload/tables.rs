//! Tables that several experiments have.

use crate::lab::Run;
use crate::measure::Phase;
use crate::report::{Cell, Goal, Table};

pub(super) fn columns<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(String::from).to_vec()
}

/// A row for each phase of each run: what an operation costs.
pub(super) fn costs(title: &str, runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for run in runs {
        for phase in &run.phases {
            let mut row = vec![Cell::text(format!("{}, {}: {}", run.side, run.case, phase.name))];
            row.extend(cost_cells(phase));
            rows.push(row);
        }
    }
    Table { title: title.into(), columns: columns(["", "µs", "per s", "CPU µs", "transactions", "log bytes"]), rows }
}

/// Wall time, rate, CPU time, transactions, log bytes of an operation.
pub(super) fn cost_cells(phase: &Phase) -> [Cell; 5] {
    [
        Cell::number(phase.micros(), 2),
        Cell::number(phase.rate(), 0),
        Cell::number(phase.cpu_micros(), 2),
        Cell::number(phase.per_operation(phase.transactions), 3),
        Cell::number(phase.per_operation(phase.log_bytes), 1),
    ]
}

/// The phases of the first run beside those of the second, with the ratio of the rates.
pub(super) fn beside(title: &str, ours: &Run, theirs: &Run) -> Table {
    let rows = ours.phases.iter().filter_map(|phase| {
        let other = theirs.phase(&phase.name)?;
        Some(vec![
            Cell::text(&phase.name),
            Cell::number(phase.micros(), 2),
            Cell::number(other.micros(), 2),
            Cell::ratio(phase.rate() / other.rate()),
            Cell::number(phase.cpu_micros(), 2),
            Cell::number(other.cpu_micros(), 2),
            Cell::number(phase.per_operation(phase.transactions), 3),
            Cell::number(other.per_operation(other.transactions), 3),
            Cell::number(phase.per_operation(phase.log_bytes), 1),
            Cell::number(other.per_operation(other.log_bytes), 1),
        ])
    });
    let mut names = columns(["", "µs"]);
    names.extend([theirs.side.clone(), "rate".into()]);
    for what in ["CPU µs", "transactions", "log bytes"] {
        names.extend([what.into(), theirs.side.clone()]);
    }
    Table { title: title.into(), columns: names, rows: rows.collect() }
}

/// The goals that logged attributes cost nothing: rate, CPU and log bytes of a phase beside those of the same not
/// logged.
pub(super) fn logging_costs_nothing(of: &str, logged: &Phase, plain: &Phase) -> Vec<Goal> {
    let what = |what: &str| format!("{of} {what}, logged over not logged");
    let mut goals = vec![
        Goal::at_least(what("rate"), 0.95, logged.rate() / plain.rate()),
        Goal::at_most(what("CPU"), 1.05, logged.cpu_seconds() / plain.cpu_seconds()),
    ];
    if let Some((logged, plain)) = logged.log_bytes.zip(plain.log_bytes) {
        goals.push(Goal::at_most(what("log bytes"), 1.01, logged as f64 / plain as f64));
    }
    goals
}

/// The run of a case on a side.
pub(super) fn find<'a>(runs: &'a [Run], case: &str, side: &str) -> Option<&'a Run> {
    runs.iter().find(|run| run.case == case && run.side == side)
}

/// How much more `with` is than `without`, in percent.
pub(super) fn more(with: f64, without: f64) -> f64 {
    (with / without - 1.0) * 100.0
}

/// A row for each run, and in it a cell for each phase, which `value` makes.
pub(super) fn matrix<'a>(
    title: &str,
    runs: impl Iterator<Item = &'a Run> + Clone,
    value: impl Fn(&Phase) -> Cell,
) -> Table {
    let mut phases: Vec<&str> = Vec::new();
    for phase in runs.clone().flat_map(|run| &run.phases) {
        if !phases.contains(&phase.name.as_str()) {
            phases.push(&phase.name);
        }
    }
    let row = |run: &Run| {
        let cells = phases.iter().map(|name| run.phase(name).map_or_else(Cell::default, &value));
        std::iter::once(Cell::text(format!("{}, {}", run.side, run.case))).chain(cells).collect()
    };
    let names = std::iter::once("").chain(phases.iter().copied()).map(String::from).collect();
    Table { title: title.into(), columns: names, rows: runs.map(row).collect() }
}

/// What the engine counted in all phases of each run, beyond transactions and log bytes.
pub(super) fn counters<'a>(runs: impl Iterator<Item = &'a Run>) -> Option<Table> {
    let engine: Vec<&Run> = runs.filter(|run| run.engine).collect();
    let all = engine.iter().flat_map(|run| &run.phases).flat_map(|phase| phase.counters.keys());
    let names: std::collections::BTreeSet<&str> = all.map(String::as_str).collect();
    if engine.is_empty() || names.is_empty() {
        return None;
    }
    let total = |run: &Run, name: &str| {
        let each = run.phases.iter().map(|phase| phase.counter(name));
        if name.ends_with("_peak") { each.max().unwrap_or(0) } else { each.sum() }
    };
    let rows = names.iter().map(|name| {
        let counts = engine.iter().map(|run| match total(run, name) {
            0 => Cell::default(),
            count => Cell::number(count as f64, 0),
        });
        std::iter::once(Cell::text(name.replace('_', " "))).chain(counts).collect()
    });
    let rows: Vec<Vec<Cell>> =
        rows.filter(|row: &Vec<Cell>| row[1..].iter().any(|cell| cell.number.is_some())).collect();
    let mut names = vec![String::new()];
    names.extend(engine.iter().map(|run| run.case.clone()));
    Some(Table { title: "What the engine counted".into(), columns: names, rows })
}

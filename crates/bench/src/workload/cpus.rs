//! cpus: a model of what limits more processors, for machines that do not have them.
//!
//! A run of one thread measures how long an operation has what other threads would wait for: the locks of an AG's
//! headers and of inodes, and the log's writer, the one thread at a time that formats a checkpoint. The model computes
//! from these times the rate of N processors (mean value analysis of a closed queueing network: as many jobs as
//! processors, a station for each AG and one for the log). The report compares it with N real threads on this machine.
//! The model leaves out the short locks of caches and of the CIL, which are in many parts, and that memory gets slower
//! when many processors share it.

use super::fsmark::FsMark;
use super::tables::columns;
use crate::case::Case;
use crate::lab::{Lab, Run};
use crate::measure::Phase;
use crate::report::{Cell, LineSeries, Plot, Section, Table};
use crate::side::Side;
use anyhow::Result;

/// This many creates fit one checkpoint, which the sync after the phase writes. So the time of the sync is that of the
/// log's writer.
const FILES: usize = 15_000;
const MAX_PROCESSORS: usize = 64;
const AGS: [usize; 3] = [4, 16, 64];
/// An AG is at least as large as the log, which lies in one, so many AGs need a large image.
const MANY_AGS_BYTES: u64 = 8 << 30;
const PHASES: [&str; 2] = ["create", "remove"];

/// Seconds of an operation on one processor.
#[derive(Clone, Copy, Debug)]
struct Demands {
    whole: f64,
    ag: f64,
    inode: f64,
    log: f64,
}

impl Demands {
    fn of(phase: &Phase) -> Self {
        let per_operation = |nanoseconds: u64| nanoseconds as f64 / 1e9 / phase.operations as f64;
        let log = phase.sync_seconds / phase.operations as f64;
        Self {
            whole: phase.wall_seconds / phase.operations as f64 + log,
            ag: per_operation(phase.counter("ag_lock_nanoseconds")),
            inode: per_operation(phase.counter("inode_lock_nanoseconds")),
            log,
        }
    }

    /// Operations per second of 1 to `most` processors, each working in directories of its own, with `ags` AGs.
    fn predict(self, ags: usize, most: usize) -> Vec<f64> {
        let stations = vec![self.ag / ags as f64; ags];
        predict((self.whole - self.ag - self.log).max(0.0), &[stations, vec![self.log]].concat(), most)
    }

    /// The same in one directory that all share.
    fn predict_shared(self, most: usize) -> Vec<f64> {
        predict((self.whole - self.inode - self.log).max(0.0), &[self.inode, self.log], most)
    }

    /// The station that limits the rate of many processors, and the limit in operations per second.
    fn limit(self, ags: usize) -> (&'static str, f64) {
        let ag = self.ag / ags as f64;
        if ag > self.log { ("AG headers", 1.0 / ag) } else { ("the log's writer", 1.0 / self.log) }
    }
}

/// Throughput of a closed network with `think` seconds outside of all stations, for 1 to `most` jobs.
fn predict(think: f64, stations: &[f64], most: usize) -> Vec<f64> {
    let mut queues = vec![0.0; stations.len()];
    let step = |jobs: usize| {
        let times: Vec<f64> = stations.iter().zip(&queues).map(|(demand, queue)| demand * (1.0 + queue)).collect();
        let rate = jobs as f64 / (think + times.iter().sum::<f64>());
        queues = times.iter().map(|time| rate * time).collect();
        rate
    };
    (1..=most).map(step).collect()
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let sides = [Side::scratch()];
    let files = lab.options.files.unwrap_or(FILES);
    let case = Case { threads: 1, ..lab.case("one thread, lock times counted", files, 0) };
    let timed = [(case.switch(|options| options.lock_times = true), FsMark { parts: 1, each: files, dirs: 1 })];
    let timed = lab.measure_on(&sides, &timed)?;
    let real: Vec<_> = powers()
        .map(|threads| {
            let files = lab.files(FILES * 20);
            let case = lab.case(format!("{threads} threads"), files, 0).mkfs(&[('d', "agcount=64")]);
            let image_bytes = case.image_bytes.max(MANY_AGS_BYTES);
            let case = Case { threads, image_bytes, ..case };
            (case, FsMark { parts: threads, each: (files / threads).max(1), dirs: 1 })
        })
        .collect();
    let real = lab.measure_on(&sides, &real)?;
    let mut section = Section {
        name: "cpus".into(),
        title: "cpus: what keeps more processors from helping".into(),
        about: format!(
            "A model from how long one thread holds what others would wait for (fsmark's {files} files, parent=1), \
             and so many real threads on {} processors. Best of {} rounds.",
            std::thread::available_parallelism().map_or(1, usize::from),
            lab.rounds()
        ),
        ..Section::default()
    };
    if let Some(timed) = timed.first() {
        section.tables.push(demand_table(timed));
        for phase in PHASES.iter().filter_map(|name| timed.phase(name)) {
            let demands = Demands::of(phase);
            section.tables.push(prediction(&phase.name, demands, &real));
            section.plots.push(plot(&phase.name, demands, &real));
            section.notes.push(verdict(&phase.name, demands));
        }
    }
    section.runs = timed.into_iter().chain(real).collect();
    Ok(section)
}

fn powers() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&count| count <= MAX_PROCESSORS)
}

fn demand_table(run: &Run) -> Table {
    let row = |phase: &Phase| {
        let demands = Demands::of(phase);
        let micros = |seconds: f64| Cell::number(seconds * 1e6, 2);
        let share = |seconds: f64| Cell::with_unit(100.0 * seconds / demands.whole, 0, " %");
        vec![
            Cell::text(&phase.name),
            micros(demands.whole),
            micros(demands.ag),
            share(demands.ag),
            micros(demands.inode),
            share(demands.inode),
            micros(demands.log),
            share(demands.log),
        ]
    };
    Table {
        title: "µs of an operation, and how long it holds what others wait for".into(),
        columns: columns(["", "µs", "AG headers", "share", "inodes", "share", "log's writer", "share"]),
        rows: run.phases.iter().map(row).collect(),
    }
}

fn prediction(name: &str, demands: Demands, real: &[Run]) -> Table {
    let predicted = AGS.map(|ags| demands.predict(ags, MAX_PROCESSORS));
    let shared = demands.predict_shared(MAX_PROCESSORS);
    let rows = powers().map(|processors| {
        let mut row = vec![Cell::text(processors.to_string())];
        row.extend(predicted.iter().map(|rates| Cell::number(rates[processors - 1], 0)));
        row.push(Cell::number(shared[processors - 1], 0));
        let run = real.iter().find(|run| run.threads == processors);
        row.push(Cell::number(run.and_then(|run| run.phase(name)).map(Phase::rate), 0));
        row
    });
    let mut names = vec!["processors".to_owned()];
    names.extend(AGS.map(|ags| format!("{ags} AGs")));
    names.extend(["one directory".into(), "real threads, here".into()]);
    Table { title: format!("{name}: operations per second, predicted"), columns: names, rows: rows.collect() }
}

fn plot(name: &str, demands: Demands, real: &[Run]) -> Plot {
    let line = |label: String, rates: &[f64]| LineSeries {
        name: label,
        points: powers().map(|processors| (processors as f64, rates[processors - 1])).collect(),
    };
    let mut series: Vec<LineSeries> =
        AGS.iter().map(|&ags| line(format!("model, {ags} AGs"), &demands.predict(ags, MAX_PROCESSORS))).collect();
    series.push(line("model, one directory".into(), &demands.predict_shared(MAX_PROCESSORS)));
    let point = |run: &Run| Some((run.threads as f64, run.phase(name)?.rate()));
    series.push(LineSeries { name: "real threads, here".into(), points: real.iter().filter_map(point).collect() });
    Plot::Lines {
        title: format!("{name}, by processors"),
        x: "processors or threads".into(),
        y: "per s".into(),
        series,
    }
}

fn verdict(name: &str, demands: Demands) -> String {
    let (few, few_rate) = demands.limit(AGS[0]);
    let (many, many_rate) = demands.limit(AGS[2]);
    let speed_up = demands.predict(AGS[2], MAX_PROCESSORS)[MAX_PROCESSORS - 1] * demands.whole;
    format!(
        "{name}: the next bottleneck is {few} with {} AGs, at {few_rate:.0} per s, and {many} with {}, at \
         {many_rate:.0} per s; {MAX_PROCESSORS} processors would be worth {speed_up:.1}.",
        AGS[0], AGS[2]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_without_stations_scales_and_one_station_limits() {
        assert!((predict(1.0, &[], 64)[63] - 64.0).abs() < 1e-9);
        let rates = predict(0.9, &[0.1], 64);
        assert!((rates[0] - 1.0).abs() < 1e-9);
        assert!(rates.windows(2).all(|pair| pair[0] < pair[1] + 1e-9), "{rates:?}");
        assert!((rates[63] - 10.0).abs() < 0.1, "{rates:?}");
    }

    #[test]
    fn more_groups_scale_further() {
        let demands = Demands { whole: 10e-6, ag: 5e-6, inode: 8e-6, log: 0.5e-6 };
        let (few, many) = (demands.predict(4, 64)[63], demands.predict(64, 64)[63]);
        // The log's writer limits the one, the headers of four AGs the other: 2.0 against 0.8 million.
        assert!(many > 2.0 * few, "{many} and {few}");
        assert_eq!(demands.limit(4).0, "AG headers");
        assert_eq!(demands.limit(64).0, "the log's writer");
    }
}

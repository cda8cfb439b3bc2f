//! `xfskit crash-test`: the crash simulator.

use crate::args::CrashTestArgs;
use crate::open::session::Session;
use crate::output::causes::{Reported, Usage};
use crate::output::error::{CommandError, Context, Result};
use crate::output::screen::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use xfskit_sim::{
    BadPlace, Campaign, Crashed, Cut, DeviceFault, Finding, Plan, RunOptions, Summary, WORKLOADS, Workload,
};

/// `--exhaustive` tries the combinations of a cut that has fewer than these: fifteen sectors that may have arrived.
const EXHAUSTIVE_BELOW: u64 = 1 << 16;

/// Runs the command.
pub fn run(session: &Session, args: &CrashTestArgs, as_json: bool) -> Result<()> {
    if args.list {
        for workload in WORKLOADS {
            say!(session.output, "{:12} {}", workload.name, workload.about);
        }
        return Ok(());
    }
    let workloads = workloads(args)?;
    if let Some(state) = &args.state {
        return replay(session, args, &workloads, state);
    }
    let campaign = Campaign {
        workloads,
        first_seed: args.seed.unwrap_or(1),
        runs: args.runs.unwrap_or(if args.seconds.or(args.total).is_some() { u64::MAX } else { 1 }),
        plan: plan(args),
        threads: args.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, Into::into), Into::into),
        limit: args.seconds.map(Duration::from_secs),
        most_states: args.total.unwrap_or(u64::MAX),
        most_failures: args.keep_going,
    };
    let summary = with_bar(&campaign);
    if as_json {
        print_json(session, &summary)
    } else {
        print(session, &summary)
    }
    if summary.findings.is_empty() { Ok(()) } else { Err(Reported(1).into()) }
}

fn plan(args: &CrashTestArgs) -> Plan {
    let exhaustive = args.exhaustive;
    Plan {
        states: if exhaustive { u64::MAX } else { args.states },
        exhaustive_below: if exhaustive { EXHAUSTIVE_BELOW } else { 16 },
        later_cut_one_in: 8,
        failing_runs: 4,
        bad_places: 8,
        lies: 40,
    }
}

fn workloads(args: &CrashTestArgs) -> Result<Vec<&'static Workload>> {
    if args.workload.is_empty() {
        return Ok(WORKLOADS.iter().collect());
    }
    let find = |name: &String| {
        xfskit_sim::find(name)
            .ok_or_else(|| Usage(format!("there is no workload {name:?}: --list shows all of them")).into())
    };
    args.workload.iter().map(find).collect()
}

fn with_bar(campaign: &Campaign) -> Summary {
    // Is drawn on terminals only.
    let bar = ProgressBar::with_draw_target(campaign.limit.map(|limit| limit.as_secs()), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{msg} states {wide_bar} {elapsed}");
    bar.set_style(style.expect("the template is right"));
    let summary = campaign.run(&|states| {
        if states.is_multiple_of(64) {
            bar.set_message(states.to_string());
            bar.set_position(bar.elapsed().as_secs());
        }
    });
    bar.finish_and_clear();
    summary
}

fn print(session: &Session, summary: &Summary) {
    say!(session.output, "{:12} {:>10} {:>12} {:>10} {:>10}", "workload", "states", "later cuts", "repeated", "cuts");
    for (workload, tally) in &summary.tallies {
        let (states, later) = (tally.states, tally.later_cuts);
        say!(session.output, "{workload:12} {states:>10} {later:>12} {:>10} {:>10}", tally.repeated, tally.cuts);
    }
    let seconds = summary.elapsed.as_secs_f64();
    say!(session.output, "{} states of {} runs in {seconds:.1} s", summary.states(), summary.runs);
    for finding in &summary.findings {
        say!(session.output, "\nwrong: {finding}");
    }
    if summary.findings.is_empty() {
        say!(session.output, "none is wrong");
    }
}

fn print_json(session: &Session, summary: &Summary) {
    let tallies: Vec<_> = summary
        .tallies
        .iter()
        .map(|(workload, tally)| {
            json!({
                "workload": workload,
                "states": tally.states,
                "later_cuts": tally.later_cuts,
                "repeated": tally.repeated,
                "cuts": tally.cuts,
            })
        })
        .collect();
    let finding = |finding: &Finding| {
        json!({
            "workload": finding.workload,
            "seed": finding.seed,
            "options": finding.options,
            "fault": finding.fault,
        })
    };
    say!(
        session.output,
        "{:#}",
        json!({
            "states": summary.states(),
            "runs": summary.runs,
            "seconds": summary.elapsed.as_secs_f64(),
            "workloads": tallies,
            "findings": summary.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    );
}

/// Checks one state again, and prints the operations up to the cut.
fn replay(session: &Session, args: &CrashTestArgs, workloads: &[&'static Workload], state: &str) -> Result<()> {
    let (&[workload], Some(seed)) = (workloads, args.seed) else {
        return Err(Usage("a state belongs to one --workload and one --seed".into()).into());
    };
    let cuts = state.split('/').map(str::parse).collect::<Result<Vec<Cut>, _>>().map_err(Usage)?;
    let Some((&cut, later)) = cuts.split_first() else { return Err(Usage("name a cut".into()).into()) };
    let bad_place = args.bad_place.as_deref().map(str::parse::<BadPlace>).transpose().map_err(Usage)?;
    let device = match (&args.lie, bad_place) {
        (Some(lie), _) => DeviceFault::Lies(lie.parse().map_err(Usage)?),
        (None, Some(place)) => DeviceFault::Bad(place),
        (None, None) => DeviceFault::None,
    };
    let tag = args.errortag.as_deref().map(crate::args::error_tag).transpose().map_err(Usage)?;
    let run_options = RunOptions { fail_from: args.fail_from, tag, bad_place, transcript: true };
    let (recording, transcript) = xfskit_sim::record(workload, seed, run_options).map_err(CommandError::msg)?;
    let (crashed, bounds) = xfskit_sim::crash(&recording, cut);
    let (acknowledged, begun) = (bounds.acknowledged, bounds.begun);
    for line in &transcript[..begun.min(transcript.len())] {
        say!(session.output, "{line}");
    }
    say!(
        session.output,
        "the power is cut; operations up to {acknowledged} were acknowledged, up to {begun} had begun"
    );
    if let Some(path) = &args.save {
        save(&crashed, path).with_context(|| path.display().to_string())?;
        say!(session.output, "the image as the cut left it is in {}", path.display());
    }
    match xfskit_sim::replay(&recording, cut, later, device) {
        Ok(()) => say!(session.output, "it is recovered as it should be"),
        Err(failure) => {
            say!(session.output, "wrong: {}", failure.fault);
            return Err(Reported(1).into());
        }
    }
    Ok(())
}

fn save(state: &Crashed, path: &Path) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(state.size_bytes)?;
    for (offset, bytes) in state.contents() {
        file.write_all_at(bytes, offset)?;
    }
    Ok(())
}

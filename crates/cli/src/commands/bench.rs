//! `xfskit bench`: the experiments.

use crate::args::BenchArgs;
use crate::open::session::Session;
use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use crate::output::screen::{say, say_part};
use crate::output::text::{parse_size, short_time_string};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xfskit_bench::{Against, Measured, Options, Report, Watch};
use xfskit_engine::{Environment, SystemEnvironment};

type Write = fn(&Report) -> Result<String>;

/// Runs the command.
pub fn run(session: &Session, args: &BenchArgs, as_json: bool) -> Result<()> {
    let reports = args.report.iter().map(|path| Ok((path.as_path(), kind(path)?))).collect::<Result<Vec<_>>>()?;
    let bar = BenchBar::new(stop_flag()?);
    let Measured { report, failure } = xfskit_bench::run(args.experiment, options(args)?, &bar)?;
    drop(bar);
    for (path, write) in reports {
        std::fs::write(path, write(&report)?).with_context(|| path.display().to_string())?;
    }
    if as_json {
        say!(session.output, "{}", xfskit_bench::json(&report)?);
    } else {
        say_part!(session.output, "{}", xfskit_bench::text(&report));
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// A flag that the first signal sets, so that the command can stop and remove its files. A second signal ends the
/// program at once.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn kind(path: &Path) -> Result<Write> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html") => Ok(|report| Ok(xfskit_bench::page(report))),
        Some("json") => Ok(|report| Ok(xfskit_bench::json(report)?)),
        Some("md") => Ok(|report| Ok(xfskit_bench::markdown(report))),
        _ => {
            Err(Usage(format!("--report {}: expected a name that ends in .html, .json or .md", path.display())).into())
        }
    }
}

fn cache_size(text: &str) -> Result<usize, Usage> {
    usize::try_from(parse_size(text).map_err(Usage)?).map_err(|_| Usage(format!("--cache {text}: too much")))
}

fn options(args: &BenchArgs) -> Result<Options> {
    let size = args.size.as_deref().map(parse_size).transpose().map_err(Usage)?;
    let cache = args.cache.as_deref().map(cache_size).transpose()?;
    let against = args.against.as_ref().map(|side| match side.to_str() {
        Some("kernel") => Against::Kernel,
        _ => Against::Dir(side.clone()),
    });
    let words: Vec<String> = std::env::args().skip(1).collect();
    let now = short_time_string(SystemEnvironment.now()).replace('Z', " UTC");
    Ok(Options {
        threads: args.threads,
        files: args.files,
        dirs: args.dirs,
        cases: args.case.clone(),
        rounds: args.rounds,
        on: args.on.clone(),
        against,
        scratch: args.scratch.clone(),
        quick: args.quick,
        published: args.published,
        image_bytes: size,
        engine: crate::args::parse_engine(&args.options)?,
        engine_options: args.options.join(","),
        cache_bytes: cache,
        command: format!("xfskit {}", words.join(" ")),
        date: now,
    })
}

/// The number of operations of a measurement.
struct BenchBar {
    operations: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl BenchBar {
    /// A bar; the measurement ends early when `stop` is set.
    fn new(stop: Arc<AtomicBool>) -> Self {
        // Is drawn on terminals only.
        let operations = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg:40!} {wide_bar} {pos}/{len} {elapsed}");
        operations.set_style(style.expect("the template is right"));
        Self { operations, stop }
    }
}

impl Drop for BenchBar {
    fn drop(&mut self) {
        self.operations.finish_and_clear();
    }
}

impl Watch for BenchBar {
    fn begin(&self, what: &str, operations: u64) {
        self.operations.set_length(operations);
        self.operations.set_position(0);
        self.operations.set_message(what.to_owned());
    }

    fn advance(&self, operations: u64) {
        self.operations.inc(operations);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

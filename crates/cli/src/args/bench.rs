//! The arguments of `bench` and `crash-test`.

use super::image::parse_threads;
use clap::Args;
use std::path::PathBuf;
use xfskit_bench::Experiment;

const NOTES: &str = "\
Without --on the files are in scratch images in memory, which are removed at the end, also after an error. On an \
image, a mount point or a folder, they are in a new folder there, which is removed as well.

Compare times only as ratios: the sides take turns, and the best of the rounds counts. Numbers of transactions and of \
log bytes are exact; mounts of xfskit and of the kernel's XFS report them, other folders do not.";

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct BenchArgs {
    /// What to measure
    pub experiment: Experiment,
    /// Threads [default: 2, or as published]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Files in all [default: as the experiment has it]
    #[arg(long, value_name = "N")]
    pub files: Option<usize>,
    /// Directories [default: one for each thread]
    #[arg(long, value_name = "N")]
    pub dirs: Option<usize>,
    /// Measure this case only, by the name that the tables give it. May be given several times
    #[arg(long, value_name = "NAME")]
    pub case: Vec<String>,
    /// How often each case is measured [default: 3, with --quick 2]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Where: an image, a mount point or a folder [default: a scratch image]
    #[arg(long, value_name = "IMAGE|DIR")]
    pub on: Option<PathBuf>,
    /// The second side: "kernel" for a loop mount of a scratch image (needs root), or a folder
    #[arg(long, value_name = "kernel|DIR")]
    pub against: Option<PathBuf>,
    /// The folder of scratch images, for instance on a disk [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Write a report; its name's ending, html, json or md, says of what kind. May be given several times
    #[arg(long, value_name = "FILE")]
    pub report: Vec<PathBuf>,
    /// Few files and sizes
    #[arg(long)]
    pub quick: bool,
    /// Geometry, threads and sizes as they were published
    #[arg(long)]
    pub published: bool,
    /// Options of the engine, in all cases, not for --on a folder or mount point: larp=always|never,
    /// attrpath=fast|general|intents, nofastpath, nowhiteout, noknownabsent, wsync. May be given several times
    #[arg(short = 'o', value_name = "OPTION,...")]
    pub options: Vec<String>,
    /// Size of scratch images [default: what the files need]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Memory for metadata, in this process [default: a quarter of the machine's, at least 256M; for whiteout 256M]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<String>,
}

/// Arguments of `crash-test`.
#[derive(Debug, Args)]
pub struct CrashTestArgs {
    /// Show the workloads
    #[arg(long)]
    pub list: bool,
    /// Only this workload; may be given several times
    #[arg(long, value_name = "NAME")]
    pub workload: Vec<String>,
    /// Seed of the first run
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Runs of each workload, each with the next seed [default: 1, or as many as --total and --seconds allow]
    #[arg(long, value_name = "N")]
    pub runs: Option<u64>,
    /// States to explore in each run, about
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub states: u64,
    /// Begin no run after so many states in all
    #[arg(long, value_name = "N")]
    pub total: Option<u64>,
    /// At each cut with at most 15 sectors in flight, every state in which they may have been left
    #[arg(long)]
    pub exhaustive: bool,
    /// Begin no state after so many seconds
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Stop after so many states were found wrong
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub keep_going: usize,
    /// Do one state again, as a failure names it
    #[arg(long, value_name = "CUT[/CUT]")]
    pub state: Option<String>,
    /// With --state: the run's device failed from this write or flush on
    #[arg(long, value_name = "N", requires = "state")]
    pub fail_from: Option<u64>,
    /// With --state: the place of an error tag failed
    #[arg(long, value_name = "NAME[:NTH]", requires = "state")]
    pub errortag: Option<String>,
    /// With --state: the state is read from a device that lies, as a failure names it
    #[arg(long, value_name = "LIE", requires = "state")]
    pub lie: Option<String>,
    /// With --state: one place of the run's device failed, as a failure names it
    #[arg(long, value_name = "PLACE", requires = "state", conflicts_with = "lie")]
    pub bad_place: Option<String>,
    /// With --state: write the image as the cut left it to a file
    #[arg(long, value_name = "FILE", requires = "state")]
    pub save: Option<PathBuf>,
}

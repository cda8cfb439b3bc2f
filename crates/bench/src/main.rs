//! The workloads of the published measurements, in-process and on the kernel's XFS, side by side in one run.
//!
//! Counts (transactions, log bytes) are exact; times are only worth as much as their ratio. Both sides work on images
//! made by mkfs.xfs with the same options, on the same tmpfs, with as many threads, and end each phase with a sync that
//! is not part of the time.

mod kernel;
mod ours;
mod trees;

use anyhow::{Context, Result};
use clap::Parser;
use std::path::Path;
use std::time::{Duration, Instant};

/// Measures creates, attributes and removals, and prints xfskit beside the kernel of this machine.
#[derive(Parser)]
struct Arguments {
    /// Files in all.
    #[arg(long, default_value_t = 100_000)]
    files: usize,
    /// Threads, each in a directory of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Size of the images in MiB.
    #[arg(long, default_value_t = 4096)]
    size: u64,
    /// Further options for mkfs.xfs, as one word each: -n parent=0 becomes `--mkfs=-n --mkfs=parent=0`.
    #[arg(long)]
    mkfs: Vec<String>,
    /// Leave the kernel out.
    #[arg(long)]
    alone: bool,
    /// Measure trees on their way into images and out of them instead, beside mkfs.xfs -p and cp -a. Needs the command,
    /// built in the same folder.
    #[arg(long)]
    trees: bool,
    /// With --trees: how often, the best of which counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// What is measured: an implementation with a directory for each thread.
pub(crate) trait Target: Sync {
    /// A file as later calls name it.
    type File: Clone + Send + Sync;
    fn create(&self, thread: usize, name: &str) -> Self::File;
    fn set(&self, file: &Self::File, value: &[u8]);
    fn get(&self, file: &Self::File, value: &mut [u8]);
    fn remove(&self, file: &Self::File);
    fn unlink(&self, thread: usize, name: &str);
    fn sync(&self);
    /// Transactions and log bytes so far.
    fn counts(&self) -> (u64, u64);
}

/// One phase's outcome.
struct Phase {
    name: &'static str,
    transactions: u64,
    log_bytes: u64,
    elapsed: Duration,
}

/// Names as fs_mark makes them: 40 bytes.
fn file_name(thread: usize, n: usize) -> String {
    format!("{:016x}{:024x}", n * 7919 + thread, n)
}

fn run<T: Target>(target: &T, arguments: &Arguments) -> Vec<Phase> {
    let per_thread = arguments.files / arguments.threads;
    let files: Vec<std::sync::Mutex<Vec<T::File>>> = (0..arguments.threads).map(|_| Default::default()).collect();
    let mut phases = Vec::new();
    let mut phase = |name: &'static str, work: &(dyn Fn(usize) + Sync)| {
        let before = target.counts();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..arguments.threads {
                scope.spawn(move || work(thread));
            }
        });
        let elapsed = start.elapsed();
        target.sync();
        let after = target.counts();
        phases.push(Phase { name, transactions: after.0 - before.0, log_bytes: after.1 - before.1, elapsed });
    };
    phase("create", &|thread| {
        let made: Vec<_> = (0..per_thread).map(|n| target.create(thread, &file_name(thread, n))).collect();
        *files[thread].lock().expect("no thread failed") = made;
    });
    let each = |thread: usize, work: &dyn Fn(&T::File)| {
        let files = files[thread].lock().expect("no thread failed").clone();
        files.iter().for_each(work);
    };
    phase("set", &|thread| each(thread, &|file| target.set(file, &[7; 64])));
    phase("replace", &|thread| each(thread, &|file| target.set(file, &[8; 64])));
    phase("get", &|thread| each(thread, &|file| target.get(file, &mut [0; 64])));
    phase("set, one file", &|thread| {
        let file = files[thread].lock().expect("no thread failed")[0].clone();
        (0..per_thread).for_each(|n| target.set(&file, &[n as u8; 64]));
    });
    phase("remove", &|thread| each(thread, &|file| target.remove(file)));
    phase("unlink", &|thread| (0..per_thread).for_each(|n| target.unlink(thread, &file_name(thread, n))));
    phases
}

fn make_image(path: &Path, arguments: &Arguments) -> Result<()> {
    let reference = xfskit_testkit::reference().context("the reference tools are missing: run scripts/reference")?;
    std::fs::File::create(path)?.set_len(arguments.size << 20)?;
    let mut options: Vec<&str> = vec!["-q"];
    options.extend(arguments.mkfs.iter().map(String::as_str));
    options.push(path.to_str().context("the path is not text")?);
    reference.tool_output("mkfs.xfs", options);
    Ok(())
}

/// Two threads of the engine allocate and free each other's log copies all the time, on which the C library's
/// allocator takes locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.trees {
        return trees::measure(arguments.files, arguments.size, arguments.rounds);
    }
    let scratch = xfskit_testkit::scratch();
    let image = scratch.file("ours.img");
    make_image(&image, &arguments)?;
    let (ours, counters) = ours::measure(&image, &arguments)?;
    let theirs = if arguments.alone {
        None
    } else {
        let image = scratch.file("kernel.img");
        make_image(&image, &arguments)?;
        kernel::measure(&image, &arguments)?
    };
    print(&ours, theirs.as_deref(), &arguments);
    println!();
    for (name, count) in counters.into_iter().filter(|(_, count)| *count > 0) {
        println!("{name:28} {count}");
    }
    Ok(())
}

fn print(ours: &[Phase], theirs: Option<&[Phase]>, arguments: &Arguments) {
    let files = (arguments.files / arguments.threads * arguments.threads) as f64;
    println!(
        "{} files, {} threads, image of {} MiB; per operation",
        arguments.files, arguments.threads, arguments.size
    );
    println!(
        "{:14} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>8}",
        "", "transactions", "the kernel's", "log bytes", "the kernel's", "us", "the kernel's", "rate"
    );
    for (index, phase) in ours.iter().enumerate() {
        let per_file = |phase: &Phase| {
            let time = phase.elapsed.as_secs_f64() * 1e6 / files;
            (phase.transactions as f64 / files, phase.log_bytes as f64 / files, time)
        };
        let (transactions, bytes, time) = per_file(phase);
        print!("{:14} {transactions:12.3}", phase.name);
        match theirs.map(|theirs| per_file(&theirs[index])) {
            Some((their_transactions, their_bytes, their_time)) => println!(
                " {their_transactions:12.3} {bytes:12.1} {their_bytes:12.1} {time:12.2} {their_time:12.2} {:7.2}x",
                their_time / time
            ),
            None => println!(" {:12} {bytes:12.1} {:12} {time:12.2}", "", ""),
        }
    }
}

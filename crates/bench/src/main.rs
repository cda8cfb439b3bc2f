//! The workloads of the published measurements, in-process: what each operation costs in transactions, log bytes and
//! time.

use anyhow::Result;
use clap::Parser;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xfskit::device::{Access, FileDevice};
use xfskit::ondisk::InodeNumber;
use xfskit::{Caller, Filesystem, MountOptions, NewFile, SetMode};

/// Measures operations on an image.
#[derive(Parser)]
struct Arguments {
    /// The image; it is changed.
    image: PathBuf,
    /// Files.
    #[arg(long, default_value_t = 100_000)]
    files: usize,
    /// Threads, each in directories of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

struct Phase {
    name: &'static str,
    transactions: u64,
    log_bytes: u64,
    elapsed: Duration,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let device = Arc::new(FileDevice::open(&arguments.image, Access::Write)?);
    let fs = Filesystem::open(device, MountOptions::default())?;
    let me = Caller::root();
    let per_thread = arguments.files / arguments.threads;
    let dirs: Vec<InodeNumber> = (0..arguments.threads)
        .map(|n| Ok(fs.create(fs.root(), format!("dir{n}").as_bytes(), &NewFile::new(0o040_755), &me)?.inode))
        .collect::<Result<_>>()?;
    let name = |thread: usize, n: usize| format!("{:016x}{:024x}", n * 7919 + thread, n).into_bytes();
    let inodes: Vec<std::sync::Mutex<Vec<InodeNumber>>> = dirs.iter().map(|_| Default::default()).collect();
    let each = |work: &(dyn Fn(usize, usize) + Sync)| {
        std::thread::scope(|scope| {
            for thread in 0..arguments.threads {
                scope.spawn(move || (0..per_thread).for_each(|n| work(thread, n)));
            }
        });
    };
    let mut phases = Vec::new();
    let mut phase = |label: &'static str, work: &(dyn Fn(usize, usize) + Sync)| {
        let counters = &fs.mount().counters;
        let before = (counters.transactions.get(), counters.log_bytes.get());
        let start = Instant::now();
        each(work);
        let elapsed = start.elapsed();
        fs.sync().expect("sync");
        phases.push(Phase {
            name: label,
            transactions: counters.transactions.get() - before.0,
            log_bytes: counters.log_bytes.get() - before.1,
            elapsed,
        });
    };
    phase("create", &|t, n| {
        let stat = fs.create(dirs[t], &name(t, n), &NewFile::new(0o100_644), &me).expect("create");
        inodes[t].lock().expect("inodes").push(stat.inode);
    });
    let inode = |t: usize, n: usize| inodes[t].lock().expect("inodes")[n];
    phase("set", &|t, n| fs.set_xattr(inode(t, n), b"user.test", &[7; 64], SetMode::Any, &me).expect("set"));
    phase("replace", &|t, n| fs.set_xattr(inode(t, n), b"user.test", &[8; 64], SetMode::Any, &me).expect("replace"));
    phase("get", &|t, n| assert_eq!(fs.get_xattr(inode(t, n), b"user.test").expect("get").len(), 64));
    phase("remove", &|t, n| fs.remove_xattr(inode(t, n), b"user.test", &me).expect("remove"));
    phase("unlink", &|t, n| fs.unlink(dirs[t], &name(t, n), &me).expect("unlink"));
    println!("{:10} {:>12} {:>10} {:>12} {:>12}", "operation", "transactions", "log bytes", "us", "per second");
    for phase in &phases {
        let files = (per_thread * arguments.threads) as f64;
        println!(
            "{:10} {:12.3} {:10.1} {:12.2} {:12.0}",
            phase.name,
            phase.transactions as f64 / files,
            phase.log_bytes as f64 / files,
            phase.elapsed.as_secs_f64() * 1e6 / files * arguments.threads as f64,
            files / phase.elapsed.as_secs_f64()
        );
    }
    for (name, count) in fs.mount().counters.list() {
        println!("{name:28} {count}");
    }
    fs.unmount()?;
    Ok(())
}

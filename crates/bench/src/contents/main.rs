//! Reading and writing contents, in-process and through a mount, beside the kernel's XFS on an image of the same shape.
//!
//! Each phase ends with what makes its contents durable, inside the time. The kernel's in-process counterpart is `O_DIRECT`
//! on a loop mount, for xfskit keeps no cache of contents either; the mount's counterpart is the kernel's mount, each
//! with a cold cache for reading.

mod targets;

use anyhow::Result;
use clap::Parser;
use std::time::{Duration, Instant};
use targets::{InProcess, Kernel, Ours, Place};

/// Measures contents and prints the ratio of xfskit's rate to the kernel's.
#[derive(Parser)]
struct Arguments {
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 4096)]
    size: u64,
    /// Bytes of a request, in KiB.
    #[arg(long, default_value_t = 1024)]
    request: usize,
    /// Requests of 4 KiB at random places.
    #[arg(long, default_value_t = 200_000)]
    random: usize,
    /// Only in-process.
    #[arg(long)]
    no_mount: bool,
}

/// A file that is written and read.
pub(crate) trait File {
    fn write(&self, offset: u64, data: &[u8]);
    fn read(&self, offset: u64, buffer: &mut [u8]);
    fn sync(&self);
    /// Nothing of the file is in a cache any more.
    fn forget(&self);
}

/// Bytes that begin at a multiple of 4 KiB, as `O_DIRECT` wants them.
fn aligned(storage: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    storage.resize(bytes + 4096, 7);
    let start = storage.as_ptr().align_offset(4096);
    &mut storage[start..start + bytes]
}

struct Times([Duration; 4]);

const PHASES: [&str; 4] = ["write", "read", "overwrite 4 KiB", "read 4 KiB"];

fn measure(file: &dyn File, arguments: &Arguments) -> Times {
    let (mut storage, total, request) = (Vec::new(), arguments.size << 20, arguments.request << 10);
    let buffer = aligned(&mut storage, request);
    let timed = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let write = timed(&mut || {
        for offset in (0..total).step_by(request) {
            file.write(offset, buffer);
        }
        file.sync();
    });
    file.forget();
    let read = timed(&mut || (0..total).step_by(request).for_each(|offset| file.read(offset, buffer)));
    let mut seed = 1u64;
    let mut place = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((seed >> 20) % (total / 4096)) * 4096
    };
    let overwrite = timed(&mut || {
        (0..arguments.random).for_each(|_| file.write(place(), &buffer[..4096]));
        file.sync();
    });
    file.forget();
    let random = timed(&mut || (0..arguments.random).for_each(|_| file.read(place(), &mut buffer[..4096])));
    Times([write, read, overwrite, random])
}

fn print(title: &str, ours: &Times, theirs: &Times, arguments: &Arguments) {
    println!("{title}");
    for (index, name) in PHASES.iter().enumerate() {
        let (ours, theirs) = (ours.0[index].as_secs_f64(), theirs.0[index].as_secs_f64());
        let rate = |time: f64| match index {
            0 | 1 => format!("{:7.0} MiB/s", arguments.size as f64 / time),
            _ => format!("{:7.0} /s", arguments.random as f64 / time),
        };
        println!("  {name:16} {:>16} {:>16} {:6.2}x", rate(ours), rate(theirs), theirs / ours);
    }
}

/// As the command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let scratch = xfskit_testkit::scratch();
    let image = scratch.file("a.img");
    println!("{} MiB in requests of {} KiB; xfskit, the kernel, ratio", arguments.size, arguments.request);
    let place = Place::new(&image, arguments.size)?;
    // Memory that a virtual machine has not touched before is slow the first time, whoever it is that touches it.
    std::fs::write(&image, vec![1; (arguments.size << 20) as usize])?;
    let ours = measure(&InProcess::open(&place)?, &arguments);
    let Some(kernel) = Kernel::open(&place, true)? else { return Ok(()) };
    let theirs = measure(kernel.file(), &arguments);
    drop(kernel);
    print("in-process, against O_DIRECT", &ours, &theirs, &arguments);
    if arguments.no_mount {
        return Ok(());
    }
    let ours = Ours::open(&place, &scratch.file("mount"))?;
    let times = measure(ours.file(), &arguments);
    drop(ours);
    let Some(kernel) = Kernel::open(&place, false)? else { return Ok(()) };
    print("through the mount, against the kernel's", &times, &measure(kernel.file(), &arguments), &arguments);
    Ok(())
}

//! What latency costs: nbdkit with a delay of 1 ms for each read and write, and how fast 1 and 16 threads get through.
//! The last column is a write and a flush.
//!
//! ```sh
//! cargo run --release -p xfskit-nbd --example figures
//! ```

use std::error::Error;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use xfskit_device::BlockDevice;
use xfskit_nbd::{Address, NbdDevice, Options, Writers};

const BLOCK_BYTES: usize = 4096;
const BLOCKS_OF_A_THREAD: usize = 500;
const SYNCS: usize = 500;
const LARGE_BYTES: usize = 64 << 20;

/// nbdkit with a delay; it ends with the program.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
}

impl Server {
    fn start(delay: &str) -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("sock");
        let mut command = Command::new("nbdkit");
        command.arg("-f").arg("-U").arg(&socket).args(["--filter=delay", "memory", "256M"]);
        // The filter does not delay flushes.
        command.args(["read", "write"].map(|what| format!("delay-{what}={delay}")));
        let child = command.spawn()?;
        while !socket.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(50));
        Ok(Self { child, dir })
    }

    fn open(&self, connections: usize) -> Result<NbdDevice, Box<dyn Error>> {
        let address: Address = format!("nbd+unix:///?socket={}", self.dir.path().join("sock").display()).parse()?;
        let options = Options { connections, ..Options::default() };
        Ok(NbdDevice::open_writable(&address, Writers::OthersKeptOut, &options)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The time that `threads` threads take, each for its share of the device.
fn time(threads: usize, work: impl Fn(usize) -> std::io::Result<()> + Sync) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("a thread of the example panics"))
    })?;
    Ok(began.elapsed())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:>8} {:>11} {:>7} {:>14} {:>14} {:>12}",
        "delay", "connections", "threads", "reads/s", "writes/s", "sync ms"
    );
    for delay in ["0ms", "1ms"] {
        for connections in [1, 4] {
            for threads in [1, 16] {
                let server = Server::start(delay)?;
                let device = server.open(connections)?;
                let place = |thread: usize, n: usize| ((n * threads + thread) * BLOCK_BYTES) as u64;
                let blocks = |each: &(dyn Fn(u64) -> std::io::Result<()> + Sync)| {
                    time(threads, |thread| (0..BLOCKS_OF_A_THREAD).try_for_each(|n| each(place(thread, n))))
                };
                let writes = blocks(&|at| device.write(at, &[7; BLOCK_BYTES]))?;
                let reads = blocks(&|at| device.read(at, &mut [0; BLOCK_BYTES]))?;
                let syncs = time(1, |_| {
                    (0..SYNCS).try_for_each(|n| device.write(place(0, n), &[8; BLOCK_BYTES]).and(device.flush()))
                })?;
                let rate = |time: Duration| (threads * BLOCKS_OF_A_THREAD) as f64 / time.as_secs_f64();
                let sync_ms = syncs.as_secs_f64() * 1000.0 / SYNCS as f64;
                println!(
                    "{delay:>8} {:>11} {threads:>7} {:>14.0} {:>14.0} {sync_ms:>12.2}",
                    device.connections(),
                    rate(reads),
                    rate(writes)
                );
            }
        }
    }
    for delay in ["0ms", "1ms"] {
        let server = Server::start(delay)?;
        let device = server.open(4)?;
        let mut data = vec![7; LARGE_BYTES];
        let rate = |time: Duration| LARGE_BYTES as f64 / time.as_secs_f64() / f64::from(1 << 20);
        let written = time(1, |_| device.write(0, &data))?;
        let began = Instant::now();
        device.read(0, &mut data)?;
        println!(
            "64 MiB in one call, delay {delay}: written {:.0} MiB/s, read {:.0} MiB/s",
            rate(written),
            rate(began.elapsed())
        );
    }
    Ok(())
}

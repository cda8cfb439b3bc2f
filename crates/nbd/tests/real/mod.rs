//! Real servers, as several tests start them.

#![allow(dead_code)]

use crate::server::{address, quick};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_device::BlockDevice;
use xfskit_nbd::{Address, NbdDevice, OpenError, Problem, Writers};

pub const MIB: usize = 1 << 20;

/// Says that a test was skipped; in CI nothing may be.
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "a test cannot be skipped in CI: {why}");
    println!("skipped: {why}");
}

pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// A server that ends with the test.
pub struct Running {
    pub child: Child,
    /// Where it listens.
    pub socket: PathBuf,
}

impl Running {
    pub fn start(command: &mut Command, socket: &Path) -> Self {
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while !socket.exists() {
            assert!(began.elapsed() < Duration::from_secs(30), "{command:?} makes no socket");
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{command:?} ended: {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, socket: socket.into() }
    }

    pub fn nbdkit(dir: &Path, args: &[&str]) -> Self {
        let socket = dir.join("nbdkit.sock");
        let _ = std::fs::remove_file(&socket);
        Self::start(Command::new("nbdkit").args(["-f", "-U"]).arg(&socket).args(args), &socket)
    }

    pub fn qemu(dir: &Path, args: &[&str]) -> Self {
        let socket = dir.join("qemu.sock");
        let _ = std::fs::remove_file(&socket);
        Self::start(Command::new("qemu-nbd").args(["-t", "-k"]).arg(&socket).args(args), &socket)
    }

    pub fn address(&self) -> Address {
        address(&self.socket, "")
    }

    pub fn open(&self) -> Result<NbdDevice, OpenError> {
        retry(|| NbdDevice::open(&self.address(), &quick()))
    }

    pub fn open_writable(&self) -> Result<NbdDevice, OpenError> {
        retry(|| NbdDevice::open_writable(&self.address(), Writers::OthersKeptOut, &quick()))
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A socket has its name a moment before it listens.
pub fn retry(open: impl Fn() -> Result<NbdDevice, OpenError>) -> Result<NbdDevice, OpenError> {
    let began = Instant::now();
    loop {
        match open() {
            Err(error)
                if matches!(error.problem(), Problem::Unreachable(_)) && began.elapsed() < Duration::from_secs(10) =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n / 511 + n * 7 + seed * 131) as u8).collect()
}

/// Writes from several threads, zeros and discards included, and returns what the device must have then.
pub fn work(device: &NbdDevice, bytes: usize) -> Vec<u8> {
    let part = bytes / 4;
    let parts: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let mut model = vec![0; part];
                    for round in 0..24 {
                        let at = (round * 7919 * 512) % (part - MIB);
                        let length = 512 << (round % 12);
                        let data = if round % 5 == 0 { vec![0; length] } else { pattern(length, thread * 100 + round) };
                        device.write((thread * part + at) as u64, &data).unwrap();
                        model[at..at + length].copy_from_slice(&data);
                        if round % 8 == 7 {
                            device.flush().unwrap();
                        }
                        let mut back = vec![0; length];
                        device.read((thread * part + at) as u64, &mut back).unwrap();
                        assert!(back == data);
                    }
                    model
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    device.flush().unwrap();
    let model = parts.concat();
    let mut back = vec![1; bytes];
    device.read(0, &mut back).unwrap();
    assert!(back == model);
    model
}

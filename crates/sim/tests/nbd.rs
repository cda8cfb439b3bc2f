//! The engine over NBD: a server dies at any request and loses any part of what was not flushed. What the engine had
//! acknowledged is there, and the rest is one of the model's trees, as after any other power cut.
//!
//! `XFSKIT_NBD_RUNS` sets the number of runs, `XFSKIT_SEED` the first seed.

#[path = "../../nbd/tests/server/mod.rs"]
mod server;

use server::{CAN_MULTI_CONN, Plan, STEPS, Server, USUAL};
use std::io;
use std::sync::{Arc, Mutex};
use xfskit_device::BlockDevice;
use xfskit_nbd::NbdDevice;
use xfskit_sim::{Event, Lower, Pages, RunOptions, WORKLOADS, judge_lower, record_on};

const PAGE: usize = 4096;

/// The storage below a run: an export. After its first error it takes no more marks: the run cannot have acknowledged
/// anything then.
struct Export {
    server: Server,
    device: NbdDevice,
    seed: u64,
    marks: Mutex<Marks>,
}

#[derive(Default)]
struct Marks {
    /// Of the server, before the run.
    requests: usize,
    events: Vec<Event>,
    failed: bool,
}

impl Export {
    /// Has the server die at one of the next requests after so many: a run makes some dozens.
    fn cut_after(&self, requests: usize) {
        let place = requests + random(self.seed) as usize % 60;
        self.server.change(|plan| plan.cut = Some((place, STEPS[self.seed as usize % STEPS.len()])));
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.marks.lock().unwrap().failed = true;
        }
        result
    }
}

impl Lower for Export {
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.note(self.device.write(offset, data))
    }

    fn flush(&self) -> io::Result<()> {
        self.note(self.device.flush())
    }

    fn mark(&self, event: &Event) {
        let mut marks = self.marks.lock().unwrap();
        if matches!(event, Event::Prepared) {
            let before = marks.requests + self.server.seen().len();
            self.cut_after(before);
        }
        if !marks.failed {
            marks.events.push(event.clone());
        }
    }
}

fn random(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn what_was_acknowledged_is_there_after_a_server_died() {
    let (runs, first) = (number("XFSKIT_NBD_RUNS", 40), number("XFSKIT_SEED", 1));
    let mut cut = 0;
    for seed in first..first + runs {
        let workload = &WORKLOADS[seed as usize % WORKLOADS.len()];
        let lower: Mutex<Option<Arc<Export>>> = Mutex::new(None);
        let make = |size_bytes: u64, pages: &Pages| -> Arc<dyn Lower> {
            let flags = if seed % 2 == 0 { USUAL } else { USUAL | CAN_MULTI_CONN };
            let blocks = [None, Some((1, 4096, 1 << 20))][seed as usize / 2 % 2];
            let server = Server::start(Plan { size: size_bytes as usize, flags, blocks, seed, ..Plan::default() });
            let device = server.open_writable().unwrap();
            for (page, bytes) in pages.iter().filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)) {
                device.write(page * PAGE as u64, &bytes[..]).unwrap();
            }
            device.flush().unwrap();
            let requests = server.seen().len();
            let marks = Mutex::new(Marks { requests, ..Marks::default() });
            let export = Arc::new(Export { server, device, seed, marks });
            export.cut_after(requests);
            *lower.lock().unwrap() = Some(Arc::clone(&export));
            export
        };
        let (recording, _) = record_on(workload, seed, RunOptions::default(), Some(&make)).unwrap();
        let export = lower.into_inner().unwrap().unwrap();
        if export.server.cuts() == 0 {
            export.server.crash();
        } else {
            cut += 1;
        }
        let marks = std::mem::take(&mut export.marks.lock().unwrap().events);
        let durable = export.server.durable();
        let pages: Pages = durable
            .chunks(PAGE)
            .enumerate()
            .map(|(page, bytes)| (page as u64, Arc::new(bytes.try_into().unwrap())))
            .collect();
        let fault = judge_lower(&recording, &marks, pages);
        assert!(fault.is_ok(), "workload {} seed {seed}: {}", workload.name, fault.unwrap_err());
    }
    println!("{runs} runs, {cut} of them cut");
    assert!(cut * 2 > runs, "{cut} of {runs}: too few runs reach the place of the cut");
}

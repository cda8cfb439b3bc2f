//! A server that cuts connections at any step and loses what was not flushed: what a flush acknowledged is there, and
//! after a loss no request succeeds.

mod server;

use server::{CAN_MULTI_CONN, FLUSH, Plan, READ, SECTOR, STEPS, Server, USUAL, WRITE, quick};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use xfskit_device::BlockDevice;
use xfskit_nbd::{NbdDevice, Options, Writers};

const THREADS: usize = 3;
const SECTORS: usize = 64;

/// The version that a sector has, zero for none.
fn version(sector: &[u8]) -> u64 {
    let words: Vec<u64> = sector.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert!(words.iter().all(|word| *word == words[0]), "a torn sector");
    words[0]
}

/// What each sector was: written, written and returned, flushed.
#[derive(Default)]
struct History {
    begun: AtomicU64,
    returned: AtomicU64,
    flushed: AtomicU64,
}

/// Writes and flushes until a request fails. Each thread has its own sectors, and flushes answer for all of them.
fn work(device: &NbdDevice, thread: usize, seed: u64, history: &[History]) {
    let mut random = seed.wrapping_mul(THREADS as u64) + thread as u64;
    for version in 1_u64.. {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (random >> 33) as usize % SECTORS;
        let count = 1 + (random >> 50) as usize % (SECTORS - at).min(20);
        let sectors = thread * SECTORS + at..thread * SECTORS + at + count;
        history[sectors.clone()].iter().for_each(|sector| sector.begun.store(version, Ordering::SeqCst));
        let data = version.to_le_bytes().repeat(count * SECTOR / 8);
        if device.write((sectors.start * SECTOR) as u64, &data).is_err() {
            return;
        }
        history[sectors].iter().for_each(|sector| sector.returned.store(version, Ordering::SeqCst));
        if random.is_multiple_of(3) {
            let returned: Vec<_> = history.iter().map(|sector| sector.returned.load(Ordering::SeqCst)).collect();
            if device.flush().is_err() {
                return;
            }
            for (sector, returned) in history.iter().zip(returned) {
                sector.flushed.fetch_max(returned, Ordering::SeqCst);
            }
        }
    }
}

fn verify_all_fail(device: &NbdDevice) {
    for _ in 0..3 {
        assert!(device.write(0, &[1; SECTOR]).is_err());
        assert!(device.flush().is_err());
        assert!(device.read(0, &mut [0; SECTOR]).is_err());
        assert!(device.discard(0, 1 << 20).is_err());
        assert!(device.may_hold_data(0, 1 << 20));
    }
}

#[test]
fn what_was_flushed_is_there_after_any_cut() {
    let size = THREADS * SECTORS * SECTOR;
    let mut flushed = 0;
    for seed in 0..300 {
        let step = STEPS[seed % STEPS.len()];
        let flags = if seed % 2 == 0 { USUAL } else { USUAL | CAN_MULTI_CONN };
        // Small pieces, so that a write is many requests on many connections.
        let plan = Plan {
            size,
            flags,
            blocks: Some((512, 512, 2048)),
            structured: seed % 3 != 0,
            cut: Some((seed / 3 + 1, step)),
            seed: seed as u64,
            ..Plan::default()
        };
        let server = Server::start(plan);
        let device = server.open_writable().unwrap();
        assert_eq!(device.connections(), if seed % 2 == 0 { 1 } else { 4 });
        let history: Vec<History> = (0..THREADS * SECTORS).map(|_| History::default()).collect();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (device, history) = (&device, &history);
                scope.spawn(move || work(device, thread, seed as u64, history));
            }
        });
        assert_eq!(server.cuts(), 1, "{step:?}");
        verify_all_fail(&device);
        // The server is there again, and a new device sees what the disk has.
        let again = server.open_writable().unwrap();
        let mut contents = vec![0; size];
        again.read(0, &mut contents).unwrap();
        assert!(contents == server.durable(), "seed {seed}, {step:?}");
        for (n, (sector, history)) in contents.chunks(SECTOR).zip(&history).enumerate() {
            let (least, most) = (history.flushed.load(Ordering::SeqCst), history.begun.load(Ordering::SeqCst));
            assert!((least..=most).contains(&version(sector)), "seed {seed}, {step:?}: sector {n}, flushed {least}");
            flushed += usize::from(least > 0);
        }
        again.flush().unwrap();
        assert_eq!(server.cuts(), 1, "the lost device has not connected again");
    }
    assert!(flushed > 1000, "{flushed}: too few flushes succeed for a test");
}

#[test]
fn a_flush_that_failed_is_never_followed_by_one_that_succeeds() {
    let server = Server::start(Plan::default());
    let device = server.open_writable().unwrap();
    device.write(0, &[1; SECTOR]).unwrap();
    server.fail(FLUSH, 5, 1);
    let error = device.flush().unwrap_err().to_string();
    assert!(error.contains("EIO") && error.contains("in doubt") && error.contains("disk?socket="), "{error}");
    // The server's next flush would succeed, and the write is gone.
    for _ in 0..3 {
        assert!(device.flush().is_err());
        assert!(device.write(0, &[1; SECTOR]).is_err());
        assert!(device.discard(0, 1 << 20).is_err());
        device.read(0, &mut [0; SECTOR]).unwrap();
    }
    assert_eq!(server.durable()[0], 0);
}

/// Of two flushes at once, a server may report an error to one of them only.
#[test]
fn flushes_at_once_all_fail_if_one_does() {
    for _ in 0..50 {
        let server = Server::start(Plan { size: 1 << 16, flags: USUAL | CAN_MULTI_CONN, ..Plan::default() });
        let device = server.open_writable().unwrap();
        device.write(0, &[1; SECTOR]).unwrap();
        server.fail(FLUSH, 5, 1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(device.flush().is_err()));
            }
        });
    }
}

#[test]
fn a_server_that_shuts_this_client_out_is_lost() {
    for command in [READ, WRITE, FLUSH] {
        let server = Server::start(Plan::default());
        let device = server.open_writable().unwrap();
        server.fail(command, 108, 1);
        let results = [device.write(0, &[1; SECTOR]), device.read(0, &mut [0; SECTOR]), device.flush()];
        assert!(results[2].as_ref().unwrap_err().to_string().contains("ESHUTDOWN"), "{results:?}");
        verify_all_fail(&device);
    }
}

#[test]
fn a_server_that_stops_answering_is_lost() {
    for silent in [READ, WRITE, FLUSH] {
        let server = Server::start(Plan::default());
        let options = Options { silence: Duration::from_millis(200), ..quick() };
        let device = NbdDevice::open_writable(&server.address(), Writers::OthersKeptOut, &options).unwrap();
        // Nothing is asked, so nothing is lost.
        std::thread::sleep(Duration::from_millis(500));
        device.write(0, &[1; SECTOR]).unwrap();
        server.change(|plan| plan.silent = Some(silent));
        let results = [device.write(0, &[1; SECTOR]), device.read(0, &mut [0; SECTOR]), device.flush()];
        assert_eq!(results[2].as_ref().unwrap_err().kind(), ErrorKind::TimedOut, "{results:?}");
        server.change(|plan| plan.silent = None);
        verify_all_fail(&device);
    }
}

#[test]
fn a_server_that_dies_while_nothing_is_asked_is_lost() {
    let server = Server::start(Plan::default());
    let device = server.open_writable().unwrap();
    device.write(0, &[1; SECTOR]).unwrap();
    server.crash();
    verify_all_fail(&device);
    let reader = server.open().unwrap();
    server.crash();
    assert!(reader.read(0, &mut [0; SECTOR]).is_err());
}

/// Nothing waits to be flushed, and yet the loss shows.
#[test]
fn a_flush_that_needs_no_request_fails_after_a_loss() {
    let server = Server::start(Plan::default());
    let device = server.open_writable().unwrap();
    device.flush().unwrap();
    server.crash();
    assert!(device.read(0, &mut [0; SECTOR]).is_err());
    assert!(device.flush().is_err());
}

//! How much may be in flight on a device at once.

use parking_lot::{Condvar, Mutex};

const MAX_REQUESTS: usize = 128;
const MAX_BYTES: usize = 64 << 20;

/// Counts requests in flight, and their bytes.
#[derive(Default)]
pub struct InFlight {
    used: Mutex<Used>,
    freed: Condvar,
}

#[derive(Default)]
struct Used {
    requests: usize,
    bytes: usize,
}

impl Used {
    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.requests < MAX_REQUESTS && (self.requests == 0 || self.bytes + bytes <= MAX_BYTES);
        if fits {
            self.requests += 1;
            self.bytes += bytes;
        }
        fits
    }
}

impl InFlight {
    /// Waits for room. A thread that has permits must not call it, since others may wait for those.
    pub fn wait(&self, bytes: usize) -> Permit<'_> {
        let mut used = self.used.lock();
        while !used.take(bytes) {
            self.freed.wait(&mut used);
        }
        Permit { of: self, bytes }
    }

    /// Room for one request that carries nothing and is the only one of its kind: it does not wait for the others,
    /// which may follow each other without end.
    pub fn beside(&self) -> Permit<'_> {
        self.used.lock().requests += 1;
        Permit { of: self, bytes: 0 }
    }

    /// Room, if there is some.
    pub fn take(&self, bytes: usize) -> Option<Permit<'_>> {
        self.used.lock().take(bytes).then(|| Permit { of: self, bytes })
    }
}

/// The right to have a request in flight.
pub struct Permit<'a> {
    of: &'a InFlight,
    bytes: usize,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut used = self.of.used.lock();
        used.requests -= 1;
        used.bytes -= self.bytes;
        drop(used);
        // Waiters need different amounts of room.
        self.of.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_bytes_are_bounded() {
        let limits = InFlight::default();
        let all: Vec<_> = (0..MAX_REQUESTS).map(|_| limits.take(1).unwrap()).collect();
        assert!(limits.take(0).is_none());
        drop(all);
        let half = limits.take(MAX_BYTES / 2).unwrap();
        assert!(limits.take(MAX_BYTES / 2 + 1).is_none());
        let _other = limits.take(MAX_BYTES / 2).unwrap();
        drop(half);
        assert!(limits.take(1).is_some());
    }

    #[test]
    fn one_request_has_room_beside_all_others() {
        let limits = InFlight::default();
        let all: Vec<_> = (0..MAX_REQUESTS).map(|_| limits.take(1).unwrap()).collect();
        let beside = limits.beside();
        assert!(limits.take(0).is_none());
        drop(all);
        let _others: Vec<_> = (1..MAX_REQUESTS).map(|_| limits.take(1).unwrap()).collect();
        assert!(limits.take(0).is_none());
        drop(beside);
        assert!(limits.take(0).is_some());
    }

    #[test]
    fn a_thread_waits_for_room() {
        let limits = InFlight::default();
        std::thread::scope(|scope| {
            let all = limits.wait(MAX_BYTES);
            let waiter = scope.spawn(|| drop(limits.wait(1)));
            drop(all);
            waiter.join().unwrap();
        });
    }
}

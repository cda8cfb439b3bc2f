//! A bounded queue between two threads that make each other wait seldom.
//!
//! ```text
//! sender    waits when the queue is full, until it is half empty
//! receiver  waits when the queue is empty, until it is half full, or a moment after the first item
//! ```
//! Waking a thread takes as long as several items take where the processor has gone to sleep meanwhile. In a queue that
//! wakes the other side for each item, two threads that are nearly equally fast do that all the time.
//!
//! Invariants: at most [`CAPACITY`] items. The sender waits only while more than half of that is in the queue, and the
//! receiver only while less is; so they never wait both. Items of more than [`MAX_BYTES`] together fill the queue too,
//! however few they are; the sender waits then until they are fewer bytes, or none.
//!
//! Locking: one mutex, held to move an item.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most items.
const CAPACITY: usize = 16;
/// Most bytes of items, but for one item that alone has more.
const MAX_BYTES: usize = 64 << 20;
/// Where a side that has waited goes on.
const HALF: usize = CAPACITY / 2;
/// How long an item waits at most for others before it wakes the receiver.
const MOMENT: Duration = Duration::from_millis(5);

struct Shared<T> {
    state: Mutex<State<T>>,
    /// For the receiver.
    filled: Condvar,
    /// For the sender.
    emptied: Condvar,
}

struct State<T> {
    /// Each with its bytes.
    items: VecDeque<(T, usize)>,
    bytes: usize,
    sender: Side,
    receiver: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Works,
    Waits,
    Gone,
}

/// The side that sends. When it is dropped, the receiver gets what is left, and then the end.
pub struct Sender<T>(Arc<Shared<T>>);

/// The side that receives. When it is dropped, the sender's items are refused.
pub struct Receiver<T>(Arc<Shared<T>>);

/// What a receiver gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<T> {
    Item(T),
    /// Nothing within the time.
    Nothing,
    /// The sender has gone, and there is no item left.
    End,
}

/// A queue.
pub fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = (Side::Works, Side::Works);
    let state = State { items: VecDeque::with_capacity(CAPACITY), bytes: 0, sender, receiver };
    let shared = Arc::new(Shared { state: Mutex::new(state), filled: Condvar::new(), emptied: Condvar::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Sends an item of so many bytes; gives it back when the receiver has gone.
    pub fn send(&self, item: T, bytes: usize) -> Result<(), T> {
        let mut state = self.0.state.lock();
        let is_heavy = |state: &State<T>| !state.items.is_empty() && state.bytes.saturating_add(bytes) > MAX_BYTES;
        if state.items.len() == CAPACITY || is_heavy(&state) {
            state.sender = Side::Waits;
            // A receiver that waits for more items gets none before it takes these.
            self.0.filled.notify_one();
            while (state.items.len() > HALF || is_heavy(&state)) && state.receiver != Side::Gone {
                self.0.emptied.wait(&mut state);
            }
            state.sender = Side::Works;
        }
        if state.receiver == Side::Gone {
            return Err(item);
        }
        state.items.push_back((item, bytes));
        state.bytes += bytes;
        if state.receiver == Side::Waits && matches!(state.items.len(), 1 | HALF) {
            self.0.filled.notify_one();
        }
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Waits for an item for a time, and a moment more for others behind it.
    pub fn receive(&self, time: Duration) -> Received<T> {
        let mut state = self.0.state.lock();
        if state.items.is_empty() {
            state.receiver = Side::Waits;
            self.wait(&mut state, time, 1);
            self.wait(&mut state, MOMENT, HALF);
            state.receiver = Side::Works;
        }
        let Some((item, bytes)) = state.items.pop_front() else {
            return if state.sender == Side::Gone { Received::End } else { Received::Nothing };
        };
        state.bytes -= bytes;
        // At half it is no longer full of items, and below that it may be full of bytes.
        if state.sender == Side::Waits && state.items.len() <= HALF {
            self.0.emptied.notify_one();
        }
        Received::Item(item)
    }

    /// Waits for a number of items, for a time. Where there is none it is not worth while to wait for more.
    fn wait(&self, state: &mut parking_lot::MutexGuard<'_, State<T>>, time: Duration, items: usize) {
        let until = Instant::now() + time;
        let is_worth_it = |state: &State<T>| items == 1 || !state.items.is_empty() && state.sender != Side::Waits;
        while state.items.len() < items && state.sender != Side::Gone && is_worth_it(state) {
            if self.0.filled.wait_until(state, until).timed_out() {
                return;
            }
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().sender = Side::Gone;
        self.0.filled.notify_one();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.state.lock().receiver = Side::Gone;
        self.0.emptied.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    /// In which a thread that is not kept from it goes on.
    const SHORT: Duration = Duration::from_millis(100);

    #[test]
    fn items_arrive_in_their_order_and_then_the_end() {
        let (sender, receiver) = queue();
        std::thread::scope(|scope| {
            scope.spawn(move || (0..10_000).for_each(|number| sender.send(number, 1).unwrap()));
            for number in 0..10_000 {
                assert_eq!(receiver.receive(LONG), Received::Item(number));
            }
            assert_eq!(receiver.receive(LONG), Received::End);
        });
    }

    #[test]
    fn a_sender_that_has_waited_goes_on_when_the_queue_is_half_empty() {
        let (sender, receiver) = queue();
        let shared = Arc::clone(&receiver.0);
        std::thread::scope(|scope| {
            scope.spawn(move || (0..CAPACITY + 3).for_each(|number| sender.send(number, 1).unwrap()));
            let waits = || {
                let began = Instant::now();
                while shared.state.lock().sender != Side::Waits {
                    assert!(began.elapsed() < LONG, "the sender does not wait");
                    std::thread::yield_now();
                }
            };
            waits();
            for number in 0..CAPACITY - HALF - 1 {
                assert_eq!(receiver.receive(LONG), Received::Item(number));
            }
            std::thread::sleep(SHORT);
            assert_eq!(shared.state.lock().items.len(), HALF + 1);
            assert_eq!(receiver.receive(LONG), Received::Item(CAPACITY - HALF - 1));
            for number in CAPACITY - HALF..CAPACITY + 3 {
                assert_eq!(receiver.receive(LONG), Received::Item(number));
            }
        });
    }

    #[test]
    fn a_receiver_that_has_waited_goes_on_when_the_queue_is_half_full() {
        let (sender, receiver) = queue();
        let woken = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                assert_eq!(receiver.receive(LONG), Received::Item(0));
                receiver.0.state.lock().items.len()
            });
            while receiver.0.state.lock().receiver != Side::Waits {
                std::thread::yield_now();
            }
            (0..HALF).for_each(|number| sender.send(number, 1).unwrap());
            thread.join().unwrap()
        });
        assert_eq!(woken, HALF - 1);
    }

    #[test]
    fn heavy_items_fill_the_queue_by_their_bytes() {
        let (sender, receiver) = queue();
        let shared = Arc::clone(&receiver.0);
        std::thread::scope(|scope| {
            scope.spawn(move || (0..9).for_each(|number| sender.send(number, MAX_BYTES / 2 + number).unwrap()));
            for number in 0..9 {
                std::thread::sleep(SHORT);
                assert!(shared.state.lock().items.len() <= 1 + usize::from(number == 0), "before {number}");
                assert_eq!(receiver.receive(LONG), Received::Item(number));
            }
            assert_eq!(receiver.receive(LONG), Received::End);
        });
    }

    #[test]
    fn one_item_is_not_kept_for_long() {
        let (sender, receiver) = queue();
        assert_eq!(receiver.receive(Duration::from_millis(1)), Received::Nothing);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| receiver.receive(LONG));
            std::thread::sleep(SHORT);
            let began = Instant::now();
            sender.send(7, 1).unwrap();
            assert_eq!(thread.join().unwrap(), Received::Item(7));
            assert!(began.elapsed() < LONG / 2);
        });
    }

    #[test]
    fn a_receiver_that_has_gone_refuses_what_a_sender_has() {
        let (sender, receiver) = queue();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| (0..).find_map(|number| sender.send(number, 1).err()));
            std::thread::sleep(SHORT);
            drop(receiver);
            assert_eq!(thread.join().unwrap(), Some(CAPACITY));
        });
    }
}

//! Devices whose requests take long, so that the engine has several of them on their way at the same time.
//!
//! ```text
//! at_once ─▶ pieces of work ─▶ one after the other, in an order by the seed ─▶ record of writes and flushes
//! ```
//! The pieces are independent, and there is no flush between those that write records or write back. So their writes
//! are in doubt together, and a cut leaves any of them, as the states of [`crate::cut`] are made. The order shows where
//! two pieces write to one sector. `docs/design/simulator.md` says what a run with one thread leaves out.

use crate::random::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use xfskit_device::in_order;

/// How many requests the engine has on their way.
const REQUESTS: usize = 8;

/// Seeds, modulo 64, whose devices are far. They are none of those whose states `tests/regressions.rs` names, so that
/// these stay the same.
const SEEDS_OF_FAR_DEVICES: [u64; 16] = [3, 4, 9, 10, 12, 17, 20, 21, 22, 27, 30, 37, 40, 42, 47, 54];

/// How long requests of a device take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distance {
    /// Not long: each is waited for.
    #[default]
    Near,
    /// Long: several are on their way.
    Far,
}

impl Distance {
    /// The distance of a seed's device.
    pub fn of(seed: u64) -> Self {
        if SEEDS_OF_FAR_DEVICES.contains(&(seed % 64)) { Self::Far } else { Self::Near }
    }

    /// How many requests the engine has on their way.
    pub fn queue_depth(self) -> usize {
        match self {
            Self::Near => 1,
            Self::Far => REQUESTS,
        }
    }
}

/// How many pieces of work there were at most at the same time, by the name of the work.
pub type Together = BTreeMap<String, usize>;

/// Does `work`, in which all that is done at the same time is done in an order that follows from the seed.
pub fn by_seed<T>(seed: u64, work: impl FnOnce() -> T) -> (T, Together) {
    let mut random = Random::new(seed ^ 0x006f_7264_6572);
    let most = Rc::new(RefCell::new(Together::new()));
    let seen = Rc::clone(&most);
    let pick = move |name: &str, waiting: usize| {
        let mut most = seen.borrow_mut();
        match most.get_mut(name) {
            Some(most) => *most = waiting.max(*most),
            None => drop(most.insert(name.to_owned(), waiting)),
        }
        random.below(waiting)
    };
    let done = in_order(pick, work);
    (done, most.take())
}

//! Work whose requests are on their way at the same time, for devices where each takes long.
//!
//! A test that must be repeatable cannot leave it to the system which thread goes on. [`in_order`] lets one thread do
//! all the pieces, in an order that the test decides; see there what that leaves out.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// Says which piece of work is next: the name of the work, and how many pieces wait.
type Pick = Box<dyn FnMut(&str, usize) -> usize>;

thread_local! {
    static PICK: RefCell<Option<Pick>> = const { RefCell::new(None) };
}

/// Lets the calling thread alone do the pieces of every [`at_once`] within `work`, one after the other. `pick` is
/// called with the name of the work and the number of pieces that wait, and says which of them is next. For tests: what
/// happens is then a function of what `pick` returns, but no piece begins before the one before it has ended.
///
/// ```
/// let mut order = Vec::new();
/// let seen = std::sync::Mutex::new(&mut order);
/// xfskit_device::in_order(
///     |_, waiting| waiting - 1,
///     || xfskit_device::at_once(8, "push", 0..4, |number| seen.lock().unwrap().push(number)),
/// );
/// assert_eq!(order, [3, 2, 1, 0]);
/// ```
pub fn in_order<T>(pick: impl FnMut(&str, usize) -> usize + 'static, work: impl FnOnce() -> T) -> T {
    /// Puts back what there was, also when `work` panics.
    struct Restored(Option<Pick>);
    impl Drop for Restored {
        fn drop(&mut self) {
            let before = self.0.take();
            PICK.with(|pick| drop(pick.replace(before)));
        }
    }
    let _restored = Restored(PICK.with(|now| now.replace(Some(Box::new(pick)))));
    work()
}

/// Which piece is next in this thread, if a test decides that.
fn next_in_order(name: &str, waiting: usize) -> Option<usize> {
    PICK.with(|pick| Some(pick.borrow_mut().as_mut()?(name, waiting).min(waiting - 1)))
}

/// Calls `each` for every item, from so many threads at a time: from the caller's alone, in their order, where that is
/// one. If the system has no other thread, those that there are do all. A panic of `each` is the caller's.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let sum = AtomicU64::new(0);
/// xfskit_device::at_once(8, "sum", 1..101_u32, |number| {
///     sum.fetch_add(number.into(), Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 5050);
/// ```
pub fn at_once<I>(threads: usize, name: &str, items: I, each: impl Fn(I::Item) + Sync)
where
    I: IntoIterator<IntoIter: ExactSizeIterator + Send, Item: Send>,
{
    let items = items.into_iter();
    if threads > 1 && PICK.with(|pick| pick.borrow().is_some()) {
        return one_by_one(name, items.collect(), each);
    }
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.for_each(each);
    }
    let items = Mutex::new(items);
    let run = || {
        loop {
            let next = items.lock().unwrap_or_else(PoisonError::into_inner).next();
            match next {
                Some(item) => each(item),
                None => return,
            }
        }
    };
    in_threads(threads, name, run);
}

/// Calls `run` in so many threads, one of which is the caller's; in fewer if the system has no more.
#[cfg(not(shuttle))]
fn in_threads(threads: usize, name: &str, run: impl Fn() + Copy + Send) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            if std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
}

/// The same in threads of a model, whose schedule decides which of them goes on.
#[cfg(shuttle)]
fn in_threads(threads: usize, _: &str, run: impl Fn() + Copy + Send) {
    xfskit_model_sync::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
}

/// Does the pieces in the order that a test decides.
fn one_by_one<T>(name: &str, mut items: Vec<T>, each: impl Fn(T)) {
    while !items.is_empty() {
        let next = next_in_order(name, items.len()).unwrap_or(0);
        each(items.remove(next));
    }
}

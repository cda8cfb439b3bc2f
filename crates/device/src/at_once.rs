//! Work whose requests are on their way at the same time, for devices where each takes long.

use std::sync::{Mutex, PoisonError};

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
    std::thread::scope(|scope| {
        for _ in 1..threads {
            if std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
}

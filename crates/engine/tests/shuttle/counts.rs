//! Free blocks when hardly any are left and the slots of threads keep a part of them: a thread that asks for no more
//! than is free gets it.

use crate::{below, explore};
use shuttle::thread;
use std::sync::Arc;
use xfskit_engine::mount::{BlockPool, KeptBlocks, SpaceCounts};

const THREADS: u64 = 3;
/// Blocks that a thread reserves at a time.
const SHARE: u64 = 50;

#[test]
fn each_thread_that_asks_for_space_gets_what_is_free() {
    explore("counts", 400, || {
        let counts = Arc::new(SpaceCounts::new(10_000, KeptBlocks::default(), 64, 0));
        assert!(counts.reserve_blocks(60, BlockPool::Ordinary));
        counts.give_back_blocks(60);
        // Takes blocks until there are exactly enough for all threads, some of them kept by the slot of this thread.
        assert!(counts.reserve_blocks(10_000 - 60 - (THREADS * SHARE - 60), BlockPool::Ordinary));
        assert_eq!(counts.free_blocks(), THREADS * SHARE);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let counts = Arc::clone(&counts);
                thread::spawn(move || {
                    for _ in 0..3 {
                        assert!(counts.reserve_blocks(SHARE, BlockPool::Ordinary), "each thread has its share at most");
                        if below(2) == 0 {
                            thread::yield_now();
                        }
                        counts.give_back_blocks(SHARE);
                    }
                })
            })
            .collect();
        assert!(
            (0..3).all(|_| !counts.reserve_blocks(1 << 40, BlockPool::Ordinary)),
            "a reservation got blocks that are not there"
        );
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(counts.free_blocks(), THREADS * SHARE);
    });
}

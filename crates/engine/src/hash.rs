//! Maps keyed by numbers of disk addresses and inodes.
//!
//! The standard library's hash defends against keys chosen by an attacker at a price that every look-up in the caches
//! would pay, and its random seeds would make runs differ. An image that is made to collide in this one slows itself
//! down: chains are as long as the cache's shard is full, no longer.

use crate::env::mix;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Spreads numbers over all bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }
}

/// A map from numbers.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;
/// A set of numbers.
pub type NumberSet<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

/// Which of `shards` shards a number belongs to: by the bits that the maps within a shard use last.
pub fn shard_of(number: u64, shards: usize) -> usize {
    ((mix(number) >> 40) as usize) % shards
}

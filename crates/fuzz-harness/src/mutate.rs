//! Random damage: bits, bytes, numbers that are valid elsewhere in the image, and pieces of other blocks.

use crate::blocks::{Block, Kind, Metadata};
use crate::{Overlay, Random};
use std::sync::Arc;

/// Damages copies of one image.
#[derive(Debug)]
pub struct Mutator {
    image: Arc<Vec<u8>>,
    metadata: Metadata,
    kinds: Vec<Kind>,
    /// Inode numbers, packed block numbers and block numbers within an AG that lead somewhere.
    places: Vec<u64>,
}

impl Mutator {
    /// One for `image`, which is sound.
    pub fn new(image: &Arc<Vec<u8>>) -> Self {
        let metadata = crate::blocks(image);
        let mut places = Vec::new();
        for block in metadata.blocks.values().flatten() {
            let (packed, within) = metadata.block_numbers(block.offset);
            places.push(packed);
            places.push(within.into());
            if block.kind == Kind::Inode {
                let index = block.offset % metadata.block_bytes / block.bytes;
                places.push(packed << metadata.inode_bits | index as u64);
                places.push(u64::from(within) << metadata.inode_bits | index as u64);
            }
        }
        let kinds = metadata.blocks.keys().copied().collect();
        Self { image: Arc::clone(image), metadata, kinds, places }
    }

    /// The metadata that can be damaged.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Damages one to three blocks, most with valid checksums; returns which.
    pub fn damage(&self, device: &Overlay, random: &mut Random) -> String {
        use std::fmt::Write as _;
        let mut story = String::new();
        for _ in 0..1 + random.below(3) {
            if random.below(24) == 0 {
                self.damage_log(device, random, &mut story);
                continue;
            }
            let kind = *random.pick(&self.kinds).expect("an image has metadata");
            let block = *random.pick(self.metadata.of(kind)).expect("only kinds that are there are listed");
            let mut bytes = block.of(&self.image).to_vec();
            for _ in 0..1 + random.below(4) {
                let at = self.damage_block(&block, &mut bytes, random);
                write!(story, "{:?}@{:#x}+{at} ", block.kind, block.offset).expect("a string takes everything");
            }
            // One block in sixteen keeps its old checksum, which is wrong now.
            if random.below(16) != 0 {
                block.mend(&mut bytes);
            }
            device.patch(block.offset, &bytes);
        }
        story
    }

    fn damage_log(&self, device: &Overlay, random: &mut Random, story: &mut String) {
        let (start, length) = self.metadata.log;
        // The start of the log, where a new image has its records.
        let at = start + random.below(length.min(64 * 512));
        let value = random.bits().to_be_bytes();
        device.patch(at, &value[..1 + random.below(8)]);
        story.push_str(&format!("log@{at:#x} "));
    }

    /// Damages one place of a block; returns its offset.
    pub fn damage_block(&self, block: &Block, bytes: &mut [u8], random: &mut Random) -> usize {
        // The start of a block, with its counts, is hit more often than the rest.
        let span = if random.below(2) == 0 { 200.min(bytes.len()) } else { bytes.len() };
        let at = random.below(span);
        match random.below(10) {
            0 => bytes[at] = 0,
            1 => bytes[at] = 0xff,
            2 => bytes[at] ^= 1 << random.below(8),
            3 => bytes[at] = bytes[at].wrapping_add(if random.below(2) == 0 { 1 } else { 255 }),
            4 => bytes[at] = random.bits() as u8,
            5 => put(bytes, at & !1, &(extreme(random) as u16).to_be_bytes()),
            6 => put(bytes, at & !3, &(extreme(random) as u32).to_be_bytes()),
            7 => put(bytes, at & !7, &extreme(random).to_be_bytes()),
            8 => {
                let place = random.pick(&self.places).copied().unwrap_or(1);
                if random.below(2) == 0 {
                    put(bytes, at & !3, &(place as u32).to_be_bytes());
                } else {
                    put(bytes, at & !7, &place.to_be_bytes());
                }
            }
            _ => {
                // A piece of this block or of another one of its kind.
                let other = random.pick(self.metadata.of(block.kind)).unwrap_or(block);
                let from = other.of(&self.image);
                let length = 4usize << random.below(5);
                let source = random.below(from.len()) & !3;
                let piece = from[source..from.len().min(source + length)].to_vec();
                put(bytes, at & !3, &piece);
            }
        }
        at
    }
}

/// A number near a limit: 0, the maximum, or a power of two; or a small one.
fn extreme(random: &mut Random) -> u64 {
    let near = random.below(5) as u64;
    match random.below(5) {
        0 => near,
        1 => 0u64.wrapping_sub(near),
        2 => (1u64 << random.below(64)).wrapping_sub(near),
        3 => 1 << random.below(64),
        _ => 1 + random.below(4096) as u64,
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    for (slot, byte) in bytes.iter_mut().skip(at).zip(value) {
        *slot = *byte;
    }
}

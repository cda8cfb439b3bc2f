//! How the device is divided into AGs: mkfs.xfs's defaults for one disk and for several, and the alignment to a stripe.

use crate::MakeError;
use crate::options::{AgLayout, Options};
use crate::sizes::Sizes;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// An AG has at least 16 MiB.
const MIN_AG_BYTES: u64 = 16 * MIB;

/// Size and number of the AGs, and the blocks that they cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ags {
    pub blocks: u64,
    pub count: u64,
    pub data_blocks: u64,
}

impl Ags {
    fn of_size(data_blocks: u64, blocks: u64) -> Self {
        Self { blocks, count: data_blocks.div_ceil(blocks), data_blocks }
    }

    /// Divides `data_blocks` blocks into AGs.
    pub(crate) fn new(options: &Options, sizes: &Sizes, data_blocks: u64) -> Result<Self, MakeError> {
        let mut ags = match options.ag_layout {
            AgLayout::Default => Self::of_size(data_blocks, default_ag_blocks(sizes, data_blocks)),
            AgLayout::Count(count) => {
                if count == 0 || u64::from(count) > data_blocks {
                    return Err(MakeError::value("-d agcount", count, "the device has no room for so many AGs"));
                }
                Self { blocks: data_blocks.div_ceil(count.into()), count: count.into(), data_blocks }
            }
            AgLayout::Size(size) => {
                let bytes = size.bytes(sizes.block, sizes.sector).unwrap_or(u64::MAX);
                if bytes == 0 || bytes % sizes.block != 0 {
                    let why = format!("expected a multiple of the block size ({})", sizes.block);
                    return Err(MakeError::value("-d agsize", bytes, why));
                }
                Self::of_size(data_blocks, bytes / sizes.block)
            }
        };
        if sizes.stripe_unit != 0 {
            ags.align(options, sizes);
        }
        ags.drop_short_tail(sizes);
        ags.check(options, sizes)?;
        Ok(ags)
    }

    /// Rounds the AG size to the stripe unit, but not to the stripe width, with which all AGs would start on one disk.
    fn align(&mut self, options: &Options, sizes: &Sizes) {
        let (unit, width) = (sizes.stripe_unit, sizes.stripe_width);
        let counted = matches!(options.ag_layout, AgLayout::Count(_));
        if !self.blocks.is_multiple_of(unit) {
            let up = self.blocks.next_multiple_of(unit);
            self.blocks = if up > max_ag_blocks(sizes) { self.blocks / unit * unit } else { up };
            if !counted && self.blocks > 0 {
                self.count = self.data_blocks.div_ceil(self.blocks);
            }
        }
        let chosen = options.ag_layout == AgLayout::Default;
        if chosen && self.blocks.is_multiple_of(width) && width != unit && self.count > 1 {
            let smaller = self.blocks - unit;
            self.blocks = if smaller < min_ag_blocks(sizes) { self.blocks + unit } else { smaller };
            self.count = self.data_blocks.div_ceil(self.blocks);
        }
    }

    /// Leaves out a last AG that would be too small, even where the caller gave the number of AGs.
    fn drop_short_tail(&mut self, sizes: &Sizes) {
        let Some(tail) = self.data_blocks.checked_rem(self.blocks) else { return };
        let fits = self.count == self.data_blocks.div_ceil(self.blocks);
        if tail != 0 && tail < min_ag_blocks(sizes) && fits && self.count > 1 {
            self.data_blocks -= tail;
            self.count -= 1;
        }
    }

    fn check(&self, options: &Options, sizes: &Sizes) -> Result<(), MakeError> {
        let (option, value) = match options.ag_layout {
            AgLayout::Count(count) => ("-d agcount", count.to_string()),
            AgLayout::Size(_) | AgLayout::Default => ("-d agsize", format!("{}b", self.blocks)),
        };
        let fail = |why: String| Err(MakeError::value(option, &value, why));
        let (min, max) = (min_ag_blocks(sizes), max_ag_blocks(sizes));
        if !(min..=max).contains(&self.blocks) {
            return fail(format!("an AG would have {} blocks; it must have {min} to {max}", self.blocks));
        }
        if self.blocks > self.data_blocks {
            return fail(format!("an AG would be larger than the device ({} blocks)", self.data_blocks));
        }
        let tail = self.data_blocks % self.blocks;
        if tail != 0 && tail < min {
            return fail(format!("the last AG would have {tail} blocks; it must have at least {min}"));
        }
        if self.count != self.data_blocks.div_ceil(self.blocks) {
            return fail("the AGs do not fit the device once they are aligned to the stripe unit".into());
        }
        if self.count >= u64::from(u32::MAX) {
            return fail("there would be too many AGs".into());
        }
        if self.count == 1 && !options.allow_small {
            return fail("an image with one AG has no second superblock; ask for more AGs".into());
        }
        Ok(())
    }
}

fn min_ag_blocks(sizes: &Sizes) -> u64 {
    MIN_AG_BYTES / sizes.block
}

fn max_ag_blocks(sizes: &Sizes) -> u64 {
    (TIB - 1) / sizes.block
}

/// AGs of 1 TiB from 32 TiB on, and for one disk from 4 TiB on. For smaller devices four AGs on one disk from 128 MiB
/// on, and otherwise 1 to 32 by size.
fn default_ag_blocks(sizes: &Sizes, data_blocks: u64) -> u64 {
    let at_least = |bytes: u64| data_blocks >= bytes / sizes.block;
    let striped = sizes.stripe_unit != 0;
    if at_least(32 * TIB) || !striped && at_least(4 * TIB) {
        return max_ag_blocks(sizes);
    }
    let shift = if !striped && at_least(128 * MIB) {
        2
    } else {
        let smaller = [
            data_blocks <= 512 * GIB / sizes.block,
            data_blocks <= 8 * GIB / sizes.block,
            !at_least(128 * MIB),
            !at_least(64 * MIB),
            !at_least(32 * MIB),
        ];
        5 - smaller.into_iter().filter(|&yes| yes).count()
    };
    data_blocks.div_ceil(1 << shift).min(max_ag_blocks(sizes)).max(1)
}

/// Size of the smallest image: that of one AG, or what mkfs.xfs supports.
pub(crate) fn min_data_bytes(options: &Options) -> u64 {
    if options.allow_small { MIN_AG_BYTES } else { 300 * MIB }
}

//! What the kernel asks of an inode in use beyond what makes it safe to be read: flags that contradict the features,
//! the kind of the file or each other, and forks that no file of that kind has. An image that fails here was damaged,
//! and what it says of the file cannot be relied on.
//!
//! Facts: which changes of an inode make stat(2) fail on the kernel's mount (Linux 6.18).

use crate::inode::{ForkFormat, InodeCore, MODE_DIR, MODE_REGULAR, MODE_SYMLINK, MODE_TYPE, flags, flags2};
use crate::{Geometry, Verdict, ensure};

const NAME: &str = "inode";
/// Where the unused bytes of the two layouts of extent counters are.
const PAD_OF_LARGE: core::ops::Range<usize> = 80..82;
const PAD_OF_SMALL: core::ops::Range<usize> = 24..32;
/// Most extents that the smaller counters count.
const MOST_DATA_EXTENTS: u64 = (1 << 31) - 1;
const MOST_ATTR_EXTENTS: u32 = (1 << 15) - 1;
/// A directory has three spaces of 32 GiB.
const MOST_DIR_BYTES_LOG: u8 = 35;
/// Where the attributes begin in an inode with a device number, in units of 8 bytes.
const OFFSET_BEHIND_DEVICE: u8 = 1;

impl InodeCore {
    /// Verifies an inode in use that [`Self::decode`] has decoded from `bytes`.
    ///
    /// # Errors
    /// A [`Corruption`](crate::Corruption) that names the check.
    pub fn verify_in_use(&self, geometry: &Geometry, bytes: &[u8]) -> Verdict {
        self.verify_counters(geometry, bytes).map_err(|e| e.of(self.inode.0))?;
        self.verify_data_form(geometry, bytes).map_err(|e| e.of(self.inode.0))?;
        self.verify_flags(geometry).map_err(|e| e.of(self.inode.0))
    }

    fn verify_counters(&self, geometry: &Geometry, bytes: &[u8]) -> Verdict {
        let is_large = self.flags2 & flags2::NREXT64 != 0;
        ensure!(!is_large || geometry.has_large_extent_counts(), NAME, "large extent counters are a feature");
        let pad = if is_large { PAD_OF_LARGE } else { PAD_OF_SMALL };
        let is_zero = bytes.get(pad).is_some_and(|pad| pad.iter().all(|byte| *byte == 0));
        ensure!(is_zero, NAME, "unused bytes of the extent counters are zero");
        let (data, attr) = (self.data_extents, self.attr_extents);
        ensure!(
            is_large || data <= MOST_DATA_EXTENTS && attr <= MOST_ATTR_EXTENTS,
            NAME,
            "extent counters are within their range",
            "{data} and {attr}"
        );
        ensure!(data > 0 || attr > 0 || self.blocks == 0, NAME, "no blocks without extents", "{}", self.blocks);
        let most = 3u64 << (MOST_DIR_BYTES_LOG - geometry.block_log);
        ensure!(!self.is_dir() || data <= most, NAME, "a directory has no more extents than blocks", "{data}");
        Ok(())
    }

    fn verify_data_form(&self, geometry: &Geometry, bytes: &[u8]) -> Verdict {
        let fork_bytes = self.data_fork_bytes(geometry);
        let (format, is_small) = (self.data_format, self.size <= fork_bytes as u64);
        if format == ForkFormat::Dev {
            let fits = matches!(self.fork_offset, 0 | OFFSET_BEHIND_DEVICE);
            ensure!(fits, NAME, "attr fork behind a device number", "offset {} times 8", self.fork_offset);
        }
        match self.mode & MODE_TYPE {
            MODE_DIR => ensure!(
                self.size == 0 || !is_small || format == ForkFormat::Local,
                NAME,
                "a directory that fits the inode is in it",
                "{} bytes, {format:?}",
                self.size
            ),
            MODE_SYMLINK => {
                ensure!(
                    !is_small || format != ForkFormat::Btree,
                    NAME,
                    "a symlink that fits the inode has no btree",
                    "{} bytes",
                    self.size
                );
                if format == ForkFormat::Local {
                    let target = bytes.get(crate::inode::INODE_CORE_BYTES..).unwrap_or_default();
                    // The kernel lets the last byte be one.
                    let has_zero = target.iter().take((self.size as usize).saturating_sub(1)).any(|byte| *byte == 0);
                    ensure!(!has_zero, "symlink", "no zero bytes in its target");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn verify_flags(&self, geometry: &Geometry) -> Verdict {
        let kind = self.mode & MODE_TYPE;
        ensure!(self.flags & flags::REALTIME == 0, NAME, "no data on a realtime device, which the image does not have");
        let (is_hint, is_inherited) = (self.flags & flags::EXTSIZE != 0, self.flags & flags::EXTSZINHERIT != 0);
        let fits = (!is_hint || kind == MODE_REGULAR) && (!is_inherited || kind == MODE_DIR);
        ensure!(
            fits,
            NAME,
            "extent size hints fit the kind of file",
            "flags {:#x} and mode {:o}",
            self.flags,
            self.mode
        );
        ensure!(
            is_hint || is_inherited || self.extent_size == 0,
            NAME,
            "no extent size hint without its flag",
            "{} blocks",
            self.extent_size
        );
        let has = |flag| self.flags2 & flag != 0;
        let sharing = flags2::REFLINK | flags2::COWEXTSIZE;
        ensure!(!has(sharing) || geometry.has_reflink(), NAME, "shared blocks are a feature", "{:#x}", self.flags2);
        let shares = !has(flags2::REFLINK) || kind == MODE_REGULAR;
        ensure!(shares, NAME, "only regular files share blocks", "mode {:o}", self.mode);
        let takes_hint = !has(flags2::COWEXTSIZE) || matches!(kind, MODE_REGULAR | MODE_DIR);
        ensure!(takes_hint, NAME, "copy-on-write size hints fit the kind of file", "mode {:o}", self.mode);
        ensure!(
            has(flags2::COWEXTSIZE) || self.cow_extent_size == 0,
            NAME,
            "no copy-on-write size hint without its flag",
            "{} blocks",
            self.cow_extent_size
        );
        ensure!(!has(flags2::BIGTIME) || geometry.has_bigtime(), NAME, "large timestamps are a feature");
        Ok(())
    }
}

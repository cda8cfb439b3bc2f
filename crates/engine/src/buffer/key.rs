//! Which blocks a buffer is made of.

use smallvec::SmallVec;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress};

/// A run of basic blocks on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskRun {
    /// Where it starts.
    pub address: DiskAddress,
    /// How long it is.
    pub basic_blocks: u32,
}

/// The runs of one buffer, in the order of its contents. Directory blocks larger than a block may have several.
pub type DiskRuns = SmallVec<[DiskRun; 1]>;

/// The blocks of a buffer: its runs. The address of the first run names the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferKey {
    first: DiskRun,
    bytes: usize,
    /// All runs, where there are several.
    several: Option<Box<[DiskRun]>>,
}

impl BufferKey {
    /// One run of `bytes` bytes, a multiple of 512, from `address`.
    pub fn new(address: DiskAddress, bytes: usize) -> Self {
        assert_eq!(bytes % BASIC_BLOCK_BYTES, 0, "buffers are whole basic blocks");
        Self { first: DiskRun { address, basic_blocks: (bytes / BASIC_BLOCK_BYTES) as u32 }, bytes, several: None }
    }

    /// Several runs.
    pub fn from_runs(runs: DiskRuns) -> Self {
        assert!(!runs.is_empty(), "a buffer has at least one run");
        let bytes = runs.iter().map(|run| run.basic_blocks as usize * BASIC_BLOCK_BYTES).sum();
        let first = runs[0];
        Self { first, bytes, several: (runs.len() > 1).then(|| runs.into_boxed_slice()) }
    }

    /// The address of the first run.
    pub fn address(&self) -> DiskAddress {
        self.first.address
    }

    /// The runs.
    pub fn runs(&self) -> &[DiskRun] {
        self.several.as_deref().unwrap_or(std::slice::from_ref(&self.first))
    }

    /// Size of the contents in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

//! How a run ends before its workload does.

/// Why a run ended early.
#[derive(Clone, Debug)]
pub enum Stop {
    /// The device failed, as the run asked for.
    Device,
    /// Something that must not happen.
    Wrong(String),
}

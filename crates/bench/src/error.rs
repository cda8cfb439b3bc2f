//! What a person asked for that cannot be measured.

use std::path::PathBuf;

/// Why nothing was measured. What fails while measuring is an error of the engine or of the system.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A number or a combination that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Nothing there.
    #[error("{0}: no such image, mount point or folder")]
    Missing(PathBuf),
    /// It cannot be written to.
    #[error("{path}: cannot be written to: {source}; an experiment makes files")]
    NotWritable {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The kernel's side is not to be had.
    #[error("--against kernel: {0}")]
    NoKernel(String),
    /// The program that is measured, or that measures, is not there.
    #[error("{0}")]
    NoTool(String),
    /// Somebody wants to stop.
    #[error("interrupted; what was made is removed")]
    Interrupted,
}

//! Requests that cannot be measured.

use std::path::PathBuf;

/// Why nothing was measured. A failure while measuring is an error of the engine or of the system.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A number or a combination that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The path does not exist.
    #[error("{0}: no such image, mount point or folder")]
    Missing(PathBuf),
    /// The folder cannot be written to.
    #[error("{path}: cannot be written to: {source}; an experiment makes files")]
    NotWritable {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kernel's side is not available.
    #[error("--against kernel: {0}")]
    NoKernel(String),
    /// The program that is measured, or that measures, is missing.
    #[error("{0}")]
    NoTool(String),
    /// The user interrupted the run.
    #[error("interrupted; what was made is removed")]
    Interrupted,
}

//! The versions that the programs print.

/// The version of xfsprogs whose options and defaults `mkfs.xfs` has.
const XFSPROGS_VERSION: &str = "7.2.0";

/// The version as the original prints it, with this program's behind it.
pub fn version_line(program: &str) -> String {
    format!("{program} version {XFSPROGS_VERSION} (xfskit {})", env!("CARGO_PKG_VERSION"))
}

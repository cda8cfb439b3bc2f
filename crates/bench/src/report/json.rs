//! JSON.

use super::Report;

/// The report as JSON.
///
/// # Errors
/// A report causes none.
pub fn json(report: &Report) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report)
}

//! The kernel's own scrub.

use crate::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the kernel's scrub says of images: a line for each, which ends in "clean" or names what is wrong. The images
/// stay as they are. `None`, with a line that says why, where `scripts/scrub` is not installed.
///
/// # Panics
/// If it fails; if it is not installed and `CI=true`.
pub fn scrub(images: &[PathBuf]) -> Option<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/scrub");
    let output = Command::new(&script).args(images).output().expect("scripts/scrub");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if err.contains("scripts/scrub --install") {
        skip(err.trim());
        return None;
    }
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {}\n{out}{err}", script.display(), output.status);
    Some(out.lines().map(str::to_owned).collect())
}

//! The kernel's own scrub.

use crate::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the kernel's scrub on images. Returns a line for each, in their order, which ends in "clean" or names what is
/// wrong. The images are not changed. If `scripts/scrub` is not installed, prints why and returns `None`.
///
/// The emulated machine may fail on a loaded host before it has looked at its image. An image whose machine did not
/// finish gets a second one; what stops both is a finding.
///
/// # Panics
/// If it fails, or if it is not installed and `CI=true`.
pub fn scrub(images: &[PathBuf]) -> Option<Vec<String>> {
    let mut verdicts = scrub_once(images)?;
    assert_eq!(verdicts.len(), images.len(), "{}", verdicts.join("\n"));
    for (verdict, image) in verdicts.iter_mut().zip(images) {
        if verdict.contains(": did not finish") {
            eprintln!("once more: {verdict}");
            *verdict = scrub_once(std::slice::from_ref(image))?.concat();
        }
    }
    Some(verdicts)
}

fn scrub_once(images: &[PathBuf]) -> Option<Vec<String>> {
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

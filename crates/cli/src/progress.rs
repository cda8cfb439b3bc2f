//! How far a copy is, on terminals.

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::time::Duration;
use xfskit_transfer::Progress;

/// Files and bytes so far.
pub struct CopyBar {
    files: ProgressBar,
    bytes: Cell<u64>,
}

impl CopyBar {
    /// A bar that says what is going on.
    pub fn new(what: &'static str) -> Self {
        // Draws on terminals only.
        let files = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {prefix} {pos} files, {msg} {elapsed}");
        files.set_style(style.expect("the template is right"));
        files.set_prefix(what);
        files.enable_steady_tick(Duration::from_millis(200));
        Self { files, bytes: Cell::new(0) }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.files.finish_and_clear();
    }
}

impl Drop for CopyBar {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for CopyBar {
    fn advance(&self, files: u64, bytes: u64) {
        self.files.inc(files);
        self.bytes.set(self.bytes.get() + bytes);
        if !self.files.is_hidden() {
            self.files.set_message(HumanBytes(self.bytes.get()).to_string());
        }
    }
}

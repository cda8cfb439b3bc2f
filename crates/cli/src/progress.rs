//! The progress of a copy, on terminals.

use crate::interrupt;
use crate::screen;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::time::Duration;
use xfskit_transfer::{Progress, TransferError};

/// The number of files and bytes so far.
pub struct CopyBar {
    files: ProgressBar,
    bytes: Cell<u64>,
    names_files: bool,
}

impl CopyBar {
    /// A bar with a name for the work.
    pub fn new(what: &'static str) -> Self {
        // Is drawn on terminals only.
        let files = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {prefix} {pos} files, {msg} {elapsed}");
        files.set_style(style.expect("the template is right"));
        files.set_prefix(what);
        files.enable_steady_tick(Duration::from_millis(200));
        Self { files, bytes: Cell::new(0), names_files: false }
    }

    /// Shows the share of the files that is done, if the number of all files is known.
    pub fn of_files(self, files: Option<u64>) -> Self {
        if let Some(files) = files {
            let style =
                ProgressStyle::with_template("{spinner} {prefix} {percent}%, {pos} of {len} files, {msg} {elapsed}");
            self.files.set_style(style.expect("the template is right"));
            self.files.set_length(files);
        }
        self
    }

    /// The number of files so far.
    pub fn files(&self) -> u64 {
        self.files.position()
    }

    /// Prints the path of each file as well.
    pub fn naming_files(mut self, names_files: bool) -> Self {
        self.names_files = names_files;
        self
    }

    /// Removes the bar.
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
    fn begins(&self, path: &[u8]) {
        if self.names_files {
            self.files.suspend(|| screen::print_name(if path.is_empty() { b"." } else { path }));
        }
    }

    fn passes_over(&self, why: &TransferError) {
        self.files.suspend(|| screen::report(&why.to_string()));
    }

    fn stopped(&self) -> bool {
        interrupt::came()
    }

    fn advance(&self, files: u64, bytes: u64) {
        self.files.inc(files);
        self.bytes.set(self.bytes.get() + bytes);
        if !self.files.is_hidden() {
            self.files.set_message(HumanBytes(self.bytes.get()).to_string());
        }
    }
}

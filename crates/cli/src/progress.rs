//! The progress of long work, on terminals: nothing in the first second, then how much is done and how fast, and where
//! all of it is known, how much that is and how long the rest will take.

use crate::interrupt;
use crate::screen;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use xfskit_transfer::{Progress, TransferError};

/// Work that is over sooner shows nothing. Tests set another time, in milliseconds, by a variable.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
const SHOWN_AFTER_VARIABLE: &str = "XFSKIT_PROGRESS_AFTER";
const TICK: Duration = Duration::from_millis(200);

/// The number of files and bytes so far.
pub struct CopyBar {
    files: ProgressBar,
    began: Instant,
    bytes: Cell<u64>,
    is_shown: Cell<bool>,
    names_files: bool,
}

/// When the work of this command is shown, counted from its beginning: what follows is shown at once.
static SHOWN_FROM: OnceLock<Instant> = OnceLock::new();

fn is_long() -> bool {
    let from = SHOWN_FROM.get_or_init(|| {
        let set = std::env::var(SHOWN_AFTER_VARIABLE).ok().and_then(|text| text.parse().ok());
        Instant::now() + set.map_or(SHOWN_AFTER, Duration::from_millis)
    });
    Instant::now() >= *from
}

impl CopyBar {
    /// A bar with a name for the work.
    pub fn new(what: &'static str) -> Self {
        let files = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        files.set_style(style("{spinner} {prefix} {pos} files, {msg}, {elapsed}"));
        files.set_prefix(what);
        let _ = is_long();
        Self { files, began: Instant::now(), bytes: Cell::new(0), is_shown: Cell::new(false), names_files: false }
    }

    /// Shows the share of the files that is done, and the time that the rest takes, if the number of all files is
    /// known.
    pub fn of_files(self, files: Option<u64>) -> Self {
        files.into_iter().for_each(|files| self.expect_files(files));
        self
    }

    /// As [`Self::of_files`], while the work is being done.
    pub fn expect_files(&self, files: u64) {
        self.files
            .set_style(style("{spinner} {prefix} {percent}%, {pos} of {len} files, {msg}, {elapsed}, {eta} left"));
        self.files.set_length(files);
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

    /// Draws the bar from now on, if the work takes long, and only on a terminal.
    fn show_if_long(&self) {
        if !self.is_shown.get() && is_long() {
            self.is_shown.set(true);
            self.files.set_draw_target(ProgressDrawTarget::stderr());
            self.files.enable_steady_tick(TICK);
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is right")
}

/// A spinner for work of which nothing can be counted, such as waiting for a device.
pub fn waiting_for(what: &'static str) -> impl Drop {
    struct Waiting(ProgressBar);
    impl Drop for Waiting {
        fn drop(&mut self) {
            self.0.finish_and_clear();
        }
    }
    let target = if is_long() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(style("{spinner} {prefix}, {elapsed}"));
    bar.set_prefix(what);
    bar.enable_steady_tick(TICK);
    Waiting(bar)
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
        self.show_if_long();
        if !self.files.is_hidden() {
            let seconds = self.began.elapsed().as_secs_f64().max(0.001);
            let rate = |count: u64| (count as f64 / seconds) as u64;
            let (all, files, bytes) = (self.bytes.get(), rate(self.files()), HumanBytes(rate(self.bytes.get())));
            self.files.set_message(format!("{}, {files} files/s, {bytes}/s", HumanBytes(all)));
        }
    }
}

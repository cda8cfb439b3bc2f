//! Text for people. It contains names from an image, which may come from any user: on a terminal, control characters in
//! them must not take effect. Output to a file or another program is not changed.

use std::borrow::Cow;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write, stderr, stdout};
use std::sync::OnceLock;

/// Standard output for text.
pub struct Screen {
    out: Data,
    /// The part of a line that is not complete yet, because a character must be checked as a whole. `None` if standard
    /// output is not a terminal.
    line: Option<Vec<u8>>,
}

/// Standard output for text, buffered.
pub fn out() -> BufWriter<Screen> {
    BufWriter::new(Screen { line: stdout().is_terminal().then(Vec::new), out: data() })
}

/// Standard output, whose errors say that it could not be written.
pub struct Data(StdoutLock<'static>);

/// Standard output for data, which is not changed.
pub fn data() -> Data {
    Data(stdout().lock())
}

impl Write for Data {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// The first error of standard output in [`say`].
static FAILURE: OnceLock<std::io::Error> = OnceLock::new();

/// As `println!`, but without a panic if printing fails: [`end`] reports the error.
macro_rules! say {
    ($($text:tt)*) => { $crate::screen::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// As [`say`], without a newline.
macro_rules! say_part {
    ($($text:tt)*) => { $crate::screen::print(format_args!($($text)*)) };
}

pub(crate) use {say, say_part};

/// Prints to standard output. After an error nothing more is printed.
pub fn print(text: std::fmt::Arguments<'_>) {
    if FAILURE.get().is_none()
        && let Err(error) = stdout().write_fmt(text)
    {
        FAILURE.get_or_init(|| error);
    }
}

/// Prints a name and a newline, as [`print`] does.
pub fn print_name(bytes: &[u8]) {
    if FAILURE.get().is_none()
        && let Err(error) = stdout().write_all(&[&name(bytes), &b"\n"[..]].concat())
    {
        FAILURE.get_or_init(|| error);
    }
}

/// Whether everything that was printed has been written.
///
/// # Errors
/// The first error of standard output.
pub fn end() -> std::io::Result<()> {
    let flushed = stdout().flush();
    match FAILURE.get() {
        Some(error) => Err(std::io::Error::new(error.kind(), error.to_string())),
        None => flushed,
    }
}

/// A name or a path within a line: on a terminal, a newline in it does not begin a new line.
pub fn name(bytes: &[u8]) -> Cow<'_, [u8]> {
    if stdout().is_terminal() { in_line(bytes) } else { Cow::Borrowed(bytes) }
}

fn in_line(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.iter().any(|byte| b"\n\t".contains(byte)) {
        return Cow::Borrowed(bytes);
    }
    bytes.iter().map(|byte| if b"\n\t".contains(byte) { b'?' } else { *byte }).collect()
}

/// Prints a message to standard error. If that fails, the failure cannot be reported anywhere, and the exit code does
/// not change.
pub fn report(message: &str) {
    let message = if stderr().is_terminal() { harmless(message.as_bytes()) } else { Cow::Borrowed(message.as_bytes()) };
    let line = format!("xfskit: {}\n", String::from_utf8_lossy(&message));
    let _ = stderr().write_all(line.as_bytes());
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Some(line) = &mut self.line else { return self.out.write(bytes) };
        line.extend(bytes);
        if let Some(end) = line.iter().rposition(|&byte| byte == b'\n') {
            let rest = line.split_off(end + 1);
            let lines = std::mem::replace(line, rest);
            self.out.write_all(&harmless(&lines))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if let Some(line) = &mut self.line {
            self.out.write_all(&harmless(&std::mem::take(line)))?;
        }
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Callers that need the result flush before.
        let _ = self.flush();
    }
}

/// Replaces by a question mark, as `ls` does, all control characters but newlines and tabs, and bytes that are not
/// text.
fn harmless(text: &[u8]) -> Cow<'_, [u8]> {
    let is_harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if std::str::from_utf8(text).is_ok_and(|text| !text.contains(is_harmful)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        shown.extend(chunk.valid().chars().map(|c| if is_harmful(c) { '?' } else { c }));
        shown.extend(chunk.invalid().iter().map(|_| '?'));
    }
    Cow::Owned(shown.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_no_commands() {
        assert_eq!(&*harmless(b"\x1b[2J \x9b1m \xc2\x9b \x7f\r\n\tna\xc3\xafve"), b"?[2J ?1m ? ??\n\tna\xc3\xafve");
    }
}

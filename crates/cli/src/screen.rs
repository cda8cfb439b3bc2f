//! Text for people, which holds names that anybody may have put into an image: on a terminal, no byte of it is a
//! command to that. What goes to a file or to another program stays as it is.

use std::borrow::Cow;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write, stderr, stdout};
use std::sync::OnceLock;

/// Standard output.
pub struct Screen {
    out: Data,
    /// The line that is not complete yet: a character must not be looked at in two halves. None is kept where nothing
    /// is looked at.
    line: Option<Vec<u8>>,
}

/// Standard output for text.
pub fn out() -> BufWriter<Screen> {
    BufWriter::new(Screen { line: stdout().is_terminal().then(Vec::new), out: data() })
}

/// Standard output, whose errors say what could not be written.
pub struct Data(StdoutLock<'static>);

/// Standard output for data, which goes there as it is.
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

/// The first error of standard output, as [`say`] met it.
static FAILURE: OnceLock<std::io::Error> = OnceLock::new();

/// As `println!`, but what cannot be printed is no panic: [`end`] tells of it.
macro_rules! say {
    ($($text:tt)*) => { $crate::screen::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// As [`say`], without an end of the line.
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

/// Prints a name as a line, as [`print`] does.
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

/// A name or a path as a part of a line: on a terminal it does not end that and begin one of its own.
pub fn name(bytes: &[u8]) -> Cow<'_, [u8]> {
    if stdout().is_terminal() { in_line(bytes) } else { Cow::Borrowed(bytes) }
}

fn in_line(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.iter().any(|byte| b"\n\t".contains(byte)) {
        return Cow::Borrowed(bytes);
    }
    bytes.iter().map(|byte| if b"\n\t".contains(byte) { b'?' } else { *byte }).collect()
}

/// Prints a message of the program's to standard error. Where that cannot be written, no place is left to say so, and
/// the exit code stays what it is.
pub fn tell(message: &str) {
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
        // Whoever wants to know whether it was written flushes before.
        let _ = self.flush();
    }
}

/// A question mark, as from `ls`, for every control character but the ends of lines and columns, and for what is no
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

//! Text for people: all that the command prints but the contents of files goes through here. Text contains names from
//! an image, which may come from any user: on a terminal, control characters in them must not take effect, nor may they
//! reverse the order of what stands beside them. Output to a file or another program is not changed; messages of
//! servers are, since people read their log on a terminal.

use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write, stderr, stdout};
use std::sync::OnceLock;
use tracing_subscriber::fmt::MakeWriter;

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
    print_bytes(text.to_string().as_bytes());
}

/// Prints a name and a newline, as [`print`] does.
pub fn print_name(bytes: &[u8]) {
    print_bytes(&[&name(bytes), &b"\n"[..]].concat());
}

fn print_bytes(text: &[u8]) {
    let text = if stdout().is_terminal() { harmless(text) } else { Cow::Borrowed(text) };
    if FAILURE.get().is_none()
        && let Err(error) = stdout().write_all(&text)
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

/// How messages look, which the options of the whole program say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Each message is a line with a JSON object, for scripts.
    pub json: bool,
    /// What went as it should is not reported.
    pub quiet: bool,
}

static STYLE: OnceLock<Style> = OnceLock::new();

/// Sets the style of messages, once, before the first one.
pub fn set_style(style: Style) {
    let _ = STYLE.set(style);
}

/// The style of messages.
pub fn style() -> Style {
    STYLE.get().copied().unwrap_or_default()
}

/// Reports an error, with the exit code that it has by itself.
pub fn report_error(message: &str, code: u8) {
    put(message, || json!({ "error": message, "code": code }));
}

/// Reports what may be wrong, and ends nothing.
pub fn report(message: &str) {
    put(message, || json!({ "warning": message }));
}

/// Reports what went as it should.
pub fn note(message: &str) {
    if !style().quiet {
        put(message, || json!({ "note": message }));
    }
}

/// Prints a message to standard error. If that fails, the failure cannot be reported anywhere, and the exit code does
/// not change.
fn put(message: &str, object: impl FnOnce() -> Value) {
    let lines = if style().json { format!("{}\n", object()) } else { message_lines(message) };
    let shown = if stderr().is_terminal() { harmless(lines.as_bytes()) } else { Cow::Borrowed(lines.as_bytes()) };
    let _ = stderr().write_all(&shown);
}

/// A message with the name of the program. All lines but the first are indented, so a name with a newline in it does
/// not begin what looks like another message.
fn message_lines(message: &str) -> String {
    let mut lines = message.trim_end_matches('\n').split('\n');
    let mut text = format!("xfskit: {}\n", lines.next().unwrap_or_default());
    for line in lines {
        let indent = if line.starts_with(' ') { "" } else { "  " };
        text.extend([indent, line, "\n"]);
    }
    text
}

/// Copies what another process of this program reports to standard error, until it closes its end.
///
/// # Errors
/// Of reading and of standard error.
pub fn forward_errors(from: impl std::io::Read) -> std::io::Result<()> {
    let mut from = std::io::BufReader::new(from);
    let is_terminal = stderr().is_terminal();
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = LONGEST_FORWARDED_BYTES;
        let read = std::io::BufRead::read_until(&mut std::io::Read::take(&mut from, limit), b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        stderr().write_all(&if is_terminal { harmless(&line) } else { Cow::Borrowed(&line[..]) })?;
    }
}

/// Most bytes of a line that are forwarded in one piece.
const LONGEST_FORWARDED_BYTES: u64 = 64 << 10;

/// Standard error for the log of a server. Each message is one line.
#[derive(Clone, Copy)]
pub struct ServerLog;

impl Write for ServerLog {
    fn write(&mut self, message: &[u8]) -> std::io::Result<usize> {
        stderr().write_all(&log_line(message))?;
        Ok(message.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        stderr().flush()
    }
}

impl MakeWriter<'_> for ServerLog {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

/// A message of a server: one line, harmless for any terminal on which it is read later.
pub fn log_line(message: &[u8]) -> Vec<u8> {
    let text = message.strip_suffix(b"\n").unwrap_or(message);
    let mut line = harmless(&in_line(text)).into_owned();
    line.extend_from_slice(&message[text.len()..]);
    line
}

/// Prints help, a version or a message of the parser of arguments. The last contains arguments, which may be names that
/// a shell has found in a folder.
///
/// # Errors
/// Of standard output or standard error.
pub fn print_clap(error: &clap::Error) -> std::io::Result<()> {
    let text = error.render().to_string();
    if matches!(harmless(text.as_bytes()), Cow::Borrowed(_)) {
        return error.print();
    }
    let is_terminal = if error.use_stderr() { stderr().is_terminal() } else { stdout().is_terminal() };
    let shown = if is_terminal { harmless(text.as_bytes()) } else { Cow::Borrowed(text.as_bytes()) };
    if error.use_stderr() { stderr().write_all(&shown) } else { stdout().write_all(&shown) }
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

/// Control characters, and those of Unicode that end lines or change the direction of the text around them (UAX 9).
fn is_harmful(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_no_commands() {
        assert_eq!(&*harmless(b"\x1b[2J \x9b1m \xc2\x9b \x7f\r\n\tna\xc3\xafve"), b"?[2J ?1m ? ??\n\tna\xc3\xafve");
    }

    #[test]
    fn the_order_of_text_cannot_be_reversed() {
        let shown =
            harmless("exe.\u{202e}gpj\u{202c} \u{2066}a\u{2069} \u{200f}b\u{61c} \u{5d0}".as_bytes()).into_owned();
        assert_eq!(String::from_utf8(shown).unwrap(), "exe.?gpj? ?a? ?b? \u{5d0}");
    }

    #[test]
    fn a_name_with_a_newline_makes_no_second_message() {
        let shown = message_lines("a.img: /x\nxfskit: b.img: fine\n there");
        assert_eq!(shown, "xfskit: a.img: /x\n  xfskit: b.img: fine\n there\n");
        assert_eq!(log_line(b" WARN /x\n\x1b[2Jy\n"), b" WARN /x??[2Jy\n");
    }
}

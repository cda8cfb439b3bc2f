//! The process that runs the commands of `-exec`. The one that reads the image may start no programs: it asks this one,
//! its parent, over a pair of sockets that it has as its standard input.
//!
//! ```text
//! parent   parses the arguments, reads no image, runs commands
//!  └ search   enters the sandbox, reads the image, prints
//!     ─▶ number of the command (4 bytes), bytes of the path (4), the path
//!     ◀─ of a command with ; whether it succeeded (1 byte)
//! ```
//! The search may be an attacker's. It chooses among the commands that the user has given, and the paths: those lie
//! below the ones where the user has it begin, so that none is taken for an option. docs/design/sandbox.md has more.
//!
//! Commands with `+` run when the search has ended and the image is closed, so that they may change it.

use super::parse::{CommandLine, When};
use crate::args::FindArgs;
use crate::open::new_file::NewFile;
use crate::open::session::Session;
use crate::output::causes::Reported;
use crate::output::error::{Context, Result, bail, failed};
use crate::output::screen::Messages;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

const THIS_PROGRAM: &str = "/proc/self/exe";
/// The longest argument that Linux hands to a program, with the zero byte behind it.
const MOST_PATH_BYTES: usize = (128 << 10) - 1;
/// Bytes of paths that a command with `+` gets at a time.
const BATCH_BYTES: usize = 128 << 10;
/// Paths up to this size wait in memory, more in a file.
const MOST_IN_MEMORY: usize = 16 << 20;

/// The search's end.
pub struct Connection {
    socket: File,
    /// The other process is there no more.
    pub has_ended: bool,
}

impl Connection {
    /// The end that this process has as its standard input.
    ///
    /// # Errors
    /// The system's.
    pub fn of_standard_input() -> Result<Self> {
        // A search that nobody waits for is of no use.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        Ok(Self { socket: std::io::stdin().as_fd().try_clone_to_owned()?.into(), has_ended: false })
    }

    /// Has a command run for a path, at once or later; whether it succeeded.
    ///
    /// # Errors
    /// A path that is too long; the end of the other process.
    pub fn ask(&mut self, number: usize, command: &CommandLine, path: &[u8]) -> Result<bool> {
        if path.len() > MOST_PATH_BYTES {
            bail!("the path is too long for a command's argument");
        }
        let mut message = (number as u32).to_le_bytes().to_vec();
        message.extend_from_slice(&(path.len() as u32).to_le_bytes());
        message.extend_from_slice(path);
        let mut answer = [1];
        let mut ask = || {
            self.socket.write_all(&message)?;
            if command.when == When::AtOnce { self.socket.read_exact(&mut answer) } else { Ok(()) }
        };
        // As text: an error of a pipe would be taken for one of standard output.
        ask().map_err(|error| {
            self.has_ended = true;
            failed!("the process that runs commands has ended: {error}")
        })?;
        Ok(answer[0] == 1)
    }
}

/// Runs `find` with commands: starts the search, and does what it asks for.
///
/// # Errors
/// The system's; what the search, or a command with `+`, has reported.
pub fn run(session: &Session, args: &FindArgs, commands: &[CommandLine]) -> Result<()> {
    let (ours, theirs) = UnixStream::pair().context("a pair of sockets")?;
    let mut search = start(theirs.into()).context("starting the process that reads the image")?;
    let mut waiting = Waiting::default();
    let attended = attend(session.messages(), &ours, args, commands, &mut waiting);
    if attended.is_err() {
        let _ = search.kill();
    }
    let status = search.wait().context("the process that reads the image")?;
    attended?;
    end_with(session, status)?;
    let mut code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    if !waiting.run_all(session.messages(), commands)? && code == 0 {
        code = 1;
    }
    if code == 0 { Ok(()) } else { Err(Reported(code).into()) }
}

fn start(connection: OwnedFd) -> Result<Child> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let at = crate::args::find_words::position(&args).context("'find' is not among the arguments")?;
    args.insert(at + 1, "--search".into());
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0(&args[0]).args(&args[1..]).stdin(connection);
    Ok(command.spawn()?)
}

/// Ends by the signal that has ended the search.
fn end_with(session: &Session, status: ExitStatus) -> Result<()> {
    let Some(signal) = status.signal() else { return Ok(()) };
    session.messages().report(&format!("the search was ended by signal {signal}"));
    Err(Reported(u8::try_from(128 + signal).unwrap_or(1)).into())
}

/// Does what the search asks for, until it ends.
fn attend(
    messages: Messages,
    ours: &UnixStream,
    args: &FindArgs,
    commands: &[CommandLine],
    waiting: &mut Waiting,
) -> Result<()> {
    let (mut asked, mut answers) = (BufReader::new(ours), ours);
    while let Some((number, path)) = read_path(&mut asked)? {
        let command = commands.get(number).context("the search has asked for what is no command")?;
        // An attacker is not to choose an option of the command.
        if !args.paths.iter().any(|start| path.starts_with(start.as_bytes())) {
            bail!("the search has asked for a path where it did not begin");
        }
        match command.when {
            When::Afterwards => waiting.keep(number, &path)?,
            When::AtOnce => {
                let succeeded = run_command(messages, &command.with_path(&path));
                match answers.write_all(&[u8::from(succeeded)]) {
                    // The search has ended, and says why itself.
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                    answered => answered.context("the process that reads the image")?,
                }
            }
        }
    }
    Ok(())
}

/// The next number and path; `None` at the end.
fn read_path(from: &mut impl Read) -> Result<Option<(usize, Vec<u8>)>> {
    let mut header = [0; 8];
    if let Err(error) = from.read_exact(&mut header) {
        let has_ended = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
        return if has_ended { Ok(None) } else { Err(error).context("the process that reads the image") };
    }
    let [n0, n1, n2, n3, l0, l1, l2, l3] = header;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > MOST_PATH_BYTES {
        bail!("the search has sent a path that is too long");
    }
    let mut path = vec![0; length];
    match from.read_exact(&mut path) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        read => {
            read.context("the process that reads the image")?;
            Ok(Some((u32::from_le_bytes([n0, n1, n2, n3]) as usize, path)))
        }
    }
}

/// Runs a command and waits for it; whether it succeeded.
fn run_command(messages: Messages, words: &[OsString]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    match Command::new(program).args(arguments).status() {
        Ok(status) => status.success(),
        Err(error) => {
            messages.report(&format!("{}: {error}", program.display()));
            false
        }
    }
}

impl CommandLine {
    /// The words for one path.
    fn with_path(&self, path: &[u8]) -> Vec<OsString> {
        self.words.iter().map(|word| replaced(word, path)).collect()
    }

    /// The words for many paths, which come in place of the `{}` at the end.
    fn with_paths(&self, paths: Vec<OsString>) -> Vec<OsString> {
        let words = self.words[..self.words.len() - 1].iter().cloned();
        words.chain(paths).collect()
    }
}

/// A word with a path in place of each `{}`.
fn replaced(word: &OsStr, path: &[u8]) -> OsString {
    let (mut text, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(2).position(|pair| pair == b"{}") {
        text.extend_from_slice(&rest[..at]);
        text.extend_from_slice(path);
        rest = &rest[at + 2..];
    }
    text.extend_from_slice(rest);
    OsStr::from_bytes(&text).into()
}

/// Paths that wait for the end of the search.
#[derive(Default)]
struct Waiting {
    /// As they were sent.
    paths: Vec<u8>,
    /// Those before, once there are many.
    kept: Option<NewFile>,
}

impl Waiting {
    fn keep(&mut self, number: usize, path: &[u8]) -> Result<()> {
        self.paths.extend_from_slice(&(number as u32).to_le_bytes());
        self.paths.extend_from_slice(&(path.len() as u32).to_le_bytes());
        self.paths.extend_from_slice(path);
        if self.paths.len() < MOST_IN_MEMORY {
            return Ok(());
        }
        let dir = std::env::temp_dir();
        let context =
            || format!("{}: keeping paths there until the search ends (TMPDIR names a folder)", dir.display());
        let kept = match self.kept.take() {
            Some(kept) => kept,
            None => NewFile::new_in(&dir).with_context(context)?,
        };
        kept.file().write_all(&self.paths).with_context(context)?;
        self.kept = Some(kept);
        self.paths.clear();
        Ok(())
    }

    /// Runs the commands; whether all succeeded.
    fn run_all(&self, messages: Messages, commands: &[CommandLine]) -> Result<bool> {
        let mut succeeded = true;
        for number in (0..commands.len()).filter(|number| commands[*number].when == When::Afterwards) {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            let mut reader = self.reader()?;
            while let Some((of, path)) = read_path(&mut reader)? {
                if of != number {
                    continue;
                }
                let path_bytes = path.len() + size_of::<usize>() + 1;
                if bytes + path_bytes > BATCH_BYTES && !batch.is_empty() {
                    succeeded &= run_command(messages, &commands[number].with_paths(std::mem::take(&mut batch)));
                    bytes = 0;
                }
                batch.push(OsStr::from_bytes(&path).to_owned());
                bytes += path_bytes;
            }
            if !batch.is_empty() {
                succeeded &= run_command(messages, &commands[number].with_paths(batch));
            }
        }
        Ok(succeeded)
    }

    fn reader(&self) -> Result<Box<dyn Read + '_>> {
        let Some(kept) = &self.kept else { return Ok(Box::new(self.paths.as_slice())) };
        let mut file = kept.file();
        file.rewind()?;
        Ok(Box::new(BufReader::new(file).chain(self.paths.as_slice())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stand_where_braces_did() {
        assert_eq!(replaced(OsStr::new("a{}b{}"), b"/x"), "a/xb/x");
        assert_eq!(replaced(OsStr::new("{"), b"/x"), "{");
        let words = ["rm", "-f", "{}"].map(OsString::from).to_vec();
        let command = CommandLine { words, when: When::Afterwards };
        assert_eq!(command.with_paths(vec!["/a".into(), "/b".into()]), ["rm", "-f", "/a", "/b"]);
    }

    /// What a search asks for that an attacker has taken over.
    #[test]
    fn paths_and_commands_that_are_not_the_user_s_are_refused() {
        let args = crate::args::with_expression(["xfskit", "find", "a.img", "/etc"].map(OsString::from).to_vec());
        let crate::args::Command::Find(args) = <crate::args::Cli as clap::Parser>::parse_from(args).command else {
            panic!("it is find")
        };
        let command = CommandLine { words: ["true", "{}"].map(OsString::from).to_vec(), when: When::AtOnce };
        let answer = |number: u32, length: u32, path: &[u8]| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&[&number.to_le_bytes()[..], &length.to_le_bytes(), path].concat()).unwrap();
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            let attended =
                attend(Messages::default(), &ours, &args, std::slice::from_ref(&command), &mut Waiting::default());
            attended.map_err(|error| error.to_string())
        };
        assert!(answer(0, 6, b"/etc/x").is_ok() && answer(0, 60, b"/etc/x").is_ok());
        assert!(answer(1, 6, b"/etc/x").unwrap_err().contains("no command"));
        assert!(answer(0, 3, b"-rf").unwrap_err().contains("did not begin"));
        assert!(answer(0, u32::MAX, b"").unwrap_err().contains("too long"));
    }

    #[test]
    fn paths_that_wait_come_back_in_order() {
        let mut waiting = Waiting::default();
        let path = vec![b'x'; 100_000];
        for number in 0..400 {
            waiting.keep(number, &path[..path.len() - number]).unwrap();
        }
        assert!(waiting.kept.is_some());
        let mut reader = waiting.reader().unwrap();
        for number in 0..400 {
            let (of, read) = read_path(&mut reader).unwrap().unwrap();
            assert_eq!((of, read.len()), (number, path.len() - number));
        }
        assert!(read_path(&mut reader).unwrap().is_none());
        assert!(read_path(&mut &[0, 0, 0, 0, 255, 255, 255, 255][..]).is_err());
    }
}

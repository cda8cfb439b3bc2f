//! Why a command failed: its exit code and what the user can do travel with the error from where it is made.
//!
//! ```text
//! an error of a library ──From──▶ CommandError { kind, error, hint } ──context──▶ main: message, exit code
//! ```
//! A kind is given once, where an error of a library becomes one of the command ([`super::causes`]). Context adds to
//! the message, and to nothing else.

use super::exit;
use crate::interrupt;
use std::ffi::OsStr;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// The result of what a command does.
pub type Result<T, E = CommandError> = std::result::Result<T, E>;

/// What kind of failure an error is, on which the exit code depends.
#[derive(Debug)]
pub enum Kind {
    /// The operation failed.
    Failed,
    /// An error of this system that is not of an image, such as of standard output.
    System,
    /// The reader of the output has gone.
    BrokenPipe,
    /// A signal has ended the work.
    Interrupted,
    /// The arguments are wrong, or a file is only overwritten with -f.
    Usage,
    /// The image is damaged.
    Damaged,
    /// It is no image of the kind that is expected.
    NotAnImage,
    /// Another program uses it.
    Busy,
    /// What is to be copied is damaged or unsafe.
    BadSource,
    /// The image cannot be opened or read.
    Unreadable,
    /// There is no such file, or it is none that can be an image.
    Missing,
    /// It is on a mount whose server has ended.
    Disconnected,
    /// The image uses a feature that is not supported.
    Unsupported,
    /// This machine cannot mount it.
    NoMount,
    /// It is reported already, with this exit code: by a server in a process of its own, or by a command with exit
    /// codes of its own.
    Reported(u8),
    /// Of several operands.
    Several(Failures),
}

impl Kind {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed | Self::System | Self::BrokenPipe | Self::Interrupted => exit::FAILED,
            Self::Usage => exit::USAGE,
            Self::Damaged | Self::NotAnImage => exit::DAMAGED,
            Self::Busy => exit::BUSY,
            Self::BadSource => exit::BAD_SOURCE,
            Self::Unreadable | Self::Missing | Self::Disconnected => exit::UNREADABLE,
            Self::Unsupported => exit::UNSUPPORTED,
            Self::NoMount => exit::NO_MOUNT,
            Self::Reported(code) => *code,
            Self::Several(failures) => failures.code(),
        }
    }
}

/// What the user of the command can do about an error of the libraries, which do not know its options. It follows the
/// message without a blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// In any case.
    Always(&'static str),
    /// If the command does not wait for an image that is in use.
    UnlessWaiting(&'static str),
}

/// Whether a message begins with a path within an image, which is named together with the image then.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Begins {
    /// It begins with anything else.
    Otherwise,
    /// With a path in an image that is not known here.
    InImage,
    /// With a path in this image.
    InImageOf(String),
}

/// Why a command failed.
#[derive(Debug)]
pub struct CommandError {
    kind: Kind,
    error: anyhow::Error,
    hint: Option<Hint>,
    begins: Begins,
}

impl CommandError {
    /// An error of a kind.
    pub fn new(kind: Kind, error: impl Into<anyhow::Error>) -> Self {
        Self { kind, error: error.into(), hint: None, begins: Begins::Otherwise }
    }

    /// A message about an operation that failed.
    pub fn msg(message: impl Display + std::fmt::Debug + Send + Sync + 'static) -> Self {
        Self::new(Kind::Failed, anyhow::Error::msg(message))
    }

    /// The same error with a hint.
    pub fn with_hint(mut self, hint: Hint) -> Self {
        self.hint = Some(hint);
        self
    }

    /// The same error of what `context` names.
    pub fn context(mut self, context: impl Display + Send + Sync + 'static) -> Self {
        self.error = self.error.context(context);
        self.begins = Begins::Otherwise;
        self
    }

    /// The same error of a path within an image.
    pub fn at(self, path: impl AsRef<OsStr>) -> Self {
        self.context(path.as_ref().display().to_string()).with_path_of_image()
    }

    /// The same error, whose message begins with a path within an image.
    pub fn with_path_of_image(self) -> Self {
        Self { begins: Begins::InImage, ..self }
    }

    /// The same error with the image in which its path is, if it has one.
    pub fn in_image(mut self, image: &Path) -> Self {
        if let Kind::Several(failures) = &mut self.kind {
            let errors = std::mem::take(&mut failures.errors);
            failures.errors = errors.into_iter().map(|error| error.in_image(image)).collect();
        }
        if self.begins == Begins::InImage {
            self.begins = Begins::InImageOf(image.display().to_string());
        }
        self
    }

    /// Its kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.kind.code()
    }

    /// The error of a library that it was made of.
    pub fn cause<E: Display + std::fmt::Debug + Send + Sync + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }

    /// As [`Self::cause`], by value.
    ///
    /// # Errors
    /// This error, if it was made of another one.
    pub fn into_cause<E: Display + std::fmt::Debug + Send + Sync + 'static>(self) -> Result<E> {
        let Self { kind, error, hint, begins } = self;
        error.downcast().map_err(|error| Self { kind, error, hint, begins })
    }

    /// The message: the causes from the outside in, without those that the text before contains, and without a name
    /// that the next cause begins with; then what the user can do about it with this command, which waits so long for
    /// an image that is in use.
    pub fn message(&self, wait: Duration) -> String {
        let mut message = String::new();
        for cause in self.error.chain().map(ToString::to_string) {
            if message.is_empty() || cause.starts_with(&format!("{message}: ")) {
                message = cause;
            } else if !message.contains(&cause) {
                message = format!("{message}: {cause}");
            }
        }
        if let Begins::InImageOf(image) = &self.begins {
            let between = if message.starts_with('/') { ":" } else { ": " };
            message = format!("{image}{between}{message}");
        }
        match self.hint {
            Some(Hint::Always(hint)) => message.push_str(hint),
            Some(Hint::UnlessWaiting(hint)) if wait.is_zero() => message.push_str(hint),
            _ => {}
        }
        message
    }
}

/// The outermost context, or the error itself.
impl Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Display::fmt(&self.error, f)
    }
}

/// Adds to an error what it is an error of.
pub trait Context<T> {
    /// Adds a text.
    ///
    /// # Errors
    /// The same, with the text.
    fn context(self, context: impl Display + Send + Sync + 'static) -> Result<T>;

    /// Adds a text that is made for an error only.
    ///
    /// # Errors
    /// The same, with the text.
    fn with_context<C: Display + Send + Sync + 'static>(self, context: impl FnOnce() -> C) -> Result<T>;

    /// Adds a path within an image.
    ///
    /// # Errors
    /// The same, of the path.
    fn at(self, path: impl AsRef<OsStr>) -> Result<T>;
}

impl<T, E: Into<CommandError>> Context<T> for Result<T, E> {
    fn context(self, context: impl Display + Send + Sync + 'static) -> Result<T> {
        self.map_err(|error| error.into().context(context))
    }

    fn with_context<C: Display + Send + Sync + 'static>(self, context: impl FnOnce() -> C) -> Result<T> {
        self.map_err(|error| error.into().context(context()))
    }

    fn at(self, path: impl AsRef<OsStr>) -> Result<T> {
        self.map_err(|error| error.into().at(path))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, context: impl Display + Send + Sync + 'static) -> Result<T> {
        self.ok_or_else(|| CommandError::msg(context.to_string()))
    }

    fn with_context<C: Display + Send + Sync + 'static>(self, context: impl FnOnce() -> C) -> Result<T> {
        self.ok_or_else(|| CommandError::msg(context().to_string()))
    }

    fn at(self, path: impl AsRef<OsStr>) -> Result<T> {
        self.context(path.as_ref().display().to_string())
    }
}

/// An error of an operation that failed, with a message as of `format!`.
macro_rules! failed {
    ($($text:tt)*) => { $crate::output::error::CommandError::msg(format!($($text)*)) };
}

/// Returns an error of an operation that failed, with a message as of `format!`.
macro_rules! bail {
    ($($text:tt)*) => { return Err($crate::output::error::CommandError::msg(format!($($text)*)).into()) };
}

pub(crate) use {bail, failed};

/// Errors of some of several operands; the others were carried out.
#[derive(Debug, Default)]
pub struct Failures {
    errors: Vec<CommandError>,
    /// Number of errors beyond [`MAX_ERRORS`].
    more: u64,
    /// At least one operand succeeded.
    done: bool,
}

/// Most errors that are recorded for the report.
const MAX_ERRORS: usize = 1000;

impl Failures {
    /// Records the result of an operand. A signal ends the work: its error is not recorded but returned.
    ///
    /// # Errors
    /// That of a signal; one of standard output.
    pub fn note(&mut self, result: Result<()>) -> Result<()> {
        let Err(mut error) = result else {
            self.done = true;
            return Ok(());
        };
        match error.kind {
            // An error of standard output is returned too, since nothing more can be printed.
            Kind::Interrupted | Kind::System | Kind::BrokenPipe => return Err(error),
            Kind::Several(inner) => {
                self.done |= inner.done;
                self.more += inner.more;
                inner.errors.into_iter().for_each(|error| self.keep(error));
            }
            kind => {
                error.kind = kind;
                self.keep(error);
            }
        }
        Ok(())
    }

    /// What a step gave, or nothing: its error is noted.
    ///
    /// # Errors
    /// As [`Self::note`].
    pub fn unless_failed<T>(&mut self, result: Result<T, impl Into<CommandError>>) -> Result<Option<T>> {
        match result {
            Ok(given) => Ok(Some(given)),
            Err(error) => self.note(Err(error.into())).map(|()| None),
        }
    }

    fn keep(&mut self, error: CommandError) {
        if self.errors.len() < MAX_ERRORS { self.errors.push(error) } else { self.more += 1 }
    }

    /// The result of all operands.
    ///
    /// # Errors
    /// These failures, if there are any.
    pub fn into_result(self) -> Result<()> {
        if self.errors.is_empty() { Ok(()) } else { Err(self.into()) }
    }

    /// Whether at least one operand succeeded.
    pub fn are_partial(&self) -> bool {
        self.done
    }

    /// The exit code: that of the first error, unless a part of the image could not be read and the rest could.
    fn code(&self) -> u8 {
        let mut codes = self.errors.iter().map(CommandError::code);
        let is_unreadable = |code| matches!(code, exit::DAMAGED | exit::UNREADABLE);
        if self.done && codes.clone().any(is_unreadable) { exit::DAMAGED } else { codes.next().unwrap_or(exit::FAILED) }
    }

    /// The messages, to be printed one by one, each with its exit code.
    pub fn messages(&self, wait: Duration) -> impl Iterator<Item = (String, u8)> + '_ {
        let more = (self.more > 0).then(|| (format!("and {} more errors", self.more), exit::FAILED));
        self.errors.iter().map(move |error| (error.message(wait), error.code())).chain(more)
    }
}

impl From<Failures> for CommandError {
    fn from(failures: Failures) -> Self {
        let messages: Vec<String> = failures.messages(Duration::ZERO).map(|(message, _)| message).collect();
        Self::new(Kind::Several(failures), anyhow::Error::msg(messages.join("; ")))
    }
}

/// Runs an action for each of several operands; an error of one does not prevent the others.
///
/// # Errors
/// [`Failures`], and that of a signal.
pub fn for_each<T>(operands: impl IntoIterator<Item = T>, mut action: impl FnMut(T) -> Result<()>) -> Result<()> {
    let mut failures = Failures::default();
    for operand in operands {
        interrupt::check()?;
        failures.note(action(operand))?;
    }
    failures.into_result()
}

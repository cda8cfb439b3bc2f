//! From the words of an expression to tests, actions and operators.
//!
//! ```text
//! list    or    { "," or }
//! or      and   { "-o" and }
//! and     not   { [ "-a" ] not }
//! not     { "!" } one
//! one     "(" list ")"  |  a test, an action or an option, with its argument
//! ```

use super::numbers::{self, Age, Unit};
use super::owners::{List, Owners};
use super::printf::Format;
use super::test::{Links, Owner, Reference, Test, Time};
use crate::args::find_refused::instead;
use crate::args::find_words::{command_end, is_sign, name};
use crate::args::glob::{Case, Glob};
use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use crate::output::text::{end_of_day, parse_time};
use std::ffi::{OsStr, OsString};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};
use xfskit_engine::FileType;
use xfskit_engine::Volume;
use xfskit_ondisk::Timestamp;

/// Parentheses within parentheses: more are a mistake.
const MOST_NESTED: usize = 100;

/// What a search does.
#[derive(Clone, Debug)]
pub struct Expression {
    pub root: Node,
    /// The depths at which files are tested; the starting points have 0.
    pub least_depth: usize,
    pub most_depth: usize,
    pub order: Order,
    /// The commands of `-exec`.
    pub commands: Vec<CommandLine>,
    /// When the search began, in seconds since 1970.
    pub now: i64,
}

/// Which comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A directory, then what is in it.
    DirFirst,
    ContentsFirst,
}

/// A part of an expression.
#[derive(Clone, Debug)]
pub enum Node {
    Test(Test),
    Action(Action),
    Not(Box<Node>),
    /// All of them, up to the first that is false.
    All(Vec<Node>),
    /// One of them: the first that is true ends it.
    Any(Vec<Node>),
    /// One after another; the last one's result counts.
    List(Vec<Node>),
}

/// What is done with a file.
#[derive(Clone, Debug)]
pub enum Action {
    Print,
    Print0,
    /// Prints a line with the attributes.
    List,
    Printf(Format),
    Prune,
    Quit,
    /// Runs the command with this number.
    Exec(usize),
}

/// A command of `-exec`, in which `{}` stands for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    pub words: Vec<OsString>,
    pub when: When,
}

/// When a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// For each file, at once (`;`).
    AtOnce,
    /// With many paths, when the search is over (`+`).
    Afterwards,
}

impl Expression {
    /// Parses the words of an expression.
    ///
    /// # Errors
    /// `Usage`, which names the word and what is expected.
    pub fn parse(words: &[OsString]) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut parser = Parser {
            words,
            at: 0,
            nested: 0,
            now: i128::try_from(now.as_nanos()).unwrap_or(i128::MAX),
            has_output: false,
            otherwise: Action::Print,
            expression: Self {
                root: Node::Test(Test::Always(true)),
                least_depth: 0,
                most_depth: usize::MAX,
                order: Order::DirFirst,
                commands: Vec::new(),
                now: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            },
        };
        let root = parser.whole().map_err(|message| Usage(format!("find: {message}")))?;
        let action = parser.otherwise;
        let root = if parser.has_output { root } else { Node::All(vec![root, Node::Action(action)]) };
        Ok(Self { root, ..parser.expression })
    }

    /// Looks up in the image what its tests compare with.
    ///
    /// # Errors
    /// As those of the tests.
    pub fn bind(&mut self, filesystem: &Volume, owners: &mut Owners) -> Result<()> {
        self.root.bind(filesystem, owners).context("find")
    }

    /// Whether it prints in a form of its own.
    pub fn has_format(&self) -> bool {
        self.root.has_format()
    }
}

impl Node {
    fn bind(&mut self, filesystem: &Volume, owners: &mut Owners) -> Result<()> {
        match self {
            Self::Test(test) => test.bind(filesystem, owners),
            Self::Action(_) => Ok(()),
            Self::Not(node) => node.bind(filesystem, owners),
            Self::All(nodes) | Self::Any(nodes) | Self::List(nodes) => {
                nodes.iter_mut().try_for_each(|node| node.bind(filesystem, owners))
            }
        }
    }

    fn has_format(&self) -> bool {
        match self {
            Self::Test(_) => false,
            Self::Action(action) => matches!(action, Action::Printf(_)),
            Self::Not(node) => node.has_format(),
            Self::All(nodes) | Self::Any(nodes) | Self::List(nodes) => nodes.iter().any(Self::has_format),
        }
    }
}

struct Parser<'a> {
    words: &'a [OsString],
    at: usize,
    nested: usize,
    /// What ages are counted from, in nanoseconds since 1970.
    now: i128,
    /// An action prints or runs something, so that paths are not printed besides.
    has_output: bool,
    /// What is done where no action is given.
    otherwise: Action,
    expression: Expression,
}

type Parsed<T> = std::result::Result<T, String>;

impl<'a> Parser<'a> {
    fn whole(&mut self) -> Parsed<Node> {
        if self.words.is_empty() {
            return Ok(Node::Test(Test::Always(true)));
        }
        let root = self.list()?;
        match self.words.get(self.at) {
            None => Ok(root),
            Some(word) if word == ")" => Err("')' without a '(' before it".into()),
            Some(word) => Err(unexpected(word)),
        }
    }

    fn next_is(&self, names: &[&str]) -> bool {
        let Some(word) = self.words.get(self.at) else { return false };
        names.iter().any(|known| if is_sign(OsStr::new(known)) { word == *known } else { name(word) == Some(known) })
    }

    /// Takes the next word, if it is one of these.
    fn takes(&mut self, names: &[&str]) -> bool {
        let takes = self.next_is(names);
        self.at += usize::from(takes);
        takes
    }

    fn list(&mut self) -> Parsed<Node> {
        let mut nodes = vec![self.or()?];
        while self.takes(&[","]) {
            nodes.push(self.or()?);
        }
        Ok(one_or(nodes, Node::List))
    }

    fn or(&mut self) -> Parsed<Node> {
        let mut nodes = vec![self.and()?];
        while self.takes(&["o", "or"]) {
            nodes.push(self.and()?);
        }
        Ok(one_or(nodes, Node::Any))
    }

    fn and(&mut self) -> Parsed<Node> {
        let mut nodes = vec![self.not()?];
        while self.takes(&["a", "and"]) || self.at < self.words.len() && !self.next_is(&["o", "or", ",", ")"]) {
            nodes.push(self.not()?);
        }
        Ok(one_or(nodes, Node::All))
    }

    fn not(&mut self) -> Parsed<Node> {
        let mut is_negated = false;
        while self.takes(&["!", "not"]) {
            is_negated = !is_negated;
        }
        let node = self.one()?;
        Ok(if is_negated { Node::Not(Box::new(node)) } else { node })
    }

    fn one(&mut self) -> Parsed<Node> {
        let Some(word) = self.words.get(self.at) else {
            let last = self.words.last().map(|word| word.display().to_string()).unwrap_or_default();
            return Err(format!("{last}: a test or an action is missing behind it"));
        };
        self.at += 1;
        if word == "(" {
            self.nested += 1;
            if self.nested > MOST_NESTED {
                return Err(format!("more than {MOST_NESTED} parentheses within each other"));
            }
            if self.next_is(&[")"]) {
                return Err("'()': there is nothing between the parentheses".into());
            }
            let node = self.list()?;
            self.nested -= 1;
            return if self.takes(&[")"]) { Ok(node) } else { Err("'(' without a ')' behind it".into()) };
        }
        match name(word) {
            Some("a" | "and" | "o" | "or") => {
                Err(format!("{}: a test or an action is missing before it", word.display()))
            }
            _ if is_sign(word) => Err(format!("{}: a test or an action is missing before it", word.display())),
            Some(name) => self.primary(word, name),
            None => Err(unexpected(word)),
        }
    }

    /// A test, an action or an option.
    fn primary(&mut self, word: &'a OsStr, name: &str) -> Parsed<Node> {
        if let Some(node) = self.action(word, name)? {
            return Ok(node);
        }
        if self.option(word, name)? {
            return Ok(Node::Test(Test::Always(true)));
        }
        match self.test(word, name)? {
            Some(test) => Ok(Node::Test(test)),
            None => Err(match instead(name) {
                Some(instead) => format!("{}: not here: {instead}", word.display()),
                None => format!("{}: no test, action or option; 'xfskit find --help' lists them", word.display()),
            }),
        }
    }

    fn action(&mut self, word: &'a OsStr, name: &str) -> Parsed<Option<Node>> {
        let action = match name {
            // As an option, with two dashes, it says how paths are printed, and may stand before the tests.
            "print0" if word == "--print0" => {
                self.otherwise = Action::Print0;
                return Ok(Some(Node::Test(Test::Always(true))));
            }
            "print" => Action::Print,
            "print0" => Action::Print0,
            "ls" => Action::List,
            "printf" => Action::Printf(self.argument(word, "a format, as in '%p\\n'", Format::parse)?),
            "exec" => Action::Exec(self.command(word)?),
            "prune" => Action::Prune,
            "quit" => Action::Quit,
            _ => return Ok(None),
        };
        self.has_output |= !matches!(action, Action::Prune | Action::Quit);
        Ok(Some(Node::Action(action)))
    }

    /// The number of the command behind `-exec`.
    fn command(&mut self, word: &OsStr) -> Parsed<usize> {
        let begin = self.at;
        let word = word.display();
        let end = command_end(self.words, begin)
            .ok_or_else(|| format!(r"{word}: the command does not end; it ends in \; or in {{}} +"))?;
        self.at = end + 1;
        let when = if self.words[end] == ";" { When::AtOnce } else { When::Afterwards };
        let words = self.words[begin..end].to_vec();
        if words.is_empty() || words[0] == "{}" && when == When::Afterwards {
            return Err(format!("{word}: a command is missing behind it"));
        }
        let braces = words.iter().filter(|word| word.as_encoded_bytes().windows(2).any(|pair| pair == b"{}")).count();
        if when == When::Afterwards && braces != 1 {
            return Err(format!("{word}: with + there is one {{}}, right before the +"));
        }
        self.expression.commands.push(CommandLine { words, when });
        Ok(self.expression.commands.len() - 1)
    }

    /// Options, which are true of every file.
    fn option(&mut self, word: &OsStr, name: &str) -> Parsed<bool> {
        const LEVELS: &str = "a number of levels, as in 2";
        let levels = |text: &OsStr| text.to_str().and_then(numbers::whole).ok_or_else(String::new);
        match name {
            "maxdepth" => self.expression.most_depth = self.argument(word, LEVELS, levels)?,
            "mindepth" => self.expression.least_depth = self.argument(word, LEVELS, levels)?,
            "depth" | "d" => self.expression.order = Order::ContentsFirst,
            "daystart" => self.now = i128::from(end_of_day(self.expression.now)) * 1_000_000_000,
            // An image is one filesystem, which nobody changes while it is searched.
            "xdev" | "mount" | "noleaf" | "ignore_readdir_race" | "noignore_readdir_race" => {}
            "warn" | "nowarn" | "P" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn test(&mut self, word: &OsStr, name: &str) -> Parsed<Option<Test>> {
        const PATTERN: &str = "a pattern, as in '*.conf'";
        let glob = |case| move |text: &OsStr| Glob::parse(text, case);
        Ok(Some(match name {
            "true" => Test::Always(true),
            "false" => Test::Always(false),
            "name" => Test::Name(self.argument(word, PATTERN, glob(Case::Counts))?),
            "iname" => Test::Name(self.argument(word, PATTERN, glob(Case::IsIgnored))?),
            "path" | "wholename" => Test::Path(self.argument(word, PATTERN, glob(Case::Counts))?),
            "ipath" | "iwholename" => Test::Path(self.argument(word, PATTERN, glob(Case::IsIgnored))?),
            "lname" => Test::LinkTarget(self.argument(word, PATTERN, glob(Case::Counts))?),
            "ilname" => Test::LinkTarget(self.argument(word, PATTERN, glob(Case::IsIgnored))?),
            "xattr" => Test::Xattr(self.argument(word, PATTERN, glob(Case::Counts))?),
            "context" => Test::Label(self.argument(word, PATTERN, glob(Case::Counts))?),
            "type" => Test::Kind(Links::Kept, self.argument(word, "a kind, as in f,d", kinds)?),
            "xtype" => Test::Kind(Links::Followed, self.argument(word, "a kind, as in f,d", kinds)?),
            "size" => Test::Size(self.argument(word, "a size, as in +10M", parsed)?),
            "empty" => Test::Empty,
            "perm" => Test::Perm(self.argument(word, "permissions, as in 644 or -u+w", parsed)?),
            "user" => Test::Owner(List::Users, self.argument(word, "a user", owner)?),
            "group" => Test::Owner(List::Groups, self.argument(word, "a group", owner)?),
            "uid" => Test::Owner(List::Users, Owner::Number(self.argument(word, "a number", parsed)?)),
            "gid" => Test::Owner(List::Groups, Owner::Number(self.argument(word, "a number", parsed)?)),
            "nouser" => Test::Owner(List::Users, Owner::Unknown),
            "nogroup" => Test::Owner(List::Groups, Owner::Unknown),
            "links" => Test::LinkCount(self.argument(word, "a number", parsed)?),
            "inum" => Test::Inode(self.argument(word, "a number", parsed)?),
            "samefile" => Test::SameFile(self.argument(word, "a path within the image", path)?),
            _ => return self.time(word, name),
        }))
    }

    /// A test of a time.
    fn time(&mut self, word: &OsStr, name: &str) -> Parsed<Option<Test>> {
        const PATH: &str = "a path within the image";
        let (time, unit) = match name {
            "atime" => (Time::Accessed, Unit::Days),
            "ctime" => (Time::Changed, Unit::Days),
            "mtime" => (Time::Modified, Unit::Days),
            "amin" => (Time::Accessed, Unit::Minutes),
            "cmin" => (Time::Changed, Unit::Minutes),
            "mmin" => (Time::Modified, Unit::Minutes),
            "newer" | "anewer" | "cnewer" => {
                let own = letter_time(name.as_bytes()[0]).unwrap_or(Time::Modified);
                let of = self.argument(word, PATH, path)?;
                return Ok(Some(Test::Newer(own, Reference::Of(of, Time::Modified))));
            }
            _ => {
                let Some(&[own, other]) = name.strip_prefix("newer").map(str::as_bytes) else { return Ok(None) };
                let Some(own) = letter_time(own) else { return Ok(None) };
                let reference = match letter_time(other) {
                    Some(time) => Reference::Of(self.argument(word, PATH, path)?, time),
                    None if other == b't' => Reference::At(self.argument(word, "a time, as touch -d takes it", at)?),
                    None => return Ok(None),
                };
                return Ok(Some(Test::Newer(own, reference)));
            }
        };
        let now = self.now;
        let age = |text: &OsStr| Age::parse(text.to_str().unwrap_or_default(), unit, now);
        Ok(Some(Test::Age(time, self.argument(word, "a number, as in +7", age)?)))
    }

    /// The argument behind a word.
    fn argument<T>(&mut self, word: &OsStr, what: &str, parse: impl Fn(&OsStr) -> Parsed<T>) -> Parsed<T> {
        let word = word.display();
        let Some(argument) = self.words.get(self.at) else {
            return Err(format!("{word}: what is to follow it is missing: {what}"));
        };
        self.at += 1;
        parse(argument).map_err(|message| {
            let message = if message.is_empty() { format!("expected {what}") } else { message };
            format!("{word} {}: {message}", argument.display())
        })
    }
}

/// The node that several of a kind make; one is itself.
fn one_or(mut nodes: Vec<Node>, several: impl FnOnce(Vec<Node>) -> Node) -> Node {
    if nodes.len() == 1 { nodes.remove(0) } else { several(nodes) }
}

/// The message about a word that is neither a test nor an action.
fn unexpected(word: &OsStr) -> String {
    let word = word.display();
    format!("{word}: paths come before the tests; a pattern stands in quotes, as in -name '*.conf'")
}

fn parsed<T: FromStr<Err = String>>(text: &OsStr) -> Parsed<T> {
    text.to_str().unwrap_or_default().parse()
}

fn path(text: &OsStr) -> Parsed<OsString> {
    Ok(text.into())
}

fn at(text: &OsStr) -> Parsed<Timestamp> {
    parse_time(text.to_str().unwrap_or_default())
}

fn owner(text: &OsStr) -> Parsed<Owner> {
    let text = text.to_str().filter(|text| !text.is_empty()).ok_or_else(String::new)?;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    Ok(if is_number { Owner::Number(parsed(OsStr::new(text))?) } else { Owner::Named(text.into()) })
}

/// The time that a letter stands for in `-newerXY`, and in `-anewer`.
fn letter_time(letter: u8) -> Option<Time> {
    match letter {
        b'a' => Some(Time::Accessed),
        b'B' => Some(Time::Made),
        b'c' => Some(Time::Changed),
        b'm' => Some(Time::Modified),
        _ => None,
    }
}

/// The kinds that letters stand for.
fn kinds(text: &OsStr) -> Parsed<Vec<FileType>> {
    let kind = |letter: &str| {
        Some(match letter {
            "f" => FileType::File,
            "d" => FileType::Dir,
            "l" => FileType::Symlink,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            "b" => FileType::BlockDevice,
            "c" => FileType::CharDevice,
            _ => return None,
        })
    };
    let kinds: Option<Vec<FileType>> = text.to_str().unwrap_or_default().split(',').map(kind).collect();
    kinds.ok_or_else(|| "expected one of f, d, l, p, s, b, c, or several with commas".into())
}

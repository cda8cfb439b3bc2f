//! Arguments of the commands that list and find files.

use super::{ReadArgs, examples};
use crate::glob::{Case, Glob};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::{OsStr, OsString};

/// Arguments of `ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Paths within the image, or inode:NUMBER
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
    /// One line for each entry, with its attributes; times are those of the zone in TZ, with their distance from UTC.
    /// Behind the permissions stands + where there is an ACL, and . where there is a label of SELinux and no ACL
    #[arg(short)]
    pub long: bool,
    /// Show inode numbers
    #[arg(short)]
    pub inode: bool,
    /// Show . and .. too; other names that begin with a dot are always shown
    #[arg(short, long)]
    pub all: bool,
    /// Show directories themselves, not what is in them
    #[arg(short, long, conflicts_with = "recursive")]
    pub directory: bool,
    /// Everything below directories too; with --json a line for each entry, with its path
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// With -l: sizes with units
    #[arg(short, long)]
    pub human_readable: bool,
    /// The newest first, by the time of their contents; with -R directories are still gone through by name
    #[arg(short = 't', overrides_with = "by_size")]
    pub by_time: bool,
    /// The largest first
    #[arg(short = 'S', overrides_with = "by_time")]
    pub by_size: bool,
    /// The other way round
    #[arg(short, long)]
    pub reverse: bool,
    /// Show the label of SELinux, or ? where there is none
    #[arg(short = 'Z', long)]
    pub context: bool,
    /// Show behind a name what it is: / a directory, @ a symbolic link, | a pipe, = a socket, * a program
    #[arg(short = 'F', long)]
    pub classify: bool,
    /// As -l: owners are always numbers
    #[arg(short)]
    pub numeric: bool,
    /// Accepted, since it is so anyway: one line for each entry
    #[arg(short = '1')]
    one: bool,
    /// Accepted, since it is so anyway: names that begin with a dot
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl LsArgs {
    /// Whether entries are shown with their attributes.
    pub fn is_long(&self) -> bool {
        self.long || self.numeric
    }
}

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Paths within the image, or inode:NUMBER; with --json and several, a list of what was found, each with its path
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
}

const FIND_NOTES: &str = "\
The expression is that of find(1), with one dash or two. It is true of a file or not; where it is, the path is \
printed, unless it has an action of its own. PATTERN has *, ?, [a-z], [!a-z], and a backslash before what stands for \
itself; put it in quotes. N is a number, +N more than that, -N less.

Operators, the strongest first:
  ( EXPR )  ! EXPR  -not EXPR     the shell wants \\( \\) and \\!
  EXPR -a EXPR  EXPR EXPR         both; the second is not looked at if the first is false
  EXPR -o EXPR                    one of them; the second is not looked at if the first is true
  EXPR , EXPR                     both are looked at, the second counts

Tests:
  -name PATTERN -iname            the last name; with i, small and capital letters are the same
  -path PATTERN -ipath            the whole path, as it is printed; * also matches slashes
  -lname PATTERN -ilname          where a symbolic link points
  -type KIND                      f, d, l (symbolic link), p (pipe), s (socket), b, c (devices), or
                                  several with commas; -xtype: of what a link leads to
  -size [+-]N[cwbkMG]             rounded up to units of bytes, 2 bytes, 512 bytes, k, M, G
  -empty                          a file without contents, a directory without entries
  -perm MODE, -MODE, /MODE        exactly these permissions, all of them, one of them: 644, u+w,g+w
  -user NAME -group NAME          a number, or a name of the image's /etc/passwd or /etc/group
  -uid N -gid N -links N -inum N  numbers
  -nouser -nogroup                the owner has no name there
  -samefile PATH                  the same inode
  -mtime N -atime N -ctime N      ages in whole days; -mmin, -amin, -cmin: in minutes
  -newer PATH -anewer -cnewer     changed later than a path within the image
  -newerXY PATH                   time X later than time Y: a, B (made), c, m; -newermt DATE
  -xattr PATTERN                  it has an attribute whose whole name, as in user.a, matches
  -context PATTERN                the label of SELinux
  -true -false

Options:
  -maxdepth N -mindepth N         levels below the starting paths, which have 0
  -depth                          what is in a directory before the directory
  -daystart                       ages behind it are counted from the end of today

Actions:
  -print -print0 -ls              a line; a zero byte behind the path; a line with the attributes
  -printf FORMAT                  as find(1): %p %f %h %P %s %m %M %u %g %i %n %l %y %T@ %TY, ...
  -prune -quit                    not into this directory; no further
  -exec COMMAND ;                 a program of the host, for each file: true if it succeeds
  -exec COMMAND {} +              with many paths, when the search is over and the image is closed

{} stands for the path within the image, which a program of the host cannot open: give it to xfskit. Commands run \
outside the sandbox, in a process that reads no image. A command with + may change the image; one with ; finds it \
open for reading. With --json each printed file is a line, and -printf is refused.

find only reads: there is no -delete. Symbolic links are not followed, and regular expressions are not understood.";

/// Arguments of `find`.
#[derive(Debug, Args)]
#[command(after_help = examples::with(FIND_NOTES, examples::FIND))]
#[command(override_usage = "xfskit find [OPTIONS] <IMAGE> [PATHS]... [EXPRESSION]")]
pub struct FindArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Where to begin: paths within the image, or inode:NUMBER. The expression follows
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
    /// A word of the expression
    #[arg(long = "expression", hide = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
    /// Be the process that reads the image, for another one that runs the commands of the expression
    #[arg(long, hide = true)]
    pub search: bool,
}

/// The parser of a pattern.
pub(super) fn glob(case: Case) -> impl TypedValueParser<Value = Glob> {
    OsStringValueParser::new().try_map(move |text| Glob::parse(&text, case))
}

/// The program's arguments, where each word of the expression of `find` is the value of an option of its own.
pub fn with_expression(mut args: Vec<OsString>) -> Vec<OsString> {
    let Some(find) = crate::find::position(&args) else { return args };
    let (own, expression) = crate::find::split(&args.split_off(find + 1));
    let option = |word: OsString| [OsStr::new("--expression="), &word].into_iter().collect();
    args.extend(expression.into_iter().map(option));
    args.extend(own);
    args
}

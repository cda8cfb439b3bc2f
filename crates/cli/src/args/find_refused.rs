//! Words of find(1) that `find` does not take, each with what to do instead.

/// What follows a word of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    Nothing,
    /// One argument.
    One,
    /// A command, up to `;` or `{} +`.
    Command,
}

/// The word, what follows it, and what the user can do.
const REFUSED: [(&str, Follows, &str); 25] = {
    use Follows::{Command, Nothing, One};
    const READS: &str = "find only reads; print paths and give them to 'xfskit rm', or use -exec … {} +";
    const IN_IMAGE: &str = "a program of the host cannot stand in a directory of the image; -exec gives it the path";
    const ASKS: &str = "it asks nothing; print the paths first, and use -exec then";
    const FILES: &str = "output goes to standard output; redirect it";
    const LINKS: &str = "symbolic links are not followed; -xtype and -lname ask where they lead";
    const REGEX: &str = "regular expressions are not understood; -name and -path take patterns";
    const ACCESS: &str = "an image has no caller; -perm and -user ask for rights";
    const ONE: &str = "an image is one filesystem";
    [
        ("delete", Nothing, READS),
        ("execdir", Command, IN_IMAGE),
        ("ok", Command, ASKS),
        ("okdir", Command, IN_IMAGE),
        ("fprint", One, FILES),
        ("fprint0", One, FILES),
        ("fls", One, FILES),
        ("fprintf", One, FILES),
        ("follow", Nothing, LINKS),
        ("L", Nothing, LINKS),
        ("H", Nothing, LINKS),
        ("regex", One, REGEX),
        ("iregex", One, REGEX),
        ("regextype", One, REGEX),
        ("readable", Nothing, ACCESS),
        ("writable", Nothing, ACCESS),
        ("executable", Nothing, ACCESS),
        ("fstype", One, ONE),
        ("used", One, "-atime and -ctime ask for times"),
        ("files0-from", One, "name the paths themselves"),
        ("O0", Nothing, "tests are made in the order in which they stand"),
        ("O1", Nothing, "tests are made in the order in which they stand"),
        ("O2", Nothing, "tests are made in the order in which they stand"),
        ("O3", Nothing, "tests are made in the order in which they stand"),
        ("D", One, "it has no such messages"),
    ]
};

/// What follows a word that is refused.
pub(super) fn follows(name: &str) -> Option<Follows> {
    REFUSED.iter().find(|(refused, ..)| *refused == name).map(|(_, follows, _)| *follows)
}

/// What the user can do instead of a word that is refused.
pub fn instead(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, ..)| *refused == name).map(|(.., instead)| *instead)
}

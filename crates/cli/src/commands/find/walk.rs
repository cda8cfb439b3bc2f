//! `xfskit find`: walks through trees and evaluates an expression ([`crate::commands::find`]) for each file.

use super::owners::Owners;
use super::parse::{Action, Expression, Node, Order};
use super::printf::list_line;
use super::runner::{Connection, run as run_with_commands};
use super::test::Entry;
use crate::args::FindArgs;
use crate::commands::list::stat_json;
use crate::interrupt;
use crate::open::session::Session;
use crate::open::volume::open_to_read;
use crate::output::causes::Usage;
use crate::output::error::{Context, Failures, Result};
use crate::output::screen::{self, Screen, out};
use crate::output::text::set_json;
use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::Volume;
use xfskit_transfer::{ImageWalk, WalkEvent};

/// Runs `find`. An error does not end the search.
pub fn run(session: &Session, args: &FindArgs, as_json: bool) -> Result<()> {
    let mut expression = Expression::parse(&args.words)?;
    if as_json && expression.has_format() {
        return Err(Usage("find: -printf prints no JSON; leave --json out".into()).into());
    }
    if !expression.commands.is_empty() && !args.search {
        return run_with_commands(session, args, &expression.commands);
    }
    let connection = if args.search { Some(Connection::of_standard_input()?) } else { None };
    let filesystem = open_to_read(session, &args.read)?;
    let mut owners = Owners::default();
    expression.bind(&filesystem, &mut owners)?;
    let mut search = Search {
        filesystem: &filesystem,
        expression: &expression,
        owners,
        connection,
        as_json,
        out: out(),
        failures: Failures::default(),
        is_pruned: false,
        has_quit: false,
    };
    for path in &args.paths {
        search.tree(path)?;
        if search.has_quit {
            break;
        }
    }
    search.out.flush()?;
    search.failures.into_result()
}

/// The state of a search.
struct Search<'a> {
    filesystem: &'a Volume,
    expression: &'a Expression,
    owners: Owners,
    /// To the process that runs commands.
    connection: Option<Connection>,
    as_json: bool,
    out: BufWriter<Screen>,
    failures: Failures,
    /// The search is not to enter the directory that is looked at.
    is_pruned: bool,
    has_quit: bool,
}

impl Search<'_> {
    /// Searches a file or a directory and everything below it.
    fn tree(&mut self, path: &OsStr) -> Result<()> {
        let Some(start) = self.failures.unless_failed(crate::open::paths::find(self.filesystem, path))? else {
            return Ok(());
        };
        let (most_depth, order) = (self.expression.most_depth, self.expression.order);
        let mut walk = ImageWalk::new(self.filesystem, start.inode, path.as_bytes());
        let mut depth = 0;
        while let Some(event) = walk.next() {
            interrupt::check()?;
            let start = path.as_bytes();
            match event {
                Ok(WalkEvent::Found(found)) => {
                    let is_entered = found.is_dir() && depth < most_depth;
                    self.is_pruned = false;
                    if !is_entered || order == Order::DirFirst {
                        self.look_at(&Entry { found: &found, start, depth })?;
                    }
                    if is_entered && !(self.is_pruned && order == Order::DirFirst) {
                        depth += 1;
                    } else if found.is_dir() {
                        walk.skip_below();
                    }
                }
                Ok(WalkEvent::Left(found)) => {
                    depth -= 1;
                    if order == Order::ContentsFirst {
                        self.look_at(&Entry { found: &found, start, depth })?;
                    }
                }
                Err(error) => self.failures.note(Err(error.into()))?,
            }
            if self.has_quit {
                break;
            }
        }
        Ok(())
    }

    /// Evaluates the expression for a file.
    fn look_at(&mut self, entry: &Entry<'_>) -> Result<()> {
        if entry.depth < self.expression.least_depth {
            return Ok(());
        }
        let expression = self.expression;
        let result = self.evaluate(&expression.root, entry).map(drop);
        self.failures.note(result)
    }

    fn evaluate(&mut self, node: &Node, entry: &Entry<'_>) -> Result<bool> {
        match node {
            Node::Test(test) => test.holds(self.filesystem, &mut self.owners, entry),
            Node::Action(action) => self.act(action, entry),
            Node::Not(node) => Ok(!self.evaluate(node, entry)?),
            Node::All(nodes) => self.until(nodes, Some(false), entry),
            Node::Any(nodes) => self.until(nodes, Some(true), entry),
            Node::List(nodes) => self.until(nodes, None, entry),
        }
    }

    /// Evaluates one node after another, up to one with this result; the result of the last one.
    fn until(&mut self, nodes: &[Node], ends: Option<bool>, entry: &Entry<'_>) -> Result<bool> {
        let mut result = true;
        for node in nodes {
            result = self.evaluate(node, entry)?;
            if self.has_quit || ends == Some(result) {
                break;
            }
        }
        Ok(result)
    }

    fn act(&mut self, action: &Action, entry: &Entry<'_>) -> Result<bool> {
        let path = &entry.found.path;
        match action {
            Action::Prune => self.is_pruned = true,
            Action::Quit => self.has_quit = true,
            Action::Exec(number) => {
                let Some(connection) = &mut self.connection else { return Ok(false) };
                self.out.flush()?;
                let asked = connection.ask(*number, &self.expression.commands[*number], path);
                self.has_quit |= connection.has_ended;
                return asked.at(entry.path());
            }
            Action::Printf(format) => {
                let text = format.text(self.filesystem, &mut self.owners, entry)?;
                self.out.write_all(&text)?;
            }
            Action::Print | Action::Print0 | Action::List if self.as_json => {
                let mut value = stat_json(self.filesystem, &entry.found.stat).at(entry.path())?;
                set_json(&mut value, "path", path);
                writeln!(self.out, "{value}")?;
            }
            Action::Print => self.out.write_all(&[&screen::name(path), &b"\n"[..]].concat())?,
            Action::Print0 => self.out.write_all(&[path, &b"\0"[..]].concat())?,
            Action::List => {
                let line = list_line(self.filesystem, &mut self.owners, entry, self.expression.now)?;
                self.out.write_all(&line)?;
            }
        }
        Ok(true)
    }
}

//! `xfskit df` and `du`.

use super::list::is_dir;
use crate::args::{DfArgs, DuArgs};
use crate::interrupt;
use crate::open::paths::find;
use crate::open::session::Session;
use crate::open::volume::open_to_read;
use crate::output::error::{Failures, Result};
use crate::output::screen::{self, Screen, out, say};
use crate::output::text::{human_size, set_json};
use serde_json::json;
use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::Stat;
use xfskit_ondisk::InodeNumber;
use xfskit_transfer::{ImageWalk, WalkEvent};

/// Runs `df`.
pub fn df(session: &Session, args: &DfArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(session, &args.read)?;
    let stat = filesystem.statfs();
    let bytes = |blocks: u64| blocks * u64::from(stat.block_bytes);
    let (total, free) = (bytes(stat.blocks), bytes(stat.free_blocks));
    let used = total - free;
    if as_json {
        let space = json!({ "bytes": total, "used": used, "free": free });
        let inodes = json!({ "count": stat.inodes, "used": stat.inodes - stat.free_inodes, "free": stat.free_inodes });
        let mut value = json!({});
        set_json(&mut value, "image", args.read.image.image.as_os_str().as_bytes());
        (value["space"], value["inodes"]) = (space, inodes);
        say!(session.output, "{value:#}");
        return Ok(());
    }
    let shown = |bytes: u64| if args.human_readable { human_size(bytes) } else { bytes.div_ceil(1024).to_string() };
    // Rounded up, as df does.
    let percent = |used: u64, total: u64| (used * 100).div_ceil(total.max(1));
    let unit = if args.human_readable { "Size" } else { "1K-blocks" };
    say!(session.output, "{:10} {unit:>12} {:>12} {:>12} {:>5}", "", "Used", "Free", "Use%");
    say!(
        session.output,
        "{:10} {:>12} {:>12} {:>12} {:>4}%",
        "space",
        shown(total),
        shown(used),
        shown(free),
        percent(used, total)
    );
    let used = stat.inodes - stat.free_inodes;
    let (total, free) = (stat.inodes, stat.free_inodes);
    say!(session.output, "{:10} {total:>12} {used:>12} {free:>12} {:>4}%", "inodes", percent(used, total));
    Ok(())
}

/// Counts files, each once even if it has several names.
struct Counter {
    apparent: bool,
    seen: HashSet<InodeNumber>,
}

impl Counter {
    fn bytes(&mut self, stat: &Stat) -> u64 {
        if !is_dir(stat) && stat.links > 1 && !self.seen.insert(stat.inode) {
            return 0;
        }
        match (self.apparent, is_dir(stat)) {
            (true, true) => 0,
            (true, false) => stat.size,
            (false, _) => stat.blocks.saturating_mul(512),
        }
    }
}

/// Runs `du`.
pub fn du(session: &Session, args: &DuArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(session, &args.path.read)?;
    let start = find(&filesystem, &args.path.path)?;
    let mut counter = Counter { apparent: args.apparent_size, seen: HashSet::new() };
    let mut lines = Lines::new(args.human_readable, as_json);
    // The sum so far of each directory between the start and the current file.
    let mut sums: Vec<u64> = Vec::new();
    let mut failures = Failures::default();
    for step in ImageWalk::new(&filesystem, start.inode, args.path.path.as_encoded_bytes()) {
        interrupt::check()?;
        let Some(step) = failures.unless_failed(step)? else { continue };
        failures.note(Ok(()))?;
        let (found, bytes) = match step {
            WalkEvent::Found(found) if found.is_dir() => {
                sums.push(counter.bytes(&found.stat));
                continue;
            }
            WalkEvent::Found(found) => {
                let bytes = counter.bytes(&found.stat);
                (found, bytes)
            }
            WalkEvent::Left(found) => (found, sums.pop().unwrap_or_default()),
        };
        if let Some(above) = sums.last_mut() {
            *above = above.saturating_add(bytes);
        }
        if sums.is_empty() || found.is_dir() && !args.summarize {
            lines.print(&found.path, bytes)?;
        }
    }
    lines.end()?;
    failures.into_result()
}

/// The lines of `du`, printed one by one: together their paths take memory with the square of the depth of the tree.
struct Lines {
    out: BufWriter<Screen>,
    human: bool,
    /// What stands before the next element of a JSON list.
    json: Option<&'static str>,
}

impl Lines {
    fn new(human: bool, as_json: bool) -> Self {
        Self { out: out(), human, json: as_json.then_some("[\n") }
    }

    fn print(&mut self, path: &[u8], bytes: u64) -> Result<()> {
        if let Some(before) = &mut self.json {
            let before = std::mem::replace(before, ",\n");
            let mut line = json!({ "bytes": bytes });
            set_json(&mut line, "path", path);
            let line = format!("{line:#}");
            let indented = line.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
            write!(self.out, "{before}{indented}")?;
            return Ok(());
        }
        let size = if self.human { human_size(bytes) } else { bytes.div_ceil(1024).to_string() };
        write!(self.out, "{size}\t")?;
        self.out.write_all(&screen::name(path))?;
        Ok(writeln!(self.out)?)
    }

    fn end(mut self) -> Result<()> {
        match self.json {
            Some(",\n") => writeln!(self.out, "\n]")?,
            Some(_) => writeln!(self.out, "[]")?,
            None => {}
        }
        Ok(self.out.flush()?)
    }
}

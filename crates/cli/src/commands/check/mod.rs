//! `xfskit check`: verifies an image. Its exit codes are those of fsck(8), unlike those of all other commands.

mod groups;
mod paths;

use crate::args::CheckArgs;
use crate::open::explain::named;
use crate::open::session::Session;
use crate::open::volume::{open_log, open_to_look, open_without_lock, superblock_of};
use crate::output::causes::Reported;
use crate::output::error::Result;
use crate::output::exit;
use crate::output::screen::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use paths::Paths;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use xfskit::rescue::Loss;
use xfskit_check::{CheckOptions, Consequence, Fault, LogCondition, Owner, Progress, Report};
use xfskit_device::{Access, BlockDevice};
use xfskit_engine::{Error, Volume};
use xfskit_ondisk::{DiskAddress, Geometry};

const FAULTS: u8 = 1;
const DIRTY: u8 = 4;
const FAILED: u8 = 8;
const USAGE: u8 = 16;

/// Runs the command.
pub fn run(session: &Session, args: &CheckArgs, as_json: bool) -> Result<()> {
    let code = match check(session, args) {
        Ok(Checked { report, paths, geometry }) => {
            if as_json {
                say!(session.output, "{:#}", to_json(&report, &paths));
            } else {
                print(session, args, &report, &paths, geometry.as_ref());
            }
            if let Err(error) = session.output.end()
                && error.kind() != std::io::ErrorKind::BrokenPipe
            {
                session.messages().report(&format!("standard output: {error}"));
                return Err(Reported(FAILED).into());
            }
            match (report.log, report.is_clean()) {
                (LogCondition::Dirty, _) => DIRTY,
                (_, false) => FAULTS,
                (_, true) => return Ok(()),
            }
        }
        Err(error) => {
            let code = if error.code() == exit::USAGE { USAGE } else { FAILED };
            session.messages().report_error(&error.message(session.wait.time()), code);
            code
        }
    };
    Err(Reported(code).into())
}

/// What a check found, and what names it for a person.
struct Checked {
    report: Report,
    paths: Paths,
    /// `None` of an image without a superblock.
    geometry: Option<Geometry>,
}

fn check(session: &Session, args: &CheckArgs) -> Result<Checked> {
    let ToCheck { device, log_device, note, faults, is_replayable } = open(session, args)?;
    let mut options = CheckOptions { most_faults: args.most, ..CheckOptions::default() };
    if let Some(threads) = args.threads {
        options.threads = threads.get();
    }
    let bar = Bar::new();
    let report = xfskit_check::check(Arc::clone(&device), log_device.clone(), &options, &bar);
    bar.0.finish_and_clear();
    let image = &args.read.image.image;
    let mut report = match report {
        Ok(report) => report,
        Err(error) => {
            let error = named(image, &*open_without_lock(session, image)?, error.into());
            return Err(error.context(image.display().to_string()));
        }
    };
    report.notes.extend(note);
    if !is_replayable {
        // No replay makes any of the faults disappear.
        report.log = LogCondition::Unreadable;
    }
    report.fault_count += faults.len() as u64;
    report.faults.splice(0..0, faults);
    let geometry = superblock_of(image, &*device).ok().map(|superblock| Geometry::new(&superblock));
    let paths = Paths::find(&report, device, log_device);
    Ok(Checked { report, paths, geometry })
}

/// The fault for a missing part of the image.
fn fault_of(loss: &Loss) -> Fault {
    let (structure, check) = match loss {
        Loss::FirstSuperblock { .. } => ("superblock", "the first one can be used"),
        Loss::End { .. } => ("image", "as long as the filesystem"),
    };
    let (owner, consequence) = (None, Consequence::Image);
    let (address, target) = (Some(DiskAddress(0)), None);
    Fault { structure, check, address, owner, found: loss.to_string(), target, consequence }
}

/// The fault of a journal that recovery refuses: the image mounts nowhere.
fn unreplayable(error: &Error) -> Fault {
    let (owner, consequence, found) = (None, Consequence::Image, error.to_string());
    Fault { structure: "log", check: "can be replayed", address: None, owner, found, target: None, consequence }
}

/// What is checked.
struct ToCheck {
    device: Arc<dyn BlockDevice>,
    log_device: Option<Arc<dyn BlockDevice>>,
    /// What became of the journal.
    note: Option<String>,
    /// What is known to be wrong before the check.
    faults: Vec<Fault>,
    /// Whether a mount can replay the journal.
    is_replayable: bool,
}

/// The devices to check. A dirty journal is replayed in memory, so that the check sees what a mount would see. An image
/// that another program writes to is refused by its lock.
fn open(session: &Session, args: &CheckArgs) -> Result<ToCheck> {
    let (device, losses) = open_to_look(session, &args.read.image.image)?;
    let open = |path: &std::path::PathBuf| open_log(session, path, Access::Read);
    let log_device = args.read.image.logdev.as_ref().map(open).transpose()?;
    let faults = losses.iter().map(fault_of).collect();
    let mut to_check = ToCheck { device, log_device, note: None, faults, is_replayable: true };
    if args.read.no_recovery {
        return Ok(to_check);
    }
    match Volume::recover_in_memory(Arc::clone(&to_check.device), to_check.log_device.clone()) {
        Ok(recovered) => {
            to_check.note = recovered.report.map(|report| format!("{report}, in memory: the image stays as it is"));
            (to_check.device, to_check.log_device) = (recovered.device, recovered.log_device);
        }
        Err(error) => {
            let note = "the journal cannot be replayed, so the image was checked as it is on disk";
            to_check.note = Some(format!("{note}: {error}"));
            // What is lost of the image may be what the journal needs, and is a fault already.
            if matches!(error, Error::Corrupt(_)) && to_check.faults.is_empty() {
                to_check.faults.push(unreplayable(&error));
                to_check.is_replayable = false;
            }
        }
    }
    Ok(to_check)
}

/// A progress bar, on terminals.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        // Is drawn on terminals only.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg:18} {wide_bar} {pos}/{len} {elapsed}");
        bar.set_style(style.expect("the template is right"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }
}

impl Progress for Bar {
    fn begin(&self, pass: &'static str, steps: u64) {
        self.0.set_message(pass);
        self.0.set_length(steps);
        self.0.set_position(0);
    }

    fn step(&self) {
        self.0.inc(1);
    }
}

fn print(session: &Session, args: &CheckArgs, report: &Report, paths: &Paths, geometry: Option<&Geometry>) {
    for group in groups::of(&report.faults, geometry) {
        say!(session.output, "{}", group.text(paths));
    }
    for note in &report.notes {
        say!(session.output, "note: {note}");
    }
    let left = report.fault_count - report.faults.len() as u64;
    if left > 0 {
        say!(session.output, "and {left} more faults");
    }
    let summary = &report.summary;
    say!(
        session.output,
        "{}: {} inodes, {} directories, {} names, {} attributes, {} extents, {} blocks used, {} free",
        args.read.image.image.display(),
        summary.inodes,
        summary.directories,
        summary.names,
        summary.attributes,
        summary.extents,
        summary.used_blocks,
        summary.free_blocks
    );
    match report.fault_count {
        0 => say!(session.output, "no faults"),
        1 => say!(session.output, "1 fault"),
        count => say!(session.output, "{count} faults"),
    }
}

fn to_json(report: &Report, paths: &Paths) -> Value {
    let owner = |owner: Option<Owner>| match owner {
        Some(Owner::Ag(ag)) => json!({ "ag": ag.0 }),
        Some(Owner::Inode(inode)) => json!({ "inode": inode.0 }),
        None => Value::Null,
    };
    let fault = |fault: &Fault| {
        json!({
            "structure": fault.structure,
            "check": fault.check,
            "address": fault.address.map(|address| address.0),
            "owner": owner(fault.owner),
            "path": paths.of_owner(fault),
            "found": fault.found,
            "consequence": fault.consequence.to_string(),
        })
    };
    let summary = &report.summary;
    json!({
        "clean": report.is_clean(),
        "log_clean": report.log == LogCondition::Clean,
        "fault_count": report.fault_count,
        "faults": report.faults.iter().map(fault).collect::<Vec<_>>(),
        "notes": report.notes,
        "summary": {
            "inodes": summary.inodes,
            "directories": summary.directories,
            "names": summary.names,
            "attributes": summary.attributes,
            "parent_pointers": summary.parent_pointers,
            "extents": summary.extents,
            "unlinked_inodes": summary.unlinked,
            "used_blocks": summary.used_blocks,
            "free_blocks": summary.free_blocks,
        },
    })
}

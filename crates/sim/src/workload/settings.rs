//! Changes of times, group, flags, project and hints of an inode.

use crate::node::NodeId;
use crate::node::is_dir;
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;
use crate::tree::Settings;
use xfskit_ondisk::Timestamp;
use xfskit_ondisk::inode::{MODE_CHAR, MODE_DIR, MODE_REGULAR, MODE_TYPE, flags, flags2};

/// Flags that files and directories may have. Those that forbid changes are not among them.
const FLAGS: u16 = flags::SYNC | flags::NOATIME | flags::NODUMP | flags::NODEFRAG | flags::FILESTREAM;

/// Changes an inode once in `one_in` calls on average, and returns whether it did. It does nothing in runs without
/// `sets_attributes`: `tests/regressions.rs` names states of such runs, which more operations would change.
///
/// # Errors
/// `Stop`.
pub fn perform(run: &mut Run, node: NodeId, one_in: usize) -> Result<bool, Stop> {
    if !run.sets_attributes || !run.random.one_in(one_in) {
        return Ok(false);
    }
    let operation = change(run, node);
    run.perform(&operation)?;
    Ok(true)
}

fn change(run: &mut Run, node: NodeId) -> Operation {
    // The model compares a whiteout's times with its name, for it does not know which inode that is; times that are set
    // alone come later.
    let may_be_whiteout = run.model.mode(node) & MODE_TYPE == MODE_CHAR;
    match run.random.below(6) {
        0 | 1 if !may_be_whiteout => {
            let [atime, mtime] = [any_time(run), any_time(run)];
            Operation::SetTimes { node, atime, mtime: mtime.or(atime.is_none().then_some(run.model.now)) }
        }
        2 => Operation::ChangeGroup { node, gid: run.random.below(4) as u32 },
        3 if is_dir(run.model.mode(node)) => Operation::Change { node, mode: 0o2755, uid: run.random.below(3) as u32 },
        _ => Operation::SetSettings { node, settings: any_settings(run, node) },
    }
}

/// A time that every image can hold, or none.
fn any_time(run: &mut Run) -> Option<Timestamp> {
    let nanoseconds = run.random.below(1_000_000_000) as u32;
    let seconds = i64::from(run.random.next() as i32);
    (!run.random.one_in(3)).then_some(Timestamp { seconds, nanoseconds })
}

fn any_settings(run: &mut Run, node: NodeId) -> Settings {
    let project = run.random.below(4) as u32;
    let kind = run.model.mode(node) & MODE_TYPE;
    let mut settings = Settings { project, ..Settings::default() };
    if kind != MODE_DIR && kind != MODE_REGULAR {
        return settings;
    }
    settings.flags = (run.random.next() & run.random.next()) as u16 & FLAGS;
    let hint = [0, 0, 1, 4, 16];
    settings.extent_blocks = hint[run.random.below(hint.len())];
    if settings.extent_blocks > 0 {
        settings.flags |= if kind == MODE_DIR { flags::EXTSZINHERIT } else { flags::EXTSIZE };
    }
    if kind == MODE_DIR && run.random.one_in(2) {
        settings.flags |= flags::PROJINHERIT;
    }
    settings.cow_extent_blocks = if run.has_reflink() { hint[run.random.below(hint.len())] } else { 0 };
    if settings.cow_extent_blocks > 0 {
        settings.flags2 = flags2::COWEXTSIZE;
    }
    settings
}

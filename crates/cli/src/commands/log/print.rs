//! `xfskit log`.

use super::checkpoints::{Checkpoint, Preview, checkpoints, intent_name};
use super::items::Item;
use super::records::{Found, Journal, Which, flag_names, has, is_log};
use crate::args::{ImageArgs, LogCommand};
use crate::open::session::Session;
use crate::open::volume::{open_quietly, options_to_write};
use crate::output::error::{Context, Result};
use crate::output::screen::out;
use crate::output::screen::say;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use xfskit_engine::journal::Operation;
use xfskit_engine::{LogState, RecoveryReport};
use xfskit_ondisk::Lsn;
use xfskit_ondisk::log_record::{TRANSACTION_MAGIC, operation_flags as flags};

/// Runs the command.
pub fn run(session: &Session, command: &LogCommand, as_json: bool) -> Result<()> {
    match command {
        LogCommand::Print { image, all, transactions } => {
            print(session, image, if *all { Which::All } else { Which::Live }, *transactions, as_json)
        }
        LogCommand::Replay(image) => replay(session, image, as_json),
    }
}

/// Replays the journal by opening the image; closing it marks the journal as clean.
fn replay(session: &Session, args: &ImageArgs, as_json: bool) -> Result<()> {
    let filesystem = open_quietly(session, &args.image, args.logdev.as_deref(), options_to_write())?;
    let report = filesystem.recovery_report().cloned();
    filesystem.unmount_if_changed().with_context(|| format!("{}: closing the image", args.image.display()))?;
    if as_json {
        say!(session.output, "{:#}", report.as_ref().map_or_else(|| json!({ "dirty": false }), report_json));
    } else {
        let name = args.image.display();
        match report {
            Some(report) => say!(session.output, "{name}: {report}"),
            None => say!(session.output, "{name}: the journal is clean"),
        }
    }
    Ok(())
}

fn report_json(report: &RecoveryReport) -> Value {
    json!({
        // Behind the end of a clean journal there may be records that are not whole.
        "dirty": report.records > 0,
        "tail": place(report.tail),
        "head": place(report.head),
        "bytes": report.bytes,
        "records": report.records,
        "transactions": report.transactions,
        "uncommitted": report.uncommitted,
        "items": { "replayed": report.replayed, "newer_at_home": report.skipped, "freed_later": report.cancelled },
        "blocks_written": report.blocks_written,
        "intents": report.intents,
        "torn_bytes": report.torn_bytes,
    })
}

/// Prints the journal. That recovery fails is an error, as it is to all commands that read the image; what can be shown
/// is printed first.
fn print(session: &Session, image: &ImageArgs, which: Which, transactions: bool, as_json: bool) -> Result<()> {
    let journal = Journal::open(session, &image.image, image.logdev.as_deref())?;
    let preview = Preview::of(&journal);
    let out = RefCell::new(out());
    if as_json {
        let value = to_json(&journal, which, &preview)?;
        writeln!(out.borrow_mut(), "{value:#}")?;
    } else {
        print_state(&mut *out.borrow_mut(), &journal, &preview)?;
        let preview = preview.as_ref().ok().and_then(Option::as_ref);
        if transactions {
            print_checkpoints(&mut *out.borrow_mut(), &journal, which, preview.filter(|_| which == Which::Live))?;
        } else {
            // For each checkpoint that is incomplete so far, how many regions of its current item are missing.
            let mut left: HashMap<u32, usize> = HashMap::new();
            let look = |lsn, found: Found<'_>| print_record(&mut *out.borrow_mut(), lsn, found, &mut left);
            journal.records(which, look)?;
        }
    }
    out.into_inner().flush()?;
    preview.map(drop).with_context(|| format!("{}: the journal cannot be replayed", image.image.display()))
}

fn place(lsn: Lsn) -> String {
    format!("{}:{}", lsn.cycle(), lsn.block())
}

fn print_state(
    out: &mut impl Write,
    journal: &Journal,
    preview: &Result<Option<Preview>, xfskit_engine::Error>,
) -> Result<()> {
    write!(out, "journal of {} blocks, head {}, ", journal.blocks(), place(journal.log.head.next))?;
    match journal.log.state {
        LogState::Clean => writeln!(out, "clean")?,
        LogState::Dirty { tail } => writeln!(out, "dirty from {}", place(tail))?,
    }
    match preview {
        Ok(Some(preview)) => {
            writeln!(out, "recovery: {}", preview.report)?;
            for (kind, id) in &preview.intents {
                writeln!(out, "  to be finished: {} {id:#x}", intent_name(*kind))?;
            }
        }
        Ok(None) => {
            if let Some(report) = torn_report(journal) {
                writeln!(out, "recovery: {report}")?;
            }
        }
        Err(error) => writeln!(out, "recovery: FAILS: {error}")?,
    }
    Ok(())
}

/// What recovery reports of a clean journal behind whose end lie records that are not whole.
fn torn_report(journal: &Journal) -> Option<RecoveryReport> {
    let (end, torn_bytes) = (journal.log.head.next, journal.log.head.torn_bytes());
    let report = RecoveryReport { tail: end, head: end, torn_bytes, ..RecoveryReport::default() };
    (torn_bytes > 0 && journal.log.state == LogState::Clean).then_some(report)
}

fn print_record(out: &mut impl Write, lsn: Lsn, found: Found<'_>, left: &mut HashMap<u32, usize>) -> Result<()> {
    let record = match found {
        Ok(record) => record,
        Err(damage) => {
            writeln!(out, "record {}", place(lsn))?;
            return Ok(writeln!(out, "  DAMAGED: {damage}")?);
        }
    };
    let (bytes, count) = (record.data.len(), record.operation_count);
    writeln!(out, "record {}: {bytes} bytes, {count} operations, tail {}", place(lsn), place(record.tail))?;
    for (index, operation) in record.operations().enumerate() {
        match operation {
            Ok(operation) => {
                let left = left.entry(operation.header.transaction.get()).or_default();
                writeln!(out, "  {index:>4} {}", describe(&operation, left))?;
            }
            Err(damage) => writeln!(out, "  {index:>4} DAMAGED: {damage}")?,
        }
    }
    Ok(())
}

fn describe(operation: &Operation<'_>, left: &mut usize) -> String {
    let mut names = flag_names(operation).join(" ");
    if !names.is_empty() {
        names = format!(" [{names}]");
    }
    let what = if is_log(operation) {
        "log".to_owned()
    } else if has(operation, flags::START | flags::COMMIT) || has(operation, flags::WAS_CONTINUED) {
        String::new()
    } else if *left > 0 {
        *left -= 1;
        "region".to_owned()
    } else if operation.payload.starts_with(&TRANSACTION_MAGIC.to_le_bytes()) {
        "transaction header".to_owned()
    } else {
        *left = Item::region_count(operation.payload) - 1;
        let item = Item::decode(vec![operation.payload.to_vec()]);
        format!("{} {}", item.kind, item.about)
    };
    let header = &operation.header;
    let text = format!("{:08x} {:>6} bytes{names} {what}", header.transaction, header.length);
    text.trim_end().to_owned()
}

fn print_checkpoints(out: &mut impl Write, journal: &Journal, which: Which, preview: Option<&Preview>) -> Result<()> {
    let (list, damage) = checkpoints(journal, which)?;
    for (ordinal, checkpoint) in list.iter().enumerate() {
        let commit =
            checkpoint.commit.map_or_else(|| "not committed".to_owned(), |lsn| format!("committed {}", place(lsn)));
        let (id, start, count) = (checkpoint.id, place(checkpoint.start), checkpoint.items.len());
        writeln!(out, "checkpoint {id:08x} from {start}, {commit}, {count} items")?;
        for (index, item) in checkpoint.items.iter().enumerate() {
            let bytes: usize = item.regions.iter().sum();
            let whole = if item.whole { "" } else { ", INCOMPLETE" };
            let outcome = match (checkpoint.commit, preview) {
                (Some(_), Some(preview)) => preview.outcome(ordinal, index, item),
                _ => "",
            };
            let outcome = if outcome.is_empty() { String::new() } else { format!(": {outcome}") };
            let (kind, about, regions) = (item.kind, &item.about, item.regions.len());
            writeln!(out, "  {kind} {about} ({regions} regions, {bytes} bytes{whole}){outcome}")?;
        }
    }
    if let Some(damage) = damage {
        writeln!(out, "DAMAGED: {damage}")?;
    }
    Ok(())
}

fn to_json(journal: &Journal, which: Which, preview: &Result<Option<Preview>, xfskit_engine::Error>) -> Result<Value> {
    let mut records = Vec::new();
    journal.records(which, |lsn, found| {
        records.push(match found {
            Ok(record) => json!({
                "lsn": place(lsn),
                "tail": place(record.tail),
                "bytes": record.data.len(),
                "operations": record.operation_count,
                "damage": null,
            }),
            Err(damage) => json!({ "lsn": place(lsn), "damage": damage }),
        });
        Ok(())
    })?;
    let (recovery, fails) = match preview {
        Ok(preview) => (preview.as_ref(), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let (list, damage) = checkpoints(journal, which)?;
    let item = |ordinal: usize, index: usize, item: &Item| {
        let outcome = recovery.filter(|_| which == Which::Live).map(|preview| preview.outcome(ordinal, index, item));
        json!({ "kind": item.kind, "about": item.about, "regions": item.regions, "recovery": outcome })
    };
    let checkpoint = |(ordinal, checkpoint): (usize, &Checkpoint)| {
        let items = checkpoint.items.iter().enumerate().map(|(index, found)| item(ordinal, index, found));
        json!({
            "id": checkpoint.id,
            "start": place(checkpoint.start),
            "commit": checkpoint.commit.map(place),
            "items": items.collect::<Vec<_>>(),
        })
    };
    let report = recovery.map(|preview| preview.report.clone()).or_else(|| torn_report(journal));
    Ok(json!({
        "blocks": journal.blocks(),
        "head": place(journal.log.head.next),
        "state": if journal.log.state == LogState::Clean { "clean" } else { "dirty" },
        "records": records,
        "checkpoints": list.iter().enumerate().map(checkpoint).collect::<Vec<_>>(),
        "damage": damage,
        "recovery": report.as_ref().map(report_json),
        "recovery_fails": fails,
    }))
}

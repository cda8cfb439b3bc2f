//! `xfskit log print`.

use crate::args::LogCommand;
use crate::log::{Checkpoint, Gatherer, Item, Journal, Operation, Record};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufWriter, Write, stdout};
use xfskit::journal::LogState;
use xfskit::ondisk::Lsn;
use xfskit::ondisk::log_record::{TRANSACTION_MAGIC, operation_flags as flags};

/// Runs the command.
pub fn run(command: &LogCommand, as_json: bool) -> Result<()> {
    let LogCommand::Print { image, all, transactions } = command;
    let journal = Journal::open(&image.image, image.logdev.as_deref())?;
    let records = if *all { journal.all_records()? } else { journal.live_records()? };
    let mut out = BufWriter::new(stdout().lock());
    if as_json {
        writeln!(out, "{:#}", to_json(&journal, &records))?;
    } else {
        print_state(&mut out, &journal)?;
        if *transactions { print_checkpoints(&mut out, &records)? } else { print_records(&mut out, &records)? }
    }
    Ok(out.flush()?)
}

fn place(lsn: Lsn) -> String {
    format!("{}:{}", lsn.cycle(), lsn.block())
}

fn print_state(out: &mut impl Write, journal: &Journal) -> Result<()> {
    write!(out, "journal of {} blocks, head {}, ", journal.blocks(), place(journal.head.next))?;
    match journal.state {
        LogState::Clean => writeln!(out, "clean")?,
        LogState::Dirty { tail } => writeln!(out, "dirty from {}", place(tail))?,
    }
    Ok(())
}

fn print_records(out: &mut impl Write, records: &[Record]) -> Result<()> {
    // How many more regions the item has that a checkpoint is in the middle of.
    let mut left: HashMap<u32, usize> = HashMap::new();
    for record in records {
        let header = &record.header;
        writeln!(
            out,
            "record {} at block {}: {} bytes, {} operations, tail {}",
            place(record.lsn()),
            record.block,
            header.length,
            header.operations,
            place(Lsn(header.tail_lsn.get()))
        )?;
        if let Some(damage) = &record.damage {
            writeln!(out, "  DAMAGED: {damage}")?;
        }
        for (index, operation) in record.operations().iter().enumerate() {
            let left = left.entry(operation.header.transaction.get()).or_default();
            writeln!(out, "  {index:>4} {}", describe(operation, left))?;
        }
    }
    Ok(())
}

fn describe(operation: &Operation<'_>, left: &mut usize) -> String {
    let mut names = operation.flag_names().join(" ");
    if !names.is_empty() {
        names = format!(" [{names}]");
    }
    let what = if operation.is_log() {
        "log".to_owned()
    } else if operation.has(flags::START | flags::COMMIT) || operation.has(flags::WAS_CONTINUED) {
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

fn checkpoints(records: &[Record]) -> Vec<Checkpoint> {
    let mut gatherer = Gatherer::default();
    let mut list: Vec<Checkpoint> = records.iter().flat_map(|record| gatherer.take(record)).collect();
    list.extend(gatherer.rest());
    list
}

fn print_checkpoints(out: &mut impl Write, records: &[Record]) -> Result<()> {
    for checkpoint in checkpoints(records) {
        let commit =
            checkpoint.commit.map_or_else(|| "not committed".to_owned(), |lsn| format!("committed {}", place(lsn)));
        let (id, start, count) = (checkpoint.id, place(checkpoint.start), checkpoint.items.len());
        writeln!(out, "checkpoint {id:08x} from {start}, {commit}, {count} items")?;
        for item in &checkpoint.items {
            let bytes: usize = item.regions.iter().sum();
            let whole = if item.whole { "" } else { ", INCOMPLETE" };
            writeln!(out, "  {} {} ({} regions, {bytes} bytes{whole})", item.kind, item.about, item.regions.len())?;
        }
    }
    Ok(())
}

fn to_json(journal: &Journal, records: &[Record]) -> Value {
    let item = |item: &Item| json!({ "kind": item.kind, "about": item.about, "regions": item.regions });
    let checkpoint = |checkpoint: &Checkpoint| {
        json!({
            "id": checkpoint.id,
            "start": place(checkpoint.start),
            "commit": checkpoint.commit.map(place),
            "items": checkpoint.items.iter().map(item).collect::<Vec<_>>(),
        })
    };
    let record = |record: &Record| {
        json!({
            "lsn": place(record.lsn()),
            "tail": place(Lsn(record.header.tail_lsn.get())),
            "bytes": record.header.length.get(),
            "operations": record.header.operations.get(),
            "damage": record.damage,
        })
    };
    json!({
        "blocks": journal.blocks(),
        "head": place(journal.head.next),
        "state": if journal.state == LogState::Clean { "clean" } else { "dirty" },
        "records": records.iter().map(record).collect::<Vec<_>>(),
        "checkpoints": checkpoints(records).iter().map(checkpoint).collect::<Vec<_>>(),
    })
}

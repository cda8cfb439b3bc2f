//! `xfskit info` of a disk: the tree of what is on it.
//!
//! ```text
//! disk.qcow2: qcow2, 356 MiB, partition table gpt
//!   #1        32 MiB  ext4, partition label "boot"
//!   #2       320 MiB  xfs, label "root", journal clean, uuid ..., partition label "root"
//! ```

use crate::commands::log;
use crate::open::files::open_disks;
use crate::open::mount_query::LiveMount;
use crate::open::session::Session;
use crate::operand;
use crate::output::error::Result;
use crate::output::screen::say;
use crate::output::text::set_json;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use xfskit_device::Access;
use xfskit_disk::{Disk, Disks, Format, Found, Part, Partition, TableKind};

/// The disks of an operand that names no part. None where it names one filesystem, or a mount.
///
/// # Errors
/// As opening the operand.
pub fn open(session: &Session, operand: &Path) -> Result<Option<Disks>> {
    if operand::decode(operand)?.part != Part::Unnamed || LiveMount::at(operand)?.is_some() {
        return Ok(None);
    }
    Ok(Some(open_disks(session, &operand::decode(operand)?, Access::Read)?))
}

/// Whether there are partitions, empty ones perhaps.
pub fn has_parts(disks: &Disks) -> bool {
    disks.disks.iter().any(|disk| !disk.partitions.is_empty())
}

/// The format of a virtual disk that is a filesystem as a whole, and the files below it.
pub fn container(disks: &Disks) -> Option<String> {
    let disk = disks.disks.first().filter(|disk| disk.format != Format::Raw)?;
    let below = disk.below.iter().map(|path| format!(", on {}", path.display())).collect::<String>();
    Some(format!("{}{below}", disk.format))
}

/// Prints the tree.
///
/// # Errors
/// Those of standard output.
pub fn print(session: &Session, disks: &Disks, as_json: bool) -> Result<()> {
    if as_json {
        say!(session.output, "{:#}", to_json(disks));
        return Ok(());
    }
    let note = |found: &Found| {
        let journal = match journal(found) {
            None => String::new(),
            Some(Ok(state)) => format!(", journal {state}"),
            Some(Err(why)) => format!(", not supported: {why}"),
        };
        let uuid = found.contents.uuid.as_ref().map_or_else(String::new, |uuid| format!(", uuid {uuid}"));
        journal + &uuid
    };
    say!(session.output, "{}", disks.tree(&note));
    Ok(())
}

/// The state of the journal of an XFS filesystem.
fn journal(found: &Found) -> Option<Result<&'static str, String>> {
    let device = found.device.as_ref().ok().filter(|_| found.contents.is_xfs())?;
    Some(log::state_in_words(device))
}

fn to_json(disks: &Disks) -> Value {
    let group = |group: &xfskit_disk::FoundGroup| {
        let volumes = group.volumes.iter().map(|(kind, found)| {
            let mut value = found_json(found);
            value["name"] = json!(kind.name);
            value["uuid"] = json!(kind.uuid);
            value["kind"] = json!(kind.kind);
            value
        });
        json!({ "name": group.name, "uuid": group.uuid, "volumes": volumes.collect::<Vec<_>>() })
    };
    json!({
        "disks": disks.disks.iter().map(disk_json).collect::<Vec<_>>(),
        "groups": disks.groups.iter().map(group).collect::<Vec<_>>(),
    })
}

fn disk_json(disk: &Disk) -> Value {
    let path = |path: &Path| path.display().to_string();
    let mut value = found_json(&disk.whole);
    set_json(&mut value, "path", disk.path.as_os_str().as_bytes());
    value["format"] = json!(disk.format.to_string());
    value["on"] = json!(disk.below.iter().map(|below| path(below)).collect::<Vec<_>>());
    value["warnings"] = json!(disk.warnings);
    value["table"] = match &disk.table {
        None => Value::Null,
        Some(table) => {
            let partitions = table.partitions.iter().zip(&disk.partitions);
            let sector_bytes = match table.kind {
                TableKind::Gpt { sector_bytes } => sector_bytes,
                TableKind::Mbr => 512,
            };
            json!({
                "kind": table.kind.to_string(),
                "id": table.id,
                "sector_bytes": sector_bytes,
                "partitions": partitions.map(partition_json).collect::<Vec<_>>(),
            })
        }
    };
    value
}

fn partition_json((partition, found): (&Partition, &Found)) -> Value {
    let mut value = found_json(found);
    value["number"] = json!(partition.number);
    value["offset"] = json!(partition.offset);
    value["type"] = json!(partition.kind);
    value["name"] = json!(partition.name);
    value["uuid"] = json!(partition.uuid);
    value
}

fn found_json(found: &Found) -> Value {
    let journal = journal(found);
    json!({
        "part": found.part.to_string(),
        "size_bytes": found.size_bytes,
        "refused": found.device.as_ref().err(),
        "contents": {
            "format": found.contents.format,
            "label": found.contents.label,
            "uuid": found.contents.uuid,
            "journal": journal.as_ref().and_then(|journal| journal.as_ref().ok()),
            "unsupported": journal.as_ref().and_then(|journal| Some(journal.as_ref().err()?.to_string())),
        },
    })
}

//! `xfskit info`: shows the properties of an image, or of a mount of one; or of a disk what there is on it. The summary
//! of a geometry has the form of mkfs.xfs's.

mod disk;

use crate::args::{InfoArgs, ReadArgs};
use crate::open::mount_query::LiveMount;
use crate::open::session::Session;
use crate::open::volume::open_to_read;
use crate::output::error::Result;
use crate::output::screen::{say, say_part};
use serde_json::{Value, json};
use std::fmt::Write;
use xfskit_engine::LogState;
use xfskit_ondisk::features::{Incompat, RoCompat};
use xfskit_ondisk::{RawSuperblock, Superblock};

/// The superblock of an image, or of a mount of xfskit, with what the journal is.
fn look(session: &Session, args: &ReadArgs) -> Result<(RawSuperblock, &'static str)> {
    if let Some(mount) = LiveMount::at(&args.image.image)? {
        return Ok((mount.superblock()?, "in use by the mount"));
    }
    let filesystem = open_to_read(session, args)?;
    let log = match filesystem.log_state() {
        LogState::Clean => "clean",
        LogState::Dirty { .. } => "dirty",
    };
    Ok((filesystem.superblock(), log))
}

/// Runs the command.
pub fn run(session: &Session, args: &InfoArgs, as_json: bool) -> Result<()> {
    let (args, as_variables) = (&args.read, args.export);
    // Variables are those of one filesystem.
    let disks = if as_variables { None } else { disk::open(session, &args.image.image)? };
    if let Some(disks) = disks.as_ref().filter(|disks| disks.holds_known_parts()) {
        return disk::print(session, disks, as_json);
    }
    let found = look(session, args);
    let (raw, log) = match (found, &disks) {
        // Nothing is known in any partition, and the disk is not itself a filesystem either.
        (Err(_), Some(disks)) if disk::has_parts(disks) => return disk::print(session, disks, as_json),
        (found, _) => found?,
    };
    if as_variables {
        variables(&raw, log).iter().for_each(|(name, value)| say!(session.output, "{name}={}", quoted(value)));
        return Ok(());
    }
    if as_json {
        say!(session.output, "{:#}", to_json(&raw, log));
        return Ok(());
    }
    let uuid = uuid::Uuid::from_bytes(raw.uuid);
    say_part!(session.output, "{}", summary(&args.image.image.display().to_string(), &raw));
    say!(session.output, "label    ={:?}", label(&raw));
    say!(session.output, "uuid     ={uuid}");
    say!(
        session.output,
        "space    ={} blocks free, {} of {} inodes free",
        raw.free_blocks,
        raw.free_inodes,
        raw.inode_count
    );
    say!(session.output, "journal  ={log}");
    if let Some(container) = disks.as_ref().and_then(disk::container) {
        say!(session.output, "disk     ={container}");
    }
    Ok(())
}

/// Prints the geometry of an image, or of a mount of one, as xfs_info does.
pub fn print_geometry(session: &Session, args: &ReadArgs) -> Result<()> {
    let (raw, _) = look(session, args)?;
    say_part!(session.output, "{}", summary(&args.image.image.display().to_string(), &raw));
    Ok(())
}

fn label(raw: &RawSuperblock) -> String {
    let end = raw.label.iter().position(|&byte| byte == 0).unwrap_or(raw.label.len());
    String::from_utf8_lossy(&raw.label[..end]).into_owned()
}

/// What blkid says of an image, by its names, and what it does not say.
fn variables(raw: &RawSuperblock, log: &str) -> Vec<(&'static str, String)> {
    let uuid = |bytes| uuid::Uuid::from_bytes(bytes).to_string();
    let log_blocks = if raw.log_start.get() == 0 { 0 } else { u64::from(raw.log_blocks.get()) };
    let (block, blocks) = (u64::from(raw.block_size.get()), raw.data_blocks.get());
    let has_meta_uuid = Incompat::from_bits_truncate(raw.incompat.get()).contains(Incompat::META_UUID);
    // blkid leaves out what an image does not have.
    let label = Some(("LABEL", label(raw))).filter(|(_, label)| !label.is_empty());
    let own = Some(("UUID", uuid(raw.uuid))).filter(|_| raw.uuid != [0; 16]);
    let rest = [
        ("FSSIZE", ((blocks - log_blocks) * block).to_string()),
        ("FSLASTBLOCK", blocks.to_string()),
        ("FSBLOCKSIZE", block.to_string()),
        ("BLOCK_SIZE", raw.sector_size.to_string()),
        ("TYPE", "xfs".into()),
        ("USAGE", "filesystem".into()),
        ("XFS_META_UUID", uuid(if has_meta_uuid { raw.meta_uuid } else { raw.uuid })),
        ("XFS_SIZE", (blocks * block).to_string()),
        ("XFS_FREE", (raw.free_blocks.get() * block).to_string()),
        ("XFS_INODES", raw.inode_count.to_string()),
        ("XFS_FREE_INODES", raw.free_inodes.to_string()),
        ("XFS_INODE_SIZE", raw.inode_size.to_string()),
        ("XFS_AG_COUNT", raw.ag_count.to_string()),
        ("XFS_AG_BLOCKS", raw.ag_blocks.to_string()),
        ("XFS_JOURNAL", log.into()),
        ("XFS_JOURNAL_PLACE", if raw.log_start.get() == 0 { "external" } else { "internal" }.into()),
    ];
    label.into_iter().chain(own).chain(rest).collect()
}

/// A value as a shell reads it back.
fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    if value.bytes().all(is_plain) { value.into() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

fn to_json(raw: &RawSuperblock, log: &str) -> Value {
    let names = |flags: Vec<&str>| flags.iter().map(|flag| flag.to_lowercase()).collect::<Vec<_>>();
    let incompat = Incompat::from_bits_truncate(raw.incompat.get()).iter_names().map(|(name, _)| name).collect();
    let ro_compat = RoCompat::from_bits_truncate(raw.ro_compat.get()).iter_names().map(|(name, _)| name).collect();
    json!({
        "label": label(raw),
        "uuid": uuid::Uuid::from_bytes(raw.uuid).to_string(),
        "block_bytes": raw.block_size.get(),
        "sector_bytes": raw.sector_size.get(),
        "inode_bytes": raw.inode_size.get(),
        "dir_block_bytes": u64::from(raw.block_size.get()) << raw.dir_block_log,
        "blocks": raw.data_blocks.get(),
        "ag_count": raw.ag_count.get(),
        "ag_blocks": raw.ag_blocks.get(),
        "free_blocks": raw.free_blocks.get(),
        "inodes": raw.inode_count.get(),
        "free_inodes": raw.free_inodes.get(),
        "root_inode": raw.root_inode.get(),
        "log": {
            "state": log,
            "external": raw.log_start.get() == 0,
            "blocks": raw.log_blocks.get(),
        },
        "features": { "incompat": names(incompat), "ro_compat": names(ro_compat) },
    })
}

/// The geometry as mkfs.xfs shows it.
pub fn summary(name: &str, raw: &RawSuperblock) -> String {
    let incompat = Incompat::from_bits_truncate(raw.incompat.get());
    let ro = RoCompat::from_bits_truncate(raw.ro_compat.get());
    let has = |flag| u8::from(incompat.contains(flag));
    let ro = |flag| u8::from(ro.contains(flag));
    let log_unit = if raw.log_stripe_unit.get() > 1 { raw.log_stripe_unit.get() / raw.block_size.get() } else { 0 };
    let log_kind = if raw.log_start.get() == 0 { "external" } else { "internal log" };
    let log_sector = match raw.log_sector_size.get() {
        0 => raw.sector_size.get(),
        size => size,
    };
    let mut text = String::new();
    let mut line = |left: &str, first: &str, second: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{left}={first:<22} {second}");
    };
    let field = |name: &str, value: u64| format!("{name}={value}");
    let sectors = field("sectsz", raw.sector_size.get().into());
    line(
        "meta-data",
        name,
        &format!(
            "{:<12} agcount={}, agsize={} blks",
            field("isize", raw.inode_size.get().into()),
            raw.ag_count,
            raw.ag_blocks
        ),
    );
    line("         ", "", &format!("{sectors:<12} attr=2, projid32bit=1"));
    line(
        "         ",
        "",
        &format!(
            "crc=1        finobt={}, sparse={}, rmapbt={}",
            ro(RoCompat::FINOBT),
            has(Incompat::SPINODES),
            ro(RoCompat::RMAPBT)
        ),
    );
    line(
        "         ",
        "",
        &format!(
            "reflink={}    bigtime={} inobtcount={} nrext64={}",
            ro(RoCompat::REFLINK),
            has(Incompat::BIGTIME),
            ro(RoCompat::INOBTCNT),
            has(Incompat::NREXT64)
        ),
    );
    line("         ", "", &format!("exchange={}   metadir={}", has(Incompat::EXCHRANGE), has(Incompat::METADIR)));
    let block = field("bsize", raw.block_size.get().into());
    line("data     ", "", &format!("{block:<12} blocks={}, imaxpct={}", raw.data_blocks, raw.inode_max_percent));
    let unit = field("sunit", raw.stripe_unit.get().into());
    line("         ", "", &format!("{unit:<12} swidth={} blks", raw.stripe_width));
    let dir = field("bsize", u64::from(raw.block_size.get()) << raw.dir_block_log);
    line(
        "naming   ",
        "version 2",
        &format!("{dir:<12} ascii-ci=0, ftype={}, parent={}", has(Incompat::FTYPE), has(Incompat::PARENT)),
    );
    line("log      ", log_kind, &format!("{block:<12} blocks={}, version=2", raw.log_blocks));
    line("         ", "", &format!("{:<12} sunit={log_unit} blks, lazy-count=1", field("sectsz", log_sector.into())));
    line(
        "realtime ",
        "none",
        &format!(
            "{:<12} blocks=0, rtextents=0",
            field("extsz", u64::from(raw.block_size.get()) * u64::from(raw.rt_extent_blocks.get()))
        ),
    );
    line("         ", "", "rgcount=0    rgsize=0 extents");
    line("         ", "", "zoned=0      start=0 reserved=0");
    text
}

/// The geometry of a verified superblock.
pub fn summary_of(name: &str, superblock: &Superblock) -> String {
    summary(name, superblock.raw())
}

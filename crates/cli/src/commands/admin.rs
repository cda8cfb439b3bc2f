//! `xfskit admin`: what an image needs once it exists.

use crate::args::{AdminCommand, GrowArgs, ImageArgs, LabelArgs, NewSize, ReadArgs, TrimArgs, UuidArgs, UuidChange};
use crate::interrupt;
use crate::open::edit::edit;
use crate::open::files::Files;
use crate::open::grow::{Growing, GrowingPart, open_to_grow};
use crate::open::mount_query::LiveMount;
use crate::open::session::Session;
use crate::open::volume::{self, open_to_read, options_to_write, superblock_of};
use crate::output::causes::Usage;
use crate::output::error::{CommandError, Context, Result};
use crate::output::screen::say;
use crate::output::text::human_size;
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_disk::Unnamed;
use xfskit_engine::{Error, Growth, HostSpace, MountOptions, TrimBy, Volume};
use xfskit_ondisk::{Corruption, Superblock};

/// A partition has a whole number of sectors, of whatever size.
const LARGEST_SECTOR_BYTES: u64 = 4096;

/// Runs a command of `admin`.
pub fn run(session: &Session, command: &AdminCommand, as_json: bool) -> Result<()> {
    match command {
        AdminCommand::Grow(args) => grow(session, args, as_json),
        AdminCommand::Label(args) => label(session, args, as_json),
        AdminCommand::Uuid(args) => uuid(session, args, as_json),
        AdminCommand::Trim(args) => trim(session, args, as_json),
    }
}

/// Refuses the root of a mount.
fn expect_image(image: &Path, what: &str) -> Result<()> {
    if LiveMount::at(image)?.is_none() {
        return Ok(());
    }
    let place = image.display();
    Err(Usage(format!("{place}: {what} of an image that is not mounted: 'xfskit umount {place}' comes first")).into())
}

fn grow(session: &Session, args: &GrowArgs, as_json: bool) -> Result<()> {
    let path = &args.image.image;
    let name = path.display();
    expect_image(path, "this changes the size")?;
    interrupt::watch()?;
    let log = args.image.logdev.as_ref().map(|log| volume::open_log(session, log, Access::Write)).transpose()?;
    let (device, bytes) = match open_to_grow(session, path)? {
        Growing::File(file) => grow_file(args, file)?,
        Growing::Part(part) => grow_part(session, args, part)?,
    };
    let growth = Volume::grow(device, log, options_to_write(), bytes).with_context(|| name.to_string())?;
    print_growth(session, path, &growth, as_json);
    Ok(())
}

/// Makes a file as long as the filesystem is to be. Everything that can be refused is, before that.
fn grow_file(args: &GrowArgs, mut file: FileDevice) -> Result<(Arc<dyn BlockDevice>, u64)> {
    let (path, has_bytes) = (&args.image.image, file.size_bytes());
    let bytes = wanted_bytes(args, &file, has_bytes)?;
    if bytes > has_bytes {
        file.extend(bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::Unsupported => limit(path, has_bytes),
            _ => CommandError::from(error).context(format!("{}: making the file longer", path.display())),
        })?;
    }
    Ok((Arc::new(file), bytes))
}

/// Makes a partition as large as the filesystem is to be: without a size, as large as it can be.
fn grow_part(session: &Session, args: &GrowArgs, part: GrowingPart) -> Result<(Arc<dyn BlockDevice>, u64)> {
    let (path, has_bytes) = (&args.image.image, part.device.size_bytes());
    let bytes = wanted_bytes(args, &*part.device, part.most_bytes)?;
    if bytes > part.most_bytes {
        return Err(limit(path, part.most_bytes));
    }
    if bytes <= has_bytes {
        return Ok((part.device, bytes));
    }
    let whole = bytes.next_multiple_of(LARGEST_SECTOR_BYTES).min(part.most_bytes);
    part.grow(whole).with_context(|| path.display().to_string())?;
    // The table says the new size now. A crash here leaves a filesystem that is smaller than its partition.
    Ok((Files::open(session, path, Access::Write)?.choose(session.confine()?, Unnamed::OnlyXfs)?.device, bytes))
}

fn limit(path: &Path, bytes: u64) -> CommandError {
    let name = path.display();
    Usage(format!("{name}: it has room for {bytes} bytes, which is its limit: make the disk larger first")).into()
}

/// Refuses an image that is shorter than its filesystem: longer, it would look whole.
fn expect_whole(path: &Path, superblock: &Superblock, has_bytes: u64) -> Result<()> {
    let raw = superblock.raw();
    let needs = raw.data_blocks.get() << raw.block_log;
    if has_bytes >= needs {
        return Ok(());
    }
    let found = format!(
        "it has {has_bytes} bytes of {needs}: it was cut short; its end has to come back from where it was copied"
    );
    let error = Error::from(Corruption::new("image", "as long as the filesystem").found(found));
    Err(CommandError::from(error).context(path.display().to_string()))
}

/// The size in bytes that the arguments ask for, of an image that is `has_bytes` long unless they say another one.
fn wanted_bytes(args: &GrowArgs, device: &dyn BlockDevice, has_bytes: u64) -> Result<u64> {
    let superblock = superblock_of(&args.image.image, device)?;
    expect_whole(&args.image.image, &superblock, device.size_bytes())?;
    let raw = superblock.raw();
    let old = raw.data_blocks.get() << raw.block_log;
    let bytes = match args.size {
        None => has_bytes,
        Some(NewSize::Bytes(bytes)) => bytes,
        Some(NewSize::More(more)) => old.saturating_add(more),
    };
    if bytes < old {
        let (name, old) = (args.image.image.display(), human_size(old));
        let instead = "a smaller one is a copy, as 'xfskit export' and 'xfskit mkfs --from -' make it";
        return Err(Usage(format!("{name}: the filesystem has {old} already, and does not shrink: {instead}")).into());
    }
    Growth::plan(superblock.raw(), bytes).with_context(|| args.image.image.display().to_string())?;
    Ok(bytes)
}

fn print_growth(session: &Session, path: &Path, growth: &Growth, as_json: bool) {
    let name = path.display();
    let Growth { block_bytes, old_blocks, new_blocks, old_ags, new_ags, .. } = growth;
    if as_json {
        let blocks = json!({ "old": old_blocks, "new": new_blocks });
        let ags = json!({ "old": old_ags, "new": new_ags });
        say!(session.output, "{:#}", json!({ "block_bytes": block_bytes, "blocks": blocks, "ag_count": ags }));
    } else if growth.is_nothing() {
        say!(
            session.output,
            "{name}: {new_blocks} blocks of {block_bytes} bytes, as before: there is no room for more"
        );
    } else {
        say!(
            session.output,
            "{name}: {old_blocks} blocks of {block_bytes} bytes become {new_blocks}, {old_ags} AGs become {new_ags}"
        );
    }
}

fn read_args(args: &ImageArgs) -> ReadArgs {
    let image = ImageArgs { image: args.image.clone(), logdev: args.logdev.clone() };
    ReadArgs { image, no_recovery: false }
}

fn label(session: &Session, args: &LabelArgs, as_json: bool) -> Result<()> {
    let mount = LiveMount::at(&args.image.image)?;
    let Some(label) = &args.label else {
        let label = match mount {
            Some(mount) => label_of(&mount.superblock()?.label),
            None => open_to_read(session, &read_args(&args.image))?.label(),
        };
        let label = String::from_utf8_lossy(&label);
        if as_json {
            say!(session.output, "{:#}", json!({ "label": label }));
        } else {
            say!(session.output, "{label}");
        }
        return Ok(());
    };
    match mount {
        Some(mount) => mount.set_label(label.as_bytes()),
        None => {
            let name = || args.image.image.display().to_string();
            edit(session, &args.image, |filesystem| filesystem.set_label(label.as_bytes()).with_context(name))
        }
    }
}

fn label_of(padded: &[u8]) -> Vec<u8> {
    padded.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

fn uuid(session: &Session, args: &UuidArgs, as_json: bool) -> Result<()> {
    let path = &args.image.image;
    let name = || path.display().to_string();
    let uuid = match args.uuid {
        None => match LiveMount::at(path)? {
            Some(mount) => mount.superblock()?.uuid,
            None => open_to_read(session, &read_args(&args.image))?.superblock().uuid,
        },
        Some(change) => {
            expect_image(path, "this changes the UUID")?;
            interrupt::watch()?;
            let filesystem = volume::open(session, path, args.image.logdev.as_deref(), options_to_write())?;
            match change {
                UuidChange::To(uuid) => filesystem.set_uuid(uuid).with_context(name)?,
                UuidChange::Rewrite => {
                    let uuid = filesystem.superblock().uuid;
                    filesystem.write_superblock_copies().with_context(name)?;
                    filesystem.unmount().with_context(|| format!("{}: closing the image", name()))?;
                    uuid
                }
            }
        }
    };
    let uuid = uuid::Uuid::from_bytes(uuid).to_string();
    if as_json {
        say!(session.output, "{:#}", json!({ "uuid": uuid }));
    } else {
        say!(session.output, "{uuid}");
    }
    Ok(())
}

fn trim(session: &Session, args: &TrimArgs, as_json: bool) -> Result<()> {
    let path = &args.image.image;
    if let Some(mount) = LiveMount::at(path)? {
        if args.zero || args.min > 0 {
            return Err(
                Usage(format!("{}: --zero and --min are for images that are not mounted", path.display())).into()
            );
        }
        let bytes = mount.trim()?;
        print_trim(session, path, None, bytes, None, as_json);
        return Ok(());
    }
    let by = if args.zero { TrimBy::Zeros } else { TrimBy::Discard };
    let name = || path.display().to_string();
    let before = stored_bytes(path);
    interrupt::watch()?;
    // It must not take space of the host first: it may be called because there is none.
    let options = MountOptions { host_space: HostSpace::Least, ..MountOptions::default() };
    let filesystem = volume::open(session, path, args.image.logdev.as_deref(), options)?;
    let trimmed = filesystem.trim(args.min, by).with_context(name);
    let closed = filesystem.unmount_if_changed();
    let trimmed = trimmed?;
    closed.with_context(|| format!("{}: closing the image", name()))?;
    let stored = before.zip(stored_bytes(path));
    print_trim(session, path, Some(trimmed.extents), trimmed.bytes, stored, as_json);
    Ok(())
}

/// The bytes that a file takes of the host; `None` for what is no file.
fn stored_bytes(path: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(metadata.blocks() * 512)
}

fn print_trim(
    session: &Session,
    path: &Path,
    extents: Option<u64>,
    bytes: u64,
    stored: Option<(u64, u64)>,
    as_json: bool,
) {
    if as_json {
        let (before, after) = stored.unzip();
        let stored = json!({ "before": before, "after": after });
        say!(session.output, "{:#}", json!({ "extents": extents, "bytes": bytes, "stored_bytes": stored }));
        return;
    }
    let stored = stored.map_or(String::new(), |(before, after)| {
        format!("; the file takes {} of the host, and took {}", human_size(after), human_size(before))
    });
    say!(session.output, "{}: {} of free space given back{stored}", path.display(), human_size(bytes));
}

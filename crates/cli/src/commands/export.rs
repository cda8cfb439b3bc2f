//! `xfskit export`: a tree of an image as a tar stream.

use super::copy::{PrivilegeLoss, report_losses, why_kept};
use super::list::is_dir;
use super::trees::attributes;
use crate::args::{ExportArgs, Overwrite};
use crate::open::file_mode::{self, Watched};
use crate::open::new_file::NewFile;
use crate::open::overwrite::open_existing;
use crate::open::paths::find;
use crate::open::sandbox::Holders;
use crate::open::session::Session;
use crate::open::volume::open_to_read;
use crate::operand;
use crate::output::causes::Usage;
use crate::output::error::{Context, Kind, Result, failed};
use crate::output::progress::CopyBar;
use crate::output::screen;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use xfskit_device::probe::{self, known_contents};
use xfskit_device::{Access, BlockDevice, FileDevice, OpenError, share_storage};
use xfskit_engine::Volume;
use xfskit_ondisk::InodeNumber;
use xfskit_transfer::{Adjust, ImageSource, Losses, Sink, Source, TarSink, transfer};

const BUFFER_BYTES: usize = 256 * 1024;

/// Runs the command.
pub fn run(session: &Session, args: &ExportArgs) -> Result<()> {
    let filesystem = open_to_read(session, &args.path.read)?;
    let start = find(&filesystem, &args.path.path)?.inode;
    let losses = match args.output_file() {
        Some(path) => {
            write_file(session, &filesystem, start, args, path).with_context(|| path.display().to_string())?
        }
        None if stdout().is_terminal() => {
            return Err(Usage("an archive is nothing for a terminal: use -o FILE, or a pipe".into()).into());
        }
        None => write(session, &filesystem, start, args, screen::data())?.0,
    };
    report_losses(session, &losses, PrivilegeLoss::IsWarning)
}

/// Writes to a file that gets its name when it is complete. An existing file that is not a regular file is written
/// directly.
fn write_file(
    session: &Session,
    filesystem: &Volume,
    start: InodeNumber,
    args: &ExportArgs,
    path: &Path,
) -> Result<Losses> {
    let existing = std::fs::metadata(path).ok();
    let image = &args.path.read.image;
    if let Some(data) = &existing {
        let sources = [Some(&image.image), image.logdev.as_ref()].into_iter().flatten();
        for source in sources.flat_map(|operand| operand::files(operand)) {
            // A disk of a server is no file of this host.
            if std::fs::metadata(source).is_ok_and(|source| share_storage(data, &source)) {
                return Err(Usage("it is the image that is exported".into()).into());
            }
        }
    }
    if existing.as_ref().is_some_and(|data| data.file_type().is_block_device()) {
        let overwrite = if args.force { Overwrite::Anything } else { Overwrite::Zeros };
        let mut device = DeviceWriter { device: open_existing(session, path, overwrite, None)?, offset: 0 };
        let losses = write(session, filesystem, start, args, &mut device)?.0;
        device.device.flush()?;
        return Ok(losses);
    }
    if existing.as_ref().is_some_and(|data| !data.is_file()) {
        let file = File::options().write(true).open(path)?;
        // If the reader closes the pipe, the archive is incomplete. Unlike for a listing, this is an error.
        return write(session, filesystem, start, args, file).map(|written| written.0).map_err(|error| {
            let is_cut = matches!(error.kind(), Kind::BrokenPipe);
            if is_cut { failed!("the reader of the pipe has gone: the archive is cut off") } else { error }
        });
    }
    let replaced = existing.as_ref().map(|_| Replaced::hold(&session.sandbox.holders, path, args.force)).transpose()?;
    // A symbolic link stays, and the file that it refers to is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.into());
    let unnamed = NewFile::new_beside(&path).map_err(|error| match error {
        OpenError::Io { source, .. } => source.into(),
        // The image could be opened, so this is a failed operation, as with `cp`.
        _ => failed!("there is no folder {} to make it in", path.parent().unwrap_or(&path).display()),
    })?;
    let (losses, holds_private) = write(session, filesystem, start, args, unnamed.file())?;
    let disks = operand::files(&args.path.read.image.image);
    let is_private = disks.iter().any(|path| std::fs::metadata(path).is_ok_and(|data| file_mode::is_private(&data)));
    let permissions = file_mode::permissions(holds_private || is_private, existing.as_ref());
    unnamed.file().set_permissions(permissions)?;
    if let Some(replaced) = &replaced {
        // The kernel does not respect the lock and may use the file by now.
        replaced.check_unused(&session.sandbox.holders)?;
    }
    let replaced = replaced.as_ref().map(|replaced| replaced.file.metadata()).transpose()?;
    match args.no_sync {
        true => unnamed.put_in_place(&path, replaced.as_ref())?,
        false => unnamed.put_in_place_durably(&path, replaced.as_ref())?,
    }
    Ok(losses)
}

/// The file that the archive replaces. It is locked until then, so that no server mounts it and no command writes it
/// meanwhile.
struct Replaced {
    file: File,
    _device: Option<FileDevice>,
}

impl Replaced {
    /// Without `force`, only empty files and archives are replaced.
    fn hold(before: &Holders, path: &Path, force: bool) -> Result<Self> {
        let file = File::open(path)?;
        let mut replaced = Self { file, _device: None };
        if replaced.file.metadata()?.len() == 0 {
            return Ok(replaced);
        }
        if let Some(why) = why_kept(before, &replaced.file, force)? {
            return Err(why.into());
        }
        let device = FileDevice::open(format!("/proc/self/fd/{}", replaced.file.as_raw_fd()), Access::Read)?;
        if !force && known_contents(&device)? != Some(probe::Kind::Tar) {
            return Err(Usage("it is neither empty nor an archive; -f replaces it".into()).into());
        }
        replaced._device = Some(device);
        Ok(replaced)
    }

    fn check_unused(&self, before: &Holders) -> Result<()> {
        match why_kept(before, &self.file, true)? {
            Some(why) => Err(why.into()),
            None => Ok(()),
        }
    }
}

/// Writes to a block device from its first byte on.
struct DeviceWriter {
    device: FileDevice,
    offset: u64,
}

impl Write for DeviceWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = self.device.size_bytes().saturating_sub(self.offset);
        let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if count == 0 && !bytes.is_empty() {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.device.write(self.offset, &bytes[..count])?;
        self.offset += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes the stream; returns also whether it contains a file that not all users may read.
fn write(
    session: &Session,
    filesystem: &Volume,
    start: InodeNumber,
    args: &ExportArgs,
    stream: impl Write,
) -> Result<(Losses, bool)> {
    let bar = CopyBar::new(&session.output, "exporting");
    let mut sink = TarSink::new(BufWriter::with_capacity(BUFFER_BYTES, stream));
    if !is_dir(&filesystem.stat(start)?)
        && let Ok((_, name)) = xfskit_engine::split_path(args.path.path.as_bytes())
    {
        sink = sink.with_root(name);
    }
    let adjust = Adjust { attributes: attributes(args.no_xattrs), ..Adjust::default() };
    let mut watched = Watched::new(&mut sink);
    let mut source = ImageSource::new(filesystem, start, b"", true).with_attributes(adjust.attributes);
    transfer(&mut source, &mut watched, &adjust, &bar)?;
    Ok((watched.losses().and(source.losses()), watched.is_private()))
}

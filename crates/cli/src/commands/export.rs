//! `xfskit export`: a tree of an image as a tar stream.

use super::copy::{WantOfRoot, attributes, report, why_kept};
use crate::args::ExportArgs;
use crate::exit::Usage;
use crate::image::{find, open_to_read};
use crate::private::{self, Watched};
use crate::progress::CopyBar;
use crate::unnamed::Unnamed;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use xfskit::Filesystem;
use xfskit::ondisk::InodeNumber;
use xfskit_transfer::{Adjust, ImageSource, Losses, Sink, TarSink, transfer};

const BUFFER_BYTES: usize = 256 * 1024;

/// Runs the command.
pub fn run(args: &ExportArgs) -> Result<()> {
    let filesystem = open_to_read(&args.path.read)?;
    let start = find(&filesystem, &args.path.path)?.inode;
    let losses = match &args.output {
        Some(path) => write_file(&filesystem, start, args, path).with_context(|| path.display().to_string())?,
        None if stdout().is_terminal() => {
            return Err(Usage("an archive is nothing for a terminal: use -o FILE, or a pipe".into()).into());
        }
        None => write(&filesystem, start, args, stdout().lock())?.0,
    };
    report(&losses, WantOfRoot::IsTold)
}

/// Writes to a file, which gets its name when it is complete; what is there and no regular file is written to as it is.
fn write_file(filesystem: &Filesystem, start: InodeNumber, args: &ExportArgs, path: &Path) -> Result<Losses> {
    let existing = std::fs::metadata(path).ok();
    if existing.as_ref().is_some_and(|data| !data.is_file()) {
        let file = File::options().write(true).open(path)?;
        return Ok(write(filesystem, start, args, file)?.0);
    }
    if let Some(data) = &existing {
        let source = std::fs::metadata(&args.path.read.image.image)?;
        if (data.dev(), data.ino()) == (source.dev(), source.ino()) {
            return Err(Usage("it is the image that is exported".into()).into());
        }
        if let Some(why) = why_kept(&File::open(path)?, args.force)? {
            return Err(Usage(why).into());
        }
    }
    // A symbolic link stays, and what it leads to is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.into());
    let unnamed = Unnamed::new_in(path.parent().unwrap_or(&path))?;
    let (losses, holds_private) = write(filesystem, start, args, unnamed.file())?;
    let image = std::fs::metadata(&args.path.read.image.image)?;
    let permissions = private::permissions(holds_private || private::is_private(&image), existing.as_ref());
    unnamed.file().set_permissions(permissions)?;
    unnamed.put_in_place(&path)?;
    Ok(losses)
}

/// Writes the stream; also whether it holds something that not everybody may read.
fn write(filesystem: &Filesystem, start: InodeNumber, args: &ExportArgs, stream: impl Write) -> Result<(Losses, bool)> {
    let bar = CopyBar::new("exporting");
    let mut sink = TarSink::new(BufWriter::with_capacity(BUFFER_BYTES, stream));
    let adjust = Adjust { attributes: attributes(args.no_xattrs), ..Adjust::default() };
    let mut watched = Watched::new(&mut sink);
    let mut source = ImageSource::new(filesystem, start, b"", true);
    transfer(&mut source, &mut watched, &adjust, &bar)?;
    Ok((watched.losses(), watched.is_private()))
}

//! `xfskit export`: a tree of an image as a tar stream.

use super::copy::report;
use crate::args::ExportArgs;
use crate::exit::Usage;
use crate::image::{find, open_to_read};
use crate::progress::CopyBar;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write, stdout};
use xfskit::Filesystem;
use xfskit::ondisk::InodeNumber;
use xfskit_transfer::{Adjust, ImageSource, Losses, Sink, TarSink, transfer};

const BUFFER_BYTES: usize = 256 * 1024;

/// Runs the command.
pub fn run(args: &ExportArgs) -> Result<()> {
    let filesystem = open_to_read(&args.path.read)?;
    let start = find(&filesystem, &args.path.path)?.inode;
    let losses = match &args.output {
        Some(path) => {
            let shown = || path.display().to_string();
            let result = File::create(path).with_context(shown).and_then(|file| write(&filesystem, start, file));
            // A device or a pipe was there before, and stays.
            if result.is_err() && std::fs::symlink_metadata(path).is_ok_and(|data| data.is_file()) {
                // The error that counts has happened already.
                let _ = std::fs::remove_file(path);
            }
            result?
        }
        None if stdout().is_terminal() => {
            return Err(Usage("an archive is nothing for a terminal: use -o FILE, or a pipe".into()).into());
        }
        None => write(&filesystem, start, stdout().lock())?,
    };
    report(&losses)
}

fn write(filesystem: &Filesystem, start: InodeNumber, stream: impl Write) -> Result<Losses> {
    let bar = CopyBar::new("exporting");
    let mut sink = TarSink::new(BufWriter::with_capacity(BUFFER_BYTES, stream));
    let mut source = ImageSource::new(filesystem, start, b"", true);
    transfer(&mut source, &mut sink, &Adjust::default(), &bar)?;
    Ok(sink.losses())
}

//! Contents of the host's files.

use crate::error::{Result, TransferError, host, shown};
use crate::event::{Event, PIECE_BYTES};
use crate::pipe::Outlet;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The parts of a file that have storage, whether they are zeros or not.
pub(super) fn parts(file: &File, size: u64, path: &[u8]) -> Result<Vec<(u64, u64)>> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // A filesystem that does not know its holes: all is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(host(path, "looking for its holes")(error)),
        };
        if start >= size {
            break;
        }
        let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
            Ok(end) => end.min(size),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => size,
            Err(error) => return Err(host(path, "looking for its holes")(error)),
        };
        if end <= start {
            return Err(TransferError::Changed(shown(path)));
        }
        parts.push((start, end - start));
        at = end;
    }
    Ok(parts)
}

/// Reads a whole small file. A file with more bytes than its size says, as in `/proc`, cannot be copied.
pub(super) fn whole(file: &File, size: u64, path: &[u8]) -> Result<Vec<u8>> {
    let size = size as usize;
    let mut bytes = vec![0; size + 1];
    let mut done = 0;
    loop {
        match file.read_at(&mut bytes[done..], done as u64) {
            Ok(count) if done + count == size => break,
            Ok(count) if count > 0 && done + count < size => done += count,
            Ok(_) => return Err(TransferError::Changed(shown(path))),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(host(path, "reading it")(error)),
        }
    }
    bytes.truncate(size);
    Ok(bytes)
}

/// Sends the parts, piece by piece.
pub(super) fn send(file: &File, parts: &[(u64, u64)], path: &[u8], out: &mut Outlet) -> Result<()> {
    for &(start, length) in parts {
        let mut done = 0;
        while done < length {
            let mut bytes = vec![0; (length - done).min(PIECE_BYTES as u64) as usize];
            read(file, start + done, &mut bytes, path)?;
            let offset = start + done;
            done += bytes.len() as u64;
            out.send(Event::Data { offset, bytes })?;
        }
    }
    Ok(())
}

fn read(file: &File, offset: u64, buffer: &mut [u8], path: &[u8]) -> Result<()> {
    match file.read_exact_at(buffer, offset) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(TransferError::Changed(shown(path))),
        result => result.map_err(host(path, "reading it")),
    }
}

//! The files of an operand: opened first, and read when the session is confined.

use super::disks::{Opened, Shared, Source, read_disks, take};
use super::header;
use super::session::{Confined, Session};
use super::unread::open_unread;
use crate::operand::{canonical_file, decode};
use crate::output::error::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_disk::{Below, Disks, Operand, Unnamed};

/// The files of an operand, open and locked, of which no more than signatures has been read.
pub struct Files {
    operand: Operand,
    paths: Vec<PathBuf>,
    access: Access,
    /// The same disks, by whatever operand they were opened.
    shared: Vec<Arc<Shared>>,
}

impl Files {
    /// Opens the files of an operand. While another program uses one, waits for the time of `--wait`.
    ///
    /// # Errors
    /// A missing or busy file.
    pub fn open(session: &Session, operand: &Path, access: Access) -> Result<Self> {
        let operand = decode(operand)?;
        let paths: Vec<PathBuf> = operand.paths.iter().map(|path| canonical_file(path)).collect();
        let mut shared = session.disks.find(&paths, access);
        if shared.is_empty() {
            shared.push(open_shared(session, &operand, &paths, access)?);
        }
        Ok(Self { operand, paths, access, shared })
    }

    /// Reads the disks and gives the part that the operand names. `unnamed` says what is meant where it names none.
    ///
    /// # Errors
    /// A format that is refused, a part that is not there or not the only one, with a list of what there is.
    pub fn choose(self, confined: Confined<'_>, unnamed: Unnamed) -> Result<Opened> {
        let Self { operand, paths, access, shared } = self;
        let session = confined.session();
        let take = |shared: &Arc<Shared>| {
            let chosen = shared.disks(&session.helpers, &operand)?.find(&operand.part, unnamed)?;
            take(shared, (&session.helpers, &session.sandbox.holders), &operand, chosen, access)
        };
        for shared in &shared {
            if let Some(opened) = take(shared)? {
                return Ok(opened);
            }
        }
        // It has bytes in common with a part in use: the lock refuses it.
        let shared = open_shared(session, &operand, &paths, access)?;
        take(&shared)?.with_context(|| format!("{operand}: a part of the disk that is in use overlaps it"))
    }
}

fn open_shared(session: &Session, operand: &Operand, paths: &[PathBuf], access: Access) -> Result<Arc<Shared>> {
    let sources = open_sources(session, operand, access)?;
    let shared = Arc::new(Shared::new(&session.helpers, sources, paths, access));
    session.disks.add(&shared);
    Ok(shared)
}

/// Opens all that an operand names, and reads it, with locks of its own.
///
/// # Errors
/// As [`Files::open`]; a format that is refused.
pub fn open_disks(session: &Session, operand: &Operand, access: Access) -> Result<Disks> {
    let sources = open_sources(session, operand, access)?;
    session.confine()?;
    read_disks(&session.helpers, operand, sources, access)
}

fn open_sources(session: &Session, operand: &Operand, access: Access) -> Result<Vec<Source>> {
    session.before_opening()?;
    let open = |path: &PathBuf| match session
        .servers
        .open(path, access, |address| session.before_connecting(address))?
    {
        Some(device) => Ok(Source::Export(path.clone(), device)),
        None if session.helpers.is_served(path, access) => Ok(Source::Served(path.clone())),
        None if session.sandbox.is_ahead() => Ok(open_or_serve(session, path, access, &header::read_below)?),
        None if session.sandbox.may_start_programs() => Ok(open_or_serve(session, path, access, &header::read_here)?),
        None => Ok(Source::File(open_unread(&session.wait, path, access, |_| Ok(()))?.into())),
    };
    operand.paths.iter().map(open).collect()
}

/// What reads a header.
type Reader<'a> = &'a dyn Fn(&Path, &FileDevice) -> Result<Below>;

/// Opens a disk and the files below it; one that is not read here is given to another program, where that is there.
fn open_or_serve(session: &Session, path: &Path, access: Access, reader: Reader<'_>) -> Result<Source> {
    let opened = open_unread(&session.wait, path, access, |file| file.open_below(reader))?;
    Ok(match session.helpers.serve(path, opened, access)? {
        Ok(()) => Source::Served(path.into()),
        Err(opened) => Source::File(opened.into()),
    })
}

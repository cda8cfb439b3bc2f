//! What a manifest makes: the files that it has and the tree before it lacks.

use crate::error::{Losses, Result};
use crate::event::{FileKind, Kind, Meta, Node};
use crate::manifest::Manifest;
use crate::pipe::{Outlet, Source};
use std::sync::Arc;
use xfskit_vfs::Timestamp;

/// What a manifest has and the tree before it lacks.
pub struct ManifestSource {
    manifest: Arc<Manifest>,
    now: Timestamp,
}

impl ManifestSource {
    /// The source; it is read after the tree. `now` is the time of what the manifest gives no time.
    pub fn new(manifest: Arc<Manifest>, now: Timestamp) -> Self {
        Self { manifest, now }
    }
}

impl Source for ManifestSource {
    fn send(&mut self, out: &mut Outlet) -> Result<()> {
        let manifest = Arc::clone(&self.manifest);
        for (path, line) in manifest.unseen() {
            let entry = &line.entry;
            if entry.is_optional {
                continue;
            }
            let lacks = |what: &str| manifest.bad(line, format!("{}: {what}", manifest.shown(path)));
            let kind = match entry.file_type {
                None | Some(FileKind::File) => return Err(lacks("the tree has no such file; 'optional' allows it")),
                Some(FileKind::Directory) => Kind::Directory,
                Some(FileKind::Fifo) => Kind::Fifo,
                Some(FileKind::Socket) => Kind::Socket,
                Some(FileKind::Symlink) => {
                    Kind::Symlink(entry.target.clone().ok_or_else(|| lacks("a new link needs link=TARGET"))?)
                }
                Some(FileKind::Char | FileKind::Block) => {
                    let device = entry.device.ok_or_else(|| lacks("a new device needs device=MAJOR,MINOR"))?;
                    if entry.file_type == Some(FileKind::Char) { Kind::Char(device) } else { Kind::Block(device) }
                }
            };
            let mode = if kind == Kind::Directory { 0o755 } else { 0o644 };
            let meta = Meta { mode, atime: self.now, mtime: self.now, ..Meta::default() };
            out.send_new(Node { path: path.clone(), kind, meta })?;
        }
        Ok(())
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }
}

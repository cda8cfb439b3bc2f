//! What a layer removes from those below it.

use super::sink::ImageSink;
use super::walk::{ImageWalk, WalkEvent};
use crate::error::{Result, image};
use crate::event::{join, split};
use xfskit_vfs::{Caller, Error, InodeNumber, Stat};

impl ImageSink<'_> {
    /// What has a path now, without following symbolic links; `None` if nothing has.
    pub(super) fn find(&self, path: &[u8]) -> Result<Option<Stat>> {
        let mut stat = self.filesystem.stat(self.base()).map_err(image(path))?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            if !stat.file_type.is_dir() {
                return Ok(None);
            }
            stat = match self.filesystem.lookup(stat.inode, name) {
                Err(Error::NotFound) => return Ok(None),
                found => found.map_err(image(path))?,
            };
        }
        Ok(Some(stat))
    }

    fn is_of_this_layer(&self, path: &[u8]) -> bool {
        self.layer.as_ref().is_some_and(|layer| layer.has(path))
    }

    /// Removes what lower layers have at a path.
    pub(super) fn hide_path(&mut self, path: &[u8]) -> Result<()> {
        match self.find(path)? {
            Some(stat) if self.is_of_this_layer(path) => match stat.file_type.is_dir() {
                true => self.hide_contents(path),
                false => Ok(()),
            },
            Some(stat) => self.remove(path, &stat),
            None => Ok(()),
        }
    }

    /// Removes what lower layers have in a directory.
    pub(super) fn hide_contents(&mut self, path: &[u8]) -> Result<()> {
        let mut waiting = vec![path.to_vec()];
        while let Some(dir) = waiting.pop() {
            let Some(stat) = self.find(&dir)?.filter(|stat| stat.file_type.is_dir()) else { continue };
            for entry in self.filesystem.list_dir(stat.inode).map_err(image(&dir))? {
                let path = join(&dir, &entry.name);
                if self.is_of_this_layer(&path) {
                    waiting.push(path);
                } else {
                    let stat = self.filesystem.stat(entry.inode).map_err(image(&path))?;
                    self.remove(&path, &stat)?;
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &[u8], stat: &Stat) -> Result<()> {
        let (dir, name) = split(path);
        let Some(dir) = self.find(dir)? else { return Ok(()) };
        match stat.file_type.is_dir() {
            true => self.remove_tree(dir.inode, path),
            false => {
                self.forget_recent();
                self.filesystem.unlink(dir.inode, name, &Caller::root()).map_err(image(path))
            }
        }
    }

    /// Removes the directory at a path, which lies in `above`, with everything in it.
    pub(super) fn remove_tree(&mut self, above: InodeNumber, path: &[u8]) -> Result<()> {
        let name = split(path).1;
        let top = self.filesystem.lookup(above, name).map_err(image(path))?.inode;
        for step in ImageWalk::new(self.filesystem, top, path).staying_below()? {
            let step = step?;
            let (WalkEvent::Found(found) | WalkEvent::Left(found)) = &step;
            let (dir, name) = found.dir.map_or((above, name), |dir| (dir, found.name()));
            let removed = match step {
                WalkEvent::Found(_) if found.is_dir() => Ok(()),
                WalkEvent::Found(_) => self.filesystem.unlink(dir, name, &Caller::root()),
                WalkEvent::Left(_) => self.filesystem.rmdir(dir, name, &Caller::root()),
            };
            removed.map_err(image(&found.path))?;
            if found.is_dir() {
                self.forget(dir, name, found.stat.inode);
            }
        }
        Ok(())
    }
}

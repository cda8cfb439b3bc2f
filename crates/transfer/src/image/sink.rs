//! Writes a tree into a directory of an image.
//!
//! A new file whose writing fails is removed. A file that replaces another one is made under a temporary name and
//! renamed when it is complete. Directories get their attributes last: files made in them would change their times
//! again, and would inherit their default ACLs. Symbolic links in the image are followed only where a tree consists of
//! layers ([`links`](super::links)).

use crate::error::{Losses, Result, TransferError, image, shown};
use crate::event::{Contents, Hidden, Kind, Meta, Node, OverLinks, split};
use crate::image::layer_paths::LayerPaths;
use crate::image::reader::meta_of;
use crate::paths::{PathId, Paths};
use crate::pipe::{Existing, Sink};
use crate::whiteout::Whiteouts;
use std::collections::HashMap;
use xfskit_vfs::InodeNumber;
use xfskit_vfs::{
    Caller, Error, FileType, NewFile, Permissions, RenameFlags, SetAttr, SetMode, SetTime, Stat, Volume, WholeFile,
    XattrChange,
};

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
const SET_ID: u16 = 0o6000;
/// Most small files that are made in one transaction.
const MAX_AT_ONCE: usize = 128;
/// Most bytes of attributes of directories that wait for the end; those of further ones are set at once, but for ACLs.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// A directory of an image into which a tree is written.
pub struct ImageSink<'a> {
    pub(super) filesystem: &'a dyn Volume,
    base: Dir,
    /// Directories that are known, by the directory that each lies in and its name there. Paths would take memory that
    /// grows with the square of the depth.
    dirs: HashMap<(InodeNumber, Vec<u8>), Dir>,
    /// The directory that was used last.
    recent: (Vec<u8>, Dir),
    /// Directories that were sent, with the attributes that they get last.
    unfinished: HashMap<InodeNumber, Unfinished>,
    paths: Paths,
    /// The number of directories that were sent.
    sent_dirs: u64,
    /// Bytes of attributes that were added to it.
    waiting_bytes: usize,
    open: Option<OpenFile>,
    /// Small files of one directory, to be made together.
    small: Vec<(Node, Vec<u8>)>,
    temporaries: u64,
    existing: Existing,
    kinds: Kinds,
    /// Where the tree consists of layers: what the current one has so far.
    pub(super) layer: Option<LayerPaths>,
    pub(super) over_links: OverLinks,
    /// The path of a directory, and the same without links.
    pub(super) recent_links: (Vec<u8>, Vec<u8>),
    losses: Losses,
}

#[derive(Clone, Copy)]
pub(super) struct Dir {
    pub(super) inode: InodeNumber,
    /// New files in it inherit ACLs.
    has_default_acl: bool,
}

/// A directory that gets its attributes last.
struct Unfinished {
    /// How many were sent before it.
    order: u64,
    path: PathId,
    meta: Meta,
    inherits: bool,
}

/// What a file does whose name a file of another kind has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    /// It is refused.
    Kept,
    /// It replaces the other one, as when an archive is unpacked; a directory only if it is empty.
    Replaced,
}

/// The number that means "no owner" or "no group".
const NO_ID: u32 = u32::MAX;

/// A file that is being written.
struct OpenFile {
    place: TargetName,
    stat: Stat,
    path: Vec<u8>,
    meta: Meta,
    size: u64,
    end: u64,
}

/// A name in a directory.
#[derive(Clone)]
struct TargetName {
    dir: Dir,
    name: Vec<u8>,
    /// The name under which the file is written, if another file has its own name until then.
    temporary: Option<Vec<u8>>,
}

impl TargetName {
    fn name_now(&self) -> &[u8] {
        self.temporary.as_deref().unwrap_or(&self.name)
    }
}

impl<'a> ImageSink<'a> {
    /// A sink that writes into the directory `base`.
    ///
    /// # Errors
    /// `Image` when its ACLs cannot be read.
    pub fn new(filesystem: &'a dyn Volume, base: InodeNumber) -> Result<Self> {
        let base = open_dir(filesystem, base, b"")?;
        let recent = (Vec::new(), base);
        Ok(Self {
            filesystem,
            base,
            dirs: HashMap::new(),
            recent,
            unfinished: HashMap::new(),
            paths: Paths::default(),
            sent_dirs: 0,
            waiting_bytes: 0,
            open: None,
            small: Vec::new(),
            temporaries: 0,
            existing: Existing::TakesAll,
            kinds: Kinds::Kept,
            layer: None,
            over_links: OverLinks::default(),
            recent_links: Default::default(),
            losses: Losses::default(),
        })
    }

    /// Sets how the attributes of existing files and directories are treated.
    #[must_use]
    pub fn with_existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Lets a directory replace another file, and a file an empty directory: of two entries of an archive with one name
    /// the later one counts.
    #[must_use]
    pub fn with_kinds_replaced(mut self) -> Self {
        self.kinds = Kinds::Replaced;
        self
    }

    /// Takes the tree as layers: whatever has the name of a file is replaced by it, directories with everything in
    /// them, and whiteouts remove what lower layers have.
    #[must_use]
    pub fn with_layers(mut self, whiteouts: Whiteouts) -> Self {
        self.layer = Some(LayerPaths::new(whiteouts));
        self
    }

    /// The inode of the directory that the tree is written into.
    pub(super) fn base(&self) -> InodeNumber {
        self.base.inode
    }

    /// Forgets a directory that is removed.
    pub(super) fn forget(&mut self, above: InodeNumber, name: &[u8], inode: InodeNumber) {
        self.dirs.remove(&(above, name.to_vec()));
        self.unfinished.remove(&inode);
        self.forget_recent();
    }

    /// Forgets where paths lead, before something is replaced that they may lead through.
    pub(super) fn forget_recent(&mut self) {
        self.recent = (Vec::new(), self.base);
        self.recent_links = (Vec::new(), Vec::new());
    }

    /// The directory at a path; missing directories are made.
    fn dir(&mut self, path: &[u8]) -> Result<Dir> {
        if self.recent.0 == path {
            return Ok(self.recent.1);
        }
        let (mut dir, mut end) = (self.base, 0);
        // An archive decides how many names a path has, so they are taken one after the other.
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            end += name.len() + usize::from(end > 0);
            let key = (dir.inode, name.to_vec());
            dir = match self.dirs.get(&key) {
                Some(known) => *known,
                None => {
                    let found = self.existing_or_new(dir, name, &path[..end])?;
                    self.dirs.insert(key, found);
                    found
                }
            };
        }
        self.recent = (path.to_vec(), dir);
        Ok(dir)
    }

    /// A directory that exists, or is made because a file lies in it.
    fn existing_or_new(&mut self, above: Dir, name: &[u8], path: &[u8]) -> Result<Dir> {
        match self.filesystem.lookup(above.inode, name) {
            Ok(stat) if stat.file_type.is_dir() => open_dir(self.filesystem, stat.inode, path),
            Ok(_) if self.layer.is_none() => Err(image(path)(Error::NotADirectory)),
            found @ (Ok(_) | Err(Error::NotFound)) => {
                if found.is_ok() {
                    self.forget_recent();
                    self.filesystem.unlink(above.inode, name, &Caller::root()).map_err(image(path))?;
                }
                let new = NewFile::dir(0o755);
                let made = self.filesystem.create(above.inode, name, &new, &Caller::root()).map_err(image(path))?;
                Ok(Dir { inode: made.inode, ..above })
            }
            Err(error) => Err(image(path)(error)),
        }
    }

    fn make_dir(&mut self, node: Node) -> Result<()> {
        let mut was_there = node.path.is_empty();
        let dir = if was_there {
            self.base
        } else {
            let (above, name) = split(&node.path);
            let above = self.dir(above)?;
            let new = NewFile::dir(0o700);
            if self.kinds == Kinds::Replaced {
                self.replace_by_dir(above, name, &node.path)?;
            }
            let dir = match self.filesystem.create(above.inode, name, &new, &Caller::root()) {
                Ok(made) => Dir { inode: made.inode, ..above },
                Err(Error::Exists) => {
                    was_there = true;
                    self.existing_or_new(above, name, &node.path)?
                }
                Err(error) => return Err(image(&node.path)(error)),
            };
            self.dirs.insert((above.inode, name.to_vec()), dir);
            self.recent = (node.path.clone(), dir);
            dir
        };
        if !was_there || !self.existing.keeps() {
            let mut meta = node.meta;
            self.waiting_bytes += meta.xattr_bytes();
            if self.waiting_bytes > MAX_WAITING_BYTES {
                self.set_early(dir.inode, &mut meta, &node.path)?;
            }
            let (path, order, inherits) = (self.paths.keep(&node.path), self.sent_dirs, dir.has_default_acl);
            self.sent_dirs += 1;
            self.unfinished.insert(dir.inode, Unfinished { order, path, meta, inherits });
        }
        Ok(())
    }

    /// Removes what has the name of a directory that is to be made, and is none.
    fn replace_by_dir(&mut self, above: Dir, name: &[u8], path: &[u8]) -> Result<()> {
        match self.filesystem.lookup(above.inode, name) {
            Ok(stat) if !stat.file_type.is_dir() => {
                self.forget_recent();
                self.filesystem.unlink(above.inode, name, &Caller::root()).map_err(image(path))
            }
            Ok(_) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(image(path)(error)),
        }
    }

    /// Sets the attributes of a directory that do not matter to what is made in it.
    fn set_early(&mut self, inode: InodeNumber, meta: &mut Meta, path: &[u8]) -> Result<()> {
        let is_acl = |name: &[u8]| [ACCESS_ACL, DEFAULT_ACL].contains(&name);
        let (acls, others) = std::mem::take(&mut meta.xattrs).into_iter().partition(|(name, _)| is_acl(name));
        meta.xattrs = acls;
        let others: Vec<(Vec<u8>, Vec<u8>)> = others;
        self.waiting_bytes -= others.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        for (name, value) in others {
            self.change(inode, &[XattrChange { name, value: Some(value) }], path)?;
        }
        Ok(())
    }

    /// Whether a file may be made later, together with others.
    fn is_small(&mut self, node: &Node, bytes: &[u8], size: u64) -> Result<bool> {
        let dir = self.dir(split(&node.path).0)?;
        let whole = bytes.len() as u64 == size && !dir.has_default_acl;
        Ok(whole && self.filesystem.is_small(&whole_file(node, bytes)))
    }

    fn add_small(&mut self, node: Node, bytes: Vec<u8>) -> Result<()> {
        let elsewhere = self.small.first().is_some_and(|(first, _)| split(&first.path).0 != split(&node.path).0);
        if elsewhere || self.small.len() == MAX_AT_ONCE {
            self.make_small()?;
        }
        self.small.push((node, bytes));
        Ok(())
    }

    /// Makes the small files that wait; one by one if they cannot be made together.
    fn make_small(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.small);
        let Some((first, _)) = waiting.first() else { return Ok(()) };
        let dir = self.dir(split(&first.path).0)?;
        let files: Vec<_> = waiting.iter().map(|(node, bytes)| whole_file(node, bytes)).collect();
        let mut made = 0;
        while made < files.len() {
            match self.filesystem.make_files(dir.inode, &files[made..]) {
                Ok(stats) => made += stats.len(),
                Err(Error::Exists | Error::NoSpace | Error::Invalid(_)) => break,
                Err(error) => return Err(image(&waiting[made].0.path)(error)),
            }
        }
        for (node, bytes) in waiting.into_iter().skip(made) {
            self.begin_file(node.path, bytes.len() as u64, node.meta)?;
            self.data(0, &bytes)?;
            self.end_file()?;
        }
        Ok(())
    }

    /// Makes a file of any kind but a directory, under a temporary name if its own name exists.
    fn create(&mut self, path: &[u8], new: &NewFile<'_>, meta: &Meta) -> Result<(TargetName, Stat)> {
        let (dir, name) = split(path);
        let dir = self.dir(dir)?;
        let owner = Caller { uid: meta.uid, gid: meta.gid, groups: Vec::new() };
        let mut place = TargetName { dir, name: name.to_vec(), temporary: None };
        loop {
            match self.filesystem.create(dir.inode, place.name_now(), new, &owner) {
                Ok(stat) => return Ok((place, stat)),
                Err(Error::Exists) => {
                    if place.temporary.is_none() {
                        self.check_replaceable(dir, name, path)?;
                        if self.filesystem.lookup(dir.inode, name).is_err() {
                            continue;
                        }
                    }
                    self.temporaries += 1;
                    place.temporary = Some(format!(".xfskit-{}", self.temporaries).into_bytes());
                }
                Err(error) => return Err(image(path)(error)),
            }
        }
    }

    fn check_replaceable(&mut self, dir: Dir, name: &[u8], path: &[u8]) -> Result<()> {
        self.forget_recent();
        let stat = self.filesystem.lookup(dir.inode, name).map_err(image(path))?;
        if stat.file_type.is_dir() {
            if self.layer.is_some() {
                return self.remove_tree(dir.inode, path);
            }
            if self.kinds == Kinds::Replaced && self.filesystem.rmdir(dir.inode, name, &Caller::root()).is_ok() {
                self.forget(dir.inode, name, stat.inode);
                return Ok(());
            }
            return Err(image(path)(Error::IsADirectory));
        }
        // A file that cannot be replaced would leave the temporary name behind.
        self.filesystem.check_replaceable(dir.inode, name, &Caller::root()).map_err(image(path))
    }

    /// Sets a file's attributes, and renames it if it has a temporary name.
    fn complete(&self, place: &TargetName, stat: &Stat, meta: &Meta, path: &[u8]) -> Result<()> {
        self.set_attributes(stat, meta, place.dir.has_default_acl, path)?;
        let Some(temporary) = &place.temporary else { return Ok(()) };
        let (dir, flags) = (place.dir.inode, RenameFlags::default());
        self.filesystem.rename(dir, temporary, dir, &place.name, flags, &Caller::root()).map_err(image(path))
    }

    fn set_attributes(&self, stat: &Stat, meta: &Meta, inherits: bool, path: &[u8]) -> Result<()> {
        let root = Caller::root();
        let mut changes = Vec::new();
        if inherits && !stat.file_type.is_symlink() {
            let inherited: &[&[u8]] = if stat.file_type.is_dir() { &[ACCESS_ACL, DEFAULT_ACL] } else { &[ACCESS_ACL] };
            changes.extend(inherited.iter().map(|name| XattrChange { name: name.to_vec(), value: None }));
        }
        let new = |(name, value): &(Vec<u8>, Vec<u8>)| XattrChange { name: name.clone(), value: Some(value.clone()) };
        changes.extend(meta.xattrs.iter().map(new));
        match changes.as_slice() {
            [] => {}
            [one] => self.change(stat.inode, std::slice::from_ref(one), path)?,
            all => match self.filesystem.change_xattrs(stat.inode, all, SetMode::Any, &root) {
                // The changes do not fit one transaction of this log.
                Err(Error::Invalid(_)) => {
                    for change in all {
                        self.change(stat.inode, std::slice::from_ref(change), path)?;
                    }
                }
                other => other.map_err(image(path))?,
            },
        }
        let mode_differs = stat.permissions.bits() != meta.mode || meta.mode & SET_ID != 0;
        let has_acl = changes.iter().any(|change| change.name == ACCESS_ACL);
        let is_link = stat.file_type.is_symlink();
        let time = |time| Some(SetTime::To(time));
        let change = SetAttr {
            permissions: ((mode_differs || has_acl) && !is_link).then(|| Permissions::new(meta.mode)),
            uid: (stat.uid != meta.uid).then_some(meta.uid),
            gid: (stat.gid != meta.gid).then_some(meta.gid),
            atime: time(meta.atime),
            mtime: time(meta.mtime),
            ..SetAttr::default()
        };
        self.filesystem.set_attr(stat.inode, &change, &root).map_err(image(path))?;
        Ok(())
    }

    fn change(&self, inode: InodeNumber, changes: &[XattrChange], path: &[u8]) -> Result<()> {
        let changed = self.filesystem.change_xattrs(inode, changes, SetMode::Any, &Caller::root());
        changed.map_err(|source| {
            let names: Vec<_> = changes.iter().map(|change| String::from_utf8_lossy(&change.name)).collect();
            TransferError::Image { path: format!("{}: attribute {}", shown(path), names.join(", ")), source }
        })
    }

    fn begin_file(&mut self, path: Vec<u8>, size: u64, meta: Meta) -> Result<()> {
        let meta = self.meta_in_place(&path, meta)?;
        let (place, stat) = self.create(&path, &NewFile::file(meta.mode), &meta)?;
        self.open = Some(OpenFile { place, stat, path, meta, size, end: 0 });
        Ok(())
    }

    /// The attributes for a regular file, which may preserve those of the file that it replaces.
    fn meta_in_place(&mut self, path: &[u8], meta: Meta) -> Result<Meta> {
        if !self.existing.keeps() {
            return Ok(meta);
        }
        let (dir, name) = split(path);
        match self.filesystem.lookup(self.dir(dir)?.inode, name) {
            Ok(old) if old.file_type.is_file() => Ok(self.existing.meta(meta_of(self.filesystem, &old, path)?, meta)),
            Ok(_) | Err(Error::NotFound) => Ok(meta),
            Err(error) => Err(image(path)(error)),
        }
    }

    fn end_file(&mut self) -> Result<()> {
        let open = self.open.as_ref().expect("contents follow their file");
        if open.end < open.size {
            self.filesystem.truncate(open.stat.inode, open.size).map_err(image(&open.path))?;
        }
        self.complete(&open.place, &open.stat, &open.meta, &open.path)?;
        self.open = None;
        Ok(())
    }

    fn make_special(&mut self, node: &Node) -> Result<()> {
        let plain = |file_type| NewFile::new(file_type, Permissions::new(node.meta.mode));
        let new = match &node.kind {
            Kind::Symlink(target) if target.is_empty() => return Err(image(&node.path)(Error::NotFound)),
            Kind::Symlink(target) => NewFile::symlink(target),
            Kind::Char(device) => NewFile { device: *device, ..plain(FileType::CharDevice) },
            Kind::Block(device) => NewFile { device: *device, ..plain(FileType::BlockDevice) },
            Kind::Fifo => plain(FileType::Fifo),
            _ => plain(FileType::Socket),
        };
        let (place, stat) = self.create(&node.path, &new, &node.meta)?;
        self.forget_recent();
        self.complete(&place, &stat, &node.meta, &node.path)
    }

    fn make_link(&mut self, path: &[u8], first: &[u8]) -> Result<()> {
        let (first_dir, first_name) = split(first);
        let first_dir = self.dir(first_dir)?;
        let target = self.filesystem.lookup(first_dir.inode, first_name).map_err(image(first))?;
        let (dir, name) = split(path);
        let dir = self.dir(dir)?;
        self.forget_recent();
        if self.layer.is_some() && self.filesystem.lookup(dir.inode, name).is_ok_and(|stat| stat.file_type.is_dir()) {
            self.remove_tree(dir.inode, path)?;
        }
        self.filesystem.link_over(dir.inode, name, target.inode, &Caller::root()).map_err(image(path))
    }
}

impl Sink for ImageSink<'_> {
    fn node(&mut self, mut node: Node) -> Result<()> {
        // Filesystems accept no such owner, and the kernel does not show such a file to its users.
        if [node.meta.uid, node.meta.gid].contains(&NO_ID) && !matches!(node.kind, Kind::Link(_)) {
            return Err(TransferError::NoOwner(shown(&node.path)));
        }
        self.follow_links(&mut node)?;
        if let Some(layer) = &mut self.layer {
            layer.add(&node.path);
        }
        if let Kind::File { size, contents: Contents::Whole(bytes) } = &mut node.kind {
            let (size, bytes) = (*size, std::mem::take(bytes));
            if self.is_small(&node, &bytes, size)? {
                return self.add_small(node, bytes);
            }
            node.kind = Kind::File { size, contents: Contents::Whole(bytes) };
        }
        self.make_small()?;
        match node.kind {
            Kind::Directory => self.make_dir(node),
            Kind::File { size, contents: Contents::Whole(bytes) } => {
                self.begin_file(node.path, size, node.meta)?;
                self.data(0, &bytes)?;
                self.end_file()
            }
            Kind::File { size, .. } => self.begin_file(node.path, size, node.meta),
            Kind::Link(first) => self.make_link(&node.path, &first),
            _ => self.make_special(&node),
        }
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let open = self.open.as_mut().expect("contents follow their file");
        self.filesystem.write_at(open.stat.inode, offset, bytes).map_err(image(&open.path))?;
        open.end = open.end.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.end_file()
    }

    fn broken(&mut self, why: &TransferError) -> Result<()> {
        self.abort();
        self.losses.unreadable.note_reason(why);
        Ok(())
    }

    fn layer(&mut self, over_links: OverLinks) -> Result<()> {
        self.make_small()?;
        self.begin_links(over_links);
        if let Some(layer) = &mut self.layer {
            layer.begin();
        }
        Ok(())
    }

    fn hide(&mut self, hidden: &Hidden) -> Result<()> {
        self.make_small()?;
        match self.follow_links_to_hidden(hidden)? {
            Hidden::Path(path) => self.hide_path(&path),
            Hidden::Contents(path) => self.hide_contents(&path),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.make_small()?;
        // The order in which they were sent: the image does not depend on that of a hash.
        let mut unfinished: Vec<_> = std::mem::take(&mut self.unfinished).into_iter().collect();
        unfinished.sort_unstable_by_key(|(_, directory)| directory.order);
        for (inode, Unfinished { path, meta, inherits, .. }) in unfinished {
            let path = self.paths.get(path);
            let stat = self.filesystem.stat(inode).map_err(image(&path))?;
            self.set_attributes(&stat, &meta, inherits, &path)?;
        }
        Ok(())
    }

    fn abort(&mut self) {
        if let Some(open) = self.open.take() {
            // The error to report has occurred before.
            let _ = self.filesystem.unlink(open.place.dir.inode, open.place.name_now(), &Caller::root());
        }
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}

fn whole_file<'a>(node: &'a Node, bytes: &'a [u8]) -> WholeFile<'a> {
    let meta = &node.meta;
    WholeFile {
        name: split(&node.path).1,
        permissions: Permissions::new(meta.mode),
        uid: meta.uid,
        gid: meta.gid,
        atime: meta.atime,
        mtime: meta.mtime,
        xattrs: &meta.xattrs,
        contents: bytes,
    }
}

fn open_dir(filesystem: &dyn Volume, inode: InodeNumber, path: &[u8]) -> Result<Dir> {
    if !filesystem.limits().acls {
        return Ok(Dir { inode, has_default_acl: false });
    }
    match filesystem.get_xattr(inode, DEFAULT_ACL) {
        Ok(_) => Ok(Dir { inode, has_default_acl: true }),
        Err(Error::NoAttribute) => Ok(Dir { inode, has_default_acl: false }),
        Err(error) => Err(image(path)(error)),
    }
}

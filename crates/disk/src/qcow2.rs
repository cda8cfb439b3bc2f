//! A qcow2 image as a device, by the crate `imago`.
//!
//! ```text
//! FileDevice   locks, and the handle of each file of the chain
//! imago        tables, clusters, compressed clusters, backing files
//! this module  what must not reach imago, the mark of an unclean stop, and the flush that makes writes durable
//! ```
//! **Refused before imago sees the file** ([`verify_header`]): tables larger than QEMU allows, which would take memory;
//! features that imago does not have; and for writing: what an unclean stop or a write here could damage.
//!
//! **Unclean stop.** Imago writes the tables in a safe order, but without a flush between them: after a power failure
//! an entry may point to a cluster whose reference count says that it is free. So before the first write the header's
//! dirty bit is set and made durable, as QEMU does for lazy reference counts; it is cleared after the last flush. An
//! image with the bit is refused, here and by imago, until `qemu-img check -r all` has counted anew; QEMU does so by
//! itself. Version 2 has no such bit, and is not written.
//!
//! **Room.** The file is made longer, durably, before anything is allocated behind its end, see `room`.
//!
//! **Flush.** Data first, then the tables in imago's memory, then these: flush, and imago's `sync` twice.
//!
//! **Locks.** Imago's discard needs exclusive access, which `image` gives. The chain below is opened for reading only.
//!
//! Source of facts: QEMU's docs/interop/qcow2.

use crate::below::{Base, Below, Service, beside};
use crate::bytes::{be_u32_at, u64_at};
use crate::error::{DiskError, attach};
use crate::mapping::may_hold_data;
use crate::room::{Lower, Room};
use crate::signature::{Opener, QCOW2, Signature};
use imago::file::File as ImagoFile;
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{DynStorage, FormatAccess, Mapping, StorageExt};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice, Hints};

const HEADER_BYTES: usize = 104;
const INCOMPATIBLE: u64 = 72;
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const SUBCLUSTERS: u64 = 1 << 4;
const BITMAPS: u64 = 1;
/// QEMU's limits.
const MOST_L1_BYTES: u64 = 32 << 20;
const MOST_REFCOUNT_TABLE_BYTES: u64 = 8 << 20;
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// The longest name of a backing file, and how much is searched for its format.
const MOST_BACKING_NAME_BYTES: usize = 1023;
const MOST_EXTENSIONS_BYTES: usize = 64 << 10;
/// How many files a chain may have.
pub(crate) const MOST_LAYERS: usize = 32;

type Image = FormatAccess<Lower>;

/// A qcow2 image with its backing files.
pub(crate) struct Qcow2Device {
    image: RwLock<Option<Image>>,
    size_bytes: u64,
    /// Of an image that is written.
    written: Option<Written>,
    /// The files, the image itself first. They hold the locks.
    files: Vec<(PathBuf, FileDevice)>,
}

/// What is done around the writes.
struct Written {
    cluster_bytes: u64,
    mark: Mutex<Mark>,
    room: Mutex<Room>,
}

/// The dirty bit in the header.
struct Mark {
    file: Lower,
    is_set: bool,
}

impl Mark {
    fn set(&mut self, is_set: bool) -> io::Result<()> {
        if self.is_set == is_set {
            return Ok(());
        }
        let mut bytes = [0; 8];
        self.file.read(&mut bytes[..], INCOMPATIBLE)?;
        let features = u64::from_be_bytes(bytes) & !DIRTY | if is_set { DIRTY } else { 0 };
        self.file.write(&features.to_be_bytes()[..], INCOMPATIBLE)?;
        self.file.dyn_sync()?;
        self.is_set = is_set;
        Ok(())
    }
}

/// The fields of a header that are looked at here.
struct Header {
    version: u32,
    cluster_bits: u32,
    size_bytes: u64,
    encryption: u32,
    l1_entries: u32,
    refcount_table: u64,
    refcount_table_clusters: u32,
    refcount_order: u32,
    snapshots: u32,
    incompatible: u64,
    autoclear: u64,
}

fn decode_header(bytes: &[u8]) -> Header {
    let word = |offset: usize| bytes.get(offset..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b));
    let long = |offset: usize| bytes.get(offset..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_be_bytes(*b));
    let version = word(4);
    let newer = |value: u64| if version >= 3 { value } else { 0 };
    Header {
        version,
        cluster_bits: word(20),
        size_bytes: long(24),
        encryption: word(32),
        l1_entries: word(36),
        refcount_table: long(48),
        refcount_table_clusters: word(56),
        refcount_order: if version >= 3 { word(96) } else { 4 },
        snapshots: word(60),
        incompatible: newer(long(INCOMPATIBLE as usize)),
        autoclear: newer(long(88)),
    }
}

/// What is refused, by name, with what a person can do.
fn verify_header(path: &Path, header: &Header, access: Access) -> Result<(), DiskError> {
    let shown = path.display();
    let refused = |what: String, advice: String| Err(DiskError::Refused { path: path.into(), what, advice });
    let other_way = |what: &str| refused(format!("a qcow2 image {what}"), attach(path, "qcow2"));
    if !(2..=3).contains(&header.version) {
        return refused(format!("a qcow image of version {}", header.version), attach(path, "qcow"));
    }
    if header.encryption != 0 {
        return other_way("that is encrypted");
    }
    if header.incompatible & CORRUPT != 0 {
        return refused("a qcow2 image marked as corrupt".into(), format!("look at it with: qemu-img check {shown}"));
    }
    if header.incompatible & DIRTY != 0 {
        let what = "a qcow2 image that was not closed cleanly, so that its reference counts may be wrong";
        let reading = "it is read where qemu-nbd is installed";
        let writing = format!("to write, put them right with: qemu-img check -r all {shown} (that changes the image)");
        return refused(what.into(), format!("{reading}; {writing}"));
    }
    if header.incompatible & EXTERNAL_DATA != 0 {
        return other_way("with an external data file");
    }
    if header.incompatible & COMPRESSION_TYPE != 0 {
        return other_way("compressed with zstd");
    }
    if header.incompatible & SUBCLUSTERS != 0 {
        return other_way("with extended L2 entries (subclusters)");
    }
    if header.incompatible != 0 {
        return other_way("with features that are unknown here");
    }
    verify_sizes(path, header)?;
    if access != Access::Write {
        return Ok(());
    }
    if header.version < 3 {
        let what = "a qcow2 image of version 2, which has no mark for an unclean stop and is only read";
        return refused(what.into(), format!("make it version 3 with: qemu-img amend -o compat=1.1 {shown}"));
    }
    if header.snapshots != 0 {
        let what = "a qcow2 image with internal snapshots, which is only read";
        return refused(what.into(), format!("list them with: qemu-img snapshot -l {shown}"));
    }
    if header.autoclear & BITMAPS != 0 {
        let what = "a qcow2 image with persistent bitmaps, which a write here would make wrong, and which is only read";
        return refused(what.into(), format!("remove them with: qemu-img bitmap --remove {shown} NAME"));
    }
    Ok(())
}

/// Checks the sizes by which imago would allocate memory.
fn verify_sizes(path: &Path, header: &Header) -> Result<(), DiskError> {
    let damaged = |what: &str| Err(DiskError::Damaged { path: path.into(), what: format!("qcow2 header: {what}") });
    if !CLUSTER_BITS.contains(&header.cluster_bits) {
        return damaged("the size of a cluster is not within 512 bytes and 2 MiB");
    }
    let cluster = 1u64 << header.cluster_bits;
    if u64::from(header.l1_entries) * 8 > MOST_L1_BYTES {
        return damaged("the L1 table is larger than 32 MiB");
    }
    if u64::from(header.refcount_table_clusters) * cluster > MOST_REFCOUNT_TABLE_BYTES {
        return damaged("the table of reference counts is larger than 8 MiB");
    }
    let covered = u128::from(header.l1_entries) * u128::from(cluster) * u128::from(cluster / 8);
    if u128::from(header.size_bytes) > covered {
        return damaged("the L1 table does not cover the disk");
    }
    Ok(())
}

impl Qcow2Device {
    /// Opens an image and the chain below it. `file` is the image itself, which has the locks for `access`.
    pub(crate) fn open(path: &Path, file: FileDevice, access: Access, opener: Opener<'_>) -> Result<Self, DiskError> {
        let mut files = Vec::new();
        let lower = lower_file(path, &file)?;
        let image = open_layer(path, file, &lower, access, &mut Chain { files: &mut files, opener })?;
        Self::new(path, image, lower, access, files)
    }

    fn new(
        path: &Path,
        image: Image,
        lower: Lower,
        access: Access,
        files: Vec<(PathBuf, FileDevice)>,
    ) -> Result<Self, DiskError> {
        let written = if access == Access::Write {
            let room =
                Room::new(&lower, files.first().map(|(_, file)| file)).map_err(|source| DiskError::io(path, source))?;
            let cluster_bytes = room.cluster_bytes();
            Some(Written {
                cluster_bytes,
                mark: Mutex::new(Mark { file: lower, is_set: false }),
                room: Mutex::new(room),
            })
        } else {
            None
        };
        Ok(Self { size_bytes: image.size(), image: RwLock::new(Some(image)), written, files })
    }

    /// The files of the chain, the image itself first.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    fn check(&self, offset: u64, length: u64) -> io::Result<()> {
        if offset.checked_add(length).is_some_and(|end| end <= self.size_bytes) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a request past the end of the qcow2 image"))
    }

    /// Calls `action` with the image, which is there until this is dropped.
    fn with<T>(&self, action: impl FnOnce(&Image) -> io::Result<T>) -> io::Result<T> {
        action(self.image.read().as_ref().expect("only drop takes the image"))
    }

    /// Writes, with a file that is long enough for what the write may allocate.
    fn write_with_room(&self, image: &Image, written: &Written, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        let (mut at, mut clusters) = (offset, 0);
        while at < end {
            let (mapping, length) = image.get_mapping(at, end - at)?;
            let next = if length > 0 { at + length } else { end };
            if !matches!(mapping, Mapping::Raw { writable: true, .. }) {
                clusters += next.div_ceil(written.cluster_bytes) - at / written.cluster_bytes;
            }
            at = next;
        }
        if clusters == 0 {
            return image.write(data, offset);
        }
        let file = self.files.first().map(|(_, file)| file);
        let asked = written.room.lock().make(offset..end, clusters, file)?;
        let result = image.write(data, offset);
        written.room.lock().done(&asked);
        result
    }

    /// Sets the mark before anything is changed.
    fn begin_change(&self) -> io::Result<&Written> {
        match &self.written {
            Some(written) => written.mark.lock().set(true).map(|()| written),
            None => Err(io::Error::new(io::ErrorKind::PermissionDenied, "the image was opened for reading only")),
        }
    }
}

/// Opens a qcow2 image that lies on any storage that imago can use, and on a raw disk as its backing file if one is
/// given. Nothing locks the storage.
///
/// # Errors
/// [`DiskError`]: a feature that is not handled, damage, or an error of the storage; `name` stands in them.
pub fn qcow2_on(
    name: &Path,
    storage: Arc<dyn DynStorage>,
    backing: Option<Arc<dyn DynStorage>>,
    access: Access,
) -> Result<Arc<dyn BlockDevice>, DiskError> {
    verify_lower(name, &storage, access)?;
    let failed = |source| DiskError::io(name, source);
    let mut image = Qcow2::<Lower>::open_image(Arc::clone(&storage), access == Access::Write).map_err(failed)?;
    if image.implicit_backing_file().is_some_and(|backing| !backing.is_empty()) != backing.is_some() {
        let what = "a qcow2 image with another backing file than is given".into();
        let advice = "flatten it with: qemu-img rebase -b ''".into();
        return Err(DiskError::Refused { path: name.into(), what, advice });
    }
    let backing = backing.map(|lower| Raw::open_image(lower, false)).transpose().map_err(failed)?;
    image.set_data_file(None);
    image.set_backing(backing.map(FormatAccess::new));
    Ok(Arc::new(Qcow2Device::new(name, FormatAccess::new(image), storage, access, Vec::new())?))
}

/// Another handle of an open file, for imago.
fn lower_file(path: &Path, file: &FileDevice) -> Result<Lower, DiskError> {
    let handle = file.try_clone_file().and_then(ImagoFile::try_from).map_err(|source| DiskError::io(path, source))?;
    Ok(Arc::new(handle))
}

/// Reads the header and refuses what must not reach imago.
fn verify_lower(path: &Path, lower: &Lower, access: Access) -> Result<(), DiskError> {
    let mut bytes = [0; HEADER_BYTES];
    // Bytes behind the end of the file read as zeros.
    lower.read(&mut bytes[..], 0).map_err(|source| DiskError::io(path, source))?;
    let header = decode_header(&bytes);
    verify_header(path, &header, access)?;
    if access == Access::Write { verify_counts(path, lower, &header) } else { Ok(()) }
}

/// Checks the table of reference counts of an image that is to be written. Imago takes a cluster without a count for a
/// free one, the header's too, and goes through holes of the table by recursion.
fn verify_counts(path: &Path, lower: &Lower, header: &Header) -> Result<(), DiskError> {
    let failed = |source| DiskError::io(path, source);
    let damaged = |what: &str| DiskError::Damaged { path: path.into(), what: format!("qcow2: {what}") };
    let cluster = 1u64 << header.cluster_bits;
    let mut table = vec![0; (u64::from(header.refcount_table_clusters) * cluster) as usize];
    lower.read(&mut table[..], header.refcount_table).map_err(failed)?;
    let entries: Vec<u64> = table.chunks_exact(8).map(|entry| u64_at(entry, 0).swap_bytes()).collect();
    let used = entries.iter().position(|entry| *entry == 0).unwrap_or(entries.len());
    if used == 0 || entries[used..].iter().any(|entry| *entry != 0) {
        return Err(damaged("the table of reference counts has holes; qemu-img convert makes a sound copy"));
    }
    let end = lower.dyn_size().map_err(failed)?;
    if entries[..used].iter().any(|entry| !entry.is_multiple_of(cluster) || *entry >= end) {
        return Err(damaged("the table of reference counts points past the end of the file"));
    }
    let mut count = [0; 8];
    lower.read(&mut count[..], entries[0]).map_err(failed)?;
    let of_header = match header.refcount_order {
        order @ 0..3 => u64::from(count[0]) & ((1 << (1 << order)) - 1),
        order @ 3..=6 => count[..1 << (order - 3)].iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
        _ => return Err(damaged("the size of a reference count is not known")),
    };
    if of_header == 0 {
        return Err(damaged("the reference counts say that the header's cluster is free"));
    }
    Ok(())
}

/// The files of a chain that are open, and what opens the next one.
struct Chain<'a> {
    files: &'a mut Vec<(PathBuf, FileDevice)>,
    opener: Opener<'a>,
}

/// Opens one file of a chain, and those below it. `lower` is another handle of `file`.
fn open_layer(
    path: &Path,
    file: FileDevice,
    lower: &Lower,
    access: Access,
    chain: &mut Chain<'_>,
) -> Result<Image, DiskError> {
    let failed = |source| DiskError::io(path, source);
    file.verify_alone(path)?;
    verify_lower(path, lower, access)?;
    chain.files.push((path.into(), file));
    let mut image = Qcow2::<Lower>::open_image(Arc::clone(lower), access == Access::Write).map_err(failed)?;
    let below = match image.implicit_backing_file() {
        Some(name) if !name.is_empty() => {
            let name = backing_path(path, name)?;
            let format = image.implicit_backing_format().cloned();
            Some(open_below(&name, format.as_deref(), chain)?)
        }
        _ => None,
    };
    image.set_data_file(None);
    image.set_backing(below);
    Ok(FormatAccess::new(image))
}

/// What a header says, read through any handle. `path` stands in errors.
pub(crate) fn below(path: &Path, lower: Lower) -> Below {
    let mut bytes = [0; HEADER_BYTES];
    if lower.read(&mut bytes[..], 0).is_err() {
        return Below { base: Base::Another, ..Below::default() };
    }
    let service = service(&bytes);
    let (format, names) = match verify_lower(path, &lower, Access::Read) {
        Ok(()) => backing_by_imago(lower),
        Err(_) if service == Service::NotNeeded => None,
        Err(_) => backing_of_foreign(&bytes, &lower),
    }
    .map_or_else(Default::default, |(format, name)| (format, vec![name]));
    // Also one without a name that can be used lies on another one, and what is missing must not be read as zeros.
    let is_alone = u64_at(&bytes, 8) == 0 || u64_at(&bytes, 16) as u32 == 0;
    Below { service, base: if is_alone { Base::None } else { Base::Another }, format, names }
}

/// The format and the name of the backing file of an image that imago reads.
fn backing_by_imago(lower: Lower) -> Option<(String, String)> {
    let image = Qcow2::<Lower>::open_image(lower, false).ok()?;
    let name = image.implicit_backing_file().filter(|name| !name.is_empty())?.clone();
    Some((image.implicit_backing_format().cloned().unwrap_or_default(), name))
}

/// The same of an image that imago does not read, and that QEMU does. The name is looked at by who opens it.
fn backing_of_foreign(header: &[u8], lower: &Lower) -> Option<(String, String)> {
    let word = |at| u64_at(header, at).swap_bytes();
    let (at, length) = (word(8), (word(16) >> 32) as usize);
    if at == 0 || !(1..=MOST_BACKING_NAME_BYTES).contains(&length) {
        return None;
    }
    let mut name = vec![0; length];
    let mut extensions = vec![0; MOST_EXTENSIONS_BYTES];
    let start = (word(100) >> 32).max(HEADER_BYTES as u64);
    lower.read(&mut name[..], at).ok()?;
    lower.read(&mut extensions[..], start).ok()?;
    Some((format_of_backing(&extensions).unwrap_or_default(), String::from_utf8(name).ok()?))
}

/// The format of the backing file, among the extensions of a header. One that cannot be found or understood is not one
/// of which nothing is said.
fn format_of_backing(mut extensions: &[u8]) -> Option<String> {
    const FORMAT: u32 = 0xe279_2aca;
    let unknown = || Some(char::REPLACEMENT_CHARACTER.to_string());
    loop {
        let Some((head, rest)) = extensions.split_first_chunk::<8>() else { return unknown() };
        let [kind, length] = [0, 4].map(|at| be_u32_at(head, at));
        let Some(contents) = rest.get(..length as usize) else { return unknown() };
        match kind {
            FORMAT => return Some(String::from_utf8_lossy(contents).into_owned()),
            0 => return None,
            _ => extensions = rest.get((length as usize).next_multiple_of(8)..).unwrap_or_default(),
        }
    }
}

/// What QEMU has to do with an image by its header. It reads those that imago does not: compressed with zstd, with
/// subclusters, or, to be read only, not closed cleanly.
fn service(bytes: &[u8]) -> Service {
    const READS: u64 = COMPRESSION_TYPE | SUBCLUSTERS | DIRTY;
    let header = decode_header(bytes);
    let is_one = bytes.starts_with(QCOW2)
        && header.version == 3
        && header.encryption == 0
        && header.incompatible != 0
        && header.incompatible & !READS == 0;
    match is_one {
        false => Service::NotNeeded,
        true if header.incompatible & DIRTY != 0 => Service::ToRead,
        true => Service::ToReadAndWrite,
    }
}

/// Whether a backing file is itself such an image, of which the header of the one above says `format`.
pub(crate) fn is_layer(format: Option<&str>, file: &FileDevice) -> bool {
    format == Some("qcow2") || (format.is_none() && Signature::read(file) == Signature::Qcow2)
}

/// Where a backing file is: a relative name starts at the folder of the file that names it.
pub(crate) fn backing_path(path: &Path, name: &str) -> Result<PathBuf, DiskError> {
    let plain = name.strip_prefix("file:").unwrap_or(name);
    let protocol = plain.split_once(':').is_some_and(|(before, _)| !before.contains('/'));
    if protocol {
        let what =
            format!("a qcow2 image whose backing file is {:?}, which is not a file", crate::bytes::printable(name));
        return Err(DiskError::Refused { path: path.into(), what, advice: attach(path, "qcow2") });
    }
    Ok(beside(path, Path::new(plain)))
}

fn open_below(path: &Path, format: Option<&str>, chain: &mut Chain<'_>) -> Result<Image, DiskError> {
    if chain.files.len() >= MOST_LAYERS {
        let what = format!("a chain of more than {MOST_LAYERS} backing files");
        return Err(DiskError::Damaged { path: path.into(), what });
    }
    let file = (chain.opener)(path, Access::Read)?;
    let lower = lower_file(path, &file)?;
    match format {
        _ if is_layer(format, &file) => open_layer(path, file, &lower, Access::Read, chain),
        None | Some("raw" | "file") => {
            file.verify_alone(path)?;
            chain.files.push((path.into(), file));
            let image = Raw::open_image(lower, false).map_err(|source| DiskError::io(path, source))?;
            Ok(FormatAccess::new(image))
        }
        Some(format) => {
            let what = format!("a backing file in the format {:?}", crate::bytes::printable(format));
            Err(DiskError::Refused { path: path.into(), what, advice: attach(path, "qcow2") })
        }
    }
}

impl BlockDevice for Qcow2Device {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn hints(&self) -> Hints {
        Hints { read_only: self.written.is_none(), ..Hints::of(self) }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer.len() as u64)?;
        self.with(|image| image.read(buffer, offset))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        let written = self.begin_change()?;
        self.with(|image| self.write_with_room(image, written, offset, data))
    }

    fn flush(&self) -> io::Result<()> {
        if self.written.is_none() {
            return Ok(());
        }
        self.with(|image| {
            image.sync()?;
            image.flush()?;
            image.sync()
        })
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check(offset, length)?;
        self.begin_change()?;
        let mut image = self.image.write();
        match image.as_mut().expect("only drop takes the image").discard_to_any(offset, length) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            result => result,
        }
    }

    fn allocate(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "clusters of a qcow2 image are allocated when they are written"))
    }

    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length).min(self.size_bytes);
        self.with(|image| Ok(may_hold_data(image, offset, end))).unwrap_or(true)
    }
}

impl Drop for Qcow2Device {
    /// Clears the mark if everything that was written is durable.
    fn drop(&mut self) {
        let is_marked = self.written.as_mut().is_some_and(|written| written.mark.get_mut().is_set);
        let flushed = is_marked && self.flush().is_ok();
        // Imago flushes once more here, with nothing left to write.
        drop(self.image.get_mut().take());
        if flushed && let Some(written) = &mut self.written {
            // A file that stays longer than it need be is right too.
            let _ = written.room.get_mut().give_back(self.files.first().map(|(_, file)| file));
            // If that fails, the image has to be checked by qemu-img before its next use, which is right.
            let _ = written.mark.get_mut().set(false);
        }
    }
}

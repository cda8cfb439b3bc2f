//! Opens what an operand names, and says what is there.
//!
//! ```text
//! Disks ─▶ Disk (one a file) ─▶ Found (the disk as a whole)
//!       │                    └▶ table ─▶ Found (one a partition)
//!       └▶ FoundGroup (LVM2, across the disks) ─▶ Found (one a volume)
//! ```
//! Everything is read when the operand is opened, and nothing is written. [`Disks::find`] then gives one device. How
//! the tree is shown is in `tree`.

use crate::below::is_elsewhere;
use crate::container::{Container, Format};
use crate::contents::{Contents, LVM_MEMBER, contents};
use crate::error::{DiskError, PartFault};
use crate::lvm::{self, Volume};
use crate::mbr::is_extended;
use crate::operand::{Operand, Part};
use crate::partition::{Partition, Table, TableKind};
use crate::table::table;
use crate::unread::Unread;
use crate::window::{Segment, Window};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, Holder};

/// Something that can contain a filesystem: a disk, a partition or a logical volume.
pub struct Found {
    /// The part by which an operand names it.
    pub part: Part,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What it contains.
    pub contents: Contents,
    /// It as a device, or why it cannot be used.
    pub device: Result<Arc<dyn BlockDevice>, String>,
    /// Where it lies.
    extents: Vec<Place>,
}

/// Bytes of a disk, which is given by its position among the disks of an operand.
type Place = (usize, Range<u64>);

/// The device that an operand names.
#[derive(Clone)]
pub struct Chosen {
    /// The part by which an operand names it.
    pub part: Part,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    extents: Vec<Place>,
}

impl Chosen {
    /// Whether the two have a byte in common: then at most one program may write, to one of them. Both are parts of the
    /// same [`Disks`].
    pub fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: &Place, b: &Place| a.0 == b.0 && a.1.start < b.1.end && b.1.start < a.1.end;
        self.extents.iter().any(|a| other.extents.iter().any(|b| meet(a, b)))
    }
}

/// A disk.
pub struct Disk {
    /// Its file.
    pub path: PathBuf,
    /// The format of the file.
    pub format: Format,
    /// The files below it: backing files of qcow2, extents of vmdk.
    pub below: Vec<PathBuf>,
    /// The disk as a whole.
    pub whole: Found,
    /// Its partition table.
    pub table: Option<Table>,
    /// Its partitions, in the order of the table.
    pub partitions: Vec<Found>,
    /// What is wrong with it, for a person.
    pub warnings: Vec<String>,
}

/// A group of logical volumes.
pub struct FoundGroup {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Its volumes: what LVM2 says, and what is found.
    pub volumes: Vec<(VolumeKind, Found)>,
}

/// What LVM2 says of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeKind {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// `linear`, `striped`, or a kind that is refused.
    pub kind: String,
}

/// What is meant where an operand names no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// The only XFS filesystem: for commands that need one.
    OnlyXfs,
    /// The disk as a whole: for commands that make one.
    WholeDisk,
}

/// The open disks of an operand.
pub struct Disks {
    operand: Operand,
    /// One a file.
    pub disks: Vec<Disk>,
    /// The groups of LVM2 on them.
    pub groups: Vec<FoundGroup>,
    holders: Vec<Holder>,
}

impl Disks {
    /// Opens the files of an operand, locked for `access`, and reads what they contain.
    ///
    /// # Errors
    /// [`DiskError`], `Open` with `Busy` for a disk that another program uses.
    pub fn open(operand: &Operand, access: Access) -> Result<Self, DiskError> {
        Self::open_with(operand, access, |path| Unread::open(path, access)?.read())
    }

    /// As [`Self::open`], with disks that `open` opens by their names: files, or what the caller knows besides.
    ///
    /// # Errors
    /// Those of `open`; [`DiskError`].
    pub fn open_with<E: From<DiskError>>(
        operand: &Operand,
        access: Access,
        mut open: impl FnMut(&Path) -> Result<Container, E>,
    ) -> Result<Self, E> {
        let mut holders = Vec::new();
        let mut disks = Vec::new();
        for path in &operand.paths {
            let container = open(path)?;
            holders.extend(container.holders.iter().cloned());
            disks.push(read_disk(disks.len(), container, access));
        }
        let groups = read_groups(&mut disks, access);
        Ok(Self { operand: operand.clone(), disks, groups, holders })
    }

    /// Those who may change the disks while they are read here.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Everything that can contain a filesystem.
    pub fn found(&self) -> impl Iterator<Item = &Found> {
        let on_disks = self.disks.iter().flat_map(|disk| std::iter::once(&disk.whole).chain(&disk.partitions));
        on_disks.chain(self.groups.iter().flat_map(|group| group.volumes.iter().map(|(_, found)| found)))
    }

    /// The device that the operand names.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn choose(&self, unnamed: Unnamed) -> Result<Arc<dyn BlockDevice>, DiskError> {
        self.find(&self.operand.part, unnamed).map(|chosen| chosen.device)
    }

    /// The device that a part names.
    ///
    /// # Errors
    /// `Part` if there is no such part, if there are several, or if it cannot be used; with a list of what there is.
    pub fn find(&self, part: &Part, unnamed: Unnamed) -> Result<Chosen, DiskError> {
        let refuse = |fault, why: &str| Err(self.refuse(part, fault, why));
        let found: Vec<&Found> = match part {
            Part::Unnamed if unnamed == Unnamed::WholeDisk => return self.whole(part),
            Part::Unnamed => {
                let found: Vec<&Found> = self.found().filter(|found| found.contents.is_xfs()).collect();
                if found.is_empty() && !self.holds_known_parts() {
                    return self.whole(part);
                }
                found
            }
            Part::Whole => return self.whole(part),
            Part::Offset(offset) => return self.rest_after(*offset),
            Part::Partition(_) | Part::Volume { .. } => self.found().filter(|found| found.part == *part).collect(),
            Part::Label(label) => self.found().filter(|found| found.contents.label.as_ref() == Some(label)).collect(),
            Part::Uuid(uuid) => self.found().filter(|found| found.contents.uuid.as_ref() == Some(uuid)).collect(),
            Part::PartLabel(label) => self.partitions(|partition| partition.name.as_ref() == Some(label)),
            Part::PartUuid(uuid) => self.partitions(|partition| partition.uuid.as_ref() == Some(uuid)),
        };
        match (&found[..], part) {
            ([found], _) => self.use_found(part, found),
            ([], Part::Unnamed) => refuse(PartFault::NoXfs, "there is no XFS filesystem on it"),
            ([], _) => refuse(PartFault::NotOne, "there is no such part"),
            (_, Part::Unnamed) => {
                refuse(PartFault::NotOne, "there are several XFS filesystems on it: name one of them")
            }
            _ => refuse(PartFault::NotOne, "there are several such parts: name one of them in another way"),
        }
    }

    fn use_found(&self, part: &Part, found: &Found) -> Result<Chosen, DiskError> {
        let device = found.device.clone().map_err(|why| self.refuse(part, PartFault::Unusable, &why))?;
        Ok(Chosen { part: found.part.clone(), device, extents: found.extents.clone() })
    }

    fn partitions(&self, is_meant: impl Fn(&Partition) -> bool) -> Vec<&Found> {
        let described = self.disks.iter().filter_map(|disk| Some((disk.table.as_ref()?, &disk.partitions)));
        let pairs = described.flat_map(|(table, found)| table.partitions.iter().zip(found));
        pairs.filter(|(partition, _)| is_meant(partition)).map(|(_, found)| found).collect()
    }

    /// Files below virtual disks (backing files, extents) that lie in other folders than the disk that names them. A
    /// disk that was made to deceive may name any file that the user may read.
    pub fn elsewhere(&self) -> Vec<PathBuf> {
        let below = self.disks.iter().flat_map(|disk| disk.below.iter().map(|below| (&disk.path, below)));
        let outside = below.filter(|(disk, below)| is_elsewhere(disk, below));
        outside.map(|(_, below)| below.clone()).collect()
    }

    /// Whether a partition or a volume contains anything that is known, so that the disk is not itself a filesystem
    /// whose first sector was overwritten by a table.
    pub fn holds_known_parts(&self) -> bool {
        let mut parts = self.disks.iter().flat_map(|disk| &disk.partitions);
        !self.groups.is_empty() || parts.any(|part| part.contents.format.is_some())
    }

    fn whole(&self, part: &Part) -> Result<Chosen, DiskError> {
        match &self.disks[..] {
            [disk] => self.use_found(part, &disk.whole),
            _ => {
                let why = "there are several disks: name a logical volume or one of them";
                Err(self.refuse(part, PartFault::NotOne, why))
            }
        }
    }

    fn rest_after(&self, offset: u64) -> Result<Chosen, DiskError> {
        let part = Part::Offset(offset);
        let disk = self.whole(&part)?.device;
        let refuse = |why: &str| self.refuse(&part, PartFault::Unusable, why);
        // What lies in a partition ends with it, and what lies between two ends before the next.
        let bounds = self.disks[0].partitions.iter().filter(|found| found.device.is_ok());
        let bounds = bounds.flat_map(|found| &found.extents).flat_map(|(_, range)| [range.start, range.end]);
        let end = bounds.filter(|&bound| bound > offset).min().unwrap_or(u64::MAX).min(disk.size_bytes());
        let Some(length) = end.checked_sub(offset).filter(|&length| length > 0) else {
            return Err(refuse(&format!("the disk has only {end} bytes")));
        };
        let window = Window::new(vec![Segment::linear(disk, offset, length)]);
        let device = Arc::new(window.map_err(|error| refuse(&error.to_string()))?);
        Ok(Chosen { part, device, extents: vec![(0, offset..end)] })
    }

    pub(crate) fn refuse(&self, part: &Part, fault: PartFault, why: &str) -> DiskError {
        let operand = Operand { paths: self.operand.paths.clone(), part: part.clone() };
        let there_is = format!("; there is:\n{self}").trim_end().into();
        DiskError::Part { fault, operand: operand.to_string(), why: why.into(), there_is }
    }
}

fn read_disk(number: usize, container: Container, access: Access) -> Disk {
    let Container { path, format, below, device, .. } = container;
    let mut warnings = Vec::new();
    // A disk whose first sectors cannot be read may contain a filesystem, which has copies of them.
    let table = table(&*device).unwrap_or_else(|error| {
        warnings.push(format!("the partition table cannot be read: {error}"));
        None
    });
    warnings.extend(table.iter().flat_map(|table| table.warnings.iter().cloned()));
    let mut partitions = Vec::new();
    for partition in table.iter().flat_map(|table| &table.partitions) {
        let sector_bytes = match table.as_ref().map(|table| table.kind) {
            Some(TableKind::Gpt { sector_bytes }) => sector_bytes as usize,
            _ => 512,
        };
        let mut found = read_partition(number, &device, (partition, sector_bytes), access, &mut warnings);
        if table.as_ref().is_some_and(|table| table.kind == TableKind::Mbr && is_extended(&partition.kind)) {
            found.contents = Contents::default();
            found.device = Err("it is the extended partition, which contains the logical ones".into());
        }
        partitions.push(found);
    }
    refuse_overlaps(&mut partitions, access, &mut warnings);
    let (size_bytes, device) = (device.size_bytes(), Ok(device));
    let contents = read_contents(&device, &mut warnings);
    let whole = Found { part: Part::Whole, size_bytes, contents, device, extents: vec![(number, 0..size_bytes)] };
    Disk { path, format, below, whole, table, partitions, warnings }
}

/// Partitions that have bytes in common are read, and not written: to write one changes the other.
fn refuse_overlaps(partitions: &mut [Found], access: Access, warnings: &mut Vec<String>) {
    for second in 1..partitions.len() {
        let (before, rest) = partitions.split_at_mut(second);
        // The extended partition, which contains others, is no device.
        for first in before.iter_mut().filter(|first| first.device.is_ok()) {
            let meet = |(_, a): &Place, (_, b): &Place| a.start < b.end && b.start < a.end;
            let overlap = first.extents.iter().any(|a| rest[0].extents.iter().any(|b| meet(a, b)));
            if !overlap || rest[0].device.is_err() {
                continue;
            }
            let what = format!("{} and {} have bytes in common", first.part, rest[0].part);
            if access == Access::Write {
                let why = || Err(format!("{what}: what is written to one would change the other"));
                (first.device, rest[0].device) = (why(), why());
            }
            warnings.push(what);
        }
    }
}

/// A partition of a disk. One that reaches past the end of the disk is read as far as the disk goes, and not written.
fn read_partition(
    disk_number: usize,
    disk: &Arc<dyn BlockDevice>,
    (partition, sector_bytes): (&Partition, usize),
    access: Access,
    warnings: &mut Vec<String>,
) -> Found {
    let there = disk.size_bytes().saturating_sub(partition.offset);
    let mut length = partition.length;
    if there < length {
        warnings.push(format!("partition {} reaches past the end of the disk", partition.number));
        if access != Access::Write {
            length = there;
        }
    }
    let window = Window::new(vec![Segment::linear(Arc::clone(disk), partition.offset, length)]);
    let window = window.map(|window| window.with_sectors(sector_bytes));
    let device = window.map(|window| Arc::new(window) as Arc<dyn BlockDevice>).map_err(|error| error.to_string());
    Found {
        part: Part::Partition(partition.number),
        size_bytes: partition.length,
        contents: read_contents(&device, warnings),
        device,
        extents: vec![(disk_number, partition.offset..partition.offset.saturating_add(length))],
    }
}

/// What a part contains. The start of one that cannot be read may be that of anything.
fn read_contents(device: &Result<Arc<dyn BlockDevice>, String>, warnings: &mut Vec<String>) -> Contents {
    let Ok(device) = device else { return Contents::default() };
    contents(&**device).unwrap_or_else(|error| {
        warnings.push(format!("the start of a part cannot be read: {error}"));
        Contents::default()
    })
}

fn read_groups(disks: &mut [Disk], access: Access) -> Vec<FoundGroup> {
    let mut volumes = Vec::new();
    for disk in disks.iter_mut() {
        for found in std::iter::once(&disk.whole).chain(&disk.partitions) {
            let Ok(device) = &found.device else { continue };
            if found.contents.format != Some(LVM_MEMBER) {
                continue;
            }
            match lvm::physical_volume(device) {
                Ok(Some(volume)) => {
                    disk.warnings.extend(volume.warnings.iter().cloned());
                    volumes.push(volume);
                }
                Ok(None) => disk.warnings.push("the label of an LVM2 physical volume is damaged".into()),
                Err(error) => disk.warnings.push(format!("an LVM2 physical volume cannot be read: {error}")),
            }
        }
    }
    let groups = lvm::groups(&volumes).into_iter().map(|group| {
        let volumes = group.volumes.into_iter().map(|volume| read_volume(disks, &group.name, volume, access)).collect();
        FoundGroup { name: group.name, uuid: group.uuid, volumes }
    });
    groups.collect()
}

fn read_volume(disks: &[Disk], group: &str, volume: Volume, access: Access) -> (VolumeKind, Found) {
    let extents = match &volume.window {
        Ok(window) => window.stripes().flat_map(|(device, range)| places(disks, device, &range)).collect(),
        Err(_) => Vec::new(),
    };
    let mut device = volume.window.map(|window| window as Arc<dyn BlockDevice>);
    let contents = read_contents(&device, &mut Vec::new());
    if volume.is_read_only && access == Access::Write {
        device = Err("LVM2 lets it be read only (lvchange -p rw changes that)".into());
    }
    let part = Part::Volume { group: group.into(), name: volume.name.clone() };
    let kind = VolumeKind { name: volume.name, uuid: volume.uuid, kind: volume.kind };
    (kind, Found { part, size_bytes: volume.size_bytes, contents, device, extents })
}

/// Where a range of a physical volume lies on the disks.
fn places(disks: &[Disk], volume: &Arc<dyn BlockDevice>, range: &Range<u64>) -> Option<Place> {
    let found = disks.iter().flat_map(|disk| std::iter::once(&disk.whole).chain(&disk.partitions));
    let is_it =
        |found: &&Found| found.device.as_ref().is_ok_and(|device| device.hints().identity == volume.hints().identity);
    let (disk, place) = found.filter(is_it).find_map(|found| found.extents.first())?;
    Some((*disk, place.start + range.start..place.start + range.end))
}

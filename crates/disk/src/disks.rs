//! Opens what an operand names, and says what is there.
//!
//! ```text
//! Disks ─▶ Disk (one a file) ─▶ Found (the disk as a whole)
//!       │                    └▶ table ─▶ Found (one a partition)
//!       └▶ FoundGroup (LVM2, across the disks) ─▶ Found (one a volume)
//! ```
//! Everything is read when the operand is opened, and nothing is written. [`Disks::choose`] then gives one device.

use crate::container::{Container, Format};
use crate::contents::{Contents, LVM_MEMBER, contents};
use crate::error::DiskError;
use crate::lvm::{self, Volume};
use crate::mbr::is_extended;
use crate::operand::{Operand, Part};
use crate::table::{Partition, Table, TableKind, table};
use crate::window::{Segment, Window};
use std::fmt::{self, Write};
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
        let mut holders = Vec::new();
        let mut disks = Vec::new();
        for path in &operand.paths {
            let container = Container::open(path, access)?;
            holders.extend(container.holders.iter().cloned());
            disks.push(read_disk(container, access)?);
        }
        let groups = read_groups(&mut disks, access)?;
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
    /// `Part` if there is no such part, if there are several, or if it cannot be used; with a list of what there is.
    pub fn choose(&self, unnamed: Unnamed) -> Result<Arc<dyn BlockDevice>, DiskError> {
        let chosen: Vec<&Found> = match &self.operand.part {
            Part::Unnamed if unnamed == Unnamed::WholeDisk => return self.whole(),
            Part::Unnamed => {
                let chosen: Vec<&Found> = self.found().filter(|found| found.contents.is_xfs()).collect();
                if chosen.is_empty() && !self.holds_known_parts() {
                    return self.whole();
                }
                chosen
            }
            Part::Whole => return self.whole(),
            Part::Offset(offset) => return self.rest_after(*offset),
            Part::Partition(_) | Part::Volume { .. } => {
                self.found().filter(|found| found.part == self.operand.part).collect()
            }
            Part::Label(label) => self.found().filter(|found| found.contents.label.as_ref() == Some(label)).collect(),
            Part::Uuid(uuid) => self.found().filter(|found| found.contents.uuid.as_ref() == Some(uuid)).collect(),
            Part::PartLabel(label) => self.partitions(|partition| partition.name.as_ref() == Some(label)),
            Part::PartUuid(uuid) => self.partitions(|partition| partition.uuid.as_ref() == Some(uuid)),
        };
        match chosen[..] {
            [found] => found.device.clone().map_err(|why| self.refuse(&why)),
            [] if self.operand.part == Part::Unnamed => Err(self.refuse("there is no XFS filesystem on it")),
            [] => Err(self.refuse("there is no such part")),
            _ if self.operand.part == Part::Unnamed => {
                Err(self.refuse("there are several XFS filesystems on it: name one of them"))
            }
            _ => Err(self.refuse("there are several such parts: name one of them in another way")),
        }
    }

    fn partitions(&self, is_meant: impl Fn(&Partition) -> bool) -> Vec<&Found> {
        let described = self.disks.iter().filter_map(|disk| Some((disk.table.as_ref()?, &disk.partitions)));
        let pairs = described.flat_map(|(table, found)| table.partitions.iter().zip(found));
        pairs.filter(|(partition, _)| is_meant(partition)).map(|(_, found)| found).collect()
    }

    /// Whether a partition or a volume contains anything that is known, so that the disk is not itself a filesystem
    /// whose first sector was overwritten by a table.
    fn holds_known_parts(&self) -> bool {
        let mut parts = self.disks.iter().flat_map(|disk| &disk.partitions);
        !self.groups.is_empty() || parts.any(|part| part.contents.format.is_some())
    }

    fn whole(&self) -> Result<Arc<dyn BlockDevice>, DiskError> {
        match &self.disks[..] {
            [disk] => disk.whole.device.clone().map_err(|why| self.refuse(&why)),
            _ => Err(self.refuse("there are several disks: name a logical volume or one of them")),
        }
    }

    fn rest_after(&self, offset: u64) -> Result<Arc<dyn BlockDevice>, DiskError> {
        let disk = self.whole()?;
        let Some(length) = disk.size_bytes().checked_sub(offset).filter(|&length| length > 0) else {
            return Err(self.refuse(&format!("the disk has only {} bytes", disk.size_bytes())));
        };
        match Window::new(vec![Segment::linear(disk, offset, length)]) {
            Ok(window) => Ok(Arc::new(window)),
            Err(error) => Err(self.refuse(&error.to_string())),
        }
    }

    fn refuse(&self, why: &str) -> DiskError {
        DiskError::Part {
            operand: self.operand.to_string(),
            why: why.into(),
            there_is: format!("; there is:\n{self}").trim_end().into(),
        }
    }
}

fn read_disk(container: Container, access: Access) -> Result<Disk, DiskError> {
    let failed = |source| DiskError::io(&container.path, source);
    let device = Arc::clone(&container.device);
    let table = table(&*device).map_err(failed)?;
    let mut warnings = table.as_ref().map_or_else(Vec::new, |table| table.warnings.clone());
    let mut partitions = Vec::new();
    for partition in table.iter().flat_map(|table| &table.partitions) {
        let mut found = read_partition(&container.path, &device, partition, access, &mut warnings)?;
        if table.as_ref().is_some_and(|table| table.kind == TableKind::Mbr && is_extended(&partition.kind)) {
            found.contents = Contents::default();
            found.device = Err("it is the extended partition, which contains the logical ones".into());
        }
        partitions.push(found);
    }
    let whole = Found {
        part: Part::Whole,
        size_bytes: device.size_bytes(),
        contents: contents(&*device).map_err(failed)?,
        device: Ok(device),
    };
    let Container { path, format, below, .. } = container;
    Ok(Disk { path, format, below, whole, table, partitions, warnings })
}

/// A partition of a disk. One that reaches past the end of the disk is read as far as the disk goes, and not written.
fn read_partition(
    path: &Path,
    disk: &Arc<dyn BlockDevice>,
    partition: &Partition,
    access: Access,
    warnings: &mut Vec<String>,
) -> Result<Found, DiskError> {
    let there = disk.size_bytes().saturating_sub(partition.offset);
    let mut length = partition.length;
    if there < length {
        warnings.push(format!("partition {} reaches past the end of the disk", partition.number));
        if access != Access::Write {
            length = there;
        }
    }
    let window = Window::new(vec![Segment::linear(Arc::clone(disk), partition.offset, length)]);
    let device = window.map(|window| Arc::new(window) as Arc<dyn BlockDevice>).map_err(|error| error.to_string());
    let contents = read_contents(path, &device)?;
    Ok(Found { part: Part::Partition(partition.number), size_bytes: partition.length, contents, device })
}

fn read_contents(path: &Path, device: &Result<Arc<dyn BlockDevice>, String>) -> Result<Contents, DiskError> {
    match device {
        Ok(device) => contents(&**device).map_err(|source| DiskError::io(path, source)),
        Err(_) => Ok(Contents::default()),
    }
}

fn read_groups(disks: &mut [Disk], access: Access) -> Result<Vec<FoundGroup>, DiskError> {
    let mut volumes = Vec::new();
    for disk in disks.iter_mut() {
        for found in std::iter::once(&disk.whole).chain(&disk.partitions) {
            let Ok(device) = &found.device else { continue };
            if found.contents.format != Some(LVM_MEMBER) {
                continue;
            }
            let volume = lvm::physical_volume(device).map_err(|source| DiskError::io(&disk.path, source))?;
            match volume {
                Some(volume) => {
                    disk.warnings.extend(volume.warnings.iter().cloned());
                    volumes.push(volume);
                }
                None => disk.warnings.push("the label of an LVM2 physical volume is damaged".into()),
            }
        }
    }
    let path = disks[0].path.clone();
    let mut groups = Vec::new();
    for group in lvm::groups(&volumes) {
        let mut found = Vec::new();
        for volume in group.volumes {
            found.push(read_volume(&path, &group.name, volume, access)?);
        }
        groups.push(FoundGroup { name: group.name, uuid: group.uuid, volumes: found });
    }
    Ok(groups)
}

fn read_volume(path: &Path, group: &str, volume: Volume, access: Access) -> Result<(VolumeKind, Found), DiskError> {
    let mut device = volume.window.map(|window| window as Arc<dyn BlockDevice>);
    let contents = read_contents(path, &device)?;
    if volume.is_read_only && access == Access::Write {
        device = Err("LVM2 lets it be read only (lvchange -p rw changes that)".into());
    }
    let part = Part::Volume { group: group.into(), name: volume.name.clone() };
    let kind = VolumeKind { name: volume.name, uuid: volume.uuid, kind: volume.kind };
    Ok((kind, Found { part, size_bytes: volume.size_bytes, contents, device }))
}

/// A size for a person.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        for (shift, unit) in units {
            if self.0 >= 1 << shift {
                let tenths = (u128::from(self.0) * 10) >> shift;
                let (whole, tenth) = (tenths / 10, tenths % 10);
                return if tenth == 0 { write!(f, "{whole} {unit}") } else { write!(f, "{whole}.{tenth} {unit}") };
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

/// What a part contains, in a line.
fn describe(found: &Found) -> String {
    let mut line = match (&found.device, found.contents.format) {
        (Err(why), _) => format!("cannot be used: {why}"),
        (Ok(_), Some(format)) => format.to_string(),
        (Ok(_), None) => "unknown contents".to_string(),
    };
    if let Some(label) = &found.contents.label {
        // Writing to a String does not fail.
        let _ = write!(line, ", label {label:?}");
    }
    line
}

impl fmt::Display for Disks {
    /// The tree, a line for each disk, partition and volume, without a newline at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, disk) in self.disks.iter().enumerate() {
            let newline = if number > 0 { "\n" } else { "" };
            write!(f, "{newline}{}: {}, {}", disk.path.display(), disk.format, Size(disk.whole.size_bytes))?;
            match &disk.table {
                Some(table) => write!(f, ", partition table {}", table.kind)?,
                None => write!(f, ", {}", describe(&disk.whole))?,
            }
            for path in &disk.below {
                write!(f, "\n  on {}", path.display())?;
            }
            for warning in &disk.warnings {
                write!(f, "\n  warning: {warning}")?;
            }
            let described = disk.table.iter().flat_map(|table| &table.partitions).zip(&disk.partitions);
            for (partition, found) in described {
                write!(
                    f,
                    "\n  {:<5} {:>10}  {}",
                    found.part.to_string(),
                    Size(found.size_bytes).to_string(),
                    describe(found)
                )?;
                if let Some(name) = &partition.name {
                    write!(f, ", partition label {name:?}")?;
                }
            }
        }
        for group in &self.groups {
            write!(f, "\n  LVM2 group {}", group.name)?;
            for (volume, found) in &group.volumes {
                let size = Size(found.size_bytes);
                write!(f, "\n    {}  {size}, {}, {}", found.part, volume.kind, describe(found))?;
            }
        }
        Ok(())
    }
}

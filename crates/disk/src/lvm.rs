//! LVM2: physical volumes, and the linear and striped volumes on them.
//!
//! ```text
//! sector 0..4     one has the label: "LABELONE" 8, own sector 8, CRC 4, offset of the header 4, "LVM2 001" 8
//! header          UUID 32, size 8, areas of data (offset 8, size 8) up to one of zeros, areas of metadata likewise
//! metadata area   CRC 4, " LVM2 x[5A%r0N*>" 16, version 4, own offset 8, size 8;
//!                 of the text: offset 8, size 8, CRC 4, flags 4
//!                 from 512 on a ring, in which the text is found
//! ```
//! The text describes the whole group. Of the copies, the one with the highest sequence number counts.
//!
//! Checked: all three checksums. Bounds: a text of at most [`MOST_TEXT_BYTES`], see also `lvm_text`.
//!
//! Refused by name, for one volume at a time: each kind of segment but linear and striped, volumes on other volumes,
//! the origin of a snapshot (a write to it must save the old contents first), volumes whose physical volumes are not
//! all there, and groups that are exported or shared between machines.
//!
//! Source of facts: lvm2's metadata as pvcreate, vgcreate and lvcreate write it; pvck(8) --dump.

use crate::bytes::{crc32_raw, head, printable, text, u32_at, u64_at};
use crate::lvm_text::{self, Node, Section};
use crate::window::{Segment, Stripe, Window};
use std::io;
use std::sync::Arc;
use xfskit_device::BlockDevice;

const SECTOR_BYTES: u64 = 512;
const LABEL_SECTORS: usize = 4;
const INITIAL_CRC: u32 = 0xf597_a6cf;
const AREA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
/// Sixteen times the size of the area that pvcreate makes.
const MOST_TEXT_BYTES: u64 = 16 << 20;
const IGNORED: u32 = 1;
const MOST_AREAS: usize = 8;

/// A physical volume.
pub struct PhysicalVolume {
    /// Its UUID, without the dashes.
    id: String,
    device: Arc<dyn BlockDevice>,
    /// The text of its group, if it has one.
    group: Option<Section>,
    /// What is wrong with it, for a person.
    pub warnings: Vec<String>,
}

/// A group of volumes.
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Its volumes, without those that are parts of others.
    pub volumes: Vec<Volume>,
}

/// A logical volume.
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The kind of its segments: `linear`, `striped`, `thin`, ...
    pub kind: String,
    /// Whether LVM2 lets it be read only.
    pub is_read_only: bool,
    /// The volume as a device, or why it cannot be used.
    pub window: Result<Arc<Window>, String>,
}

/// The physical volume on a device; none if there is no label.
///
/// # Errors
/// Any I/O error. Damage is reported in `warnings`.
pub fn physical_volume(device: &Arc<dyn BlockDevice>) -> io::Result<Option<PhysicalVolume>> {
    let sectors = head(&**device, 0, LABEL_SECTORS * SECTOR_BYTES as usize)?;
    let label = sectors.chunks_exact(SECTOR_BYTES as usize).enumerate().find(|(number, sector)| {
        sector.starts_with(b"LABELONE")
            && &sector[24..32] == b"LVM2 001"
            && u64_at(sector, 8) == *number as u64
            && crc32_raw(INITIAL_CRC, &sector[20..]) == u32_at(sector, 16)
    });
    let Some((_, sector)) = label else { return Ok(None) };
    let header = sector.get(u32_at(sector, 20) as usize..).unwrap_or(&[]);
    let Some(id) = header.get(..32) else { return Ok(None) };
    let mut volume = PhysicalVolume { id: text(id), device: Arc::clone(device), group: None, warnings: Vec::new() };
    for (offset, length) in metadata_areas(header) {
        match read_area(&**device, offset, length)? {
            Ok(Some(group)) => {
                volume.group = Some(group);
                break;
            }
            Ok(None) => {}
            Err(why) => volume.warnings.push(format!("LVM2 metadata at byte {offset}: {why}")),
        }
    }
    Ok(Some(volume))
}

/// The metadata areas that a header lists behind the data areas.
fn metadata_areas(header: &[u8]) -> Vec<(u64, u64)> {
    let pairs = header.get(40..).unwrap_or(&[]).chunks_exact(16).map(|pair| (u64_at(pair, 0), u64_at(pair, 8)));
    pairs.skip_while(|pair| pair.0 != 0).skip(1).take_while(|pair| pair.0 != 0).take(MOST_AREAS).collect()
}

/// The text of one metadata area; none in an area that is empty or not used.
fn read_area(device: &dyn BlockDevice, offset: u64, length: u64) -> io::Result<Result<Option<Section>, String>> {
    let header = head(device, offset, SECTOR_BYTES as usize)?;
    if header.len() < SECTOR_BYTES as usize || &header[4..20] != AREA_MAGIC {
        return Ok(Err("no header".into()));
    }
    if crc32_raw(INITIAL_CRC, &header[4..]) != u32_at(&header, 0) {
        return Ok(Err("the checksum of its header is wrong".into()));
    }
    let (start, size) = (u64_at(&header, 24), u64_at(&header, 32));
    if start != offset || (length != 0 && size != length) || size <= SECTOR_BYTES {
        return Ok(Err("its header belongs to another area".into()));
    }
    let (at, bytes, crc, flags) = (u64_at(&header, 40), u64_at(&header, 48), u32_at(&header, 56), u32_at(&header, 60));
    if at == 0 || bytes == 0 || flags & IGNORED != 0 {
        return Ok(Ok(None));
    }
    if bytes > MOST_TEXT_BYTES || bytes > size - SECTOR_BYTES || at < SECTOR_BYTES || at >= size {
        return Ok(Err(format!("its text of {bytes} bytes does not fit")));
    }
    let Some(from) = offset.checked_add(at) else { return Ok(Err("it lies past the end of the disk".into())) };
    let straight = bytes.min(size - at);
    let mut raw = head(device, from, straight as usize)?;
    raw.extend(head(device, offset + SECTOR_BYTES, (bytes - straight) as usize)?);
    if raw.len() as u64 != bytes || crc32_raw(INITIAL_CRC, &raw) != crc {
        return Ok(Err("the checksum of its text is wrong".into()));
    }
    let Ok(decoded) = std::str::from_utf8(&raw) else { return Ok(Err("its text is not UTF-8".into())) };
    Ok(lvm_text::decode(decoded).map(Some))
}

/// The groups on some physical volumes.
pub fn groups(volumes: &[PhysicalVolume]) -> Vec<Group> {
    let mut newest: Vec<(&str, &Section)> = Vec::new();
    for (name, group) in volumes.iter().filter_map(|volume| group_section(volume.group.as_ref()?)) {
        match newest.iter_mut().find(|(_, other)| other.text("id") == group.text("id")) {
            Some(other) if other.1.number("seqno") < group.number("seqno") => *other = (name, group),
            Some(_) => {}
            None => newest.push((name, group)),
        }
    }
    newest.into_iter().map(|(name, group)| decode_group(name, group, volumes)).collect()
}

/// The section of the group in a text.
fn group_section(text: &Section) -> Option<(&str, &Section)> {
    text.sections().find(|(_, section)| section.number("extent_size").is_some())
}

fn decode_group(name: &str, group: &Section, volumes: &[PhysicalVolume]) -> Group {
    let empty = Section::default();
    let logical = group.section("logical_volumes").unwrap_or(&empty);
    let context = Context { group, logical, volumes };
    let visible = logical.sections().filter(|(_, volume)| volume.has("status", "VISIBLE"));
    Group {
        name: printable(name),
        uuid: printable(group.text("id").unwrap_or("")),
        volumes: visible.map(|(name, volume)| context.decode_volume(name, volume)).collect(),
    }
}

/// What the volumes of a group refer to.
struct Context<'a> {
    group: &'a Section,
    logical: &'a Section,
    volumes: &'a [PhysicalVolume],
}

impl Context<'_> {
    fn extent_bytes(&self) -> Option<u64> {
        self.group.number("extent_size")?.checked_mul(SECTOR_BYTES).filter(|&bytes| bytes > 0)
    }

    fn decode_volume(&self, name: &str, volume: &Section) -> Volume {
        let segments: Vec<&Section> = volume.sections().map(|(_, segment)| segment).collect();
        let count = segments.iter().try_fold(0u64, |sum, segment| sum.checked_add(segment.number("extent_count")?));
        let size_bytes = count.and_then(|count| count.checked_mul(self.extent_bytes()?));
        let window = self.verify_usable(name).and_then(|()| {
            let segments = self.decode_segments(&segments)?;
            Window::new(segments).map(Arc::new).map_err(|error| error.to_string())
        });
        Volume {
            name: printable(name),
            uuid: printable(volume.text("id").unwrap_or("")),
            size_bytes: size_bytes.unwrap_or(0),
            kind: segments.first().map_or_else(String::new, |segment| kind(segment)),
            is_read_only: !volume.has("status", "WRITE"),
            window,
        }
    }

    fn verify_usable(&self, name: &str) -> Result<(), String> {
        if self.group.has("status", "EXPORTED") {
            return Err("its group is exported".into());
        }
        if self.group.text("lock_type").is_some_and(|kind| kind != "none") || self.group.has("status", "CLUSTERED") {
            return Err("its group is shared between machines".into());
        }
        let segments = self.logical.sections().flat_map(|(_, volume)| volume.sections());
        let mut snapshots = segments.map(|(_, segment)| segment).filter(|segment| is(segment, "snapshot"));
        if let Some(segment) = snapshots.find(|s| [s.text("origin"), s.text("cow_store")].contains(&Some(name))) {
            let role = if segment.text("origin") == Some(name) { "has a snapshot" } else { "is a snapshot" };
            return Err(format!("it {role}, which xfskit does not handle"));
        }
        Ok(())
    }

    fn decode_segments(&self, segments: &[&Section]) -> Result<Vec<Segment>, String> {
        let mut segments = segments.to_vec();
        segments.sort_by_key(|segment| segment.number("start_extent"));
        let mut next = 0;
        let mut decoded = Vec::new();
        for segment in segments {
            if segment.number("start_extent") != Some(next) {
                return Err(format!("damaged: its segments leave a gap at extent {next}"));
            }
            let count = segment.number("extent_count").filter(|&count| count > 0);
            let end = count.and_then(|count| next.checked_add(count));
            next = end.ok_or("damaged: a segment has no size")?;
            decoded.push(self.decode_segment(segment)?);
        }
        Ok(decoded)
    }

    fn decode_segment(&self, segment: &Section) -> Result<Segment, String> {
        if !is(segment, "striped") && !is(segment, "linear") {
            return Err(format!("it is of the kind {}, which xfskit does not handle", kind(segment)));
        }
        let damaged = || String::from("damaged: the numbers of a segment make no sense");
        let extent_bytes = self.extent_bytes().ok_or_else(damaged)?;
        let count = segment.number("extent_count").ok_or_else(damaged)?;
        let length = count.checked_mul(extent_bytes).ok_or_else(damaged)?;
        let places = segment.list("stripes").ok_or_else(damaged)?;
        if segment.number("stripe_count").is_none_or(|n| n.checked_mul(2) != Some(places.len() as u64)) {
            return Err(damaged());
        }
        let stripes: Vec<Stripe> = places
            .chunks_exact(2)
            .map(|pair| self.stripe(&pair[0], &pair[1], extent_bytes).ok_or_else(damaged)?)
            .collect::<Result<_, String>>()?;
        let stripe_bytes = match stripes.len() {
            1 => length,
            _ => segment.number("stripe_size").and_then(|n| n.checked_mul(SECTOR_BYTES)).ok_or_else(damaged)?,
        };
        Ok(Segment { length, stripe_bytes, stripes })
    }

    /// Where a stripe lies; none if the text makes no sense, an error if its physical volume is missing.
    fn stripe(&self, place: &Node, extent: &Node, extent_bytes: u64) -> Option<Result<Stripe, String>> {
        let (Node::Text(name), Node::Number(extent)) = (place, extent) else { return None };
        let Some(described) = self.group.section("physical_volumes").and_then(|all| all.section(name)) else {
            return Some(Err("it lies on another volume, which xfskit does not handle".into()));
        };
        let id: String = described.text("id")?.chars().filter(|&c| c != '-').collect();
        let mut found = self.volumes.iter().filter(|volume| volume.id == id);
        let (volume, other) = (found.next(), found.next());
        let shown = printable(described.text("id")?);
        let Some(volume) = volume else {
            let what =
                format!("its physical volume {shown} is on none of the disks: name them all, with commas between");
            return Some(Err(what));
        };
        if other.is_some() {
            return Some(Err(format!("two physical volumes have the UUID {shown}")));
        }
        let start = described.number("pe_start")?.checked_mul(SECTOR_BYTES)?;
        let offset = u64::try_from(*extent).ok()?.checked_mul(extent_bytes)?.checked_add(start)?;
        Some(Ok(Stripe { device: Arc::clone(&volume.device), offset }))
    }
}

fn is(segment: &Section, kind: &str) -> bool {
    segment.text("type") == Some(kind)
}

/// The kind of a segment, for a person: LVM2 stores a linear one as striped with one stripe.
fn kind(segment: &Section) -> String {
    if is(segment, "striped") && segment.number("stripe_count") == Some(1) {
        return "linear".into();
    }
    printable(segment.text("type").unwrap_or("unknown"))
}

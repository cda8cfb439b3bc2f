//! What a logged item is about, in a line.
//!
//! Every item starts with its type and its number of regions, 16 bits each, in the writer's byte order.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Journaling Log"; the kernel's log format structures.

use xfskit::ondisk::log_record::{buffer_flags, item_type};

/// Types of logged buffers, by their number.
const BUFFER_TYPES: [&str; 25] = [
    "unknown",
    "user quota",
    "project quota",
    "group quota",
    "btree",
    "AGF",
    "AGFL",
    "AGI",
    "inodes",
    "symbolic link",
    "directory block",
    "directory data",
    "directory free",
    "directory leaf (one)",
    "directory leaf",
    "da node",
    "attr leaf",
    "attr value",
    "superblock",
    "rt bitmap",
    "rt summary",
    "rt group superblock",
    "25",
    "26",
    "27",
];

/// A logged item: its regions, and what the first one says.
pub struct Item {
    /// The type by name.
    pub kind: &'static str,
    /// What it is about.
    pub about: String,
    /// Lengths of its regions.
    pub regions: Vec<usize>,
    /// Whether all regions that the first one announces are there.
    pub whole: bool,
    /// Of an intent, its type and number.
    pub intent: Option<(u16, u64)>,
}

/// Little-endian fields at fixed places; 0 behind the end.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    /// Inode creation is logged big-endian.
    fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }
}

impl Item {
    /// How many regions the item has that starts with `first`; at least 1.
    pub fn region_count(first: &[u8]) -> usize {
        usize::from(Fields(first).u16(2)).max(1)
    }

    /// Decodes an item from its regions.
    pub fn decode(regions: Vec<Vec<u8>>) -> Self {
        let first = regions.first().map(Vec::as_slice).unwrap_or_default();
        let fields = Fields(first);
        let (kind, about) = match fields.u16(0) {
            item_type::BUFFER => ("buffer", buffer(&fields)),
            item_type::INODE => ("inode", inode(&fields)),
            item_type::ICREATE => ("new inodes", new_inodes(&fields)),
            item_type::EFI => ("free intent", extents(&fields, 16, false)),
            item_type::EFD => ("free done", done(&fields)),
            item_type::RUI => ("reverse mapping intent", extents(&fields, 32, true)),
            item_type::RUD => ("reverse mapping done", done(&fields)),
            item_type::CUI => ("reference count intent", extents(&fields, 16, false)),
            item_type::CUD => ("reference count done", done(&fields)),
            item_type::BUI => ("extent map intent", extents(&fields, 32, true)),
            item_type::BUD => ("extent map done", done(&fields)),
            item_type::ATTRI => ("attribute intent", attribute(&fields, &regions)),
            item_type::ATTRD => ("attribute done", done(&fields)),
            item_type::XMI => ("exchange intent", exchange(&fields)),
            item_type::XMD => ("exchange done", done(&fields)),
            item_type::DQUOT => ("quota", String::new()),
            item_type::QUOTAOFF => ("quota off", String::new()),
            other => ("unknown", format!("type {other:#06x}")),
        };
        let whole = regions.len() == Self::region_count(first);
        let is_intent = kind.ends_with("intent");
        let intent = is_intent.then(|| (fields.u16(0), fields.u64(8)));
        Self { intent, kind, about, whole, regions: regions.iter().map(Vec::len).collect() }
    }
}

fn buffer(fields: &Fields<'_>) -> String {
    let flags = fields.u16(4);
    let kind = BUFFER_TYPES.get(usize::from(flags >> buffer_flags::TYPE_SHIFT)).copied().unwrap_or("unknown");
    let freed = if flags & buffer_flags::CANCEL != 0 { ", freed" } else { "" };
    format!("{kind}, block {}, {} sectors{freed}", fields.u64(8), fields.u16(6))
}

fn inode(fields: &Fields<'_>) -> String {
    let names = ["core", "data", "data extents", "data btree", "device", "uuid", "attrs", "attr extents", "attr btree"];
    let set = fields.u32(4);
    let names: Vec<&str> =
        names.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, name)| *name).collect();
    format!("{} ({})", fields.u64(16), names.join(", "))
}

fn new_inodes(fields: &Fields<'_>) -> String {
    let (ag, block, count, blocks) = (fields.be32(4), fields.be32(8), fields.be32(12), fields.be32(20));
    format!("{count} in AG {ag} from block {block}, {blocks} blocks")
}

/// An intent that names extents; with `owned`, each has an owner in front.
fn extents(fields: &Fields<'_>, bytes: usize, owned: bool) -> String {
    let count = (fields.u32(4) as usize).min(fields.0.len() / bytes);
    let mut text = format!("{:#x}:", fields.u64(8));
    for index in 0..count {
        let at = 16 + index * bytes;
        if owned {
            text += &format!(
                " inode {} block {} offset {} count {}",
                fields.u64(at),
                fields.u64(at + 8),
                fields.u64(at + 16),
                fields.u32(at + 24)
            );
        } else {
            text += &format!(" block {} count {}", fields.u64(at), fields.u32(at + 8));
        }
    }
    text
}

fn done(fields: &Fields<'_>) -> String {
    format!("{:#x}", fields.u64(8))
}

fn attribute(fields: &Fields<'_>, regions: &[Vec<u8>]) -> String {
    let verb = match fields.u32(24) & 0xff {
        1 => "set",
        2 => "remove",
        3 => "replace",
        4 => "set parent pointer",
        5 => "remove parent pointer",
        6 => "replace parent pointer",
        _ => "unknown change",
    };
    let name = regions.get(1).map(|name| name.escape_ascii().to_string()).unwrap_or_default();
    format!(
        "{:#x}: {verb} of inode {}, name \"{name}\", value of {} bytes",
        fields.u64(8),
        fields.u64(16),
        fields.u32(32)
    )
}

fn exchange(fields: &Fields<'_>) -> String {
    format!("{:#x}: inodes {} and {}", fields.u64(8), fields.u64(16), fields.u64(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_unknown_items_are_shown_as_such() {
        let item = Item::decode(vec![vec![0x3c, 0x12]]);
        assert_eq!((item.kind, item.whole), ("buffer", true));
        assert_eq!(Item::decode(vec![vec![1, 2, 3, 0]]).about, "type 0x0201");
        assert_eq!(Item::decode(Vec::new()).kind, "unknown");
    }
}

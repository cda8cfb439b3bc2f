//! A description of a logged item in one line.
//!
//! Every item starts with its type and its number of regions, 16 bits each, in the writer's byte order.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Journaling Log"; the kernel's log format structures.

use xfskit_ondisk::log_items::{
    AttrIntent, AttrVerb, FsExtent, Intent, IntentRules, RefcountUpdate, RmapUpdate, decode_intent,
};
use xfskit_ondisk::log_record::{buffer_flags, item_type};

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

/// A logged item: its regions, and the contents of the first one.
pub struct Item {
    /// The name of its type.
    pub kind: &'static str,
    /// The description.
    pub about: String,
    /// Lengths of its regions.
    pub regions: Vec<usize>,
    /// Whether all regions that the first one announces are there.
    pub whole: bool,
    /// The type and id of an intent.
    pub intent: Option<(u16, u64)>,
}

/// Little-endian fields at fixed offsets; 0 beyond the end.
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
    /// The number of regions of the item that starts with the region `first`; at least 1.
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
            item_type::EFI => ("free intent", intent(&fields, &regions)),
            item_type::EFD => ("free done", done(&fields)),
            item_type::RUI => ("reverse mapping intent", intent(&fields, &regions)),
            item_type::RUD => ("reverse mapping done", done(&fields)),
            item_type::CUI => ("reference count intent", intent(&fields, &regions)),
            item_type::CUD => ("reference count done", done(&fields)),
            item_type::BUI => ("extent map intent", intent(&fields, &regions)),
            item_type::BUD => ("extent map done", done(&fields)),
            item_type::ATTRI => ("attribute intent", intent(&fields, &regions)),
            item_type::ATTRD => ("attribute done", done(&fields)),
            item_type::XMI => ("exchange intent", intent(&fields, &regions)),
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

/// The work that an intent names, as recovery would decode it.
fn intent(fields: &Fields<'_>, regions: &[Vec<u8>]) -> String {
    let id = fields.u64(8);
    // A list by records decodes the first region alone; the name of an attribute is in the second.
    if regions.len() < Item::region_count(fields.0) {
        return format!("{id:#x}: inode {}, {} regions", fields.u64(16), Item::region_count(fields.0));
    }
    match decode_intent(&IntentRules::FORM_ONLY, regions) {
        Ok(intent) => format!("{id:#x}:{}", work(&intent)),
        Err(error) => format!("{id:#x}: BAD: {error}"),
    }
}

fn work(intent: &Intent<'_>) -> String {
    match intent {
        Intent::ExtentFree(intent) => intent.extents.iter().map(blocks).collect(),
        Intent::Rmap(intent) => {
            let update = |update: &RmapUpdate| {
                let state = if update.unwritten { ", unwritten" } else { "" };
                let owner = update.owner as i64;
                let verb = format!("{:?}", update.verb).to_lowercase();
                format!(
                    " {verb} owner {owner}{} offset {}{}{state};",
                    fork(update.attr_fork),
                    update.offset,
                    blocks(&update.extent)
                )
            };
            intent.updates.iter().map(update).collect()
        }
        Intent::Refcount(intent) => {
            let update = |update: &RefcountUpdate| {
                format!(" {}{};", format!("{:?}", update.verb).to_lowercase(), blocks(&update.extent))
            };
            intent.updates.iter().map(update).collect()
        }
        Intent::Bmap(intent) => {
            let (verb, place) = (format!("{:?}", intent.verb).to_lowercase(), blocks(&intent.extent));
            let state = if intent.unwritten { ", unwritten" } else { "" };
            format!(" {verb} inode {}{} offset {}{place}{state}", intent.inode, fork(intent.attr_fork), intent.offset)
        }
        Intent::Attr(intent) => attribute(intent),
        Intent::Exchange(intent) => {
            let [one, two] = intent.inodes;
            let [from, to] = intent.offsets;
            format!(
                " {} blocks of inode {one} from {from} with inode {two} from {to}, flags {:#x}",
                intent.count, intent.flags
            )
        }
    }
}

fn blocks(extent: &FsExtent) -> String {
    format!(" block {} count {}", extent.block, extent.count)
}

fn fork(attr: bool) -> &'static str {
    if attr { " attrs" } else { "" }
}

fn attribute(intent: &AttrIntent<'_>) -> String {
    let verb = match intent.verb {
        AttrVerb::Set => "set",
        AttrVerb::Remove => "remove",
        AttrVerb::Replace => "replace",
        AttrVerb::SetParent => "set parent pointer",
        AttrVerb::RemoveParent => "remove parent pointer",
        AttrVerb::ReplaceParent => "replace parent pointer",
    };
    let new = match intent.new_name {
        [] => String::new(),
        name => format!(" by \"{}\"", name.escape_ascii()),
    };
    format!(
        " {verb} of inode {}, name \"{}\"{new}, value of {} bytes",
        intent.inode,
        intent.name.escape_ascii(),
        intent.value.len()
    )
}

fn done(fields: &Fields<'_>) -> String {
    format!("{:#x}", fields.u64(8))
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

    #[test]
    fn an_intent_is_shown_as_recovery_understands_it() {
        use xfskit_ondisk::FsBlock;
        use xfskit_ondisk::log_items::extent_free::encode_intent;
        let region = encode_intent(0x77, &[FsExtent { block: FsBlock(20), count: 3 }]);
        assert_eq!(Item::decode(vec![region.clone()]).about, "0x77: block 20 count 3");
        let about = Item::decode(vec![region[..24].to_vec()]).about;
        assert!(about.starts_with("0x77: BAD: corrupt extent-free intent"), "{about}");
    }
}

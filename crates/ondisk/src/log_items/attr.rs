//! An attribute to change: ATTRI and ATTRD.
//!
//! ```text
//! region 1  0 type  2 regions  4 generation  8 id  16 inode  24 verb u32  28 name bytes  32 value bytes  36 name space
//! further   name, new name, value, new value: each padded to a multiple of 4, the empty ones left out
//! ```
//! A replacement of a parent pointer has two names, so the lengths at 28 have 16 bits each there; both values have the
//! length at 32. The generation is that of the inode, and recorded for parent pointers only.

use super::{Fields, IntentRules, put_header, verify_inode};
use crate::attr::{MAX_NAME_BYTES, MAX_VALUE_BYTES, PARENT_RECORD_BYTES, ParentRecord, flags, is_valid_namespace};
use crate::log_record::item_type;
use crate::{Corruption, Geometry, InodeNumber, Verdict, ensure};

/// The name of the structure in errors.
pub(super) const NAME: &str = "attribute intent";
const HEADER_BYTES: usize = 40;

/// A kind of change to an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AttrVerb {
    /// It is added.
    Set = 1,
    /// It is removed.
    Remove = 2,
    /// It gets another value.
    Replace = 3,
    /// A parent pointer is added.
    SetParent = 4,
    /// A parent pointer is removed.
    RemoveParent = 5,
    /// A parent pointer is replaced by another with a new name and value.
    ReplaceParent = 6,
}

impl AttrVerb {
    fn decode(word: u32) -> Verdict<Self> {
        Ok(match word {
            1 => Self::Set,
            2 => Self::Remove,
            3 => Self::Replace,
            4 => Self::SetParent,
            5 => Self::RemoveParent,
            6 => Self::ReplaceParent,
            _ => return Err(Corruption::new(NAME, "kind of change").found(format_args!("{word:#x}"))),
        })
    }

    /// Whether it is about a parent pointer.
    pub fn is_parent(self) -> bool {
        matches!(self, Self::SetParent | Self::RemoveParent | Self::ReplaceParent)
    }
}

/// A change of one attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrIntent<'a> {
    /// The id by which the done item names the intent.
    pub id: u64,
    /// The kind of change.
    pub verb: AttrVerb,
    /// The inode whose attribute it is.
    pub inode: InodeNumber,
    /// Its generation, for parent pointers.
    pub generation: u32,
    /// The name space: flags of [`flags`].
    pub namespace: u8,
    /// The name; in a replacement of a parent pointer, the old one's.
    pub name: &'a [u8],
    /// The value; of a parent pointer that is removed or replaced, the present one.
    pub value: &'a [u8],
    /// In a replacement of a parent pointer, the new one's name.
    pub new_name: &'a [u8],
    /// In a replacement of a parent pointer, the new one's value.
    pub new_value: &'a [u8],
}

impl AttrIntent<'_> {
    /// Passes the regions of the intent to `region`, in order.
    pub fn encode(&self, mut region: impl FnMut(&[u8])) {
        let further = [self.name, self.new_name, self.value, self.new_value];
        region(&self.encode_header(self.value.len()));
        further.into_iter().filter(|bytes| !bytes.is_empty()).for_each(region);
    }

    /// The first region of the intent, for a value of `value_bytes` bytes, which need not be in `self.value`. The names
    /// and values that are not empty follow, each as a region: name, new name, value, new value.
    pub fn encode_header(&self, value_bytes: usize) -> [u8; HEADER_BYTES] {
        let further = [self.name.len(), self.new_name.len(), value_bytes, self.new_value.len()];
        let count = 1 + further.iter().filter(|&&bytes| bytes > 0).count();
        let mut out = [0; HEADER_BYTES];
        let generation = if self.verb.is_parent() { self.generation } else { 0 };
        put_header(&mut out, item_type::ATTRI, count as u16, generation, self.id);
        out[16..24].copy_from_slice(&self.inode.0.to_le_bytes());
        out[24..28].copy_from_slice(&(self.verb as u32).to_le_bytes());
        // Two 16-bit lengths, which read as one 32-bit length where there is no new name.
        out[28..30].copy_from_slice(&(self.name.len() as u16).to_le_bytes());
        out[30..32].copy_from_slice(&(self.new_name.len() as u16).to_le_bytes());
        out[32..36].copy_from_slice(&(value_bytes as u32).to_le_bytes());
        out[36..40].copy_from_slice(&u32::from(self.namespace & flags::NAMESPACE).to_le_bytes());
        out
    }
}

/// Decodes and verifies an ATTRI from its regions.
///
/// # Errors
/// A corruption of the intent.
pub fn decode_intent<'a, R: AsRef<[u8]>>(rules: &IntentRules<'_>, regions: &'a [R]) -> Verdict<AttrIntent<'a>> {
    let first: &[u8] = regions.first().map_or(&[], AsRef::as_ref);
    let fields = Fields(first);
    ensure!(first.len() == HEADER_BYTES, NAME, "length", "{} bytes", first.len());
    let verb = AttrVerb::decode(fields.u32(24))?;
    let filter = fields.u32(36);
    let known = u32::from(flags::NAMESPACE | flags::INCOMPLETE);
    ensure!(filter & !known == 0 && is_valid_namespace(filter as u8), NAME, "name space", "{filter:#x}");
    let namespace = filter as u8 & flags::NAMESPACE;
    verify_form(rules, verb, namespace)?;
    let inode = InodeNumber(fields.u64(16));
    verify_inode(rules, NAME, inode)?;
    let (names, values) = lengths(verb, fields)?;
    let mut rest = regions[1..].iter();
    let mut next = |bytes: usize| -> Verdict<&'a [u8]> {
        if bytes == 0 {
            return Ok(&[]);
        }
        let region = rest.next().map(AsRef::as_ref).unwrap_or_default();
        let right = region.len() == bytes.next_multiple_of(4);
        ensure!(right, NAME, "regions of the announced lengths", "{} bytes for {bytes}", region.len());
        Ok(&region[..bytes])
    };
    let (name, new_name) = (next(names[0])?, next(names[1])?);
    let (value, new_value) = (next(values[0])?, next(values[1])?);
    ensure!(rest.next().is_none(), NAME, "no more regions than it needs", "{}", regions.len());
    for name in [Some(name), (names[1] > 0).then_some(new_name)].into_iter().flatten() {
        verify_name(namespace, name)?;
    }
    if verb.is_parent() {
        verify_parent(rules, value)?;
        if verb == AttrVerb::ReplaceParent {
            verify_parent(rules, new_value)?;
        }
    }
    let generation = fields.u32(4);
    Ok(AttrIntent { id: fields.u64(8), verb, inode, generation, namespace, name, value, new_name, new_value })
}

/// Verifies that the image may contain such an intent and that the name space fits the verb.
fn verify_form(rules: &IntentRules<'_>, verb: AttrVerb, namespace: u8) -> Verdict {
    let parent = namespace == flags::PARENT;
    ensure!(parent == verb.is_parent(), NAME, "name space of the verb", "{namespace:#x} with {verb:?}");
    if verb.is_parent() {
        ensure!(rules.allow(Geometry::has_parent), NAME, "the image has parent pointers");
    } else {
        ensure!(rules.logged_attrs, NAME, "announced in the superblock's log features");
    }
    Ok(())
}

/// Lengths of both names and of both values.
fn lengths(verb: AttrVerb, fields: Fields<'_>) -> Verdict<([usize; 2], [usize; 2])> {
    let value = fields.u32(32) as usize;
    let names = if verb == AttrVerb::ReplaceParent {
        [usize::from(fields.u16(28)), usize::from(fields.u16(30))]
    } else {
        [fields.u32(28) as usize, 0]
    };
    let valid = |length: usize| (1..=MAX_NAME_BYTES).contains(&length);
    let two = verb == AttrVerb::ReplaceParent;
    ensure!(valid(names[0]) && (!two || valid(names[1])), NAME, "length of a name", "{names:?}");
    let right = match verb {
        AttrVerb::Set | AttrVerb::Replace => value <= MAX_VALUE_BYTES,
        AttrVerb::Remove => value == 0,
        _ => value == PARENT_RECORD_BYTES,
    };
    ensure!(right, NAME, "length of the value", "{value} with {verb:?}");
    Ok((names, [value, if two { value } else { 0 }]))
}

/// Verifies the characters of a name. That of a parent pointer is a name in a directory.
fn verify_name(namespace: u8, name: &[u8]) -> Verdict {
    let parent = namespace == flags::PARENT;
    let good = !name.iter().any(|&byte| byte == 0 || parent && byte == b'/');
    ensure!(good, NAME, "characters of a name", "\"{}\"", name.escape_ascii());
    Ok(())
}

fn verify_parent(rules: &IntentRules<'_>, value: &[u8]) -> Verdict {
    let inode = ParentRecord::decode(value).map_or(0, |record| record.inode);
    verify_inode(rules, NAME, InodeNumber(inode))
}

//! An attribute on its way down, and a change of one: the only form of both between the caller and the disk.
//!
//! ```text
//! ops ──Attr──▶ update ──Change──▶ shortform           read in place
//!                            └───▶ deferred work       kept through its links, and described by its intents
//! log ──AttrIntent──▶ recovery ──Change──▶ deferred work
//! ```
//! Names and values are borrowed from the caller, until a change outlives it: then [`Change::into_owned`] copies them
//! once, a long value into the blocks that it will have.

use super::attribute::{Attr, Value};
use super::{remote, tree};
use crate::item::LogVector;
use crate::mount::Mount;
use std::borrow::Cow;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::log_items::{AttrIntent, AttrVerb};

/// A change of one attribute. The verbs are those of the log.
#[derive(Clone, Debug)]
pub enum Change<'a> {
    /// An attribute that is not there is added.
    Set(Attr<'a>),
    /// An attribute gets another value.
    Replace(Attr<'a>),
    /// A parent pointer makes way for another, of a new name and value.
    ReplaceParent {
        /// The one that goes.
        old: Attr<'a>,
        /// The one that takes its place.
        new: Attr<'a>,
    },
    /// An attribute is removed.
    Remove(Attr<'a>),
}

impl Attr<'_> {
    /// As it is after the caller's buffers are gone.
    fn into_owned(self, mount: &Mount) -> Attr<'static> {
        let Attr { namespace, name, value } = self.with_value_in_blocks(mount);
        let value = match value {
            Value::Blocks(blocks) => Value::Blocks(blocks),
            Value::Bytes(bytes) => {
                mount.counters.value_bytes_copied.add(bytes.len() as u64);
                Value::Bytes(Cow::Owned(bytes.into_owned()))
            }
        };
        Attr { namespace, name: Cow::Owned(name.into_owned()), value }
    }

    /// With a value that no entry may contain laid out in the blocks that it will have, which its intents share.
    fn with_value_in_blocks(self, mount: &Mount) -> Self {
        let value = match self.value {
            Value::Bytes(bytes) if !tree::is_local_value(&mount.geometry, self.name.len(), bytes.len()) => {
                Value::Blocks(remote::in_blocks(mount, &bytes))
            }
            other => other,
        };
        Self { value, ..self }
    }
}

impl Change<'static> {
    /// The change that an intent describes.
    pub(super) fn of_intent(mount: &Mount, intent: &AttrIntent<'_>) -> Self {
        let first = Attr::new(intent.namespace, intent.name, intent.value);
        let change = match intent.verb {
            AttrVerb::Set | AttrVerb::SetParent => Change::Set(first),
            AttrVerb::Remove | AttrVerb::RemoveParent => Change::Remove(first),
            AttrVerb::Replace => Change::Replace(first),
            AttrVerb::ReplaceParent => {
                let new = Attr::new(intent.namespace, intent.new_name, intent.new_value);
                Change::ReplaceParent { old: first, new }
            }
        };
        change.into_owned(mount)
    }
}

impl<'a> Change<'a> {
    /// As it is after the caller's buffers are gone.
    pub(super) fn into_owned(self, mount: &Mount) -> Change<'static> {
        match self {
            Self::Set(new) => Change::Set(new.into_owned(mount)),
            Self::Replace(new) => Change::Replace(new.into_owned(mount)),
            Self::ReplaceParent { old, new } => {
                Change::ReplaceParent { old: old.into_owned(mount), new: new.into_owned(mount) }
            }
            Self::Remove(old) => Change::Remove(old.into_owned(mount)),
        }
    }

    /// With a long value laid out once in the blocks that it will have: each intent of the change shares them.
    pub(super) fn with_value_in_blocks(self, mount: &Mount) -> Self {
        match self {
            Self::Set(new) => Self::Set(new.with_value_in_blocks(mount)),
            Self::Replace(new) => Self::Replace(new.with_value_in_blocks(mount)),
            // A parent pointer is never long, and what is removed has no value.
            other => other,
        }
    }

    /// What identifies the attributes that it is about: the one that goes, the one that is added.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Attr<'a>> {
        let (first, second) = match self {
            Self::Set(attr) | Self::Replace(attr) | Self::Remove(attr) => (attr, None),
            Self::ReplaceParent { old, new } => (old, Some(new)),
        };
        std::iter::once(first).chain(second)
    }

    /// The attribute that is there afterwards.
    #[inline]
    pub(super) fn new_attr(&self) -> Option<&Attr<'a>> {
        match self {
            Self::Set(new) | Self::Replace(new) | Self::ReplaceParent { new, .. } => Some(new),
            Self::Remove(_) => None,
        }
    }

    /// What is left to do once what it replaces is gone.
    pub(super) fn into_set(self) -> Self {
        match self {
            Self::Replace(new) | Self::ReplaceParent { new, .. } => Self::Set(new),
            other => other,
        }
    }

    /// Length of the value that it stores.
    #[inline]
    pub(super) fn value_bytes(&self) -> usize {
        self.new_attr().map_or(0, |new| new.value.len())
    }

    /// Whether it is about a parent pointer.
    pub(super) fn is_parent(&self) -> bool {
        self.keys().any(Attr::is_parent)
    }

    /// Encodes an intent for the whole of it.
    pub(super) fn encode_intent(&self, inode: InodeNumber, generation: u32, id: u64, copy: &mut LogVector) {
        let (verb, first, second) = match self {
            Self::Set(new) if new.is_parent() => (AttrVerb::SetParent, new, None),
            Self::Set(new) => (AttrVerb::Set, new, None),
            Self::Replace(new) => (AttrVerb::Replace, new, None),
            Self::ReplaceParent { old, new } => (AttrVerb::ReplaceParent, old, Some(new)),
            Self::Remove(old) if old.is_parent() => (AttrVerb::RemoveParent, old, None),
            Self::Remove(old) => (AttrVerb::Remove, old, None),
        };
        let value_bytes = if verb == AttrVerb::Remove { 0 } else { first.value.len() };
        let (new_name, new_value) = second.map_or((&[][..], &[][..]), |new| (&new.name, new.key_value()));
        let (namespace, name, value) = (first.namespace, &first.name, first.key_value());
        let intent = AttrIntent { id, verb, inode, generation, namespace, name, value, new_name, new_value };
        copy.push(&intent.encode_header(value_bytes));
        [intent.name, intent.new_name].iter().filter(|name| !name.is_empty()).for_each(|name| copy.push(name));
        match &first.value {
            _ if value_bytes == 0 => {}
            Value::Bytes(value) => copy.push(value),
            Value::Blocks(blocks) => copy.push_value(blocks),
        }
        if !intent.new_value.is_empty() {
            copy.push(intent.new_value);
        }
    }
}

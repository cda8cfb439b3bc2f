//! An attribute, or what identifies one.

use crate::value::ValueBlocks;
use std::borrow::Cow;
use std::sync::Arc;
use xfskit_ondisk::attr::{flags, hash_attr};

/// An attribute, or what identifies one: for parent pointers that is the value as well.
#[derive(Clone, Debug)]
pub struct Attr<'a> {
    /// One of the [`flags`] of name spaces, or 0 for `user.`.
    pub namespace: u8,
    /// The name.
    pub name: Cow<'a, [u8]>,
    /// The value; does not matter for identity except for parent pointers.
    pub value: Value<'a>,
}

/// A value, which may be long.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// The caller's, or a copy that outlives it.
    Bytes(Cow<'a, [u8]>),
    /// A copy of one that will have blocks of its own, which its intent carries without another copy.
    Blocks(Arc<ValueBlocks>),
}

impl Value<'_> {
    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Blocks(blocks) => blocks.value_bytes(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of one that is not in blocks: one that an entry may have beside its name.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Blocks(_) => None,
        }
    }
}

impl<'a> Attr<'a> {
    /// An attribute with its value.
    #[inline]
    pub fn new(namespace: u8, name: &'a [u8], value: &'a [u8]) -> Self {
        Self { namespace, name: Cow::Borrowed(name), value: Value::Bytes(Cow::Borrowed(value)) }
    }

    /// What identifies an attribute that is not a parent pointer.
    pub fn key(namespace: u8, name: &'a [u8]) -> Self {
        Self::new(namespace, name, &[])
    }

    /// The parent pointer for a name, with the record of the directory.
    pub fn parent(name: &'a [u8], record: &'a [u8]) -> Self {
        Self::new(flags::PARENT, name, record)
    }

    /// Whether it is a parent pointer.
    #[inline]
    pub fn is_parent(&self) -> bool {
        self.namespace & flags::PARENT != 0
    }

    /// The hash.
    pub fn hash(&self) -> u32 {
        hash_attr(self.namespace, &self.name, self.key_value())
    }

    /// Whether this identifies an attribute with these parts; `value` is `None` for one in blocks.
    #[inline]
    pub(super) fn matches(&self, namespace: u8, name: &[u8], value: Option<&[u8]>) -> bool {
        self.namespace == namespace && *self.name == *name && (!self.is_parent() || value == Some(self.key_value()))
    }

    /// The value as far as it can belong to the key: only a parent pointer's does, which is never in blocks.
    #[inline]
    pub(super) fn key_value(&self) -> &[u8] {
        self.value.bytes().unwrap_or_default()
    }
}

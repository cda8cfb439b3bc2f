//! Changes of extended attributes.

/// What a set may find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetMode {
    /// Make it or replace it.
    #[default]
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrChange {
    /// Full name.
    pub name: Vec<u8>,
    /// The new value; `None` removes.
    pub value: Option<Vec<u8>>,
}

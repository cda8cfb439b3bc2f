//! temporary
use super::Attr;
use super::update::Logging;
use crate::error::{Error, Result};
use crate::trans::{InoId, Transaction};

pub fn set(_: &mut Transaction, _: InoId, _: &Attr<'_>, _: Logging) -> Result<()> {
    Err(Error::NotSupported("deferred"))
}
pub fn replace(_: &mut Transaction, _: InoId, _: &Attr<'_>, _: &Attr<'_>, _: Logging) -> Result<()> {
    Err(Error::NotSupported("deferred"))
}
pub fn remove(_: &mut Transaction, _: InoId, _: &Attr<'_>, _: Logging) -> Result<()> {
    Err(Error::NotSupported("deferred"))
}

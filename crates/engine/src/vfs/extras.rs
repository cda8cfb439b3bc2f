//! What a server of a mount shows of XFS beyond POSIX.
//!
//! | property | value |
//! |---|---|
//! | `superblock` | the superblock, with the counts of now |
//! | `larp` | `always` or `never`; can be set, for updates that begin from now on |

use super::geometry;
use crate::error::{Error, Result};
use crate::mount::AttrLogging;
use crate::ops::Volume;
use xfskit_vfs::{Extras, Figures, InodeNumber, Statistics};
use zerocopy::IntoBytes;

/// The superblock, among the properties of [`Extras::property`].
pub const SUPERBLOCK_PROPERTY: &str = "superblock";
/// Whether attributes are logged, among the properties of [`Extras::property`].
pub const LARP_PROPERTY: &str = "larp";

#[doc(hidden)]
impl Extras for Volume {
    fn paths(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        self.paths(inode)
    }

    fn parents(&self, inode: InodeNumber) -> Result<Vec<(InodeNumber, Vec<u8>)>> {
        self.parents(inode)
    }

    fn property(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            SUPERBLOCK_PROPERTY => Some(self.superblock().as_bytes().to_vec()),
            LARP_PROPERTY => Some(self.attr_logging().name().into()),
            _ => None,
        }
    }

    fn set_property(&self, name: &str, value: &[u8]) -> Result<()> {
        if name != LARP_PROPERTY {
            return Err(Error::NotPermitted);
        }
        let logging = std::str::from_utf8(value.trim_ascii()).ok().and_then(AttrLogging::from_name);
        self.set_attr_logging(logging.ok_or(Error::Invalid("larp is always or never"))?);
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        let (usage, options) = (self.usage(), self.options());
        Statistics {
            counters: self.counters().list().into_iter().map(|(name, count)| (name, count.into())).collect(),
            log: Figures::from([("used_bytes", usage.log_used_bytes.into()), ("size_bytes", usage.log_bytes.into())]),
            cache: Figures::from([
                ("buffer_bytes", usage.buffer_bytes.into()),
                ("limit_bytes", options.cache_bytes.into()),
                ("inodes", usage.inodes.into()),
            ]),
            options: Figures::from([
                ("read_only", options.read_only.into()),
                ("wsync", options.wsync.into()),
                ("whiteouts", options.whiteouts.into()),
                ("attr_path", format!("{:?}", options.attr_path).to_lowercase().into()),
                ("known_absent", options.known_absent.into()),
                ("attr_logging", self.attr_logging().name().into()),
            ]),
        }
    }

    fn is_acl_alias(&self, xattr: &[u8]) -> bool {
        xattr.starts_with(b"trusted.SGI_ACL_")
    }

    fn ioctl(&self, _: InodeNumber, command: u32, _: &[u8]) -> Option<Result<Vec<u8>>> {
        geometry::ioctl(self, command).map(Ok)
    }
}

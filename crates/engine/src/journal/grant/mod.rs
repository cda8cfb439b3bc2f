//! Log space for transactions: what is granted ([`Grant`]), the accounts of all grants ([`accounts`]), and how a thread
//! gets space when there is too little ([`log_space`]).

pub(super) mod accounts;
pub(super) mod log_space;

use crate::error::Result;
use log_space::{LogSpace, MakeRoom};

/// Log space granted to a chain of transactions. Space that is not spent is given back when it is dropped.
pub struct Grant<'j> {
    space: &'j LogSpace,
    room: &'j dyn MakeRoom,
    unit: u64,
    links_left: u64,
}

impl<'j> Grant<'j> {
    /// Takes space for `links` links that may dirty `bytes` bytes each; waits for it.
    ///
    /// # Errors
    /// `Shutdown`; `Invalid` when the log is too small; `Io` when the log is full of metadata that the device refuses.
    pub(super) fn take(space: &'j LogSpace, room: &'j dyn MakeRoom, bytes: u32, links: u32) -> Result<Self> {
        let (unit, links_left) = (space.accounts().unit_bytes(bytes), u64::from(links.max(1)));
        space.take_for_new(unit * links_left, room)?;
        Ok(Self { space, room, unit, links_left })
    }

    /// One link commits. Its unit pays for `charge` bytes, and the rest is given back. A negative charge, by which the
    /// checkpoint was charged too much, is given back, too.
    pub(super) fn spend_link(&mut self, charge: i64) {
        assert!(self.links_left > 0, "a link commits only with space granted for it");
        self.links_left -= 1;
        let accounts = self.space.accounts();
        // `left` is never negative for a link that kept to its reservation.
        let left = self.unit as i64 - charge;
        debug_assert!(left >= 0, "a link dirtied {charge} bytes of log with {} granted", self.unit);
        if left >= 0 {
            accounts.give_back(left.unsigned_abs());
        } else {
            tracing::warn!(charge, unit = self.unit, "a transaction used more log space than it reserved");
            accounts.overdraw(left.unsigned_abs());
        }
    }

    /// Whether the link after this one has space already, or gets some at once.
    pub fn try_next_link(&mut self) -> bool {
        if self.links_left > 1 {
            return true;
        }
        let taken = self.space.try_take_for_rolling(self.unit);
        self.links_left += u64::from(taken);
        taken
    }

    /// Makes sure that one more link can commit; waits for space when the reserved links are used up.
    ///
    /// # Errors
    /// `Shutdown`.
    pub fn next_link(&mut self) -> Result<()> {
        if self.links_left == 0 {
            self.space.take_for_rolling(self.unit, self.room)?;
            self.links_left = 1;
        }
        Ok(())
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.space.give_back(self.unit * self.links_left);
    }
}

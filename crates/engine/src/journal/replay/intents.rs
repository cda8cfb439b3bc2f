//! Intents in the log: those without a done item are work that recovery has to finish.
//!
//! Replay only gathers them; [`crate::finish`] finishes them.

use crate::item::{self, LogOnlyItem};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::{Corruption, Lsn, Verdict};

use super::transactions::LogItemRegions;

/// An intent that has no done item in the log.
#[derive(Debug)]
pub struct RecoveredIntent {
    /// Where its transaction starts in the log.
    pub lsn: Lsn,
    /// Its type.
    pub item_type: u16,
    /// The number by which its done item names it.
    pub id: u64,
    /// Its regions as they are in the log; the first is the format.
    pub regions: Vec<Vec<u8>>,
    /// Its item, which holds the tail.
    pub item: Arc<LogOnlyItem>,
}

impl RecoveredIntent {
    /// An intent as the log has it.
    pub fn new(lsn: Lsn, item_type: u16, id: u64, regions: Vec<Vec<u8>>) -> Self {
        Self { lsn, item_type, id, regions, item: LogOnlyItem::new(item::LogOnlyRole::Intent) }
    }
}

/// Whether an item is an intent or a done item.
pub(super) enum Role {
    Intent,
    /// The done item of intents of this type.
    Done(u16),
}

/// Whether items of a type are intents or done items; `None` for other types.
pub(super) fn role(kind: u16) -> Option<Role> {
    use item_type::{ATTRD, ATTRI, BUD, BUI, CUD, CUI, EFD, EFI, RUD, RUI, XMD, XMI};
    Some(match kind {
        EFI | RUI | CUI | BUI | ATTRI | XMI => Role::Intent,
        EFD => Role::Done(EFI),
        RUD => Role::Done(RUI),
        CUD => Role::Done(CUI),
        BUD => Role::Done(BUI),
        ATTRD => Role::Done(ATTRI),
        XMD => Role::Done(XMI),
        _ => return None,
    })
}

/// The number of an intent, or of the intent that a done item finishes: it is at the same offset in all of them.
pub(super) fn intent_id(format: &[u8]) -> Verdict<u64> {
    let id = format.get(8..16).and_then(|bytes| bytes.try_into().ok());
    id.map(u64::from_le_bytes)
        .ok_or_else(|| Corruption::new("log intent", "names its number").found(format_args!("{} bytes", format.len())))
}

/// Intents whose done items have not been read.
#[derive(Default)]
pub(super) struct PendingIntents {
    /// By the order of the log.
    list: BTreeMap<u64, RecoveredIntent>,
    /// Places in the list, by type and number. A number is used again when its intent is done.
    by_id: HashMap<(u16, u64), VecDeque<u64>>,
    met: u64,
}

impl PendingIntents {
    /// Adds an intent.
    pub(super) fn add(&mut self, lsn: Lsn, item: LogItemRegions<'_>) -> Verdict {
        let (kind, id) = (item.item_type(), intent_id(item.format())?);
        let regions = item.regions().map(<[u8]>::to_vec).collect();
        self.met += 1;
        self.list.insert(self.met, RecoveredIntent::new(lsn, kind, id, regions));
        self.by_id.entry((kind, id)).or_default().push_back(self.met);
        Ok(())
    }

    /// Takes off the intent of type `kind` that a done item finishes. Does nothing if the intent is from before the
    /// tail.
    pub(super) fn finish(&mut self, kind: u16, id: u64) {
        if let Some(places) = self.by_id.get_mut(&(kind, id)) {
            if let Some(place) = places.pop_front() {
                self.list.remove(&place);
            }
            if places.is_empty() {
                self.by_id.remove(&(kind, id));
            }
        }
    }

    /// The intents without a done item, in the order of the log.
    pub(super) fn into_list(self) -> Vec<Arc<RecoveredIntent>> {
        self.list.into_values().map(Arc::new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::replay::LogTransaction;

    /// The numbers of `XFS_LI_EFI` to `XFS_LI_XMD` in the kernel's `xfs_log_format.h`, each intent with its done item.
    const PAIRS: [(u16, u16); 6] =
        [(0x1236, 0x1237), (0x1240, 0x1241), (0x1242, 0x1243), (0x1244, 0x1245), (0x1246, 0x1247), (0x1248, 0x1249)];

    fn format(kind: u16, id: u64) -> Vec<Vec<u8>> {
        vec![[&kind.to_le_bytes()[..], &[1, 0, 0, 0, 0, 0], &id.to_le_bytes()].concat()]
    }

    #[test]
    fn a_done_item_takes_off_the_intent_of_its_type_and_number() {
        for (intent, done) in PAIRS {
            let mut pending = PendingIntents::default();
            let log =
                LogTransaction::made_up(Lsn(1), PAIRS.iter().flat_map(|(kind, _)| [1, 2].map(|id| format(*kind, id))));
            for item in log.items() {
                assert!(matches!(role(item.item_type()), Some(Role::Intent)));
                pending.add(Lsn(1), item).unwrap();
            }
            let Some(Role::Done(of)) = role(done) else { panic!("{done:#x} is no done item") };
            assert_eq!(of, intent);
            pending.finish(of, 2);
            pending.finish(of, 3);
            let left: Vec<_> = pending.into_list().iter().map(|intent| (intent.item_type, intent.id)).collect();
            let all = PAIRS.iter().flat_map(|(kind, _)| [(*kind, 1), (*kind, 2)]);
            assert_eq!(left, all.filter(|found| *found != (intent, 2)).collect::<Vec<_>>());
        }
        assert!([0x1234, 0x123b, 0x123c, 0x124a].into_iter().all(|kind| role(kind).is_none()));
    }
}

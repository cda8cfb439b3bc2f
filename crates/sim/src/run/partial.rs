//! A run on a device of which one place fails: what must go on, and what must be durable all the same.

use super::{Run, Stop};
use crate::bad_place::Refused;
use crate::device::{Event, Fault, Kept};
use crate::model::NodeId;
use crate::operation::Operation;
use xfskit::mount::Mount;
use xfskit::volume::{Error, Volume};

impl Run {
    /// Looks at the filesystem as if its device had no bad place. The filesystem's own work meets it.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Volume) -> T) -> T {
        let fault = self.device.fault();
        if matches!(fault, Some(Fault::BadPlace(_))) {
            self.device.set_fault(None);
        }
        let seen = look(self.fs());
        self.device.set_fault(fault);
        seen
    }

    /// An operation shut the filesystem down, or met that it was. A place that refuses to be written may do so only to
    /// the log, and to values of attributes, which must precede the log: contents stay in memory and metadata in the
    /// log.
    pub(super) fn why_shut_down(&self, operation: &Operation) -> Stop {
        let Some(Fault::BadPlace(place)) = self.device.fault() else { return Stop::Device };
        let refused = self.device.take_refused();
        if refused.reads > 0 || super::log_of(self.fs().mount()).contains(&place.offset) || refused.values > 0 {
            return Stop::Device;
        }
        let reason = self.fs().mount().journal.check().err().map_or(String::new(), |error| error.to_string());
        Stop::Wrong(format!("{operation} met a bad place that is neither log nor value: {reason}"))
    }

    /// What a sync or an fsync says of durability that answered with an I/O error and did not shut the filesystem down:
    /// all names and attributes are durable, and after a sync the contents of every file of which the device refused
    /// nothing.
    pub(super) fn acknowledge_others(&mut self, operation: &Operation, number: usize) {
        let refused = self.device.take_refused();
        match operation {
            Operation::Sync => self.keep_others(number, &refused),
            Operation::Fsync { node } => {
                self.acknowledged = self.acknowledged.max(self.last.get(node).copied().unwrap_or(0));
                self.device.mark(Event::Acknowledged(self.acknowledged));
            }
            _ => {}
        }
    }

    /// An unmount failed. Where it could write the log and values, everything was durable before it met the bad place,
    /// whether the filesystem lives on or was shut down.
    pub(super) fn keep_what_unmount_forced(&mut self, mount: &Mount, error: &Error) {
        let refused = self.device.take_refused();
        let Some(Fault::BadPlace(place)) = self.device.fault() else { return };
        let could_force = refused.reads == 0 && refused.values == 0 && !super::log_of(mount).contains(&place.offset);
        if matches!(error, Error::Io { .. }) && (could_force || mount.journal.check().is_ok()) {
            self.keep_others(self.digests.len() - 1, &refused);
        }
    }

    /// Everything up to an operation is durable but files of which the device refused contents.
    pub(super) fn keep_others(&mut self, number: usize, refused: &Refused) {
        self.acknowledged = number;
        self.device.mark(Event::Acknowledged(number));
        // What is not a file's contents may be what any file needs.
        let is_theirs = |node: &NodeId| self.model.contents(*node).sectors().any(|sector| refused.has(sector));
        let (bad, good): (Vec<_>, Vec<_>) = self.model.files().into_iter().partition(is_theirs);
        if refused.reads == 0 && refused.writes > 0 && !bad.is_empty() {
            for node in good {
                self.device.mark(Event::Kept(Some(node), number, Kept::ContentsAndTimes));
            }
        }
    }
}

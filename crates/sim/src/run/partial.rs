//! A run on a device with a bad place: what must go on, and what must be durable all the same.

use super::Run;
use crate::bad_place::Refused;
use crate::device::Fault;
use crate::events::{DurableParts, Event};
use crate::node::NodeId;
use crate::operation::Operation;
use crate::stop::Stop;
use xfskit_engine::mount::Mount;
use xfskit_engine::{Error, Volume};

impl Run {
    /// Calls `look` while the bad place is switched off, so that the reads of the test do not meet it.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Volume) -> T) -> T {
        let fault = self.device.fault();
        if matches!(fault, Some(Fault::BadPlace(_))) {
            self.device.set_fault(None);
        }
        let seen = look(self.fs());
        self.device.set_fault(fault);
        seen
    }

    /// Why an operation found the filesystem shut down. A bad place that refuses writes may cause that only in the log,
    /// and in attribute values, which must be on the device before the log: contents stay in memory, and metadata in
    /// the log. A refused read may always cause it.
    pub(super) fn why_shut_down(&self, operation: &Operation) -> Stop {
        let Some(Fault::BadPlace(place)) = self.device.fault() else { return Stop::Device };
        let refused = self.device.take_refused();
        if refused.reads > 0 || super::log_of(self.fs().mount()).contains(&place.offset) || refused.values > 0 {
            return Stop::Device;
        }
        let reason = self.fs().mount().journal.check().err().map_or(String::new(), |error| error.to_string());
        Stop::Wrong(format!("{operation} met a bad place that is neither log nor value: {reason}"))
    }

    /// Records what is durable after a sync or an fsync that returned an I/O error and did not shut the filesystem
    /// down: names and attributes, and after a sync the contents of every file of which the device refused nothing.
    /// Times that were set alone may wait for the contents, which the device has refused.
    pub(super) fn acknowledge_others(&mut self, operation: &Operation, number: usize) {
        let refused = self.device.take_refused();
        match operation {
            Operation::Sync => self.keep_others(number, &refused),
            Operation::Fsync { node } => {
                self.acknowledged = self.acknowledged.max(self.last_logged.get(node).copied().unwrap_or(0));
                self.device.mark(Event::Acknowledged(self.acknowledged));
            }
            _ => {}
        }
    }

    /// Records what is durable after an unmount that failed. If it could write the log and the attribute values,
    /// everything was durable before it met the bad place, whether the filesystem goes on or was shut down.
    pub(super) fn keep_what_unmount_forced(&mut self, mount: &Mount, error: &Error) {
        let refused = self.device.take_refused();
        let Some(Fault::BadPlace(place)) = self.device.fault() else { return };
        let could_force = refused.reads == 0 && refused.values == 0 && !super::log_of(mount).contains(&place.offset);
        if matches!(error, Error::Io { .. }) && (could_force || mount.journal.check().is_ok()) {
            self.keep_others(self.digests.len() - 1, &refused);
        }
    }

    /// Records that everything up to an operation is durable, except the contents of files that the device refused.
    pub(super) fn keep_others(&mut self, number: usize, refused: &Refused) {
        self.acknowledged = number;
        self.device.mark(Event::Acknowledged(number));
        // A refused write that is no file's contents may be metadata, which any file may need.
        let is_theirs = |node: &NodeId| self.model.contents(*node).sectors().any(|sector| refused.has(sector));
        let (bad, good): (Vec<_>, Vec<_>) = self.model.files().into_iter().partition(is_theirs);
        if refused.reads == 0 && refused.writes > 0 && !bad.is_empty() {
            for node in good {
                self.device.mark(Event::FileDurable(Some(node), number, DurableParts::ContentsAndTimes));
            }
        }
    }
}

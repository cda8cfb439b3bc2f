//! Records of the log and the operations in them.

use crate::open::session::Session;
use crate::open::volume::{open_log, open_to_look};
use crate::output::error::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice};
use xfskit_engine::journal::{LogState, Operation, Record, RecordReader};
use xfskit_engine::open::FoundLog;
use xfskit_engine::{Error, RecoveredDevices, Volume};
use xfskit_ondisk::log_record::{CLIENT_LOG, operation_flags as flags};
use xfskit_ondisk::{Lsn, Superblock, SuperblockError};

const MAX_SECTOR_BYTES: u64 = 32 * 1024;

/// The log of an image.
pub struct Journal {
    /// The position of the log, and the end of its records.
    pub log: FoundLog,
    device: Arc<dyn BlockDevice>,
    log_device: Option<Arc<dyn BlockDevice>>,
}

impl Journal {
    /// Opens the log of an image without opening the filesystem, so that the log of a damaged one can be shown.
    pub fn open(session: &Session, image: &Path, log_device: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| open_log(session, path, Access::Read);
        let (device, log_device) = (open_to_look(session, image)?.0, log_device.map(open).transpose()?);
        let log = FoundLog::find(Arc::clone(&device), log_device.clone());
        let log = log.with_context(|| image.display().to_string())?;
        Ok(Self { log, device, log_device })
    }

    /// Recovers the image in memory, as every command that reads it does.
    pub fn recover(&self) -> Result<RecoveredDevices, Error> {
        Volume::recover_in_memory(Arc::clone(&self.device), self.log_device.clone())
    }

    /// Size in basic blocks.
    pub fn blocks(&self) -> u32 {
        self.log.place.basic_blocks
    }

    /// Passes records to `look`, the oldest first.
    pub fn records(&self, which: Which, look: impl FnMut(Lsn, Found<'_>) -> Result<()>) -> Result<()> {
        match which {
            Which::Live => self.live_records(look),
            Which::All => self.all_records(look),
        }
    }

    fn live_records(&self, mut look: impl FnMut(Lsn, Found<'_>) -> Result<()>) -> Result<()> {
        let place = &self.log.place;
        let head = self.log.head;
        let last = head.last_record_block;
        let from = match self.log.state {
            LogState::Dirty { tail } => tail,
            LogState::Clean if last < head.next.block() => Lsn::new(head.next.cycle(), last),
            LogState::Clean => Lsn::new(head.next.cycle() - 1, last),
        };
        let blocks = place.distance(from.block(), head.next.block());
        let mut reader = RecordReader::new(place, self.log.uuid, from, blocks);
        loop {
            match reader.read_next() {
                Ok(Some(record)) => look(record.lsn, Ok(&record))?,
                Ok(None) => return Ok(()),
                // After a record that cannot be read, the position of the next one is unknown.
                Err(error) => return look(reader.next(), Err(error.to_string())),
            }
        }
    }

    fn all_records(&self, mut look: impl FnMut(Lsn, Found<'_>) -> Result<()>) -> Result<()> {
        for lsn in self.log.place.record_starts(&self.log.uuid)? {
            let mut reader = RecordReader::new(&self.log.place, self.log.uuid, lsn, self.blocks());
            match reader.read_next() {
                Ok(Some(record)) => look(lsn, Ok(&record))?,
                Ok(None) => {}
                Err(error) => look(lsn, Err(error.to_string()))?,
            }
        }
        Ok(())
    }
}

/// The state of the journal on a device, in a word or a few: what recovery in memory makes of it.
///
/// # Errors
/// `Unsupported` for a filesystem in which nothing is wrong, and that cannot be opened here.
pub fn state_in_words(device: &Arc<dyn BlockDevice>) -> Result<&'static str, String> {
    let mut sector = vec![0; device.size_bytes().min(MAX_SECTOR_BYTES) as usize];
    let superblock = device.read(0, &mut sector).ok().map(|()| Superblock::decode(&sector));
    match superblock {
        Some(Ok(superblock)) if superblock.has_external_log() => return Ok("on another device"),
        Some(Err(SuperblockError::Unsupported(why))) => return Err(why.to_string()),
        _ => {}
    }
    match Volume::recover_in_memory(Arc::clone(device), None) {
        Ok(recovered) if recovered.log_state == LogState::Clean => Ok("clean"),
        Ok(_) => Ok("dirty"),
        Err(Error::Unsupported(why)) => Err(why),
        Err(_) => Ok("damaged, or its superblock is"),
    }
}

/// Which records of a log are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that recovery reads, from the tail to the head; of a clean log the last one.
    Live,
    /// Every one that is still there.
    All,
}

/// A record, or its error.
pub type Found<'a> = Result<&'a Record<'a>, String>;

/// The names of the flags of an operation.
pub fn flag_names(operation: &Operation<'_>) -> Vec<&'static str> {
    let names = [
        (flags::START, "start"),
        (flags::COMMIT, "commit"),
        (flags::CONTINUE, "continues"),
        (flags::WAS_CONTINUED, "continued"),
        (flags::END, "end"),
        (flags::UNMOUNT, "unmount"),
    ];
    names.iter().filter(|(flag, _)| has(operation, *flag)).map(|(_, name)| *name).collect()
}

/// Whether an operation has a flag.
pub fn has(operation: &Operation<'_>, flag: u8) -> bool {
    operation.header.flags & flag != 0
}

/// Whether an operation belongs to the log itself.
pub fn is_log(operation: &Operation<'_>) -> bool {
    operation.header.client == CLIENT_LOG
}

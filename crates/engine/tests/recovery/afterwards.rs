//! The recovery after the next mount must not misread records that the first recovery left in the log.

use crate::device::{Device, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_engine::env::SeededEnvironment;
use xfskit_engine::{AttrLogging, AttrPath, Caller, Error, MountOptions, NewFile, SetMode, Volume, XattrChange};

type Sectors = BTreeMap<u64, [u8; 512]>;

fn base() -> Option<Arc<Vec<u8>>> {
    let reference = xfskit_testkit::reference()?;
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 320 << 20);
    reference.tool_output("mkfs.xfs", ["-q", path.to_str().unwrap()]);
    Some(Arc::new(std::fs::read(&path).unwrap()))
}

fn open(device: &Arc<Device>, options: MountOptions) -> Result<Volume, Error> {
    Volume::open_in(Arc::clone(device) as Arc<dyn BlockDevice>, None, options, Arc::new(SeededEnvironment::new(1)))
}

/// Makes four hundred files and syncs; then the power fails. Returns what was written, and the sectors at which log
/// records start.
fn make_files(base: &Arc<Vec<u8>>, sectors: Sectors, prefix: &str) -> (Sectors, Vec<u64>) {
    let device = Device::new(base, State { sectors, ..State::default() });
    let fs = open(&device, MountOptions::default()).unwrap();
    for n in 0..400 {
        let name = format!("{prefix}{n:04}");
        fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap();
    }
    fs.sync().unwrap();
    let sectors = device.state().sectors.clone();
    drop(fs);
    let is_record =
        |(_, bytes): &(&u64, &[u8; 512])| bytes[..4] == [0xfe, 0xed, 0xba, 0xbe] && bytes[8..12] == [0, 0, 0, 2];
    let records = sectors.iter().filter(is_record).map(|(at, _)| *at).collect();
    (sectors, records)
}

/// The first record behind an unmount record did not arrive, later ones did: the log is clean. The next mount writes a
/// record of its own in that place, and the power fails again. Recovery must not go on with the records of the first
/// mount behind it.
#[test]
fn records_behind_a_clean_log_are_not_continued() {
    let Some(base) = base() else { return };
    let (old, records) = make_files(&base, Sectors::new(), "old-");
    assert!(records.len() > 2, "{records:?}");
    let mut cut: Sectors = old.range(records[1]..).map(|(at, bytes)| (*at, *bytes)).collect();
    // The writes of the second mount's opening arrive, since it flushes them. Of its later writes only the first record
    // arrives.
    let device = Device::new(&base, State { sectors: cut.clone(), ..State::default() });
    drop(open(&device, MountOptions::default()).unwrap());
    cut.extend(device.state().sectors.iter().map(|(at, bytes)| (*at, *bytes)));
    let (new, _) = make_files(&base, cut.clone(), "new-");
    cut.extend(new.range(records[0]..records[1]).map(|(at, bytes)| (*at, *bytes)));
    let device = Device::new(&base, State { sectors: cut, ..State::default() });
    let fs = open(&device, MountOptions::default()).unwrap();
    let names = fs.list_dir(fs.root()).unwrap();
    assert!(names.iter().all(|entry| entry.name.starts_with(b".")), "{} names", names.len());
    fs.unmount().unwrap();
    let scratch = xfskit_testkit::scratch();
    let path = scratch.file("cut.img");
    std::fs::write(&path, device.contents()).unwrap();
    xfskit_testkit::reference().unwrap().repair_finds_nothing(&path);
}

/// Recovery of pending intents is cut off within its first checkpoint, and cut off again after the next mount's first.
/// The checkpoints must have different numbers, or the third recovery finds a transaction that begins twice.
#[test]
fn recovery_is_cut_off_twice() {
    let Some(base) = base() else { return };
    let device = Device::new(&base, State::default());
    let options =
        MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..MountOptions::default() };
    let fs = open(&device, options).unwrap();
    let file = fs.create(fs.root(), b"f", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    fs.sync().unwrap();
    fs.mount().error_tags.arm(xfskit_engine::error_tags::LARP, 1);
    let change = |n: u32| XattrChange { name: format!("user.{n}").into_bytes(), value: Some(vec![7; 2500]) };
    assert!(fs.change_xattrs(file, &(0..40).map(change).collect::<Vec<_>>(), SetMode::Any, &Caller::root()).is_err());
    let first = device.state().sectors.clone();
    drop(fs);
    let recover = |sectors: &Sectors, writes_left| {
        let device = Device::new(&base, State { sectors: sectors.clone(), writes_left, ..State::default() });
        let found = open(&device, MountOptions::default()).map(|fs| fs.list_xattrs(file).unwrap().len());
        let state = device.state();
        (found, state.sectors.clone(), state.writes)
    };
    let (found, _, writes) = recover(&first, None);
    assert_eq!(found.unwrap(), 40);
    for once in 0..writes {
        let (_, second, _) = recover(&first, Some(once));
        let (_, _, writes) = recover(&second, None);
        for twice in (0..=writes).step_by(2) {
            let (_, third, _) = recover(&second, Some(twice));
            let (found, ..) = recover(&third, None);
            assert_eq!(found.unwrap_or_else(|e| panic!("cut after {once} and {twice} writes: {e}")), 40);
        }
    }
}

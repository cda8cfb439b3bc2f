//! Partitions that grow: sfdisk agrees, and a power cut at any place leaves a table with the old size or the new one.

mod common;

use common::{Loop, file, have, is_root, open, pattern, put, run, run_with};
use std::path::Path;
use std::sync::{Arc, Mutex};
use xfskit_device::{Access, BlockDevice, Fua, MemoryDevice, WrapsDevice};
use xfskit_disk::{Container, DiskError, Disks, Operand, Part, table};

const MIB: u64 = 1 << 20;
const GPT: &str = "label: gpt\nstart=1MiB,size=8MiB,name=a\nstart=20MiB,size=8MiB,name=b\n";
const MBR: &str = "label: dos\nstart=1MiB,size=8MiB\nstart=20MiB,size=8MiB\n";

fn disk(path: &Path, size_bytes: u64, script: &str) {
    file(path, size_bytes);
    run_with("sfdisk", &["-q", path.to_str().unwrap()], script);
}

/// The sizes of the partitions in bytes, as sfdisk says, which reads the backup where it must.
fn sizes(path: &Path) -> Vec<u64> {
    let text = run("sfdisk", &["--json", path.to_str().unwrap()]);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let partitions = found["partitiontable"]["partitions"].as_array().unwrap();
    partitions.iter().map(|partition| partition["size"].as_u64().unwrap() * 512).collect()
}

fn verify(path: &Path) {
    let text = run("sfdisk", &["--verify", path.to_str().unwrap()]);
    assert!(text.contains("No errors detected"), "{text}");
}

#[test]
fn a_partition_grows_as_far_as_there_is_room() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    for (name, script) in [("gpt", GPT), ("mbr", MBR)] {
        let path = dir.file(name);
        let shown = path.to_str().unwrap();
        disk(&path, 40 * MIB, script);
        // The disk grows first; the backup is then not at its end.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(64 * MIB).unwrap();
        let disks = open(shown, Access::Write).unwrap();
        let (one, two) = (Part::Partition(1), Part::Partition(2));
        assert_eq!(disks.most_bytes(&one).unwrap(), 19 * MIB);
        for (size, what) in [(20 * MIB, "room for"), (7 * MIB, "larger only"), (9 * MIB + 1, "multiple of 512")] {
            let error = disks.grow(&one, size).unwrap_err();
            assert!(matches!(error, DiskError::Part { .. }) && error.to_string().contains(what), "{error}");
        }
        disks.grow(&one, 19 * MIB).unwrap();
        drop(disks);
        assert_eq!(sizes(&path), [19 * MIB, 8 * MIB]);
        verify(&path);
        let disks = open(shown, Access::Write).unwrap();
        let most = disks.most_bytes(&two).unwrap();
        // A GPT has its backup in the last 33 sectors.
        assert_eq!(most, if name == "gpt" { 44 * MIB - 33 * 512 } else { 44 * MIB });
        disks.grow(&two, most).unwrap();
        drop(disks);
        assert_eq!(sizes(&path), [19 * MIB, most]);
        verify(&path);
        let text = run("sfdisk", &["--dump", shown]);
        assert_eq!(text.matches("start=").count(), 2, "{text}");
    }
}

#[test]
fn a_table_of_sectors_of_4096_bytes_grows() {
    if !have("sfdisk") || !is_root() {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let path = dir.file("gpt");
    file(&path, 40 * MIB);
    let device = Loop::new(&path, 4096);
    run_with("sfdisk", &["-q", &device.0], GPT);
    drop(device);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(64 * MIB).unwrap();
    let disks = open(path.to_str().unwrap(), Access::Write).unwrap();
    let most = disks.most_bytes(&Part::Partition(2)).unwrap();
    disks.grow(&Part::Partition(2), most).unwrap();
    drop(disks);
    let device = Loop::new(&path, 4096);
    verify(Path::new(&device.0));
    let text = run("sfdisk", &["--json", &device.0]);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let table = &found["partitiontable"];
    assert_eq!(table["partitions"][1]["size"].as_u64().unwrap() * 4096, most);
    assert_eq!(table["lastlba"].as_u64().unwrap() * 4096, 20 * MIB + most - 4096);
}

#[test]
fn what_cannot_grow_is_refused() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let path = dir.file("mbr");
    disk(&path, 64 * MIB, "label: dos\nstart=1MiB,size=8MiB\nstart=20MiB,size=20MiB,type=f\nstart=21MiB,size=4MiB\n");
    let disks = open(path.to_str().unwrap(), Access::Write).unwrap();
    let before = std::fs::read(&path).unwrap();
    for (part, what) in [(Part::Partition(5), "logical"), (Part::Whole, "lvextend"), (Part::Partition(9), "no such")] {
        let error = disks.grow(&part, 50 * MIB).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    drop(disks);
    let gpt = dir.file("gpt");
    disk(&gpt, 40 * MIB, GPT);
    put(&gpt, 512 + 40, &[9]);
    let disks = open(gpt.to_str().unwrap(), Access::Write).unwrap();
    let error = disks.grow(&Part::Partition(1), 9 * MIB).unwrap_err().to_string();
    assert!(error.contains("mend the table first"), "{error}");
    assert!(std::fs::read(&path).unwrap() == before);
}

/// A sector that was written, or a flush.
type Event = Option<(u64, Vec<u8>)>;

/// A device in memory that notes what happens to it.
struct Recorder {
    device: MemoryDevice,
    events: Mutex<Vec<Event>>,
}

impl WrapsDevice for Recorder {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.device
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> std::io::Result<()> {
        let mut events = self.events.lock().unwrap();
        for (number, sector) in data.chunks(512).enumerate() {
            events.push(Some((offset + number as u64 * 512, sector.to_vec())));
        }
        fua.write(&self.device, offset, data)
    }

    fn pass_flush(&self) -> std::io::Result<()> {
        self.events.lock().unwrap().push(None);
        Ok(())
    }
}

#[test]
fn a_power_cut_leaves_a_valid_table() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    for (name, script) in [("gpt", GPT), ("mbr", MBR)] {
        for grown in [40 * MIB, 40 * MIB + 4096, 48 * MIB] {
            let path = dir.file(name);
            disk(&path, 40 * MIB, script);
            std::fs::File::options().write(true).open(&path).unwrap().set_len(grown).unwrap();
            let base = std::fs::read(&path).unwrap();
            let device = MemoryDevice::from_bytes(base.clone());
            let recorder = Arc::new(Recorder { device, events: Mutex::default() });
            let operand = Operand { paths: vec![name.into()], part: Part::Unnamed };
            let open = |path: &Path| Container::of_device(path, Arc::clone(&recorder) as _);
            Disks::open_with(&operand, Access::Write, open).unwrap().grow(&Part::Partition(2), 9 * MIB).unwrap();
            let events = recorder.events.lock().unwrap();
            assert!(events.last() == Some(&None), "what was written is durable");
            let left = MemoryDevice::from_bytes(base.clone());
            for round in 0..400usize {
                let choices = pattern(events.len() + 8, round as u64 * 7919 + 13);
                let cut = usize::from(u16::from_le_bytes([choices[0], choices[1]])) % (events.len() + 1);
                let settled = events[..cut].iter().rposition(Option::is_none).unwrap_or(0);
                let arrived = |number: &usize| *number < settled || choices[8 + number] & 1 == 0;
                let written: Vec<_> = (0..cut).filter(arrived).filter_map(|number| events[number].as_ref()).collect();
                written.iter().for_each(|(offset, sector)| left.write(*offset, sector).unwrap());
                let found = table(&left).unwrap().expect("a table");
                let lengths: Vec<u64> = found.partitions.iter().map(|partition| partition.length).collect();
                let right = [vec![8 * MIB, 8 * MIB], vec![8 * MIB, 9 * MIB]];
                assert!(right.contains(&lengths), "{name}, cut {cut} of {}: {found:?}", events.len());
                if round % 20 == 0 {
                    written.iter().for_each(|(offset, sector)| put(&path, *offset, sector));
                    let theirs = sizes(&path);
                    assert!(right.contains(&theirs), "{name}, cut {cut}: sfdisk says {theirs:?}");
                }
                for (offset, sector) in written {
                    let before = &base[*offset as usize..][..sector.len()];
                    left.write(*offset, before).unwrap();
                    put(&path, *offset, before);
                }
            }
        }
    }
}

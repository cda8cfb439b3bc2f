//! LVM2 groups as lvm2 makes them, on loop devices and without the device mapper.

mod common;

use common::{Loop, choose, file, have, is_root, open, pattern, run};
use std::path::PathBuf;
use xfskit_device::{Access, BlockDevice};

const MIB: u64 = 1 << 20;

/// A segment's start, size and stripe size, and the disk and the offset of each stripe.
type Segment = (u64, u64, u64, Vec<(usize, u64)>);

/// Two physical volumes and a group on them.
struct Group {
    dir: xfskit_testkit::Scratch,
    disks: Vec<PathBuf>,
    loops: Vec<Loop>,
    config: String,
}

impl Group {
    /// `area` is the size of the metadata on each physical volume.
    fn new(area: &str) -> Self {
        let dir = xfskit_testkit::scratch();
        let disks = vec![dir.file("a.img"), dir.file("b.img")];
        let loops: Vec<Loop> = disks
            .iter()
            .map(|disk| {
                file(disk, 96 * MIB);
                Loop::new(disk, 512)
            })
            .collect();
        let filter: String = loops.iter().map(|device| format!("\"a|^{}$|\",", device.0)).collect();
        let config = format!(
            "devices{{scan=[\"/dev\"] use_devicesfile=0 filter=[{filter}\"r|.*|\"] obtain_device_list_from_udev=0 \
             external_device_info_source=\"none\"}} backup{{backup=0 archive=0}} \
             activation{{udev_sync=0 udev_rules=0}} \
             global{{event_activation=0 locking_dir=\"{}\"}}",
            dir.file("lock").display()
        );
        let group = Self { dir, disks, loops, config };
        let (a, b) = (group.loops[0].0.clone(), group.loops[1].0.clone());
        group.lvm("pvcreate", &["--metadatasize", area, &a]);
        group.lvm("pvcreate", &["--metadatasize", area, &b]);
        group.lvm("vgcreate", &["vg", &a, &b]);
        group
    }

    fn lvm(&self, command: &str, args: &[&str]) -> String {
        run("lvm", &[&[command, "--driverloaded", "n", "--config", &self.config], args].concat())
    }

    fn make(&self, args: &[&str]) {
        self.lvm("lvcreate", &[&["-an", "-Zn", "-Wn"], args, &["vg"]].concat());
    }

    fn operand(&self) -> String {
        format!("{},{}", self.disks[1].display(), self.disks[0].display())
    }

    /// Where a volume's bytes lie, as lvm2 says.
    fn segments(&self, name: &str) -> Vec<Segment> {
        let format = ["--noheadings", "--units", "b", "--nosuffix", "--separator", ";", "-o"];
        let pvs = self.lvm("pvs", &[&format[..], &["pv_name,pe_start"]].concat());
        let start = |device: &str| -> (usize, u64) {
            let line = pvs.lines().find(|line| line.trim().starts_with(&format!("{device};"))).unwrap();
            let number = self.loops.iter().position(|own| own.0 == device).unwrap();
            (number, line.trim().split(';').nth(1).unwrap().parse().unwrap())
        };
        let columns = "seg_start,stripe_size,seg_size,devices";
        let volume = format!("vg/{name}");
        let lvs = self.lvm("lvs", &[&["--segments"], &format[..], &[columns, &volume]].concat());
        let segment = |line: &str| {
            let fields: Vec<&str> = line.trim().split(';').collect();
            let places = fields[3].split(',').map(|place| {
                let (device, extent) = place.trim_end_matches(')').split_once('(').unwrap();
                let (number, start) = start(device);
                (number, start + extent.parse::<u64>().unwrap() * 4 * MIB)
            });
            (fields[0].parse().unwrap(), fields[2].parse().unwrap(), fields[1].parse().unwrap(), places.collect())
        };
        lvs.lines().map(segment).collect()
    }
}

#[test]
fn linear_and_striped_volumes_lie_where_lvm_says() {
    if !have("lvm") || !is_root() {
        return;
    }
    let group = Group::new("1m");
    let (a, b) = (group.loops[0].0.clone(), group.loops[1].0.clone());
    group.make(&["-n", "many", "-l", "3"]);
    group.make(&["-n", "str", "-l", "4", "-i", "2", "-I", "16k"]);
    group.lvm("lvextend", &["-l", "+2", "vg/many", &b]);
    group.lvm("lvextend", &["-l", "+1", "vg/many", &a]);
    group.make(&["-n", "wide", "-l", "8", "-i", "2", "-I", "4m"]);
    group.make(&["-n", "ro", "-l", "1", "-pr"]);
    let volumes = ["many", "str", "wide"];
    let segments: Vec<_> = volumes.iter().map(|name| group.segments(name)).collect();
    assert!(segments[0].len() > 1 && segments[1][0].3.len() == 2);
    let operand = group.operand();
    // The loop devices have to go first, since they use the disks.
    let Group { dir: _dir, disks, loops, .. } = group;
    drop(loops);
    for (name, segments) in volumes.iter().zip(&segments) {
        let size: u64 = segments.iter().map(|segment| segment.1).sum();
        let data = pattern(size as usize, 99);
        let device = choose(&format!("{operand}#lv=vg/{name}"), Access::Write).unwrap();
        assert_eq!(device.size_bytes(), size);
        for (number, piece) in data.chunks(100_000).enumerate() {
            device.write(number as u64 * 100_000, piece).unwrap();
        }
        device.flush().unwrap();
        drop(device);
        let bytes: Vec<Vec<u8>> = disks.iter().map(|disk| std::fs::read(disk).unwrap()).collect();
        for (start, size, stripe, places) in segments {
            let stripe = if places.len() == 1 { *size } else { *stripe };
            for chunk in 0..size / stripe {
                let (disk, offset) = places[(chunk % places.len() as u64) as usize];
                let at = (offset + chunk / places.len() as u64 * stripe) as usize;
                let from = (start + chunk * stripe) as usize;
                let stripe = stripe as usize;
                assert!(bytes[disk][at..at + stripe] == data[from..from + stripe], "{name}: chunk {chunk}");
            }
        }
    }
    let tree = open(&operand, Access::Read).unwrap();
    assert_eq!(tree.groups[0].volumes.len(), 4);
    drop(tree);
    choose(&format!("{operand}#lv=vg/ro"), Access::Read).unwrap();
    assert!(choose(&format!("{operand}#lv=vg/ro"), Access::Write).is_err());
    // With one disk missing, the error says which.
    let one = disks[0].to_str().unwrap();
    let error = choose(&format!("{one}#lv=vg/str"), Access::Read).err().unwrap().to_string();
    assert!(error.contains("is on none of the disks"), "{error}");
}

#[test]
fn the_newest_metadata_counts_and_its_ring_may_wrap() {
    if !have("lvm") || !is_root() {
        return;
    }
    let group = Group::new("32k");
    group.make(&["-n", "v0", "-l", "1"]);
    // Each change writes a new text of more than 1 KiB into the ring, which takes 64 KiB at most.
    let mut last = String::from("v0");
    for number in 1..=90 {
        let next = format!("v{number}");
        group.lvm("lvrename", &["vg", &last, &next]);
        last = next;
        if number % 3 == 0 {
            let tree = open(group.disks[0].to_str().unwrap(), Access::ReadUnlocked).unwrap();
            assert_eq!(tree.groups[0].volumes[0].0.name, last);
            assert!(tree.disks[0].warnings.is_empty());
        }
    }
}

//! Logs with bad records, beside the kernel's recovery.

use crate::{make, stress};
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Error, MountOptions, Volume};

/// The places of the log's records, in their order.
fn records(image: &[u8]) -> Vec<usize> {
    let is_record = |offset: &usize| image[*offset..].starts_with(&[0xfe, 0xed, 0xba, 0xbe]);
    (0..image.len()).step_by(512).filter(is_record).collect()
}

/// How many names a dirty image shows after recovery; an error if it is refused as damaged.
fn recovered(image: &Path) -> Result<usize, String> {
    let device = Arc::new(FileDevice::open(image, Access::Write).unwrap());
    let fs = match Volume::open(device, MountOptions::default()) {
        Err(error @ Error::Corrupt(_)) => return Err(error.to_string()),
        other => other.unwrap(),
    };
    let count = fs.entries(fs.root()).unwrap().count();
    fs.unmount().unwrap();
    Ok(count)
}

/// The same, by the kernel; `None` where it refuses the image.
fn recovered_by_the_kernel(image: &Path) -> Option<Option<usize>> {
    let mount = xfskit_testkit::try_kernel_mount(image, None, &[])?.ok();
    Some(mount.map(|mount| {
        let count = std::fs::read_dir(mount.path()).unwrap().count();
        mount.unmount();
        count
    }))
}

/// A record that is not whole was in flight when the power failed, if it is one of the last eight. Otherwise those
/// behind it were written when it was durable, and it is damaged: to end there would drop what an fsync has answered.
#[test]
fn a_bad_record_is_the_end_of_the_log_only_where_it_may_have_been_in_flight() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    for number in 0..30 {
        let file = make(&fs, &format!("file {number}"));
        fs.fsync(file).unwrap();
    }
    let dirty = std::fs::read(&image.path).unwrap();
    image.close(fs);
    let records = records(&dirty);
    assert!(records.len() > 30, "{} records", records.len());
    let path = image.path.with_extension("damaged");
    let newest = records.len() - 1;
    for (bad, place) in [(3, 600), (newest - 9, 600), (newest - 7, 600), (newest - 2, 600), (5, 0)] {
        let mut bytes = dirty.clone();
        bytes[records[bad] + place] ^= 0x55;
        std::fs::write(&path, &bytes).unwrap();
        let kernels = recovered_by_the_kernel(&path);
        std::fs::write(&path, &bytes).unwrap();
        let ours = recovered(&path);
        assert_eq!(ours.is_ok(), newest - bad < 8, "record {bad} of {newest}: {ours:?}");
        if let Some(kernels) = kernels {
            assert_eq!(ours.ok(), kernels, "record {bad} of {newest}");
        }
    }
}

/// The same where the log has fewer records, whatever part of one is wrong: its magic, its length, its place, the
/// number of the pass, what it contains. What is whole before it counts.
#[test]
fn what_is_whole_before_a_bad_record_is_recovered() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    for number in 0..3 {
        let file = make(&fs, &format!("file {number}"));
        fs.fsync(file).unwrap();
    }
    let dirty = std::fs::read(&image.path).unwrap();
    image.close(fs);
    let records = records(&dirty);
    assert!((4..8).contains(&records.len()), "{} records", records.len());
    let path = image.path.with_extension("damaged");
    let mut names = std::collections::BTreeSet::new();
    for (bad, record) in records.iter().enumerate().skip(1) {
        for place in [0, 13, 14, 22, 600] {
            let mut bytes = dirty.clone();
            bytes[record + place] ^= 0x55;
            std::fs::write(&path, &bytes).unwrap();
            let kernels = recovered_by_the_kernel(&path);
            std::fs::write(&path, &bytes).unwrap();
            let ours = recovered(&path);
            names.extend(ours.clone());
            // The kernel takes a bad header at the tail for one that torn records have overwritten, although none is
            // torn, and replays what is behind it.
            assert!(ours.is_ok() || bad == 1 && place < 600, "byte {place} of record {bad}: {ours:?}");
            if let (Ok(ours), Some(kernels)) = (ours, kernels) {
                assert_eq!(Some(ours), kernels, "byte {place} of record {bad} of {}", records.len());
            }
        }
    }
    assert_eq!(names, (0..3).collect());
}

//! A full image, for programs that write through the kernel's cache and for those that bypass it.

mod common;

use common::{Fixture, mounted_with};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;
use xfskit_fuse::WriteCache;

const IMAGE_BYTES: u64 = 64 << 20;
/// Far more dirty data than the kernel allows one FUSE mount: a hundredth of what it allows in all.
const MAX_BYTES: u64 = 4 << 30;

fn mounted(cache: WriteCache) -> Option<Fixture> {
    let mut fixture = mounted_with(IMAGE_BYTES)?;
    fixture.remount(cache);
    Some(fixture)
}

/// Writes until an error; returns the number of bytes written, and the error.
fn fill(file: &mut File, piece: &[u8]) -> (u64, Option<i32>) {
    let mut done = 0;
    while done < MAX_BYTES {
        if let Err(error) = file.write_all(piece) {
            return (done, error.raw_os_error());
        }
        done += piece.len() as u64;
    }
    (done, None)
}

/// The program must get an error while it is writing.
#[test]
fn a_program_that_writes_on_and_on_hears_of_a_full_image() {
    let Some(fixture) = mounted(WriteCache::Back) else { return };
    fs::write(fixture.path("before"), "contents").unwrap();
    let mut file = File::create(fixture.path("file")).unwrap();
    let (done, error) = fill(&mut file, &vec![1; 1 << 20]);
    assert!(error == Some(28) && done < MAX_BYTES / 2, "{done} bytes, {error:?}");
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(28));
    drop(file);
    let mut figures = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(fixture.path(""), xfskit_fuse::STATS_XATTR, &mut figures).unwrap();
    let figures: serde_json::Value = serde_json::from_slice(&figures[..length]).unwrap();
    assert!(figures["state"]["refused_writes"].as_u64().unwrap() > 0, "{figures:#}");
    // After space is freed, writes succeed again.
    fs::remove_file(fixture.path("file")).unwrap();
    // The kernel sends the forget request of a removed file a moment later.
    let mut waits = 0..1000;
    while rustix::fs::statvfs(fixture.path("")).unwrap().f_bavail * 4096 < 8 << 20 {
        assert!(waits.next().is_some(), "no space is free");
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::write(fixture.path("after"), vec![2; 1 << 20]).unwrap();
    File::open(fixture.path("after")).unwrap().sync_all().unwrap();
    fixture.judge(|dir| {
        assert_eq!(fs::read(dir.join("before")).unwrap(), b"contents");
        assert!(fs::read(dir.join("after")).unwrap() == vec![2; 1 << 20]);
    });
}

/// Writes until an error, and counts as a program does that knows short counts.
fn fill_short(file: &mut File, piece: &[u8]) -> (u64, Option<i32>) {
    let mut done = 0;
    while done < MAX_BYTES {
        match file.write(piece) {
            Ok(count) => done += count as u64,
            Err(error) => return (done, error.raw_os_error()),
        }
    }
    (done, None)
}

/// Without the cache, every write reports its own result: how much was written before the space was used up, and
/// nothing was if it is an error, as with the kernel's XFS.
#[test]
fn without_the_cache_the_write_that_does_not_fit_fails() {
    let Some(fixture) = mounted(WriteCache::Through) else { return };
    let scratch = fixture.unmount();
    let copy = scratch.file("kernel.img");
    xfskit_testkit::copy_image(&scratch.file("a.img"), &copy);
    if let Some(kernel) = xfskit_testkit::kernel_mount(&copy) {
        let mut file = File::create(kernel.path().join("file")).unwrap();
        let (done, error) = fill_short(&mut file, &vec![1; 1 << 20]);
        assert_eq!((file.metadata().unwrap().size(), error), (done, Some(28)), "the kernel's XFS");
        drop(file);
        kernel.unmount();
    }
    let fixture = Fixture { mount: common::serve_with(&scratch, WriteCache::Through), scratch };
    let mut file = File::options().read(true).write(true).create_new(true).open(fixture.path("file")).unwrap();
    let (done, error) = fill_short(&mut file, &vec![1; 1 << 20]);
    assert!(error == Some(28) && done < IMAGE_BYTES, "{done} bytes, {error:?}");
    // The data that was reported as written stays.
    file.sync_all().unwrap();
    let size = file.metadata().unwrap().size();
    assert!(size == done && file.metadata().unwrap().blocks() * 512 >= done, "{size} bytes, {done} reported");
    let mut bytes = Vec::new();
    File::open(fixture.path("file")).unwrap().read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() as u64 == size && bytes.iter().all(|&byte| byte == 1));
    file.set_len(4096).unwrap();
    file.write_all_at(&[2; 4096], 4096).unwrap();
    let times = |data: fs::Metadata| (data.size(), data.blocks(), data.mtime(), data.mtime_nsec(), data.ctime_nsec());
    let shown = times(fs::metadata(fixture.path("file")).unwrap());
    drop(file);
    fixture.judge(|dir| assert_eq!(times(fs::metadata(dir.join("file")).unwrap()), shown));
}

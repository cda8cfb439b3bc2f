//! A full image, for programs that write through the kernel's cache and for those that bypass it.

mod common;

use common::{Fixture, mounted_with};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};
use xfskit_fuse::WriteCache;

const IMAGE_BYTES: u64 = 64 << 20;
/// Far more dirty data than the kernel allows one FUSE mount: a hundredth of what it allows in all.
const MAX_BYTES: u64 = 4 << 30;

fn mounted(cache: WriteCache) -> Option<Fixture> {
    let mut fixture = mounted_with(IMAGE_BYTES)?;
    fixture.remount(cache);
    Some(fixture)
}

fn free_bytes(fixture: &Fixture) -> u64 {
    rustix::fs::statvfs(fixture.path("")).unwrap().f_bavail * 4096
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
    assert!(free_bytes(&fixture) > 8 << 20, "no space is free");
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

/// Fills an image: one file has most of the space, and small ones have the rest. Returns how many.
fn fill_up(fixture: &Fixture) -> usize {
    let big = File::create(fixture.path("big")).unwrap();
    let mut bytes = free_bytes(fixture);
    while bytes >= 4096 {
        let end = big.metadata().unwrap().size();
        if rustix::fs::fallocate(&big, rustix::fs::FallocateFlags::empty(), end, bytes).is_err() {
            bytes /= 2;
        }
    }
    let made = |number: &usize| fs::write(fixture.path(&format!("small{number}")), "x").is_ok();
    let count = (0..10_000).take_while(made).count();
    let _ = fs::remove_file(fixture.path(&format!("small{count}")));
    count
}

/// The kernel tells the server that it has let go of a file after the program goes on that has removed it.
#[test]
fn what_a_removed_file_took_is_there_at_once() {
    let Some(fixture) = mounted(WriteCache::Back) else { return };
    let path = |name: &str| fixture.path(name);
    let write = || {
        fs::write(path("new"), vec![1; 1 << 20])?;
        File::open(path("new"))?.sync_all()
    };
    let xattr = || {
        fs::write(path("new"), "")?;
        Ok(rustix::fs::setxattr(path("new"), "user.x", &[1; 60_000], rustix::fs::XattrFlags::empty())?)
    };
    let ask = || match free_bytes(&fixture) {
        ..16_777_216 => Err(std::io::Error::other("no space is free")),
        _ => Ok(()),
    };
    let link = || std::os::unix::fs::symlink("x".repeat(1000), path("new"));
    let dir = || fs::create_dir(path("new")).and_then(|()| fs::write(path("new/file"), vec![1; 100_000]));
    let uses: [(&str, &dyn Fn() -> std::io::Result<()>); 5] =
        [("write", &write), ("xattr", &xattr), ("statfs", &ask), ("symlink", &link), ("mkdir", &dir)];
    // What walks over the inodes of all mounts, such as a sync of another program, may hold one a moment longer, and
    // nobody sees that the kernel has not let go of it.
    let mut late = Vec::new();
    for round in 0..12 {
        for (name, use_it) in uses {
            let small = fill_up(&fixture);
            fs::remove_file(path("big")).unwrap();
            if let Err(error) = use_it() {
                late.push(format!("{name}, round {round}: {error}"));
                std::thread::sleep(std::time::Duration::from_millis(100));
                let _ = fs::remove_dir_all(path("new")).or_else(|_| fs::remove_file(path("new")));
                use_it().unwrap_or_else(|error| panic!("{name}, round {round}: {error}"));
            }
            (0..small).for_each(|number| fs::remove_file(path(&format!("small{number}"))).unwrap());
            let _ = fs::remove_file(path("new"));
            let _ = fs::remove_dir_all(path("new"));
        }
    }
    assert!(late.len() <= 3, "{late:?}");
    fixture.judge(|_| {});
}

/// Who closes the file last lets go of it; a file that stays open is not waited for.
#[test]
fn a_file_that_is_open_keeps_its_space_and_nobody_waiting() {
    let Some(fixture) = mounted(WriteCache::Back) else { return };
    let small = fill_up(&fixture);
    let open = File::open(fixture.path("big")).unwrap();
    fs::remove_file(fixture.path("big")).unwrap();
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(fs::create_dir(fixture.path("dir")).unwrap_err().raw_os_error(), Some(28));
        assert!(free_bytes(&fixture) < 1 << 20);
        File::open(fixture.path("")).unwrap().sync_all().unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?} for {small} files", begun.elapsed());
    drop(open);
    fs::create_dir(fixture.path("dir")).unwrap();
    assert!(free_bytes(&fixture) > 16 << 20);
    fixture.judge(|_| {});
}

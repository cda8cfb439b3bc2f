//! A server that does not run for a while, as when the machine is suspended; and a device that is gone for good while
//! it is mounted.

mod common;

use common::loops::Loop;
use common::mounts::{prepared, prepared_for_root, server_of, signal};
use common::{fails, ok, xfskit};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use xfskit_testkit::{copy_image, kernel_mount, reference, skip};

const FILES: usize = 200;
/// Longer than the time between two commits.
const STOPPED: Duration = Duration::from_millis(2500);

fn write_durably(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

fn contents(number: usize) -> Vec<u8> {
    format!("file {number}\n").repeat(1 + number * 7).into_bytes()
}

#[test]
fn a_server_that_was_stopped_goes_on_where_it_was() {
    let Some(at) = prepared() else { return };
    at.line("mount -o commit=1 IMAGE DIR");
    let dir = at.dir.clone();
    let writer = std::thread::spawn(move || {
        for number in 0..FILES {
            write_durably(&dir.join(number.to_string()), &contents(number)).unwrap();
        }
    });
    let server = server_of(&at.image);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(30));
        signal(server, "-STOP");
        std::thread::sleep(STOPPED);
        signal(server, "-CONT");
    }
    writer.join().unwrap();
    at.line("umount DIR");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&at.image);
    }
    let Some(kernel) = kernel_mount(&at.image) else { return };
    for number in 0..FILES {
        assert_eq!(fs::read(kernel.path().join(number.to_string())).unwrap(), contents(number));
    }
    kernel.unmount();
}

/// Ends a filesystem of the kernel at once: from then on its files answer every request with an error.
fn shut_down(mounted: &Path) {
    let code = "import fcntl, os, struct, sys; \
                fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
    let status = Command::new("python3").args(["-c", code]).arg(mounted).status().unwrap();
    assert!(status.success());
}

/// The device is a loop device whose file lies on a filesystem of the kernel that is shut down.
#[test]
fn a_device_that_is_gone_ends_the_mount_with_errors_and_loses_nothing_that_was_durable() {
    let Some(at) = prepared_for_root() else { return };
    let below = at.scratch.file("below.img");
    ok("mkfs -q --size 1G IMAGE", &below);
    let Some(host) = kernel_mount(&below) else { return };
    let image = host.path().join("a.img");
    ok("mkfs -q --size 320M IMAGE", &image);
    let Some(device) = Loop::attach(&[], &image) else { return skip("there are no loop devices") };
    let place = at.dir.to_str().unwrap();
    ok(&format!("mount IMAGE {place}"), &device.0);
    write_durably(&at.dir.join("before"), b"durable").unwrap();
    for number in 0..FILES {
        fs::write(at.dir.join(number.to_string()), contents(number)).unwrap();
    }

    shut_down(host.path());
    let begun = Instant::now();
    let error = write_durably(&at.dir.join("after"), &vec![7; 4 << 20]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
    // What was refused once is refused from then on, and so is everything new.
    let error = write_durably(&at.dir.join("later"), b"x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
    let (code, message) = fails(&format!("umount {place}"), &device.0);
    assert!(code != 0 && message.contains("I/O error") || message.contains("Input/output error"), "{code}: {message}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(fs::read_dir(&at.dir).unwrap().count(), 0);

    drop(device);
    host.unmount();
    let Some(host) = kernel_mount(&below) else { return };
    let image = host.path().join("a.img");
    ok("log replay IMAGE", &image);
    let read = xfskit(["cat".as_ref(), image.as_os_str(), "/before".as_ref()]);
    assert_eq!(read.stdout, b"durable");
    assert!(ok("check IMAGE", &image).contains("no faults"));
    if let Some(reference) = reference() {
        let copy = at.scratch.file("copy.img");
        copy_image(&image, &copy);
        reference.repair_finds_nothing(&copy);
    }
    host.unmount();
}

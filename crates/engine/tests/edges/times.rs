//! Which writes change the times of a file.

use crate::{MEBIBYTE, make, stress};
use xfskit_engine::Error;
use xfskit_engine::error_tags::DATA_IOERROR;

/// A backup that compares times must not miss bytes of a write that failed half-way.
#[test]
fn a_write_that_fails_on_the_device_changes_the_time() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    fs.write_at(file, 0, &[1; 8192]).unwrap();
    fs.sync().unwrap();
    let before = fs.stat(file).unwrap().mtime;
    std::thread::sleep(std::time::Duration::from_millis(2));
    fs.mount().error_tags.arm(DATA_IOERROR, 1);
    assert!(matches!(fs.write_at(file, 0, &[2; 8192]), Err(Error::Io { .. })));
    assert!(fs.stat(file).unwrap().mtime > before);
    image.close(fs);
}

/// The same of one for which there is not enough space: as much as fits is written.
#[test]
fn a_write_for_which_there_is_no_space_changes_the_time() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let (file, filler) = (make(&fs, "file"), make(&fs, "filler"));
    fs.write_at(file, 0, &[1; MEBIBYTE]).unwrap();
    let piece = vec![7; MEBIBYTE];
    for size in [MEBIBYTE, 4096] {
        while fs.append(filler, &piece[..size]).and_then(|_| fs.fsync(filler)).is_ok() {}
    }
    fs.sync().unwrap();
    let before = fs.stat(file).unwrap().mtime;
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert!(matches!(fs.write_at(file, 0, &[2; 2 * MEBIBYTE]), Err(Error::NoSpace)));
    let mut found = [0; 1];
    fs.read_at(file, 0, &mut found).unwrap();
    assert_eq!((found, fs.stat(file).unwrap().size), ([2], MEBIBYTE as u64));
    assert!(fs.stat(file).unwrap().mtime > before);
    image.close(fs);
}

/// As the kernel has it.
#[test]
fn a_write_of_nothing_changes_no_time() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    let before = fs.stat(file).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2));
    fs.write_at(file, 10, &[]).unwrap();
    assert_eq!(fs.stat(file).unwrap(), before);
    image.close(fs);
}

//! A path leads to the file that has the name, whatever other threads do to it and to the inode's number.

use crate::image;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use xfskit::{FileOptions, Permissions};

/// Two names, each with the permissions and the contents of its files.
const FILES: [(&str, u16, &str); 2] = [("a", 0o600, "aaaa"), ("b", 0o640, "bbbb")];
const ROUNDS: usize = 30_000;
const READERS: usize = 6;

#[test]
fn a_number_that_goes_to_another_file_is_never_taken_for_the_name() {
    let (_, fs) = image(64 << 20);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // The inode of the one becomes that of the other, over and over.
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let (name, mode, contents) = FILES[round % 2];
                let options = FileOptions::new().write(true).create_new(true).permissions(Permissions::new(mode));
                let file = fs.open_with(name, &options).unwrap();
                if round % 8 < 2 {
                    file.write_all_at(contents.as_bytes(), 0).unwrap();
                }
                drop(file);
                fs.remove_file(name).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        // More than there are processors, so that some are interrupted between two looks.
        for (name, mode, contents) in [FILES; READERS].concat() {
            let (fs, stop) = (&fs, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match fs.metadata(name) {
                        Ok(found) => assert_eq!(found.permissions(), Permissions::new(mode), "{name}"),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                    match fs.read(name) {
                        Ok(found) => assert!(found.is_empty() || found == contents.as_bytes(), "{name}: {found:?}"),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(fs.read_dir("/").unwrap().count(), 0);
    fs.close().unwrap();
}

//! Free space is given back while files are written to it and others are removed: what is written stays.

use crate::{below, close, device::Device, explore, image, open};
use shuttle::thread;
use std::sync::{Arc, LazyLock};
use xfskit_engine::{Caller, Discard, MountOptions, NewFile, TrimBy, Volume};

static IMAGE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(image);
const WRITERS: u8 = 2;
const ROUNDS: u8 = 3;

/// Writes files one after the other, removes each before the next, and reads what it has written.
fn write(fs: &Volume, writer: u8) {
    let me = Caller::root();
    for round in 1..=ROUNDS {
        let (name, byte) = (format!("{writer}-{round}"), 16 * writer + round);
        let file = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &me).unwrap().inode;
        // Whole sectors, as the device of the models stores them.
        fs.write_at(file, 0, &vec![byte; 3072 + 1024 * below(4)]).unwrap();
        fs.fsync(file).unwrap();
        expect(fs, file, byte);
        if round < ROUNDS {
            fs.unlink(fs.root(), name.as_bytes(), &me).unwrap();
        }
    }
}

fn expect(fs: &Volume, file: xfskit_engine::InodeNumber, byte: u8) {
    let mut found = vec![0; fs.stat(file).unwrap().size as usize];
    fs.read_at(file, 0, &mut found).unwrap();
    assert!(found.iter().all(|found| *found == byte), "contents of a file were given back");
}

#[test]
fn what_is_written_is_not_given_back() {
    explore("trims", 400, || {
        let device = Device::new(&IMAGE);
        let fs = Arc::new(open(&device, MountOptions { discard: Discard::Freed, ..MountOptions::default() }));
        let mut threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let fs = Arc::clone(&fs);
                thread::spawn(move || write(&fs, writer))
            })
            .collect();
        let trimmer = Arc::clone(&fs);
        threads.push(thread::spawn(move || {
            for _ in 0..3 {
                trimmer.trim(0, TrimBy::Discard).unwrap();
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for writer in 0..WRITERS {
            let name = format!("{writer}-{ROUNDS}");
            let file = fs.lookup_number(fs.root(), name.as_bytes()).unwrap();
            expect(&fs, file, 16 * writer + ROUNDS);
        }
        close(Arc::into_inner(fs).expect("the threads are over"), &device);
    });
}

//! Random operations on eight files at once through the mount, by every interface that a program has, against a model
//! in memory.
//!
//! Each of four threads works on a pair of files. Cached and direct reads and writes, shared maps (by python3, which
//! needs no unsafe code here), truncation, allocation, holes, copies and syncs are mixed; afterwards the kernel's own
//! mount of the image must show the model's bytes.

mod common;

use common::{Fixture, Random, has, mounted, seeds};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const MAX_BYTES: usize = 3 << 20;
const PAGE: usize = 4096;
const OPERATIONS: usize = 400;
/// How many pairs of files are worked on at once.
const PAIRS: usize = 4;

/// Writes and reads through a shared map: `w OFFSET LENGTH` and the bytes, or `r OFFSET LENGTH`.
const MAPPER: &str = r#"
import mmap, os, sys
fd, old = os.open(sys.argv[1], os.O_RDWR), None
while line := sys.stdin.buffer.readline():
    op, offset, length = line.split()
    offset, length = int(offset), int(length)
    base = offset & ~4095
    new = mmap.mmap(fd, offset - base + length, offset=base)
    if op == b"w":
        new[offset - base:] = sys.stdin.buffer.read(length)
        sys.stdout.buffer.write(b"done\n")
    else:
        sys.stdout.buffer.write(new[offset - base:])
    sys.stdout.buffer.flush()
    old = new # One map stays over what comes next.
"#;

struct Mapper {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Mapper {
    fn new(path: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", MAPPER]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("w {offset} {}\n", data.len()).as_bytes()).unwrap();
        input.write_all(data).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    fn read(&mut self, offset: usize, length: usize) -> Vec<u8> {
        self.input.as_mut().unwrap().write_all(format!("r {offset} {length}\n").as_bytes()).unwrap();
        let mut found = vec![0; length];
        self.output.read_exact(&mut found).unwrap();
        found
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.child.wait());
    }
}

/// A file and its expected contents.
struct Subject {
    path: PathBuf,
    model: Vec<u8>,
    cached: File,
    appending: File,
    direct: File,
    mapper: Mapper,
}

impl Subject {
    fn new(path: PathBuf) -> Self {
        let cached = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let appending = File::options().append(true).open(&path).unwrap();
        let direct = OFlags::DIRECT.bits() as i32;
        let direct = File::options().read(true).write(true).custom_flags(direct).open(&path).unwrap();
        let mapper = Mapper::new(&path);
        Self { path, model: Vec::new(), cached, appending, direct, mapper }
    }

    fn wrote(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        self.model.resize(self.model.len().max(end), 0);
        self.model[offset..end].copy_from_slice(data);
    }

    fn zeroed(&mut self, offset: usize, length: usize, grows: bool) {
        if grows {
            self.model.resize(self.model.len().max(offset + length), 0);
        }
        let end = self.model.len().min(offset + length);
        self.model[offset.min(end)..end].fill(0);
    }

    fn compare(&self, what: &str, offset: usize, found: &[u8]) {
        let end = self.model.len().min(offset + found.len());
        let wanted = &self.model[offset.min(end)..end];
        assert_eq!(found.len(), wanted.len(), "{what}: length at {offset} of {}", self.path.display());
        if let Some(at) = (0..found.len()).find(|&at| found[at] != wanted[at]) {
            let (at, found, wanted) = (offset + at, found[at], wanted[at]);
            panic!("{what}: byte {at} of {} is {found} instead of {wanted}", self.path.display());
        }
    }

    fn read(&self, direct: bool, offset: usize, length: usize) {
        let room = self.model.len().saturating_sub(offset).min(length);
        let file = if direct { &self.direct } else { &self.cached };
        with_aligned(length, |buffer| {
            let mut done = 0;
            while done < length {
                match file.read_at(&mut buffer[done..], (offset + done) as u64).unwrap() {
                    0 => break,
                    count => done += count,
                }
            }
            assert_eq!(done, room, "a read of {length} at {offset}");
            self.compare(if direct { "direct read" } else { "read" }, offset, &buffer[..done]);
        });
    }

    /// A range that is reported as a hole must be zeros, and its end must not lie in a hole.
    fn seek(&self, offset: usize) {
        let seek = |to: SeekFrom| match rustix::fs::seek(&self.cached, to) {
            Ok(found) => Some(found as usize),
            Err(rustix::io::Errno::NXIO) => None,
            Err(error) => panic!("seek: {error}"),
        };
        let data = seek(SeekFrom::Data(offset as u64));
        let end = data.unwrap_or(self.model.len()).max(offset);
        let hidden = self.model.get(offset..end).and_then(|hole| hole.iter().position(|byte| *byte != 0));
        assert_eq!(hidden, None, "bytes in a hole from {offset} to {end} of {}", self.path.display());
        let hole = seek(SeekFrom::Hole(offset as u64));
        assert_eq!(hole.is_none(), offset >= self.model.len(), "{hole:?}");
        assert!(hole.is_none_or(|hole| hole >= offset && hole <= self.model.len()));
    }

    fn whole(&self, what: &str) {
        assert_eq!(fs::metadata(&self.path).unwrap().size(), self.model.len() as u64, "{what}");
        self.compare(what, 0, &fs::read(&self.path).unwrap());
    }

    fn forget_cache(&self) {
        self.cached.sync_data().unwrap();
        rustix::fs::fadvise(&self.cached, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

/// Memory that is aligned to a page, for direct I/O.
fn with_aligned<T>(length: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut memory = vec![0u8; length + PAGE];
    let skip = memory.as_ptr().align_offset(PAGE);
    work(&mut memory[skip..skip + length])
}

fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(length + 8);
    while data.len() < length {
        data.extend_from_slice(&random.next().to_le_bytes());
    }
    data.truncate(length);
    data
}

/// An offset and a length: any, or multiples of a page.
fn range(random: &mut Random) -> (usize, usize) {
    let most = [100, PAGE, 20_000, 300_000, 1 << 20][random.below(5)];
    let (offset, length) = (random.below(MAX_BYTES - most), 1 + random.below(most));
    if random.below(3) == 0 { (offset & !(PAGE - 1), length.next_multiple_of(PAGE)) } else { (offset, length) }
}

fn write(subject: &mut Subject, random: &mut Random, offset: usize, length: usize, direct: bool) {
    let data = bytes(random, length);
    if direct {
        with_aligned(length, |buffer| {
            buffer.copy_from_slice(&data);
            subject.direct.write_all_at(buffer, offset as u64).unwrap();
        });
    } else {
        subject.cached.write_all_at(&data, offset as u64).unwrap();
    }
    subject.wrote(offset, &data);
}

fn map(subject: &mut Subject, random: &mut Random, offset: usize, length: usize) {
    let size = subject.model.len();
    if size == 0 {
        return;
    }
    let offset = offset % size;
    let length = length.min(size - offset);
    if random.below(2) == 0 {
        let data = bytes(random, length);
        subject.mapper.write(offset, &data);
        subject.wrote(offset, &data);
    } else {
        let found = subject.mapper.read(offset, length);
        subject.compare("map", offset, &found);
    }
}

fn change_map(subject: &mut Subject, random: &mut Random, offset: usize, length: usize) {
    let keep = FallocateFlags::KEEP_SIZE;
    let (flags, zeroes, grows) = match random.below(5) {
        0 => (FallocateFlags::empty(), false, true),
        1 => (keep, false, false),
        2 => (FallocateFlags::PUNCH_HOLE | keep, true, false),
        3 => (FallocateFlags::ZERO_RANGE, true, true),
        _ => (FallocateFlags::ZERO_RANGE | keep, true, false),
    };
    rustix::fs::fallocate(&subject.cached, flags, offset as u64, length as u64).unwrap();
    if zeroes {
        subject.zeroed(offset, length, grows);
    } else if grows {
        subject.model.resize(subject.model.len().max(offset + length), 0);
    }
}

fn copy(subjects: &mut [Subject; 2], random: &mut Random, offset: usize, length: usize) {
    let (from, to) = (random.below(2), random.below(2));
    let size = subjects[from].model.len();
    if size == 0 {
        return;
    }
    let mut at = random.below(size);
    if random.below(2) == 0 {
        at = at & !(PAGE - 1) | offset & (PAGE - 1);
    }
    let length = length.min(size.saturating_sub(at));
    if length == 0 || from == to && at < offset + length && offset < at + length {
        return;
    }
    let (mut in_at, mut out_at) = (at as u64, offset as u64);
    let mut left = length;
    while left > 0 {
        let (source, target) = (&subjects[from].cached, &subjects[to].cached);
        let count = rustix::fs::copy_file_range(source, Some(&mut in_at), target, Some(&mut out_at), left).unwrap();
        assert!(count > 0, "nothing is copied from {in_at}, {left} bytes before the end");
        left -= count;
    }
    let data = subjects[from].model[at..at + length].to_vec();
    subjects[to].wrote(offset, &data);
}

fn operate(subjects: &mut [Subject; 2], random: &mut Random) {
    let (offset, length) = range(random);
    let operation = random.below(20);
    if operation == 0 {
        return copy(subjects, random, offset, length);
    }
    let subject = &mut subjects[random.below(2)];
    match operation {
        1..=4 => write(subject, random, offset, length, false),
        5 | 6 => write(subject, random, offset, length, true),
        7 | 8 => map(subject, random, offset, length),
        9 if subject.model.len() + length <= MAX_BYTES => {
            let data = bytes(random, length);
            subject.appending.write_all(&data).unwrap();
            subject.wrote(subject.model.len(), &data);
        }
        10 | 11 => {
            subject.cached.set_len(offset as u64).unwrap();
            subject.model.resize(offset, 0);
        }
        12 | 13 => change_map(subject, random, offset, length),
        14 => subject.forget_cache(),
        15 => subject.cached.sync_all().unwrap(),
        16 => subject.seek(offset),
        17 => subject.read(true, offset, length),
        _ => subject.read(false, offset, length),
    }
    assert_eq!(fs::metadata(&subject.path).unwrap().size(), subject.model.len() as u64, "after operation {operation}");
}

fn work(fixture: &Fixture, seed: u64) -> [(String, Vec<u8>); 2] {
    let mut random = Random(seed);
    let mut subjects = ["a", "b"].map(|name| Subject::new(fixture.path(&format!("{seed}{name}"))));
    for number in 0..OPERATIONS {
        let before = random.0;
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| operate(&mut subjects, &mut random)));
        if let Err(panic) = done {
            println!("seed {seed}, operation {number}, state {before:#x}");
            std::panic::resume_unwind(panic);
        }
    }
    subjects.map(|subject| {
        subject.whole("from the cache");
        subject.forget_cache();
        subject.whole("from the server");
        (subject.path.file_name().unwrap().to_str().unwrap().to_owned(), subject.model.clone())
    })
}

#[test]
fn what_is_written_in_any_way_is_what_everybody_reads() {
    if !has("python3") {
        return;
    }
    let Some(fixture) = mounted() else { return };
    let seeds: Vec<_> = seeds(8).collect();
    let at_once = |seeds: &[u64]| {
        std::thread::scope(|scope| {
            let pairs: Vec<_> = seeds.iter().map(|seed| scope.spawn(|| work(&fixture, *seed))).collect();
            pairs.into_iter().flat_map(|pair| pair.join().unwrap()).collect::<Vec<_>>()
        })
    };
    let models: Vec<_> = seeds.chunks(PAIRS).flat_map(at_once).collect();
    fixture.judge(|dir| {
        for (name, model) in &models {
            assert!(&fs::read(dir.join(name)).unwrap() == model, "{name}");
        }
    });
}

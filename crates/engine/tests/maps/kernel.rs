//! Files that the kernel made: contents, extents and holes are those that the kernel reports, and further work
//! succeeds.

use super::model::{File, Random, open};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use xfskit_engine::{Error, Fallocate, FileExtent, Seek, Volume};

const SHAPES: &[&[&str]] = &[&[], &["-b", "size=1024", "-m", "rmapbt=0"], &["-m", "rmapbt=0,reflink=0"]];

fn kernel_work(dir: &Path, random: &mut Random, block: u64) {
    let files: Vec<_> = (0..4)
        .map(|n| {
            let path = dir.join(format!("file-{n}"));
            std::fs::File::options().create(true).truncate(false).read(true).write(true).open(path).unwrap()
        })
        .collect();
    let modes = [
        FallocateFlags::empty(),
        FallocateFlags::KEEP_SIZE,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::ZERO_RANGE,
        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::COLLAPSE_RANGE,
        FallocateFlags::INSERT_RANGE,
    ];
    for _ in 0..400 {
        let (file, other) = (&files[random.below(4) as usize], &files[random.below(4) as usize]);
        let (offset, length) = (random.below(80) * block, (1 + random.below(12)) * block);
        let skew = if random.below(3) == 0 { random.below(block) } else { 0 };
        match random.below(12) {
            0..=4 => {
                let data = random.bytes((length - skew) as usize);
                file.write_all_at(&data, offset + skew).unwrap();
            }
            5 => file.set_len(random.below(90 * block)).unwrap(),
            // Refusals are allowed.
            6..=9 => {
                let _ = fallocate(file, modes[random.below(7) as usize], offset + skew, length);
            }
            10 => {
                let mut to = random.below(80) * block;
                let _ = copy_file_range(file, Some(&mut offset.clone()), other, Some(&mut to), length as usize);
            }
            _ => file.sync_all().unwrap(),
        }
    }
    // Whatever happened, some blocks are shared at the end.
    files[0].write_all_at(&random.bytes(9 * block as usize), 5 * block).unwrap();
    copy_file_range(&files[0], Some(&mut (6 * block)), &files[1], Some(&mut (20 * block)), 6 * block as usize).unwrap();
}

/// What filefrag says of a file; neighbours that continue each other are one.
pub fn kernel_extents(path: &Path) -> Vec<FileExtent> {
    let output = Command::new("filefrag").args(["-s", "-v", "-b512"]).arg(path).output().expect("filefrag");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split([':', ' ', '.']).filter(|field| !field.is_empty()).collect();
        let numbers: Vec<u64> = fields.iter().map_while(|field| field.parse().ok()).collect();
        let [_, first, _, disk, _, length, ..] = numbers[..] else { continue };
        let flag = |name| line.rsplit(':').next().unwrap().contains(name);
        found.push(FileExtent {
            offset: first * 512,
            length: length * 512,
            disk: disk * 512,
            unwritten: flag("unwritten"),
            shared: flag("shared"),
        });
    }
    merged(found)
}

fn merged(extents: Vec<FileExtent>) -> Vec<FileExtent> {
    let mut merged: Vec<FileExtent> = Vec::new();
    for extent in extents {
        match merged.last_mut() {
            Some(last)
                if last.offset + last.length == extent.offset
                    && last.disk + last.length == extent.disk
                    && (last.unwritten, last.shared) == (extent.unwritten, extent.shared) =>
            {
                last.length += extent.length;
            }
            _ => merged.push(extent),
        }
    }
    merged
}

/// Where the next data and the next hole begin, from every 512th byte.
fn kernel_seeks(path: &Path, size: u64) -> Vec<[Option<u64>; 2]> {
    let file = std::fs::File::open(path).unwrap();
    let ask = |from: SeekFrom| seek(&file, from).ok();
    (0..=size).step_by(512).map(|at| [ask(SeekFrom::Data(at)), ask(SeekFrom::Hole(at))]).collect()
}

fn our_seeks(fs: &Volume, file: &File) -> Vec<[Option<u64>; 2]> {
    let ask = |at, what| match fs.seek(file.inode, at, what) {
        Ok(found) => Some(found),
        Err(Error::NoMoreData) => None,
        Err(error) => panic!("{error}"),
    };
    let size = file.bytes.len() as u64;
    (0..=size).step_by(512).map(|at| [ask(at, Seek::Data), ask(at, Seek::Hole)]).collect()
}

#[test]
fn files_of_the_kernel_are_what_it_says_they_are() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    for (seed, shape) in SHAPES.iter().enumerate() {
        let scratch = xfskit_testkit::scratch();
        let image = scratch.image("a.img", 400 << 20);
        reference.mkfs(&image, shape);
        let mut random = Random(seed as u64 + 11);
        let block = if shape.contains(&"size=1024") { 1024 } else { 4096 };
        let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
        kernel_work(kernel.path(), &mut random, block);
        kernel.unmount();
        // Another mount: dirty contents in the kernel's memory would count as data.
        let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
        let said: Vec<_> = (0..4)
            .map(|n| {
                let path = kernel.path().join(format!("file-{n}"));
                let extents = kernel_extents(&path);
                let size = path.metadata().unwrap().len();
                let seeks = kernel_seeks(&path, size);
                (extents, seeks, std::fs::read(path).unwrap())
            })
            .collect();
        kernel.unmount();
        let fs = open(&image);
        let mut files = Vec::new();
        let mut seen = [0; 3];
        for (n, (extents, seeks, bytes)) in said.into_iter().enumerate() {
            let name = format!("file-{n}");
            let inode = fs.lookup(fs.root(), name.as_bytes()).unwrap().inode;
            let file = File { inode, name, bytes };
            file.compare(&fs);
            assert_eq!(our_seeks(&fs, &file), seeks, "{}", file.name);
            assert_eq!(merged(fs.file_extents(inode).unwrap()), extents, "{}", file.name);
            seen[0] += extents.len();
            seen[1] += extents.iter().filter(|extent| extent.unwritten).count();
            seen[2] += extents.iter().filter(|extent| extent.shared).count();
            files.push(file);
        }
        assert!(
            seen[0] > 20 && seen[1] > 0 && (seen[2] > 0) != shape.contains(&"rmapbt=0,reflink=0"),
            "{shape:?} {seen:?}"
        );
        for (file, what) in files.iter_mut().zip([
            Fallocate::CollapseRange,
            Fallocate::InsertRange,
            Fallocate::ZeroRange,
            Fallocate::PunchHole,
        ]) {
            let block = block as usize;
            file.fallocate(&fs, what, 3 * block, 7 * block, block);
            file.truncate(&fs, file.bytes.len() / 2 + 77);
            file.truncate(&fs, file.bytes.len() + 9 * block);
            file.write(&fs, file.bytes.len() + 5, &[7; 3000]);
            file.compare(&fs);
        }
        fs.unmount().unwrap();
        reference.repair_finds_nothing(&image);
        let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
        files.iter().for_each(|file| file.compare_in(kernel.path()));
        kernel.unmount();
    }
}

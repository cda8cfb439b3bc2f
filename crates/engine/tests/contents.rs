//! Contents against a model of bytes, and against what the kernel reads from the image.

use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, Error, MountOptions, NewFile, Volume};
use xfskit_ondisk::InodeNumber;

const SHAPES: &[&[&str]] = &[
    &[],
    &["-b", "size=1024"],
    &["-b", "size=65536"],
    &["-m", "rmapbt=0,reflink=0"],
    &["-d", "su=64k,sw=2", "-d", "agcount=5"],
    &["-i", "nrext64=0,exchange=0", "-n", "parent=0"],
];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let seed = self.below(251) as usize;
        (0..count).map(|at| ((at * 7 + at / 251 + seed) % 251) as u8 + 1).collect()
    }
}

struct File {
    inode: InodeNumber,
    name: String,
    model: Vec<u8>,
}

fn open(image: &Path) -> Volume {
    let device = Arc::new(FileDevice::open(image, Access::Write).unwrap());
    Volume::open(device, MountOptions::default()).unwrap()
}

fn make(fs: &Volume, name: &str) -> File {
    let inode = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    File { inode, name: name.to_owned(), model: Vec::new() }
}

fn compare(fs: &Volume, file: &File) {
    assert_eq!(fs.stat(file.inode).unwrap().size, file.model.len() as u64, "{}", file.name);
    let mut found = vec![0xee; file.model.len() + 10];
    let count = fs.read_at(file.inode, 0, &mut found).unwrap();
    found.truncate(count);
    let differs = found.iter().zip(&file.model).position(|(a, b)| a != b);
    assert!(found == file.model, "{} differs at {differs:?}", file.name);
}

fn write(fs: &Volume, file: &mut File, offset: usize, data: &[u8]) {
    fs.write_at(file.inode, offset as u64, data).unwrap();
    let end = offset + data.len();
    if file.model.len() < end {
        file.model.resize(end, 0);
    }
    file.model[offset..end].copy_from_slice(data);
}

fn work(fs: &Volume, files: &mut [File], random: &mut Random, rounds: usize) {
    for _ in 0..rounds {
        let file = &mut files[random.below(4) as usize];
        let limit = [1 << 12, 1 << 16, 1 << 19, 2 << 20][random.below(4) as usize];
        let most = [1, 100, 5000, 40_000, 300_000][random.below(5) as usize];
        let length = 1 + random.below(most) as usize;
        match random.below(12) {
            0..=6 => {
                let data = random.bytes(length);
                write(fs, file, random.below(limit) as usize, &data);
            }
            7 | 8 => {
                let data = random.bytes(length);
                let at = fs.append(file.inode, &data).unwrap();
                assert_eq!(at, file.model.len() as u64);
                file.model.extend_from_slice(&data);
            }
            9 => fs.fsync(file.inode).unwrap(),
            10 => fs.sync().unwrap(),
            _ => {
                let at = random.below(file.model.len() as u64 + 1) as usize;
                let mut found = vec![0; length];
                let count = fs.read_at(file.inode, at as u64, &mut found).unwrap();
                assert_eq!(found[..count], file.model[at..(at + length).min(file.model.len())]);
            }
        }
    }
}

#[test]
fn random_writes_are_what_the_kernel_reads() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    for (seed, shape) in SHAPES.iter().enumerate() {
        let scratch = xfskit_testkit::scratch();
        let image = scratch.image("a.img", 400 << 20);
        reference.mkfs(&image, shape);
        let mut random = Random(seed as u64 + 1);
        let mut fs = open(&image);
        let mut files: Vec<File> = (0..4).map(|n| make(&fs, &format!("file {n}"))).collect();
        for _ in 0..3 {
            work(&fs, &mut files, &mut random, 120);
            files.iter().for_each(|file| compare(&fs, file));
            fs.unmount().unwrap();
            fs = open(&image);
            files.iter().for_each(|file| compare(&fs, file));
        }
        let cut = scratch.file("cut.img");
        fs.sync().unwrap();
        xfskit_testkit::copy_image(&image, &cut);
        fs.unmount().unwrap();
        for image in [&image, &cut] {
            let Some(kernel) = xfskit_testkit::kernel_mount(image) else { return };
            for file in &files {
                let found = std::fs::read(kernel.path().join(&file.name)).unwrap();
                assert!(found == file.model, "{} of shape {shape:?} as the kernel reads it", file.name);
            }
            kernel.unmount();
            reference.repair_finds_nothing(image);
        }
    }
}

#[test]
fn a_file_written_in_pieces_beside_another_is_in_few_extents() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 1 << 30);
    reference.tool_output("mkfs.xfs", ["-q", image.to_str().unwrap()]);
    let fs = open(&image);
    let alone = make(&fs, "alone");
    for piece in 0..2000u64 {
        fs.write_at(alone.inode, piece * 10_000, &[1; 10_000]).unwrap();
    }
    fs.sync().unwrap();
    fs.finish_writing(alone.inode);
    let files = [make(&fs, "a"), make(&fs, "b")];
    for piece in 0..2000u64 {
        for file in &files {
            fs.write_at(file.inode, piece * 10_000, &[piece as u8 | 1; 10_000]).unwrap();
        }
    }
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
    let extents = |file: &File| {
        let inode = format!("inode {}", file.inode.0);
        let count = reference.db(&image, &[&inode, "print core.nextents"]);
        count.trim().rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(extents(&alone), 1);
    assert!(files.iter().all(|file| extents(file) <= 4), "{:?}", files.each_ref().map(extents));
}

#[test]
fn what_a_full_image_refuses_was_not_accepted_before_and_freed_space_can_be_used() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 300 << 20);
    reference.tool_output("mkfs.xfs", ["-q", image.to_str().unwrap()]);
    let fs = open(&image);
    let mut files: Vec<File> = (0..3).map(|n| make(&fs, &format!("file {n}"))).collect();
    let mut random = Random(3);
    let mut refused = 0;
    while refused < 20 {
        let file = &mut files[random.below(3) as usize];
        let length = [1000, 30_000, 700_000][random.below(3) as usize];
        let (at, data) = (file.model.len(), random.bytes(length));
        match fs.write_at(file.inode, at as u64, &data) {
            Ok(()) => file.model.extend_from_slice(&data),
            Err(Error::NoSpace) => {
                refused += 1;
                // A large write that fails may have been done in part.
                let size = fs.stat(file.inode).unwrap().size as usize;
                let kept = size.saturating_sub(at).min(data.len());
                file.model.extend_from_slice(&data[..kept]);
            }
            Err(other) => panic!("{other}"),
        }
    }
    fs.sync().unwrap();
    files.iter().for_each(|file| compare(&fs, file));
    let gone = files.remove(0);
    fs.unlink(fs.root(), gone.name.as_bytes(), &Caller::root()).unwrap();
    let file = &mut files[0];
    let at = file.model.len();
    write(&fs, file, at, &vec![9; gone.model.len() / 2]);
    fs.unmount().unwrap();
    let fs = open(&image);
    files.iter().for_each(|file| compare(&fs, file));
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
}

#[test]
fn space_that_waits_for_contents_is_given_back_with_the_file() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 300 << 20);
    reference.tool_output("mkfs.xfs", ["-q", image.to_str().unwrap()]);
    let fs = open(&image);
    let free = fs.statfs().free_blocks;
    for held in [false, true] {
        let file = make(&fs, "file");
        if held {
            fs.add_reference(file.inode).unwrap();
        }
        fs.write_at(file.inode, 5000, &[1; 50_000]).unwrap();
        assert_eq!(fs.stat(file.inode).unwrap().blocks, 13 * 8);
        assert!(fs.statfs().free_blocks <= free - 13);
        fs.unlink(fs.root(), b"file", &Caller::root()).unwrap();
        if held {
            let mut found = [0; 2];
            assert_eq!(fs.read_at(file.inode, 4999, &mut found).unwrap(), 2);
            assert_eq!(found, [0, 1]);
            fs.sync().unwrap();
            fs.drop_references(file.inode, 1).unwrap();
        }
        fs.sync().unwrap();
        assert!(fs.read_at(file.inode, 0, &mut [0]).is_err());
    }
    let chunk = 64;
    assert!(fs.statfs().free_blocks >= free - chunk, "{} of {free}", fs.statfs().free_blocks);
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
}

//! The power is cut while a filesystem grows, gets a label or another UUID, or is trimmed. Recovered by xfskit, and by
//! this machine's kernel for a sample, it is the old one or the new one, with everything that was in it.
//! `XFSKIT_ADMIN_STATES` sets the number of states of each, `XFSKIT_ADMIN_OUTSIDE` that of the kernel's sample,
//! `XFSKIT_SEED` the first seed.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use xfskit_check::{CheckOptions, Quiet};
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_engine::env::{Environment, SeededEnvironment};
use xfskit_engine::{Caller, LastLink, MountOptions, NewFile, NewUuid, SetMode, TrimBy, Volume};
use xfskit_ondisk::{AgNumber, Geometry, RawSuperblock, Superblock};
use xfskit_sim::{Choice, Crashed, Cut, Event, Pages, Recording, SimDevice, crash, crash_for_kernel};
use xfskit_testkit::{kernel_mount, reference, scratch};
use zerocopy::FromBytes;

const MIB: u64 = 1 << 20;
/// Size of the images before, and of the device.
const OLD_BYTES: u64 = 76 * MIB;
const DEVICE_BYTES: u64 = 150 * MIB;
const FILES: u32 = 24;

/// What is done to the image, which is not open.
type Work = fn(Arc<SimDevice>, u64);

/// An image with files in it and, for every second seed, a dirty log.
fn make_image(seed: u64) -> Pages {
    let device = Arc::new(SimDevice::new(DEVICE_BYTES, Arc::default(), Pages::default()));
    let mut options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, ..Default::default() };
    let size = format!("size={}m", OLD_BYTES / MIB);
    let shapes: [&[(char, &str)]; 4] = [
        &[('d', "agsize=16m")],
        &[('d', "agsize=16m"), ('b', "size=1024"), ('n', "size=4096")],
        &[('d', "agsize=32m"), ('s', "size=4096")],
        &[('d', "agsize=20m"), ('m', "rmapbt=0,reflink=0"), ('n', "parent=0")],
    ];
    let shape = shapes[(seed / 2) as usize % shapes.len()];
    for (letter, value) in [('d', size.as_str())].iter().chain(shape) {
        options.apply(*letter, value).unwrap();
    }
    xfskit_mkfs::make(&*device, None, &options, Default::default()).unwrap();
    let fs = open(&device, seed);
    let me = Caller::root();
    for n in 0..FILES {
        let dir = fs.create(fs.root(), format!("dir {n}").as_bytes(), &NewFile::dir(0o755), &me).unwrap().inode;
        let file = fs.create(dir, b"file", &NewFile::file(0o644), &me).unwrap().inode;
        fs.write_at(file, 0, &contents(n)).unwrap();
        fs.set_xattr(file, b"user.number", &[n as u8; 300], SetMode::Any, &me).unwrap();
        let gone = fs.create(dir, b"gone", &NewFile::file(0o644), &me).unwrap().inode;
        fs.write_at(gone, 0, &vec![0xee; 50_000]).unwrap();
    }
    fs.sync().unwrap();
    for n in 0..FILES {
        let dir = fs.resolve(format!("/dir {n}").as_bytes(), LastLink::Keep).unwrap().inode;
        fs.unlink(dir, b"gone", &me).unwrap();
    }
    fs.sync().unwrap();
    if seed.is_multiple_of(2) {
        fs.unmount().unwrap();
    } else {
        drop(fs);
    }
    Arc::into_inner(device).unwrap().into_pages()
}

fn contents(n: u32) -> Vec<u8> {
    vec![n as u8 + 1; 10_000 + 4_001 * n as usize]
}

fn open(device: &Arc<SimDevice>, seed: u64) -> Volume {
    let env = Arc::new(SeededEnvironment::new(seed));
    Volume::open_in(Arc::clone(device) as _, None, MountOptions::default(), env).unwrap()
}

/// Records the work on an image.
fn record(base: &Arc<Pages>, seed: u64, work: Work) -> Recording {
    let device = Arc::new(SimDevice::new(DEVICE_BYTES, Arc::clone(base), Pages::default()));
    device.start_record();
    work(Arc::clone(&device), seed);
    let events = device.take_record();
    let mut sectors = vec![0; 32 << 10];
    device.read(0, &mut sectors).unwrap();
    let geometry = Geometry::new(&Superblock::decode(&sectors).unwrap());
    let start = geometry.fs_block_address(geometry.log_start.unwrap()).unwrap().bytes();
    let log = start..start + (u64::from(geometry.log_blocks) << geometry.block_log);
    recording(Arc::clone(base), events, log)
}

fn recording(base: Arc<Pages>, events: Vec<Event>, log: std::ops::Range<u64>) -> Recording {
    Recording {
        size_bytes: DEVICE_BYTES,
        base,
        events,
        digests: Vec::new(),
        trees: Vec::new(),
        histories: Default::default(),
        options: MountOptions::default(),
        log,
        distance: Default::default(),
        together: Default::default(),
    }
}

/// What is asked of an image: its size, label and UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    blocks: u64,
    ags: u32,
    label: [u8; 12],
    uuid: [u8; 16],
    meta_uuid: [u8; 16],
}

impl Shape {
    fn of(raw: &RawSuperblock) -> Self {
        let (blocks, ags) = (raw.data_blocks.get(), raw.ag_count.get());
        Self { blocks, ags, label: raw.label, uuid: raw.uuid, meta_uuid: raw.meta_uuid }
    }
}

fn raw_at(device: &dyn BlockDevice, offset: u64) -> RawSuperblock {
    let mut sector = vec![0; 512];
    device.read(offset, &mut sector).unwrap();
    RawSuperblock::read_from_prefix(&sector).unwrap().0
}

/// Recovers a state, reads everything in it, closes it, and checks it and its copies of the superblock. Returns its
/// shape.
fn judge(device: &Arc<SimDevice>) -> Shape {
    let fs = open(device, 1);
    for n in 0..FILES {
        let file = fs.resolve(format!("/dir {n}/file").as_bytes(), LastLink::Keep).unwrap();
        let mut found = vec![0; file.size as usize];
        fs.read_at(file.inode, 0, &mut found).unwrap();
        assert!(found == contents(n), "contents of file {n}");
        assert_eq!(fs.get_xattr(file.inode, b"user.number").unwrap(), [n as u8; 300]);
    }
    let geometry = fs.geometry().clone();
    fs.unmount().unwrap();
    let options = CheckOptions { threads: 1, most_faults: 20 };
    let report = xfskit_check::check(Arc::clone(device) as _, None, &options, &Quiet).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    let shape = Shape::of(&raw_at(&**device, 0));
    for ag in 1..geometry.ag_count {
        let copy = raw_at(&**device, geometry.ag_header(AgNumber(ag), 0).bytes());
        assert_eq!((Shape::of(&copy), copy.in_progress), (shape.clone(), 0), "the copy in AG {ag}");
    }
    shape
}

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Cuts the power at many places of the work, and of the recovery after it.
fn cut_everywhere(name: &str, work: Work) {
    let states = count("XFSKIT_ADMIN_STATES", 160);
    let first = count("XFSKIT_SEED", 0);
    let (mut olds, mut news) = (0, 0);
    for seed in first..first + 8 {
        let base = Arc::new(make_image(seed));
        let recording = record(&base, seed, work);
        let shape_after = |at, choice| judge(&crash(&recording, Cut { at, choice }).0.device());
        let (old, new) = (shape_after(0, Choice::None), shape_after(recording.events.len(), Choice::All));
        let random = SeededEnvironment::new(seed);
        for n in 0..states / 8 {
            let at = random.random() as usize % (recording.events.len() + 1);
            let choice = Choice::Seed(random.random());
            let (state, _) = crash(&recording, Cut { at, choice });
            eprintln!("{name} seed {seed}, cut {}", Cut { at, choice });
            let shape = judge(&state.device());
            assert!(shape == old || shape == new, "{shape:?} is neither {old:?} nor {new:?}");
            (olds, news) = if shape == old { (olds + 1, news) } else { (olds, news + 1) };
            if n % 4 == 0 {
                cut_recovery(&state, &[&old, &new], &random, &recording.log);
            }
        }
    }
    println!("{name}: {olds} old and {news} new");
    assert!(states < 100 || (olds > 0 && news > 0), "{olds} states were old and {news} new");
}

/// Cuts the power once more, while the state is recovered.
fn cut_recovery(state: &Crashed, shapes: &[&Shape], random: &dyn Environment, log: &std::ops::Range<u64>) {
    let device = state.device();
    device.start_record();
    open(&device, 2).unmount().unwrap();
    let events = device.take_record();
    let mut base = (*state.base).clone();
    base.extend(state.own.clone());
    let again = recording(Arc::new(base), events, log.clone());
    let cut = Cut { at: random.random() as usize % (again.events.len() + 1), choice: Choice::Seed(random.random()) };
    eprintln!("and in its recovery, cut {cut}");
    let shape = judge(&crash(&again, cut).0.device());
    assert!(shapes.contains(&&shape), "{shape:?}");
}

/// The same, with the kernel's recovery, and xfs_repair.
fn cut_for_kernel(work: Work) {
    let Some(reference) = reference() else { return };
    let folder = scratch();
    for seed in 0..count("XFSKIT_ADMIN_OUTSIDE", 6) {
        let base = Arc::new(make_image(seed));
        let recording = record(&base, seed, work);
        let at = recording.events.len() * (2 * seed as usize + 1) / 12 % (recording.events.len() + 1);
        let (state, _) = crash_for_kernel(&recording, at, seed);
        let image = folder.file("state");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(state.size_bytes).unwrap();
        state.contents().for_each(|(offset, bytes)| file.write_all_at(bytes, offset).unwrap());
        eprintln!("seed {seed}, cut at {at} of {}", recording.events.len());
        let Some(mount) = kernel_mount(&image) else { return };
        let files = mount.into_tree().iter().filter(|entry| entry.path.ends_with("file")).count();
        assert_eq!(files, FILES as usize);
        if let Some(findings) = reference.repair_findings(&image, None) {
            // The kernel's recovery does not bring the copies of the superblock in line, and xfs_repair goes by them.
            let about_copies = ["mismatch in AG", "conflicts with", "modified primary superblock"];
            let is_about_copies = about_copies.iter().any(|text| findings.contains(text));
            assert!(is_about_copies, "{findings}");
            let fs = Volume::open(device(&image), MountOptions::default()).unwrap();
            fs.write_superblock_copies().unwrap();
            fs.unmount().unwrap();
        }
        reference.repair_finds_nothing(&image);
    }
}

fn device(image: &std::path::Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(image, Access::Write).unwrap())
}

fn grow(device: Arc<SimDevice>, seed: u64) {
    // Within the last AG, to a part of a new one, and to whole ones.
    let bytes = [OLD_BYTES + MIB, OLD_BYTES + 50 * MIB, 144 * MIB][seed as usize % 3];
    let env = Arc::new(SeededEnvironment::new(seed));
    Volume::grow_in(device, None, MountOptions::default(), env, bytes).unwrap();
}

fn label(device: Arc<SimDevice>, seed: u64) {
    let fs = open(&device, seed);
    fs.set_label(b"a new label").unwrap();
    fs.unmount().unwrap();
}

fn uuid(device: Arc<SimDevice>, seed: u64) {
    let fs = open(&device, seed);
    fs.set_uuid(if seed % 4 == 3 { NewUuid::Nil } else { NewUuid::Random }).unwrap();
}

/// A filesystem that has had another UUID gets back its first one.
fn uuid_back(device: Arc<SimDevice>, seed: u64) {
    uuid(Arc::clone(&device), seed);
    open(&device, seed).set_uuid(NewUuid::Restored).unwrap();
}

fn trim(device: Arc<SimDevice>, seed: u64) {
    let fs = open(&device, seed);
    let dir = fs.resolve(b"/dir 0", LastLink::Keep).unwrap().inode;
    fs.create(dir, b"new", &NewFile::file(0o644), &Caller::root()).unwrap();
    fs.trim(0, if seed % 4 == 3 { TrimBy::Zeros } else { TrimBy::Discard }).unwrap();
    fs.unmount().unwrap();
}

#[test]
fn growing_is_old_or_new() {
    cut_everywhere("grow", grow);
    cut_for_kernel(grow);
}

#[test]
fn a_label_is_old_or_new() {
    cut_everywhere("label", label);
    cut_for_kernel(label);
}

#[test]
fn a_uuid_is_old_or_new() {
    cut_everywhere("uuid", uuid);
    cut_for_kernel(uuid);
}

#[test]
fn a_uuid_that_is_restored_is_one_of_the_two_or_between() {
    let states = count("XFSKIT_ADMIN_STATES", 160) / 4;
    let base = Arc::new(make_image(0));
    let recording = record(&base, 0, uuid_back);
    for n in 0..states {
        let at = recording.events.len() * n as usize / states as usize;
        let shape = judge(&crash(&recording, Cut { at, choice: Choice::Seed(n) }).0.device());
        let between = shape.uuid != [7; 16] && shape.meta_uuid == [7; 16];
        assert!(between || (shape.uuid == [7; 16] && shape.meta_uuid == [0; 16]), "{shape:?}");
    }
    cut_for_kernel(uuid_back);
}

#[test]
fn a_trim_takes_nothing_that_is_in_use() {
    // The state is the same in any case, so there is only one shape.
    let base = Arc::new(make_image(1));
    for seed in 0..count("XFSKIT_ADMIN_STATES", 160) / 20 {
        let recording = record(&base, seed, trim);
        for n in 0..20 {
            let at = recording.events.len() * n / 20;
            judge(&crash(&recording, Cut { at, choice: Choice::Seed(seed * 20 + n as u64) }).0.device());
        }
    }
    cut_for_kernel(trim);
}

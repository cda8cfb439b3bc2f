//! Growing, beside xfs_growfs on a mount of this machine's kernel.

use crate::{SHAPES, device, fill, open};
use std::path::Path;
use xfskit_engine::{Error, Growth, MountOptions, NewUuid, Volume};
use xfskit_ondisk::ag::{Agf, AgflHeader, Agi};
use xfskit_ondisk::new_ag::TreeRoots;
use xfskit_ondisk::{AgBlock, AgNumber, Geometry, RawSuperblock, Superblock};
use xfskit_testkit::{Reference, copy_image, kernel_mount, reference, scratch, scrub};
use zerocopy::FromBytes;

const MIB: u64 = 1 << 20;
/// Size of every image before it grows.
const OLD_MIB: u64 = 320;

/// Makes a file longer.
pub fn set_size(image: &Path, bytes: u64) {
    std::fs::File::options().write(true).open(image).unwrap().set_len(bytes).unwrap();
}

fn grow(image: &Path, bytes: u64) -> Growth {
    Volume::grow(device(image), None, MountOptions::default(), bytes).unwrap()
}

fn geometry(image: &[u8]) -> Geometry {
    Geometry::new(&Superblock::decode(&image[..32 << 10]).unwrap())
}

/// The headers of an AG without what differs between two that were made at different times: LSNs and checksums; of the
/// copies of the superblock also the counters, which the kernel does not bring up to date there.
fn headers(image: &[u8], geometry: &Geometry, ag: u32) -> Vec<String> {
    let sector = |index| &image[geometry.ag_header(AgNumber(ag), index).bytes() as usize..][..geometry.sector_bytes()];
    let mut raw = RawSuperblock::read_from_prefix(sector(0)).unwrap().0;
    (raw.lsn, raw.crc) = (0.into(), [0; 4]);
    // For "no such inode" the kernel writes all ones where mkfs.xfs writes zeros.
    for quota in [&mut raw.user_quota_inode, &mut raw.group_quota_inode, &mut raw.project_quota_inode] {
        *quota = if quota.get() == u64::MAX { 0.into() } else { *quota };
    }
    if ag > 0 {
        (raw.inode_count, raw.free_inodes, raw.free_blocks) = (0.into(), 0.into(), 0.into());
    }
    let mut agf = Agf::read_from_prefix(sector(1)).unwrap().0;
    (agf.lsn, agf.crc) = (0.into(), [0; 4]);
    let mut agi = Agi::read_from_prefix(sector(2)).unwrap().0;
    (agi.lsn, agi.crc) = (0.into(), [0; 4]);
    let mut agfl = AgflHeader::read_from_prefix(sector(3)).unwrap().0;
    (agfl.lsn, agfl.crc) = (0.into(), [0; 4]);
    let list = &sector(3)[size_of::<AgflHeader>()..];
    let entry = |at: u32| &list[at as usize * 4..][..4];
    let used: Vec<_> =
        (0..agf.fl_count.get()).map(|n| entry((agf.fl_first.get() + n) % geometry.agfl_entries())).collect();
    vec![format!("{raw:?}"), format!("{agf:?}"), format!("{agi:?}"), format!("{agfl:?} {used:?}")]
}

/// The roots of the trees of an AG that has nothing in it, without their LSNs and checksums.
fn roots(image: &[u8], geometry: &Geometry, ag: u32) -> Vec<Vec<u8>> {
    let block = |number: u32| {
        let start = geometry.address(AgNumber(ag), AgBlock(number)).bytes() as usize;
        let mut bytes = image[start..][..geometry.block_bytes()].to_vec();
        // The header of a block of a short tree: LSN at 24, checksum at 52.
        bytes[24..32].fill(0);
        bytes[52..56].fill(0);
        bytes
    };
    (geometry.ag_header_blocks()..TreeRoots::new(geometry).end).map(block).collect()
}

fn assert_as_the_kernels(ours: &Path, kernels: &Path, old_ags: u32, what: &str) {
    let (ours, kernels) = (std::fs::read(ours).unwrap(), std::fs::read(kernels).unwrap());
    let (geometry, theirs) = (geometry(&ours), geometry(&kernels));
    assert_eq!((geometry.data_blocks, geometry.ag_count), (theirs.data_blocks, theirs.ag_count), "{what}");
    for ag in 0..geometry.ag_count {
        let pairs = headers(&ours, &geometry, ag).into_iter().zip(headers(&kernels, &geometry, ag));
        for (mine, kernels) in pairs {
            assert_eq!(mine, kernels, "{what}: AG {ag} of {old_ags}");
        }
        if ag >= old_ags {
            assert!(roots(&ours, &geometry, ag) == roots(&kernels, &geometry, ag), "{what}: roots of AG {ag}");
        }
    }
}

/// Sizes in bytes: a part of the last AG, whole AGs, a last one that is too short, as short as it may be, and longer.
fn sizes(geometry: &Geometry) -> Vec<u64> {
    let (ag, block) = (u64::from(geometry.ag_blocks) << geometry.block_log, 1 << geometry.block_log);
    let ags = u64::from(geometry.ag_count);
    let short = (ags * ag).saturating_sub(geometry.data_blocks * block);
    let mut sizes = vec![ag * (ags + 2), ag * (ags + 1) + 63 * block, ag * (ags + 1) + 64 * block, ag * ags + ag / 2];
    sizes.extend((short > block).then_some(ags * ag - block));
    sizes
}

fn compare(reference: &Reference, options: &[&str]) {
    let folder = scratch();
    let (made, ours, kernels) = (folder.file("made.img"), folder.file("ours.img"), folder.file("kernels.img"));
    std::fs::File::create(&made).unwrap().set_len(OLD_MIB * MIB).unwrap();
    reference.mkfs(&made, options);
    let fs = open(&made);
    fill(&fs, 40);
    fs.unmount().unwrap();
    let old = geometry(&std::fs::read(&made).unwrap());
    for bytes in sizes(&old) {
        let what = format!("{options:?} from {} blocks to {bytes} bytes", old.data_blocks);
        for image in [&ours, &kernels] {
            copy_image(&made, image);
            // xfs_repair reads 128 KiB from the start of each AG, which may be more than the last one has.
            set_size(image, bytes + MIB);
        }
        let Some(mount) = kernel_mount(&kernels) else { return };
        reference.growfs(mount.path(), &["-D", &(bytes >> old.block_log).to_string()]);
        mount.unmount();
        let growth = grow(&ours, bytes);
        assert_as_the_kernels(&ours, &kernels, growth.old_ags, &what);
        reference.repair_finds_nothing(&ours);
        assert!(reference.log_is_clean(&ours), "{what}");
        let trees = [&ours, &made].map(|image| kernel_mount(image).unwrap().into_tree());
        assert!(trees[0] == trees[1], "{what}: the tree");
        // And once more, from where the first left it.
        set_size(&ours, bytes + 100 * MIB);
        let again = grow(&ours, bytes + 100 * MIB);
        assert_eq!(again.old_blocks, growth.new_blocks);
        fill_to_the_end(&ours);
        reference.repair_finds_nothing(&ours);
    }
}

/// Writes until nothing is left, so that the new space is used.
fn fill_to_the_end(image: &Path) {
    let fs = open(image);
    let me = xfskit_engine::Caller::root();
    let file = fs.create(fs.root(), b"all", &xfskit_engine::NewFile::file(0o644), &me).unwrap().inode;
    let free = fs.statfs().free_blocks * u64::from(fs.statfs().block_bytes);
    let whole = vec![7; MIB as usize];
    let written = (0..free / MIB).take_while(|n| fs.write_at(file, n * MIB, &whole).is_ok()).count();
    assert!(written as u64 * MIB > 100 * MIB / 2, "{written} MiB of {free} bytes");
    fs.unmount().unwrap();
}

#[test]
fn headers_are_those_of_the_kernel() {
    let Some(reference) = reference() else { return };
    for options in SHAPES {
        compare(&reference, options);
    }
}

#[test]
fn headers_are_those_of_the_7_2_kernel_which_mounts_what_grew() {
    let Some(reference) = reference() else { return };
    for (options, bytes) in [(SHAPES[0], 520 * MIB), (SHAPES[1], 333 * MIB)] {
        let folder = scratch();
        let (ours, kernels) = (folder.image("ours.img", OLD_MIB * MIB), folder.file("kernels.img"));
        reference.mkfs(&ours, options);
        let fs = open(&ours);
        fill(&fs, 40);
        fs.unmount().unwrap();
        copy_image(&ours, &kernels);
        [&ours, &kernels].into_iter().for_each(|image| set_size(image, bytes));
        let run = reference.uml(&kernels, "mount /dev/ubda /mnt && xfs_growfs /mnt && umount /mnt");
        assert_eq!(run.status, 0, "{}", run.output);
        let growth = grow(&ours, bytes);
        assert_as_the_kernels(&ours, &kernels, growth.old_ags, &format!("{options:?} to {bytes} bytes"));
        open(&ours).set_uuid(NewUuid::Random).unwrap();
        let run = reference.uml(&ours, "mount /dev/ubda /mnt && ls /mnt | wc -l && touch /mnt/new && umount /mnt");
        assert_eq!((run.status, run.output.trim()), (0, "40"));
        reference.repair_finds_nothing(&ours);
    }
}

#[test]
fn an_external_log_is_used() {
    let Some(reference) = reference() else { return };
    let folder = scratch();
    let (image, log) = (folder.image("image", OLD_MIB * MIB), folder.image("log", 100 * MIB));
    reference.mkfs(&image, &["-l", &format!("logdev={},size=64m", log.display())]);
    set_size(&image, 500 * MIB);
    let options = MountOptions::default();
    let none = Volume::grow(device(&image), None, options.clone(), 500 * MIB);
    assert!(matches!(none, Err(Error::NoLogDevice)), "{none:?}");
    let growth = Volume::grow(device(&image), Some(device(&log)), options, 500 * MIB).unwrap();
    assert!(growth.new_ags > growth.old_ags);
    assert_eq!(reference.repair_findings(&image, Some(&log)), None);
}

#[test]
fn a_journal_that_a_crash_of_the_kernel_left_is_replayed_first() {
    let Some(reference) = reference() else { return };
    let folder = scratch();
    let image = folder.image("image", OLD_MIB * MIB);
    reference.mkfs(&image, &[]);
    let Some(mount) = kernel_mount(&image) else { return };
    for n in 0..50 {
        std::fs::create_dir(mount.path().join(format!("dir {n}"))).unwrap();
    }
    reference.shut_down(mount.path(), true);
    mount.unmount();
    set_size(&image, 500 * MIB);
    let growth = grow(&image, 500 * MIB);
    assert!(growth.new_ags > growth.old_ags);
    reference.repair_finds_nothing(&image);
    assert_eq!(kernel_mount(&image).unwrap().into_tree().len(), 51);
}

#[test]
fn the_kernels_scrub_finds_nothing() {
    let Some(reference) = reference() else { return };
    let folder = scratch();
    let image = folder.image("image", OLD_MIB * MIB);
    reference.mkfs(&image, &[]);
    let fs = open(&image);
    fill(&fs, 20);
    fs.unmount().unwrap();
    set_size(&image, 600 * MIB);
    grow(&image, 600 * MIB);
    let Some(verdicts) = scrub(&[image]) else { return };
    assert!(verdicts[0].ends_with("clean"), "{verdicts:?}");
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let device = std::sync::Arc::new(xfskit_device::MemoryDevice::new(64 << 20));
    let options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, ..Default::default() };
    xfskit_mkfs::make(&*device, None, &options, Default::default()).unwrap();
    let before = device.to_bytes();
    let refuse = |bytes: u64| Volume::grow(device.clone(), None, MountOptions::default(), bytes).unwrap_err();
    assert!(matches!(refuse(63 << 20), Error::Invalid(why) if why.contains("smaller")));
    assert!(matches!(refuse(65 << 20), Error::Invalid(why) if why.contains("device")));
    assert!(device.to_bytes() == before);
    let growth = Volume::grow(device.clone(), None, MountOptions::default(), 64 << 20).unwrap();
    assert!(growth.is_nothing());
    let open = Volume::open(device.clone(), MountOptions::default()).unwrap();
    assert!(matches!(refuse(64 << 20), Error::DeviceInUse));
    drop(open);
}

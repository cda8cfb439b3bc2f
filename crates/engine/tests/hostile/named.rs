//! One kind of damage at a time: the message names the structure, the check and the place on disk.

use std::sync::{Arc, LazyLock};
use xfskit_engine::{Caller, Error, LastLink, MountOptions, RenameFlags, SetMode, Volume};
use xfskit_fuzz_harness::{Block, Kind, Metadata, Overlay, Random, Recipe, Watchdog, blocks, exercise, image, walk};
use xfskit_ondisk::InodeNumber;

/// A sound image with every kind of structure in it.
pub struct Sound {
    pub bytes: Arc<Vec<u8>>,
    pub metadata: Metadata,
}

pub static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let bytes = Arc::new(image(Recipe::SmallBlocks));
    let metadata = blocks(&bytes);
    Sound { bytes, metadata }
});

impl Sound {
    /// The image with one block changed, and with the right checksum for it.
    fn with(&self, block: &Block, change: impl FnOnce(&mut [u8])) -> Arc<Overlay> {
        let device = Arc::new(Overlay::new(&self.bytes));
        self.change(&device, block, change);
        device
    }

    fn change(&self, device: &Overlay, block: &Block, change: impl FnOnce(&mut [u8])) {
        let mut bytes = block.of(&self.bytes).to_vec();
        change(&mut bytes);
        block.mend(&mut bytes);
        device.patch(block.offset, &bytes);
    }

    fn superblock(&self) -> &Block {
        &self.metadata.of(Kind::Superblock)[0]
    }

    /// The block of the inode that a path names.
    fn inode(&self, path: &str) -> (InodeNumber, &Block) {
        let fs = open(&Arc::new(Overlay::new(&self.bytes)), true).expect("a sound image");
        let number = fs.resolve(path.as_bytes(), LastLink::Keep).expect("a name").inode;
        let own = number.0.to_be_bytes();
        let found = self.metadata.of(Kind::Inode).iter().find(|block| block.of(&self.bytes)[152..160] == own);
        (number, found.expect("an inode"))
    }
}

pub fn open(device: &Arc<Overlay>, read_only: bool) -> Result<Volume, Error> {
    let options = MountOptions { read_only, ..MountOptions::default() };
    Volume::open(Arc::clone(device) as _, options)
}

/// Asserts that an error is damage, and that its message has all the words.
#[track_caller]
pub fn assert_names(error: &Error, words: &[&str]) {
    let message = error.to_string();
    assert!(error.is_damage() || matches!(error, Error::Unsupported(_)), "{message}");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Replaces the first `from` in the bytes by `to`, which is as long.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the bytes are there");
    bytes[at..at + to.len()].copy_from_slice(to);
}

/// Everything that goes wrong when an image is opened, walked and worked on.
fn all_errors(device: &Arc<Overlay>) -> Vec<Error> {
    let mut errors = Vec::new();
    match open(device, true) {
        Ok(fs) => errors.extend(walk(&fs, 1000).errors),
        Err(error) => errors.push(error),
    }
    match open(device, false) {
        Ok(fs) => errors.extend(exercise(&fs, &mut Random::new(1), 400)),
        Err(error) => errors.push(error),
    }
    errors
}

const NAMES: &[(Kind, &str)] = &[
    (Kind::Superblock, "superblock"),
    (Kind::Agf, "AGF"),
    (Kind::Agi, "AGI"),
    (Kind::Agfl, "AGFL"),
    (Kind::Bnobt, "bnobt block"),
    (Kind::Cntbt, "cntbt block"),
    (Kind::Inobt, "inobt block"),
    (Kind::Finobt, "finobt block"),
    (Kind::Rmapbt, "rmapbt block"),
    (Kind::Bmbt, "bmbt block"),
    (Kind::DaNode, "da node"),
    (Kind::DirBlock, "directory block"),
    (Kind::DirData, "directory data block"),
    (Kind::DirLeaf1, "directory leaf block"),
    (Kind::DirLeafN, "directory leafn block"),
    (Kind::DirFree, "directory free index block"),
    (Kind::AttrLeaf, "attr leaf block"),
    (Kind::AttrRemote, "remote attr block"),
    (Kind::Symlink, "symlink block"),
    (Kind::Inode, "inode"),
];

#[test]
fn a_wrong_checksum_is_named_for_every_structure() {
    let watchdog = Watchdog::new();
    for &(kind, name) in NAMES {
        watchdog.step(name);
        let device = Arc::new(Overlay::new(&SOUND.bytes));
        for block in SOUND.metadata.of(kind) {
            let mut bytes = block.of(&SOUND.bytes).to_vec();
            bytes[block.crc] ^= 0x40;
            device.patch(block.offset, &bytes);
        }
        if kind == Kind::Agfl {
            // Lists that are too short for the trees to grow are found by the first allocation.
            for block in SOUND.metadata.of(Kind::Agf) {
                SOUND.change(&device, block, |bytes| {
                    bytes.copy_within(40..44, 44);
                    put32(bytes, 48, 1);
                });
            }
        }
        let errors = all_errors(&device);
        let start = format!("corrupt {name} at disk address ");
        let named = errors.iter().any(|error| {
            let message = error.to_string();
            message.starts_with(&start) && message.contains("\"checksum\"")
        });
        assert!(named, "{name}: {:#?}", errors.iter().take(5).map(ToString::to_string).collect::<Vec<_>>());
    }
}

#[test]
fn damage_is_never_reported_without_its_place() {
    let watchdog = Watchdog::new();
    let mutator = xfskit_fuzz_harness::Mutator::new(&SOUND.bytes);
    let mut without = std::collections::BTreeMap::new();
    for trial in 0..crate::random::trials() {
        let device = Arc::new(Overlay::new(&SOUND.bytes));
        let story = mutator.damage(&device, &mut Random::new(trial));
        watchdog.step(format!("trial {trial}: {story}"));
        for error in all_errors(&device) {
            let message = error.to_string();
            if matches!(error, Error::Corrupt(_)) && !message.contains("disk address") {
                without.entry(message).or_insert(trial);
            }
        }
    }
    assert!(without.is_empty(), "{without:#?}");
}

#[test]
fn superblock_fields_are_checked() {
    let sb = SOUND.superblock();
    for (at, value, words) in [
        (4, &[0, 0, 3, 0][..], &["block size"][..]),
        (8, &[0, 0, 0, 0, 0, 0, 0, 1], &["AGs cover the device"]),
        (8, &[0xff; 8], &["AGs cover the device"]),
        (48, &[0x7f; 8], &["log lies within one AG"]),
        (56, &[0xff; 8], &["root inode"]),
        (84, &[0xff; 4], &["AG size"]),
        (84, &[0, 0, 0, 1], &["AG size"]),
        (88, &[0, 0, 0, 0], &["AG"]),
        (88, &[0xff; 4], &["AG"]),
        (96, &[0xff; 4], &["log size"]),
        (96, &[0, 0, 0, 1], &["log size"]),
        (102, &[0, 3], &["sector size"]),
        (104, &[0, 7], &["inode size"]),
        (106, &[0, 9], &["inodes per block"]),
        (120, &[63], &["block size"]),
        (124, &[31], &["AG size"]),
        (127, &[200], &["percentage"]),
        (180, &[0xff; 4], &["alignment"]),
        (192, &[40], &["directory block size"]),
        (196, &[0x7f; 4], &["log stripe unit"]),
    ] {
        let device = SOUND.with(sb, |bytes| bytes[at..at + value.len()].copy_from_slice(value));
        device.seal();
        for read_only in [true, false] {
            let error = open(&device, read_only).err().unwrap_or_else(|| panic!("offset {at} is not checked"));
            assert_names(&error, words);
            assert_names(&error, &["superblock at disk address 0"]);
        }
    }
}

/// The last AG may be shorter than the others, so that the log does not fit it.
#[test]
fn the_log_does_not_reach_behind_a_short_last_ag() {
    let device = SOUND.with(SOUND.superblock(), |bytes| {
        let field = |at: usize| u64::from(u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
        let (ag_blocks, ag_count, log_blocks) = (field(84), field(88), field(96));
        // The log ends with the block that the last AG does not have.
        let log_start = (ag_count - 1) << bytes[124] | (ag_blocks - log_blocks);
        bytes[8..16].copy_from_slice(&(ag_blocks * ag_count - 1).to_be_bytes());
        bytes[48..56].copy_from_slice(&log_start.to_be_bytes());
    });
    device.seal();
    for read_only in [true, false] {
        let error = open(&device, read_only).err().expect("a refusal");
        assert_names(&error, &["superblock at disk address 0", "log lies within one AG"]);
    }
}

#[test]
fn unknown_features_are_refused_by_name() {
    let sb = SOUND.superblock();
    let with = |at: usize, bit: u32| {
        let device = SOUND.with(sb, |bytes| {
            let old = u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            put32(bytes, at, old | bit);
        });
        device.seal();
        device
    };
    // Unknown compatible features do no harm.
    assert!(open(&with(208, 1 << 30), true).is_ok());
    let device = with(212, 1 << 30);
    assert!(open(&device, true).is_ok());
    assert_names(&open(&device, false).err().unwrap(), &["read-only compatible", "0x40000000"]);
    for (at, bit, word) in [
        (216, 1 << 30, "incompatible"),
        (220, 1 << 30, "log"),
        (216, 1 << 4, "xfs_repair"),
        (216, 1 << 8, "metadir"),
        (216, 1 << 9, "zoned"),
    ] {
        for read_only in [true, false] {
            let error = open(&with(at, bit), read_only).err().expect("a refusal");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
    let old = SOUND.with(sb, |bytes| bytes[101] = bytes[101] & 0xf0 | 4);
    assert!(open(&old, true).err().unwrap().to_string().contains("version 4"));
    let unfinished = SOUND.with(sb, |bytes| bytes[126] = 1);
    assert!(open(&unfinished, true).err().unwrap().to_string().contains("mkfs was cut off here"));
}

#[test]
fn an_image_may_not_claim_more_than_its_file_holds() {
    // 2^52 blocks of 64 KiB: their number of bytes does not fit 64 bits.
    let huge = |ag_blocks: u32, ag_log: u8, ags: u32| {
        SOUND.with(SOUND.superblock(), |bytes| {
            put32(bytes, 4, 65536);
            bytes[120] = 16;
            bytes[123] = 16 - bytes[122];
            let inodes = 1u16 << bytes[123];
            bytes[106..108].copy_from_slice(&inodes.to_be_bytes());
            bytes[192] = 0;
            put32(bytes, 84, ag_blocks);
            bytes[124] = ag_log;
            put32(bytes, 88, ags);
            bytes[8..16].copy_from_slice(&(u64::from(ag_blocks) * u64::from(ags)).to_be_bytes());
            put32(bytes, 96, 1024);
            bytes[48..56].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 8]);
        })
    };
    let error = open(&huge(1 << 24, 24, 1 << 20), true).err().expect("a refusal");
    assert_names(&error, &["superblock at disk address 0", "cut short"]);
    let error = open(&huge(1 << 24, 24, 1 << 28), true).err().expect("a refusal");
    assert!(error.to_string().contains("268435456 AGs"), "{error}");
    // Wrong counters do not make an image unsound.
    for byte in [0, 0x7f, 0x80, 0xff] {
        let counters = SOUND.with(SOUND.superblock(), |bytes| bytes[128..152].fill(byte));
        for read_only in [true, false] {
            // An image that says that it has no free block cannot free its orphans.
            let Ok(fs) = open(&counters, read_only) else {
                assert!(byte == 0 && !read_only);
                continue;
            };
            let stat = fs.statfs();
            assert!(stat.free_blocks <= stat.blocks && stat.free_inodes <= stat.inodes, "{stat:?}");
        }
    }
}

#[test]
fn counts_out_of_range_are_named() {
    let watchdog = Watchdog::new();
    for (kind, at, words) in [
        (Kind::Agf, 16, "AGF"), // root of the bnobt
        (Kind::Agf, 28, "AGF"), // its height
        (Kind::Agf, 40, "AGF"), // first of the free list
        (Kind::Agf, 52, "AGF"), // free blocks
        (Kind::Agi, 16, "AGI"), // inodes
        (Kind::Agi, 20, "AGI"), // root of the inobt
        (Kind::Agi, 24, "AGI"), // its height
        (Kind::Agi, 40, "AGI"), // an unlinked list
        (Kind::Bnobt, 4, "bnobt block"),
        (Kind::Cntbt, 4, "cntbt block"),
        (Kind::Inobt, 4, "inobt block"),
        (Kind::Finobt, 4, "finobt block"),
        (Kind::Rmapbt, 4, "rmapbt block"),
        (Kind::Bmbt, 4, "bmbt block"),
        (Kind::DirLeafN, 56, "directory leafn block"),
        (Kind::DirLeaf1, 56, "directory leaf block"),
        (Kind::DaNode, 56, "da node"),
        (Kind::AttrLeaf, 56, "attr leaf block"),
        (Kind::DirFree, 52, "directory free index block"),
        (Kind::DirData, 48, "directory data block"),
        (Kind::DirBlock, 48, "directory block"),
    ] {
        watchdog.step(format!("{kind:?} {at}"));
        let device = Arc::new(Overlay::new(&SOUND.bytes));
        for block in SOUND.metadata.of(kind) {
            SOUND.change(&device, block, |bytes| put32(bytes, at, 0x7fff_fff0));
        }
        let errors = all_errors(&device);
        let start = format!("corrupt {words} at disk address ");
        let named = errors.iter().any(|error| error.to_string().starts_with(&start));
        assert!(named, "{kind:?} {at}: {:#?}", errors.iter().take(5).map(ToString::to_string).collect::<Vec<_>>());
    }
}

#[test]
fn a_btree_child_that_is_its_own_root_is_noticed() {
    let root = SOUND.metadata.of(Kind::Rmapbt).iter().find(|block| block.of(&SOUND.bytes)[5] > 0).expect("two levels");
    let (_, own) = SOUND.metadata.block_numbers(root.offset);
    let device = Arc::new(Overlay::new(&SOUND.bytes));
    SOUND.change(&device, root, |bytes| {
        for child in SOUND.metadata.of(Kind::Rmapbt) {
            let (_, number) = SOUND.metadata.block_numbers(child.offset);
            let at = bytes.chunks(4).position(|word| word == number.to_be_bytes());
            if child.offset != root.offset
                && let Some(at) = at
            {
                put32(bytes, 4 * at, own);
            }
        }
    });
    let errors = all_errors(&device);
    let text: String = errors.iter().map(|error| format!("{error}\n")).collect();
    assert!(text.contains("rmapbt block at disk address") && text.contains("level"), "{text}");
}

#[test]
fn lists_of_leaves_that_go_in_circles_are_noticed() {
    let device = Arc::new(Overlay::new(&SOUND.bytes));
    for kind in [Kind::DirLeafN, Kind::AttrLeaf] {
        for block in SOUND.metadata.of(kind) {
            // Forward to what is behind.
            SOUND.change(&device, block, |bytes| {
                let back: [u8; 4] = bytes[4..8].try_into().unwrap();
                bytes[0..4].copy_from_slice(&back);
            });
        }
    }
    let errors = all_errors(&device);
    assert!(errors.iter().any(|error| error.to_string().contains("da block")), "{errors:?}");
}

#[test]
fn directories_that_are_their_own_parents_are_noticed() {
    let path = |n: usize| (0..=n).map(|n| format!("/level {n}")).collect::<String>();
    let (low, _) = SOUND.inode(&path(8));
    let (above, _) = SOUND.inode(&path(2));
    let (_, block) = SOUND.inode(&path(3));
    // Level 3 says that level 8 is its parent, in the directory and in its parent pointer.
    let device = SOUND.with(block, |bytes| {
        put32(bytes, 178, low.0 as u32);
        replace(&mut bytes[184..], &above.0.to_be_bytes(), &low.0.to_be_bytes());
    });
    let fs = open(&device, false).unwrap();
    let me = Caller::root();
    let error = fs.rename(fs.root(), b"block", low, b"moved", RenameFlags::default(), &me).unwrap_err();
    assert_names(&error, &["directory", "parents lead to the root", "disk address"]);
    let error = fs.paths(low).unwrap_err();
    assert_names(&error, &["directory", "parents lead to the root", "disk address"]);
    fs.unmount().unwrap();
}

#[test]
fn unlinked_lists_that_go_in_circles_refuse_the_image_and_leave_it_alone() {
    let orphan = |bytes: &[u8]| bytes[2..4] != [0, 0] && bytes[16..20] == [0; 4] && bytes[96..100] != [0xff; 4];
    let blocks = SOUND.metadata.of(Kind::Inode);
    let block = blocks.iter().find(|block| orphan(block.of(&SOUND.bytes))).expect("an orphan before another");
    let number = u64::from_be_bytes(block.of(&SOUND.bytes)[152..160].try_into().unwrap()) as u32;
    let (named, _) = SOUND.inode("/sf");
    for (next, word) in [(number, "circle"), (named.0 as u32, "without a name"), (0x00ff_fff0, "unlinked")] {
        let device = SOUND.with(block, |bytes| put32(bytes, 96, next));
        device.seal();
        assert_names(&open(&device, false).err().expect("a refusal"), &["unlinked", word, "disk address"]);
        assert!(open(&device, true).is_ok());
    }
}

#[test]
fn link_counts_that_are_wrong_stop_the_operation_before_it_begins() {
    let me = Caller::root();
    let links = |path: &str, count: u32| SOUND.with(SOUND.inode(path).1, |bytes| put32(bytes, 16, count));
    let words = ["inode", "disk address", "links"];

    let fs = open(&links("/sf", 0), false).unwrap();
    let root = fs.root();
    assert_names(&fs.unlink(root, b"sf", &me).unwrap_err(), &words);
    assert_names(&fs.rename(root, b"sf", root, b"x", RenameFlags::default(), &me).unwrap_err(), &words);
    assert_names(&fs.rename(root, b"null", root, b"sf", RenameFlags::default(), &me).unwrap_err(), &words);
    fs.unlink(root, b"null", &me).unwrap();
    fs.unmount().unwrap();

    let fs = open(&links("/level 0", 2), false).unwrap();
    let dir = fs.lookup_number(root, b"level 0").unwrap();
    let moved = fs.rename(dir, b"level 1", root, b"up", RenameFlags::default(), &me);
    assert_names(&moved.unwrap_err(), &words);
    fs.unmount().unwrap();

    let deepest: String = (0..12).map(|n| format!("/level {n}")).collect();
    let fs = open(&links(&deepest, 7), false).unwrap();
    let parent = fs.resolve(deepest.rsplit_once('/').unwrap().0.as_bytes(), LastLink::Keep).unwrap().inode;
    assert_names(&fs.rmdir(parent, b"level 11", &me).unwrap_err(), &words);
    fs.unmount().unwrap();
}

#[test]
fn a_directory_that_holds_itself_cannot_make_an_operation_wait_for_itself() {
    let watchdog = Watchdog::new();
    watchdog.step("an entry that names its own directory");
    let (dir, block) = SOUND.inode("/level 0");
    let (child, _) = SOUND.inode("/level 0/level 1");
    let device = SOUND.with(block, |bytes| {
        replace(&mut bytes[182..], &(child.0 as u32).to_be_bytes(), &(dir.0 as u32).to_be_bytes());
    });
    let fs = open(&device, false).unwrap();
    let me = Caller::root();
    for error in [
        fs.unlink(dir, b"level 1", &me).unwrap_err(),
        fs.rmdir(dir, b"level 1", &me).unwrap_err(),
        fs.rename(dir, b"level 1", fs.root(), b"x", RenameFlags::default(), &me).unwrap_err(),
        fs.link(dir, b"again", dir, &Caller::root()).unwrap_err(),
    ] {
        println!("{error}");
    }
    walk(&fs, 100);
}

#[test]
fn extents_outside_the_device_are_named() {
    let (leaf, block) = SOUND.inode("/leaf");
    // The record's block number is all ones but for its lowest bits.
    let device = SOUND.with(block, |bytes| bytes[176 + 8..176 + 13].fill(0xff));
    let fs = open(&device, true).unwrap();
    let error = fs.list_dir(leaf).expect_err("a refusal");
    assert_names(&error, &["extent record at disk address", "lies within one AG"]);

    // Blocks of the superblock.
    let device = SOUND.with(block, |bytes| {
        bytes[176 + 6] &= 0xe0;
        bytes[176 + 7..176 + 13].fill(0);
        bytes[176 + 13] &= 0x1f;
    });
    let fs = open(&device, true).unwrap();
    let error = fs.list_dir(leaf).expect_err("a refusal");
    assert_names(&error, &["directory", "disk address 0", "checksum"]);
}

#[test]
fn counters_of_inodes_may_stand_at_their_ends() {
    let me = Caller::root();
    // Change count, generation, project.
    for (at, length) in [(104, 8), (92, 4), (20, 4)] {
        let device = SOUND.with(SOUND.inode("/level 0").1, |bytes| bytes[at..at + length].fill(0xff));
        let fs = open(&device, false).unwrap();
        let dir = fs.lookup_number(fs.root(), b"level 0").unwrap();
        let file = fs.create(dir, b"new", &xfskit_engine::NewFile::file(0o644), &me).unwrap().inode;
        fs.set_xattr(file, b"user.a", b"b", SetMode::Any, &me).unwrap();
        fs.unlink(dir, b"new", &me).unwrap();
        fs.unmount().unwrap();
    }
}

/// A rename and a link read the attributes of the file, for its parent pointers: what is wrong there is the file's, and
/// not that of the directory in whose transaction it is found.
#[test]
fn damaged_attributes_are_those_of_the_file_in_a_rename_and_a_link() {
    let me = Caller::root();
    let sound = open(&Arc::new(Overlay::new(&SOUND.bytes)), true).unwrap();
    let mut seen = 0;
    for block in SOUND.metadata.of(Kind::AttrLeaf) {
        let owner = u64::from_be_bytes(block.of(&SOUND.bytes)[48..56].try_into().unwrap());
        let parents = sound.parents(InodeNumber(owner)).unwrap_or_default();
        let Some((dir, name)) = parents.into_iter().next() else { continue };
        let checksum = Arc::new(Overlay::new(&SOUND.bytes));
        let mut bytes = block.of(&SOUND.bytes).to_vec();
        bytes[block.crc] ^= 0x40;
        checksum.patch(block.offset, &bytes);
        let stranger = SOUND.with(block, |bytes| bytes[48..56].copy_from_slice(&7_u64.to_be_bytes()));
        for device in [checksum, stranger] {
            let fs = open(&device, false).unwrap();
            let words = ["disk address", &format!("of owner {owner}:")];
            // Only some of the blocks lie on the way to the parent pointer.
            if let Err(error) = fs.rename(dir, &name, dir, b"moved", RenameFlags::default(), &me) {
                assert_names(&error, &words);
                seen += 1;
            }
            if let Err(error) = fs.link(fs.root(), b"linked", InodeNumber(owner), &me)
                && error.is_damage()
            {
                assert_names(&error, &words);
                seen += 1;
            }
        }
    }
    assert!(seen >= 4, "{seen} refusals");
}

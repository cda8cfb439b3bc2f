//! Clones in an image, or an AG, that has no space left for what they need: they are refused, and the filesystem lives.

use super::stress::{Image, fill};
use xfskit_engine::{Caller, Error, Fallocate, FileExtent, NewFile, Volume};
use xfskit_ondisk::InodeNumber;

const BLOCK: u64 = 4096;

fn make(fs: &Volume, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
}

fn files(fs: &Volume, count: usize) -> Vec<InodeNumber> {
    (0..count).map(|number| make(fs, &format!("clone-{number}"))).collect()
}

fn expect_alive(fs: &Volume, what: &str) {
    fs.mount().journal.check().unwrap_or_else(|dead| panic!("{what}: {dead}"));
}

/// Fills AG 0 alone.
fn fill_first_ag(fs: &Volume, filler: InodeNumber) {
    let ag_bytes = u64::from(fs.mount().geometry.ag_blocks) * BLOCK;
    let mut end = 0;
    for step in [4096, 512, 64, 8, 1] {
        loop {
            fs.fallocate(filler, end * BLOCK, step * BLOCK, Fallocate::Allocate).unwrap();
            let extents = fs.file_extents(filler).unwrap();
            let outside = |extent: &&FileExtent| extent.disk + extent.length > ag_bytes;
            if let Some(extent) = extents.iter().find(outside) {
                end = extent.offset / BLOCK;
                fs.truncate(filler, end * BLOCK).unwrap();
                break;
            }
            end += step;
        }
    }
    fs.sync().unwrap();
}

/// Shares blocks of one AG, which is nearly full, in place of other shared blocks of it, until that is refused.
fn share_until_short(fs: &Volume, variant: u64) {
    const BLOCKS: u64 = 6000;
    let base = make(fs, "base");
    for at in (0..BLOCKS).step_by(250) {
        fs.write_at(base, at * BLOCK, &vec![(at / 250) as u8 + 1; 250 * BLOCK as usize]).unwrap();
    }
    fs.sync().unwrap();
    let (filler, clones) = (make(fs, "filler"), files(fs, 30));
    fill_first_ag(fs, filler);
    for (number, clone) in clones.into_iter().enumerate() {
        let whole = std::iter::once((0, 0, 0));
        let blocks = (1..BLOCKS).step_by(2).map(|block| {
            let from = (block * (7 + 2 * variant) + 3000 * number as u64) % BLOCKS;
            (from * BLOCK, block * BLOCK, BLOCK)
        });
        for (from, to, length) in whole.chain(blocks) {
            match fs.clone_range(base, from, clone, to, length) {
                Ok(()) => {}
                Err(Error::NoSpace) => return expect_alive(fs, "a clone that was refused"),
                Err(error) => panic!("variant {variant}, clone {number}, block {}: {error}", to / BLOCK),
            }
        }
    }
    panic!("never short");
}

#[test]
fn shared_blocks_in_a_short_ag_are_refused_and_the_filesystem_lives() {
    for variant in 0..24 {
        let image = Image::new(256, &[('m', "rmapbt=1"), ('d', "agcount=4")]);
        let fs = image.open();
        share_until_short(&fs, variant);
        image.close(fs);
    }
}

/// A file of `extents` written extents of one block.
fn scattered(fs: &Volume, name: &str, extents: u64) -> InodeNumber {
    let file = make(fs, name);
    for at in (0..2 * extents).step_by(256) {
        fs.write_at(file, at * BLOCK, &vec![5; 256 * BLOCK as usize]).unwrap();
    }
    fs.sync().unwrap();
    for block in 0..extents {
        fs.fallocate(file, (2 * block + 1) * BLOCK, BLOCK, Fallocate::PunchHole).unwrap();
    }
    fs.sync().unwrap();
    file
}

/// Clones take no blocks for contents. What they take for trees must not be what removals need.
fn fill_and_clone(image: &Image, extents: u64, clones: usize) {
    let fs = image.open();
    let source = scattered(&fs, "source", extents);
    let (filler, clones) = (make(&fs, "filler"), files(&fs, clones));
    fs.sync().unwrap();
    fill(&fs, filler);
    let cloned = clones.into_iter().try_for_each(|clone| fs.clone_range(source, 0, clone, 0, 0));
    assert!(matches!(cloned, Err(Error::NoSpace)), "{cloned:?}");
    expect_alive(&fs, "a clone that was refused");
    fs.truncate(filler, 0).unwrap();
    fs.unlink(fs.root(), b"source", &Caller::root()).unwrap();
    image.close(fs);
}

#[test]
fn clones_on_a_full_image_are_refused_and_the_filesystem_lives() {
    fill_and_clone(&Image::new(64, &[('m', "rmapbt=1"), ('d', "agcount=1")]), 4000, 100);
}

#[test]
fn a_full_image_of_several_ags_lives_and_can_be_emptied_after_clones() {
    fill_and_clone(&Image::new(512, &[]), 8000, 600);
}

#[test]
fn a_file_that_shares_its_last_block_can_be_made_shorter_on_a_full_image() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let (source, target, filler) = (make(&fs, "source"), make(&fs, "target"), make(&fs, "filler"));
    fs.write_at(source, 0, &[7; BLOCK as usize]).unwrap();
    fs.clone_range(source, 0, target, 0, 0).unwrap();
    fill(&fs, filler);
    fs.truncate(target, 100).unwrap();
    fs.truncate(filler, 0).unwrap();
    fs.truncate(target, 200).unwrap();
    let mut found = [7; 200];
    assert_eq!(fs.read_at(target, 0, &mut found).unwrap(), 200);
    assert_eq!((&found[..100], &found[100..]), (&[7; 100][..], &[0; 100][..]));
    image.close(fs);
}

/// The tree of reverse mappings takes more blocks than are set aside for it and than ordinary operations leave, and the
/// superblock counts these as free.
#[test]
fn what_is_accepted_beside_many_reverse_mappings_reaches_the_device() {
    let image = Image::new(64, &[('m', "rmapbt=1"), ('d', "agcount=1")]);
    let mut fs = image.open();
    let source = scattered(&fs, "source", 4000);
    let (file, clones) = (make(&fs, "file"), files(&fs, 64));
    for clone in &clones {
        fs.clone_range(source, 0, *clone, 0, 0).unwrap();
    }
    for opened_anew in [false, true] {
        if opened_anew {
            image.close(fs);
            fs = image.open();
        }
        let mut writes = (0..).map(|block| fs.write_at(file, 2 * block * BLOCK, &[6; BLOCK as usize]));
        let refused = writes.find_map(Result::err);
        assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?}");
        fs.sync().unwrap();
        expect_alive(&fs, "a full image");
        fs.truncate(file, 0).unwrap();
    }
    image.close(fs);
}

//! Clones in an image, or an AG, that has no space left for what they need: they are refused, and the filesystem lives.

use super::stress::Image;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Caller, Error, Fallocate, FileExtent, NewFile, Volume};

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

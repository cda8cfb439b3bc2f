//! The fuzz target of tar streams: an image is filled from any bytes, with the checksums of headers corrected, and
//! checked.

use crate::image::{empty, small};
use crate::{Behaviour, Overlay};
use std::sync::{Arc, LazyLock};
use xfskit_check::{CheckOptions, Quiet};
use xfskit_device::BlockDevice;
use xfskit_engine::{MountOptions, Volume};
use xfskit_transfer::{Adjust, ImageSink, Needs, Shape, Source, TarSource, TransferError, survey, transfer};

const IMAGE_BYTES: usize = 24 << 20;
const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const MAGIC: std::ops::Range<usize> = 257..262;

static BASE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| Arc::new(empty(IMAGE_BYTES, &small([8; 16])).to_bytes()));

/// The result of filling an image from an archive.
#[derive(Debug)]
pub struct UnpackedArchive {
    /// The behaviour of survey and transfer.
    pub behaviour: Behaviour,
    /// The image; complete only if the archive was accepted.
    pub image: Arc<Overlay>,
    /// Whether the archive was accepted, and no part of it was left out.
    pub is_whole: bool,
}

/// Returns the archive with correct checksums in all blocks that look like headers.
pub fn mend(archive: &[u8]) -> Vec<u8> {
    let mut bytes = archive.to_vec();
    for block in bytes.chunks_exact_mut(BLOCK).filter(|block| &block[MAGIC] == b"ustar") {
        block[CHECKSUM].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

/// Fills an image from an archive. Panics if the image is not sound afterwards.
pub fn tar(input: &[u8]) -> Behaviour {
    fill(&mend(input)).behaviour
}

/// As [`tar`], but returns the image too, and leaves the checksums as they are.
///
/// # Panics
/// If the image is not sound afterwards, or the engine reports that it is not.
pub fn fill(archive: &[u8]) -> UnpackedArchive {
    let mut behaviour = Behaviour::new();
    let shape = Shape { block_bytes: 4096, inode_bytes: 512, dir_block_bytes: 4096, small: true };
    let mut needs = Needs::new(shape);
    let surveyed = survey(&mut TarSource::new(archive), &mut |node| needs.count(node), &Adjust::default(), &());
    behaviour.note_result("survey", &surveyed);
    behaviour.note(needs.image_bytes().ilog2());
    let image = Arc::new(Overlay::new(&BASE));
    let options = MountOptions { cache_bytes: 16 << 20, ..MountOptions::default() };
    let filesystem = Volume::open(Arc::clone(&image) as _, options).expect("a sound image");
    let mut source = TarSource::new(archive);
    let mut sink = ImageSink::new(&filesystem, filesystem.root()).expect("a root directory");
    let filled = transfer(&mut source, &mut sink, &Adjust::default(), &());
    behaviour.note_result("fill", &filled);
    match &filled {
        Ok(()) => assert!(surveyed.is_ok(), "what can be read cannot be surveyed: {surveyed:?}"),
        Err(TransferError::Image { source, path }) => assert!(!source.is_damage(), "{path}: {source}"),
        Err(error) => assert!(error.is_bad_source(), "{error}"),
    }
    let losses = source.losses();
    behaviour.note(losses.to_string().len().min(1));
    filesystem.unmount().expect("an image that can be closed");
    let options = CheckOptions { threads: 1, ..CheckOptions::default() };
    let report = xfskit_check::check(Arc::clone(&image) as Arc<dyn BlockDevice>, None, &options, &Quiet);
    let report = report.expect("an image that can be checked");
    assert!(report.is_clean(), "{report:?}");
    UnpackedArchive { behaviour, image, is_whole: filled.is_ok() && !losses.are_real() }
}

//! Damaged images from the fuzzing of the kernel. They are not part of this repository: the folder that
//! `XFSKIT_HOSTILE_IMAGES` names, or `shared/images` beside the repository, is searched for `*.img.zst`.

use crate::{Scratch, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The images in the order of their names, unpacked into `scratch`. If there is no folder or no zstd, prints why and
/// returns none.
///
/// # Panics
/// If an image cannot be unpacked, or if there is no zstd and `CI=true`.
pub fn fuzzed_images(scratch: &Scratch) -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/images");
    let folder = std::env::var_os("XFSKIT_HOSTILE_IMAGES").map_or(beside, PathBuf::from);
    let Ok(listing) = std::fs::read_dir(&folder) else {
        println!("skipped: there is no folder {}", folder.display());
        return Vec::new();
    };
    let mut packed: Vec<PathBuf> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
    packed.retain(|path| path.to_string_lossy().ends_with(".img.zst"));
    packed.sort();
    let mut images = Vec::new();
    for path in packed {
        let target = scratch.file(&path.file_stem().expect("a name").to_string_lossy());
        match Command::new("zstd").args(["-dqf", "-o"]).args([&target, &path]).status() {
            Ok(status) => assert!(status.success(), "zstd does not unpack {}", path.display()),
            Err(error) => {
                skip(&format!("zstd cannot be run: {error}"));
                return Vec::new();
            }
        }
        images.push(target);
    }
    images
}

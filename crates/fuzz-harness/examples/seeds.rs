//! Writes the seeds of all fuzz targets to a folder, with one folder below it for each target, as cargo-fuzz needs
//! them.

use std::path::PathBuf;
use xfskit_fuzz_harness::{disk, targets};

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into()));
    for target in targets::TARGETS.iter().chain(&disk::TARGETS) {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder)?;
        let seeds = (target.seeds)();
        for (index, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{index:04}")), seed)?;
        }
        println!("{}: {} seeds", folder.display(), seeds.len());
    }
    Ok(())
}

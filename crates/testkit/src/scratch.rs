//! A folder for images that is removed after the test.

use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder that is removed when it is dropped. It lies where the reference tools can see it.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
}

/// A new folder: in memory where that is possible, in the system's folder for temporary files otherwise.
///
/// # Panics
/// If no folder can be made.
pub fn scratch() -> Scratch {
    let memory = Path::new("/dev/shm");
    let dir = tempfile::Builder::new().prefix("xfskit-").tempdir_in(memory);
    Scratch { dir: dir.or_else(|_| tempfile::tempdir()).expect("a folder for temporary files") }
}

/// Copies an image; the copy is sparse.
///
/// # Panics
/// If there is no space.
pub fn copy_image(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("--sparse=always").arg(from).arg(to).status().expect("cp");
    assert!(status.success(), "{} cannot be copied", from.display());
}

impl Scratch {
    /// The folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The path of `name` in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A new sparse file of `bytes` zeros.
    ///
    /// # Panics
    /// If the file cannot be made.
    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.file(name);
        let file = std::fs::File::create(&path).expect("an image file");
        file.set_len(bytes).expect("room for a sparse file");
        path
    }
}

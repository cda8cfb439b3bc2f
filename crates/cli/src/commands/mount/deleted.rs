//! An image whose last name is removed while it is mounted: everything is gone when the mount is.
//!
//! The parent of the mount, which has no image open, watches the name by inotify and says so at once.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::fs::Metadata;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Room for some events; names of files in a folder do not come.
const EVENT_BYTES: usize = 4096;

/// A file whose name is watched.
pub(super) struct Watched {
    path: PathBuf,
    /// Device and number of the file, and whether it had one name alone when that was looked at last.
    file: (u64, u64),
    has_one_name: bool,
}

impl Watched {
    fn new(path: &Path, data: &Metadata) -> Self {
        Self { path: path.into(), file: (data.dev(), data.ino()), has_one_name: data.nlink() == 1 }
    }

    /// Whether its last name is gone. One that was renamed is not known any more, and not one with several names.
    fn is_deleted(&mut self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(data) if (data.dev(), data.ino()) == self.file => {
                self.has_one_name = data.nlink() == 1;
                // The event comes a moment before the name is gone.
                data.nlink() == 0
            }
            Ok(_) => self.has_one_name,
            Err(error) => error.kind() == io::ErrorKind::NotFound && self.has_one_name,
        }
    }
}

/// Waits until the last name of one of these files is removed, and returns it. Files on servers are not watched.
///
/// # Errors
/// The system's; `Unsupported` when there is nothing to watch any more.
pub(super) fn wait(files: Vec<PathBuf>) -> io::Result<PathBuf> {
    let inotify = inotify::init(CreateFlags::CLOEXEC)?;
    let mut watched = Vec::new();
    for path in files {
        let Ok(data) = std::fs::metadata(&path) else { continue };
        // The count of names is an attribute.
        let kinds = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        if data.is_file() && inotify::add_watch(&inotify, &path, kinds).is_ok() {
            watched.push(Watched::new(&path, &data));
        }
    }
    let mut room = [MaybeUninit::uninit(); EVENT_BYTES];
    let mut events = inotify::Reader::new(inotify, &mut room);
    while !watched.is_empty() {
        let event = match events.next() {
            Err(rustix::io::Errno::INTR) => continue,
            event => event?.events(),
        };
        if event.contains(ReadFlags::MOVE_SELF) {
            // Of several files it is not known which; each that is not in its place was renamed.
            watched.retain(|file| file.path.exists());
            continue;
        }
        if let Some(file) = watched.iter_mut().find_map(|file| file.is_deleted().then(|| file.path.clone())) {
            return Ok(file);
        }
    }
    Err(io::ErrorKind::Unsupported.into())
}

/// What is to be done about it, while it is mounted.
pub(super) fn message(path: &Path, mount_point: &Path, server: u32) -> String {
    let (image, dir) = (path.display(), mount_point.display());
    let open = file_of(path, server).map_or_else(String::new, |place| {
        format!(", or the image as it is now, when all is written ('sync -f {dir}'): cp --sparse=always {place} FILE")
    });
    format!(
        "{image}: this image was deleted while it is mounted on {dir}: all of it is gone when it is unmounted. Copy \
         its files from there (cp -a {dir}/. ELSEWHERE){open}"
    )
}

/// Where the deleted file is among those that a server has open, if this process may look.
fn file_of(path: &Path, server: u32) -> Option<String> {
    let name = format!("{} (deleted)", path.display());
    let files = std::fs::read_dir(format!("/proc/{server}/fd")).ok()?;
    let found = files.flatten().find(|file| std::fs::read_link(file.path()).is_ok_and(|link| link == Path::new(&name)));
    found.map(|file| file.path().display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_name_that_is_removed_is_noticed_and_others_are_not() {
        let dir = std::env::temp_dir().join(format!("xfskit-deleted-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let [one, other, second] = ["one", "other", "second"].map(|name| dir.join(name));
        std::fs::write(&one, "").unwrap();
        std::fs::write(&other, "").unwrap();
        std::fs::hard_link(&other, &second).unwrap();
        let files = vec![one.clone(), other.clone()];
        let waiting = std::thread::spawn(move || wait(files).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(100));
        std::fs::remove_file(&other).unwrap();
        std::fs::set_permissions(&one, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!waiting.is_finished());
        std::fs::remove_file(&one).unwrap();
        assert_eq!(waiting.join().unwrap(), one);
        std::fs::remove_dir_all(dir).unwrap();
    }
}

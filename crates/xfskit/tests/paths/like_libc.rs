//! What `std::fs` has no call for, beside the system's calls: device nodes, renames with flags, owners and times of
//! symbolic links themselves.

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, RenameFlags, Timespec, Timestamps, Uid};
use rustix::fs::{chownat, lstat, makedev, mkdir, mknodat, renameat_with, symlink, utimensat};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use xfskit::{Filesystem, Node, Permissions, RenameMode, Times};
use xfskit_testkit::scratch;

/// The number of the error, or 0.
fn ours<T>(result: xfskit::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.errno())
}

fn theirs<T>(result: rustix::io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error())
}

/// Device nodes and owners are root's to make.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || std::env::var_os("CI").is_none(), "root is needed");
    if !is_root {
        eprintln!("skipped: root is needed");
    }
    is_root
}

#[test]
fn nodes_are_made_as_by_mknod() {
    if !is_root() {
        return;
    }
    let (scratch, (_, fs)) = (scratch(), super::image(64 << 20));
    let host = scratch.path().join("nodes");
    mkdir(&host, Mode::from_raw_mode(0o755)).unwrap();
    let nodes = [
        (Node::Fifo, FileType::Fifo, (0, 0)),
        (Node::Socket, FileType::Socket, (0, 0)),
        (Node::CharDevice { major: 1, minor: 3 }, FileType::CharacterDevice, (1, 3)),
        (Node::BlockDevice { major: 511, minor: 262_143 }, FileType::BlockDevice, (511, 262_143)),
    ];
    // A mask of the process takes no bit of the owner.
    for (index, (node, file_type, (major, minor))) in nodes.into_iter().enumerate() {
        for path in [format!("n{index}"), format!("n{index}"), format!("m{index}/"), "no/n".into(), "n0/n".into()] {
            let (mode, device) = (Mode::from_raw_mode(0o700), makedev(major, minor));
            let made = mknodat(CWD, host.join(&path), file_type, mode, device);
            assert_eq!(ours(fs.create_node(&path, node, Permissions::new(0o700))), theirs(made), "{path}");
        }
        let (found, kernels) =
            (fs.metadata(format!("n{index}")).unwrap(), lstat(host.join(format!("n{index}"))).unwrap());
        assert_eq!(u32::from(found.permissions().bits()), kernels.st_mode & 0o7777);
        assert_eq!(
            format!("{:?}", found.file_type()).to_lowercase(),
            format!("{node:?}").split(' ').next().unwrap().to_lowercase()
        );
        let number = (rustix::fs::major(kernels.st_rdev), rustix::fs::minor(kernels.st_rdev));
        assert_eq!(found.device().unwrap_or_default(), number);
    }
    let too_large = Node::CharDevice { major: 512, minor: 0 };
    assert_eq!(ours(fs.create_node("large", too_large, Permissions::new(0o600))), 22);
    let too_large = Node::BlockDevice { major: 0, minor: 1 << 18 };
    assert_eq!(ours(fs.create_node("large", too_large, Permissions::new(0o600))), 22);
    fs.close().unwrap();
}

const NAMES: [&str; 6] = ["file", "other", "empty", "full", "link", "none"];

/// A folder with one name of each kind.
fn furnish(fs: &Filesystem, folder: &str, host: &Path) {
    fs.create_dir_all(format!("{folder}/full/below")).unwrap();
    fs.create_dir(format!("{folder}/empty")).unwrap();
    fs.symlink("full", format!("{folder}/link")).unwrap();
    std::fs::create_dir_all(host.join(folder).join("full/below")).unwrap();
    std::fs::create_dir(host.join(folder).join("empty")).unwrap();
    symlink("full", host.join(folder).join("link")).unwrap();
    for name in ["file", "other"] {
        fs.write(format!("{folder}/{name}"), name).unwrap();
        std::fs::write(host.join(folder).join(name), name).unwrap();
    }
}

/// What each name is now: its type, and the contents of a file.
fn looks(root: &str, is: impl Fn(&str) -> Option<String>) -> Vec<Option<String>> {
    NAMES.iter().map(|name| is(&format!("{root}/{name}"))).collect()
}

#[test]
fn renames_with_flags_do_what_the_systems_do() {
    let (scratch, (_, fs)) = (scratch(), super::image(128 << 20));
    let host = scratch.path();
    let modes = [
        (RenameMode::Replace, RenameFlags::empty()),
        (RenameMode::NoReplace, RenameFlags::NOREPLACE),
        (RenameMode::Exchange, RenameFlags::EXCHANGE),
    ];
    let mut folders = 0;
    for (mode, flags) in modes {
        for from in NAMES {
            for to in NAMES {
                for (from_end, to_end) in [("", ""), ("/", ""), ("", "/"), ("/", "/")] {
                    folders += 1;
                    let folder = format!("f{folders}");
                    furnish(&fs, &folder, host);
                    let (old, new) = (format!("{folder}/{from}{from_end}"), format!("{folder}/{to}{to_end}"));
                    let what = format!("{old} to {new}, {mode:?}");
                    let kernels = renameat_with(CWD, host.join(&old), CWD, host.join(&new), flags);
                    assert_eq!(ours(fs.rename_with(&old, &new, mode)), theirs(kernels), "{what}");
                    let found = looks(&folder, |path| {
                        let metadata = fs.symlink_metadata(path).ok()?;
                        Some(if metadata.is_file() {
                            fs.read_to_string(path).unwrap()
                        } else {
                            format!("{} {}", metadata.is_dir(), metadata.nlink())
                        })
                    });
                    let kernels = looks(&folder, |path| {
                        let metadata = std::fs::symlink_metadata(host.join(path)).ok()?;
                        Some(if metadata.is_file() {
                            std::fs::read_to_string(host.join(path)).unwrap()
                        } else {
                            let below = |path| std::fs::read_dir(host.join(path)).unwrap().count() as u64;
                            // Not every filesystem counts subdirectories.
                            let links = if metadata.is_dir() { 2 + below(path) } else { metadata.nlink() };
                            format!("{} {links}", metadata.is_dir())
                        })
                    });
                    assert_eq!(found, kernels, "{what}");
                    fs.remove_dir_all(&folder).unwrap();
                    std::fs::remove_dir_all(host.join(&folder)).unwrap();
                }
            }
        }
    }
    fs.close().unwrap();
}

#[test]
fn owners_and_times_of_a_link_are_its_own() {
    if !is_root() {
        return;
    }
    let (scratch, (_, fs)) = (scratch(), super::image(64 << 20));
    let host = scratch.path();
    fs.write("file", "").unwrap();
    std::fs::write(host.join("file"), "").unwrap();
    let start = Times::new().accessed(UNIX_EPOCH).modified(UNIX_EPOCH);
    for (target, link) in [("file", "link"), ("nowhere", "lost")] {
        fs.symlink(target, link).unwrap();
        symlink(target, host.join(link)).unwrap();
    }
    let spec = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let set = |path: &str, seconds: u64, nanoseconds: u32| {
        let time = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        let times = Times::new().accessed(time).modified(time);
        let kernels = Timestamps {
            last_access: spec(seconds as i64, nanoseconds.into()),
            last_modification: spec(seconds as i64, nanoseconds.into()),
        };
        let kernels = utimensat(CWD, host.join(path), &kernels, AtFlags::SYMLINK_NOFOLLOW);
        assert_eq!(ours(fs.set_symlink_times(path, times)), theirs(kernels), "{path}");
    };
    fs.set_times("file", start).unwrap();
    let file = std::fs::File::options().write(true).open(host.join("file")).unwrap();
    file.set_times(std::fs::FileTimes::new().set_accessed(UNIX_EPOCH).set_modified(UNIX_EPOCH)).unwrap();
    for (seconds, path) in (1_000_000_000..).zip(["link", "lost", "none"]) {
        set(path, seconds, 7);
        let (uid, gid) = (Some(Uid::from_raw(3)), Some(Gid::from_raw(4)));
        let kernels = chownat(CWD, host.join(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        assert_eq!(ours(fs.set_symlink_owner(path, Some(3), Some(4))), theirs(kernels), "{path}");
    }
    for path in ["file", "link", "lost"] {
        let (found, kernels) =
            (fs.symlink_metadata(path).unwrap(), std::fs::symlink_metadata(host.join(path)).unwrap());
        assert_eq!((found.uid(), found.gid()), (kernels.uid(), kernels.gid()), "{path}");
        assert_eq!(found.modified(), kernels.modified().unwrap(), "{path}");
        assert_eq!(found.accessed(), kernels.accessed().unwrap(), "{path}");
    }
    fs.close().unwrap();
}

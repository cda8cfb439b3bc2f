//! The same random calls by `std::fs` in a folder and by paths in an image: each gives the same result, and both end
//! with the same tree, as the kernel's mount of the image sees it.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use xfskit::{FileOptions, Filesystem, MkfsOptions, Permissions, Times};
use xfskit_testkit::{kernel_mount, reference, scratch, tree};

const PATHS: &[&str] = &[
    "a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f/g", "to-a", "d/up", "d/", "b/", "d/.", "d/e/..", "lost", "a/x",
];
const STEPS: usize = 20_000;

#[derive(Clone, Copy, Debug)]
enum Call {
    Write,
    Append,
    CreateNew,
    Read,
    ReadLink,
    CreateDir,
    CreateDirAll,
    RemoveFile,
    RemoveDir,
    RemoveDirAll,
    Rename,
    HardLink,
    Symlink,
    Metadata,
    SymlinkMetadata,
    Exists,
    Canonicalize,
    Chmod,
    Chown,
    SetTimes,
    ReadDir,
    Copy,
}

const CALLS: &[Call] = &[
    Call::Write,
    Call::Append,
    Call::CreateNew,
    Call::Read,
    Call::ReadLink,
    Call::CreateDir,
    Call::CreateDir,
    Call::CreateDirAll,
    Call::RemoveFile,
    Call::RemoveDir,
    Call::RemoveDirAll,
    Call::Rename,
    Call::Rename,
    Call::HardLink,
    Call::Symlink,
    Call::Metadata,
    Call::SymlinkMetadata,
    Call::Exists,
    Call::Canonicalize,
    Call::Chmod,
    Call::Chown,
    Call::SetTimes,
    Call::ReadDir,
    Call::Copy,
];

/// A call, the two paths that it may take, and a number that decides the rest.
#[derive(Clone, Copy, Debug)]
struct Step {
    call: Call,
    path: &'static str,
    other: &'static str,
    number: u64,
}

fn described(kind: &str, size: u64, mode: u32, links: u64) -> String {
    let size = if kind == "dir" { 0 } else { size };
    format!("{kind} of {size} bytes, {mode:o}, {links} links")
}

fn of_std(metadata: &fs::Metadata) -> String {
    let kind = match metadata.file_type() {
        t if t.is_dir() => "dir",
        t if t.is_symlink() => "link",
        _ => "file",
    };
    described(kind, metadata.len(), metadata.permissions().mode() & 0o7777, metadata.nlink())
}

fn of_ours(metadata: &xfskit::Metadata) -> String {
    let kind = match metadata.file_type() {
        t if t.is_dir() => "dir",
        t if t.is_symlink() => "link",
        _ => "file",
    };
    described(kind, metadata.len(), metadata.permissions().bits().into(), metadata.nlink().into())
}

fn contents(number: u64) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; (number % 9000) as usize]
}

fn time(number: u64) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::new(number % 4_000_000_000, (number % 1_000_000_000) as u32)
}

fn by_std(root: &Path, step: Step) -> io::Result<String> {
    let (path, other) = (root.join(step.path), root.join(step.other));
    let done = |result: io::Result<()>| result.map(|()| String::new());
    match step.call {
        Call::Write => done(fs::write(path, contents(step.number))),
        Call::Append => {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(path)?;
            done(file.write_all(&contents(step.number)))
        }
        Call::CreateNew => done(fs::OpenOptions::new().write(true).create_new(true).open(path).map(drop)),
        Call::Read => fs::read(path).map(|read| read.escape_ascii().to_string()),
        Call::ReadLink => fs::read_link(path).map(|target| target.display().to_string()),
        Call::CreateDir => done(fs::DirBuilder::new().mode(0o755).create(path)),
        Call::CreateDirAll => done(fs::create_dir_all(path)),
        Call::RemoveFile => done(fs::remove_file(path)),
        Call::RemoveDir => done(fs::remove_dir(path)),
        Call::RemoveDirAll => done(fs::remove_dir_all(path)),
        Call::Rename => done(fs::rename(path, other)),
        Call::HardLink => done(fs::hard_link(path, other)),
        Call::Symlink => done(symlink(step.other, path)),
        Call::Metadata => fs::metadata(path).map(|metadata| of_std(&metadata)),
        Call::SymlinkMetadata => fs::symlink_metadata(path).map(|metadata| of_std(&metadata)),
        Call::Canonicalize => {
            let found = fs::canonicalize(path)?;
            Ok(format!("/{}", found.strip_prefix(root).unwrap().display()))
        }
        Call::Exists => fs::exists(path).map(|exists| exists.to_string()),
        Call::Chmod => done(fs::set_permissions(path, fs::Permissions::from_mode(mode(step.number).into()))),
        Call::Chown => done(chown(path, Some(step.number as u32 % 5), None)),
        Call::SetTimes => {
            let file = fs::File::open(path)?;
            file.set_times(fs::FileTimes::new().set_modified(time(step.number)))?;
            Ok(format!("{:?}", file.metadata()?.modified()?))
        }
        Call::ReadDir => {
            let names: Vec<_> = fs::read_dir(path)?.map(|entry| entry.unwrap().file_name()).collect();
            Ok(sorted(names.into_iter().map(|name| name.into_string().unwrap()).collect()))
        }
        Call::Copy => fs::copy(path, other).map(|bytes| bytes.to_string()),
    }
}

fn by_ours(fs: &Filesystem, step: Step) -> io::Result<String> {
    let (path, other) = (step.path, step.other);
    let done = |result: xfskit::Result<()>| Ok(result.map(|()| String::new())?);
    match step.call {
        Call::Write => done(fs.write(path, contents(step.number))),
        Call::Append => {
            let mut file = fs.open_with(path, &FileOptions::new().append(true).create(true))?;
            file.write_all(&contents(step.number)).map(|()| String::new())
        }
        Call::CreateNew => done(fs.open_with(path, &FileOptions::new().write(true).create_new(true)).map(drop)),
        Call::Read => Ok(fs.read(path).map(|read| read.escape_ascii().to_string())?),
        Call::ReadLink => Ok(fs.read_link(path).map(|target| target.display().to_string())?),
        Call::CreateDir => done(fs.create_dir(path)),
        Call::CreateDirAll => done(fs.create_dir_all(path)),
        Call::RemoveFile => done(fs.remove_file(path)),
        Call::RemoveDir => done(fs.remove_dir(path)),
        Call::RemoveDirAll => done(fs.remove_dir_all(path)),
        Call::Rename => done(fs.rename(path, other)),
        Call::HardLink => done(fs.hard_link(path, other)),
        Call::Symlink => done(fs.symlink(other, path)),
        Call::Metadata => Ok(of_ours(&fs.metadata(path)?)),
        Call::SymlinkMetadata => Ok(of_ours(&fs.symlink_metadata(path)?)),
        Call::Canonicalize => Ok(fs.canonicalize(path)?.display().to_string()),
        Call::Exists => Ok(fs.exists(path)?.to_string()),
        Call::Chmod => done(fs.set_permissions(path, Permissions::new(mode(step.number)))),
        Call::Chown => done(fs.set_owner(path, Some(step.number as u32 % 5), None)),
        Call::SetTimes => {
            fs.set_times(path, Times::new().modified(time(step.number)))?;
            Ok(format!("{:?}", fs.metadata(path)?.modified()))
        }
        Call::ReadDir => {
            let names = fs.read_dir(path)?.map(|entry| String::from_utf8(entry.unwrap().name().to_vec()).unwrap());
            Ok(sorted(names.collect()))
        }
        Call::Copy => Ok(fs.copy(path, other)?.to_string()),
    }
}

fn mode(number: u64) -> u16 {
    // The owner keeps the right to everything: root's calls do not ask, but the comparison should not depend on root.
    0o700 | (number % 0o7000) as u16 & 0o1077
}

fn sorted(mut names: Vec<String>) -> String {
    names.sort();
    names.join(" ")
}

/// Where the two differ on purpose, or where Linux filesystems differ among themselves.
fn may_differ(step: Step) -> bool {
    let removes = matches!(step.call, Call::RemoveFile | Call::RemoveDir | Call::RemoveDirAll | Call::Rename);
    let last_is_dots = |path: &str| path.ends_with("/.") || path.ends_with("/..");
    removes && (last_is_dots(step.path) || matches!(step.call, Call::Rename) && last_is_dots(step.other))
}

#[test]
fn random_calls_give_the_results_and_the_tree_that_std_gives() {
    let scratch = scratch();
    let folder = scratch.file("folder");
    fs::create_dir(&folder).unwrap();
    let path = scratch.file("disk.img");
    let image = xfskit::create(&path, 64 << 20, &MkfsOptions::new().small()).unwrap();
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    let mut succeeded = 0;
    for number in 0..STEPS {
        let pick = |at: u64| PATHS[at as usize % PATHS.len()];
        let call = CALLS[next() as usize % CALLS.len()];
        let step = Step { call, path: pick(next()), other: pick(next()), number: next() };
        if matches!(call, Call::CreateDirAll) && step.path.ends_with('.') {
            // std makes `d/.` where `d` exists, and only there.
            continue;
        }
        if may_differ(step) {
            let kind = by_ours(&image, step).map_err(|error| error.kind());
            assert!(kind.is_err(), "{number}: {step:?}");
            continue;
        }
        if matches!(call, Call::Copy) && is_one_file(&folder, step) || empties_target(&folder, step) {
            // std loses contents that the path did not name.
            assert!(by_ours(&image, step).is_err(), "{number}: {step:?}");
            continue;
        }
        let (theirs, ours) = (by_std(&folder, step), by_ours(&image, step));
        succeeded += usize::from(theirs.is_ok());
        let shown = format!("{number}: {step:?}: std {theirs:?}, ours {ours:?}");
        let kind = |result: io::Result<String>| result.map_err(|error| like_ours(call, error.kind()));
        assert_eq!(kind(theirs), kind(ours), "{shown}");
    }
    assert!(succeeded > STEPS / 5, "only {succeeded} calls succeeded");
    image.close().unwrap();

    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&path);
    }
    let device = std::sync::Arc::new(xfskit::device::FileDevice::open(&path, xfskit::device::Access::Read).unwrap());
    let report = xfskit_check::check(device, None, &Default::default(), &xfskit_check::Quiet).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    let Some(mount) = kernel_mount(&path) else { return };
    let comparable = |mut entries: Vec<xfskit_testkit::TreeEntry>| {
        for entry in &mut entries {
            entry.mtime = (0, 0);
            if entry.path == PathBuf::new() {
                (entry.mode, entry.links) = (0, 0);
                // mkfs gives the root a property.
                entry.xattrs.clear();
            }
        }
        entries.into_iter().map(|entry| entry.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(comparable(mount.into_tree()), comparable(tree(&folder)));
}

/// A tree is to be removed by the name of a symbolic link, with a slash behind it.
fn empties_target(root: &Path, step: Step) -> bool {
    let name = step.path.trim_end_matches('/');
    let is_link = fs::symlink_metadata(root.join(name)).is_ok_and(|metadata| metadata.is_symlink());
    matches!(step.call, Call::RemoveDirAll) && is_link && name != step.path
}

fn is_one_file(root: &Path, step: Step) -> bool {
    let number = |path: &str| fs::metadata(root.join(path)).ok().map(|metadata| metadata.ino());
    number(step.path).is_some() && number(step.path) == number(step.other)
}

/// Where what is to be written cannot be a file, as a directory or a name with a slash, Linux has several names for
/// that.
fn like_ours(call: Call, kind: ErrorKind) -> String {
    let writes = matches!(call, Call::Write | Call::Append | Call::Copy);
    match format!("{kind:?}").as_str() {
        "IsADirectory" | "NotADirectory" if writes => "no file".to_owned(),
        // As std calls a directory that is to be copied.
        "InvalidInput" if matches!(call, Call::Copy) => "no file".to_owned(),
        other => other.to_owned(),
    }
}

/// Every combination of the ways to open, set in either order, of a file that exists and of one that does not.
#[test]
fn ways_to_open_combine_as_in_std() {
    let scratch = scratch();
    let folder = scratch.file("folder");
    fs::create_dir(&folder).unwrap();
    let (_device, image) = crate::image(32 << 20);
    for ways in 0..32_u32 {
        let [write, append, truncate, create, create_new] = [0, 1, 2, 3, 4].map(|bit| ways >> bit & 1 == 1);
        for (name, is_there) in [("there", true), ("missing", false)] {
            for new_first in [true, false] {
                let path = folder.join(name);
                let _ = (fs::remove_file(&path), image.remove_file(name));
                if is_there {
                    fs::write(&path, "precious").unwrap();
                    image.write(name, "precious").unwrap();
                }
                let mut theirs = fs::OpenOptions::new();
                theirs.read(true).write(write).append(append).truncate(truncate).create(create).create_new(create_new);
                let ours = FileOptions::new().write(write).append(append).truncate(truncate);
                let ours = match new_first {
                    true => ours.create_new(create_new).create(create),
                    false => ours.create(create).create_new(create_new),
                };
                let (theirs, ours) = (theirs.open(&path), image.open_with(name, &ours));
                let what = format!("{ways:05b} {name}");
                assert_eq!(ours.is_ok(), theirs.is_ok(), "{what}: {theirs:?}");
                if let (Err(ours), Err(theirs)) = (&ours, &theirs) {
                    assert_eq!(ours.kind(), theirs.kind(), "{what}");
                }
                drop(ours);
                assert_eq!(image.read(name).ok(), fs::read(&path).ok(), "{what}");
            }
        }
    }
}

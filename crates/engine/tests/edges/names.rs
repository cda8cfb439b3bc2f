//! Names: in batches, in links, and read in batches.

use crate::stress;
use xfskit_engine::{Caller, Error, LastLink, NewFile, Permissions, WholeFile};
use xfskit_ondisk::Timestamp;

fn small<'a>(name: &'a [u8], xattrs: &'a [(Vec<u8>, Vec<u8>)]) -> WholeFile<'a> {
    let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    WholeFile {
        name,
        permissions: Permissions::new(0o644),
        uid: 0,
        gid: 0,
        atime: time,
        mtime: time,
        xattrs,
        contents: name,
    }
}

#[test]
fn a_batch_with_the_same_name_twice_is_refused_before_anything_is_made() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let files = [small(b"one", &[]), small(b"two", &[]), small(b"one", &[])];
    assert!(matches!(fs.make_files(fs.root(), &files), Err(Error::Exists)));
    assert!(matches!(fs.lookup(fs.root(), b"two"), Err(Error::NotFound)));
    assert_eq!(fs.make_files(fs.root(), &files[..2]).unwrap().len(), 2);
    image.close(fs);
}

#[test]
fn attributes_that_are_too_long_for_shortform_or_have_no_proper_name_are_not_small() {
    let image = stress::Image::new(320, &[('i', "size=2048")]);
    let fs = image.open();
    let long = [(b"user.long".to_vec(), vec![5; 300])];
    assert!(!fs.is_small(&small(b"one", &long)));
    let odd = [(b"user.a\0b".to_vec(), b"value".to_vec())];
    assert!(!fs.is_small(&small(b"one", &odd)));
    image.close(fs);
}

/// A slash at the end of a link's target asks for a directory, as one at the end of a path does.
#[test]
fn links_lead_where_the_systems_do() {
    let (scratch, image) = (xfskit_testkit::scratch(), stress::Image::new(64, &[]));
    let (fs, me, host) = (image.open(), Caller::root(), scratch.path().join("tree"));
    std::fs::create_dir_all(host.join("dir")).unwrap();
    std::fs::write(host.join("file"), "").unwrap();
    fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap();
    fs.create(fs.root(), b"file", &NewFile::file(0o644), &me).unwrap();
    let targets = [
        "file",
        "file/",
        "file/.",
        "dir",
        "dir/",
        "dir/.",
        "dir/../file/",
        "./dir//",
        "link 1",
        "link 1/",
        "link 4/",
        "link 11",
    ];
    for (index, target) in targets.iter().enumerate() {
        let name = format!("link {index}");
        std::os::unix::fs::symlink(target, host.join(&name)).unwrap();
        fs.symlink(fs.root(), name.as_bytes(), target.as_bytes(), &me).unwrap();
    }
    for (index, target) in targets.iter().enumerate() {
        for end in ["", "/", "/."] {
            let path = format!("link {index}{end}");
            let ours = fs.resolve(path.as_bytes(), LastLink::Follow).err().map(|error| error.errno());
            let theirs = std::fs::metadata(host.join(&path)).err().map(|error| error.raw_os_error().unwrap());
            assert_eq!(ours, theirs, "{path} -> {target}");
        }
    }
    // A chain of links, up to the longest that is allowed, and longer.
    for length in 1..=42 {
        let (name, target) = (format!("chain {length}"), format!("chain {}", length - 1));
        let target = if length == 1 { "file" } else { &target };
        std::os::unix::fs::symlink(target, host.join(&name)).unwrap();
        fs.symlink(fs.root(), name.as_bytes(), target.as_bytes(), &me).unwrap();
        let ours = fs.resolve(name.as_bytes(), LastLink::Follow).err().map(|error| error.errno());
        let theirs = std::fs::metadata(host.join(&name)).err().map(|error| error.raw_os_error().unwrap());
        assert_eq!(ours, theirs, "{name}");
    }
    image.close(fs);
}

#[test]
fn entries_are_read_in_batches_that_miss_none() {
    let image = stress::Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let mut names = Vec::new();
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
    for count in [0, 1, 127, 128, 129, 256, 300] {
        while names.len() < count {
            let name = format!("name {:03}", names.len()).into_bytes();
            fs.create(dir, &name, &NewFile::file(0o644), &me).unwrap();
            names.push(name);
        }
        let mut listed: Vec<_> = fs.entries(dir).unwrap().map(|entry| entry.unwrap().name).collect();
        listed.sort();
        assert_eq!(listed, names);
    }
    // What is removed meanwhile is not missed by the others, and the directory stays as long as it is listed.
    let mut listing = fs.entries(dir).unwrap();
    let first = listing.next().unwrap().unwrap();
    names.iter().for_each(|name| fs.unlink(dir, name, &me).unwrap());
    fs.rmdir(fs.root(), b"dir", &me).unwrap();
    let seen: Vec<_> = listing.map(|entry| entry.unwrap().name).collect();
    assert!(seen.len() <= 127 && !seen.contains(&first.name), "{}", seen.len());
    assert!(matches!(fs.entries(dir), Err(Error::Stale(_))));
    image.close(fs);
}

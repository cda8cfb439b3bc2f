//! Random changes that damage makes dangerous: to links and counts, with conversions of forms, and with space freed.

use crate::Random;
use xfskit_engine::{Caller, Error, NewFile, Permissions, RenameFlags, SetAttr, SetMode, SetTime, Volume};
use xfskit_ondisk::InodeNumber;

/// Does `count` changes below the root. Returns the errors that say that the image is damaged.
pub fn exercise(fs: &Volume, random: &mut Random, count: usize) -> Vec<Error> {
    let me = Caller::root();
    let mut dirs = vec![fs.root()];
    let mut files = Vec::new();
    let mut errors = Vec::new();
    let mut unseen = vec![fs.root()];
    while let Some(dir) = unseen.pop() {
        for entry in fs.list_dir(dir).unwrap_or_default().iter().take(100) {
            match fs.stat(entry.inode) {
                Ok(stat) if !stat.file_type.is_dir() => files.push(entry.inode),
                Ok(_) if dirs.len() >= 12 || dirs.contains(&entry.inode) => {}
                Ok(_) => {
                    dirs.push(entry.inode);
                    unseen.push(entry.inode);
                }
                Err(error) => errors.push(error),
            }
        }
    }
    for _ in 0..count {
        let dir = dirs[random.below(dirs.len())];
        let other = dirs[random.below(dirs.len())];
        let all = dirs.iter().chain(&files).copied().collect::<Vec<_>>();
        let inode = all[random.below(all.len())];
        if let Err(error) = change(fs, random, &me, dir, other, inode)
            && error.is_damage()
        {
            errors.push(error);
        }
    }
    errors
}

fn any_name(fs: &Volume, random: &mut Random, dir: InodeNumber) -> Vec<u8> {
    let skip = random.below(64);
    let mut found = Vec::new();
    let mut seen = 0;
    let _ = fs.read_dir(dir, 0, |entry| {
        found = entry.name.to_vec();
        seen += 1;
        if seen > skip { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    });
    found
}

fn change(
    fs: &Volume,
    random: &mut Random,
    me: &Caller,
    dir: InodeNumber,
    other: InodeNumber,
    inode: InodeNumber,
) -> Result<(), Error> {
    let name = any_name(fs, random, dir);
    let fresh = format!("a new name of some length {}", random.below(500)).into_bytes();
    match random.below(14) {
        0 => fs.create(dir, &fresh, &NewFile::file(0o644), me).map(drop),
        1 => fs.create(dir, &fresh, &NewFile::dir(0o755), me).map(drop),
        2 => fs.symlink(dir, &fresh, &vec![b'x'; 1 + random.below(1000)], me).map(drop),
        3 => fs.link(dir, &fresh, inode, &Caller::root()).map(drop),
        4 | 5 => fs.unlink(dir, &name, me),
        6 => fs.rmdir(dir, &name, me),
        7 => fs.rename(dir, &name, other, &fresh, RenameFlags::default(), me),
        8 => {
            let target = any_name(fs, random, other);
            let exchange = random.below(2) == 0;
            fs.rename(dir, &name, other, &target, RenameFlags { exchange, ..Default::default() }, me)
        }
        9 | 10 => {
            let key = format!("user.attribute {}", random.below(40));
            let length = if random.below(8) == 0 { random.below(9000) } else { random.below(100) };
            fs.set_xattr(inode, key.as_bytes(), &vec![7; length], SetMode::Any, me)
        }
        11 => {
            let names = fs.list_xattrs(inode)?;
            let Some(key) = random.pick(&names) else { return Ok(()) };
            fs.remove_xattr(inode, key, SetMode::Any, me)
        }
        12 => {
            let change =
                SetAttr { permissions: Some(Permissions::new(0o755)), mtime: Some(SetTime::Now), ..Default::default() };
            fs.set_attr(inode, &change, me).map(drop)
        }
        _ => fs.sync(),
    }
}

//! Random work on a mounted filesystem, as the kernel can do it: names, contents, attributes, shared blocks, files
//! that lose their last name while they are open.

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Numbers that a seed decides.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 16) as usize % limit
    }

    /// A small number often, a large one seldom.
    fn size(&mut self, largest: usize) -> usize {
        let bits = largest.ilog2() as usize + 1;
        let limit = 1 << (1 + self.below(bits));
        self.below(limit).min(largest)
    }
}

/// Opens a file without waiting for the other end of a pipe.
fn open(path: impl AsRef<Path>, write: bool) -> std::io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    OpenOptions::new().read(!write).write(write).custom_flags(flags).open(path)
}

/// As `File::create`, which would wait for a reader where a pipe has the name.
fn create(path: impl AsRef<Path>) -> std::io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(path)
}

/// Work in progress.
pub struct Work<'a> {
    root: &'a Path,
    random: Random,
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// Files without a name.
    open: Vec<File>,
    names: u32,
}

impl<'a> Work<'a> {
    pub fn new(root: &'a Path, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { root, random, dirs: vec![root.into()], files: Vec::new(), open: Vec::new(), names: 0 }
    }

    /// A new path in some directory.
    fn new_path(&mut self) -> PathBuf {
        let dir = self.dirs[self.random.below(self.dirs.len())].clone();
        self.names += 1;
        let length = self.random.size(200);
        dir.join(format!("{}-{}", self.names, "n".repeat(length)))
    }

    fn file(&mut self) -> Option<PathBuf> {
        if self.files.is_empty() { None } else { Some(self.files[self.random.below(self.files.len())].clone()) }
    }

    /// One operation. Failures, as when there is no space, are ignored.
    pub fn operate(&mut self) {
        match self.random.below(24) {
            0..=5 => self.create(),
            6 => self.make_dir(),
            7 | 8 => self.write(),
            9 => self.truncate(),
            10..=12 => self.set_attribute(),
            13 => self.remove_attribute(),
            14 | 15 => self.rename(),
            16 => self.link(),
            17 | 18 => self.unlink(),
            19 => self.unlink_open(),
            20 => self.share(),
            21 => self.change_attributes(),
            22 => self.special(),
            _ => self.rarely(),
        }
    }

    fn create(&mut self) {
        let path = self.new_path();
        if let Ok(file) = create(&path) {
            if self.random.below(3) == 0 {
                let length = self.random.size(100_000);
                let _ = file.write_all_at(&vec![self.names as u8; length], 0);
            }
            self.files.push(path);
        }
    }

    fn make_dir(&mut self) {
        let path = self.new_path();
        if path.as_os_str().len() < 2000 && fs::create_dir(&path).is_ok() {
            self.dirs.push(path);
        }
    }

    fn write(&mut self) {
        let Some(path) = self.file() else { return };
        let (offset, length) = (self.random.size(1 << 22) as u64, self.random.size(200_000));
        let fill = self.random.below(256) as u8;
        if let Ok(file) = open(path, true) {
            let _ = file.write_all_at(&vec![fill; length], offset);
            if self.random.below(4) == 0 {
                let _ = file.sync_data();
            }
        }
    }

    fn truncate(&mut self) {
        let Some(path) = self.file() else { return };
        let Ok(file) = open(path, true) else { return };
        let (offset, length) = (self.random.size(1 << 22) as u64, 1 + self.random.size(1 << 20) as u64);
        let _ = match self.random.below(4) {
            0 => rustix::fs::ftruncate(&file, offset),
            1 => rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length),
            2 => rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, offset, length),
            _ => rustix::fs::fallocate(&file, FallocateFlags::empty(), offset, length),
        };
    }

    fn set_attribute(&mut self) {
        let Some(path) = self.file() else { return };
        let space = ["user", "trusted", "security"][self.random.below(3)];
        let name = format!("{space}.{}", "a".repeat(1 + self.random.below(40)));
        let length = self.random.size(65_000);
        let value = vec![self.random.below(256) as u8; length];
        let _ = rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty());
    }

    fn remove_attribute(&mut self) {
        let Some(path) = self.file() else { return };
        let mut names = vec![0u8; 65_536];
        let Ok(length) = rustix::fs::llistxattr(&path, &mut names[..]) else { return };
        let list: Vec<&[u8]> = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
        if !list.is_empty() {
            let name = list[self.random.below(list.len())];
            let _ = rustix::fs::lremovexattr(&path, name);
        }
    }

    fn rename(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let index = self.random.below(self.files.len());
        let from = self.files[index].clone();
        match self.random.below(5) {
            0 => {
                let Some(other) = self.file() else { return };
                let _ = rustix::fs::renameat_with(CWD, &from, CWD, &other, RenameFlags::EXCHANGE);
            }
            1 => {
                let Some(over) = self.file() else { return };
                if over != from && fs::rename(&from, &over).is_ok() {
                    self.files.swap_remove(index);
                }
            }
            _ => {
                let to = self.new_path();
                if fs::rename(&from, &to).is_ok() {
                    self.files[index] = to;
                }
            }
        }
    }

    fn link(&mut self) {
        let Some(path) = self.file() else { return };
        let new = self.new_path();
        if fs::hard_link(path, &new).is_ok() {
            self.files.push(new);
        }
    }

    fn unlink(&mut self) {
        if !self.files.is_empty() {
            let path = self.files.swap_remove(self.random.below(self.files.len()));
            let _ = fs::remove_file(path);
        }
    }

    /// A file without a name stays on an unlinked list until the end.
    fn unlink_open(&mut self) {
        if self.files.is_empty() || self.open.len() > 40 {
            self.open.clear();
            return;
        }
        let path = self.files.swap_remove(self.random.below(self.files.len()));
        if let Ok(file) = open(&path, false) {
            self.open.push(file);
        }
        let _ = fs::remove_file(path);
    }

    fn share(&mut self) {
        let (Some(from), to) = (self.file(), self.new_path()) else { return };
        let (Ok(source), Ok(copy)) = (open(from, false), create(&to)) else { return };
        let _ = rustix::fs::ioctl_ficlone(&copy, &source);
        self.files.push(to);
    }

    fn change_attributes(&mut self) {
        let Some(path) = self.file() else { return };
        match self.random.below(2) {
            0 => {
                let mode = Mode::from_raw_mode(self.random.below(0o1000) as u32);
                let _ = rustix::fs::chmodat(CWD, &path, mode, AtFlags::empty());
            }
            _ => {
                let (user, group) = (self.random.below(5000) as u32, self.random.below(5000) as u32);
                let _ = std::os::unix::fs::lchown(&path, Some(user), Some(group));
            }
        }
    }

    fn special(&mut self) {
        let path = self.new_path();
        let made = match self.random.below(3) {
            0 => std::os::unix::fs::symlink("t".repeat(1 + self.random.size(1000)), &path).is_ok(),
            1 => rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR, 0x0103).is_ok(),
            _ => rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).is_ok(),
        };
        if made {
            self.files.push(path);
        }
    }

    fn rarely(&mut self) {
        match self.random.below(12) {
            0 => {
                if let Ok(dir) = File::open(self.root) {
                    let _ = rustix::fs::syncfs(dir);
                }
            }
            1..=3 => {
                if let Some(file) = self.file().and_then(|path| open(path, false).ok()) {
                    let _ = file.sync_all();
                }
            }
            4 => self.grow_dir(),
            5 => self.remove_tree(),
            6 => {
                // Many at once, so that whole inode chunks are freed.
                for _ in 0..self.files.len() * 2 / 3 {
                    self.unlink();
                }
            }
            _ => self.create(),
        }
    }

    fn grow_dir(&mut self) {
        let dir = self.new_path();
        if fs::create_dir(&dir).is_err() {
            return;
        }
        for n in 0..self.random.size(3000) {
            let path = dir.join(format!("an entry of a large directory {n}"));
            if create(&path).is_ok() && n % 7 == 0 {
                self.files.push(path);
            }
        }
        self.dirs.push(dir);
    }

    fn remove_tree(&mut self) {
        if self.dirs.len() > 1 {
            let dir = self.dirs[1 + self.random.below(self.dirs.len() - 1)].clone();
            let _ = fs::remove_dir_all(&dir);
            self.dirs.retain(|path| !path.starts_with(&dir));
            self.files.retain(|path| !path.starts_with(&dir));
        }
    }
}

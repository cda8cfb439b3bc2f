//! The same random system calls on a mount by xfskit and on the kernel's: each has the same result, and in the end the
//! trees are the same. `XFSKIT_STRESS=100` for a long run, `XFSKIT_SEED` for other sequences.

mod common;

use common::{Random, mounted, seeds};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, SeekFrom, Uid, XattrFlags, chownat, fallocate,
    getxattr, linkat, listxattr, lremovexattr, lsetxattr, mkdirat, open, readlinkat, renameat_with, seek, statat,
    symlinkat, unlinkat,
};
use rustix::io::{Errno, pread, pwrite};
use std::path::{Path, PathBuf};
use xfskit_testkit::{TreeEntry, copy_image, kernel_mount, tree};

const STEPS: usize = 1500;

type Result<T> = std::result::Result<T, Errno>;

/// A path of one to three names, which may exist or not.
fn path(random: &mut Random) -> PathBuf {
    let names = 1 + random.below(3);
    let mut path: PathBuf = (0..names).map(|_| format!("n{}", random.below(5))).collect();
    match random.below(40) {
        0 => path.push("l".repeat(255)),
        1 => path.push("l".repeat(256)),
        2 => path.push(".."),
        3 => path.push("."),
        _ => {}
    }
    path
}

fn xattr_name(random: &mut Random) -> String {
    match random.below(10) {
        0 => format!("user.{}", "l".repeat(250 + random.below(8))),
        1 => "user.".into(),
        2 => "unknown.a".into(),
        3 => format!("trusted.t{}", random.below(3)),
        _ => format!("user.a{}", random.below(5)),
    }
}

/// One call below `root`; its result, as far as two implementations must agree on it.
fn step(root: &Path, mut random: Random) -> Result<String> {
    let (one, other) = (root.join(path(&mut random)), root.join(path(&mut random)));
    let offset = [0, 100, 4096, 70_000, 1 << 20, 9 << 20][random.below(6)] + random.below(5000) as u64;
    let length = 1 + random.below(9000);
    let mode = Mode::from_raw_mode(random.below(0o7777) as u32 | 0o600);
    let done = |result: Result<()>| result.map(|()| String::new());
    let file = || open(&one, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::empty());
    match random.below(20) {
        0 | 1 => done(mkdirat(CWD, &one, mode)),
        2 | 3 => open(&one, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode).map(|_| String::new()),
        4 => done(symlinkat(other.strip_prefix(root).expect("a path below it"), CWD, &one)),
        5 => done(linkat(CWD, &one, CWD, &other, AtFlags::empty())),
        6 => done(unlinkat(CWD, &one, AtFlags::empty())),
        7 => done(unlinkat(CWD, &one, AtFlags::REMOVEDIR)),
        8 | 9 => {
            let flags = [RenameFlags::empty(), RenameFlags::EXCHANGE, RenameFlags::NOREPLACE, RenameFlags::empty()];
            let flags = flags[random.below(4)];
            // POSIX allows either of the two errors for a directory that is not empty.
            let renamed = renameat_with(CWD, &one, CWD, &other, flags);
            let is_full = renamed == Err(Errno::EXIST) && flags != RenameFlags::NOREPLACE;
            done(if is_full { Err(Errno::NOTEMPTY) } else { renamed })
        }
        10 | 11 => pwrite(file()?, &vec![random.next() as u8; length], offset).map(|count| count.to_string()),
        12 => {
            let mut bytes = vec![0; length];
            let count = pread(file()?, &mut *bytes, offset)?;
            Ok(format!("{count} {:?}", &bytes[..count]))
        }
        13 => done(rustix::fs::ftruncate(file()?, offset)),
        14 => {
            // FUSE in the kernel passes on no other modes.
            let flags = FallocateFlags::from_bits_retain([0, 1, 3, 16, 17, 2][random.below(6)]);
            done(fallocate(file()?, flags, offset, length as u64))
        }
        15 => {
            let from = if random.below(2) == 0 { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
            // An implementation may choose where data begins within allocated space, and whether there is any.
            match seek(file()?, from) {
                Err(Errno::NXIO) => Ok(String::new()),
                found => found.map(|_| String::new()),
            }
        }
        16 => done(chownat(
            CWD,
            &one,
            Some(Uid::from_raw(random.below(3) as u32)),
            Some(Gid::from_raw(random.below(3) as u32)),
            AtFlags::SYMLINK_NOFOLLOW,
        )),
        17 => {
            let flags = [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE][random.below(3)];
            let length = [0, 5, 400, 3000, 65_536, 65_537][random.below(6)];
            done(lsetxattr(&one, xattr_name(&mut random), &vec![length as u8; length], flags))
        }
        18 => done(lremovexattr(&one, xattr_name(&mut random))),
        _ => look(&one, &mut random),
    }
}

fn look(path: &Path, random: &mut Random) -> Result<String> {
    match random.below(3) {
        0 => {
            let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
            let size = if stat.st_mode & 0o170_000 == 0o040_000 { 0 } else { stat.st_size };
            Ok(format!("{:o} {} {} {} {size}", stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid))
        }
        1 => readlinkat(CWD, path, Vec::new()).map(|target| format!("{target:?}")),
        _ => {
            let mut value = vec![0; 70_000];
            let count = getxattr(path, xattr_name(random), &mut *value)?;
            let mut names = vec![0; 70_000];
            let listed = listxattr(path, &mut *names)?;
            let mut names: Vec<_> = names[..listed].split(|byte| *byte == 0).collect();
            names.sort_unstable();
            Ok(format!("{:?} {names:?}", &value[..count]))
        }
    }
}

fn without_times(root: &Path) -> Vec<TreeEntry> {
    let mut entries = tree(root);
    entries.iter_mut().for_each(|entry| entry.mtime = (0, 0));
    entries
}

#[test]
fn every_call_has_the_result_that_it_has_on_the_kernels_mount() {
    for seed in seeds(4) {
        let Some(mut fixture) = mounted() else { return };
        fixture.mount.stop().unwrap();
        let copy = fixture.scratch.file("kernel.img");
        copy_image(&fixture.scratch.file("a.img"), &copy);
        fixture.mount = common::serve(&fixture.scratch);
        let Some(kernel) = kernel_mount(&copy) else { return };
        let mut random = Random(seed);
        for number in 0..STEPS {
            let call = random.next();
            let ours = step(&fixture.path(""), Random(call));
            let theirs = step(kernel.path(), Random(call));
            assert_eq!(ours, theirs, "call {number} of seed {seed}");
        }
        assert_eq!(without_times(&fixture.path("")), without_times(kernel.path()), "seed {seed}");
        kernel.unmount();
        fixture.judge(|_| ());
    }
}

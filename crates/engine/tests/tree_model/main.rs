//! Random operations against a model in memory; afterwards we, the kernel and xfs_repair must all agree with it. And
//! the other way round: trees made by the kernel are read, and then changed, by us.

mod node;
mod run;
mod steps;
#[path = "../stress/mod.rs"]
mod stress;
mod view;

use node::acl;
use run::Run;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use stress::{Image, Random, colliding, first_seed, keep_if_broken, scale};
use view::{brief, seen_by_kernel, seen_by_us};
use xfskit_engine::{AttrLogging, AttrPath, Caller, LastLink, MountOptions, NewFile, RenameFlags, SetMode, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::{TreeEntry, kernel_mount, reference};

fn model(image: &Image, options: &MountOptions, seed: u64, steps: usize, names: usize) {
    eprintln!("seed {seed}");
    let mut run = Run::new(image.open_with(options.clone()), seed, names);
    for step in 0..steps {
        run.step();
        if step % 1000 == 999 {
            run.log.clear();
            run.check(&seen_by_us(run.fs()), "we");
            run.let_all_go();
            let before = run.fs().statfs();
            run.fs.take().unwrap().unmount().unwrap();
            if step % 3000 == 2999 {
                image.assert_sound();
            }
            run.fs = Some(image.open_with(options.clone()));
            assert_eq!(run.fs().statfs(), before);
            run.check(&seen_by_us(run.fs()), "we");
        }
    }
    run.let_all_go();
    run.check(&seen_by_us(run.fs()), "we");
    let has_parents = run.fs().mount().geometry.has_parent();
    let parents =
        run.expected().into_iter().filter(|entry| has_parents && entry.contents.is_some()).step_by(7).map(|entry| {
            let inode = run.fs().resolve(entry.path.as_os_str().as_bytes(), LastLink::Keep).unwrap().inode;
            (entry.path, run.fs().paths(inode).unwrap())
        });
    let parents: Vec<_> = parents.collect();
    run.fs.take().unwrap().unmount().unwrap();
    image.assert_sound();
    let Some(kernel) = kernel_mount(&image.path) else { return };
    keep_if_broken(&image.path, || run.check(&seen_by_kernel(kernel.path(), true), "the kernel"));
    kernel.unmount();
    check_parents(&image.path, &parents);
}

/// The parents that xfs_io lists, in the newest kernel, are those that we found.
fn check_parents(image: &Path, files: &[(PathBuf, Vec<Vec<u8>>)]) {
    let Some(reference) = reference().filter(|_| !files.is_empty()) else { return };
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let mut script = "mount -t xfs /dev/ubda /mnt || exit 1\n".to_owned();
    for (path, _) in files {
        let path = octal(path.as_os_str().as_bytes());
        script += &format!("xfs_io -r -c 'parent -p' /mnt/$'{path}' | od -An -v -tx1 | tr -d ' \\n'; echo\n");
    }
    let run = reference.uml(image, &script);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines: Vec<_> = run.output.lines().collect();
    assert_eq!(lines.len(), files.len(), "{}", run.output);
    for ((path, ours), line) in files.iter().zip(lines) {
        let mut theirs: Vec<_> = line
            .split(&hex(b"\n/mnt"))
            .map(|parent| parent.trim_start_matches(&hex(b"/mnt")).trim_end_matches("0a").to_owned())
            .collect();
        theirs.sort();
        let ours: Vec<_> = ours.iter().map(|path| hex(path)).collect();
        assert_eq!(ours, theirs, "parents of {}", path.display());
    }
}

#[test]
fn a_tiny_image_agrees_with_the_model() {
    for seed in first_seed()..first_seed() + 3 * scale() {
        let image = Image::new(256, &[('b', "size=1024"), ('d', "agcount=4"), ('l', "size=5m")]);
        model(&image, &MountOptions::default(), seed, 6000, 120);
    }
}

#[test]
fn an_image_of_defaults_agrees_with_the_model() {
    for seed in first_seed()..first_seed() + 2 * scale() {
        let image = Image::new(400, &[]);
        model(&image, &MountOptions::default(), seed + 1000, 6000, 60);
    }
}

#[test]
fn logged_attributes_agree_with_the_model() {
    for seed in first_seed()..first_seed() + 2 * scale() {
        let image = Image::new(256, &[('b', "size=1024"), ('d', "agcount=2")]);
        let options = MountOptions {
            attr_logging: if seed % 2 == 0 { AttrLogging::Always } else { AttrLogging::Never },
            attr_path: [AttrPath::Fast, AttrPath::General, AttrPath::Intents][seed as usize % 3],
            known_absent: seed % 2 == 0,
            cache_bytes: 1 << 20,
            ..MountOptions::default()
        };
        model(&image, &options, seed + 2000, 5000, 60);
    }
}

#[test]
fn images_without_parents_or_reverse_mappings_agree_with_the_model() {
    for seed in first_seed()..first_seed() + 2 * scale() {
        let plain =
            [('b', "size=1024"), ('m', "rmapbt=0,reflink=0,finobt=0"), ('n', "parent=0"), ('i', "sparse=0,exchange=0")];
        let large = [('n', "size=16384"), ('i', "size=1024"), ('d', "agcount=3"), ('n', "parent=0")];
        let image = if seed % 2 == 0 { Image::new(256, &plain) } else { Image::new(256, &large) };
        model(&image, &MountOptions::default(), seed + 3000, 5000, 200);
    }
}

/// Makes a tree through a mount.
fn make_by_kernel(root: &Path, random: &mut Random) {
    use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, mknodat};
    let mut dirs = vec![root.to_path_buf()];
    let mut files = Vec::new();
    for n in 0..1500u32 {
        let name =
            if n % 4 == 0 { colliding(n / 4) } else { format!("{:0width$}", n, width = n as usize % 200).into_bytes() };
        let path = random.pick(&dirs).unwrap().join(OsStr::from_bytes(&name));
        let mut plain = false;
        match n % 10 {
            0 => {
                std::fs::create_dir(&path).unwrap();
                dirs.push(path.clone());
                plain = true;
            }
            1 => std::os::unix::fs::symlink("t".repeat(1 + n as usize % 1000), &path).unwrap(),
            2 if !files.is_empty() => std::fs::hard_link(random.pick(&files).unwrap(), &path).unwrap(),
            3 => mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap(),
            4 => mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o600), 0x0103).unwrap(),
            5 if !files.is_empty() => std::fs::rename(files.swap_remove(random.below(files.len())), &path).unwrap(),
            _ => {
                std::fs::write(&path, vec![n as u8; random.below(20_000)]).unwrap();
                files.push(path.clone());
                plain = true;
            }
        }
        for attribute in 0..random.below(4) {
            let length = [3, 60, 300, 3000, 65_536][random.below(5)];
            let space = if plain { "user" } else { "trusted" };
            let value = vec![attribute as u8; length];
            lsetxattr(&path, format!("{space}.a{attribute}"), &value, XattrFlags::empty()).unwrap();
        }
        if plain && n % 7 == 0 {
            lsetxattr(&path, "system.posix_acl_access", &acl(7, 5, 4, 6, 0), XattrFlags::empty()).unwrap();
        }
        if n % 11 == 0 {
            std::os::unix::fs::lchown(&path, Some(n), Some(n + 1)).unwrap();
        }
    }
}

/// Changes a tree that the kernel made.
fn change_all(fs: &Volume, dir: InodeNumber, random: &mut Random) {
    let me = Caller::root();
    for entry in fs.list_dir(dir).unwrap() {
        let stat = fs.stat(entry.inode).unwrap();
        let is_dir = stat.file_type.is_dir();
        if is_dir {
            change_all(fs, entry.inode, random);
        }
        match random.below(6) {
            0 if !is_dir => fs.unlink(dir, &entry.name, &me).unwrap(),
            1 => {
                let name = format!("renamed {}", random.next()).into_bytes();
                fs.rename(dir, &entry.name, dir, &name, RenameFlags::default(), &me).unwrap();
            }
            2 => fs.set_xattr(entry.inode, b"trusted.new", &vec![8; random.below(5000)], SetMode::Any, &me).unwrap(),
            3 => {
                for name in fs.list_xattrs(entry.inode).unwrap().iter().filter(|name| !name.starts_with(b"trusted.SGI"))
                {
                    fs.remove_xattr(entry.inode, name, SetMode::Any, &me).unwrap();
                }
            }
            4 if is_dir => {
                for n in 0..50 {
                    fs.create(entry.inode, format!("new {n}").as_bytes(), &NewFile::file(0o600), &me).unwrap();
                }
            }
            _ => {}
        }
    }
}

/// We read the same tree as the kernel, also after we have changed it.
fn both_see_the_same(image: &Image, random: &mut Random) {
    let kernel = kernel_mount(&image.path).unwrap();
    let theirs = seen_by_kernel(kernel.path(), false);
    kernel.unmount();
    let fs = image.open();
    let compare = |ours: &[TreeEntry], theirs: &[TreeEntry]| {
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!(ours == theirs, "we see\n{}instead of\n{}", brief(ours), brief(theirs));
        }
        assert_eq!(ours.len(), theirs.len());
    };
    compare(&seen_by_us(&fs), &theirs);
    change_all(&fs, fs.root(), random);
    let ours = seen_by_us(&fs);
    image.close(fs);
    let kernel = kernel_mount(&image.path).unwrap();
    let theirs = seen_by_kernel(kernel.path(), false);
    kernel.unmount();
    compare(&ours, &theirs);
}

#[test]
fn trees_made_by_the_kernel_are_read_and_changed() {
    let shapes: [&[(char, &str)]; 3] =
        [&[], &[('b', "size=1024")], &[('m', "rmapbt=0"), ('n', "parent=0"), ('n', "size=8192")]];
    for seed in first_seed()..first_seed() + scale() {
        for shape in shapes {
            let image = Image::new(400, shape);
            let Some(kernel) = kernel_mount(&image.path) else { return };
            let mut random = Random::new(seed);
            make_by_kernel(kernel.path(), &mut random);
            kernel.unmount();
            both_see_the_same(&image, &mut random);
        }
    }
}

#[test]
fn a_tree_made_by_the_newest_kernel_is_read_and_changed() {
    let Some(reference) = reference() else { return };
    let image = Image::new(400, &[]);
    let script = "mount -t xfs /dev/ubda /mnt || exit 1; cd /mnt; mkdir a a/b c; \
        for i in $(seq 400); do : >a/b/file-$i; ln a/b/file-$i c/link-$i-$(printf %0100d $i); done; \
        ln -s target a/short; ln -s $(printf %0900d 1) a/long; mkfifo c/fifo; mknod c/dev c 1 3; \
        for i in $(seq 1 3 400); do mv a/b/file-$i a/; rm c/link-$i-*; done; mv c a/b/moved; cd /; umount /mnt";
    let run = reference.uml(&image.path, script);
    assert_eq!(run.status, 0, "{}", run.output);
    if kernel_mount(&image.path).map(|kernel| kernel.unmount()).is_some() {
        both_see_the_same(&image, &mut Random::new(first_seed()));
    }
}

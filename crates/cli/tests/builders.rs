//! Images for readers that know less, judged by GRUB itself, and sizes that are found.

mod common;

use common::{fails, ok};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use xfskit_testkit::{Reference, Scratch, kernel_mount, reference, scratch, skip};

/// GRUB's own code as a program: of this machine, or of the reference.
struct Grub<'a> {
    reference: Option<&'a Reference>,
    version: (u32, u32),
}

impl Grub<'_> {
    fn run(&self, arguments: &[&str]) -> Option<Output> {
        match self.reference {
            None => Command::new("grub-fstest").args(arguments).output().ok(),
            Some(reference) => Some(reference.tool("grub-fstest", arguments)),
        }
    }

    /// Those that can be run.
    fn all(reference: Option<&Reference>) -> Vec<Grub<'_>> {
        let mut found = Vec::new();
        for reference in [None, reference].into_iter().take(1 + usize::from(reference.is_some())) {
            let mut grub = Grub { reference, version: (0, 0) };
            let output = grub.run(&["--version"]).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            let version = output.as_deref().and_then(|text| text.split_whitespace().last());
            let numbers = version.map(|text| text.split(['.', '-', '+', '~']).map(|number| number.parse().ok()));
            if let Some((Some(major), Some(minor))) =
                numbers.and_then(|mut numbers| Some((numbers.next()?, numbers.next()?)))
            {
                grub.version = (major, minor);
                found.push(grub);
            }
        }
        found
    }

    fn cat(&self, image: &Path, path: &str) -> Result<Vec<u8>, String> {
        let output = self.run(&[image.to_str().unwrap(), "cat", &format!("(loop0){path}")]).unwrap();
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

/// A tree as a boot loader reads it: kernels, links, a directory of many names. GRUB 2.06 cannot read a directory whose
/// map does not fit its inode, whoever wrote it ("invalid number of XFS root keys"), so there are not too many.
fn boot_tree(scratch: &Scratch) -> std::path::PathBuf {
    let root = scratch.file("root");
    fs::create_dir_all(root.join("boot/many")).unwrap();
    let kernel: Vec<u8> = (0..5_000_000_u32).map(|n| (n * 13 + n / 777) as u8).collect();
    fs::write(root.join("boot/vmlinuz-6.1"), kernel).unwrap();
    symlink("vmlinuz-6.1", root.join("boot/vmlinuz")).unwrap();
    for number in 0..300 {
        fs::write(root.join(format!("boot/many/entry-with-a-name-{number:04}.conf")), number.to_string()).unwrap();
    }
    root
}

#[test]
fn each_grub_reads_what_was_made_for_it() {
    let scratch = scratch();
    let (root, image) = (boot_tree(&scratch), scratch.file("a.img"));
    let reference = reference();
    let found = Grub::all(reference.as_ref());
    if found.is_empty() {
        skip("no grub-fstest: install grub-common");
        return;
    }
    for grub in found {
        let (major, minor) = grub.version;
        ok(&format!("mkfs -f -q IMAGE --size auto --from {} --for grub-{major}.{minor:02}", root.display()), &image);
        for path in ["/boot/vmlinuz-6.1", "/boot/vmlinuz", "/boot/many/entry-with-a-name-0234.conf"] {
            let read = grub.cat(&image, path).unwrap_or_else(|why| panic!("{major}.{minor}: {path}: {why}"));
            assert!(read == fs::read(root.join(&path[1..])).unwrap(), "{major}.{minor}: {path}");
        }
        // Each older one is known to read less, so what is made for it is read too.
        for older in ["grub-2.02", "grub-2.04", "grub-2.06", "debian-11"] {
            ok(&format!("mkfs -f -q IMAGE --size auto --from {} --for {older}", root.display()), &image);
            assert!(grub.cat(&image, "/boot/vmlinuz").is_ok(), "{major}.{minor}: {older}");
        }
        // Today's defaults are not for GRUB before 2.14.
        ok(&format!("mkfs -f -q IMAGE --size auto --from {}", root.display()), &image);
        assert_eq!(grub.cat(&image, "/boot/vmlinuz").is_ok(), grub.version >= (2, 14), "{major}.{minor}");
    }
}

/// The features of an image.
fn features(image: &Path) -> Vec<String> {
    let info: Value = serde_json::from_str(&ok("--json info IMAGE", image)).unwrap();
    let lists = ["incompat", "ro_compat"].map(|kind| info["features"][kind].as_array().unwrap().clone());
    lists.concat().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_kernel_gets_what_it_knows() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    let Some(reference) = reference() else { return };
    for (reader, lacks) in [
        ("linux-6.12", &[][..]),
        ("linux-6.6", &["parent", "exchrange"]),
        ("linux-5.15", &["parent", "exchrange", "nrext64"]),
        ("linux-5.4", &["parent", "exchrange", "nrext64", "bigtime", "inobtcnt"]),
        ("linux-4.4", &["parent", "exchrange", "nrext64", "bigtime", "inobtcnt", "reflink", "rmapbt"]),
        ("linux-6.12,grub-2.12", &["parent", "exchrange"]),
    ] {
        ok(&format!("mkfs -f -q IMAGE --size 300M --for {reader}"), &image);
        reference.repair_finds_nothing(&image);
        let has = features(&image);
        for feature in ["ftype", "parent", "exchrange", "nrext64", "bigtime", "inobtcnt", "reflink", "rmapbt", "finobt"]
        {
            assert_eq!(has.iter().any(|has| has == feature), !lacks.contains(&feature), "{reader}: {feature}: {has:?}");
        }
    }
    let new = scratch.file("b.img");
    for (options, what) in [
        ("--for linux-5.4 -m bigtime=1", "-m bigtime: linux-5.4 does not know it"),
        ("--for lilo-22", "known are linux-VERSION, grub-VERSION, debian-11"),
        ("--for linux-3.2", "reads no images of version 5"),
    ] {
        let (code, error) = fails(&format!("mkfs -q IMAGE --size 300M {options}"), &new);
        assert!(code == 2 && error.contains(what) && !new.exists(), "{options}: {error}");
    }
    // A configuration file says the same for a kernel.
    let config = scratch.file("old.conf");
    fs::write(&config, "[metadata]\nbigtime=0\n[naming]\nparent=0\n").unwrap();
    ok(&format!("mkfs -f -q IMAGE --size 300M -c options={}", config.display()), &image);
    assert!(!features(&image).contains(&"bigtime".to_owned()));
}

/// The size of an image, and the bytes that are free in it, by the kernel.
fn space(image: &Path) -> Option<(u64, u64)> {
    let kernel = kernel_mount(image)?;
    let stat = rustix::fs::statvfs(kernel.path()).unwrap();
    let free = stat.f_bavail * stat.f_frsize;
    kernel.unmount();
    Some((fs::metadata(image).unwrap().len(), free))
}

#[test]
fn an_image_has_the_room_that_was_asked_for_or_none() {
    let scratch = scratch();
    let (root, image) = (scratch.file("root"), scratch.file("a.img"));
    fs::create_dir(&root).unwrap();
    for number in 0..200 {
        fs::write(root.join(format!("file{number}")), vec![1; 200_000]).unwrap();
    }
    let make = |options: &str| {
        ok(format!("mkfs -f -q IMAGE --size auto --small --from {} {options}", root.display()).trim(), &image);
        if let Some(reference) = reference() {
            reference.repair_finds_nothing(&image);
        }
        space(&image)
    };
    let Some((plain, _)) = make("") else { return };
    let (size, free) = make("--free 30%").unwrap();
    assert!((size / 100 * 30..size / 100 * 45).contains(&free), "{free} of {size} bytes");
    let (size, free) = make("--free 100M").unwrap();
    assert!((100 << 20..130 << 20).contains(&free), "{free} of {size} bytes");
    let (smallest, free) = make("--minimize").unwrap();
    assert!(smallest < plain, "{smallest} of {plain} bytes, {free} free");
    // One step less, and it does not fit.
    let less = scratch.file("less.img");
    let line = format!("mkfs -q IMAGE --small --size {} --from {}", smallest - (1 << 20), root.display());
    let (_, error) = fails(&line, &less);
    assert!(error.contains("space") || error.contains("too small"), "{error}");
    let (code, error) = fails(&format!("mkfs -q IMAGE --size 1G --free 1M --from {}", root.display()), &less);
    assert!(code == 2 && error.contains("--size auto"), "{error}");
}

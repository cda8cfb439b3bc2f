//! Damaged blocks of directories and attributes, with right checksums: everything either works or reports an error.

mod common;

use common::{Overlay, Random, add_attr, change, colliding, image, look, make_inode, mount, remove_attr};
use std::ops::ControlFlow;
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_engine::attr::{self, Attr, ParentRecord, flags};
use xfskit_engine::dir::{self, FileType};
use xfskit_engine::error::Result;
use xfskit_engine::mount::Mount;
use xfskit_ondisk::{InodeNumber, set_checksum};

const FOLDERS: [(&str, usize); 4] = [("shortform", 5), ("block", 40), ("leaf", 200), ("node", 3000)];
const FILES: [(&str, usize); 3] = [("short", 3), ("leaf-attrs", 20), ("tree-attrs", 900)];

fn name(n: usize) -> Vec<u8> {
    if n.is_multiple_of(5) { colliding(n as u32 / 5) } else { format!("the name of entry {n}").into_bytes() }
}

fn value(n: usize) -> Vec<u8> {
    vec![n as u8; if n % 17 == 16 { 3000 } else { n % 60 }]
}

fn build(block_bytes: usize, dir_block_bytes: usize) -> Vec<u8> {
    let device = Arc::new(image(block_bytes as u32, dir_block_bytes as u32, 48 << 20));
    let mount = mount(device.clone()).unwrap();
    for (folder, count) in FOLDERS {
        let folder = make_inode(&mount, folder, 0o40_755, 2).unwrap();
        for n in 0..count {
            change(&mount, folder, |tx, dir| dir::add(tx, dir, &name(n), InodeNumber(folder.0), FileType::Regular))
                .unwrap();
        }
        for n in (0..count).step_by(7) {
            change(&mount, folder, |tx, dir| dir::remove(tx, dir, &name(n))).unwrap();
        }
    }
    for (file, count) in FILES {
        let file = make_inode(&mount, file, 0o100_644, 1).unwrap();
        for n in 0..count {
            add_attr(&mount, file, &Attr::new(0, &name(n), &value(n))).unwrap();
        }
        for n in (0..count).step_by(7) {
            remove_attr(&mount, file, &Attr::key(0, &name(n))).unwrap();
        }
    }
    mount.unmount().unwrap();
    device.to_bytes()
}

/// Blocks with names or attributes: where they start, their size, and where the checksum stands.
fn targets(bytes: &[u8], block_bytes: usize, dir_block_bytes: usize) -> Vec<(usize, usize, usize)> {
    let mut found = Vec::new();
    for start in (0..bytes.len()).step_by(512) {
        let block = &bytes[start..];
        let tree = u16::from_be_bytes([block[8], block[9]]);
        let own_address = |at: usize| block.get(at..at + 8) == Some(&(start as u64 / 512).to_be_bytes()[..]);
        match &block[..4] {
            b"XDB3" | b"XDD3" | b"XDF3" if own_address(8) => found.push((start, dir_block_bytes, 4)),
            b"XARM" if own_address(40) => found.push((start, block_bytes, 12)),
            [b'I', b'N', mode, _] if *mode != 0 => found.push((start, 512, 100)),
            _ => match tree {
                0x3df1 | 0x3dff if own_address(16) => found.push((start, dir_block_bytes, 12)),
                0x3bee if own_address(16) => found.push((start, block_bytes, 12)),
                0x3ebe if own_address(16) => {
                    let dir = u32::from_be_bytes([block[68], block[69], block[70], block[71]]) >= 1 << 20;
                    found.push((start, if dir { dir_block_bytes } else { block_bytes }, 12));
                }
                _ => {}
            },
        }
    }
    found
}

/// Calls everything that uses names and attributes. Errors are expected; panics and hangs are not.
fn exercise(mount: &Arc<Mount>, random: &mut Random) -> Result<()> {
    let root = mount.geometry.root_inode;
    let find = |name: &str| look(mount, root, |tx, dir| dir::lookup(tx, dir, name.as_bytes()));
    for (folder, count) in FOLDERS {
        let Ok(Some(folder)) = find(folder) else { continue };
        let folder = folder.inode;
        let _ = look(mount, folder, |tx, dir| {
            dir::is_empty(tx, dir)?;
            dir::read(tx, dir, random.below(3) as u32 * 100, &mut |_| ControlFlow::Continue(()))
        });
        for _ in 0..20 {
            let name = name(random.below(count + 20));
            let found = look(mount, folder, |tx, dir| dir::lookup(tx, dir, &name));
            let _ = change(mount, folder, |tx, dir| match (found, random.below(4)) {
                (Ok(Some(_)), 0) => dir::replace(tx, dir, &name, InodeNumber(folder.0), FileType::Directory),
                (Ok(Some(_)), _) => dir::remove(tx, dir, &name),
                _ => dir::add(tx, dir, &name, InodeNumber(folder.0), FileType::Regular).map(|_| ()),
            });
        }
    }
    for (file, count) in FILES {
        let Ok(Some(file)) = find(file) else { continue };
        let file = file.inode;
        let _ = look(mount, file, |tx, ino| attr::list(tx, ino, &mut |_| ControlFlow::Continue(())));
        for _ in 0..20 {
            let n = random.below(count + 20);
            let (name, value) = (name(n), value(n));
            let key = Attr::new(0, &name, &value);
            match look(mount, file, |tx, ino| attr::get(tx, ino, &key)) {
                Ok(Some(_)) => drop(remove_attr(mount, file, &key)),
                _ => drop(add_attr(mount, file, &key)),
            }
            let parent = ParentRecord { inode: root.0, generation: 0 }.encode();
            let _ = add_attr(mount, file, &Attr::new(flags::PARENT, &name, &parent));
        }
        let _ = change(mount, file, attr::remove_all);
    }
    mount.unmount()
}

#[test]
fn damaged_names_and_attributes_are_errors() {
    damage(1024, 4096);
}

#[test]
fn damaged_names_and_attributes_in_large_blocks_are_errors() {
    damage(4096, 16384);
}

fn damage(block_bytes: usize, dir_block_bytes: usize) {
    let base = Arc::new(build(block_bytes, dir_block_bytes));
    let targets = targets(&base, block_bytes, dir_block_bytes);
    let trials = std::env::var("XFSKIT_TRIALS").ok().and_then(|n| n.parse().ok()).unwrap_or(150u64);
    for trial in 0..trials {
        let mut random = Random(trial.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let overlay = Overlay::new(&base);
        for _ in 0..1 + random.below(3) {
            let (start, size, checksum) = targets[random.below(targets.len())];
            let mut block = vec![0; size];
            overlay.read(start as u64, &mut block).unwrap();
            for _ in 0..1 + random.below(3) {
                // The front, with its counts, is hit more often than the rest.
                let at = if random.below(2) == 0 { random.below(128) } else { random.below(size) };
                block[at] = match random.below(5) {
                    0 => 0,
                    1 => 0xff,
                    2 => block[at] ^ 1 << random.below(8),
                    3 => block[at].wrapping_add(8),
                    _ => random.below(256) as u8,
                };
            }
            set_checksum(&mut block, checksum);
            overlay.write(start as u64, &block).unwrap();
        }
        let run = std::panic::AssertUnwindSafe(|| {
            if let Ok(mount) = mount(Arc::new(overlay)) {
                let _ = exercise(&mount, &mut random);
            }
        });
        assert!(std::panic::catch_unwind(run).is_ok(), "trial {trial}");
    }
}

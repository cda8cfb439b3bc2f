//! Directories and attributes against maps in memory: random work through all forms and back.

mod common;

use common::{Random, add_attr, change, colliding, image, look, make_inode, mount, remove_attr};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use xfskit_engine::attr::tree::{self, Completeness};
use xfskit_engine::attr::{self, Attr, Form, ListCursor, ParentRecord, flags, shortform};
use xfskit_engine::dir::{self, FileType};
use xfskit_engine::error::Error;
use xfskit_engine::mount::Mount;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::attr::leaf::LeafValue;

fn random_name(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => colliding(random.below(256) as u32),
        1 => format!("{}", random.below(5000)).into_bytes(),
        2 => vec![b'a' + random.below(26) as u8; 1 + random.below(255)],
        _ => format!("file-name-{:06}", random.below(3000)).into_bytes(),
    }
}

/// Every name with its cookie and inode; cookies must ascend.
fn listing(mount: &Arc<Mount>, folder: InodeNumber) -> BTreeMap<Vec<u8>, (u32, u64)> {
    let mut found = BTreeMap::new();
    let mut end = 0;
    look(mount, folder, |tx, dir| {
        dir::read(tx, dir, 0, &mut |entry| {
            assert!(entry.cookie >= end && entry.next > entry.cookie);
            end = entry.next;
            found.insert(entry.name.to_vec(), (entry.cookie, entry.inode.0));
            ControlFlow::Continue(())
        })
    })
    .unwrap();
    assert!(found.remove(b".".as_slice()).is_some() && found.remove(b"..".as_slice()).is_some());
    found
}

#[test]
fn directories_are_maps() {
    for (seed, (block, dir_block)) in [(1024, 4096), (4096, 4096), (4096, 65536)].into_iter().enumerate() {
        let mount = mount(Arc::new(image(block, dir_block, 64 << 20))).unwrap();
        let folder = make_inode(&mount, "folder", 0o40_755, 2).unwrap();
        let mut random = Random(seed as u64);
        let mut model: BTreeMap<Vec<u8>, (u32, u64)> = BTreeMap::new();
        for step in 0..9000 {
            let name = random_name(&mut random);
            // Entries are not followed, so any number that could be an inode will do.
            let inode = InodeNumber(folder.0 + random.below(64) as u64);
            let found = look(&mount, folder, |tx, dir| dir::lookup(tx, dir, &name)).unwrap();
            assert_eq!(found.map(|found| (found.cookie, found.inode.0)), model.get(&name).copied(), "step {step}");
            let growing = step / 3000 != 1;
            match (found, random.below(10)) {
                (Some(found), 0..3) => {
                    change(&mount, folder, |tx, dir| dir::replace(tx, dir, &name, inode, FileType::Fifo)).unwrap();
                    model.insert(name, (found.cookie, inode.0));
                }
                (None, 1..) if growing => {
                    let add = change(&mount, folder, |tx, dir| dir::add(tx, dir, &name, inode, FileType::Fifo));
                    model.insert(name, (add.unwrap(), inode.0));
                }
                _ => {
                    let Some(name) = model.keys().nth(random.below(model.len().max(1))).cloned() else { continue };
                    change(&mount, folder, |tx, dir| dir::remove(tx, dir, &name)).unwrap();
                    model.remove(&name);
                }
            }
            if step % 500 == 0 {
                assert_eq!(listing(&mount, folder), model);
            }
        }
        assert_eq!(listing(&mount, folder), model);
        let missing = change(&mount, folder, |tx, dir| dir::remove(tx, dir, b"not there"));
        assert!(matches!(missing, Err(Error::NotFound)));
        for name in model.keys() {
            assert!(!look(&mount, folder, dir::is_empty).unwrap());
            change(&mount, folder, |tx, dir| dir::remove(tx, dir, name)).unwrap();
        }
        assert!(look(&mount, folder, dir::is_empty).unwrap());
        assert_eq!(look(&mount, folder, |tx, dir| Ok(tx.inode(dir).core.blocks)).unwrap(), 0);
        mount.unmount().unwrap();
    }
}

/// Name space, name, and for parent pointers the value: what identifies an attribute.
type Key = (u8, Vec<u8>, Vec<u8>);

fn attributes(mount: &Arc<Mount>, file: InodeNumber) -> Vec<Key> {
    let mut found = Vec::new();
    let mut cursor = ListCursor::default();
    loop {
        let before = found.len();
        look(mount, file, |tx, ino| {
            attr::list_from(tx, ino, &mut cursor, &mut |attr| {
                let value = if attr.namespace == flags::PARENT { attr.value.unwrap().to_vec() } else { Vec::new() };
                found.push((attr.namespace, attr.name.to_vec(), value));
                if found.len() % 7 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        })
        .unwrap();
        if found.len() == before || found.len() % 7 != 0 {
            found.sort();
            return found;
        }
    }
}

#[test]
fn attributes_are_maps() {
    for (seed, block) in [1024, 4096].into_iter().enumerate() {
        let mount = mount(Arc::new(image(block, 4096, 128 << 20))).unwrap();
        let file = make_inode(&mount, "file", 0o100_644, 1).unwrap();
        let mut random = Random(seed as u64);
        let mut model: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        for step in 0..5000usize {
            let growing = step / 700 % 2 == 0;
            if growing == (random.below(10) < 8) || model.is_empty() {
                let namespace = [0, flags::ROOT, flags::SECURE, flags::PARENT][random.below(4)];
                let name = random_name(&mut random);
                let length = match random.below(12) {
                    0 => random.below(65537),
                    1..4 => random.below(4000),
                    _ => random.below(60),
                };
                let parent = ParentRecord { inode: 128 + random.below(3) as u64, generation: 3 }.encode().to_vec();
                let (value, third) = if namespace == flags::PARENT {
                    (parent.clone(), parent)
                } else {
                    (vec![step as u8; length], vec![])
                };
                let new = Attr::new(namespace, &name, &value);
                if model.contains_key(&(namespace, name.clone(), third.clone())) {
                    remove_attr(&mount, file, &new).unwrap();
                }
                add_attr(&mount, file, &new).unwrap();
                model.insert((namespace, name, third), value);
            } else {
                let key = model.keys().nth(random.below(model.len())).unwrap().clone();
                remove_attr(&mount, file, &Attr::new(key.0, &key.1, &key.2)).unwrap();
                model.remove(&key);
            }
            if step % 250 == 0 {
                assert!(attributes(&mount, file).iter().eq(model.keys()));
                for (key, value) in &model {
                    let key = Attr::new(key.0, &key.1, &key.2);
                    assert_eq!(look(&mount, file, |tx, ino| attr::get(tx, ino, &key)).unwrap().as_ref(), Some(value));
                }
            }
        }
        for key in model.keys() {
            remove_attr(&mount, file, &Attr::new(key.0, &key.1, &key.2)).unwrap();
        }
        assert_eq!(
            look(&mount, file, |tx, ino| Ok((attr::form(tx, ino), tx.inode(ino).core.blocks))).unwrap(),
            (Form::None, 0)
        );
        mount.unmount().unwrap();
    }
}

#[test]
fn an_attribute_is_replaced_by_hiding_and_showing() {
    let mount = mount(Arc::new(image(1024, 4096, 64 << 20))).unwrap();
    let file = make_inode(&mount, "file", 0o100_644, 1).unwrap();
    for n in 0..100 {
        let name = format!("{n}");
        add_attr(&mount, file, &Attr::new(0, name.as_bytes(), &[n; 20])).unwrap();
    }
    let (key, new) = (Attr::key(0, b"50"), Attr::new(0, b"50", b"the new one"));
    let value = |mount: &Arc<Mount>| look(mount, file, |tx, ino| attr::get(tx, ino, &key)).unwrap().unwrap();
    change(&mount, file, |tx, ino| {
        tree::add(tx, ino, &new, LeafValue::Local(b"the new one"), Completeness::Incomplete)
    })
    .unwrap();
    assert_eq!(value(&mount), [50; 20]);
    assert!(change(&mount, file, |tx, ino| tree::flip(tx, ino, &key)).unwrap());
    assert_eq!(value(&mount), b"the new one");
    assert!(change(&mount, file, |tx, ino| tree::remove(tx, ino, &key, Completeness::Incomplete)).unwrap());
    assert_eq!(value(&mount), b"the new one");
    assert!(!change(&mount, file, |tx, ino| tree::flip(tx, ino, &key)).unwrap());
    mount.unmount().unwrap();
}

#[test]
fn shortform_attributes_are_replaced_in_place_only_by_ones_of_their_length() {
    let mount = mount(Arc::new(image(1024, 4096, 64 << 20))).unwrap();
    let file = make_inode(&mount, "file", 0o100_644, 1).unwrap();
    let parent = |inode: u64| ParentRecord { inode, generation: 1 }.encode();
    let (one, two, three) = (parent(128), parent(129), parent(130));
    let attr = |name: &'static [u8], value: &'static [u8]| Attr::new(0, name, value);
    change(&mount, file, |tx, ino| {
        for new in [attr(b"a", b"first"), attr(b"b", b"second")] {
            let _ = shortform::add(tx, ino, &new)?;
        }
        for value in [&one, &two] {
            let _ = shortform::add(tx, ino, &Attr::new(flags::PARENT, b"name", value))?;
        }
        Ok(())
    })
    .unwrap();
    let order = || {
        let mut names = Vec::new();
        look(&mount, file, |tx, ino| {
            attr::list(tx, ino, &mut |attr| {
                names.push((attr.name.to_vec(), attr.value.unwrap().to_vec()));
                ControlFlow::Continue(())
            })
        })
        .unwrap();
        names
    };
    change(&mount, file, |tx, ino| shortform::replace(tx, ino, &attr(b"a", b""), &attr(b"a", b"fifth"))).unwrap();
    let (old, new) = (Attr::new(flags::PARENT, b"name", &one), Attr::new(flags::PARENT, b"eman", &three));
    change(&mount, file, |tx, ino| shortform::replace(tx, ino, &old, &new)).unwrap();
    let pair = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
    assert_eq!(order(), [pair(b"a", b"fifth"), pair(b"b", b"second"), pair(b"eman", &three), pair(b"name", &two)]);
    change(&mount, file, |tx, ino| shortform::replace(tx, ino, &attr(b"a", b""), &attr(b"a", b"longer"))).unwrap();
    assert_eq!(order()[3], pair(b"a", b"longer"));
    mount.unmount().unwrap();
}

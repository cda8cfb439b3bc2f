//! Inodes have a valid type, whatever a caller asks for.

use crate::shapes::refused;
use crate::stress::{FILE, Image};
use std::os::unix::fs::MetadataExt;
use xfskit::volume::{Caller, Error, NewFile};
use xfskit_testkit::kernel_mount;

#[test]
fn every_mode_makes_a_sound_inode_or_none() {
    let image = Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let mut made = Vec::new();
    for kind in 0..16_u16 {
        for target in [&b""[..], b"target"] {
            let (mode, name) = (kind << 12 | 0o644, format!("{kind:x} {}", target.len()));
            let exists = matches!(kind, 0 | 1 | 2 | 4 | 6 | 8 | 10 | 12);
            let Some(new) = NewFile::of_mode(mode) else {
                assert!(!exists, "{name}");
                continue;
            };
            assert!(exists, "{name}");
            let new = NewFile { target, device: 0x0103, ..new };
            let result = fs.create(fs.root(), name.as_bytes(), &new, &me);
            if (kind == 10) != target.is_empty() {
                let stat = result.unwrap();
                assert_eq!(stat.mode(), if kind == 0 { FILE | 0o644 } else { mode });
                made.push((name.clone(), stat));
            } else {
                assert!(matches!(refused(&fs, &name, result), Error::Invalid(_)), "{name}");
            }
            let unnamed = fs.tmpfile(fs.root(), &new, &me);
            assert_eq!(unnamed.is_ok(), matches!(kind, 0 | 8) && target.is_empty(), "{name} without a name");
        }
    }
    assert!(matches!(fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me), Ok(stat) if stat.links == 2));
    image.close(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    for (name, stat) in made {
        let found = std::fs::symlink_metadata(kernel.path().join(&name)).unwrap();
        assert_eq!((found.mode(), found.rdev()), (stat.mode().into(), stat.device.into()), "{name}");
    }
    kernel.unmount();
}

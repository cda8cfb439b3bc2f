//! The same changes of attributes, made by us and, on a copy of the image, by the kernel.

use crate::stress::Image;
use rustix::fs::XattrFlags;
use std::path::Path;
use xfskit_engine::{Caller, SetMode};
use xfskit_testkit::{Reference, kernel_mount, reference};

/// The number of an attribute, and the length of its value; `None` where it is removed.
pub type Step = (usize, Option<usize>);

/// The name of an attribute.
pub fn name(number: usize) -> String {
    format!("trusted.{number}")
}

/// Takes the steps on files of the root directory, with us on the image, with the kernel on the copy. `None` on
/// machines without the kernel's XFS.
pub fn on_both(image: &Image, copy: &Path, todo: &[(&str, &[Step])]) -> Option<Reference> {
    let fs = image.open();
    for (file, steps) in todo {
        let inode = fs.lookup(fs.root(), file.as_bytes()).unwrap().inode;
        for &(number, bytes) in *steps {
            let (name, me) = (name(number), &Caller::root());
            match bytes {
                Some(bytes) => fs.set_xattr(inode, name.as_bytes(), &vec![7; bytes], SetMode::Any, me).unwrap(),
                None => fs.remove_xattr(inode, name.as_bytes(), SetMode::Any, me).unwrap(),
            }
        }
    }
    // The power fails: the kernel recovers what we logged.
    fs.sync().unwrap();
    drop(fs);
    let (reference, recovered) = (reference()?, kernel_mount(&image.path)?);
    recovered.unmount();
    image.assert_sound();
    let theirs = kernel_mount(copy).expect("it mounted the other");
    for (file, steps) in todo {
        let path = theirs.path().join(file);
        for &(number, bytes) in *steps {
            match bytes {
                Some(bytes) => {
                    rustix::fs::lsetxattr(&path, name(number), &vec![7; bytes], XattrFlags::empty()).unwrap();
                }
                None => rustix::fs::lremovexattr(&path, name(number)).unwrap(),
            }
        }
    }
    theirs.unmount();
    Some(reference)
}

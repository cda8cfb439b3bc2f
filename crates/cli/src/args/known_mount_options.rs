//! Mount options that the server need not do anything about: those of xfs(5), of mount(8) and fstab, and of FUSE.
//!
//! | kind | what becomes of it |
//! |---|---|
//! | [`IsSo`] | taken: it asks for what is so anyway |
//! | [`Ignored`] | taken: it is about how the kernel works, or a hint, and changes nothing that a program sees |
//! | [`Refused`] | an error: it asks for something that the mount would not have |
//!
//! What has a meaning here is in `mount_options.rs`. Source of facts: xfs(5) of xfsprogs 7.2, `fs/xfs/xfs_super.c` of
//! Linux 6.18, mount(8) of util-linux 2.41, mount.fuse3(8).

use Kind::{Ignored, IsSo, Refused};

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It asks for what is so anyway.
    IsSo,
    /// It changes nothing that a program sees.
    Ignored,
    /// It asks for what the mount would not have: why.
    Refused(&'static str),
}

const QUOTA: &str = "quotas are neither counted nor enforced here";
const REALTIME: &str = "a realtime device is not supported";
const DAX: &str = "files are not mapped from the device";
const LABELS: &str = "the kernel takes labels of files from the image";
const LOOP: &str = "the image is read without a loop device: name a part of a disk as IMAGE#PART (docs/disks.md)";
const OWNERS: &str = "owners and permissions are those of the image";

/// All of them, by name; with a value or without.
const OPTIONS: &[(Kind, &[&str])] = &[
    // xfs(5).
    (IsSo, &["attr2", "inode64", "nouuid", "noquota", "nolargeio", "noikeep", "nogrpid", "sysvgroups", "barrier"]),
    (IsSo, &["delaylog", "nolifetime"]),
    // How the kernel lays out files and logs.
    (Ignored, &["allocsize", "logbufs", "logbsize", "largeio", "swalloc", "noalign", "sunit", "swidth", "filestreams"]),
    (Ignored, &["ikeep", "noattr2", "nobarrier", "nodelaylog", "lifetime", "osyncisdsync", "ihashsize"]),
    (Refused("files get the group of who makes them; set the set-group-ID bit of a folder"), &["grpid", "bsdgroups"]),
    (Refused(QUOTA), &["quota", "usrquota", "uquota", "uqnoenforce", "qnoenforce"]),
    (Refused(QUOTA), &["grpquota", "gquota", "gqnoenforce", "prjquota", "pquota", "pqnoenforce"]),
    (Refused(REALTIME), &["rtdev", "max_open_zones"]),
    (Refused("writes are atomic by sectors only"), &["max_atomic_write"]),
    // mount(8), fstab.
    (IsSo, &["defaults", "nomand", "norelatime", "nostrictatime", "nolazytime", "diratime", "noiversion", "loud"]),
    (IsSo, &["symfollow"]),
    (
        Ignored,
        &["auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev", "comment", "uhelper"],
    ),
    (Ignored, &["relatime", "strictatime", "lazytime", "nodiratime", "iversion", "silent", "mand"]),
    (Ignored, &["loop"]),
    (Refused(LOOP), &["offset", "sizelimit"]),
    (Refused(LABELS), &["context", "fscontext", "defcontext", "rootcontext"]),
    (Refused(OWNERS), &["uid", "gid", "umask", "fmask", "dmask", "mode"]),
    // FUSE: what the kernel shows of each mount, and what libfuse once had.
    (IsSo, &["default_permissions", "nonempty", "big_writes", "large_read", "atomic_o_trunc"]),
    (Ignored, &["user_id", "group_id", "max_read", "blksize", "rootmode", "fd", "subtype", "fsname", "setuid"]),
];

/// What becomes of an option that has no meaning for the server; `None` for one that has, or that does not exist.
pub fn kind_of(name: &str, value: Option<&str>) -> Option<Kind> {
    if name.starts_with("x-") || name.starts_with("X-") {
        return Some(Ignored);
    }
    match (name, value) {
        ("dax", Some("never" | "inode")) => return Some(IsSo),
        ("dax", _) => return Some(Refused(DAX)),
        ("max_atomic_write", Some("0")) => return Some(IsSo),
        _ => {}
    }
    OPTIONS.iter().find(|(_, names)| names.contains(&name)).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_option_is_in_two_rows() {
        let mut seen = HashSet::new();
        for name in OPTIONS.iter().flat_map(|(_, names)| names.iter()) {
            assert!(seen.insert(name), "{name}");
        }
    }
}

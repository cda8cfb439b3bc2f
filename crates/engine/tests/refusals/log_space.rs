//! A link that logs an intent carries the whole value, in the log space that was reserved for it. Debug builds assert
//! that; here the trees are small, the values as long as they may be, and free space is in pieces, so that values take
//! many links.

use crate::acl::acl;
use crate::shapes::{OLD, file, fragment};
use crate::stress::Image;
use xfskit_engine::error_tags::LARP;
use xfskit_engine::{AttrLogging, AttrPath, Caller, MountOptions, NewFile, Permissions, SetAttr, SetMode};

/// As many named users as an ACL may have.
const MAX_USERS: u32 = 5_457;

const SMALL_BLOCKS: &[(char, &str)] = &[
    ('n', "parent=0"),
    ('i', "exchange=0,nrext64=0"),
    ('m', "bigtime=0,inobtcount=0,rmapbt=0,reflink=0,finobt=0"),
    ('b', "size=1024"),
];

fn policies() -> [MountOptions; 3] {
    [
        (AttrLogging::Never, AttrPath::Fast),
        (AttrLogging::Always, AttrPath::Fast),
        (AttrLogging::Always, AttrPath::Intents),
    ]
    .map(|(attr_logging, attr_path)| MountOptions { attr_logging, attr_path, ..Default::default() })
}

#[test]
fn the_longest_values_keep_to_their_log_space() {
    let me = Caller::root();
    for features in [OLD, SMALL_BLOCKS] {
        for options in policies() {
            let image = Image::new(320, features);
            let fs = image.open_with(options);
            let one = file(&fs, "one");
            let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
            // Every AG has free inodes.
            for n in 0..16 {
                fs.create(fs.root(), format!("{n}").as_bytes(), &NewFile::dir(0o755), &me).unwrap();
            }
            fragment(&fs, 2_000);
            fs.set_xattr(one, b"user.longest", &[7; 65_536], SetMode::Any, &me).unwrap();
            fs.set_xattr(one, b"user.longest", &[8; 65_535], SetMode::Replace, &me).unwrap();
            fs.set_xattr(one, b"system.posix_acl_access", &acl(MAX_USERS), SetMode::Any, &me).unwrap();
            fs.set_attr(one, &SetAttr { permissions: Some(Permissions::new(0o604)), ..Default::default() }, &me)
                .unwrap();
            for users in [1, 20, 200, MAX_USERS] {
                fs.set_xattr(dir, b"system.posix_acl_default", &acl(users), SetMode::Any, &me).unwrap();
                fs.create(dir, format!("file {users}").as_bytes(), &NewFile::file(0o664), &me).unwrap();
                let made = fs.create(dir, format!("dir {users}").as_bytes(), &NewFile::dir(0o755), &me).unwrap();
                let inherited = fs.get_xattr(made.inode, b"system.posix_acl_default").unwrap();
                assert!(inherited == acl(users));
                fs.tmpfile(dir, &NewFile::file(0o664), &me).unwrap().release().unwrap();
            }
            fs.mount().journal.check().unwrap();
            image.close(fs);
        }
    }
}

#[test]
fn recovery_of_the_longest_values_keeps_to_its_log_space() {
    let me = Caller::root();
    for features in [OLD, SMALL_BLOCKS] {
        let image = Image::new(320, features);
        let fs = image.open_with(MountOptions {
            attr_logging: AttrLogging::Always,
            attr_path: AttrPath::Intents,
            ..Default::default()
        });
        let one = file(&fs, "one");
        fragment(&fs, 2_000);
        fs.mount().error_tags.arm(LARP, 1);
        let _ = fs.set_xattr(one, b"user.longest", &[7; 65_536], SetMode::Any, &me);
        assert!(fs.mount().journal.check().is_err(), "the tag was not reached");
        drop(fs);
        let fs = image.open();
        let found = fs.get_xattr(one, b"user.longest").unwrap();
        assert!(found == [7; 65_536]);
        image.close(fs);
    }
}

/// A directory grows out of one form after the other, by a name at a time. Each name is tried first with a new
/// directory that inherits two ACLs of the greatest length.
#[test]
fn creates_that_inherit_the_longest_acls_keep_to_their_log_space() {
    let me = Caller::root();
    let image = Image::new(320, SMALL_BLOCKS);
    let fs = image.open_with(MountOptions {
        attr_logging: AttrLogging::Always,
        attr_path: AttrPath::Intents,
        ..Default::default()
    });
    let one = file(&fs, "one");
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
    fs.set_xattr(dir, b"system.posix_acl_default", &acl(MAX_USERS), SetMode::Any, &me).unwrap();
    for n in 0..700 {
        let name = format!("{n:0200}");
        fs.create(dir, name.as_bytes(), &NewFile::dir(0o755), &me).unwrap();
        fs.rmdir(dir, name.as_bytes(), &me).unwrap();
        fs.link(dir, name.as_bytes(), one, &Caller::root()).unwrap();
    }
    fs.mount().journal.check().unwrap();
    image.close(fs);
}

//! Bytes and sizes of files.

use crate::errno::{EFBIG, EINVAL, EISDIR, ENOSPC};
use crate::given::{bytes, cases, chown, dir, file, file_with, refused, stat};
use xfskit_vfs::{Caller, FileType, InodeNumber, NewFile, Permissions, SetAttr, SetTime, Volume};

cases!(Volume:
    what_is_written_is_read,
    a_write_behind_the_end_leaves_zeros,
    an_append_says_where_it_wrote,
    a_large_file_is_written_and_read,
    a_file_is_cut_and_lengthened,
    a_size_is_set_with_other_attributes,
    a_file_is_as_large_as_the_limit,
    a_file_is_no_larger_than_the_limit,
    nothing_is_written_behind_the_largest_offset,
    a_directory_has_no_contents,
    devices_and_links_have_no_contents,
    a_full_filesystem_refuses_and_recovers,
    files_are_written_side_by_side,
);

fn what_is_written_is_read(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    assert_eq!(v.read_at(made, 0, &mut [1; 10]).unwrap(), 0);
    v.write_at(made, 0, b"0123456789").unwrap();
    v.write_at(made, 3, b"abc").unwrap();
    v.write_at(made, 8, b"xyz").unwrap();
    assert_eq!(bytes(v, made), b"012abc67xyz");
    assert_eq!(v.write_some_at(made, 0, b"").unwrap(), 0);
    let mut part = [0; 4];
    assert_eq!((v.read_at(made, 2, &mut part).unwrap(), &part), (4, b"2abc"));
    assert_eq!((v.read_at(made, 9, &mut part).unwrap(), &part[..2]), (2, b"yz".as_slice()));
    for offset in [11, 12, 1 << 40] {
        assert_eq!(v.read_at(made, offset, &mut part).unwrap(), 0);
    }
}

fn a_write_behind_the_end_leaves_zeros(v: &dyn Volume) {
    let made = file_with(v, b"file", b"start");
    v.write_at(made, 10_000, b"end").unwrap();
    assert_eq!(bytes(v, made), [b"start".as_slice(), &[0; 9995], b"end"].concat());
}

fn an_append_says_where_it_wrote(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    assert_eq!(v.append(made, b"one").unwrap(), 0);
    assert_eq!(v.append(made, b"two").unwrap(), 3);
    assert_eq!(v.append(made, b"").unwrap(), if stat(v, made).size == 6 { 6 } else { 0 });
    assert_eq!(bytes(v, made), b"onetwo");
}

fn a_large_file_is_written_and_read(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    let data: Vec<_> = (0..5_000_001u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    v.write_at(made, 0, &data).unwrap();
    assert!(bytes(v, made) == data);
    let taken = stat(v, made).blocks * 512;
    assert!(taken >= data.len() as u64 && taken < 2 * data.len() as u64 + (1 << 20), "{taken} bytes are taken");
}

fn a_file_is_cut_and_lengthened(v: &dyn Volume) {
    let made = file_with(v, b"file", &[b'x'; 10_000]);
    v.truncate(made, 5000).unwrap();
    assert_eq!(bytes(v, made), [b'x'; 5000]);
    v.truncate(made, 9000).unwrap();
    assert_eq!(bytes(v, made), [[b'x'; 5000].as_slice(), &[0; 4000]].concat());
    v.truncate(made, 0).unwrap();
    assert_eq!((bytes(v, made), stat(v, made).blocks), (Vec::new(), 0));
    v.truncate(made, 3).unwrap();
    assert_eq!(bytes(v, made), [0; 3]);
}

fn a_size_is_set_with_other_attributes(v: &dyn Volume) {
    let made = file_with(v, b"file", b"contents");
    let mtime = Some(SetTime::To(crate::given::OLD));
    let permissions = Some(Permissions::new(0o4700));
    let change = SetAttr { size: Some(3), mtime, permissions, uid: Some(5), ..SetAttr::default() };
    let set = v.set_attr(made, &change, &Caller::root()).unwrap();
    assert_eq!((set.size, set.mtime, set.permissions.bits(), set.uid), (3, crate::given::OLD, 0o4700, 5));
    assert_eq!(bytes(v, made), b"con");
}

fn a_file_is_as_large_as_the_limit(v: &dyn Volume) {
    let (made, most) = (file(v, v.root(), b"file"), v.limits().file_bytes);
    v.truncate(made, most).unwrap();
    assert_eq!((stat(v, made).size, stat(v, made).blocks), (most, 0));
    v.truncate(made, 0).unwrap();
    v.write_at(made, most - 1, b"x").unwrap();
    let mut last = [0; 2];
    assert_eq!((v.read_at(made, most - 2, &mut last).unwrap(), last), (2, [0, b'x']));
}

fn a_file_is_no_larger_than_the_limit(v: &dyn Volume) {
    let (made, most) = (file(v, v.root(), b"file"), v.limits().file_bytes);
    refused(v.truncate(made, most + 1), EFBIG);
    let change = SetAttr { size: Some(most + 1), ..SetAttr::default() };
    refused(v.set_attr(made, &change, &Caller::root()), EFBIG);
    assert_eq!(stat(v, made).size, 0);
}

fn nothing_is_written_behind_the_largest_offset(v: &dyn Volume) {
    let (made, most) = (file(v, v.root(), b"file"), v.limits().file_bytes);
    refused(v.write_at(made, most, b"x"), EFBIG);
    refused(v.write_some_at(made, u64::MAX, b"x"), EFBIG);
    assert_eq!(stat(v, made).size, 0);
    v.truncate(made, most).unwrap();
    refused(v.append(made, b"x"), EFBIG);
    assert_eq!(v.read_at(made, most - 2, &mut [0; 5]).unwrap(), 2);
    assert_eq!(v.read_at(made, u64::MAX, &mut [0; 5]).unwrap(), 0);
}

fn contents_are_refused(v: &dyn Volume, inode: InodeNumber, errno: i32) {
    refused(v.read_at(inode, 0, &mut [0]), errno);
    refused(v.write_at(inode, 0, b"x"), errno);
    refused(v.append(inode, b"x"), errno);
    refused(v.truncate(inode, 0), errno);
    refused(v.seek(inode, 0, xfskit_vfs::Seek::Data), errno);
}

fn a_directory_has_no_contents(v: &dyn Volume) {
    let made = dir(v, v.root(), b"dir");
    refused(v.read_at(made, 0, &mut [0]), EISDIR);
    refused(v.write_at(made, 0, b"x"), EISDIR);
    refused(v.append(made, b"x"), EISDIR);
    refused(v.truncate(made, 0), EISDIR);
}

fn devices_and_links_have_no_contents(v: &dyn Volume) {
    let pipe = NewFile::new(FileType::Fifo, Permissions::new(0o644));
    for new in [NewFile::symlink(b"target"), pipe] {
        let made = v.create(v.root(), b"name", &new, &Caller::root()).unwrap().inode;
        contents_are_refused(v, made, EINVAL);
        v.unlink(v.root(), b"name", &Caller::root()).unwrap();
    }
    contents_are_refused(v, v.root(), EISDIR);
}

/// Writes until there is no more space; returns how many bytes.
fn fill(v: &dyn Volume, inode: InodeNumber) -> u64 {
    let piece = vec![b'f'; 1 << 20];
    let mut at = 0;
    loop {
        match v.write_some_at(inode, at, &piece) {
            Ok(written) => {
                assert!(written > 0 && written <= piece.len());
                at += written as u64;
            }
            Err(error) => {
                assert_eq!(error.errno(), ENOSPC, "{error}");
                return at;
            }
        }
        assert!(at < 128 << 20, "the filesystem is no larger than it said");
    }
}

fn a_full_filesystem_refuses_and_recovers(v: &dyn Volume) {
    let whole = v.statfs().unwrap();
    let made = file(v, v.root(), b"file");
    let written = fill(v, made);
    assert!(written > 32 << 20, "only {written} bytes fit");
    let full = v.statfs().unwrap();
    assert!(full.free_blocks * u64::from(full.block_bytes) < 4 << 20, "{full:?}");
    assert_eq!((full.blocks, full.block_bytes), (whole.blocks, whole.block_bytes));
    let mut last = vec![0; 4096];
    assert_eq!(v.read_at(made, stat(v, made).size - 4096, &mut last).unwrap(), 4096);
    assert!(last.iter().all(|byte| *byte == b'f'));
    // A full filesystem can be emptied.
    v.unlink(v.root(), b"file", &Caller::root()).unwrap();
    v.sync().unwrap();
    let again = file(v, v.root(), b"again");
    v.write_at(again, 0, &vec![1; 16 << 20]).unwrap();
    v.unlink(v.root(), b"again", &Caller::root()).unwrap();
}

fn files_are_written_side_by_side(v: &dyn Volume) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                let top = dir(v, v.root(), &[b'a' + thread]);
                chown(v, top, thread.into(), 0);
                for number in 0..50u8 {
                    let made = file(v, top, format!("file {number}").as_bytes());
                    v.write_at(made, 0, &[number ^ thread; 3000]).unwrap();
                    v.append(made, &[thread; 3000]).unwrap();
                }
            });
        }
    });
    for thread in 0..4u8 {
        let top = v.lookup(v.root(), &[b'a' + thread]).unwrap().inode;
        for number in 0..50u8 {
            let made = v.lookup(top, format!("file {number}").as_bytes()).unwrap().inode;
            assert_eq!(bytes(v, made), [[number ^ thread; 3000], [thread; 3000]].concat());
        }
    }
}

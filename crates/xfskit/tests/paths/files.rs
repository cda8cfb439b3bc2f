//! Open files, copies, attributes.

use crate::image;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use xfskit::volume::XattrChange;
use xfskit::{FileOptions, MkfsOptions, Permissions};

#[test]
fn a_file_that_is_removed_while_it_is_open_can_be_read_and_its_space_is_freed_later() {
    let (_, fs) = image(64 << 20);
    fs.sync().unwrap();
    let free = fs.info().free_bytes;
    let mut file = fs.create_file("file").unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    fs.remove_file("file").unwrap();
    assert!(!fs.exists("file").unwrap());
    assert!(fs.info().free_bytes < free);
    file.rewind().unwrap();
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert_eq!(read, vec![7; 1 << 20]);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.close().unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.info().free_bytes, free);
}

#[test]
fn reading_and_writing_have_a_position_and_offsets_do_not_move_it() {
    let (_, fs) = image(64 << 20);
    let mut file = fs.create_file("file").unwrap();
    file.write_all(b"0123456789").unwrap();
    file.write_at(b"ab", 2).unwrap();
    assert_eq!(file.stream_position().unwrap(), 10);
    file.seek(SeekFrom::End(-9)).unwrap();
    let mut buffer = [0; 3];
    file.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"1ab");
    assert_eq!(file.seek(SeekFrom::Current(-5)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(file.stream_position().unwrap(), 4);
    file.set_len(3).unwrap();
    assert_eq!(fs.read("file").unwrap(), b"01a");

    let mut end = fs.open_with("file", &FileOptions::new().append(true)).unwrap();
    end.write_all(b"x").unwrap();
    end.write_at(b"y", 0).unwrap();
    assert_eq!(fs.read("file").unwrap(), b"01axy");

    let reader = fs.open_file("file").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(reader.read_at(&mut buffer, 2).unwrap(), 3);
    assert_eq!(&buffer[..3], b"axy");
    reader.read_exact_at(&mut buffer[..3], 1).unwrap();
    assert_eq!(&buffer[..3], b"1ax");
    let error = reader.read_exact_at(&mut buffer, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(error.to_string(), "read file: no more data in the file");
    assert_eq!(reader.read_at(&mut buffer, u64::MAX).unwrap(), 0);
    assert_eq!(reader.write_at(b"z", 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(reader.set_len(0).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let contradictory = fs.open_with("file", &FileOptions::new().truncate(true)).unwrap_err();
    assert_eq!(contradictory.kind(), ErrorKind::InvalidInput);
    assert_eq!(fs.read("file").unwrap(), b"01axy");
}

#[test]
fn a_write_that_the_image_has_no_room_for_is_short_and_one_of_all_fails() {
    let (_, fs) = image(32 << 20);
    let data = vec![7; 64 << 20];
    let file = fs.create_file("file").unwrap();
    let count = file.write_at(&data, 0).unwrap();
    assert!(count > 8 << 20 && count < data.len(), "{count}");
    assert_eq!(file.metadata().unwrap().len(), count as u64);
    assert_eq!(file.write_at(&data[count..], count as u64).unwrap_err().errno(), 28);
    assert_eq!(file.write_all_at(&data, 0).unwrap_err().kind(), ErrorKind::StorageFull);

    file.set_len(0).unwrap();
    let end = fs.open_with("file", &FileOptions::new().append(true)).unwrap();
    assert_eq!(end.write_at(&data[..3 << 20], 0).unwrap(), 1 << 20);
    end.write_all_at(&data[..3 << 20], 0).unwrap();
    assert_eq!(fs.metadata("file").unwrap().len(), 4 << 20);
}

#[test]
fn a_copy_has_contents_holes_mode_and_attributes_with_shared_blocks_and_without() {
    for list in ["reflink=1", "reflink=0"] {
        let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(64 << 20));
        let options = MkfsOptions::new().small().option('m', list).unwrap();
        let fs = xfskit::create_on(device, &options).unwrap();
        let file = fs.create_file("from").unwrap();
        file.write_all_at(&vec![1; 300_000], 0).unwrap();
        file.write_all_at(&[2; 5], 20 << 20).unwrap();
        file.set_len((30 << 20) + 1).unwrap();
        fs.set_permissions("from", Permissions::new(0o4751)).unwrap();
        fs.set_xattr("from", "user.color", "blue").unwrap();
        fs.write("to", vec![9; 1 << 20]).unwrap();
        fs.set_xattr("to", "user.kept", "yes").unwrap();
        fs.sync().unwrap();

        assert_eq!(fs.copy("from", "to").unwrap(), (30 << 20) + 1);
        fs.sync().unwrap();
        assert!(fs.read("from").unwrap() == fs.read("to").unwrap());
        let (from, to) = (fs.metadata("from").unwrap(), fs.metadata("to").unwrap());
        assert_eq!(to.permissions(), from.permissions());
        assert!(to.allocated_bytes() < 1 << 20, "{list}: {} bytes", to.allocated_bytes());
        assert_eq!(fs.get_xattr("to", "user.color").unwrap().unwrap(), b"blue");
        assert_eq!(fs.get_xattr("to", "user.kept").unwrap().unwrap(), b"yes");
        let inode = xfskit_ondisk::InodeNumber(to.inode());
        let extents = fs.volume().file_extents(inode).unwrap();
        assert!(extents.iter().all(|extent| extent.shared == (list == "reflink=1")), "{list}: {extents:?}");

        drop(file);
        fs.hard_link("from", "same").unwrap();
        assert_eq!(fs.copy("from", "same").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(fs.read("from").unwrap() == fs.read("to").unwrap());
        fs.close().unwrap();
    }
}

#[test]
fn attributes_are_of_what_a_link_leads_to_and_an_acl_is_copied_once() {
    let (_, fs) = image(64 << 20);
    fs.create_dir("dir").unwrap();
    fs.write("dir/file", "x").unwrap();
    fs.symlink("/dir/file", "link").unwrap();
    fs.set_xattr("link", "user.a", "1").unwrap();
    assert_eq!(fs.list_xattrs("dir/file").unwrap(), [b"user.a"]);
    assert_eq!(fs.get_xattr("link", b"user.none").unwrap(), None);
    assert_eq!(fs.remove_xattr("link", "user.none").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs.get_xattr("link", "color").unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(fs.set_xattr("link", "user.b", vec![0; 65537]).unwrap_err().kind(), ErrorKind::InvalidInput);
    let change =
        |name: &[u8], value: Option<&[u8]>| XattrChange { name: name.to_vec(), value: value.map(<[u8]>::to_vec) };
    assert!(fs.change_xattrs("link", &[change(b"user.c", Some(b"3")), change(b"user.none", None)]).is_err());
    assert_eq!(fs.get_xattr("link", "user.c").unwrap(), None);
    fs.change_xattrs("link", &[change(b"user.c", Some(b"3")), change(b"user.a", None)]).unwrap();
    assert_eq!(fs.list_xattrs("link").unwrap(), [b"user.c"]);
    let file = fs.open_file("dir/file").unwrap();
    file.remove_xattr("user.c").unwrap();
    assert_eq!(file.remove_xattr("user.c").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(file.list_xattrs().unwrap().is_empty());
    drop(file);

    // Version 2: user rw, user 5 r, group r, mask r, others nothing.
    let mut acl = vec![2, 0, 0, 0];
    for (tag, rights, id) in [(1u16, 6u16, u32::MAX), (2, 4, 5), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    fs.set_xattr("dir/file", "system.posix_acl_access", &acl).unwrap();
    fs.copy("dir/file", "copy").unwrap();
    assert_eq!(fs.get_xattr("copy", "system.posix_acl_access").unwrap().unwrap(), acl);
    assert_eq!(fs.metadata("copy").unwrap().permissions(), Permissions::new(0o640));
    fs.hard_link("link", "dir/hard").unwrap();
    assert_eq!(fs.paths_of("link").unwrap(), ["/dir/hard", "/link"].map(std::path::PathBuf::from));
    assert!(fs.symlink_metadata("dir/hard").unwrap().is_symlink());
}

#[test]
fn a_path_that_ends_in_dots_or_is_the_root_is_never_removed_or_moved() {
    let (_, fs) = image(64 << 20);
    fs.create_dir_all("/dir/below").unwrap();
    for path in ["/", "", ".", "dir/.", "dir/below/..", "/dir/./"] {
        let results = [
            fs.remove_file(path),
            fs.remove_dir(path),
            fs.remove_dir_all(path),
            fs.rename(path, "new"),
            fs.rename("dir", path),
            fs.write_atomic(path, "x"),
        ];
        for result in results {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
        }
    }
    assert!(fs.metadata("/dir/below").unwrap().is_dir());
    assert!(!fs.exists("new").unwrap());
}

#[test]
fn a_large_directory_is_listed_and_removed_whole() {
    let (_, fs) = image(128 << 20);
    fs.create_dir_all("tree/deep").unwrap();
    for number in 0..3000 {
        fs.write(format!("tree/{number:05}"), "").unwrap();
    }
    let names: Vec<_> = fs.read_dir("tree").unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    assert_eq!(names.len(), 3001);
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), 3001);
    let mut path = "tree/deep".to_owned();
    for _ in 0..300 {
        path.push_str("/d");
        fs.create_dir(&path).unwrap();
    }
    fs.symlink("../..", format!("{path}/link")).unwrap();
    assert_eq!(fs.walk("tree").unwrap().filter(Result::is_ok).count(), 3001 + 300 + 1);
    let mut walk = fs.walk("").unwrap();
    assert_eq!(walk.next().unwrap().unwrap().path(), std::path::Path::new("/tree"));
    walk.skip_dir();
    assert!(walk.next().is_none());
    drop(walk);
    fs.remove_dir_all("tree").unwrap();
    assert_eq!(fs.read_dir("/").unwrap().count(), 0);
    fs.close().unwrap();
}

#[test]
fn what_memory_has_no_room_for_is_an_error() {
    let (_, fs) = image(32 << 20);
    fs.create_file("large").unwrap().set_len(1 << 62).unwrap();
    assert_eq!(fs.read("large").unwrap_err().kind(), ErrorKind::FileTooLarge);
    let mut end = [1; 4];
    assert_eq!(fs.open_file("large").unwrap().read_at(&mut end, (1 << 62) - 2).unwrap(), 2);
    assert_eq!(end, [0, 0, 1, 1]);
}

#[test]
fn a_file_that_is_closed_keeps_no_room_for_its_growth() {
    let (_, fs) = image(64 << 20);
    let write = |name: &str| {
        let file = fs.create_file(name).unwrap();
        file.write_all_at(&[1; 100_000], 0).unwrap();
        file.sync_all().unwrap();
        file
    };
    let extent = |name: &str| {
        let inode = xfskit_ondisk::InodeNumber(fs.metadata(name).unwrap().inode());
        let extents = fs.volume().file_extents(inode).unwrap();
        let [extent] = extents.as_slice() else { panic!("{extents:?}") };
        (extent.disk, extent.disk + extent.length)
    };
    let open = write("open");
    drop(write("beside"));
    assert!(extent("beside").0 > extent("open").1);
    drop(write("behind"));
    assert_eq!(extent("behind").0, extent("beside").1);
    drop(open);
}

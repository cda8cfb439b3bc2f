//! Holes, space and copies: what is done with ranges of files.

use crate::errno::{EFBIG, EINVAL, ENXIO, EOPNOTSUPP};
use crate::given::{Random, bytes, cases, file, file_with, refused, stat};
use xfskit_vfs::{Fallocate, InodeNumber, Seek, Volume};

cases!(Volume:
    holes_and_data_are_found,
    space_is_allocated,
    a_punched_hole_reads_as_zeros_and_takes_no_space,
    a_zeroed_range_reads_as_zeros_and_has_space,
    a_range_is_collapsed,
    a_range_is_inserted,
    ranges_that_make_no_sense_are_refused,
    a_copy_stays_when_its_source_changes,
    a_copy_ends_with_its_source,
    files_share_blocks,
    ranges_that_cannot_be_shared_are_refused,
    a_file_is_the_same_as_a_model_after_many_steps,
);

fn block(v: &dyn Volume) -> u64 {
    u64::from(v.limits().block_bytes)
}

/// Three blocks of data, each with its own letter.
fn three(v: &dyn Volume) -> (InodeNumber, Vec<u8>) {
    let block = block(v) as usize;
    let data = [vec![b'a'; block], vec![b'b'; block], vec![b'c'; block]].concat();
    (file_with(v, b"three", &data), data)
}

fn holes_and_data_are_found(v: &dyn Volume) {
    // Wide enough for what a filesystem allocates ahead.
    let (made, far) = (file(v, v.root(), b"file"), 64 * block(v).max(4096) * 16);
    v.write_at(made, far, &vec![1; block(v) as usize]).unwrap();
    v.truncate(made, 3 * far).unwrap();
    v.fsync(made).unwrap();
    let end = far + block(v);
    for (offset, what, found) in [
        (0, Seek::Hole, 0),
        (0, Seek::Data, far),
        (far, Seek::Data, far),
        (far + 1, Seek::Data, far + 1),
        (far, Seek::Hole, end),
        (end, Seek::Hole, end),
    ] {
        assert_eq!(v.seek(made, offset, what).unwrap(), found, "{what:?} from {offset}");
    }
    refused(v.seek(made, end, Seek::Data), ENXIO);
    for what in [Seek::Data, Seek::Hole] {
        refused(v.seek(made, 3 * far, what), ENXIO);
        refused(v.seek(made, u64::MAX >> 1, what), ENXIO);
    }
    let full = file_with(v, b"full", b"contents");
    assert_eq!((v.seek(full, 3, Seek::Data).unwrap(), v.seek(full, 3, Seek::Hole).unwrap()), (3, 8));
}

fn space_is_allocated(v: &dyn Volume) {
    let (made, length) = (file_with(v, b"file", b"contents"), 10 * block(v) + 1);
    v.fallocate(made, 0, length, Fallocate::AllocateKeepSize).unwrap();
    assert_eq!((stat(v, made).size, bytes(v, made)), (8, b"contents".to_vec()));
    assert!(stat(v, made).blocks * 512 >= length);
    v.fallocate(made, 0, length, Fallocate::Allocate).unwrap();
    let mut expected = b"contents".to_vec();
    expected.resize(length as usize, 0);
    assert_eq!(bytes(v, made), expected);
    v.truncate(made, 0).unwrap();
    assert_eq!(stat(v, made).blocks, 0);
}

fn a_punched_hole_reads_as_zeros_and_takes_no_space(v: &dyn Volume) {
    let ((made, mut data), block) = (three(v), block(v));
    let before = stat(v, made).blocks;
    v.fallocate(made, block - 1, block + 2, Fallocate::PunchHole).unwrap();
    data[block as usize - 1..2 * block as usize + 1].fill(0);
    assert_eq!(bytes(v, made), data);
    v.fsync(made).unwrap();
    assert!(stat(v, made).blocks < before.max(3 * block / 512));
    assert_eq!(v.seek(made, 0, Seek::Hole).unwrap(), block);
    v.fallocate(made, 0, 100 * block, Fallocate::PunchHole).unwrap();
    assert_eq!((stat(v, made).size, stat(v, made).blocks), (3 * block, 0));
}

fn a_zeroed_range_reads_as_zeros_and_has_space(v: &dyn Volume) {
    let ((made, mut data), block) = (three(v), block(v));
    v.fallocate(made, block - 1, block + 2, Fallocate::ZeroRangeKeepSize).unwrap();
    data[block as usize - 1..2 * block as usize + 1].fill(0);
    assert_eq!(bytes(v, made), data);
    v.fallocate(made, 2 * block, 2 * block, Fallocate::ZeroRange).unwrap();
    data.truncate(2 * block as usize);
    data.resize(4 * block as usize, 0);
    assert_eq!(bytes(v, made), data);
    assert!(stat(v, made).blocks * 512 >= 4 * block);
}

fn a_range_is_collapsed(v: &dyn Volume) {
    let ((made, mut data), block) = (three(v), block(v));
    if !v.limits().collapse {
        return refused(v.fallocate(made, 0, block, Fallocate::CollapseRange), EOPNOTSUPP);
    }
    v.append(made, b"end").unwrap();
    v.fallocate(made, block, block, Fallocate::CollapseRange).unwrap();
    data.drain(block as usize..2 * block as usize);
    data.extend(b"end");
    assert_eq!(bytes(v, made), data);
    refused(v.fallocate(made, 1, block, Fallocate::CollapseRange), EINVAL);
    refused(v.fallocate(made, 0, block - 1, Fallocate::CollapseRange), EINVAL);
    refused(v.fallocate(made, block, 2 * block, Fallocate::CollapseRange), EINVAL);
    assert_eq!(bytes(v, made), data);
}

fn a_range_is_inserted(v: &dyn Volume) {
    let ((made, mut data), block) = (three(v), block(v));
    if !v.limits().collapse {
        return refused(v.fallocate(made, 0, block, Fallocate::InsertRange), EOPNOTSUPP);
    }
    v.fallocate(made, block, 2 * block, Fallocate::InsertRange).unwrap();
    let at = block as usize;
    data.splice(at..at, vec![0; 2 * at]);
    assert_eq!(bytes(v, made), data);
    refused(v.fallocate(made, 1, block, Fallocate::InsertRange), EINVAL);
    refused(v.fallocate(made, 5 * block, block, Fallocate::InsertRange), EINVAL);
    refused(v.fallocate(made, 6 * block, block, Fallocate::InsertRange), EINVAL);
    refused(v.fallocate(made, 0, (v.limits().file_bytes / block) * block, Fallocate::InsertRange), EFBIG);
    assert_eq!(bytes(v, made), data);
}

fn ranges_that_make_no_sense_are_refused(v: &dyn Volume) {
    let (made, most) = (file(v, v.root(), b"file"), v.limits().file_bytes);
    for what in [Fallocate::Allocate, Fallocate::AllocateKeepSize, Fallocate::PunchHole, Fallocate::ZeroRange] {
        refused(v.fallocate(made, 0, 0, what), EINVAL);
        refused(v.fallocate(made, most, 1, what), EFBIG);
        refused(v.fallocate(made, 1, most, what), EFBIG);
    }
    refused(v.fallocate(made, 0, 1 << 40, Fallocate::Allocate), crate::errno::ENOSPC);
    assert_eq!(stat(v, made).size, 0);
}

fn a_copy_stays_when_its_source_changes(v: &dyn Volume) {
    let ((made, data), block) = (three(v), block(v));
    let to = file(v, v.root(), b"copy");
    let length = data.len() as u64;
    let mut done = 0;
    while done < length {
        let copied = v.copy_range(made, done, to, done, length - done).unwrap();
        assert!(copied > 0);
        done += copied;
    }
    assert_eq!(bytes(v, to), data);
    v.write_at(made, 0, b"changed").unwrap();
    v.truncate(made, block + 1).unwrap();
    assert_eq!(bytes(v, to), data);
    v.write_at(to, 2 * block, b"changed").unwrap();
    assert_eq!(bytes(v, made)[7..], data[7..=block as usize]);
}

fn a_copy_ends_with_its_source(v: &dyn Volume) {
    let (made, to) = (file_with(v, b"file", b"0123456789"), file(v, v.root(), b"copy"));
    assert_eq!(v.copy_range(made, 4, to, 1, 100).unwrap(), 6);
    assert_eq!(bytes(v, to), b"\x00456789");
    assert_eq!(v.copy_range(made, 10, to, 0, 5).unwrap(), 0);
    assert_eq!(v.copy_range(made, 11, to, 0, 5).unwrap(), 0);
    assert_eq!(v.copy_range(made, 0, made, 10, 10).unwrap(), 10);
    assert_eq!(bytes(v, made), b"01234567890123456789");
    refused(v.copy_range(made, 0, made, 5, 10), EINVAL);
}

fn files_share_blocks(v: &dyn Volume) {
    let ((made, data), block) = (three(v), block(v));
    let to = file_with(v, b"copy", b"old");
    if !v.limits().reflink {
        return refused(v.clone_range(made, 0, to, 0, block), EOPNOTSUPP);
    }
    v.append(made, b"end").unwrap();
    v.clone_range(made, 0, to, 0, 3 * block + 3).unwrap();
    assert_eq!(bytes(v, to), [data.as_slice(), b"end"].concat());
    v.write_at(made, 5, b"changed").unwrap();
    v.fallocate(to, block, block, Fallocate::PunchHole).unwrap();
    assert_eq!(bytes(v, made)[block as usize..3 * block as usize], data[block as usize..]);
    assert_eq!(bytes(v, to)[..block as usize], data[..block as usize]);
    v.clone_range(made, 0, made, 4 * block, 2 * block).unwrap();
    assert_eq!(bytes(v, made)[5 * block as usize..], data[block as usize..2 * block as usize]);
    v.fallocate(to, 0, 3 * block, Fallocate::UnshareKeepSize).unwrap();
    assert_eq!(bytes(v, to)[2 * block as usize..], [&data[2 * block as usize..], b"end"].concat());
}

fn ranges_that_cannot_be_shared_are_refused(v: &dyn Volume) {
    let ((made, data), block) = (three(v), block(v));
    let to = file_with(v, b"to", &data);
    if !v.limits().reflink {
        return;
    }
    refused(v.clone_range(made, 1, to, 0, block), EINVAL);
    refused(v.clone_range(made, 0, to, 1, block), EINVAL);
    refused(v.clone_range(made, 0, to, 0, block - 1), EINVAL);
    refused(v.clone_range(made, 0, to, 0, 4 * block), EINVAL);
    refused(v.clone_range(made, 4 * block, to, 0, block), EINVAL);
    refused(v.clone_range(made, 0, made, block, 2 * block), EINVAL);
    assert_eq!((bytes(v, made), bytes(v, to)), (data.clone(), data));
}

/// Bytes that the model may have.
const MODEL_BYTES: u64 = 160 << 10;

/// Does one step to the file and to its model.
fn step(v: &dyn Volume, inode: InodeNumber, model: &mut Vec<u8>, random: &mut Random) {
    let block = block(v);
    let size = model.len() as u64;
    let offset = random.below(MODEL_BYTES / 2);
    let length = 1 + random.below(MODEL_BYTES / 4);
    let (blocks, count) = (random.below(8) * block, (1 + random.below(3)) * block);
    let range = offset as usize..(offset + length) as usize;
    let grow = |model: &mut Vec<u8>, end: u64| model.resize(model.len().max(end as usize), 0);
    let zero = |model: &mut Vec<u8>| {
        let end = range.end.min(model.len());
        model[range.start.min(end)..end].fill(0);
    };
    match random.below(10) {
        0..3 => {
            let data = vec![random.below(255) as u8 + 1; length as usize];
            v.write_at(inode, offset, &data).unwrap();
            grow(model, offset + length);
            model[range].copy_from_slice(&data);
        }
        3 => {
            v.truncate(inode, offset).unwrap();
            model.resize(offset as usize, 0);
        }
        4 => {
            v.fallocate(inode, offset, length, Fallocate::PunchHole).unwrap();
            zero(model);
        }
        5 => {
            v.fallocate(inode, offset, length, Fallocate::ZeroRange).unwrap();
            grow(model, offset + length);
            zero(model);
        }
        6 => {
            v.fallocate(inode, offset, length, Fallocate::AllocateKeepSize).unwrap();
        }
        7 if v.limits().collapse && blocks + count < size => {
            v.fallocate(inode, blocks, count, Fallocate::CollapseRange).unwrap();
            model.drain(blocks as usize..(blocks + count) as usize);
        }
        8 if v.limits().collapse && blocks < size && size + count < MODEL_BYTES => {
            v.fallocate(inode, blocks, count, Fallocate::InsertRange).unwrap();
            model.splice(blocks as usize..blocks as usize, vec![0; count as usize]);
        }
        9 if v.limits().reflink && blocks + 8 * block + count < size => {
            v.clone_range(inode, blocks + 8 * block, inode, blocks, count.min(8 * block)).unwrap();
            let from = (blocks + 8 * block) as usize;
            model.copy_within(from..from + count as usize, blocks as usize);
        }
        _ => {}
    }
}

fn a_file_is_the_same_as_a_model_after_many_steps(v: &dyn Volume) {
    for seed in 1..=4 {
        let mut random = Random(seed);
        let made = file(v, v.root(), &seed.to_string().into_bytes());
        let mut model = Vec::new();
        for number in 0..250 {
            step(v, made, &mut model, &mut random);
            assert!(bytes(v, made) == model, "seed {seed}, step {number}");
        }
    }
}

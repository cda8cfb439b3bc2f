//! The transaction reservations against those that xfsprogs computes for the same image (`logres` of xfs_db).

use xfskit_device::{Access, FileDevice};
use xfskit_mkfs::{Options, make};
use xfskit_ondisk::{Geometry, Reservation, Reservations, Timestamp};
use xfskit_testkit::{reference, scratch};

/// The kernel's numbers of the transactions, without those of the realtime section, which xfskit does not have.
fn numbered(all: &Reservations) -> [(u32, Reservation); 24] {
    [
        (0, all.write),
        (1, all.itruncate),
        (2, all.rename),
        (3, all.link),
        (4, all.remove),
        (5, all.symlink),
        (6, all.create),
        (7, all.create_tmpfile),
        (8, all.mkdir),
        (9, all.ifree),
        (10, all.ichange),
        (11, all.growdata),
        (12, all.addafork),
        (13, all.writeid),
        (14, all.attrinval),
        (15, all.attrsetm),
        (16, all.attrsetrt),
        (17, all.attrrm),
        (18, all.clearagi),
        (19, all.growrtalloc),
        (22, all.qm_setqlim),
        (23, all.qm_dqalloc),
        (24, all.sb),
        (25, all.fsyncts),
    ]
}

#[test]
fn reservations_are_those_of_xfsprogs() {
    let Some(reference) = reference() else { return };
    for (mib, sections) in [
        (1024, &[][..]),
        (300, &[('n', "parent=0")]),
        (300, &[('b', "size=1024"), ('n', "size=65536")]),
        (1024, &[('b', "size=65536"), ('i', "size=2048")]),
        (1024, &[('m', "rmapbt=0")]),
        (1024, &[('m', "reflink=0"), ('i', "nrext64=0")]),
        (1024, &[('m', "rmapbt=0,reflink=0,finobt=0"), ('i', "sparse=0,size=1024"), ('s', "size=4096")]),
        (1 << 20, &[('d', "su=64k,sw=4")]),
    ] {
        let dir = scratch();
        let image = dir.image("image", mib << 20);
        let mut options = Options { uuid: Some([9; 16]), ..Options::default() };
        sections.iter().for_each(|(section, list)| options.apply(*section, list).unwrap());
        let device = FileDevice::open(&image, Access::Write).unwrap();
        let superblock = make(&device, None, &options, Timestamp::default()).unwrap();
        drop(device);
        let ours = Reservations::new(&Geometry::new(&superblock));
        let theirs = reference.db(&image, &["logres"]);
        for (number, ours) in numbered(&ours) {
            let line = theirs.lines().find(|line| line.starts_with(&format!("type {number} "))).unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            let theirs = (words[3].parse().unwrap(), words[5].parse::<u32>().unwrap().max(1));
            assert_eq!((ours.bytes, ours.count), theirs, "type {number} of {mib} MiB with {sections:?}");
        }
    }
}

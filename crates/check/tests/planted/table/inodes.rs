//! Faults in inodes, their extent maps, and the tree that they make.

use super::{Plant, plant};

pub const INODES: &[Plant] = &[
    plant(
        &["inode {shortform}", "write -d core.nblocks 3", "write -d core.nextents 3"],
        "inode",
        "no extents of local contents",
        true,
    ),
    plant(&["inode {source}", "write -d core.nblocks 0"], "inode", "as many blocks as extents", true),
    plant(&["inode {source}", "write -d core.onlink 1"], "inode", "no link count of version 1", true),
    plant(&["inode {pipe}", "write -d core.newrtbm 1"], "inode", "only the realtime bitmap has its flag", true),
    plant(&["inode {link}", "write -d v3.dax 1"], "inode", "flags fit the type and the image's features", true),
    plant(
        &["inode {source}", "write -d core.extsize 40000", "write -d core.extsz 1"],
        "inode",
        "extent size hint fits an AG",
        true,
    ),
    plant(&["inode {x short}", "write -c core.uid 7"], "inode", "checksum", true),
    plant(&["inode {x short}", "write -d core.magic 7"], "inode", "magic number", true),
    plant(&["inode {x short}", "write -d v3.inumber 7"], "inode", "own inode number", true),
    plant(&["inode {x short}", "write -d core.format 1"], "inode", "data fork format fits the mode", true),
    plant(&["inode {x short}", "write -d core.mode 0"], "inode", "in use in the inode tree, so in use on disk", true),
    plant(&["inode {x short}", "write -d core.nblocks 9"], "inode", "number of blocks", true),
    plant(
        &["inode {x short}", "write -d core.nblocks 2", "write -d core.nextents 2"],
        "data fork extent",
        "not empty",
        true,
    ),
    plant(&["inode {fragments}", "write -d core.nextents 999"], "inode", "number of data extents", true),
    plant(&["inode {x node}", "write -d core.naextents 20"], "inode", "number of attr extents", true),
    plant(&["inode {x short}", "write -d core.nlinkv2 4"], "inode", "number of links", true),
    plant(&["inode {leaf}", "write -d core.nlinkv2 4"], "inode", "number of links", true),
    plant(&["inode {x short}", "write -d core.nlinkv2 0"], "inode", "without a name, so on an unlinked list", true),
    plant(
        &["inode {x short}", "write -d next_unlinked 70"],
        "inode",
        "only inodes without a name are on an unlinked list",
        true,
    ),
    plant(
        &["inode {x short}", "write -d core.realtime 1"],
        "inode",
        "no realtime files without a realtime section",
        true,
    ),
    plant(&["inode {x short}", "write -d core.projinherit 1"], "inode", "flags fit the type", true),
    plant(&["inode {leaf}", "write -d v3.reflink 1"], "inode", "flags fit the type and the image's features", true),
    plant(&["inode {x short}", "write -d v3.flags2 0x100"], "inode", "only known flags", true),
    plant(&["inode {x short}", "write -d core.extsize 5"], "inode", "extent size and its flag", true),
    plant(&["inode {x short}", "write -d v3.cowextsize 5"], "inode", "copy-on-write extent size and its flag", true),
    plant(&["inode {pipe}", "write -d core.size 5"], "inode", "devices, pipes and sockets have no size", true),
    plant(&["inode {pipe}", "write -d core.forkoff 5"], "inode", "the attr fork of a device follows its number", true),
    plant(&["inode {x short}", "write -d v3.lsn 0x900000000"], "inode", "not newer than the journal", false),
    plant(&["inode {link}", "write -d core.size 900"], "inode", "local contents fit the data fork", true),
    plant(&["inode {link}", "write -d u3.symlink \"sh\""], "symbolic link", "the target has no zero bytes", true),
    plant(&["inode {long link}", "write -d core.size 900"], "symbolic link", "the target has the inode's size", true),
    plant(&["inode {long link}", "dblock 0", "write -d owner 9"], "symbolic link block", "checksum", true),
];

pub const MAPS: &[Plant] = &[
    plant(
        &["inode {punched}", "write -d u3.bmx[1].startoff 5"],
        "data fork extent",
        "extents are in order and do not overlap",
        true,
    ),
    plant(
        &["inode {punched}", "write -d u3.bmx[0].startblock 99999999"],
        "data fork extent",
        "lies within one AG",
        true,
    ),
    plant(&["inode {punched}", "write -d u3.bmx[0].blockcount 0"], "data fork extent", "not empty", true),
    plant(
        &["inode {leaf}", "write -d u3.bmx[0].extentflag 1"],
        "data fork extent",
        "only files have unwritten extents",
        true,
    ),
    plant(&["inode {punched}", "write -d u3.bmx[0].extentflag 1"], "rmapbt record", "is what the owner maps", true),
    plant(&["inode {fragments}", "write -d u3.bmbt.level 0"], "data fork extent", "root of the btree", true),
    plant(&["inode {fragments}", "write -d u3.bmbt.ptrs[1] 3"], "bmbt block", "checksum", true),
    plant(
        &["inode {fragments}", "write -d u3.bmbt.ptrs[1] 9999999"],
        "bmbt block",
        "pointer leads into the device",
        true,
    ),
    plant(
        &["inode {fragments}", "addr u3.bmbt.ptrs[1]", "write -d keys[2].startoff 513"],
        "bmbt block",
        "lowest key is the parent's",
        true,
    ),
    plant(&["inode {fragments}", "addr u3.bmbt.ptrs[1]", "write -d owner 78"], "bmbt block", "owner", true),
    plant(
        &["inode {fragments}", "addr u3.bmbt.ptrs[1]", "addr ptrs[2]", "write -d rightsib 10"],
        "bmbt block",
        "siblings",
        true,
    ),
    plant(
        &["inode {fragments}", "addr u3.bmbt.ptrs[1]", "addr ptrs[2]", "write -d numrecs 3"],
        "inode",
        "number of data extents",
        true,
    ),
    plant(
        &["inode {fragments}", "addr u3.bmbt.ptrs[1]", "addr ptrs[1]", "write -d recs[2].startoff 0"],
        "bmbt block",
        "records in order",
        true,
    ),
];

pub const TREE: &[Plant] = &[
    plant(&["inode {.}", "dblock 0", "write -d bu[{entry}].inumber {leaf}"], "inode", "some name leads to it", true),
    plant(
        &["inode {.}", "dblock 0", "write -d bu[{entry}].inumber {leaf}"],
        "directory entry",
        "a directory has one name",
        true,
    ),
    plant(
        &[
            "inode {.}",
            "dblock 0",
            "write -d bu[{entry}].inumber {leaf}",
            "inode {level 0/level 1/level 2}",
            "write -d u3.sfdir3.list[0].inumber.i4 {level 0}",
        ],
        "inode",
        "directories do not go round in circles",
        true,
    ),
];

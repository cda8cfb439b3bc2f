//! The faults: commands of xfs_db, what must be said of them, and whether `xfs_repair -n` complains too.

/// A fault to plant.
pub struct Plant {
    pub commands: &'static [&'static str],
    pub structure: &'static str,
    pub check: &'static str,
    pub repair: bool,
}

impl Plant {
    /// How messages of the test call it.
    pub fn name(&self) -> String {
        format!("{:?} for {} / {}", self.commands, self.structure, self.check)
    }
}

const fn plant(commands: &'static [&'static str], structure: &'static str, check: &'static str, repair: bool) -> Plant {
    Plant { commands, structure, check, repair }
}

/// All of them.
pub const ALL: &[&[Plant]] =
    &[HEADERS, SPACE, OWNERS, INODE_TREES, INODES, MAPS, DIRECTORIES, INDEXES, TREE, ATTRIBUTES, PARENTS];

const HEADERS: &[Plant] = &[
    plant(&["sb 0", "write -c icount 7"], "superblock", "checksum", true),
    plant(&["sb 0", "write -d icount 7000"], "superblock", "number of inodes", true),
    plant(&["sb 0", "write -d ifree 5"], "superblock", "number of free inodes", true),
    plant(&["sb 0", "write -d fdblocks 5"], "superblock", "number of free blocks", true),
    plant(&["sb 0", "write -d rsumino 70"], "superblock", "the realtime inodes follow the root inode", true),
    plant(&["sb 0", "write -d width 8"], "superblock", "stripe unit, width and their flag", true),
    plant(&["sb 1", "write -d dblocks 100"], "secondary superblock", "agrees with the first superblock", true),
    plant(&["sb 1", "write -c dblocks 100"], "secondary superblock", "checksum", true),
    plant(&["sb 1", "write -d magicnum 1"], "secondary superblock", "magic number", true),
    plant(&["agf 0", "write -c freeblks 5"], "AGF", "checksum", true),
    plant(&["agf 0", "write -d freeblks 25"], "AGF", "longest extent is free", true),
    plant(&["agf 0", "write -d freeblks 20000"], "AGF", "number of free blocks", true),
    plant(&["agf 0", "write -d longest 5"], "AGF", "longest free extent", true),
    plant(&["agf 0", "write -d btreeblks 5"], "AGF", "blocks of the free space and rmap trees", true),
    plant(&["agf 0", "write -d rmapblocks 5"], "AGF", "blocks of the rmapbt", true),
    plant(&["agf 0", "write -d refcntblocks 5"], "AGF", "blocks of the refcountbt", true),
    plant(&["agf 0", "write -d flcount 3"], "AGF", "free list count", true),
    plant(&["agf 0", "write -d length 5"], "AGF", "length of the AG", true),
    plant(&["agf 0", "write -d lsn 0x900000000"], "AGF", "not newer than the journal", true),
    plant(&["agfl 0", "write -d bno[{fllast}] 40000"], "AGFL", "entries lie within the AG", true),
    plant(&["agfl 0", "write -d bno[118] 40000"], "AGFL", "entries lie within the AG", true),
    plant(&["agfl 0", "write -d bno[{fllast}] 0"], "block", "blocks have one owner", true),
    plant(&["agfl 0", "write -d bno[{fllast}] 4294967295"], "AGFL", "entries in use are blocks", true),
    plant(&["agfl 0", "write -d bno[{fllast}] 4"], "block", "blocks have one owner", true),
    plant(&["agfl 0", "write -d seqno 5"], "AGFL", "own AG number", true),
    plant(&["agi 0", "write -d count 5000"], "AGI", "number of inodes", true),
    plant(&["agi 0", "write -d freecount 5"], "AGI", "number of free inodes", true),
    plant(&["agi 0", "write -d ino_blocks 5"], "AGI", "blocks of the inobt", true),
    plant(&["agi 0", "write -d fino_blocks 5"], "AGI", "blocks of the finobt", true),
    plant(&["agi 0", "write -d newino 900000"], "AGI", "newest chunk lies within the AG", false),
    plant(&["agi 0", "write -d seqno 7"], "AGI", "own AG number", true),
    plant(&["agi 0", "write -d level 8"], "AGI", "tree height", true),
    plant(&["agi 0", "write -d unlinked[1] {x short}"], "AGI", "unlinked list heads", true),
    plant(
        &["agi 0", "write -d unlinked[{x short%64}] {x short}"],
        "unlinked list",
        "has only inodes in use that have no name, each once",
        true,
    ),
];

const SPACE: &[Plant] = &[
    plant(&["agf 0", "addr bnoroot", "write -d recs[1].blockcount 9000"], "block", "blocks have one owner", true),
    plant(
        &["agf 0", "addr bnoroot", "write -d recs[1].blockcount 63"],
        "cntbt record",
        "both trees have every free extent",
        true,
    ),
    plant(
        &["agf 0", "addr bnoroot", "write -d recs[1].blockcount 63"],
        "free space",
        "every block is free or has an owner",
        true,
    ),
    plant(&["agf 0", "addr bnoroot", "write -d recs[2].startblock 5"], "bnobt block", "records in order", true),
    plant(&["agf 0", "addr bnoroot", "write -d recs[2].blockcount 40000"], "bnobt block", "records make sense", true),
    plant(&["agf 0", "addr bnoroot", "write -c numrecs 5"], "bnobt block", "checksum", true),
    plant(&["agf 0", "addr bnoroot", "write -d leftsib 5"], "bnobt block", "siblings", false),
    plant(&["agf 0", "addr bnoroot", "write -d rightsib 5"], "bnobt block", "siblings", false),
    plant(&["agf 0", "addr bnoroot", "write -d owner 1"], "bnobt block", "own AG number", true),
    plant(&["agf 0", "addr bnoroot", "write -d bno 9"], "bnobt block", "own address", true),
    plant(&["agf 0", "write -d bnolevel 2"], "bnobt block", "level", true),
    plant(&["agf 0", "addr bnoroot", "write -d magic 5"], "bnobt block", "magic number", true),
    plant(&["agf 0", "addr bnoroot", "write -d lsn 0x900000000"], "bnobt block", "not newer than the journal", true),
    plant(&["agf 0", "write -d bnoroot 3"], "bnobt block", "magic number", true),
    plant(
        &["agf 1", "addr cntroot", "write -d recs[1].startblock 3"],
        "bnobt record",
        "both trees have every free extent",
        true,
    ),
    plant(&["agf 0", "addr cntroot", "write -d recs[1].blockcount 70"], "cntbt block", "records in order", true),
];

const OWNERS: &[Plant] = &[
    plant(
        &["agf 0", "addr rmaproot", "addr ptrs[1]", "addr ptrs[1]", "write -d recs[7].owner 70"],
        "rmapbt record",
        "there is one for every owner",
        true,
    ),
    plant(
        &["agf 0", "addr rmaproot", "addr ptrs[1]", "addr ptrs[1]", "write -d recs[7].owner 70"],
        "rmapbt record",
        "its owner has the blocks",
        true,
    ),
    plant(
        &["agf 0", "addr rmaproot", "addr ptrs[1]", "addr ptrs[1]", "write -d recs[9].extentflag 1"],
        "rmapbt record",
        "is what the owner maps",
        true,
    ),
    plant(
        &["agf 0", "addr rmaproot", "addr ptrs[1]", "addr ptrs[1]", "write -d recs[9].offset 5"],
        "rmapbt record",
        "there is one for every owner",
        true,
    ),
    plant(
        &["agf 0", "addr rmaproot", "write -d keys[2].startblock 3103"],
        "rmapbt block",
        "lowest key is the parent's",
        true,
    ),
    plant(
        &["agf 0", "addr rmaproot", "write -d keys[2].startblock_hi 8200"],
        "rmapbt block",
        "highest key is the parent's",
        false,
    ),
    plant(&["agf 0", "addr rmaproot", "write -d ptrs[2] 9"], "rmapbt block", "siblings", true),
    plant(&["agf 0", "addr rmaproot", "addr ptrs[1]", "write -d rightsib 9"], "rmapbt block", "siblings", true),
    plant(&["agf 0", "write -d rmaplevel 2"], "rmapbt block", "level", true),
    plant(
        &["agf 0", "addr refcntroot", "addr ptrs[1]", "write -d recs[1].refcount 3"],
        "refcountbt record",
        "counts the owners",
        true,
    ),
    plant(
        &["agf 0", "addr refcntroot", "addr ptrs[1]", "write -d recs[1].refcount 3"],
        "refcountbt record",
        "counts owners that exist",
        true,
    ),
    plant(
        &["agf 0", "addr refcntroot", "addr ptrs[1]", "write -d recs[1].refcount 1"],
        "refcountbt record",
        "shared blocks have two owners, staged ones one",
        true,
    ),
    plant(
        &["agf 0", "addr refcntroot", "addr ptrs[1]", "write -d recs[1].blockcount 100"],
        "refcountbt record",
        "records do not overlap",
        true,
    ),
    plant(
        &["agf 0", "addr refcntroot", "write -d keys[2].startblock 80"],
        "refcountbt block",
        "lowest key is the parent's",
        true,
    ),
    plant(
        &["inode {source}", "write -d v3.reflink 0"],
        "block",
        "only inodes with the reflink flag share blocks",
        true,
    ),
    plant(&["inode {punched}", "write -d u3.bmx[0].startblock 5"], "block", "blocks have one owner", true),
    plant(
        &["inode {punched}", "write -d u3.bmx[0].startblock 5"],
        "free space",
        "every block is free or has an owner",
        true,
    ),
];

const INODE_TREES: &[Plant] = &[
    plant(&["agi 0", "addr root", "write -d recs[2].freecount 5"], "inobt block", "records make sense", true),
    plant(&["agi 0", "addr root", "write -d recs[2].startino 16449"], "inobt record", "chunks are aligned", true),
    plant(&["agi 0", "addr root", "write -d recs[2].startino 66"], "inobt record", "chunks do not overlap", true),
    plant(
        &["agi 0", "addr root", "write -d recs[1].free 0x7ffff00000000000", "write -d recs[1].freecount 19"],
        "inode",
        "in use in the inode tree, so in use on disk",
        true,
    ),
    plant(
        &["agi 0", "addr root", "write -d recs[1].free 0x7ffff00000000000", "write -d recs[1].freecount 19"],
        "finobt record",
        "agrees with the inobt",
        true,
    ),
    plant(
        &["agi 0", "addr root", "write -d recs[1].free 0x7ffff80000000000", "write -d recs[1].freecount 20"],
        "inode",
        "free in the inode tree, so free on disk",
        true,
    ),
    plant(
        &["agi 0", "addr free_root", "write -d recs[2].startino 16512"],
        "finobt record",
        "every chunk with free inodes is in it",
        true,
    ),
    plant(
        &["agi 0", "addr free_root", "write -d recs[2].startino 16512"],
        "finobt record",
        "has only chunks with free inodes",
        true,
    ),
    plant(&["agi 0", "addr free_root", "write -d magic 7"], "finobt block", "magic number", true),
    plant(&["agi 0", "addr free_root", "write -c level 7"], "finobt block", "checksum", true),
];

const INODES: &[Plant] = &[
    plant(&["inode {x short}", "write -c core.uid 7"], "inode", "checksum", true),
    plant(&["inode {x short}", "write -d core.magic 7"], "inode", "magic number", true),
    plant(&["inode {x short}", "write -d v3.inumber 7"], "inode", "own inode number", true),
    plant(&["inode {x short}", "write -d core.format 1"], "inode", "data fork format fits the mode", true),
    plant(&["inode {x short}", "write -d core.mode 0"], "inode", "in use in the inode tree, so in use on disk", true),
    plant(&["inode {x short}", "write -d core.nblocks 9"], "inode", "number of blocks", true),
    plant(&["inode {x short}", "write -d core.nextents 2"], "data fork extent", "not empty", true),
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

const MAPS: &[Plant] = &[
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

const DIRECTORIES: &[Plant] = &[
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.list[0].filetype 2"],
        "directory entry",
        "type of the inode",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.list[0].inumber.i4 127"],
        "directory entry",
        "leads to an inode in use",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.list[0].inumber.i4 64"],
        "directory entry",
        "does not lead to the root",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.list[0].inumber.i4 65"],
        "directory entry",
        "does not lead to the filesystem's own files",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.list[0].inumber.i4 99999999"],
        "shortform directory",
        "inode number",
        true,
    ),
    plant(&["inode {shortform}", "write -d u3.sfdir3.list[1].offset 0"], "shortform directory", "offsets ascend", true),
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.hdr.count 2"],
        "shortform directory",
        "entries fill the fork",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.list[2].name \"a rather long name of entry 1\""],
        "shortform directory",
        "names are unique",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.list[0].name \"fi/st\""],
        "directory entry",
        "names have neither slashes nor zero bytes",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.hdr.parent.i4 {leaf}"],
        "inode",
        "'..' of a directory leads to where its name is",
        true,
    ),
    plant(
        &["inode {block}", "dblock 0", "write -d bu[2].name \"fjrst\""],
        "directory block",
        "entry is in the index",
        true,
    ),
    plant(
        &["inode {block}", "dblock 0", "write -d bu[2].inumber 127"],
        "directory entry",
        "leads to an inode in use",
        true,
    ),
    plant(&["inode {block}", "dblock 0", "write -d bu[2].filetype 3"], "directory entry", "type of the inode", true),
    plant(&["inode {block}", "dblock 0", "write -d bu[2].tag 3"], "directory block", "entry is whole and tagged", true),
    plant(
        &["inode {block}", "dblock 0", "write -d bu[0].inumber {leaf}"],
        "directory entry",
        "leads to the directory itself",
        true,
    ),
    plant(
        &["inode {block}", "dblock 0", "write -d bu[1].inumber {leaf}"],
        "inode",
        "'..' of a directory leads to where its name is",
        true,
    ),
    plant(
        &["inode {block}", "dblock 0", "write -d btail.stale 1"],
        "directory block",
        "number of stale index entries",
        true,
    ),
    plant(
        &["inode {block}", "dblock 0", "write -d bhdr.bestfree[0].length 64"],
        "directory block",
        "length of an unused space",
        true,
    ),
    plant(&["inode {block}", "dblock 0", "write -d bhdr.hdr.owner 9"], "directory block", "owner", true),
    plant(&["inode {block}", "dblock 0", "write -c bhdr.hdr.owner 9"], "directory block", "checksum", true),
    plant(&["inode {block}", "write -d core.size 8192"], "inode", "size of a directory is where its data ends", true),
    plant(
        &["inode {block}", "dblock 0", "write -d bu[0].name \"x\""],
        "directory block",
        "entry is in the index",
        true,
    ),
];

const INDEXES: &[Plant] = &[
    plant(
        &[
            "inode {leaf}",
            "dblock 0",
            "write -d du[{twin}].name \"a rather long name of entry {name}\"",
            "inode {leaf}",
            "dblock 33554432",
            "write -d lents[{twin place}].hashval {twin hash}",
        ],
        "directory",
        "names are unique",
        true,
    ),
    plant(
        &["inode {leaf}", "dblock 33554432", "write -d lents[2].address 0x170"],
        "directory index",
        "every entry is in it",
        true,
    ),
    plant(
        &["inode {leaf}", "dblock 33554432", "write -d lents[2].address 0x170"],
        "directory index",
        "has only entries that exist",
        true,
    ),
    plant(
        &["inode {leaf}", "dblock 33554432", "write -d lents[2].hashval 0x4368c853"],
        "directory index",
        "every entry is in it",
        true,
    ),
    plant(
        &["inode {leaf}", "dblock 33554432", "write -d lhdr.stale 5"],
        "directory leaf block",
        "number of stale entries",
        true,
    ),
    plant(
        &["inode {leaf}", "dblock 33554432", "write -d lbests[0] 5"],
        "directory leaf block",
        "largest unused length of a data block",
        true,
    ),
    plant(
        &["inode {leaf}", "dblock 33554432", "write -d lhdr.info.hdr.forw 5"],
        "directory leaf block",
        "siblings",
        true,
    ),
    plant(&["inode {leaf}", "dblock 33554432", "write -d lhdr.info.owner 5"], "directory leaf block", "owner", true),
    plant(&["inode {leaf}", "dblock 0", "write -d dhdr.hdr.owner 5"], "directory data block", "owner", true),
    plant(
        &["inode {leaf}", "dblock 0", "write -d dhdr.bestfree[0].length 5"],
        "directory data block",
        "largest unused spaces in order",
        true,
    ),
    plant(
        &["inode {node}", "dblock 33554432", "write -d nbtree[0].hashval 0x32968a70"],
        "directory leafn block",
        "greatest hash is the parent's",
        true,
    ),
    plant(
        &["inode {node}", "dblock 33554432", "write -d nbtree[1].before 33554436"],
        "directory leafn block",
        "siblings",
        true,
    ),
    plant(&["inode {node}", "dblock 33554432", "write -d nhdr.level 3"], "directory leafn block", "level", true),
    plant(
        &["inode {node}", "dblock 33554436", "write -d lhdr.info.hdr.forw 33554440"],
        "directory leafn block",
        "siblings",
        true,
    ),
    plant(
        &["inode {node}", "dblock 67108864", "write -d fbests[3] 5"],
        "directory free index block",
        "largest unused length of a data block",
        true,
    ),
    plant(
        &["inode {node}", "dblock 67108864", "write -d fhdr.nused 5"],
        "directory free index block",
        "number of data blocks",
        true,
    ),
    plant(
        &["inode {node}", "dblock 67108864", "write -d fhdr.firstdb 2010"],
        "directory free index block",
        "first data block",
        true,
    ),
    plant(
        &["inode {node}", "dblock 67108864", "write -d fhdr.nvalid 29", "write -d fhdr.nused 29"],
        "directory",
        "the free index has every data block",
        true,
    ),
];

const TREE: &[Plant] = &[
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

const ATTRIBUTES: &[Plant] = &[
    plant(
        &["inode {x remote}", "ablock 0", "write -d nvlist[{value}].valueblk 90000"],
        "remote attr block",
        "every block of the value is mapped",
        true,
    ),
    plant(
        &["inode {x remote}", "ablock 0", "write -d nvlist[{value}].valuelen 1000"],
        "remote attr block",
        "length",
        false,
    ),
    plant(&["inode {x short}", "write -d a.sfattr.hdr.totsize 27"], "shortform attributes", "whole entries", true),
    plant(
        &["inode {x short}", "write -d a.sfattr.list[1].root 1", "write -d a.sfattr.list[1].secure 1"],
        "shortform attributes",
        "name space",
        true,
    ),
    plant(
        &["inode {x short}", "write -d a.sfattr.list[2].name \"attribute 0\""],
        "shortform attributes",
        "names are unique",
        false,
    ),
    plant(
        &["inode {x leaf}", "ablock 0", "write -d entries[3].hashval 0x2a7cef57"],
        "attr leaf block",
        "hash of the name",
        true,
    ),
    plant(
        &["inode {x leaf}", "ablock 0", "write -d nvlist[3].name \"attribute z\""],
        "attr leaf block",
        "hash of the name",
        true,
    ),
    plant(
        &["inode {x leaf}", "ablock 0", "write -d hdr.usedbytes 600"],
        "attr leaf block",
        "bytes that names and values take",
        true,
    ),
    plant(
        &["inode {x leaf}", "ablock 0", "write -d hdr.firstused 400"],
        "attr leaf block",
        "names behind the first used byte",
        true,
    ),
    plant(
        &["inode {x leaf}", "ablock 0", "write -d hdr.freemap[0].size 400"],
        "attr leaf block",
        "names, values and free runs do not overlap",
        false,
    ),
    plant(
        &["inode {x leaf}", "ablock 0", "write -d hdr.freemap[0].base 80"],
        "attr leaf block",
        "free runs lie behind the entries",
        true,
    ),
    plant(
        &["inode {x leaf}", "ablock 0", "write -d entries[3].nameidx 496"],
        "attr leaf block",
        "names, values and free runs do not overlap",
        true,
    ),
    plant(&["inode {x leaf}", "ablock 0", "write -d hdr.info.owner 9"], "attr leaf block", "owner", true),
    plant(
        &["inode {x node}", "ablock 0", "write -d btree[0].hashval 0x3bd71029"],
        "attr leaf block",
        "greatest hash is the parent's",
        true,
    ),
    plant(&["inode {x node}", "ablock 0", "write -d btree[1].before 1"], "attr leaf block", "siblings", true),
    plant(&["inode {x node}", "ablock 0", "write -d hdr.count 5"], "attr leaf block", "siblings", true),
    plant(&["inode {x remote}", "ablock 1", "write -d hdr.owner 9"], "remote attr block", "owner", false),
    plant(&["inode {x remote}", "ablock 1", "write -d hdr.offset 968"], "remote attr block", "offset", false),
    plant(&["inode {x remote}", "ablock 1", "write -d hdr.bytes 9"], "remote attr block", "length", false),
    plant(&["inode {x remote}", "ablock 1", "write -c hdr.bytes 9"], "remote attr block", "checksum", true),
];

const PARENTS: &[Plant] = &[
    plant(
        &["inode {shortform}", "write -d a.sfattr.list[0].name \"shorxform\""],
        "parent pointer",
        "every name has a parent pointer",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d a.sfattr.list[0].name \"shorxform\""],
        "parent pointer",
        "every parent pointer has a name",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d a.sfattr.list[0].parent_dir.inumber {leaf}"],
        "parent pointer",
        "every parent pointer has a name",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d a.sfattr.list[0].parent_dir.gen 7"],
        "parent pointer",
        "every name has a parent pointer",
        true,
    ),
    plant(&["inode {shortform}", "write -d core.gen 7"], "parent pointer", "every name has a parent pointer", true),
    plant(
        &["inode {shortform}", "write -d a.sfattr.list[0].name \"shor/form\""],
        "shortform attributes",
        "name of a parent pointer",
        true,
    ),
    plant(
        &["inode {shortform}", "write -d u3.sfdir3.list[0].inumber.i4 {x short}"],
        "parent pointer",
        "every name has a parent pointer",
        true,
    ),
];

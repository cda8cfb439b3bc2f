//! One inode: its core, both forks, and how they agree.

use crate::context::Context;
use crate::fork::{Fork, InodeView, Map, read_map};
use crate::report::{Consequence, Fault, Owner, Summary};
use crate::table::{Kind, Slot};
use crate::usage::Usage;
use crate::{attr, symlink};
use xfskit_ondisk::dir::FileType;
use xfskit_ondisk::inode::{flags, flags2};
use xfskit_ondisk::{AgInode, DiskAddress, ForkFormat, InodeCore, InodeNumber, NULL_AG_INODE};

/// What a thread gathers while it checks inodes.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) usage: Vec<Usage>,
    pub(crate) directories: Vec<InodeNumber>,
    /// Inodes without a name, each with the next one of its unlinked list.
    pub(crate) unlinked: Vec<(InodeNumber, AgInode)>,
    pub(crate) summary: Summary,
}

/// All flags that XFS defines.
const KNOWN_FLAGS: u16 = 0x7fff;
const FLAG_REALTIME: u16 = 1 << 0;
/// The realtime bitmap has a sequence number.
const FLAG_NEWRTBM: u16 = 1 << 2;
const FLAG_RTINHERIT: u16 = 1 << 8;
const FLAGS_OF_FILES: u16 = FLAG_REALTIME | flags::EXTSIZE;
const FLAGS_OF_DIRECTORIES: u16 = FLAG_RTINHERIT | flags::PROJINHERIT | flags::NOSYMLINKS | flags::EXTSZINHERIT;
const KNOWN_FLAGS2: u64 = flags2::DAX | flags2::REFLINK | flags2::COWEXTSIZE | flags2::BIGTIME | flags2::NREXT64;

/// Checks an inode that its tree says is free.
pub(crate) fn check_free(context: &Context<'_>, number: InodeNumber, address: DiskAddress, bytes: &[u8]) {
    match InodeCore::decode(&context.geometry, number, bytes) {
        Ok(core) if core.mode == 0 => {
            let flags = core.flags != 0 || core.flags2 & !KNOWN_FLAGS2 != 0;
            if core.blocks != 0 || core.links != 0 || flags {
                let found = format!(
                    "{} blocks, {} links, flags {:#x} and {:#x}",
                    core.blocks, core.links, core.flags, core.flags2
                );
                let fault = Fault::new("free inode", "has neither blocks nor links nor flags", Consequence::Inodes);
                context.report(fault.at(address).inode(number).found(found));
            }
        }
        Ok(core) => {
            let fault = Fault::new("inode", "free in the inode tree, so free on disk", Consequence::Inodes);
            context.report(fault.at(address).inode(number).found(format_args!("mode {:o}", core.mode)));
        }
        Err(corruption) => {
            let fault = Fault::of(&corruption, Owner::Inode(number), Consequence::Inodes);
            context.report(fault.at(address));
        }
    }
}

/// Checks an inode that its tree says is in use.
pub(crate) fn check_used(
    context: &Context<'_>,
    number: InodeNumber,
    address: DiskAddress,
    bytes: &[u8],
    slot: &Slot,
    gathered: &mut Gathered,
) {
    let core = match InodeCore::decode(&context.geometry, number, bytes) {
        Ok(core) => core,
        Err(corruption) => {
            context.report(Fault::of(&corruption, Owner::Inode(number), Consequence::File).at(address));
            slot.set(Kind::Damaged, 0);
            context.owners_unknown();
            context.names_unknown();
            return;
        }
    };
    if core.mode == 0 {
        let fault = Fault::new("inode", "in use in the inode tree, so in use on disk", Consequence::Inodes);
        context.report(fault.at(address).inode(number).found("mode 0"));
        return;
    }
    if let Err(corruption) = core.verify_in_use(&context.geometry, bytes) {
        context.report(Fault::of(&corruption, Owner::Inode(number), Consequence::File).at(address));
    }
    let file_type = FileType::from_mode(core.mode);
    slot.set(Kind::Used(file_type), core.links);
    gathered.summary.inodes += 1;
    context.check_lsn(core.lsn.0, "inode", address, Owner::Inode(number));
    let inode = InodeView { number, address, core: &core, bytes, again: false };
    if file_type == FileType::Directory {
        gathered.summary.directories += 1;
        gathered.directories.push(number);
    }
    if core.links == 0 {
        gathered.summary.unlinked += 1;
        gathered.unlinked.push((number, core.next_unlinked));
    } else if core.next_unlinked != NULL_AG_INODE {
        let found = format!("{} links, and {} follows", core.links, core.next_unlinked);
        inode.fault(context, "only inodes without a name are on an unlinked list", found, Consequence::Inodes);
    }
    check_flags(context, &inode);
    check_unused(context, &inode);
    check_size(context, &inode);
    check_forks(context, &inode, slot, gathered);
}

fn check_flags(context: &Context<'_>, inode: &InodeView<'_>) {
    let (core, geometry) = (inode.core, &context.geometry);
    let fault = |check, found: String| inode.fault(context, check, found, Consequence::File);
    if core.flags & !KNOWN_FLAGS != 0 || core.flags2 & !KNOWN_FLAGS2 != 0 {
        fault("only known flags", format!("{:#x} and {:#x}", core.flags, core.flags2));
    }
    if core.flags & FLAG_REALTIME != 0 {
        fault("no realtime files without a realtime section", format!("flags {:#x}", core.flags));
    }
    if core.flags & FLAG_NEWRTBM != 0 && inode.number.0 != context.superblock.raw().rt_bitmap_inode.get() {
        fault("only the realtime bitmap has its flag", format!("flags {:#x}", core.flags));
    }
    if !core.is_regular() && core.flags & FLAGS_OF_FILES != 0
        || !core.is_dir() && core.flags & FLAGS_OF_DIRECTORIES != 0
    {
        fault("flags fit the type", format!("{:#x} and mode {:o}", core.flags, core.mode));
    }
    let needs = [
        (flags2::REFLINK, geometry.has_reflink() && core.is_regular()),
        (flags2::COWEXTSIZE, geometry.has_reflink()),
        (flags2::DAX, core.is_regular() || core.is_dir()),
        (flags2::BIGTIME, geometry.has_bigtime()),
        (flags2::NREXT64, geometry.has_large_extent_counts()),
    ];
    if needs.into_iter().any(|(flag, allowed)| core.flags2 & flag != 0 && !allowed) {
        fault("flags fit the type and the image's features", format!("{:#x} and mode {:o}", core.flags2, core.mode));
    }
    let hint = core.flags & (flags::EXTSIZE | flags::EXTSZINHERIT) != 0;
    if hint != (core.extent_size != 0) {
        fault("extent size and its flag", format!("{} and {:#x}", core.extent_size, core.flags));
    }
    if (core.flags2 & flags2::COWEXTSIZE != 0) != (core.cow_extent_size != 0) {
        fault("copy-on-write extent size and its flag", format!("{} and {:#x}", core.cow_extent_size, core.flags2));
    }
}

/// Checks that unused bytes of the core are zero, and that nanoseconds are less than a second.
fn check_unused(context: &Context<'_>, inode: &InodeView<'_>) {
    let (core, bytes) = (inode.core, inode.bytes);
    let fault = |check, found: String| inode.fault(context, check, found, Consequence::File);
    // With large extent counts, the count of data extents is at byte 24.
    let unused = if core.flags2 & flags2::NREXT64 != 0 { [80..82, 132..144] } else { [24..30, 132..144] };
    for range in unused {
        if bytes[range.clone()].iter().any(|&byte| byte != 0) {
            fault("unused bytes are zero", format!("{:02x?} at offset {}", &bytes[range.clone()], range.start));
        }
    }
    if core.flags2 & flags2::BIGTIME != 0 {
        return;
    }
    for (name, at) in [("atime", 36), ("mtime", 44), ("ctime", 52), ("creation time", 148)] {
        let nanoseconds = bytes[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        if nanoseconds >= 1_000_000_000 {
            fault("nanoseconds are less than a second", format!("{nanoseconds} in the {name}"));
        }
    }
}

fn check_size(context: &Context<'_>, inode: &InodeView<'_>) {
    let core = inode.core;
    let special = core.data_format == ForkFormat::Dev;
    if special && core.size != 0 {
        inode.fault(context, "devices, pipes and sockets have no size", core.size.to_string(), Consequence::File);
    }
    if special && core.fork_offset > 1 {
        let found = format!("offset {} times 8", core.fork_offset);
        inode.fault(context, "the attr fork of a device follows its number", found, Consequence::File);
    }
    if special && core.data_extents != 0 {
        inode.fault(context, "no data extents without a map", core.data_extents.to_string(), Consequence::File);
    }
    if core.is_symlink() && core.size > xfskit_ondisk::symlink::SYMLINK_LENGTH_LIMIT as u64 {
        inode.fault(context, "length of a target", core.size.to_string(), Consequence::File);
    }
}

fn check_forks(context: &Context<'_>, inode: &InodeView<'_>, slot: &Slot, gathered: &mut Gathered) {
    let core = inode.core;
    let mut blocks = 0;
    let mut whole = true;
    for fork in [Fork::Data, Fork::Attr] {
        if fork == Fork::Attr && core.fork_offset == 0 {
            break;
        }
        let keep = fork == Fork::Attr || core.is_symlink();
        let mut map = Map::default();
        let figures = read_map(context, inode, fork, &mut gathered.usage, &mut |extent| {
            if keep {
                map.extents.push(*extent);
            }
        });
        blocks += figures.blocks;
        whole &= figures.whole;
        gathered.summary.extents += figures.extents;
        let recorded = if fork == Fork::Data { core.data_extents } else { core.attr_extents.into() };
        if figures.whole && figures.extents != recorded {
            let check = if fork == Fork::Data { "number of data extents" } else { "number of attr extents" };
            inode.fault(context, check, format!("{recorded} instead of {}", figures.extents), Consequence::Count);
        }
        // A map of more blocks than the image has is not followed.
        if figures.blocks > context.geometry.data_blocks && !core.is_regular() {
            inode.fault(context, "blocks fit the image", figures.blocks.to_string(), Consequence::Contents);
            continue;
        }
        if fork == Fork::Attr && figures.whole {
            attr::check(context, inode, &map, slot, &mut gathered.summary);
        } else if keep && figures.whole {
            symlink::check(context, inode, &map);
        }
    }
    if !whole {
        context.owners_unknown();
    } else if core.blocks != blocks {
        inode.fault(context, "number of blocks", format!("{} instead of {blocks}", core.blocks), Consequence::Count);
    }
}

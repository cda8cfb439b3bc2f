//! What tells formats apart: the one table of signatures. Most are those that libblkid knows, as mkfs.xfs asks it.
//!
//! Offsets are from the start of the device. A format whose signature is two bytes is known by a second field as well.
//! The facts are those of the formats' own documents and of libblkid's man page and messages.

use super::kind::Kind;

/// An offset, the bytes there, and the format that they belong to.
pub(super) type Signature = (usize, &'static [u8], Kind);

/// What a record of the journal begins with.
const LOG_RECORD_MAGIC: [u8; 4] = [0xfe, 0xed, 0xba, 0xbe];

/// Filesystems, volumes, and what holds disks of virtual machines.
pub(super) const SIGNATURES: &[Signature] = &[
    (0, b"XFSB", Kind::Xfs),
    (0, &LOG_RECORD_MAGIC, Kind::XfsLog),
    (0x438, &[0x53, 0xef], Kind::Ext),
    (0x10040, b"_BHRfS_M", Kind::Btrfs),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], Kind::F2fs),
    (0, b"hsqs", Kind::Squashfs),
    (0, b"sqsh", Kind::Squashfs),
    (3, b"NTFS    ", Kind::Ntfs),
    (3, b"EXFAT   ", Kind::Exfat),
    (3, b"-FVE-FS-", Kind::BitLocker),
    (0x36, b"FAT12   ", Kind::Fat),
    (0x36, b"FAT16   ", Kind::Fat),
    (0x36, b"MSDOS", Kind::Fat),
    (0x52, b"FAT32", Kind::Fat),
    (0x52, b"MSWIN", Kind::Fat),
    (0x8001, b"CD001", Kind::Iso9660),
    (0x8001, b"BEA01", Kind::Udf),
    (0x8001, b"NSR0", Kind::Udf),
    (0x18, b"LVM2 001", Kind::Lvm),
    (0x218, b"LVM2", Kind::Lvm),
    (0x418, b"LVM2 001", Kind::Lvm),
    (0x618, b"LVM2 001", Kind::Lvm),
    (0, b"LUKS", Kind::Luks),
    (0x4000, b"SKUL\xba\xbe", Kind::Luks),
    (0x200, b"EFI PART", Kind::Gpt),
    (0x1000, b"EFI PART", Kind::Gpt),
    (0, b"QFI\xfb", Kind::Qcow2),
    (0, b"bluestore block device", Kind::BlueStore),
    (0x1018, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca], Kind::Bcache),
    (0x1018, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9], Kind::Bcache),
    (0x8000, b"JFS1", Kind::Jfs),
    (0x2034, b"ReIsErFs", Kind::Reiserfs),
    (0x10014, b"ReIsErFs", Kind::Reiserfs),
    (0x10034, b"ReIsErFs", Kind::Reiserfs),
    (0x10034, b"ReIsEr2Fs", Kind::Reiserfs),
    (0x10034, b"ReIsEr3Fs", Kind::Reiserfs),
    (0x10000, b"ReIsEr4", Kind::Reiser4),
    (0x400, &[0xe2, 0xe1, 0xf5, 0xe0], Kind::Erofs),
    (0x400, b"OCFSV2", Kind::Ocfs2),
    (0x800, b"OCFSV2", Kind::Ocfs2),
    (0x1000, b"OCFSV2", Kind::Ocfs2),
    (0x2000, b"OCFSV2", Kind::Ocfs2),
    (0x10000, &[0x01, 0x16, 0x19, 0x70], Kind::Gfs2),
    (0x20, b"NXSB", Kind::Apfs),
    (0x20, b"ORCLDISK", Kind::OracleAsm),
    (0x400, &[0xf5, 0xfc, 0x01, 0xa5], Kind::Vxfs),
    (0x2000, &[0x49, 0xe8, 0x95, 0xf9], Kind::Hpfs),
    (0x255c, &[0x54, 0x19, 0x01, 0x00], Kind::Ufs),
    (0x255c, &[0x19, 0x01, 0x54, 0x19], Kind::Ufs),
    (0x1055c, &[0x19, 0x01, 0x54, 0x19], Kind::Ufs),
    (0, &[0x45, 0x3d, 0xcd, 0x28], Kind::Cramfs),
    (0, &[0xce, 0xfa, 0xad, 0x1b], Kind::Bfs),
    (0, b"-rom1fs-", Kind::Romfs),
    (0, b"SFOZ", Kind::Zonefs),
    (0, b"verity\0\0", Kind::Verity),
    (0, b"integrt\0", Kind::Integrity),
    (0, b"dmvdo001", Kind::Vdo),
    (0, b"SnAp", Kind::LvmSnapshot),
    (0x204, b"!Stra0tis", Kind::Stratis),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], Kind::Raid),
    (0x1000, &[0xfc, 0x4e, 0x2b, 0xa9], Kind::Raid),
];

/// Where the signature of swap space ends: at the end of its first page.
pub(super) const PAGE_BYTES: [usize; 5] = [4096, 8192, 16384, 32768, 65536];

/// The last bytes of the first page of swap space.
pub(super) const SWAP_MARKS: [(&[u8], Kind); 6] = [
    (b"SWAPSPACE2", Kind::Swap),
    (b"SWAP-SPACE", Kind::Swap),
    (b"S1SUSPEND", Kind::Suspended),
    (b"S2SUSPEND", Kind::Suspended),
    (b"ULSUSPEND", Kind::Suspended),
    (b"LINHIB0001", Kind::Suspended),
];

/// Signatures of disk images of virtual machines, and of partition tables.
pub(super) const DISKS: &[Signature] = &[
    (0, b"KDMV", Kind::Vmdk),
    (0, b"COWD", Kind::Vmdk),
    (0x40, &[0x7f, 0x10, 0xda, 0xbe], Kind::Vdi),
    (0, b"vhdxfile", Kind::Vhdx),
    (0, b"conectix", Kind::Vhd),
    (0, b"QED\0", Kind::Qed),
    (0, b"XFSM", Kind::XfsMetadump),
    (0, b"XMD2", Kind::XfsMetadump),
    (510, &[0x55, 0xaa], Kind::Mbr),
];

/// Signatures of formats other than disk images and filesystems.
pub(super) const FILES: &[Signature] = &[
    (0, &[0x1f, 0x8b], Kind::Gzip),
    (0, b"\xfd7zXZ\0", Kind::Xz),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], Kind::Zstd),
    (0, b"BZh", Kind::Bzip2),
    (0, b"PK\x03\x04", Kind::Zip),
    (257, b"ustar", Kind::Tar),
    (0, b"\x7fELF", Kind::Program),
    (0, b"xFSdump0", Kind::XfsDump),
    (0, b"partclone-image", Kind::Partclone),
];

/// Whether a sector begins a record of the journal, in little-endian form.
pub(super) fn is_log_record(sector: &[u8]) -> bool {
    const VERSION: usize = 8;
    const FORMAT: usize = 300;
    let is = |offset: usize, value: u32| sector.get(offset..offset + 4) == Some(&value.to_be_bytes());
    sector.starts_with(&LOG_RECORD_MAGIC) && (is(VERSION, 1) || is(VERSION, 2)) && is(FORMAT, 1)
}

/// Bytes at the start of a device in which [`of_head`] looks.
pub(super) const HEAD_BYTES: u64 = 0x10568;
/// Bytes at the end of a device in which [`of_tail`] looks.
pub(super) const TAIL_BYTES: u64 = 128 << 10;

/// The format of a device that begins with these bytes.
pub(super) fn of_head(head: &[u8]) -> Option<Kind> {
    let swap = || {
        let marks = PAGE_BYTES.iter().flat_map(|end| SWAP_MARKS.iter().map(move |mark| (end, mark)));
        // The field has ten bytes, and begins with the mark.
        marks.into_iter().find(|(end, (mark, _))| holds(head, *end - 10, mark)).map(|(_, (_, name))| *name)
    };
    find(head, SIGNATURES).or_else(swap).or_else(|| of_two_bytes(head))
}

/// Whether bytes at the start of a device have a signature of a kind.
pub fn holds_kind(head: &[u8], kind: Kind) -> bool {
    SIGNATURES.iter().any(|(offset, bytes, of)| *of == kind && holds(head, *offset, bytes))
}

/// The format of the first of these signatures that the bytes have.
pub(super) fn find(head: &[u8], signatures: &[Signature]) -> Option<Kind> {
    signatures.iter().find(|(offset, bytes, _)| holds(head, *offset, bytes)).map(|(_, _, name)| *name)
}

fn holds(head: &[u8], offset: usize, bytes: &[u8]) -> bool {
    head.get(offset..offset + bytes.len()) == Some(bytes)
}

/// The format of a device whose signature is two bytes, which mean nothing without another field.
fn of_two_bytes(head: &[u8]) -> Option<Kind> {
    let two = |offset: usize| head.get(offset..offset + 2);
    let is = |offset: usize, bytes: &[u8]| two(offset) == Some(bytes);
    let is_set = |offset: usize| two(offset).is_some_and(|bytes| bytes != [0, 0]);
    let either = |offset, [a, b]: [u8; 2]| is(offset, &[a, b]) || is(offset, &[b, a]);
    let minix = [[0x7f, 0x13], [0x8f, 0x13], [0x68, 0x24], [0x78, 0x24]];
    if minix.iter().any(|magic| either(0x410, *magic)) && is_set(0x400) && is_set(0x404) && is_set(0x406) {
        return Some(Kind::Minix);
    }
    if either(0x418, [0x5a, 0x4d]) && is_set(0x400) && is_set(0x406) && is_set(0x408) {
        return Some(Kind::Minix);
    }
    if is(0x406, &[0x34, 0x34]) && is(0x400, &[2, 0]) && is(0x402, &[0, 0]) {
        return Some(Kind::Nilfs2);
    }
    let is_hfs_plus = (is(0x400, b"H+") && is(0x402, &[0, 4])) || (is(0x400, b"HX") && is(0x402, &[0, 5]));
    let is_hfs = is(0x400, b"BD") && is_set(0x402) && is_set(0x412);
    (is_hfs_plus || is_hfs).then_some(Kind::Hfs)
}

/// The format of a device of this size that ends with these bytes: those that have their superblock there.
pub(super) fn of_tail(size: u64, tail: &[u8]) -> Option<Kind> {
    let start = size - tail.len() as u64;
    let holds = |at: Option<u64>, bytes: &[u8]| {
        let at = at.and_then(|at| at.checked_sub(start)).map(|at| at as usize);
        at.is_some_and(|at| tail.get(at..at + bytes.len()) == Some(bytes))
    };
    const MAGIC: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];
    let reversed = [MAGIC[3], MAGIC[2], MAGIC[1], MAGIC[0]];
    let version_0 = (size & !0xffff).checked_sub(0x10000);
    let version_1 = (size / 512).checked_sub(16).map(|sector| (sector & !7) * 512);
    if holds(version_0, &MAGIC) || holds(version_0, &reversed) || holds(version_1, &MAGIC) {
        return Some(Kind::Raid);
    }
    let from_end = |bytes: u64| size.checked_sub(bytes);
    if holds(from_end(1024), b"Intel Raid ISM Cfg Sig. ") {
        return Some(Kind::IntelRaid);
    }
    if holds(from_end(512), &[0xde, 0x11, 0xde, 0x11]) || holds(from_end(512), &[0x11, 0xde, 0x11, 0xde]) {
        return Some(Kind::DdfRaid);
    }
    holds(from_end(512), b"conectix").then_some(Kind::Vhd)
}

/// Bytes of one of the four labels of a ZFS device: two are at its start, two at its end.
pub(super) const ZFS_LABEL_BYTES: u64 = 256 << 10;

/// Whether the second half of a label of ZFS has an uberblock, of which each has 1 KiB at least.
pub(super) fn has_zfs_uberblock(half: &[u8]) -> bool {
    const MAGIC: u64 = 0x00ba_b10c;
    let is_one = |block: &[u8]| block.starts_with(&MAGIC.to_le_bytes()) || block.starts_with(&MAGIC.to_be_bytes());
    half.chunks_exact(1024).any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_lies_in_what_is_read_and_is_found() {
        for (offset, bytes, name) in SIGNATURES {
            let mut head = vec![0; HEAD_BYTES as usize];
            assert_eq!(of_head(&head), None);
            head[*offset..*offset + bytes.len()].copy_from_slice(bytes);
            assert_eq!(of_head(&head), Some(*name), "at {offset}");
        }
        for end in PAGE_BYTES {
            let mut head = vec![0; HEAD_BYTES as usize];
            head[end - 10..end].copy_from_slice(b"SWAPSPACE2");
            assert_eq!(of_head(&head), Some(Kind::Swap));
        }
    }

    #[test]
    fn a_raid_is_known_by_its_end() {
        // The places of md(4): in the last 128 KiB, and in the last 12 KiB.
        for (size, offset) in [((1 << 20) + 5120, (1 << 20) - 0x10000), (1 << 20, (1 << 20) - 8192)] {
            let mut tail = vec![0; TAIL_BYTES as usize];
            assert_eq!(of_tail(size, &tail), None);
            let at = (offset - (size - TAIL_BYTES)) as usize;
            tail[at..at + 4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
            assert_eq!(of_tail(size, &tail), Some(Kind::Raid), "{size}");
        }
    }
}

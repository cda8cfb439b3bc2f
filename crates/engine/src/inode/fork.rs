//! Forks between the inode's literal area and memory.
//!
//! ```text
//! Local    the contents            Extents  16-byte records          Dev  4 bytes
//! Btree    level, records (2 bytes each), keys (room for the most), children (from the middle)
//! ```

use crate::error::Result;
use crate::incore::{AttrFork, DataFork, ForkMap, InodeState, LocalAttrs, MapRoot};
use std::sync::OnceLock;
use xfskit_ondisk::limits::bmbt_root_max_records;
use xfskit_ondisk::{Corruption, Extent, ForkFormat, Geometry, InodeCore, Verdict, ensure};
use xfskit_ondisk::{attr, dir};

const ROOT_HEADER_BYTES: usize = 4;

/// Decodes an inode: core and forks. Extent lists are verified; a btree's extents are read when they are needed.
///
/// # Errors
/// `Corrupt`.
pub fn decode_inode(geometry: &Geometry, inode: xfskit_ondisk::InodeNumber, bytes: &[u8]) -> Result<InodeState> {
    let core = InodeCore::decode(geometry, inode, bytes)?;
    let literal = &bytes[xfskit_ondisk::inode::INODE_CORE_BYTES..];
    if core.mode == 0 {
        return Ok(state(core, DataFork::EMPTY, None));
    }
    core.verify_in_use(geometry, bytes)?;
    let (data_bytes, attr_bytes) = literal.split_at(core.data_fork_bytes(geometry).min(literal.len()));
    let data = decode_data(geometry, &core, data_bytes).map_err(|e| e.of(inode.0))?;
    let attr = if core.fork_offset == 0 {
        None
    } else {
        Some(decode_attrs(geometry, &core, attr_bytes).map_err(|e| e.of(inode.0))?)
    };
    Ok(state(core, data, attr))
}

fn state(core: InodeCore, data: DataFork, attr: Option<AttrFork>) -> InodeState {
    let received_bytes = core.size.into();
    InodeState {
        core,
        data,
        attr,
        known_absent: Default::default(),
        freed: false,
        times_wait: false,
        was_cut: false,
        dirty: None,
        dir_memory: None,
        received_bytes,
    }
}

fn decode_data(geometry: &Geometry, core: &InodeCore, bytes: &[u8]) -> Verdict<DataFork> {
    const NAME: &str = "data fork";
    match core.data_format {
        ForkFormat::Dev => {
            let device = bytes.first_chunk().ok_or_else(|| Corruption::new(NAME, "room for a device number"))?;
            Ok(DataFork::Dev(u32::from_be_bytes(*device)))
        }
        ForkFormat::Local => {
            let size = usize::try_from(core.size).unwrap_or(usize::MAX);
            let contents = local_bytes(NAME, bytes, size)?;
            if core.is_dir() {
                dir::shortform::verify_shortform(geometry, contents)?;
            }
            Ok(DataFork::Local(contents.to_vec()))
        }
        format => {
            let map = decode_map(geometry, NAME, format, core.data_extents, bytes)?;
            if let (false, ForkMap::Extents(extents)) = (core.is_regular(), &map) {
                verify_blocks_mapped_once(NAME, extents)?;
            }
            Ok(DataFork::Mapped(map))
        }
    }
}

fn decode_attrs(geometry: &Geometry, core: &InodeCore, bytes: &[u8]) -> Verdict<AttrFork> {
    const NAME: &str = "attr fork";
    if core.attr_format != ForkFormat::Local {
        let count = core.attr_extents.into();
        let map = decode_map(geometry, NAME, core.attr_format, count, bytes)?;
        if let ForkMap::Extents(extents) = &map {
            verify_blocks_mapped_once(NAME, extents)?;
        }
        return Ok(AttrFork::Mapped(map));
    }
    // The contents begin with their own size.
    let size = bytes.first_chunk::<2>().map_or(0, |size| usize::from(u16::from_be_bytes(*size)));
    let contents = local_bytes(NAME, bytes, size)?;
    attr::shortform::verify_shortform(contents)?;
    Ok(AttrFork::Local(LocalAttrs::new(contents)))
}

fn local_bytes<'a>(name: &'static str, bytes: &'a [u8], size: usize) -> Verdict<&'a [u8]> {
    ensure!(size <= bytes.len(), name, "local contents fit", "{size} bytes in {}", bytes.len());
    Ok(&bytes[..size])
}

fn decode_map(
    geometry: &Geometry,
    name: &'static str,
    format: ForkFormat,
    extents: u64,
    bytes: &[u8],
) -> Verdict<ForkMap> {
    match format {
        ForkFormat::Extents => decode_extents(geometry, name, extents, bytes).map(ForkMap::Extents),
        ForkFormat::Btree => decode_root(geometry, name, bytes).map(|root| ForkMap::Btree(Box::new(root))),
        // The checks of the core have refused these.
        ForkFormat::Dev | ForkFormat::Local => Err(Corruption::new(name, "format of the fork")),
    }
}

fn decode_extents(geometry: &Geometry, name: &'static str, count: u64, bytes: &[u8]) -> Verdict<Vec<Extent>> {
    let (records, _) = bytes.as_chunks::<16>();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    ensure!(count <= records.len(), name, "extents fit", "{count} of {}", records.len());
    let extents: Vec<Extent> = records[..count].iter().map(Extent::decode).collect();
    verify_extents(geometry, name, &extents)?;
    Ok(extents)
}

/// Verifies extents by themselves and that they follow each other without overlap.
///
/// # Errors
/// A corruption of the fork.
pub fn verify_extents<'a>(
    geometry: &Geometry,
    name: &'static str,
    extents: impl IntoIterator<Item = &'a Extent>,
) -> Verdict {
    let mut end = 0;
    for extent in extents {
        extent.verify(geometry)?;
        ensure!(extent.file_block.0 >= end, name, "extents in order", "{extent:?} after block {end}");
        end = extent.end().0;
    }
    Ok(())
}

/// Verifies that a map of names, of a target or of attributes names no block twice. Such contents are read as a whole:
/// a small image could ask for any amount of memory.
///
/// # Errors
/// A corruption of the fork.
pub fn verify_blocks_mapped_once<'a>(name: &'static str, extents: impl IntoIterator<Item = &'a Extent>) -> Verdict {
    let mut runs: Vec<(u64, u64)> = extents.into_iter().map(|extent| (extent.block.0, extent.count)).collect();
    runs.sort_unstable();
    for pair in runs.windows(2) {
        let [(start, count), (next, _)] = pair else { continue };
        ensure!(start + count <= *next, name, "blocks mapped once", "block {next:#x} is mapped twice");
    }
    Ok(())
}

fn decode_root(geometry: &Geometry, name: &'static str, bytes: &[u8]) -> Verdict<MapRoot> {
    let Some(header) = bytes.first_chunk::<4>() else {
        return Err(Corruption::new(name, "room for a btree root"));
    };
    let level = u16::from_be_bytes([header[0], header[1]]);
    let records = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let most = bmbt_root_max_records(bytes.len()) as usize;
    ensure!((1..=8).contains(&level), name, "height of the extent btree", "level {level}");
    ensure!((1..=most).contains(&records), name, "records of the extent btree's root", "{records} of at most {most}");
    let words = |start: usize| -> Vec<u64> {
        let (words, _) = bytes[start..].as_chunks::<8>();
        words[..records].iter().map(|word| u64::from_be_bytes(*word)).collect()
    };
    let keys = words(ROOT_HEADER_BYTES);
    let children = words(ROOT_HEADER_BYTES + 8 * most);
    ensure!(keys.windows(2).all(|pair| pair[0] < pair[1]), name, "keys of the extent btree's root in order");
    for child in &children {
        ensure!(
            geometry.split_fs_block(xfskit_ondisk::FsBlock(*child)).is_some(),
            name,
            "children of the extent btree's root on the device",
            "{child:#x}"
        );
    }
    Ok(MapRoot { level, keys, children, extents: OnceLock::new() })
}

/// Writes an inode, core and forks, to `out`, all of the inode's bytes; the checksum is left to the caller.
pub fn encode_inode(state: &InodeState, geometry: &Geometry, out: &mut [u8]) {
    let core = &state.core;
    core.encode(out);
    let literal = &mut out[xfskit_ondisk::inode::INODE_CORE_BYTES..];
    literal.fill(0);
    let (data, attr) = literal.split_at_mut(core.data_fork_bytes(geometry));
    match &state.data {
        DataFork::Dev(device) => data[..4].copy_from_slice(&device.to_be_bytes()),
        DataFork::Local(bytes) => data[..bytes.len()].copy_from_slice(bytes),
        DataFork::Mapped(map) => encode_map(map, data),
    }
    match &state.attr {
        None => {}
        Some(AttrFork::Local(bytes)) => attr[..bytes.len()].copy_from_slice(bytes),
        Some(AttrFork::Mapped(map)) => encode_map(map, attr),
    }
}

fn encode_map(map: &ForkMap, out: &mut [u8]) {
    match map {
        ForkMap::Extents(extents) => {
            for (slot, extent) in out.as_chunks_mut::<16>().0.iter_mut().zip(extents) {
                *slot = extent.encode();
            }
        }
        ForkMap::Btree(root) => {
            let most = bmbt_root_max_records(out.len()) as usize;
            out[0..2].copy_from_slice(&root.level.to_be_bytes());
            out[2..4].copy_from_slice(&(root.keys.len() as u16).to_be_bytes());
            for (index, (key, child)) in root.keys.iter().zip(&root.children).enumerate() {
                let at = ROOT_HEADER_BYTES + 8 * index;
                out[at..at + 8].copy_from_slice(&key.to_be_bytes());
                let at = ROOT_HEADER_BYTES + 8 * (most + index);
                out[at..at + 8].copy_from_slice(&child.to_be_bytes());
            }
        }
    }
}

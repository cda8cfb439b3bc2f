//! Writes an image: AG by AG, then the log, and the first superblock last. So a run that is interrupted leaves nothing
//! that could be taken for an image.

use crate::MakeError;
use crate::log::encode_clean_log;
use crate::options::Options;
use crate::plan::{Devices, FIRST_INODES, Plan, encode};
use crate::root::encode_first_inodes;
use std::io;
use xfskit_device::BlockDevice;
use xfskit_ondisk::btree::rmap_owner;
use xfskit_ondisk::new_ag::{FirstInodes, NewAg, Run};
use xfskit_ondisk::{AgBlock, AgNumber, Geometry, INODES_PER_CHUNK, InodeNumber, Limits, Superblock, Timestamp};

/// Bytes at both ends of the device that are cleared, since old signatures may lie there.
const SIGNATURE_BYTES: u64 = 128 * 1024;
const CLEAR_STEP: usize = 1 << 20;

/// Makes an image on `device`, with its log on `log_device` if the options ask for an external log. `time` is the root
/// directory's. The result depends on nothing but the arguments.
///
/// The previous contents of the device are lost; [`xfskit_device::probe::existing_format`] recognizes them
/// beforehand. The caller sees to it that no filesystem is open on either device: this function cannot know of one
/// (`xfskit::create_on` does).
///
/// # Errors
/// [`MakeError`]: options that do not fit each other or the device, or a write that failed.
pub fn make(
    device: &dyn BlockDevice,
    log_device: Option<&dyn BlockDevice>,
    options: &Options,
    time: Timestamp,
) -> Result<Superblock, MakeError> {
    if options.uuid.is_none() {
        return Err(MakeError::conflict("-m uuid", "the image needs a UUID"));
    }
    let devices = Devices {
        data_bytes: device.size_bytes(),
        data_sector: device.hints().sector_bytes,
        log_bytes: log_device.map(|device| device.size_bytes()),
    };
    let mut plan = Plan::new(options, devices)?;
    // Everything that can fail, except I/O, is done before the first write.
    let ags: Vec<NewAg> =
        (0..plan.geometry.ag_count).map(|ag| lay_out(&plan, AgNumber(ag))).collect::<Result<_, _>>()?;
    count(&mut plan, &ags);
    let superblock = Superblock::decode(&encode(&plan.superblock))?;
    allocate(device, log_device, &plan, &ags)?;
    clear_old(device, &plan)?;
    write_log(device, log_device, &plan)?;
    for ag in &ags {
        write_ag(device, &plan, ag, time)?;
    }
    device.flush()?;
    device.write(0, &encode(&plan.superblock))?;
    device.flush()?;
    Ok(superblock)
}

/// The superblock of the image that [`make`] would make on devices of these sizes. Its counters of free space are those
/// of nothing yet. Nothing is read or written.
///
/// # Errors
/// As [`make`], but for I/O.
pub fn plan(
    options: &Options,
    bytes: u64,
    sector_bytes: usize,
    log_bytes: Option<u64>,
) -> Result<Superblock, MakeError> {
    let plan = Plan::new(options, Devices { data_bytes: bytes, data_sector: sector_bytes, log_bytes })?;
    (0..plan.geometry.ag_count).try_for_each(|ag| lay_out(&plan, AgNumber(ag)).map(drop))?;
    Ok(Superblock::decode(&encode(&plan.superblock))?)
}

/// Whether an image could be made with these options on devices of these sizes. Nothing is read or written.
///
/// # Errors
/// As [`make`], but for I/O.
pub fn verify(options: &Options, bytes: u64, sector_bytes: usize, log_bytes: Option<u64>) -> Result<(), MakeError> {
    plan(options, bytes, sector_bytes, log_bytes).map(drop)
}

/// Has the host allocate storage for all that [`make`] would write with these options. The contents of the devices
/// stay.
///
/// # Errors
/// As [`make`]; `Io` with `StorageFull` where the host has too little.
pub fn set_aside(
    device: &dyn BlockDevice,
    log_device: Option<&dyn BlockDevice>,
    options: &Options,
) -> Result<(), MakeError> {
    let (data_bytes, data_sector) = (device.size_bytes(), device.hints().sector_bytes);
    let log_bytes = log_device.map(|device| device.size_bytes());
    let plan = Plan::new(options, Devices { data_bytes, data_sector, log_bytes })?;
    let ags: Vec<NewAg> =
        (0..plan.geometry.ag_count).map(|ag| lay_out(&plan, AgNumber(ag))).collect::<Result<_, _>>()?;
    allocate(device, log_device, &plan, &ags)
}

/// Allocates the largest range first, since it is the most likely to fail.
fn allocate(
    device: &dyn BlockDevice,
    log_device: Option<&dyn BlockDevice>,
    plan: &Plan,
    ags: &[NewAg],
) -> Result<(), MakeError> {
    let geometry = &plan.geometry;
    let mut ranges: Vec<(&dyn BlockDevice, u64, u64)> = Vec::with_capacity(ags.len() + 2);
    ranges.extend(log_range(device, log_device, plan));
    for ag in ags {
        let start = geometry.address(ag.number, AgBlock(0)).bytes();
        ranges.push((device, start, u64::from(plan.roots.end) << geometry.block_log));
        if ag.inodes.count > 0 {
            let block = geometry.inode_block(xfskit_ondisk::AgInode(ag.inodes.first));
            let blocks = u64::from(ag.inodes.count / geometry.inodes_per_block());
            ranges.push((device, geometry.address(ag.number, block).bytes(), blocks << geometry.block_log));
        }
    }
    for (device, start, length) in ranges {
        match device.allocate(start, length) {
            // A host that cannot allocate in advance reports a lack of space when the range is written.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Where the log lies, and its length in bytes.
fn log_range<'a>(
    device: &'a dyn BlockDevice,
    log_device: Option<&'a dyn BlockDevice>,
    plan: &Plan,
) -> Option<(&'a dyn BlockDevice, u64, u64)> {
    let (device, start) = match plan.log.start {
        Some((ag, block)) => (device, plan.geometry.address(AgNumber(ag as u32), AgBlock(block as u32)).bytes()),
        None => (log_device?, 0),
    };
    Some((device, start, plan.log.blocks << plan.geometry.block_log))
}

/// Plans the layout of an AG, in mkfs.xfs's order: headers, roots, log, free list, first inodes.
fn lay_out(plan: &Plan, number: AgNumber) -> Result<NewAg, MakeError> {
    let geometry = &plan.geometry;
    let mut ag = NewAg::empty(geometry, &plan.roots, number)?;
    if let Some((log_ag, start)) = plan.log.start
        && log_ag == u64::from(number.0)
    {
        ag.space.take(Run { start: start as u32, count: plan.log.blocks as u32 }, rmap_owner::LOG)?;
    }
    ag.free_list = ag.space.fill_free_list(free_list_blocks(geometry))?;
    if number.0 == 0 {
        let block = first_inode_block(plan);
        let count = geometry.inodes_per_allocation();
        ag.space.take(Run { start: block, count: count / geometry.inodes_per_block() }, rmap_owner::INODES)?;
        ag.inodes = FirstInodes { first: geometry.first_inode_of_block(AgBlock(block)).0, count, used: FIRST_INODES };
    }
    Ok(ag)
}

/// Blocks that the free list needs while the trees of the AG have one level: each may be split and get a second level,
/// as far as its greatest height allows.
fn free_list_blocks(geometry: &Geometry) -> u32 {
    let limits = Limits::new(geometry);
    let split = |max_levels: u32| 2 * max_levels.min(2).saturating_sub(1);
    2 * split(limits.alloc_levels) + if geometry.has_rmap() { split(limits.rmap_levels) } else { 0 }
}

/// Where xfs_repair expects the root directory: behind everything else in AG 0. The block is aligned to the stripe unit
/// if that is a multiple of the alignment of inodes, and to the alignment of inodes otherwise.
fn first_inode_block(plan: &Plan) -> u32 {
    let geometry = &plan.geometry;
    let log = match plan.log.start {
        Some((0, _)) => plan.log.blocks as u32,
        _ => 0,
    };
    let first = plan.roots.end + free_list_blocks(geometry) + log;
    let (alignment, unit) = (geometry.inode_alignment, geometry.stripe_unit);
    let aligned_to_stripe =
        unit != 0 && alignment > 1 && alignment >= geometry.inode_cluster_blocks() && unit % alignment == 0;
    first.next_multiple_of(if aligned_to_stripe { unit } else { alignment })
}

/// Sets the counters and the inode numbers of the superblock.
fn count(plan: &mut Plan, ags: &[NewAg]) {
    let free: u64 = ags.iter().map(|ag| u64::from(ag.space.free_blocks()) + ag.free_list.len() as u64).sum();
    let inodes: u64 = ags.iter().map(|ag| u64::from(ag.inodes.count)).sum();
    let first = ags.first().map_or(0, |ag| u64::from(ag.inodes.first));
    plan.superblock.free_blocks.set(free);
    plan.superblock.inode_count.set(inodes);
    plan.superblock.free_inodes.set(inodes - u64::from(FIRST_INODES));
    plan.superblock.root_inode.set(first);
    plan.superblock.rt_bitmap_inode.set(first + 1);
    plan.superblock.rt_summary_inode.set(first + 2);
}

fn write_ag(device: &dyn BlockDevice, plan: &Plan, ag: &NewAg, time: Timestamp) -> Result<(), MakeError> {
    let geometry = &plan.geometry;
    let mut headers = vec![0; geometry.ag_header_blocks() as usize * geometry.block_bytes()];
    let sector = geometry.sector_bytes();
    // The first superblock is written when everything else is durable.
    if ag.number.0 > 0 {
        headers[..sector].copy_from_slice(&encode(&plan.superblock));
    }
    headers[sector..4 * sector].copy_from_slice(&ag.encode_headers(geometry, &plan.roots));
    headers.extend(ag.encode_roots(geometry, &plan.roots));
    device.write(geometry.address(ag.number, AgBlock(0)).bytes(), &headers)?;
    if ag.inodes.count > 0 {
        let first = InodeNumber(u64::from(ag.inodes.first));
        let inodes = encode_first_inodes(geometry, first, ag.inodes.count, plan.autofsck, time);
        let block = geometry.inode_block(xfskit_ondisk::AgInode(ag.inodes.first));
        device.write(geometry.address(ag.number, block).bytes(), &inodes)?;
    }
    Ok(())
}

fn write_log(device: &dyn BlockDevice, log_device: Option<&dyn BlockDevice>, plan: &Plan) -> Result<(), MakeError> {
    let Some((device, start, length)) = log_range(device, log_device, plan) else { return Ok(()) };
    clear(device, start, length)?;
    // The record is as long as the unit in the superblock. There 1 stands for no unit, and the record has a sector.
    let unit = match plan.superblock.log_stripe_unit.get() {
        1 => plan.superblock.log_sector_size.get().into(),
        unit => unit as usize,
    };
    device.write(start, &encode_clean_log(&plan.superblock.uuid, unit))?;
    device.flush()?;
    Ok(())
}

/// Clears both ends of the device, and the superblocks of an earlier XFS image, which repair could find.
fn clear_old(device: &dyn BlockDevice, plan: &Plan) -> Result<(), MakeError> {
    let size = device.size_bytes();
    let mut sector = vec![0; 32768.min(size) as usize];
    device.read(0, &mut sector)?;
    let old = Superblock::decode(&sector).ok().map(|old| Geometry::new(&old));
    clear(device, 0, SIGNATURE_BYTES.min(size))?;
    clear(device, size - SIGNATURE_BYTES.min(size), SIGNATURE_BYTES.min(size))?;
    let Some(old) = old else { return Ok(()) };
    if old.ag_blocks == plan.geometry.ag_blocks && old.block_log == plan.geometry.block_log {
        return Ok(());
    }
    for ag in 1..old.ag_count {
        let offset = old.address(AgNumber(ag), AgBlock(0)).bytes();
        if offset + old.sector_bytes() as u64 > size {
            break;
        }
        clear(device, offset, old.sector_bytes() as u64)?;
    }
    Ok(())
}

/// Makes a range read as zeros. What is zero already is not written, so that a sparse file stays sparse.
fn clear(device: &dyn BlockDevice, offset: u64, length: u64) -> Result<(), MakeError> {
    let mut buffer = vec![0; CLEAR_STEP];
    let mut done = 0;
    while done < length {
        let step = (length - done).min(CLEAR_STEP as u64) as usize;
        if !device.may_hold_data(offset + done, length - done) {
            break;
        }
        device.read(offset + done, &mut buffer[..step])?;
        if buffer[..step].iter().any(|&byte| byte != 0) {
            buffer[..step].fill(0);
            device.write(offset + done, &buffer[..step])?;
        }
        done += step as u64;
    }
    Ok(())
}

const _: () = assert!(FIRST_INODES < INODES_PER_CHUNK);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use xfskit_device::{Fua, MemoryDevice, WrapsDevice};

    const IMAGE_BYTES: usize = 32 << 20;

    /// A device whose writes fail after a given number of them.
    struct Failing {
        device: MemoryDevice,
        writes_left: AtomicUsize,
    }

    impl WrapsDevice for Failing {
        type Below = MemoryDevice;

        fn below(&self) -> &MemoryDevice {
            &self.device
        }

        fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
            let left = self.writes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.map_err(|_| io::Error::other("the power is gone"))?;
            fua.write(&self.device, offset, data)
        }

        fn pass_flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn options() -> Options {
        Options { uuid: Some([3; 16]), allow_small: true, ..Options::default() }
    }

    #[test]
    fn the_same_arguments_make_the_same_bytes() {
        let make_one = || {
            let device = MemoryDevice::new(IMAGE_BYTES);
            make(&device, None, &options(), Timestamp { seconds: 7, nanoseconds: 8 }).unwrap();
            device.to_bytes()
        };
        assert!(make_one() == make_one());
    }

    #[test]
    fn a_run_cut_short_leaves_no_image_neither_new_nor_old() {
        let old = MemoryDevice::new(IMAGE_BYTES);
        make(&old, None, &options(), Timestamp::default()).unwrap();
        let mut writes = 1;
        loop {
            let device =
                Failing { device: MemoryDevice::from_bytes(old.to_bytes()), writes_left: AtomicUsize::new(writes) };
            let done = make(&device, None, &options(), Timestamp::default()).is_ok();
            let mut sector = [0; 512];
            device.read(0, &mut sector).unwrap();
            assert_eq!(Superblock::decode(&sector).is_ok(), done, "after {writes} writes");
            if done {
                break;
            }
            writes += 1;
        }
        assert!(writes > 4);
    }
}

//! The image has space, and the host below it has none.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{self, Error as IoError, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xfskit_device::{Fua, MemoryDevice, WrapsDevice};
use xfskit_engine::{AttrLogging, Caller, Error, MountOptions, NewFile, SetMode, Volume, XattrChange, XattrOptions};

const PAGE_BYTES: u64 = 4096;
static VALUE: [u8; 30_000] = [b'v'; 30_000];

/// A sparse file on a host that can be full. It takes no page then that it does not have.
struct Host {
    disk: MemoryDevice,
    taken: Mutex<BTreeSet<u64>>,
    is_full: AtomicBool,
    sets_aside: bool,
}

impl Host {
    fn take(&self, offset: u64, length: u64) -> io::Result<()> {
        let pages = offset / PAGE_BYTES..(offset + length).div_ceil(PAGE_BYTES);
        let mut taken = self.taken.lock();
        if self.is_full.load(Ordering::Relaxed) && pages.clone().any(|page| !taken.contains(&page)) {
            return Err(IoError::from(ErrorKind::StorageFull));
        }
        taken.extend(pages);
        Ok(())
    }
}

impl WrapsDevice for Host {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.disk
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
        self.take(offset, data.len() as u64)?;
        fua.write(&self.disk, offset, data)
    }

    fn pass_allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.sets_aside { self.take(offset, length) } else { Err(ErrorKind::Unsupported.into()) }
    }
}

fn host(sets_aside: bool) -> Arc<Host> {
    let disk = MemoryDevice::new(200 << 20);
    let host = Arc::new(Host { disk, taken: Mutex::default(), is_full: AtomicBool::new(false), sets_aside });
    let options = xfskit_mkfs::Options { uuid: Some([9; 16]), allow_small: true, ..Default::default() };
    xfskit_mkfs::make(&*host, None, &options, xfskit_ondisk::Timestamp::default()).unwrap();
    let fs = Volume::open(host.clone(), MountOptions::read_only()).unwrap();
    let geometry = &fs.mount().geometry;
    // The journal has its storage in any case.
    let log = geometry.fs_block_address(geometry.log_start.unwrap()).unwrap().bytes();
    host.take(log, u64::from(geometry.log_blocks) * geometry.block_bytes() as u64).unwrap();
    drop(fs);
    host
}

/// A value whose blocks the host has no storage for is refused, and everything else goes on.
#[test]
fn a_value_that_finds_a_full_host_is_refused_and_the_filesystem_goes_on() {
    for (sets_aside, logging) in [
        (true, AttrLogging::Never),
        (true, AttrLogging::Always),
        (false, AttrLogging::Never),
        (false, AttrLogging::Always),
    ] {
        let host = host(sets_aside);
        let root = Caller::root();
        let fs = Volume::open(host.clone(), MountOptions::default()).unwrap();
        let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &root).unwrap().inode;
        fs.set_xattr(file, b"user.old", &VALUE, SetMode::Any, &root).unwrap();
        fs.sync().unwrap();
        let how = XattrOptions::new().logging(logging);
        let changes =
            [b"user.a", b"user.b"].map(|name| XattrChange { name: name.to_vec(), value: Some(VALUE.to_vec()) });
        host.is_full.store(true, Ordering::Relaxed);
        for round in 0..3 {
            let set = fs.set_xattr(file, b"user.new", &VALUE, how, &root);
            assert!(matches!(set, Err(Error::NoSpace)), "{sets_aside}, {logging:?}: {set:?}");
            let replaced = fs.set_xattr(file, b"user.old", &[b'w'; 20_000], how, &root);
            assert!(matches!(replaced, Err(Error::NoSpace)), "{sets_aside}, {logging:?}: {replaced:?}");
            let batch = fs.change_xattrs(file, &changes, how, &root);
            assert!(matches!(batch, Err(Error::NoSpace)), "{sets_aside}, {logging:?}: {batch:?}");
            fs.set_xattr(file, b"user.small", format!("{round}").as_bytes(), how, &root).unwrap();
            fs.sync().unwrap_or_else(|error| panic!("{sets_aside}, {logging:?}: {error}"));
        }
        assert_eq!(fs.get_xattr(file, b"user.old").unwrap(), VALUE);
        assert_eq!(fs.list_xattrs(file).unwrap().len(), 2);
        host.is_full.store(false, Ordering::Relaxed);
        fs.set_xattr(file, b"user.new", &VALUE, how, &root).unwrap();
        fs.change_xattrs(file, &changes, how, &root).unwrap();
        fs.unmount().unwrap();
        let again = Volume::open(host.clone(), MountOptions::default()).unwrap();
        for name in [&b"user.old"[..], b"user.new", b"user.a", b"user.b"] {
            assert_eq!(again.get_xattr(file, name).unwrap(), VALUE, "{name:?}");
        }
        again.unmount().unwrap();
        let report = xfskit_check::check(host, None, &Default::default(), &xfskit_check::Quiet).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

/// A new file that inherits a large ACL is made whole, or the filesystem stops: a name without its ACL would give
/// rights that the directory takes away.
#[test]
fn no_file_is_made_without_the_acl_that_it_inherits() {
    let host = host(true);
    let root = Caller::root();
    let fs = Volume::open(host.clone(), MountOptions::default()).unwrap();
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &root).unwrap().inode;
    // The owner, 400 users, the group, the mask, others: 3.3 KiB, which stand in a block of their own.
    let mut acl = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, rights: u16, id: u32| {
        acl.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    };
    entry(1, 7, u32::MAX);
    (0..400).for_each(|user| entry(2, 6, 1000 + user));
    entry(4, 0, u32::MAX);
    entry(0x10, 6, u32::MAX);
    entry(0x20, 0, u32::MAX);
    fs.set_xattr(dir, b"system.posix_acl_default", &acl, SetMode::Any, &root).unwrap();
    fs.create(dir, b"first", &NewFile::file(0o666), &root).unwrap();
    fs.sync().unwrap();
    host.is_full.store(true, Ordering::Relaxed);
    let made = fs.create(dir, b"second", &NewFile::file(0o666), &root);
    let found = fs.lookup(dir, b"second");
    match made {
        Ok(made) => assert!(fs.get_xattr(made.inode, b"system.posix_acl_access").is_ok()),
        Err(error) => assert!(found.is_err(), "{error}, and yet it is there"),
    }
}

//! Making and opening image files.

use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use xfskit::device::MemoryDevice;
use xfskit::volume::{Error as Cause, LastLink, MountOptions, Volume};
use xfskit::{Error, Filesystem, MkfsOptions};
use xfskit_testkit::{reference, scratch};

const BYTES: u64 = 32 << 20;

#[test]
fn an_image_is_made_as_asked_and_opened_by_one_program_at_a_time() {
    let scratch = scratch();
    let path = scratch.file("disk.img");
    let uuid = [0x5d; 16];
    let options = MkfsOptions::new().small().label("people").unwrap().uuid(uuid).option('m', "reflink=0").unwrap();
    let fs = xfskit::create(&path, BYTES, &options).unwrap();
    let info = fs.info();
    assert_eq!((info.label.as_str(), info.uuid, info.block_bytes), ("people", uuid, 4096));
    assert!(info.features.contains(&"parent") && !info.features.contains(&"reflink"), "{:?}", info.features);
    assert!(info.features.contains(&"exchange"), "{:?}", info.features);
    assert!(info.free_bytes < info.size_bytes && info.size_bytes < BYTES && info.recovery.is_none());
    let busy = Filesystem::open(&path).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy, "{busy}");
    assert!(busy.to_string().contains("disk.img"), "{busy}");
    fs.close().unwrap();
    Filesystem::open(&path).unwrap().close().unwrap();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&path);
        assert!(reference.db(&path, &["label"]).contains("people"));
    }
    let missing = Filesystem::open(scratch.file("none.img")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn what_a_file_holds_is_overwritten_only_when_that_was_asked_for() {
    let scratch = scratch();
    let path = scratch.file("letter");
    let options = MkfsOptions::new().small();
    fs::write(&path, "the only copy").unwrap();
    let refused = xfskit::create(&path, BYTES, &options).unwrap_err();
    assert!(matches!(refused, Error::HoldsData { .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"the only copy");

    // Options that do not fit are found out first, even when the contents may go.
    let wrong = options.clone().replace().option('d', "agsize=3").unwrap();
    assert!(xfskit::create(&path, BYTES, &wrong).is_err());
    assert!(xfskit::create(&path, 4096, &options.clone().replace()).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"the only copy");

    xfskit::create(&path, BYTES, &options.clone().replace()).unwrap().close().unwrap();
    let refused = xfskit::create(&path, BYTES, &options).unwrap_err();
    assert!(refused.to_string().contains("it holds an XFS image"), "{refused}");

    let zeros = scratch.image("zeros", 2 * BYTES);
    assert!(xfskit::create(&zeros, BYTES, &options).is_err());
    assert_eq!(fs::metadata(&zeros).unwrap().len(), 2 * BYTES);
    xfskit::create(&zeros, 2 * BYTES, &options).unwrap().close().unwrap();

    let external = options.clone().option('l', "logdev=/dev/none,size=16m").unwrap();
    assert_eq!(xfskit::create(scratch.file("none"), BYTES, &external).unwrap_err().kind(), ErrorKind::InvalidInput);

    let none = scratch.file("none");
    assert!(xfskit::create(&none, 4096, &options).is_err());
    assert!(!none.exists());
    assert_eq!(xfskit::create(scratch.path(), BYTES, &options).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_device_that_is_open_is_never_formatted() {
    let options = MkfsOptions::new().small();
    let (device, fs) = crate::image(BYTES as usize);
    fs.write("/only copy", "kept").unwrap();
    fs.sync().unwrap();
    let before = device.to_bytes();
    let refused = |device: &Arc<MemoryDevice>| {
        for options in [options.clone(), options.clone().replace()] {
            let error = xfskit::create_on(device.clone(), &options).unwrap_err();
            assert!(matches!(error.cause(), Some(Cause::DeviceInUse)), "{error}");
            assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        }
    };
    refused(&device);
    assert!(device.to_bytes() == before);
    assert_eq!(fs.read("/only copy").unwrap(), b"kept");
    fs.close().unwrap();

    // Nor below one that only reads, nor below a volume, nor where its log is.
    let reader = Filesystem::options().read_only(true).open_device(device.clone()).unwrap();
    refused(&device);
    reader.close().unwrap();
    let volume = Volume::open(device.clone(), MountOptions::default()).unwrap();
    refused(&device);
    volume.unmount().unwrap();
    let (data, log) = with_external_log();
    let volume = Volume::open_with_log(data.clone(), log.clone(), MountOptions::default()).unwrap();
    let before = log.to_bytes();
    refused(&data);
    refused(&log);
    assert!(log.to_bytes() == before);
    volume.unmount().unwrap();
    xfskit::create_on(log, &options.clone().replace()).unwrap().close().unwrap();

    // What failed has claimed nothing, and what was made is claimed.
    assert!(xfskit::create_on(device.clone(), &options).is_err());
    let fs = xfskit::create_on(device.clone(), &options.clone().replace()).unwrap();
    assert!(!fs.exists("/only copy").unwrap());
    refused(&device);
}

/// A device of an image, and that of its log.
fn with_external_log() -> (Arc<MemoryDevice>, Arc<MemoryDevice>) {
    let devices = [2 * BYTES, BYTES].map(|bytes| Arc::new(MemoryDevice::new(bytes as usize)));
    let options = xfskit_mkfs::Options {
        log_place: xfskit_mkfs::LogLocation::External,
        allow_small: true,
        uuid: Some([7; 16]),
        ..Default::default()
    };
    xfskit_mkfs::make(&devices[0], Some(&devices[1]), &options, Default::default()).unwrap();
    devices.into()
}

#[test]
fn a_reader_never_sees_an_image_that_this_program_writes() {
    let (device, fs) = crate::image(BYTES as usize);
    fs.write("/a", "1").unwrap();
    fs.sync().unwrap();
    let look = Filesystem::options().read_only(true);
    let past_the_log = Filesystem::options().no_recovery(true);
    let is_refused =
        |result: Result<Filesystem, Error>| matches!(result.unwrap_err().cause(), Some(Cause::DeviceInUse));
    assert!(is_refused(look.open_device(device.clone())) && is_refused(past_the_log.open_device(device.clone())));
    let volume = Volume::open(device.clone(), MountOptions::read_only());
    assert!(matches!(volume, Err(Cause::DeviceInUse)));
    assert!(matches!(Volume::recover_in_memory(device.clone(), None), Err(Cause::DeviceInUse)));
    let cut = Arc::new(MemoryDevice::from_bytes(device.to_bytes()));
    fs.close().unwrap();

    // Readers are many, of a clean image and of one that was recovered in memory; a writer waits for the last.
    for device in [device, cut] {
        let readers = [0, 1].map(|_| look.open_device(device.clone()).unwrap());
        for reader in readers {
            assert_eq!(reader.read("/a").unwrap(), b"1");
            assert!(is_refused(Filesystem::options().open_device(device.clone())));
            reader.close().unwrap();
        }
        Filesystem::options().open_device(device).unwrap().close().unwrap();
    }
    let (data, log) = with_external_log();
    let writer = Volume::open_with_log(data, log.clone(), MountOptions::default()).unwrap();
    let (other, _) = with_external_log();
    let reader = Volume::open_with_log(other, log, MountOptions::read_only());
    assert!(matches!(reader, Err(Cause::DeviceInUse)));
    writer.unmount().unwrap();
}

#[test]
fn an_external_log_is_opened_by_its_path_and_the_clock_is_the_callers() {
    let scratch = scratch();
    let (path, log) = (scratch.image("disk.img", 2 * BYTES), scratch.image("log.img", BYTES));
    let options = xfskit_mkfs::Options {
        log_place: xfskit_mkfs::LogLocation::External,
        allow_small: true,
        uuid: Some([7; 16]),
        ..Default::default()
    };
    let open = |path: &std::path::Path| xfskit::device::FileDevice::open(path, xfskit::device::Access::Write).unwrap();
    xfskit_mkfs::make(&open(&path), Some(&open(&log)), &options, Default::default()).unwrap();

    let without = Filesystem::open(&path).unwrap_err();
    assert!(matches!(without.cause(), Some(xfskit::volume::Error::NoLogDevice)), "{without}");
    let clock = std::sync::Arc::new(xfskit::volume::SeededEnvironment::new(1));
    let fs = Filesystem::options().log_device(&log).environment(clock).open(&path).unwrap();
    fs.write("file", "kept").unwrap();
    let year = 365 * 24 * 60 * 60;
    let made = fs.metadata("file").unwrap().created().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(made.as_secs() / year, 56);
    fs.close().unwrap();
    let fs = Filesystem::options().log_device(&log).read_only(true).open(&path).unwrap();
    assert_eq!(fs.read("file").unwrap(), b"kept");
}

#[test]
fn a_log_device_for_an_image_with_its_log_inside_is_refused() {
    let scratch = scratch();
    let [path, other] = ["disk.img", "other.img"].map(|name| {
        let path = scratch.file(name);
        xfskit::create(&path, BYTES, &MkfsOptions::new().small()).unwrap().close().unwrap();
        path
    });
    let error = Filesystem::options().log_device(&other).open(&path).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("has its log inside"), "{error}");
}

/// Both levels in one function: `?` takes the errors of either.
#[test]
fn errors_of_the_level_below_are_errors_of_the_library() {
    fn both(fs: &Filesystem) -> xfskit::Result<()> {
        fs.write("/file", "x")?;
        fs.volume().sync()?;
        fs.volume().lookup(fs.volume().root(), b"missing")?;
        Ok(())
    }
    let (_device, fs) = crate::image(BYTES as usize);
    let error = both(&fs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(matches!(error.cause(), Some(Cause::NotFound)));
}

#[test]
fn a_symbolic_link_has_attributes_of_its_own() {
    let (_device, fs) = crate::image(BYTES as usize);
    fs.symlink("target", "/link").unwrap();
    fs.set_symlink_xattr("/link", "security.selinux", "of the link").unwrap();
    assert_eq!(fs.set_xattr("/link", "security.selinux", "x").unwrap_err().kind(), ErrorKind::NotFound);
    fs.write("/target", "").unwrap();
    fs.set_xattr("/link", "security.selinux", "of the target").unwrap();
    let label = |path: &[u8], last| {
        let inode = fs.volume().resolve(path, last).unwrap().inode;
        fs.volume().get_xattr(inode, b"security.selinux").unwrap()
    };
    assert_eq!(label(b"/link", LastLink::Keep), b"of the link");
    assert_eq!(label(b"/link", LastLink::Follow), b"of the target");
    assert!(fs.set_symlink_xattr("/link", "user.a", "x").is_err());
    fs.set_xattr("/target", "user.a", "x").unwrap();
    let link = fs.read_dir("/").unwrap().map(|entry| entry.unwrap()).find(|entry| entry.name() == b"link").unwrap();
    let count = |names: Vec<Vec<u8>>| names.len();
    assert_eq!((count(link.list_xattrs().unwrap()), count(fs.list_xattrs("/link").unwrap())), (1, 2));
    assert_eq!(fs.list_symlink_xattrs("/link").unwrap(), [b"security.selinux"]);
    let of = |value: Option<Vec<u8>>| String::from_utf8(value.unwrap()).unwrap();
    assert_eq!(of(fs.get_symlink_xattr("/link", "security.selinux").unwrap()), "of the link");
    assert_eq!(of(fs.get_xattr("/link", "security.selinux").unwrap()), "of the target");
    assert_eq!(fs.get_symlink_xattr("/link", "user.a").unwrap(), None);
    fs.remove_symlink_xattr("/link", "security.selinux").unwrap();
    assert_eq!((count(link.list_xattrs().unwrap()), count(fs.list_xattrs("/link").unwrap())), (0, 2));
}

/// `chown(2)` takes it for "leave it as it is".
#[test]
fn no_file_belongs_to_nobody_at_all() {
    let (_device, fs) = crate::image(BYTES as usize);
    fs.write("/file", "").unwrap();
    for (uid, gid) in [(Some(u32::MAX), None), (None, Some(u32::MAX))] {
        assert_eq!(fs.set_owner("/file", uid, gid).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(fs.metadata("/file").unwrap().uid(), 0);
}

#[test]
fn a_virtual_disk_is_named_with_the_way_to_what_is_in_it() {
    let scratch = scratch();
    let disk = scratch.image("disk", 1 << 20);
    std::fs::write(&disk, [b"QFI\xfb\0\0\0\x03".to_vec(), vec![0; 1 << 20]].concat()).unwrap();
    let error = Filesystem::open(&disk).unwrap_err().to_string();
    assert!(error.contains("a virtual disk (qcow2)") && error.contains("xfskit-disk"), "{error}");
}

#[test]
fn typed_options_make_the_image_that_the_options_of_mkfs_make() {
    use xfskit::volume::SeededEnvironment;
    let new = || MkfsOptions::new().small().uuid([7; 16]).environment(Arc::new(SeededEnvironment::new(1)));
    let made = |options: xfskit::Result<MkfsOptions>| {
        let device = Arc::new(MemoryDevice::new(128 << 20));
        xfskit::create_on(device.clone(), &options.unwrap()).unwrap().close().unwrap();
        device.to_bytes()
    };
    let plain = made(Ok(new()));
    let cases = [
        ("block_size", new().block_size(1024), new().option('b', "size=1024")),
        ("inode_size", new().inode_size(1024), new().option('i', "size=1024")),
        ("log_size", Ok(new().log_size(20 << 20)), new().option('l', "size=20m")),
        ("ag_count", new().ag_count(2), new().option('d', "agcount=2")),
        ("parent_pointers", Ok(new().parent_pointers(false)), new().option('n', "parent=0")),
        ("reflink", Ok(new().reflink(false)), new().option('m', "reflink=0")),
        ("reverse_map", Ok(new().reverse_map(false)), new().option('m', "rmapbt=0")),
    ];
    for (name, typed, listed) in cases {
        let typed = made(typed);
        assert!(typed == made(listed), "{name}");
        assert!(typed != plain, "{name} changes nothing");
    }
    for refused in [new().block_size(1000), new().inode_size(100), new().ag_count(0)] {
        assert_eq!(refused.unwrap_err().errno(), 22);
    }
    let refused = xfskit::create_on(Arc::new(MemoryDevice::new(128 << 20)), &new().log_size(1));
    assert_eq!(refused.unwrap_err().errno(), 22);
}

//! Making and opening image files.

use std::fs;
use std::io::ErrorKind;
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
    let clock = std::sync::Arc::new(xfskit::env::SeededEnvironment::new(1));
    let fs = Filesystem::options().log_device(&log).environment(clock).open(&path).unwrap();
    fs.write("file", "kept").unwrap();
    let year = 365 * 24 * 60 * 60;
    let made = fs.metadata("file").unwrap().created().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(made.as_secs() / year, 56);
    fs.close().unwrap();
    let fs = Filesystem::options().log_device(&log).read_only(true).open(&path).unwrap();
    assert_eq!(fs.read("file").unwrap(), b"kept");
}

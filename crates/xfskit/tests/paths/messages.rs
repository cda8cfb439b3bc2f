//! What a person reads when a call fails.

use crate::image;
use std::io::Write;
use std::{fs, io};
use xfskit::{Error, Filesystem, MkfsOptions, volume};
use xfskit_testkit::scratch;

fn message<T>(result: Result<T, Error>) -> String {
    result.err().expect("it fails").to_string()
}

#[test]
fn an_error_names_its_paths_as_text() {
    let (_, fs) = image(32 << 20);
    fs.write("/a", "1").unwrap();
    let error = fs.read(b"/caf\xe9 \"x\"\n").unwrap_err();
    assert_eq!(format!("{error:?}"), r#"Path { verb: "open", path: "/caf\xE9 \"x\"\n", source: NotFound }"#);
    assert_eq!(error.to_string(), r#"open "/caf\xe9 \"x\"\n": no such file or directory"#);
    assert_eq!(message(fs.write("", "x")), r#"open "": is a directory"#);
    assert_eq!(message(fs.read("/a b")), r#"open "/a b": no such file or directory"#);
    assert_eq!(message(fs.read("/a\tb")), r"open /a\tb: no such file or directory");

    let error = fs.rename("/a", "/none/b").unwrap_err();
    assert_eq!(error.to_string(), "rename /a to /none/b: no such file or directory");
    assert_eq!(format!("{error:?}"), r#"Rename { from: "/a", to: "/none/b", source: NotFound }"#);
    assert_eq!((error.kind(), error.cause().unwrap().errno()), (std::io::ErrorKind::NotFound, 2));

    let error = fs.symlink([b'x'; 1024], "/link").unwrap_err();
    assert_eq!(error.to_string(), "create symbolic link /link: the target is longer than 1023 bytes");
    assert_eq!((error.kind(), error.cause().unwrap().errno()), (std::io::ErrorKind::InvalidFilename, 36));
    fs.symlink([b'x'; 1023], "/link").unwrap();
    assert_eq!(message(fs.create_dir("x".repeat(256))).split(": ").nth(1), Some("the name is longer than 255 bytes"));
}

#[test]
fn an_image_that_cannot_be_opened_says_why() {
    let scratch = scratch();
    let path = scratch.file("disk.img");
    for text in ["", "XF", "hello world", &"x".repeat(511)] {
        fs::write(&path, text).unwrap();
        let found = format!("it has {} bytes", text.len());
        let message = message(Filesystem::open(&path));
        assert!(
            message.starts_with("open the image: this is not an XFS image") && message.ends_with(&found),
            "{message}"
        );
    }
    fs::write(&path, "x".repeat(512)).unwrap();
    assert!(message(Filesystem::open(&path)).contains("this is not an XFS image: its first four bytes are 0x78787878"));
    assert_eq!(message(Filesystem::open("")), r#""": no such image"#);

    let options = MkfsOptions::new().small().replace();
    let fs = xfskit::create(&path, 32 << 20, &options).unwrap();
    let ours = format!("{}: the image is in use by this program itself; close it first", path.display());
    assert_eq!(message(Filesystem::open(&path)), ours);
    assert_eq!(message(Filesystem::options().read_only(true).open(&path)), ours);
    assert_eq!(message(xfskit::create(&path, 32 << 20, &options)), ours);
    fs.close().unwrap();
    let reader = Filesystem::options().read_only(true).open(&path).unwrap();
    let second = Filesystem::options().read_only(true).open(&path).unwrap();
    reader.close().unwrap();
    assert_eq!(message(Filesystem::open(&path)), ours);
    second.close().unwrap();

    // Another holder is not this program, whatever this program had open before.
    let lock = fs::File::open(&path).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(message(Filesystem::open(&path)).contains("in use by another program"));
}

/// The messages of an error and of all its causes, from the outside in.
fn chain(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut chain = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        chain.push(cause.to_string());
        next = cause.source();
    }
    chain
}

/// A program that prints an error and its causes, as reports of `anyhow` and others do, prints each once.
#[test]
fn no_error_says_again_what_its_message_contains() {
    let scratch = scratch();
    let path = scratch.file("disk.img");
    let (_, fs) = image(32 << 20);
    fs.write("/a", "1").unwrap();
    let io_error = || io::Error::new(io::ErrorKind::TimedOut, "the server does not answer");
    let device_failed = || volume::Error::Io { offset: 4096, source: io_error() };
    fs::write(&path, "x".repeat(512)).unwrap();
    let no_image = Filesystem::open(&path).unwrap_err();
    let not_empty = xfskit::create(&path, 32 << 20, &MkfsOptions::new().small()).unwrap_err();
    let folder = scratch.file("folder");
    fs::create_dir(&folder).unwrap();
    let errors: Vec<Box<dyn std::error::Error>> = vec![
        Box::new(fs.read("/none").unwrap_err()),
        Box::new(fs.rename("/a", "/none/b").unwrap_err()),
        Box::new(io::Error::from(fs.read("/none").unwrap_err())),
        Box::new(fs.create_file("/b").unwrap().set_len(u64::MAX).unwrap_err()),
        Box::new(no_image),
        Box::new(not_empty),
        Box::new(Filesystem::open(scratch.file("none")).unwrap_err()),
        Box::new(Filesystem::open(&folder).unwrap_err()),
        Box::new(Filesystem::open(path.join("below a file")).unwrap_err()),
        Box::new(xfskit::create(scratch.file("small"), 1 << 20, &MkfsOptions::new()).unwrap_err()),
        Box::new(Error::Image { verb: "sync", source: device_failed() }),
        Box::new(Error::from(device_failed())),
        Box::new(device_failed()),
        Box::new(io::Error::from(device_failed())),
        Box::new(Error::from(xfskit::MakeError::from(io_error()))),
        Box::new(xfskit_check::CheckError::from(io_error())),
        Box::new(xfskit::device::OpenError::Io { path: path.clone(), source: io_error() }),
    ];
    for error in &errors {
        let chain = chain(error.as_ref());
        for (outer, inner) in chain.iter().zip(&chain[1..]) {
            assert!(!outer.contains(inner.as_str()), "{chain:#?}");
        }
    }
    // What the message contains is there in full.
    let said = Error::Image { verb: "sync", source: device_failed() }.to_string();
    assert_eq!(said, "sync the image: I/O error on the device at byte 4096: the server does not answer");
}

#[test]
fn the_number_of_an_error_is_that_of_the_system_call() {
    let (_, fs) = image(32 << 20);
    fs.write("/a", "1").unwrap();
    let on_host = scratch();
    fs::write(on_host.file("a"), "1").unwrap();
    let numbers = |error: Error, host: io::Error| {
        assert_eq!(Some(error.errno()), host.raw_os_error(), "{error}");
        assert_eq!(io::Error::from(error).raw_os_error(), host.raw_os_error());
    };
    numbers(fs.read("/none").unwrap_err(), fs::read(on_host.file("none")).unwrap_err());
    numbers(fs.create_dir("/a").unwrap_err(), fs::create_dir(on_host.file("a")).unwrap_err());
    numbers(fs.read_dir("/a").err().unwrap(), fs::read_dir(on_host.file("a")).err().unwrap());
    let none = on_host.file("none");
    numbers(Filesystem::open(&none).unwrap_err(), fs::File::open(&none).unwrap_err());
    let host = fs::OpenOptions::new().write(true).open(on_host.file("a")).unwrap();
    let ours = fs.open_with("/a", &xfskit::FileOptions::new().write(true)).unwrap();
    let refused = rustix::fs::fsetxattr(&host, "bogus.a", b"1", rustix::fs::XattrFlags::empty()).unwrap_err();
    let error = ours.set_xattr("bogus.a", "1").unwrap_err();
    assert!(error.to_string().starts_with("set attribute of /a: "), "{error}");
    numbers(error, refused.into());

    // Of a file that was opened to read only, by the call and by std's trait.
    let (mut ours, mut host) = (fs.open_file("/a").unwrap(), fs::File::open(on_host.file("a")).unwrap());
    let theirs = host.write(b"x").unwrap_err();
    assert_eq!(ours.write(b"x").unwrap_err().raw_os_error(), theirs.raw_os_error());
    let error = ours.write_at(b"x", 0).unwrap_err();
    assert_eq!(error.to_string(), "write /a: the file was opened to read only");
    numbers(error, theirs);

    // Of the device, the system's own number.
    let source = io::Error::from_raw_os_error(110);
    let error = Error::from(xfskit::device::OpenError::Io { path: on_host.file("a"), source });
    assert_eq!((error.errno(), error.kind()), (110, io::ErrorKind::TimedOut));
    fs.clone().close().unwrap_err();
    assert_eq!(Error::InUse.errno(), 16);
}

//! What a person reads when a call fails.

use crate::image;
use std::fs;
use xfskit::{Error, Filesystem, MkfsOptions};
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

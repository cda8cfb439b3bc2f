//! Layers of container images, and folders of the OCI layout.
#![allow(dead_code)] // Each test uses a part.

use super::trees::run;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xfskit_testkit::Scratch;

pub fn tar(source: &Path, options: &[&str]) -> Vec<u8> {
    run(Command::new("tar").args(["-C", source.to_str().unwrap(), "-c", "-f", "-", "--xattrs"]).args(options).arg("."))
        .stdout
}

pub fn packed(program: &str, options: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.stdout
}

/// Makes files from lines: a path with a slash at the end is a folder.
pub fn make(dir: &Path, files: &[&str]) {
    for file in files {
        let path = dir.join(file);
        match file.ends_with('/') {
            true => fs::create_dir_all(&path).unwrap(),
            false => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, format!("{file} of {}", dir.display())).unwrap();
            }
        }
    }
}

/// Three layers with everything that whiteouts can say, and what is to be there in the end: for each path the number
/// of the layer that it comes from.
pub fn layers(scratch: &Scratch) -> ([PathBuf; 3], Vec<(&'static str, usize)>) {
    let dirs = [0, 1, 2].map(|number| scratch.file(&format!("layer{number}")));
    make(&dirs[0], &["kept", "gone", "dir/gone/deep/er", "dir/kept", "opaque/old", "opaque/both/old", "was-a-dir/x"]);
    make(&dirs[0], &["was-a-file", "again", "both/lower", "below/a", "hidden-later"]);
    make(&dirs[1], &[".wh.gone", "dir/.wh.gone", "opaque/.wh..wh..opq", "opaque/new", "opaque/both/new", "was-a-dir"]);
    make(&dirs[1], &["was-a-file/y", ".wh.again", "again", ".wh.both", "both/upper", ".wh.none", "below/.wh..wh..opq"]);
    make(&dirs[1], &[".wh..wh.aufs"]);
    // A whiteout may have contents, which say nothing.
    fs::write(dirs[1].join(".wh.gone"), vec![1; 300_000]).unwrap();
    make(&dirs[2], &[".wh.hidden-later", "dir/kept2", "below/b"]);
    let expected = vec![
        ("again", 1),
        ("below/b", 2),
        ("both/upper", 1),
        ("dir/kept", 0),
        ("dir/kept2", 2),
        ("kept", 0),
        ("opaque/both/new", 1),
        ("opaque/new", 1),
        ("was-a-dir", 1),
        ("was-a-file/y", 1),
    ];
    (dirs, expected)
}

/// What a layer above a system whose `lib` is a link has: the entries of an archive, and the files that are to be
/// there.
pub const OVER_LINKS: [(&[&str], &str); 5] = [
    (&["lib/new"], "usr/lib/new usr/lib/old"),
    (&["lib/.wh.old", "lib/new"], "usr/lib/new"),
    (&["lib/.wh..wh..opq", "usr/lib/new"], "usr/lib/new"),
    (&["out/new"], "etc/new usr/lib/old"),
    (&["none/new"], "later/on/new usr/lib/old"),
];

/// The base of [`OVER_LINKS`].
pub fn linked_base(scratch: &Scratch) -> PathBuf {
    let base = scratch.file("linked");
    make(&base, &["usr/lib/old", "etc/"]);
    for (link, target) in [("lib", "usr/lib"), ("out", "../../../etc"), ("none", "/later/on"), ("loop", "loop")] {
        std::os::unix::fs::symlink(target, base.join(link)).unwrap();
    }
    base
}

/// The digest of bytes, as the layout writes it.
pub fn digest(bytes: &[u8]) -> String {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// Writes a blob of a layout; returns its descriptor, without the last brace.
pub fn blob(layout: &Path, media_type: &str, bytes: &[u8]) -> String {
    let digest = digest(bytes);
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(digest.trim_start_matches("sha256:")), bytes).unwrap();
    format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":{}"#, bytes.len())
}

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

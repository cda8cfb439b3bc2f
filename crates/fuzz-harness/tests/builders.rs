//! The fuzz targets of what builders hand in: files of contexts, manifests, protofiles, packed streams, container
//! images. Each may be refused, by an error that names it, and by nothing else.

use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;
use xfskit_fuzz_harness::Behaviour;
use xfskit_fuzz_harness::fuzz::{self, Target};
use xfskit_ondisk::Timestamp;
use xfskit_transfer::{
    ContainerImage, FileContexts, FileKind, Manifest, ProtoSource, Slashes, TransferError, unpacked,
};

/// Most bytes that are taken of an unpacked stream.
const MAX_UNPACKED_BYTES: u64 = 1 << 20;

/// Notes the result; a text that makes no sense has to be named.
fn note<T>(behaviour: &mut Behaviour, result: Result<T, TransferError>) -> Option<T> {
    match result {
        Ok(found) => Some(found),
        Err(error) => {
            assert!(error.is_bad_source(), "{error}");
            let text = error.to_string();
            assert!(text.starts_with("fuzz: line "), "{text}");
            behaviour.note(text.rsplit(": ").next().map(|reason| reason.chars().take(20).collect::<String>()));
            None
        }
    }
}

fn seeds(texts: &[&[u8]]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.to_vec()).collect()
}

fn contexts(input: &[u8]) -> Behaviour {
    let mut behaviour = Behaviour::new();
    let Some(contexts) = note(&mut behaviour, FileContexts::parse(Path::new("fuzz"), input)) else { return behaviour };
    for path in [&b"/"[..], b"/usr/bin/su", b"/etc/a b", b"/\xff", b"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"] {
        for kind in [FileKind::File, FileKind::Directory] {
            let found = note(&mut behaviour, contexts.label(path, kind));
            behaviour.note(found.map(|label| label.is_some()));
        }
    }
    behaviour
}

#[test]
fn fuzz_contexts() {
    fuzz::run(&Target {
        name: "contexts",
        seeds: || {
            seeds(&[
                b"/.* u:r:t\n/usr/bin(/.*)? -- u:r:b:s0\n/etc/[^/]+ -d <<none>>\n# x\n",
                b"/a{2,3}|/b u:r:t\n/(a+)+b u:r:t\n",
                b"/x\\.y -l u:r:t\n",
            ])
        },
        run: contexts,
    });
}

fn manifest(input: &[u8]) -> Behaviour {
    let mut behaviour = Behaviour::new();
    let parsed = note(&mut behaviour, Manifest::parse("fuzz".into(), input));
    behaviour.note(parsed.is_some());
    behaviour
}

#[test]
fn fuzz_manifest() {
    fuzz::run(&Target {
        name: "manifest",
        seeds: || {
            seeds(&[
                b"#mtree\n/set uid=0 gid=0\n./a mode=0755 xattr.user.x=eA== time=1.5\n./d type=char device=5,1\n",
                b". type=dir\n  usr type=dir\n  a\\040b mode=1 \\\n  uid=3\n  ..\n..\n/unset all\n",
                b"./l type=link link=a\\134b optional\n",
            ])
        },
        run: manifest,
    });
}

fn proto(input: &[u8]) -> Behaviour {
    let mut behaviour = Behaviour::new();
    for slashes in [Slashes::AreRefused, Slashes::AreBlanks] {
        let parsed = ProtoSource::parse(Path::new("fuzz"), input, slashes, Timestamp::default());
        let parsed = note(&mut behaviour, parsed);
        behaviour.note(parsed.is_some());
    }
    behaviour
}

#[test]
fn fuzz_proto() {
    fuzz::run(&Target {
        name: "proto",
        seeds: || {
            seeds(&[
                b"x\n0 0\nd--755 0 0\nusr d--777 3 1\nsh -ug755 3 1 /bin/sh\n$\nb0 b--644 3 1 0x10 010\n: c\n$\n",
                b"x 0 0 d--755 0 0 l l--777 0 0 target a/b p--600 1 2 $",
            ])
        },
        run: proto,
    });
}

fn unpack(input: &[u8]) -> Behaviour {
    let mut behaviour = Behaviour::new();
    let mut bytes = Vec::new();
    let read = unpacked(input).and_then(|stream| stream.take(MAX_UNPACKED_BYTES).read_to_end(&mut bytes));
    behaviour.note((read.is_ok(), bytes.len().min(1 << 16).checked_ilog2()));
    behaviour
}

#[test]
fn fuzz_unpack() {
    // "hello" many times, by gzip and by zstd with a checksum.
    fuzz::run(&Target {
        name: "unpack",
        seeds: || {
            seeds(&[
                b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xcb\x48\xcd\xc9\xc9\xe7\x02\0\x20\x30\x3a\x36\x06\0\0\0",
                b"\x28\xb5\x2f\xfd\x04\x58\x31\0\0hello\x0a\xdd\xc9\xed\x0b",
                b"\x50\x2a\x4d\x18\x02\0\0\0xx\x28\xb5\x2f\xfd\x04\x58\x31\0\0hello\x0a\xdd\xc9\xed\x0b",
                b"plain",
            ])
        },
        run: unpack,
    });
}

/// An index of any bytes, in a layout with one document.
fn layout(input: &[u8]) -> Behaviour {
    static DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("a file");
        dir
    });
    let mut behaviour = Behaviour::new();
    std::fs::write(DIR.path().join("index.json"), input).expect("a file");
    match ContainerImage::open(DIR.path(), Some("v1"), "linux/amd64".parse().ok().as_ref()) {
        Ok(_) => panic!("there is no manifest in it"),
        Err(error) => {
            let text = error.to_string();
            behaviour.note(text.rsplit(": ").next().map(|reason| reason.chars().take(20).collect::<String>()));
            let is_missing = matches!(error, TransferError::Host { what: "reading it", .. });
            assert!(is_missing || matches!(error, TransferError::BadContainer { .. }), "{text}");
        }
    }
    behaviour
}

#[test]
fn fuzz_layout() {
    fuzz::run(&Target {
        name: "layout",
        seeds: || {
            let manifest =
                br#"{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:
                0000000000000000000000000000000000000000000000000000000000000000","size":7,"platform":{"os":"linux",
                "architecture":"amd64"},"annotations":{"org.opencontainers.image.ref.name":"v1"}}]}"#;
            seeds(&[&manifest.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<_>>(), b"{}"])
        },
        run: layout,
    });
}

//! Container images in archives, as skopeo writes them: of the OCI layout and of `docker save`; and how they are named.

mod common;

use common::layers::{LAYER, MANIFEST, blob, digest, layers, packed, tar};
use common::{fails, ok, xfskit};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xfskit_testkit::{Scratch, scratch, skip};

/// Names as containerd, nerdctl and buildx write them.
const NAMES: [&str; 2] = ["docker.io/library/one:latest", "docker.io/library/two:v2"];

/// A layout with two images by these names: of the first two layers, and of all.
fn layout(scratch: &Scratch, dirs: &[PathBuf; 3]) -> PathBuf {
    let layout = scratch.file("layout");
    let tars: Vec<Vec<u8>> = dirs.iter().map(|dir| tar(dir, &["--sort=name", "--mtime=@1"])).collect();
    let image = |count: usize, name: &str| {
        let layers: Vec<String> = tars[..count]
            .iter()
            .map(|bytes| blob(&layout, &format!("{LAYER}+gzip"), &packed("gzip", &["-c", "-n"], bytes)) + "}")
            .collect();
        let ids: Vec<String> = tars[..count].iter().map(|bytes| format!("{:?}", digest(bytes))).collect();
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            ids.join(",")
        );
        let config = blob(&layout, "application/vnd.oci.image.config.v1+json", config.as_bytes()) + "}";
        let text = format!(
            r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","config":{config},"layers":[{}]}}"#,
            layers.join(",")
        );
        let annotation = format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{name}"}}}}"#);
        blob(&layout, MANIFEST, text.as_bytes()) + &annotation
    };
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{},{}]}}"#, image(2, NAMES[0]), image(3, NAMES[1]));
    fs::write(layout.join("index.json"), index).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    layout
}

/// The paths in an image of a source.
fn paths(source: &str, image: &Path) -> Vec<String> {
    ok(&format!("mkfs -q -f --small IMAGE --from {source}"), image);
    let mut paths: Vec<String> = ok("find IMAGE / -type f", image).lines().map(str::to_owned).collect();
    paths.sort_unstable();
    paths
}

fn skopeo(from: &str, to: &str) {
    let output = Command::new("skopeo").args(["copy", "-q", "--insecure-policy", from, to]).output().unwrap();
    assert!(output.status.success(), "{from} {to}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn images_are_read_from_archives_by_names_with_colons() {
    if Command::new("skopeo").arg("--version").output().is_err() {
        return skip("skopeo is not installed");
    }
    let scratch = scratch();
    let (dirs, expected) = layers(&scratch);
    let layout = layout(&scratch, &dirs);
    let layout = layout.display();
    let image = scratch.file("a.img");
    let all: Vec<String> = expected.iter().map(|(path, _)| format!("/{path}")).collect();
    assert_eq!(paths(&format!("oci:{layout}:{}", NAMES[1]), &image), all);
    let two = paths(&format!("oci:{layout}:{}", NAMES[0]), &image);
    assert!(two.contains(&"/hidden-later".to_owned()) && two != all, "{two:?}");
    for (number, (name, expected)) in NAMES.iter().zip([&two, &all]).enumerate() {
        let (oci, docker) = (scratch.file(&format!("oci{number}.tar")), scratch.file(&format!("docker{number}.tar")));
        let (oci, docker) = (oci.display(), docker.display());
        skopeo(&format!("oci:{layout}:{name}"), &format!("oci-archive:{oci}:{name}"));
        skopeo(&format!("oci:{layout}:{name}"), &format!("docker-archive:{docker}:{name}"));
        for source in [
            format!("oci:{oci}"),
            format!("oci:{oci}:{name}"),
            format!("oci-archive:{oci}:{name}"),
            format!("docker-archive:{docker}"),
            format!("docker-archive:{docker}:{name}"),
        ] {
            assert_eq!(&paths(&source, &image), expected, "{source}");
        }
        // Without a prefix they would be trees of blobs.
        for (archive, prefix) in [(oci.to_string(), "oci:"), (docker.to_string(), "docker-archive:")] {
            let (code, message) = fails(&format!("mkfs -q -f --small IMAGE --from {archive}"), &image);
            assert!(code == 5 && message.contains(&format!("--from {prefix}{archive}")), "{code}: {message}");
        }
    }
    // A name without its tag, as docker takes it; and one that is not there.
    let docker = scratch.file("docker0.tar");
    let docker = docker.display();
    assert_eq!(paths(&format!("docker-archive:{docker}:docker.io/library/one"), &image), two);
    for (source, what) in [
        (format!("docker-archive:{docker}:none:x"), format!("no image of the name none:x: it has {}", NAMES[0])),
        (format!("oci:{layout}"), format!("choose one by oci:PATH:NAME: it has {}, {}", NAMES[0], NAMES[1])),
        (format!("docker-archive:{}", scratch.file("oci0.tar").display()), "which oci: reads".into()),
        (format!("oci:{docker}"), "the archive has no such file".into()),
        (format!("docker-archive:{docker} --platform linux/arm64"), "no image for that platform: linux/amd64".into()),
    ] {
        let (code, message) = fails(&format!("mkfs -q -f --small IMAGE --from {source}"), &image);
        assert!(code == 5 && message.contains(&what), "{source}: {code}: {message}");
    }
    let copied = xfskit(["mkfs", "-q", "-f", "--small", "--from", &layout.to_string(), image.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&copied.stderr);
    assert!(copied.status.success() && message.contains(&format!("oci:{layout} is what")), "{message}");
}

/// Parts of an archive that is damaged do not come into an image.
#[test]
fn an_archive_is_verified_before_the_first_file_is_made() {
    if Command::new("skopeo").arg("--version").output().is_err() {
        return skip("skopeo is not installed");
    }
    let scratch = scratch();
    let (dirs, _) = layers(&scratch);
    let layout = layout(&scratch, &dirs);
    let image = scratch.file("a.img");
    for (transport, expected) in [("oci-archive", "its digest is"), ("docker-archive", "rootfs.diff_ids")] {
        let archive = scratch.file("archive.tar");
        let _ = fs::remove_file(&archive);
        skopeo(
            &format!("oci:{}:{}", layout.display(), NAMES[0]),
            &format!("{transport}:{}:{}", archive.display(), NAMES[0]),
        );
        let mut bytes = fs::read(&archive).unwrap();
        // The middle of the largest part, which is a layer.
        let headers: Vec<(usize, usize)> = (0..bytes.len() / 512)
            .map(|block| block * 512)
            .filter(|at| &bytes[at + 257..at + 262] == b"ustar" && bytes[at + 156] == b'0')
            .map(|at| {
                let size = std::str::from_utf8(&bytes[at + 124..at + 135]).unwrap();
                (usize::from_str_radix(size, 8).unwrap(), at + 512)
            })
            .collect();
        let (size, at) = headers.iter().max().unwrap();
        bytes[at + size / 2] ^= 1;
        fs::write(&archive, bytes).unwrap();
        let (code, message) = fails(&format!("mkfs -q --small IMAGE --from {transport}:{}", archive.display()), &image);
        assert!(code == 5 && !image.exists(), "{code}: {message}");
        assert!(message.contains(expected) || message.contains("cannot be unpacked"), "{message}");
    }
    let packed = packed("gzip", &["-c"], &fs::read(scratch.file("archive.tar")).unwrap());
    fs::write(scratch.file("archive.tar.gz"), packed).unwrap();
    let source = scratch.file("archive.tar.gz");
    let (code, message) = fails(&format!("mkfs -q --small IMAGE --from docker-archive:{}", source.display()), &image);
    assert!(code == 5 && message.contains("gzip -dc"), "{code}: {message}");
}

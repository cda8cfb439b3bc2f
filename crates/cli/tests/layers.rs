//! Several sources one over the other, packed archives, container images, and `import` into an image that exists. What
//! comes out is compared with a folder into which tar, or this test by the rules of the specification, put the same.

mod common;

use common::layers::{LAYER, MANIFEST, OVER_LINKS, blob, digest, layers, linked_base, make, packed, tar};
use common::trees::{is_root, listing, run};
use common::{fails, ok, words};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use xfskit_testkit::{Scratch, kernel_mount, reference, scratch};

const UUID: &str = "uuid=6b1ff5a1-2d3c-4e5f-8a9b-0c1d2e3f4a5b";

fn make_at(epoch: &str, line: &str, image: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xfskit"))
        .args(words(line, image))
        .env("SOURCE_DATE_EPOCH", epoch)
        .output()
        .unwrap()
}

/// The regular files of an image with their contents, by the kernel.
fn files(image: &Path) -> Option<Vec<(String, String)>> {
    let kernel = kernel_mount(image)?;
    let output = run(Command::new("find").arg(kernel.path()).args(["-type", "f", "-printf", "%P\n"]));
    let mut paths: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    paths.sort();
    let read = |path: String| (path.clone(), fs::read_to_string(kernel.path().join(path)).unwrap());
    let found = paths.into_iter().map(read).collect();
    kernel.unmount();
    Some(found)
}

fn assert_layers(image: &Path, dirs: &[PathBuf; 3], expected: &[(&str, usize)]) {
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(image);
    }
    let Some(found) = files(image) else { return };
    let expected: Vec<_> = expected
        .iter()
        .map(|(path, layer)| ((*path).to_owned(), format!("{path} of {}", dirs[*layer].display())))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn whiteouts_remove_what_lower_layers_have_in_any_order_of_the_archive() {
    let scratch = scratch();
    let (dirs, expected) = layers(&scratch);
    let image = scratch.file("a.img");
    for (name, order) in [("sorted", "--sort=name"), ("reversed", "--null")] {
        let archives: Vec<PathBuf> = dirs
            .iter()
            .enumerate()
            .map(|(number, dir)| {
                let archive = scratch.file(&format!("{name}{number}.tar"));
                let bytes = if order == "--null" { reversed(dir) } else { tar(dir, &[order]) };
                fs::write(&archive, bytes).unwrap();
                archive
            })
            .collect();
        let from: String = archives.iter().map(|archive| format!(" --from {}", archive.display())).collect();
        ok(&format!("mkfs -f -q IMAGE --size auto --whiteouts{from}"), &image);
        assert_layers(&image, &dirs, &expected);
    }
    // Without the option they are files, and a later source lies over an earlier one all the same.
    let from: String = dirs.iter().map(|dir| format!(" --from {}", dir.display())).collect();
    ok(&format!("mkfs -f -q IMAGE --size auto{from}"), &image);
    let Some(found) = files(&image) else { return };
    let has = |path: &str| found.iter().any(|(found, _)| found == path);
    assert!(has(".wh.gone") && has("gone") && has("was-a-dir") && !has("was-a-dir/x") && has("was-a-file/y"));
}

#[test]
fn a_layer_follows_the_links_of_lower_layers_and_never_out_of_the_image() {
    let scratch = scratch();
    let (base, image) = (linked_base(&scratch), scratch.file("a.img"));
    let outside = Path::new("/later");
    assert!(!outside.exists());
    for (number, (entries, expected)) in OVER_LINKS.iter().enumerate() {
        let upper = scratch.file(&format!("upper{number}"));
        make(&upper, entries);
        let archive = scratch.file("upper.tar");
        fs::write(&archive, run(Command::new("tar").arg("-C").arg(&upper).arg("-c").args(*entries)).stdout).unwrap();
        let has_whiteouts = entries[0].contains(".wh.");
        // A folder has an entry for each directory, an archive need not have one.
        for source in [&upper, &archive] {
            let whiteouts = if has_whiteouts { " --whiteouts" } else { "" };
            let from = format!(" --from {} --from {}", base.display(), source.display());
            if source == &upper && expected.contains("later") {
                // The directory has an entry and the link leads nowhere.
                continue;
            }
            ok(&format!("mkfs -f -q IMAGE --size auto{whiteouts}{from}"), &image);
            let Some(found) = files(&image) else { return };
            let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
            assert_eq!(paths.join(" "), *expected, "{entries:?} in {}", source.display());
            assert!(ok("ls -l IMAGE /", &image).contains("lib -> usr/lib"));
        }
    }
    assert!(!outside.exists());
    let entry =
        run(Command::new("tar").arg("-C").arg(&base).args(["-c", "--transform=s,^etc$,loop/new,", "etc"])).stdout;
    fs::write(scratch.file("loop.tar"), entry).unwrap();
    let from = format!("--from {} --from {}", base.display(), scratch.file("loop.tar").display());
    let (_, message) = fails(&format!("mkfs -f -q IMAGE --size auto {from}"), &image);
    assert!(message.contains("loop") && message.contains("links"), "{message}");
}

/// An archive whose files come in the reverse order of their names, folders behind what is in them.
fn reversed(dir: &Path) -> Vec<u8> {
    let find = run(Command::new("find").current_dir(dir).args([".", "-depth"]));
    let mut paths: Vec<&str> = std::str::from_utf8(&find.stdout).unwrap().lines().collect();
    paths.sort_by(|a, b| b.cmp(a));
    let list = paths.join("\n");
    packed("tar", &["-C", dir.to_str().unwrap(), "-c", "--no-recursion", "-T", "-"], list.as_bytes())
}

/// A layout with one image for two platforms: the first has all layers, the second the first two.
fn layout(scratch: &Scratch, dirs: &[PathBuf; 3]) -> PathBuf {
    let layout = scratch.file("layout");
    let packers: [(&str, &[&str], &str); 3] =
        [("gzip", &["-c"], "+gzip"), ("zstd", &["-c", "-q"], "+zstd"), ("cat", &[], "")];
    let layers: Vec<String> = dirs
        .iter()
        .zip(packers)
        .map(|(dir, (program, options, suffix))| {
            let bytes = packed(program, options, &tar(dir, &["--sort=name"]));
            blob(&layout, &format!("{LAYER}{suffix}"), &bytes) + "}"
        })
        .collect();
    let config = blob(&layout, "application/vnd.oci.image.config.v1+json", b"{}") + "}";
    let manifest = |layers: &[String]| {
        let text = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{}]}}"#, layers.join(","));
        blob(&layout, MANIFEST, text.as_bytes())
    };
    let platform = |architecture: &str| format!(r#","platform":{{"os":"linux","architecture":"{architecture}"}}}}"#);
    let entries = [manifest(&layers) + &platform("amd64"), manifest(&layers[..2]) + &platform("arm64")];
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","));
    let index = blob(&layout, "application/vnd.oci.image.index.v1+json", index.as_bytes());
    let named = format!(r#"{index},"annotations":{{"org.opencontainers.image.ref.name":"v1"}}}}"#);
    fs::write(layout.join("index.json"), format!(r#"{{"schemaVersion":2,"manifests":[{named}]}}"#)).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    layout
}

#[test]
fn a_container_image_comes_into_an_image_as_its_layers_say() {
    let scratch = scratch();
    let (dirs, expected) = layers(&scratch);
    let layout = layout(&scratch, &dirs);
    let (image, again) = (scratch.file("a.img"), scratch.file("b.img"));
    let line = format!("mkfs -q IMAGE -m {UUID} --from oci:{}:v1 --platform linux/amd64", layout.display());
    for image in [&image, &again] {
        let output = make_at("1700000000", &line, image);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap(), "the same image again");
    assert_layers(&image, &dirs, &expected);
    // Into an image that exists, and for the other platform, which has only two layers.
    let disk = scratch.file("disk.img");
    ok("mkfs -q IMAGE --size 512M", &disk);
    ok("mkdir IMAGE /srv", &disk);
    ok(&format!("import IMAGE /srv --platform linux/arm64 --from oci:{}", layout.display()), &disk);
    let Some(found) = files(&disk) else { return };
    assert!(
        found.iter().any(|(path, _)| path == "srv/hidden-later") && !found.iter().any(|(path, _)| path == "srv/gone")
    );
}

#[test]
fn a_layout_whose_parts_do_not_fit_makes_nothing() {
    let scratch = scratch();
    let (dirs, _) = layers(&scratch);
    let layout = layout(&scratch, &dirs);
    let image = scratch.file("a.img");
    let refused = |what: &str, options: &str| {
        let (code, error) = fails(&format!("mkfs -q IMAGE --from oci:{}{options}", layout.display()), &image);
        assert!(code == 5 && error.contains(what), "{code}: {error}");
        assert!(!image.exists());
    };
    refused("--platform chooses one: linux/amd64, linux/arm64", "");
    refused("there is no image for that platform: linux/amd64, linux/arm64", " --platform linux/s390x");
    refused("there is no image of the name v2: it has v1", ":v2");
    let largest = || {
        let blobs = fs::read_dir(layout.join("blobs/sha256")).unwrap().map(|blob| blob.unwrap().path());
        blobs.max_by_key(|blob| fs::metadata(blob).unwrap().len()).unwrap()
    };
    let blob = largest();
    let bytes = fs::read(&blob).unwrap();
    let mut changed = bytes.clone();
    changed[100] ^= 1;
    fs::write(&blob, &changed).unwrap();
    refused("the layout is damaged", " --platform linux/amd64");
    fs::write(&blob, &bytes[..bytes.len() - 1]).unwrap();
    refused("bytes and has", " --platform linux/amd64");
    fs::remove_file(&blob).unwrap();
    let (_, error) = fails(&format!("mkfs -q IMAGE --from oci:{} --platform linux/amd64", layout.display()), &image);
    assert!(error.contains("reading it: No such file"), "{error}");
    fs::write(&blob, &bytes).unwrap();
    let index = fs::read_to_string(layout.join("index.json")).unwrap();
    for (text, what) in [
        ("{".to_owned(), "EOF"),
        ("[".repeat(100_000), "invalid type"),
        (index.replace("sha256:", "sha256:../../"), "neither sha256 nor sha512"),
        (index.replace("\"size\":", "\"size\":99999999"), "more than 4 MiB"),
        (" ".repeat(5 << 20), "more than 4 MiB"),
    ] {
        fs::write(layout.join("index.json"), text).unwrap();
        refused(what, " --platform linux/amd64");
    }
}

/// A layout with one image, whose config says this.
fn layout_with_config(scratch: &Scratch, config: &str, annotations: &str) -> PathBuf {
    let layout = scratch.file("configured");
    let _ = fs::remove_dir_all(&layout);
    let source = scratch.file("one");
    make(&source, &["file"]);
    let bytes = tar(&source, &["--sort=name", "--mtime=@1"]);
    let layer = blob(&layout, &format!("{LAYER}+gzip"), &packed("gzip", &["-c", "-n"], &bytes)) + "}";
    let config = config.replace("UNPACKED", &digest(&bytes));
    let config = blob(&layout, "application/vnd.oci.image.config.v1+json", config.as_bytes()) + "}";
    let text = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{layer}]}}"#);
    let manifest = blob(&layout, MANIFEST, text.as_bytes()) + annotations + "}";
    fs::write(layout.join("index.json"), format!(r#"{{"schemaVersion":2,"manifests":[{manifest}]}}"#)).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    layout
}

#[test]
fn what_the_config_of_a_container_image_says_is_verified() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    let other = format!("sha256:{}", "0".repeat(64));
    let rootfs = |ids: &str| format!(r#"{{"os":"linux","architecture":"arm64","rootfs":{{"diff_ids":[{ids}]}}}}"#);
    for (config, options, refusal) in [
        (rootfs("\"UNPACKED\""), "", None),
        (rootfs("\"UNPACKED\""), " --platform linux/arm64", None),
        (rootfs("\"UNPACKED\""), " --platform linux/amd64", Some("no image for that platform: linux/arm64")),
        (rootfs(&format!("\"{other}\"")), "", Some("rootfs.diff_ids")),
        (rootfs("\"UNPACKED\",\"UNPACKED\""), "", Some("1 layers, and its config has 2")),
        ("{}".into(), " --platform linux/arm64", Some("no image for that platform: none is named")),
        ("{}".into(), "", None),
    ] {
        let layout = layout_with_config(&scratch, &config, "");
        let line = format!("mkfs -q IMAGE --from oci:{}{options}", layout.display());
        match refusal {
            None => {
                ok(&line, &image);
                assert_eq!(ok("ls IMAGE", &image), "file\n");
                fs::remove_file(&image).unwrap();
            }
            Some(what) => {
                let (code, error) = fails(&line, &image);
                assert!(code == 5 && error.contains(what) && !image.exists(), "{code}: {error}");
            }
        }
    }
}

#[test]
fn a_pipe_or_a_link_out_of_a_layout_is_refused_at_once() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    let outside = scratch.file("outside");
    for part in ["index.json", "oci-layout", "blobs/sha256"] {
        for kind in ["pipe", "link", "device"] {
            let layout = layout_with_config(&scratch, "{}", "");
            let largest = || {
                let blobs = fs::read_dir(layout.join(part)).unwrap().map(|blob| blob.unwrap().path());
                blobs.min_by_key(|blob| fs::metadata(blob).unwrap().len()).unwrap()
            };
            let victim = if part.ends_with("json") || part.starts_with("oci") { layout.join(part) } else { largest() };
            fs::rename(&victim, &outside).unwrap();
            match kind {
                "pipe" => drop(run(Command::new("mkfifo").arg(&victim))),
                "link" => std::os::unix::fs::symlink(&outside, &victim).unwrap(),
                _ => std::os::unix::fs::symlink("/dev/zero", &victim).unwrap(),
            }
            let program = env!("CARGO_BIN_EXE_xfskit");
            let arguments = words("mkfs -q IMAGE --from", &image);
            let from = format!("oci:{}", layout.display());
            let output = Command::new("timeout").arg("20").arg(program).args(arguments).arg(from).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            let what = if kind == "pipe" { "no regular file" } else { "leads out of the layout's folder" };
            assert!(output.status.code() == Some(5) && error.contains(what), "{part}, {kind}: {error}");
            assert!(!image.exists());
        }
    }
}

#[test]
fn packed_archives_are_unpacked_as_by_their_programs() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (source, plain, image) = (scratch.file("source"), scratch.file("plain.img"), scratch.file("a.img"));
    common::trees::make_tree(&source);
    fs::remove_file(source.join("socket")).unwrap();
    let archive = tar(&source, &["--sort=name", "--xattrs-include=*", "--acls"]);
    let middle = archive.len() / 2 / 512 * 512;
    let halves = |program: &str, options: &[&str]| {
        [packed(program, options, &archive[..middle]), packed(program, options, &archive[middle..])].concat()
    };
    let make = |bytes: &[u8], image: &Path| {
        let file = scratch.file("archive");
        fs::write(&file, bytes).unwrap();
        let line = format!("mkfs -f -q IMAGE --size 512M -m {UUID} --from {}", file.display());
        make_at("1700000000", &line, image)
    };
    assert!(make(&archive, &plain).status.success());
    let skippable =
        [b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip".to_vec(), packed("zstd", &["-c", "-q"], &archive)].concat();
    for (name, bytes) in [
        ("gzip", packed("gzip", &["-c"], &archive)),
        ("gzip in two parts", halves("gzip", &["-c"])),
        ("zstd", packed("zstd", &["-c", "-q", "-19"], &archive)),
        ("zstd in two parts", halves("zstd", &["-c", "-q", "--check"])),
        ("zstd behind a frame without data", skippable),
    ] {
        let output = make(&bytes, &image);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::read(&image).unwrap() == fs::read(&plain).unwrap(), "{name}");
    }
    // Cut short or damaged anywhere, it is an error, and there is no image.
    fs::remove_file(&image).unwrap();
    for (name, packed) in [("gzip", packed("gzip", &["-c"], &archive)), ("zstd", packed("zstd", &["-cq"], &archive))] {
        for part in [20, 50, 99] {
            let cut = &packed[..packed.len() * part / 100];
            let output = make(cut, &image);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(5) && !image.exists(), "{name}, {part} %: {error}");
        }
        let mut damaged = packed.clone();
        let last = damaged.len() - 2;
        damaged[last] ^= 0x55;
        let output = make(&damaged, &image);
        assert!(output.status.code() == Some(5), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_small_archive_that_unpacks_to_a_large_one_takes_little_memory() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    // A header of 100 GB of zeros, and then the zeros: 1 GB of them, in 1 MB of gzip.
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_size(100 << 30);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.resize(1 << 30, 0);
    let archive = scratch.file("bomb.tar.gz");
    fs::write(&archive, packed("gzip", &["-1", "-c"], &bytes)).unwrap();
    drop(bytes);
    let script = format!(
        "ulimit -v 1500000; exec {} mkfs -q --size 300M --from {} {}",
        env!("CARGO_BIN_EXE_xfskit"),
        archive.display(),
        image.display()
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("space"), "{:?}: {error}", output.status);
    assert!(!image.exists());
}

#[test]
fn an_archive_comes_into_an_image_as_tar_unpacks_it() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, folder) = (scratch.file("a.img"), scratch.file("folder"));
    let (lower, upper) = (scratch.file("lower"), scratch.file("upper"));
    common::trees::make_tree(&lower);
    make(&upper, &["dir/new", "empty", "big"]);
    run(Command::new("chmod").args(["700"]).arg(upper.join("dir")));
    for source in [&lower, &upper] {
        fs::remove_file(source.join("socket")).ok();
    }
    fs::create_dir(&folder).unwrap();
    ok("mkfs -q IMAGE --size 512M", &image);
    ok("mkdir IMAGE /srv", &image);
    for source in [&lower, &upper] {
        let bytes = tar(source, &["--xattrs-include=*", "--acls"]);
        let output = common::with_input("import IMAGE /srv", &image, &bytes);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let unpack = ["-C", folder.to_str().unwrap(), "-x", "--xattrs", "--xattrs-include=*", "--acls", "-p"];
        packed("tar", &unpack, &bytes);
    }
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    let Some(kernel) = kernel_mount(&image) else { return };
    let (ours, theirs) = (listing(&kernel.path().join("srv")), listing(&folder));
    for (a, b) in ours.iter().zip(&theirs) {
        assert_eq!(a, b);
    }
    assert_eq!(ours.len(), theirs.len());
    kernel.unmount();
    // Unlike in layers, a directory is no file's to replace.
    let other = scratch.file("other");
    make(&other, &["dir"]);
    let (code, error) = fails(&format!("import IMAGE /srv --from {}", other.display()), &image);
    assert!(code == 1 && error.contains("dir"), "{error}");
    let (code, error) = fails(&format!("import IMAGE /none --from {}", other.display()), &image);
    assert!(code == 1 && error.contains("/none"), "{error}");
}

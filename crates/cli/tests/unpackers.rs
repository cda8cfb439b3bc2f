//! Container images beside the programs that unpack them: umoci, and containerd by its snapshotter `native`, which
//! applies each layer to a copy of those below. (With `overlayfs` containerd does not see the links of lower layers.)

mod common;

use common::layers::{LAYER, MANIFEST, OVER_LINKS, blob, digest, layers, linked_base, make, packed, tar};
use common::ok;
use common::trees::{is_root, make_tree, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{Scratch, scratch, skip, tree};

/// An image of several layers in a folder of the OCI layout.
struct Layered {
    layout: PathBuf,
    /// What containerd calls the snapshot of all layers.
    chain: String,
}

impl Layered {
    /// Writes the layout; its image is called `v1`.
    fn new(layout: PathBuf, layers: &[Vec<u8>]) -> Self {
        let ids: Vec<String> = layers.iter().map(|bytes| digest(bytes)).collect();
        let chain = ids[1..].iter().fold(ids[0].clone(), |chain, id| digest(format!("{chain} {id}").as_bytes()));
        let quoted: Vec<String> = ids.iter().map(|id| format!("{id:?}")).collect();
        let rootfs = format!(r#"{{"type":"layers","diff_ids":[{}]}}"#, quoted.join(","));
        let config = format!(r#"{{"os":"linux","architecture":"amd64","rootfs":{rootfs}}}"#);
        let config = blob(&layout, "application/vnd.oci.image.config.v1+json", config.as_bytes()) + "}";
        let layers: Vec<String> = layers
            .iter()
            .map(|bytes| blob(&layout, &format!("{LAYER}+gzip"), &packed("gzip", &["-c", "-n"], bytes)) + "}")
            .collect();
        let text = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{}]}}"#, layers.join(","));
        let manifest = blob(&layout, MANIFEST, text.as_bytes());
        let named = format!(r#"{manifest},"annotations":{{"org.opencontainers.image.ref.name":"v1"}}}}"#);
        fs::write(layout.join("index.json"), format!(r#"{{"schemaVersion":2,"manifests":[{named}]}}"#)).unwrap();
        fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { layout, chain }
    }

    /// The tree as xfskit unpacks it.
    fn by_xfskit(&self, scratch: &Scratch) -> Vec<String> {
        let (image, out) = (scratch.file("a.img"), scratch.file("ours"));
        ok(&format!("mkfs -f -q IMAGE --size auto --from oci:{}:v1", self.layout.display()), &image);
        let _ = fs::remove_dir_all(&out);
        ok(&format!("cp -r {}:/ {}", image.display(), out.display()), &image);
        entries(&out)
    }

    /// As umoci unpacks it.
    fn by_umoci(&self, scratch: &Scratch) -> Vec<String> {
        let bundle = scratch.file("bundle");
        let _ = fs::remove_dir_all(&bundle);
        run(Command::new("umoci")
            .args(["unpack", "--image"])
            .arg(format!("{}:v1", self.layout.display()))
            .arg(&bundle));
        entries(&bundle.join("rootfs"))
    }

    /// As containerd unpacks it.
    fn by_containerd(&self, scratch: &Scratch, containerd: &Containerd, name: &str) -> Vec<String> {
        let archive = scratch.file("layout.tar");
        run(Command::new("tar").arg("-C").arg(&self.layout).arg("-cf").arg(&archive).arg("."));
        let base = format!("test/{name}");
        run(containerd.ctr().args(["images", "import", "--snapshotter", "native", "--base-name", &base]).arg(archive));
        let view = ["snapshots", "--snapshotter", "native", "view", "--target", "/none", name, &self.chain];
        let mount = String::from_utf8(run(containerd.ctr().args(view)).stdout).unwrap();
        let folder = mount.split_whitespace().find(|word| word.contains("/snapshots/")).expect("the folder to mount");
        entries(Path::new(folder))
    }
}

/// A daemon of the test's own.
struct Containerd {
    child: Child,
    address: PathBuf,
}

impl Containerd {
    fn start(scratch: &Scratch) -> Self {
        let (config, address) = (scratch.file("containerd.toml"), scratch.file("containerd.sock"));
        fs::write(&config, "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n").unwrap();
        let log = fs::File::create(scratch.file("containerd.log")).unwrap();
        let child = Command::new("containerd")
            .arg("--config")
            .arg(config)
            .arg("--root")
            .arg(scratch.file("containerd"))
            .arg("--state")
            .arg(scratch.file("containerd-state"))
            .arg("--address")
            .arg(&address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("containerd");
        let started = Self { child, address };
        let end = Instant::now() + Duration::from_secs(60);
        while !started.ctr().arg("version").output().is_ok_and(|output| output.status.success()) {
            let log = || fs::read_to_string(scratch.file("containerd.log")).unwrap_or_default();
            assert!(Instant::now() < end, "containerd does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        started
    }

    fn ctr(&self) -> Command {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(&self.address);
        command
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The entries of a tree, one a line, without the times of directories: some have no entry in any layer.
fn entries(root: &Path) -> Vec<String> {
    let line = |mut entry: xfskit_testkit::TreeEntry| {
        if entry.mode & 0o170_000 == 0o040_000 {
            entry.mtime = (0, 0);
        }
        // Go's library for archives, which both programs use, passes over attributes without a value.
        entry.xattrs.retain(|(_, value)| !value.is_empty());
        entry.to_string()
    };
    tree(root).into_iter().map(line).collect()
}

fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip(&format!("no {program}"));
    }
    found
}

/// An archive of some entries in their order, and of nothing else.
fn archive_of(dir: &Path, entries: &[&str]) -> Vec<u8> {
    run(Command::new("tar").arg("-C").arg(dir).args(["-c", "--no-recursion"]).args(entries)).stdout
}

/// Images by what is in them.
fn images(scratch: &Scratch) -> Vec<(String, Layered)> {
    let layout = |name: &str| scratch.file(&format!("layout-{name}"));
    let sorted = |dir: &PathBuf| tar(dir, &["--sort=name"]);
    let (dirs, _) = layers(scratch);
    let mut images = vec![("whiteouts".to_owned(), Layered::new(layout("whiteouts"), &dirs.each_ref().map(sorted)))];
    let base = linked_base(scratch);
    // The directory itself has an entry in the last.
    let over_links = OVER_LINKS.iter().map(|(entries, _)| *entries).chain([&["lib/", "lib/new"][..]]);
    for (number, entries) in over_links.enumerate() {
        let upper = scratch.file(&format!("upper{number}"));
        make(&upper, entries);
        let name = format!("links{number}");
        let layers = [sorted(&base), archive_of(&upper, entries)];
        images.push((name.clone(), Layered::new(layout(&name), &layers)));
    }
    let (all, more) = (scratch.file("all"), scratch.file("more"));
    make_tree(&all);
    fs::remove_file(all.join("socket")).unwrap();
    // Tar escapes what is in this name, and umoci takes it as it is. Containerd copies a symbolic link for each of its
    // names, and has no times before 1970.
    rustix::fs::lremovexattr(all.join("big"), "trusted.a=b%41").unwrap();
    fs::remove_file(all.join("dir/many-links")).unwrap();
    run(Command::new("touch").args(["-d", "@5.25"]).arg(all.join("zeros")));
    make(&more, &["dir/.wh.many", "dir/again", ".wh.null", "pipe", "empty/now-a-folder", ".wh.long-link"]);
    let layers = [tar(&all, &["--sort=name"]), tar(&more, &["--sort=name"])];
    images.push(("kinds".into(), Layered::new(layout("kinds"), &layers)));
    images
}

#[test]
fn a_container_image_is_unpacked_as_by_umoci_and_containerd() {
    if !is_root() || !is_there("umoci") {
        return;
    }
    let scratch = scratch();
    let containerd = is_there("containerd").then(|| Containerd::start(&scratch));
    for (name, image) in images(&scratch) {
        let ours = image.by_xfskit(&scratch);
        let mut others = vec![("umoci", image.by_umoci(&scratch))];
        others.extend(containerd.as_ref().map(|server| ("containerd", image.by_containerd(&scratch, server, &name))));
        for (program, theirs) in others {
            let only = |some: &[String], others: &[String]| -> Vec<String> {
                some.iter().filter(|entry| !others.contains(entry)).cloned().collect()
            };
            let (here, there) = (only(&ours, &theirs), only(&theirs, &ours));
            assert!(here.is_empty() && there.is_empty(), "{name}: {here:#?} here, {there:#?} by {program}");
        }
    }
}

//! Copies to the host that were reported as done survive a power cut. The host's filesystem is an image that the kernel
//! has mounted, and a copy of that image is the state after a power cut.

mod common;

use common::{image, ok, with_input};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xfskit_testkit::{Mount, Scratch, copy_image, kernel_mount, scratch, skip};

struct Host {
    image: PathBuf,
    mount: Mount,
}

fn host(scratch: &Scratch) -> Option<Host> {
    let image = scratch.file("host.img");
    ok("mkfs -q --size 1G IMAGE", &image);
    let mount = kernel_mount(&image)?;
    Some(Host { image, mount })
}

impl Host {
    fn path(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    /// The state after a power cut.
    fn after_power_cut(&self, scratch: &Scratch) -> PathBuf {
        let cut = scratch.file("cut.img");
        copy_image(&self.image, &cut);
        cut
    }
}

fn has(image: &Path, line: &str, contents: &[u8]) -> bool {
    let output = common::xfskit(common::words(line, image));
    output.status.success() && output.stdout == contents
}

#[test]
fn what_was_copied_is_durable() {
    let scratch = scratch();
    let source = image(&scratch);
    let contents = vec![7; 3_000_000];
    ok("mkdir IMAGE /dir", &source);
    assert!(with_input("write IMAGE /dir/file", &source, &contents).status.success());
    let Some(host) = host(&scratch) else { return };
    ok(
        &format!("cp -r IMAGE:/dir {}", host.path("copy").display()).replace("IMAGE", source.to_str().unwrap()),
        &source,
    );
    assert!(has(&host.after_power_cut(&scratch), "cat IMAGE /copy/file", &contents));

    let archive = host.path("a.tar");
    ok(&format!("export IMAGE / -o {}", archive.display()), &source);
    let cut = host.after_power_cut(&scratch);
    assert!(has(&cut, "cat IMAGE /a.tar", &fs::read(&archive).unwrap()));

    let filled = host.path("filled.img");
    ok(&format!("mkfs -q --small --from {} IMAGE", host.path("copy").display()), &filled);
    let cut = host.after_power_cut(&scratch);
    assert!(has(&cut, "cat IMAGE /filled.img", &fs::read(&filled).unwrap()));
}

/// The new name must not be durable before the new contents.
#[test]
fn what_is_replaced_is_old_or_new_at_any_moment() {
    let scratch = scratch();
    let source = image(&scratch);
    let (old, new) = (vec![1; 300_000], vec![2; 300_000]);
    assert!(with_input("write IMAGE /a", &source, &new).status.success());
    assert!(with_input("write IMAGE /b", &source, &vec![3; 200 << 20]).status.success());
    let Some(host) = host(&scratch) else { return };
    let file = host.path("a");
    fs::write(&file, &old).unwrap();
    rustix::fs::syncfs(File::open(&file).unwrap()).unwrap();
    let mut copy = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    let from = format!("{}:/.", source.display());
    let mut copy = copy.args(["cp", "-r", &from]).arg(host.mount.path()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while fs::read(&file).unwrap() == old {
        assert!(Instant::now() < end, "nothing is copied");
    }
    kill_process(Pid::from_child(&copy), Signal::STOP).unwrap();
    // Another program makes the kernel write its journal, and with it the new name.
    File::create(host.path("other")).unwrap().sync_all().unwrap();
    let cut = host.after_power_cut(&scratch);
    kill_process(Pid::from_child(&copy), Signal::CONT).unwrap();
    assert!(copy.wait().unwrap().success());
    assert!(has(&cut, "cat IMAGE /a", &old) || has(&cut, "cat IMAGE /a", &new), "{}", ok("ls -l IMAGE /", &cut));
}

/// The name must be made durable as well as the contents. Filesystems of this kernel write the name along with the
/// contents, so the test looks at the system calls.
#[test]
fn the_name_of_a_new_image_is_made_durable() {
    let scratch = scratch();
    let (image, calls) = (scratch.file("a.img"), scratch.file("calls"));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-e", "trace=fsync,fdatasync", "-o"]).arg(&calls).arg(env!("CARGO_BIN_EXE_xfskit"));
    let Ok(status) = strace.args(["mkfs", "-q", "--size", "512M"]).arg(&image).status() else {
        return skip("this machine has no strace");
    };
    assert!(status.success());
    let calls = fs::read_to_string(&calls).unwrap();
    let folder = format!("<{}>)", scratch.path().canonicalize().unwrap().display());
    let lines: Vec<&str> = calls.lines().collect();
    let name = lines.iter().position(|line| line.contains("fsync(") && line.contains(&folder) && line.ends_with("= 0"));
    let contents = lines.iter().rposition(|line| line.contains("a.img>"));
    assert!(name.is_some() && name > contents, "{calls}");
}

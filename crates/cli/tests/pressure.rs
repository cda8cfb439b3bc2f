//! A server and its clients share 128 MiB of memory, of which the clients dirty much more: the kernel must write back
//! through the server to get memory, and the server must answer although it gets none. All data is right afterwards,
//! no one waits forever, and the image is whole.

mod common;

use common::ok;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{copy_image, reference, scratch, skip};

const LIMIT_BYTES: u64 = 128 << 20;
const CACHE: &str = "cache=32M";
const PATIENCE: Duration = Duration::from_secs(180);
const SEARCHES: usize = 40;
/// Eight files, written and read in four ways; a block that is read with other contents than were written is an error.
const JOBS: &str = "
[global]
rw=randrw
bsrange=4k-256k
size=24m
io_size=32m
verify=crc32c
verify_fatal=1
[cached]
ioengine=psync
numjobs=2
[mapped]
ioengine=mmap
numjobs=2
[direct]
ioengine=psync
direct=1
bsrange=4k-64k
numjobs=2
[synced]
ioengine=psync
fsync=16
numjobs=2
";
/// What stress-ng's filesystem class has that needs neither a module nor minutes.
const STRESSORS: [&str; 12] =
    ["dentry", "dir", "rename", "link", "symlink", "xattr", "utime", "chmod", "fallocate", "seek", "filename", "hdd"];

/// A group of processes with a limit of memory; removed when it is dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// `None`, after printing the reason, where none can be made.
    fn new() -> Option<Self> {
        let name = format!("xfskit-test-{}", std::process::id());
        let unified = Path::new("/sys/fs/cgroup").join(&name);
        let controlled = Path::new("/sys/fs/cgroup/memory").join(&name);
        for (path, limit) in [(unified, "memory.max"), (controlled, "memory.limit_in_bytes")] {
            let parent_is_group = path.parent().is_some_and(|parent| parent.join("cgroup.procs").exists());
            if !parent_is_group || fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self(path);
            if fs::write(group.0.join(limit), LIMIT_BYTES.to_string()).is_ok() {
                return Some(group);
            }
        }
        skip("this user cannot limit the memory of processes by a cgroup");
        None
    }

    /// A program in the group.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ > "$0" && exec "$@""#]).arg(self.0.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The system may take a moment to see that its processes have ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn await_end(child: &mut Child, what: &str) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{what} has not ended after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The server, which is killed if the test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(group: &MemoryGroup, image: &Path, mount: &Path) -> Server {
    let mut command = group.command(env!("CARGO_BIN_EXE_xfskit"));
    command.args(["mount", "-f", "-o", CACHE]).args([image, mount]).stdin(Stdio::null());
    let server = Server(command.spawn().unwrap());
    let begun = Instant::now();
    let is_mounted = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(mount.to_str().unwrap());
    while !is_mounted() {
        assert!(begun.elapsed() < PATIENCE, "it is not mounted");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

fn is_installed(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        skip(&format!("{program} is not installed"));
    }
    there
}

#[test]
fn a_server_without_memory_answers_those_that_take_it() {
    if fs::File::open("/dev/fuse").is_err() {
        return skip("this machine has no /dev/fuse");
    }
    if !is_installed("fio") || !is_installed("stress-ng") {
        return;
    }
    let Some(group) = MemoryGroup::new() else { return };
    // On a disk: an image in memory would take the group's.
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (image, mount) = (folder.path().join("a.img"), folder.path().join("mount"));
    ok("mkfs -q --size 1G IMAGE", &image);
    fs::create_dir(&mount).unwrap();
    let mut server = start(&group, &image, &mount);

    let jobs = folder.path().join("jobs");
    fs::write(&jobs, JOBS).unwrap();
    let mut fio = group
        .command("fio")
        .arg("--output-format=terse")
        .arg("--directory")
        .args([&mount, &jobs])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(await_end(&mut fio, "fio").success(), "fio has read what it had not written");

    let mut stress = group.command("stress-ng");
    stress.args(["--verify", "--timeout", "6", "--hdd-bytes", "32m", "--temp-path"]).arg(&mount);
    for stressor in STRESSORS {
        stress.args([&format!("--{stressor}"), "1"]);
    }
    let mut stress = stress.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut search = group.command("find");
    search.arg(&mount).arg("-ls").stdout(Stdio::null()).stderr(Stdio::null());
    let mut searches: Vec<Child> = (0..SEARCHES).map(|_| search.spawn().unwrap()).collect();
    assert!(await_end(&mut stress, "stress-ng").success(), "stress-ng found an error");
    for search in &mut searches {
        // Names come and go below it.
        await_end(search, "find");
    }

    assert!(server.0.try_wait().unwrap().is_none(), "the server has ended");
    ok(&format!("umount {}", mount.display()), &image);
    assert!(await_end(&mut server.0, "the server").success());
    assert!(ok("check IMAGE", &image).contains("no faults"));
    if let Some(reference) = reference() {
        let scratch = scratch();
        let copy = scratch.file("a.img");
        copy_image(&image, &copy);
        reference.repair_finds_nothing(&copy);
    }
}

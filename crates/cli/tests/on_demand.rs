//! A mount that is made when a program looks at its folder, by the kernel's protocol for autofs, which systemd's
//! automount units speak, too. Only the process group that makes the mount may look at the folder before it is there.

mod common;

use common::mounts::prepared_for_root;
use std::fs;
use std::process::Command;
use xfskit_testkit::skip;

/// Mounts on demand, once: `DIR COMMAND...`, where the command mounts. Who looks is in another process group.
///
/// Source of facts: `include/uapi/linux/auto_fs.h`, `Documentation/filesystems/autofs.rst`.
const DAEMON: &str = r#"
import ctypes, fcntl, os, struct, subprocess, sys
READY, FAIL = 0x9360, 0x9361
directory, command = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
os.setpgid(0, 0)
reads, writes = os.pipe()
options = f"fd={writes},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct"
if libc.mount(b"on-demand", directory.encode(), b"autofs", 0, options.encode()) != 0:
    sys.exit(77)
os.close(writes)
root = os.open(directory, os.O_RDONLY)
look = subprocess.Popen(["cat", directory + "/file"], stdout=subprocess.PIPE, start_new_session=True)
packet = os.read(reads, 4096)
token = struct.unpack_from("=iiI", packet)[2]
try:
    mounted = subprocess.run(command, timeout=30).returncode == 0
except subprocess.TimeoutExpired:
    print("the command does not end", file=sys.stderr)
    mounted = False
fcntl.ioctl(root, READY if mounted else FAIL, token)
os.close(root)
print(look.communicate(timeout=30)[0].decode(), end="")
"#;

#[test]
fn a_mount_on_demand_does_not_wait_for_itself() {
    let Some(prepared) = prepared_for_root() else { return };
    if !fs::read_to_string("/proc/filesystems").unwrap().contains("autofs") {
        return skip("this kernel has no autofs");
    }
    prepared.line("mount IMAGE DIR");
    fs::write(prepared.dir.join("file"), "contents").unwrap();
    prepared.line("umount DIR");
    for options in ["wsync", "threads=1,placement=scheduler"] {
        let mut daemon = Command::new("python3");
        daemon.args(["-c", DAEMON]).arg(&prepared.dir).arg(env!("CARGO_BIN_EXE_xfskit"));
        let Ok(output) = daemon.args(["mount", "-o", options]).arg(&prepared.image).arg(&prepared.dir).output() else {
            return skip("this machine has no python3");
        };
        if output.status.code() == Some(77) {
            return skip("autofs cannot be mounted here");
        }
        let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // Whatever has become of it, nothing is left there.
        let unmounted = Command::new(env!("CARGO_BIN_EXE_xfskit")).arg("umount").arg(&prepared.dir).output().unwrap();
        drop(Command::new("umount").arg("-l").arg(&prepared.dir).output());
        assert!(said == "contents" && unmounted.status.success(), "{said} {error}");
    }
}

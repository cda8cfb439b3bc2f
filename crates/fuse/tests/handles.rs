//! File handles, as an NFS server uses them: they remain valid after the kernel forgets the inode, and after a remount.

mod common;

use common::{has, mounted, serve};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Prints a handle of a path, or opens one and prints its entries or contents.
const SCRIPT: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def fail():
    sys.exit(os.strerror(ctypes.get_errno()))
handle = Handle(bytes=128)
if sys.argv[1] == "make":
    mount = ctypes.c_int()
    if libc.name_to_handle_at(-100, sys.argv[2].encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
        fail()
    print(handle.kind, bytes(handle.data[:handle.bytes]).hex())
else:
    data = bytes.fromhex(sys.argv[4])
    handle.bytes, handle.kind = len(data), int(sys.argv[3])
    handle.data[:len(data)] = data
    root = os.open(sys.argv[2], os.O_RDONLY)
    file = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    if file < 0:
        fail()
    if os.path.isdir(f"/proc/self/fd/{file}"):
        print(" ".join(sorted(os.listdir(file))))
    else:
        print(os.read(file, 100).decode())
"#;

fn python(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("python3").arg("-c").arg(SCRIPT).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// To open a directory by its handle, the kernel looks up the parent of the directory by number.
#[test]
fn handles_outlive_a_remount() {
    if !has("python3") {
        return;
    }
    let Some(mut fixture) = mounted() else { return };
    fs::create_dir_all(fixture.path("a/b/c")).unwrap();
    fs::write(fixture.path("a/b/file"), "contents").unwrap();
    fs::write(fixture.path("a/b/gone"), "contents").unwrap();
    fs::create_dir(fixture.path("a/empty")).unwrap();
    let root = fixture.path("").to_str().unwrap().to_owned();
    let make = |name: &str| python(&["make", fixture.path(name).to_str().unwrap()]).unwrap();
    let handles = ["a", "a/b", "a/b/c", "a/b/file", "a/b/gone", "a/empty"].map(make);
    let number = fs::metadata(&root).unwrap().ino();
    fs::remove_file(fixture.path("a/b/gone")).unwrap();
    fs::remove_dir(fixture.path("a/empty")).unwrap();
    fixture.mount.stop().unwrap();
    fixture.mount = serve(&fixture.scratch);
    let open = |n: usize| {
        let (kind, data) = handles[n].split_once(' ').unwrap();
        python(&["open", &root, kind, data])
    };
    assert_eq!(open(1).as_deref(), Ok("c file"));
    assert_eq!(open(2).as_deref(), Ok(""));
    assert_eq!(open(0).as_deref(), Ok("b"));
    assert_eq!(open(3).as_deref(), Ok("contents"));
    for n in [4, 5] {
        assert!(open(n).unwrap_err().contains("Stale"), "{:?}", open(n));
    }
    assert_eq!(fs::metadata(&root).unwrap().ino(), number);
    assert_eq!(fs::read_to_string(fixture.path("a/b/file")).unwrap(), "contents");
    fixture.judge(|_| ());
}

//! Flags, projects and hints, with the requests of chattr and xfs_io: the same results as on the kernel's XFS, and the
//! same values in the image.

mod common;

use common::{has, mounted};
use std::path::Path;
use std::process::Command;
use xfskit_testkit::kernel_mount;

/// Makes a tree, sets every property on each of its parts in turn, and prints every result.
const SCRIPT: &str = r#"
import fcntl, os, struct, sys
GET, SET, GET_OLD, SET_OLD = 0x801c581f, 0x401c5820, 0x80086601, 0x40086602
os.chdir(sys.argv[1])
os.mkdir("dir")
open("empty", "w").close()
with open("full", "w") as file:
    file.write("x" * 9000)
    file.flush()
    os.fsync(file.fileno())
os.chmod("full", 0o6755)
def get(path):
    file = os.open(path, os.O_RDONLY)
    answer = fcntl.ioctl(file, GET, bytes(28))
    old = struct.unpack("I", fcntl.ioctl(file, GET_OLD, bytes(8))[:4])[0]
    os.close(file)
    words = struct.unpack("5I", answer[:20])
    # Whether there are attributes is for the format to say, and the number of extents for others.
    mode = os.stat(path).st_mode
    return "%x %d %d %d, %x, mode %o" % (words[0] & 0x7fffffff, words[1], words[3], words[4], old, mode)
def attempt(path, request, data):
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(file, request, data)
        return "done"
    except OSError as error:
        return os.strerror(error.errno)
    finally:
        os.close(file)
def set_new(path, xflags, extsize, project, cowextsize):
    return attempt(path, SET, struct.pack("5I", xflags, extsize, 0, project, cowextsize) + bytes(8))
FLAGS = [0, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x10000, 0x1, 0x2, 0x7ff8]
HINTS = [0, 1, 4096, 16384, 65536 + 4096, 1 << 30]
for path in ["dir", "empty", "full"]:
    for xflags in FLAGS:
        for extsize in HINTS if xflags in (0, 0x800, 0x1000) else [0]:
            for cowextsize in HINTS if xflags in (0, 0x10000) else [0]:
                for project in [0, 7]:
                    what = "%s %x %d %d %d" % (path, xflags, extsize, project, cowextsize)
                    print(what, "->", set_new(path, xflags, extsize, project, cowextsize), get(path))
    for old in [0x8, 0x10, 0x20, 0x40, 0x80, 0x20000000, 0x1, 0]:
        print(path, "%x" % old, "->", attempt(path, SET_OLD, struct.pack("Q", old)), get(path))
set_new("dir", 0x200 | 0x1000 | 0x20, 16384, 9, 0)
set_new("empty", 0x800 | 0x40, 65536, 4000000000, 0)
set_new("full", 0x80 | 0x10000, 0, 3, 16384)
open("dir/file", "w").close()
os.mkdir("dir/sub")
for path in ["dir", "empty", "full", "dir/file", "dir/sub"]:
    print(path, get(path))
try:
    os.link("full", "dir/link")
except OSError as error:
    print(os.strerror(error.errno))
"#;

fn run(dir: &Path) -> String {
    let output = Command::new("python3").arg("-c").arg(SCRIPT).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn flags_are_set_and_refused_as_by_the_kernel() {
    if !has("python3") {
        return;
    }
    let (Some(fixture), Some(reference)) = (mounted(), xfskit_testkit::reference()) else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("kernel.img", 320 << 20);
    reference.mkfs(&image, &[]);
    let Some(kernel) = kernel_mount(&image) else { return };
    let theirs = run(kernel.path());
    let ours = run(&fixture.path(""));
    let differ: Vec<_> = theirs.lines().zip(ours.lines()).filter(|(theirs, ours)| theirs != ours).collect();
    assert!(
        differ.is_empty(),
        "{} lines differ, the kernel's and ours:\n{:#?}",
        differ.len(),
        &differ[..differ.len().min(20)]
    );
    assert_eq!(theirs.lines().count(), ours.lines().count());
    kernel.unmount();
    fixture.judge(|kernel| {
        let get = "import fcntl, os, struct, sys\n\
                   file = os.open(sys.argv[1], os.O_RDONLY)\n\
                   words = struct.unpack('5I', fcntl.ioctl(file, 0x801c581f, bytes(28))[:20])\n\
                   print('%x %d %d %d' % (words[0] & 0x7fffffff, words[1], words[3], words[4]))";
        let of = |path: &str| {
            let output = Command::new("python3").args(["-c", get]).arg(kernel.join(path)).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let found = ["dir", "empty", "full", "dir/file", "dir/sub"].map(of);
        assert_eq!(found[1], "840 65536 4000000000 0");
        assert!(found[3].ends_with(" 16384 9 0") && found[4].ends_with(" 16384 9 0"), "{found:?}");
    });
}

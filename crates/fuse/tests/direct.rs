//! Reads through the kernel's cache during asynchronous direct writes.

mod common;

use common::{has, mounted};
use std::fs::File;
use std::io::Write;
use std::process::Command;

/// Writes a block with io_submit, over and over, while a thread reads it through the cache. A read after a completed
/// write must return what was written.
const SCRIPT: &str = r#"
import ctypes, mmap, os, platform, sys, threading
setup, getevents, submit = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
class Block(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("code", ctypes.c_uint16),
                ("priority", ctypes.c_int16), ("file", ctypes.c_uint32), ("buffer", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("offset", ctypes.c_int64), ("reserved", ctypes.c_uint64), ("more", ctypes.c_uint32), ("event", ctypes.c_uint32)]
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
context = ctypes.c_uint64(0)
call(setup, 8, ctypes.byref(context))
SIZE = 65536
direct = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
cached = os.open(sys.argv[1], os.O_RDONLY)
memory = mmap.mmap(-1, SIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
stop = threading.Event()
def read():
    while not stop.is_set():
        os.pread(cached, SIZE, 0)
readers = [threading.Thread(target=read) for _ in range(2)]
for reader in readers:
    reader.start()
stale = 0
for n in range(1500):
    memory[:] = bytes([n % 251]) * SIZE
    block = Block(code=1, file=direct, buffer=address, bytes=SIZE, offset=0)
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    call(submit, context, 1, blocks)
    events = (ctypes.c_uint64 * 4)()
    call(getevents, context, 1, 1, events, None)
    if ctypes.c_int64(events[2]).value != SIZE:
        sys.exit(f"written: {ctypes.c_int64(events[2]).value}")
    if os.pread(cached, SIZE, 0) != memory[:]:
        stale += 1
stop.set()
for reader in readers:
    reader.join()
print(stale)
"#;

/// The kernel drops cached pages when such a write begins, but not when it completes. The server must make it drop the
/// pages that were read in between.
#[test]
fn what_was_read_during_an_asynchronous_write_is_not_read_after_it() {
    if !has("python3") {
        return;
    }
    let Some(fixture) = mounted() else { return };
    let path = fixture.path("file");
    File::create(&path).unwrap().write_all(&vec![1; 65536]).unwrap();
    let output = Command::new("python3").arg("-c").arg(SCRIPT).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0", "stale reads");
    fixture.judge(|_| ());
}

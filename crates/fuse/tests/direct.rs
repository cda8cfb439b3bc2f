//! Reads through the kernel's cache during asynchronous direct writes.

mod common;

use common::{has, mounted};
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

/// The calls of asynchronous I/O, which Python does not have: what both programs begin with.
const CALLS: &str = r#"
import ctypes, mmap, os, platform, sys, threading
setup, getevents, submit = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
class Block(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("code", ctypes.c_uint16),
                ("priority", ctypes.c_int16), ("file", ctypes.c_uint32), ("buffer", ctypes.c_uint64),
                ("bytes", ctypes.c_uint64),
                ("offset", ctypes.c_int64), ("reserved", ctypes.c_uint64), ("more", ctypes.c_uint32),
                ("event", ctypes.c_uint32)]
"#;

/// Writes a block with io_submit, over and over, while a thread reads it through the cache. A read after a completed
/// write must return what was written.
const SCRIPT: &str = r#"
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
    let output = Command::new("python3").arg("-c").arg([CALLS, SCRIPT].concat()).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0", "stale reads");
    fixture.judge(|_| ());
}

/// As many direct writes as the kernel sends without waiting, to a page that a thread makes dirty in the cache. The
/// server makes the kernel write that page back before it answers, by a write that takes one of the same places.
const MANY: &str = r#"
context = ctypes.c_uint64(0)
COUNT, PAGE = 96, 4096
if libc.syscall(setup, COUNT, ctypes.byref(context)) < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
direct = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
cached = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(-1, PAGE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
stop = threading.Event()
def dirty():
    while not stop.is_set():
        os.pwrite(cached, bytes(PAGE), 0)
writer = threading.Thread(target=dirty)
writer.start()
blocks = [Block(code=1, file=direct, buffer=address, bytes=PAGE, offset=0) for _ in range(COUNT)]
pointers = (ctypes.c_void_p * COUNT)(*[ctypes.addressof(block) for block in blocks])
events = (ctypes.c_uint64 * (4 * COUNT))()
for _ in range(100):
    sent = libc.syscall(submit, context, COUNT, pointers)
    done = 0
    while done < sent:
        done += libc.syscall(getevents, context, 1, sent - done, events, None)
stop.set()
writer.join()
"#;

#[test]
fn many_direct_writes_to_a_dirty_page_do_not_wait_for_each_other() {
    if !has("python3") {
        return;
    }
    let Some(fixture) = mounted() else { return };
    let path = fixture.path("file");
    File::create(&path).unwrap().write_all(&[1; 4096]).unwrap();
    std::fs::read(&path).unwrap();
    let mut child = Command::new("python3").arg("-c").arg([CALLS, MANY].concat()).arg(&path).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match child.try_wait().unwrap() {
            Some(status) => break assert!(status.success(), "{status}"),
            None if Instant::now() > end => {
                // It ends the connection, and so all who wait.
                let _ = Command::new("umount").arg("-f").arg(fixture.path("")).status();
                panic!("the writes wait for each other");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    fixture.judge(|_| ());
}

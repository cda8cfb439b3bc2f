//! What a process can do after it has given up its rights: each try runs in a process of its own, this same program.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use xfskit_sandbox::{Calls, FORBIDDEN, FileUse, IoUring, More, Needs, confine_thread, filter_calls};

const TRY: &str = "XFSKIT_TRY";
const FOLDER: &str = "XFSKIT_TRY_FOLDER";
const SIGSYS: i32 = 31;
/// Exit codes of a try.
const REFUSED: i32 = 10;
const DONE: i32 = 11;

type Try = fn(&Path) -> std::io::Result<()>;

/// What is tried, with which calls left, and how it must end: `None` for killed by the filter.
const TRIES: &[(&str, Calls, Option<i32>, Try)] = &[
    ("reads the file", Calls::Files, Some(DONE), |at| fs::read(at.join("read")).map(drop)),
    ("writes the file that is read", Calls::Files, Some(REFUSED), |at| fs::write(at.join("read"), "x")),
    ("reads another file", Calls::Files, Some(REFUSED), |at| fs::read(at.join("other")).map(drop)),
    ("lists a folder", Calls::Files, Some(REFUSED), |_| fs::read_dir("/etc").map(drop)),
    ("lists what is only listed", Calls::Files, Some(DONE), |at| fs::read_dir(at.join("listed")).map(drop)),
    ("reads what is only listed", Calls::Files, Some(REFUSED), |at| fs::read(at.join("listed/file")).map(drop)),
    ("writes the file that is written", Calls::Files, Some(DONE), |at| fs::write(at.join("written"), "x")),
    ("makes a file", Calls::Trees, Some(REFUSED), |at| File::create_new(at.join("new")).map(drop)),
    ("makes a file where that is allowed", Calls::Trees, Some(DONE), |at| {
        fs::write(at.join("tree/new"), "x")?;
        fs::rename(at.join("tree/new"), at.join("tree/newer"))?;
        fs::create_dir(at.join("tree/dir"))?;
        fs::remove_dir(at.join("tree/dir"))?;
        fs::remove_file(at.join("tree/newer"))
    }),
    ("makes a folder without those calls", Calls::Files, Some(REFUSED), |at| fs::create_dir(at.join("tree/dir"))),
    ("opens a file with what is open alone", Calls::Contents, Some(REFUSED), |at| fs::read(at.join("read")).map(drop)),
    ("has threads with what is open alone", Calls::Contents, Some(DONE), |_| {
        std::thread::spawn(|| vec![7; 10 << 20].len()).join().map(drop).map_err(|_| std::io::Error::other("panicked"))
    }),
    ("opens again by another name", Calls::Files, Some(DONE), |at| fs::read(at.join("renamed")).map(drop)),
    ("opens what has taken the name of an open file", Calls::Files, Some(REFUSED), |at| {
        fs::read(at.join("open")).map(drop)
    }),
    ("starts a program", Calls::Trees, Some(REFUSED), |_| Command::new("/bin/true").status().map(drop)),
    ("connects", Calls::Trees, None, |_| TcpStream::connect("127.0.0.1:9").map(drop)),
    ("has threads", Calls::Files, Some(DONE), |_| {
        std::thread::spawn(|| vec![7; 10 << 20].len()).join().map(drop).map_err(|_| std::io::Error::other("panicked"))
    }),
    ("uses what it has open", Calls::Serve(IoUring::Not), Some(DONE), |_| {
        let mut file: File = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC)?.into();
        file.write_all(b"contents")?;
        file.rewind()?;
        file.read_to_string(&mut String::new())?;
        file.sync_all()
    }),
    ("says where its thread runs", Calls::Serve(IoUring::Not), Some(DONE), |_| bind(0)),
    ("says where a named thread runs", Calls::Serve(IoUring::Not), Some(DONE), |_| bind(gettid())),
    ("says where another thread runs", Calls::Serve(IoUring::Not), Some(REFUSED), |_| bind(std::process::id().into())),
    ("says where another process runs", Calls::Serve(IoUring::Not), Some(REFUSED), |_| {
        bind(std::os::unix::process::parent_id().into())
    }),
    ("says how another process runs", Calls::Serve(IoUring::Not), Some(REFUSED), |_| {
        let priority = Box::leak(Box::new(0_i64));
        let parent = i64::from(std::os::unix::process::parent_id());
        let arguments = [parent, libc::SCHED_IDLE.into(), priority as *const i64 as i64, 0, 0, 0];
        returned(libc::SYS_sched_setscheduler, arguments).map(drop)
    }),
    ("says where it runs without being a server", Calls::Files, Some(REFUSED), |_| bind(0)),
    ("changes the permissions of a file that it reads", Calls::Outputs, Some(REFUSED), |at| {
        use std::os::unix::fs::PermissionsExt;
        File::open(at.join("read"))?.set_permissions(fs::Permissions::from_mode(0o666))
    }),
    ("gives a file its permissions", Calls::Outputs, Some(DONE), |at| {
        use std::os::unix::fs::PermissionsExt;
        File::open(at.join("written"))?.set_permissions(fs::Permissions::from_mode(0o600))
    }),
    ("sets flags of a file that it reads", Calls::Files, Some(REFUSED), |at| {
        let file = File::open(at.join("read"))?;
        let flags = Box::leak(Box::new(0x40_i64)); // no dump
        let request = 0x4008_6602;
        returned(libc::SYS_ioctl, [i64::from(file.as_raw_fd()), request, flags as *const i64 as i64, 0, 0, 0]).map(drop)
    }),
    ("names a process that gets a signal", Calls::Files, Some(REFUSED), |_| {
        let own = i64::from(std::process::id());
        returned(libc::SYS_fcntl, [0, 10, 9, 0, 0, 0])?;
        returned(libc::SYS_fcntl, [0, i64::from(libc::F_SETOWN), own, 0, 0, 0]).map(drop)
    }),
    ("sets a limit of its own", Calls::Files, Some(REFUSED), |_| {
        let place = 0x7_0000_0000;
        let flags = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
        returned(libc::SYS_mmap, [place, 4096, i64::from(libc::PROT_READ | libc::PROT_WRITE), flags, -1, 0])?;
        returned(libc::SYS_prlimit64, [0, i64::from(libc::RLIMIT_NOFILE), place, 0, 0, 0]).map(drop)
    }),
    ("aborts", Calls::Files, Some(-6), |_| std::process::abort()),
    ("gets capabilities back", Calls::Files, Some(DONE), |_| {
        let status = fs::read_to_string("/proc/thread-self/status")?;
        let has_none = ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"].iter().all(|set| {
            let line = status.lines().find_map(|line| line.strip_prefix(set));
            line.is_some_and(|line| line.trim().trim_start_matches('0').is_empty())
        });
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        let has_groups = rustix::process::geteuid().is_root() && !groups.is_some_and(|groups| groups.trim().is_empty());
        if has_groups {
            return Err(std::io::Error::other(status));
        }
        let is_sealed = status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2");
        if has_none && is_sealed { Ok(()) } else { Err(std::io::Error::other(status)) }
    }),
];

fn needs(at: &Path, calls: Calls) -> Needs {
    let mut needs = Needs::new(calls);
    needs.files = vec![
        (at.join("read"), FileUse::Read),
        (at.join("written"), FileUse::Write),
        (at.join("tree"), FileUse::Change),
        (at.join("listed"), FileUse::List),
        ("/proc/thread-self/status".into(), FileUse::Read),
        (at.join("missing"), FileUse::Read),
    ];
    // Its name is exchanged when it is open.
    let open = File::open(at.join("open")).unwrap();
    fs::rename(at.join("open"), at.join("renamed")).unwrap();
    fs::write(at.join("open"), "another").unwrap();
    needs.open_files.push((open, FileUse::Read));
    needs.threads.push(gettid() as u32);
    needs
}

fn enter(at: &Path, calls: Calls) {
    let needs = needs(at, calls);
    let confined = confine_thread(&needs).unwrap().and(filter_calls(&needs).unwrap());
    assert!(confined.seccomp && confined.landlock.is_some(), "{confined}");
}

/// What a connection to a server leaves, and no more; `None` for killed.
const WITH_NETWORK: &[(&str, Option<i32>, Try)] = &[
    ("connects to its server", Some(DONE), |at| TcpStream::connect(("127.0.0.1", port(at, "server"))).map(drop)),
    ("looks a name up", Some(DONE), |_| std::net::ToSocketAddrs::to_socket_addrs("localhost:1").map(drop)),
    ("connects to another port", Some(REFUSED), |at| TcpStream::connect(("127.0.0.1", port(at, "other"))).map(drop)),
    ("connects to another port with the first bytes", Some(REFUSED), |at| fast_open(port(at, "other"))),
    ("connects to another port by MPTCP", Some(REFUSED), |at| {
        let socket = socket(libc::SOCK_STREAM, libc::IPPROTO_MPTCP)?;
        let (address, length) = local(port(at, "other"));
        returned(libc::SYS_connect, [i64::from(socket), address, length, 0, 0, 0]).map(drop)
    }),
];

/// The process of a try.
#[test]
fn a_try() {
    let (Ok(what), Some(at)) = (std::env::var(TRY), std::env::var_os(FOLDER)) else { return };
    let at = PathBuf::from(at);
    // This thread is not the process's first one, which waits; what belongs to threads is this one's alone.
    if let Some(number) = what.strip_prefix("call ") {
        enter(&at, Calls::Trees);
        make_call(number.parse().unwrap());
        std::process::exit(DONE);
    }
    if let Some((_, _, attempt)) = WITH_NETWORK.iter().find(|(name, ..)| *name == what) {
        let mut needs = Needs::new(Calls::Files);
        needs.ports.push(port(&at, "server"));
        needs.more.push(More::ConnectTcp);
        let look_up = ["/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/host.conf", "/lib", "/usr/lib"];
        needs.files.extend(look_up.map(|path| (path.into(), FileUse::Read)));
        let _ = confine_thread(&needs).unwrap().and(filter_calls(&needs).unwrap());
        report(attempt(&at));
    }
    let (_, calls, _, attempt) = TRIES.iter().find(|(name, ..)| *name == what).unwrap();
    enter(&at, *calls);
    report(attempt(&at));
}

fn report(tried: std::io::Result<()>) -> ! {
    match tried {
        Ok(()) => std::process::exit(DONE),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => std::process::exit(REFUSED),
        Err(error) => panic!("{error}"),
    }
}

#[allow(unsafe_code)]
fn make_call(number: i64) {
    // SAFETY: the kernel ends the process instead of making the call; with these arguments none would write to memory.
    unsafe { libc::syscall(number, -1, 0, 0, 0, 0, 0) };
}

fn port(at: &Path, name: &str) -> u16 {
    fs::metadata(at.join(name)).map(|data| data.len() as u16).unwrap()
}

/// Calls the system, whose errors come as errors.
#[allow(unsafe_code)]
fn returned(number: i64, [a, b, c, d, e, f]: [i64; 6]) -> std::io::Result<i64> {
    // SAFETY: each caller gives addresses of memory that lives until this returns, as long as the call reads it.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Err(std::io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn gettid() -> i64 {
    rustix::thread::gettid().as_raw_nonzero().get().into()
}

/// Lets a thread run everywhere.
fn bind(thread: i64) -> std::io::Result<()> {
    let all = Box::leak(Box::new([u64::MAX; 16]));
    returned(libc::SYS_sched_setaffinity, [thread, 128, all.as_ptr() as i64, 0, 0, 0]).map(drop)
}

fn socket(kind: i32, protocol: i32) -> std::io::Result<i32> {
    let arguments = [libc::AF_INET, kind, protocol, 0, 0, 0].map(i64::from);
    returned(libc::SYS_socket, arguments).map(|socket| socket as i32)
}

/// The address of a port of this host, in memory that stays.
fn local(port: u16) -> (i64, i64) {
    let mut bytes = vec![0_u8; 16];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
    (bytes.leak().as_ptr() as i64, 16)
}

fn fast_open(port: u16) -> std::io::Result<()> {
    let socket = socket(libc::SOCK_STREAM, 0)?;
    let (address, length) = local(port);
    let data = b"x";
    let (data, flags) = (data.as_ptr() as i64, i64::from(libc::MSG_FASTOPEN));
    returned(libc::SYS_sendto, [i64::from(socket), data, 1, flags, address, length]).map(drop)
}

fn outcome(what: &str, at: &Path) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_try", "--nocapture"]).env(TRY, what).env(FOLDER, at);
    let output = command.output().unwrap();
    if output.status.code() == Some(101) {
        panic!("{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["read", "written", "other", "open"] {
        fs::write(folder.path().join(name), "contents").unwrap();
    }
    fs::create_dir(folder.path().join("tree")).unwrap();
    fs::create_dir(folder.path().join("listed")).unwrap();
    fs::write(folder.path().join("listed/file"), "contents").unwrap();
    folder
}

/// Whether this kernel has both; without them nothing can be looked at.
fn is_offered() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let offered = status.contains("Seccomp:") && Path::new("/proc/sys/kernel/seccomp").exists();
    if !offered {
        println!("skipped: this kernel has no seccomp");
    }
    offered
}

#[test]
fn what_was_given_up_is_refused_and_the_rest_works() {
    if !is_offered() {
        return;
    }
    let folder = folder();
    for (what, _, expected, _) in TRIES {
        let status = outcome(what, folder.path());
        match expected {
            Some(code) if *code < 0 => assert_eq!(status.signal(), Some(-code), "{what}"),
            Some(code) => assert_eq!(status.code(), Some(*code), "{what}: {status}"),
            None => assert_eq!(status.signal(), Some(SIGSYS), "{what}: {status}"),
        }
    }
    assert!(!folder.path().join("new").exists());
    assert_eq!(fs::read(folder.path().join("read")).unwrap(), b"contents");
}

#[test]
fn every_forbidden_call_ends_the_process() {
    if !is_offered() {
        return;
    }
    let folder = folder();
    for call in FORBIDDEN {
        let status = outcome(&format!("call {call}"), folder.path());
        assert_eq!(status.signal(), Some(SIGSYS), "call {call}: {status}");
    }
}

/// Landlock's rules are of TCP ports, and of connect(2): there are other ways to a port.
#[test]
fn a_connection_is_to_its_server_alone() {
    if !is_offered() {
        return;
    }
    let folder = folder();
    let listeners = ["server", "other"].map(|name| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        File::create(folder.path().join(name)).unwrap().set_len(port.into()).unwrap();
        listener
    });
    for (what, expected, _) in WITH_NETWORK {
        assert_eq!(outcome(what, folder.path()).code(), *expected, "{what}");
    }
    drop(listeners);
}

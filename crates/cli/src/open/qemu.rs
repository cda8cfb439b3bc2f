//! Virtual disks in formats that are not read here: qemu-nbd reads them, if it is installed.
//!
//! ```text
//! command, mount ──starts──▶ watcher ──starts──▶ qemu process, which becomes qemu-nbd
//!   a connected socket  ◀──── the disk, by NBD ────▶ its listening end, and the files of the disk as open files
//!   a lifeline          ◀──▶ ends what it has started when the other end is closed
//! ```
//! Watcher and process are this program by the name `xfskit-qemu`. The process keeps the right to open the files of the
//! disk, which were opened and locked here, and to run qemu-nbd with its libraries, and no others; it has no TCP. What
//! each file is, it is told: it looks for no format, and follows no name that a file contains.
//!
//! The socket is connected before the process is started, and has no name any more then: nobody else can connect, and
//! nothing is left behind. qemu-nbd ends when the connection does. The watcher sees to it that it ends with the
//! command, however that ends: a signal for the death of a parent does not leave the sandbox of one that is confined.
//!
//! docs/design/sandbox.md says what is promised.

use super::unread::stored_bytes;
use crate::operand::canonical_file;
use crate::output::causes::Reported;
use crate::output::error::{CommandError, Context, Result, bail};
use rustix::fs::Mode;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal, set_parent_process_death_signal, setsid,
};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, stdin, stdout};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_disk::{Container, DiskError, Foreign, Format, Unread};
use xfskit_nbd::{NbdDevice, Options, Writers};
use xfskit_sandbox::{Calls, FileUse, Needs, confine_thread};

/// The name by which the program is called.
pub const NAME: &str = "xfskit-qemu";
const PROGRAM: &str = "qemu-nbd";
/// The first argument of the watcher; that of the process is the number of the watcher.
const WATCHER: &str = "watcher";
/// How long qemu-nbd may take to end when the command has ended.
const TIME_TO_END_ALONE: Duration = Duration::from_secs(2);
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Where programs are looked for if the environment does not say it.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Where a program has its libraries.
const LIBRARIES: [&str; 7] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/local/lib", "/etc/ld.so.cache"];
/// By systemd's rule, a program that is started with sockets has the first as this file.
const FIRST_SOCKET: i32 = 3;
/// The files of a disk have higher numbers.
const FIRST_FILE: i32 = 10;
/// How long it may take to write what it has in memory, and how often is looked whether it has.
const MOST_TIME_TO_END: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The most that it says of an error.
const MOST_ERROR_BYTES: u64 = 4096;

/// Whether other programs may be started to read a virtual disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPrograms {
    /// Where they are installed.
    MayHelp,
    /// The user wants none.
    LeftOut,
}

/// The disks that qemu-nbd reads for this process.
pub struct Helpers {
    others: OtherPrograms,
    served: Mutex<Vec<Served>>,
}

/// A disk that qemu-nbd reads. It is locked until this process ends.
struct Served {
    path: PathBuf,
    access: Access,
    format: &'static str,
    disk: Unread,
    /// Until it is used.
    socket: Option<UnixStream>,
    /// The same socket, by which the connection is ended.
    end: UnixStream,
    /// The watcher.
    process: Child,
    /// Closed, it ends the watcher.
    lifeline: UnixStream,
    device: Option<Arc<dyn BlockDevice>>,
}

impl Helpers {
    /// None is started yet.
    pub fn new(others: OtherPrograms) -> Self {
        Self { others, served: Mutex::default() }
    }

    fn served(&self) -> MutexGuard<'_, Vec<Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The option for a program that is started to do the same, if it was given.
    pub fn option(&self) -> Option<&'static str> {
        (self.others == OtherPrograms::LeftOut).then_some("--no-helpers")
    }

    fn find<T>(&self, path: &Path, take: impl FnOnce(&mut Served) -> T) -> Option<T> {
        let path = canonical_file(path);
        self.served().iter_mut().find(|served| served.path == path).map(take)
    }

    /// Whether qemu-nbd reads a disk already, and writes it if that is asked for.
    pub fn is_served(&self, path: &Path, access: Access) -> bool {
        self.find(path, |served| access != Access::Write || served.access == Access::Write) == Some(true)
    }

    /// What the files of a disk that qemu-nbd reads have of the host's storage.
    pub fn stored_bytes(&self, path: &Path) -> Option<u64> {
        self.find(path, |served| stored_bytes(&served.disk))
    }

    /// The files in other folders that such a disk names.
    pub fn elsewhere(&self, path: &Path) -> Vec<PathBuf> {
        self.find(path, |served| served.disk.elsewhere().collect()).unwrap_or_default()
    }

    /// Has a disk read by qemu-nbd if it is one that is not read here; gives it back otherwise, and where there is no
    /// qemu-nbd. This process must still have the right to start others.
    ///
    /// # Errors
    /// Those of starting it.
    pub fn serve(&self, path: &Path, disk: Unread, access: Access) -> Result<Result<(), Unread>> {
        let (Some(foreign), OtherPrograms::MayHelp) = (disk.foreign().cloned(), self.others) else {
            return Ok(Err(disk));
        };
        let Some(program) = program() else { return Ok(Err(disk)) };
        let started = start(&program, &disk, &foreign, access).and_then(|(socket, process, lifeline)| {
            let end = socket.try_clone()?;
            Ok((socket, end, process, lifeline))
        });
        let (socket, end, process, lifeline) =
            started.with_context(|| format!("{}: starting {PROGRAM}", path.display()))?;
        self.served().push(Served {
            path: canonical_file(path),
            access,
            format: foreign.drivers[0],
            disk,
            socket: Some(socket),
            end,
            process,
            lifeline,
            device: None,
        });
        Ok(Ok(()))
    }

    /// Ends what was started, before this process ends: what was written is complete then. Nothing is read or written
    /// any more.
    pub fn end(&self) {
        for served in &mut *self.served() {
            // One that has ended before is waited for, too.
            let _ = served.end.shutdown(Shutdown::Both);
            let began = Instant::now();
            while matches!(served.process.try_wait(), Ok(None)) && began.elapsed() < MOST_TIME_TO_END {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// The disk that qemu-nbd reads.
    ///
    /// # Errors
    /// What it says of a disk that it does not read.
    pub fn container(&self, path: &Path) -> Result<Container> {
        let found = self.find(path, |served| served.container(path));
        found.unwrap_or_else(|| bail!("{}: it was not opened before", path.display()))
    }
}

/// The program, if it is installed.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    std::env::split_paths(&path).map(|dir| dir.join(PROGRAM)).find(|program| program.is_file())
}

fn start(program: &Path, disk: &Unread, foreign: &Foreign, access: Access) -> Result<(UnixStream, Child, UnixStream)> {
    let (listener, socket) = connected_pair()?;
    let (lifeline, theirs) = UnixStream::pair()?;
    // The process inherits these; they are closed here when it has started.
    let handle = |file: &FileDevice| -> Result<(OwnedFd, bool)> {
        let again = file.try_clone_file()?;
        let is_device = again.metadata()?.file_type().is_block_device();
        let inherited = fcntl_dupfd_cloexec(&again, FIRST_FILE)?;
        fcntl_setfd(&inherited, FdFlags::empty())?;
        Ok((inherited, is_device))
    };
    let files = std::iter::once(disk.file()).chain(disk.below().map(|(_, file)| file));
    let files = files.map(handle).collect::<Result<Vec<_>>>()?;
    let access = if access == Access::Write { "write" } else { "read" };
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0(NAME).arg(WATCHER).arg(program).arg(access).arg(chain(&files, foreign, access == "write").to_string());
    command.args(files.iter().map(|(file, _)| format!("/proc/self/fd/{}", file.as_raw_fd())));
    command.env_clear().stdin(OwnedFd::from(listener)).stdout(OwnedFd::from(theirs)).stderr(Stdio::piped());
    Ok((socket, command.spawn()?, lifeline))
}

/// A socket that listens, without a name, and one that is connected to it.
fn connected_pair() -> Result<(UnixListener, UnixStream)> {
    let dir = std::env::temp_dir().join(format!("xfskit-{}", uuid::Uuid::new_v4().simple()));
    rustix::fs::mkdir(&dir, Mode::RWXU).with_context(|| dir.display().to_string())?;
    let name = dir.join("nbd");
    let pair = UnixListener::bind(&name).and_then(|listener| Ok((listener, UnixStream::connect(&name)?)));
    // One that is not there cannot be removed.
    let _ = std::fs::remove_file(&name);
    let _ = std::fs::remove_dir(&dir);
    Ok(pair?)
}

/// What qemu-nbd is told of the files, from the last one up.
fn chain(files: &[(OwnedFd, bool)], foreign: &Foreign, writes: bool) -> Value {
    let mut below = Value::Null;
    for (number, ((file, is_device), driver)) in files.iter().zip(&foreign.drivers).enumerate().rev() {
        let is_read_only = !writes || number > 0;
        let mut node = json!({
            "driver": driver,
            "read-only": is_read_only,
            "file": {
                "driver": if *is_device { "host_device" } else { "file" },
                "filename": format!("/proc/self/fd/{}", file.as_raw_fd()),
                "read-only": is_read_only,
                // The locks are those of the process that has opened them.
                "locking": "off",
                "discard": "unmap",
            },
        });
        if !is_read_only {
            node["discard"] = json!("unmap");
        }
        // Drivers that know of no file below refuse to be told that there is none.
        if matches!(*driver, "qcow2" | "qed" | "vmdk") {
            node["backing"] = below;
        }
        below = node;
    }
    below
}

/// Is the watcher, or the process that becomes qemu-nbd.
pub fn run() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let first = args.next().ok_or(Reported(1))?;
    let args: Vec<OsString> = args.collect();
    if first == WATCHER {
        return watch(&args);
    }
    let [program, access, chain, files @ ..] = args.as_slice() else { return Err(Reported(1).into()) };
    set_parent_process_death_signal(Some(Signal::KILL)).context("the end of the watcher")?;
    // One that has ended before that sends no signal.
    if getppid().is_none_or(|parent| first != parent.to_string().as_str()) {
        return Err(Reported(1).into());
    }
    become_program(Path::new(program), access == "write", &chain.to_string_lossy(), files)
}

/// Starts the process, and ends it if the command has ended and it does not end itself.
fn watch(args: &[OsString]) -> Result<()> {
    // What a terminal sends to the command is not for them: they are needed until the image is closed.
    setsid().context("a session of its own")?;
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0(NAME).arg(std::process::id().to_string()).args(args).env_clear().stdout(Stdio::null());
    let mut child = command.spawn().context("starting it")?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    std::thread::spawn(move || {
        // Nothing is sent: the end of the lifeline is the end of the command.
        while rustix::io::read(stdout(), &mut [0; 16]).is_ok_and(|bytes| bytes > 0) {}
        std::thread::sleep(TIME_TO_END_ALONE);
        match &process {
            Ok(process) => drop(pidfd_send_signal(process, Signal::KILL)),
            // Without such a file (before Linux 5.3) it ends with this process.
            Err(_) => std::process::exit(1),
        }
    });
    let status = child.wait().context("its end")?;
    std::process::exit(i32::from(!status.success()));
}

fn become_program(program: &Path, writes: bool, chain: &str, files: &[OsString]) -> Result<()> {
    let listener = fcntl_dupfd_cloexec(stdin().as_fd(), FIRST_SOCKET).context("the socket")?;
    if listener.as_raw_fd() != FIRST_SOCKET {
        bail!("the socket is not the first of the open files");
    }
    fcntl_setfd(&listener, FdFlags::empty()).context("the socket")?;
    let mut needs = Needs::new(Calls::Files);
    let real = program.canonicalize().with_context(|| program.display().to_string())?;
    needs.files.push((real, FileUse::Run));
    needs.files.extend(LIBRARIES.map(|path| (path.into(), FileUse::Run)));
    needs.files.push(("/dev/null".into(), FileUse::Write));
    for (number, file) in files.iter().enumerate() {
        let used_for = if writes && number == 0 { FileUse::Write } else { FileUse::Read };
        let open = File::open(file).with_context(|| file.display().to_string())?;
        needs.open_files.push((open, used_for));
    }
    confine_thread(&needs).context(crate::open::sandbox::HINT)?;
    needs.open_files.clear();
    let mut command = Command::new(program);
    command.arg("--shared=1").args((!writes).then_some("--read-only"));
    command.arg(format!("json:{chain}")).stdin(Stdio::null()).env_clear();
    command.env("LISTEN_PID", std::process::id().to_string()).env("LISTEN_FDS", "1");
    Err(CommandError::from(command.exec()).context(program.display().to_string()))
}

impl Served {
    fn container(&mut self, path: &Path) -> Result<Container> {
        let device = match &self.device {
            Some(device) => Arc::clone(device),
            None => self.connect(path)?,
        };
        self.device = Some(Arc::clone(&device));
        let (path, format) = (path.to_path_buf(), Format::Served(self.format));
        let below = self.disk.below().map(|(path, _)| path.to_path_buf()).collect();
        Ok(Container { path, format, below, device, holders: self.disk.file().holders().to_vec() })
    }

    fn connect(&mut self, path: &Path) -> Result<Arc<dyn BlockDevice>> {
        let name = format!("{} ({PROGRAM})", path.display());
        let socket = self.socket.take().context("it was connected before")?;
        // The lock keeps others out.
        let writers = (self.access == Access::Write).then_some(Writers::OthersKeptOut);
        match NbdDevice::over(socket, &name, writers, &Options::default()) {
            Ok(device) => Ok(Arc::new(device)),
            Err(problem) => {
                let mut says = String::new();
                // It ends by that, whatever it does, and says no more.
                let _ = (self.end.shutdown(Shutdown::Both), self.lifeline.shutdown(Shutdown::Both));
                if let Some(errors) = self.process.stderr.take() {
                    // Where it says nothing, the problem does.
                    let _ = errors.take(MOST_ERROR_BYTES).read_to_string(&mut says);
                }
                let says: String = says.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                let why = if says.is_empty() { problem.to_string() } else { says };
                let what = format!("a {} image that {PROGRAM} does not serve", self.format);
                Err(DiskError::Refused { path: path.into(), what, advice: why }.into())
            }
        }
    }
}

//! What each command still needs once it reads an image.
//!
//! | commands | images | other files | system calls |
//! |---|---|---|---|
//! | that only read | read | | files |
//! | that change an image | written | | files |
//! | `import`, `cp` to an image | read, written | read: sources | sources |
//! | `export` | read | replaced: in the folder of the archive | outputs |
//! | `mkfs` | written | read: sources; replaced: in the folder of a new image | outputs |
//! | `cp` to the host | read | read: sources; changed: the folder of the target | trees |
//! | `mount` | | the server's are in [`of_server`], the parent reads no image | |
//!
//! Others read no image, or, like `bench` and `crash-test`, only images of their own. What the command line names and
//! is read before the first image is opened (a value, a list of labels) needs no mention. Every command also reads
//! what the system shows of itself, and the time zone.

use super::file_mode;
use super::unread::is_plain;
use crate::args::container::path_of_source;
use crate::args::copy_operand::CopyOperand;
use crate::args::{
    AdminCommand, Command, CpArgs, ImageArgs, LogCommand, MkfsArgs, Placement, ReadArgs, SourceArgs, XattrCommand,
};
use crate::open::sandbox::{Entry, Plan};
use crate::operand;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use xfskit_device::Access;
use xfskit_mkfs::Options;
use xfskit_sandbox::{Calls, CapabilitySet, FileUse, IoUring, More, Needs};

/// Where the kernel says whether it offers FUSE over io_uring.
const OFFERS_RINGS: &str = "/sys/module/fuse/parameters/enable_uring";
/// Who has an image, what the machine has, and the time zone.
const SYSTEM: [&str; 11] = [
    "/proc",
    "/sys/block",
    "/sys/dev/block",
    "/sys/class/block",
    "/sys/devices/virtual/block",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/etc/zoneinfo",
];
/// The names of users and groups in archives.
const NAMES: [&str; 2] = ["/etc/passwd", "/etc/group"];
/// The name of standard input.
const STANDARD_INPUT: &str = "-";
/// What the names of the files with labels end in.
const LABELS: [&str; 5] = ["", ".homedirs", ".local", ".subs", ".subs_dist"];
/// Set for a program that runs under fakeroot.
const FAKEROOT: &str = "FAKEROOTKEY";

/// To open again what the user may open by privilege.
const OPEN: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::SYS_RESOURCE);
/// To read files of the host with all attributes, and without a change of their access times.
const TAKE: CapabilitySet = OPEN.union(CapabilitySet::FOWNER).union(CapabilitySet::SYS_ADMIN);
/// What of that and of [`GIVE`] is for extended attributes.
const ATTRIBUTES: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::SETFCAP).union(CapabilitySet::MAC_ADMIN);
/// To give files of the host their owners and attributes.
const GIVE: CapabilitySet = TAKE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::MAC_ADMIN);

/// What the system shows of its disks, each where its device is: the folders above show other devices, too, and root
/// could read their memory there.
fn disks() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/sys/block").into_iter().flatten().filter_map(|disk| disk.ok()?.path().canonicalize().ok())
}

/// The plan of a command; none for one that reads no image of the user's.
pub fn of(command: &Command) -> Option<Plan> {
    Some(match command {
        Command::Info(args) => of_reading(&args.read),
        Command::Check(args) => of_reading(&args.read),
        Command::Ls(args) => of_reading(&args.read),
        Command::Tree(args) | Command::Readlink(args) => of_reading(&args.read),
        Command::Find(args) => of_reading(&args.read),
        Command::Stat(args) => of_reading(&args.read),
        Command::Cat(args) => of_reading(&args.read),
        Command::Df(args) => of_reading(&args.read),
        Command::Du(args) => of_reading(&args.path.read),
        Command::Parents(args) => of_reading(&args.read),
        Command::Path(args) => of_reading(&args.read),
        Command::Mkdir(args) => of_editing(&args.paths.image),
        Command::Mknod(args) => of_editing(&args.image),
        Command::Touch(args) => of_editing(&args.paths.image),
        Command::Ln(args) => of_editing(&args.image),
        Command::Mv(args) => of_editing(&args.image),
        Command::Rm(args) => of_editing(&args.paths.image),
        Command::Write(args) => of_editing(&args.image),
        Command::Clone(args) => of_editing(&args.image),
        Command::Chmod(args) => of_editing(&args.image),
        Command::Chown(args) => of_editing(&args.image),
        Command::Xattr(command) => of_xattr(command),
        Command::Log(LogCommand::Print { image, .. }) => of_image(image, Access::Read),
        Command::Log(LogCommand::Replay(image)) => of_editing(image),
        Command::Admin(command) => of_admin(command),
        Command::Cp(args) => of_cp(args),
        Command::Import(args) => {
            let plan = of_image(&args.image, Access::Write).with(Calls::Sources);
            plan.takes(&args.source).reads(args.from.iter().map(|path| path_of_source(path))).reads_lists(&args.source)
        }
        Command::Export(args) => {
            let plan = of_reading(&args.path.read).with(Calls::Outputs);
            match args.output_file() {
                // It writes to a device or a pipe itself.
                Some(path) if std::fs::metadata(path).is_ok_and(|data| !data.is_file()) => plan.writes(path),
                Some(path) => plan.makes(path),
                None => plan,
            }
        }
        // The plan of `mkfs` needs its options, and is made there.
        Command::Mkfs(_) => return None,
        Command::Mount(_) | Command::Umount(_) | Command::Stats(_) => return None,
        #[cfg(feature = "bench")]
        Command::Bench(_) | Command::CrashTest(_) => return None,
        Command::Man { .. } | Command::Completions { .. } => return None,
    })
}

/// The plan of a command that only looks at an image.
pub fn of_reading(args: &ReadArgs) -> Plan {
    of_image(&args.image, Access::Read)
}

fn of_editing(image: &ImageArgs) -> Plan {
    of_image(image, Access::Write)
}

fn of_image(image: &ImageArgs, access: Access) -> Plan {
    let images = [Some(&image.image), image.logdev.as_ref()].into_iter().flatten();
    Plan::new(images.map(|image| (image.clone(), access)).collect())
}

fn of_xattr(command: &XattrCommand) -> Plan {
    match command {
        XattrCommand::List(path) | XattrCommand::Dump { path, .. } => of_reading(&path.read),
        XattrCommand::Get { read, .. } => of_reading(read),
        XattrCommand::Set { image, .. }
        | XattrCommand::Rm { image, .. }
        | XattrCommand::Label { image, .. }
        | XattrCommand::Restore { image, .. } => of_editing(image),
    }
}

fn of_admin(command: &AdminCommand) -> Plan {
    match command {
        AdminCommand::Grow(args) => of_editing(&args.image),
        // Without a new one they show what there is.
        AdminCommand::Label(args) if args.label.is_none() => of_image(&args.image, Access::Read),
        AdminCommand::Uuid(args) if args.uuid.is_none() => of_image(&args.image, Access::Read),
        AdminCommand::Label(args) => of_editing(&args.image),
        AdminCommand::Uuid(args) => of_editing(&args.image),
        AdminCommand::Trim(args) => of_editing(&args.image),
    }
}

fn of_cp(args: &CpArgs) -> Plan {
    let (target, sources) = args.paths.split_last().expect("there are two paths at least");
    let mut images = Vec::new();
    let mut read = Vec::new();
    for source in sources {
        match CopyOperand::parse(source) {
            CopyOperand::Host(path) => read.push(path),
            CopyOperand::Image(image, _) => images.push((image, Access::Read)),
        }
    }
    let target = match CopyOperand::parse(target) {
        CopyOperand::Host(path) => Some(path),
        CopyOperand::Image(image, _) => {
            images.retain(|(other, _)| *other != image);
            images.push((image, Access::Write));
            None
        }
    };
    let access = images.last().map_or(Access::Read, |(_, access)| *access);
    images.extend(args.logdev.iter().map(|log| (log.clone(), access)));
    let calls = if target.is_some() { Calls::Trees } else { Calls::Sources };
    let mut plan = Plan::new(images).with(calls).reads(read).reads_labels(args.owners.file_contexts.as_deref());
    plan.needs.capabilities = if target.is_some() { GIVE } else { TAKE };
    if args.no_xattrs {
        plan.needs.capabilities -= ATTRIBUTES;
    }
    target.iter().fold(plan, |plan, target| plan.makes(target))
}

/// The plan of a program that asks devices for their sizes.
pub fn of_devices<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Plan {
    let there = paths.into_iter().filter(|path| path.exists() || operand::is_address(path));
    Plan::new(there.map(|path| (path.clone(), Access::Read)).collect())
}

/// The plan of the server of a mount of an image, with its log where that has a device of its own.
pub fn of_server<'p>(images: impl IntoIterator<Item = &'p Path>) -> Plan {
    let offers = std::fs::read_to_string(OFFERS_RINGS).is_ok_and(|answer| answer.trim() == "Y");
    let mut needs = Needs::new(Calls::Serve(if offers { IoUring::Offered } else { IoUring::Not }));
    // Where a lone client runs, which groups a caller is in, and how many processors there are.
    needs.files = vec![
        ("/proc".into(), FileUse::Read),
        ("/sys/devices/system/cpu".into(), FileUse::Read),
        ("/sys/fs/cgroup".into(), FileUse::Read),
        // Another descriptor of the connection for each thread.
        ("/dev/fuse".into(), FileUse::Write),
    ];
    let remote = images.into_iter().map(Path::to_path_buf).collect();
    Plan { needs, images: Vec::new(), targets: Vec::new(), entry: Entry::WithImages, has_follower: true, remote }
}

/// The plan of a copy of a whole filesystem, which opens both sides first.
pub fn of_volumes(source: &Path, target: &Path) -> Plan {
    let remote = |path: &Path, access| {
        let files = operand::files(path).into_iter().filter(|file| operand::is_address(file));
        files.map(move |file| (file, access)).collect::<Vec<_>>()
    };
    let images = [remote(source, Access::Read), remote(target, Access::Write)].concat();
    let plan = Plan { entry: Entry::WithImages, ..Plan::new(images).with(Calls::Outputs) };
    let is_file = is_plain(target).unwrap_or(false) && !target.metadata().is_ok_and(|data| !data.is_file());
    if is_file { plan.makes(target) } else { plan }
}

/// The plan of `mkfs`, which opens the target first: its caller may have it open.
pub fn of_mkfs(args: &MkfsArgs, options: &Options) -> Plan {
    let logs = options.log_device.iter().flat_map(|log| operand::files(log));
    // Those of this host are open by then.
    let remote = logs.chain(operand::files(args.image())).filter(|file| operand::is_address(file));
    let remote = remote.map(|file| (file, Access::Write)).collect();
    let plan = Plan { entry: Entry::WithImages, ..Plan::new(remote).with(Calls::Outputs) };
    let has_source = !args.from.is_empty() || args.proto.is_some();
    let plan = if has_source { plan.takes(&args.source) } else { plan };
    let plan = plan.reads(args.from.iter().map(|path| path_of_source(path))).reads_lists(&args.source);
    // The files that a prototype names may be anywhere.
    let plan =
        plan.reads(args.proto.iter().map(|proto| if proto.path.is_dir() { proto.path.clone() } else { "/".into() }));
    let is_new = args.placement == Placement::Replaces || !args.image().exists();
    let plan = if is_new && is_plain(args.image()).unwrap_or(false) { plan.makes(args.image()) } else { plan };
    // A stream whose size is asked for is kept in a file.
    let is_stream = |path: PathBuf| !std::fs::metadata(path).is_ok_and(|data| data.is_file() || data.is_dir());
    if args.from.iter().any(|source| is_stream(path_of_source(source))) {
        plan.changes(std::env::temp_dir())
    } else {
        plan
    }
}

impl Plan {
    fn new(images: Vec<(PathBuf, Access)>) -> Self {
        let mut needs = Needs::new(Calls::Files);
        needs.capabilities = OPEN;
        needs.files = SYSTEM.map(|path| (path.into(), FileUse::Read)).to_vec();
        needs.files.extend(disks().map(|path| (path, FileUse::Read)));
        let zone = std::env::var_os("TZ").unwrap_or_default();
        let zone = zone.as_bytes().strip_prefix(b":").unwrap_or(zone.as_bytes());
        needs.files.push((OsStr::from_bytes(zone).into(), FileUse::Read));
        if std::env::var_os(FAKEROOT).is_some() {
            needs.more.push(More::Messages);
            // The library that pretends may connect to its server with its first question.
            let _ = std::fs::metadata("/");
        }
        Self { needs, images, targets: Vec::new(), entry: Entry::BeforeImages, has_follower: false, remote: Vec::new() }
    }

    /// Handles trees of the host.
    fn with(mut self, calls: Calls) -> Self {
        self.needs.calls = calls;
        self.needs.permissions = file_mode::usual_permissions() | 0o600;
        self.reads(NAMES.map(PathBuf::from))
    }

    /// Reads trees of the host.
    fn takes(mut self, source: &SourceArgs) -> Self {
        self.needs.capabilities = if source.no_xattrs { TAKE - ATTRIBUTES } else { TAKE };
        self
    }

    fn allows(mut self, path: impl Into<PathBuf>, used_for: FileUse) -> Self {
        self.needs.files.push((path.into(), used_for));
        self
    }

    fn reads(self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let paths = paths.into_iter().filter(|path| path.as_os_str() != STANDARD_INPUT && !operand::is_address(path));
        paths.fold(self, |plan, path| plan.allows(path, FileUse::Read))
    }

    fn writes(self, path: &Path) -> Self {
        self.allows(path, FileUse::Write)
    }

    /// Makes files in a folder: all kinds, if it handles trees.
    fn changes(self, dir: PathBuf) -> Self {
        let used_for = if self.needs.calls == Calls::Trees { FileUse::Change } else { FileUse::Replace };
        self.allows(dir, used_for)
    }

    /// The labels of files, which are in several files.
    fn reads_labels(self, path: Option<&Path>) -> Self {
        let with = |suffix: &&str| path.map(|path| [path.as_os_str(), OsStr::new(suffix)].into_iter().collect());
        let files: Vec<std::ffi::OsString> = LABELS.iter().filter_map(with).collect();
        self.reads(files.into_iter().map(PathBuf::from))
    }

    fn reads_lists(self, source: &SourceArgs) -> Self {
        self.reads(source.manifest.iter().cloned()).reads_labels(source.owners.file_contexts.as_deref())
    }

    /// Makes a file, or replaces what has the name; or fills a folder.
    fn makes(mut self, path: &Path) -> Self {
        if path.is_dir() {
            // With -T the folder above is opened, too.
            return self.allows(path.join(".."), FileUse::List).changes(path.to_path_buf());
        }
        let real = path.canonicalize().unwrap_or_else(|_| path.into());
        if path.is_file() {
            self.targets.push(path.into());
        }
        // A file gets its name when it is complete: where the name is, or that of the file that a link leads to.
        [path, &real].into_iter().fold(self, |plan, path| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            plan.changes(parent.unwrap_or(Path::new(".")).into())
        })
    }
}

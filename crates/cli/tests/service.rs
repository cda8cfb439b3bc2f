//! `xfskit mount --service`: a server that sees neither the image nor `/dev/fuse`, as nobody, without a network. A
//! double of libfuse's helper opens and mounts (`common::mount_helper`), and libfuse's own where it is installed.

mod common;

use common::mount_helper::{Fault, MountHelper};
use common::mounts::{Prepared, prepared_for_root};
use common::trace::{SIGNATURE_BYTES, Traced, strace};
use common::{disks, ok, xfskit};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use xfskit_testkit::{reference, skip};

/// What a service of systemd has of `packaging/systemd/xfskit@.service`, by other means: `/dev` is empty, where the
/// tests have their images; there is no network, no user, and no capability. Mounts of other tests are let go first,
/// for a copy of one would keep it.
const CONFINED: &str = "umount -R -l /dev/shm 2> /dev/null; mount -t tmpfs none /dev && mount -t tmpfs none /sys && \
    cd / && exec setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all \
    --no-new-privs \"$0\" mount --service";

/// A server in a service, and its helper.
struct Service {
    at: Prepared,
    /// The command where nobody may start it.
    program: tempfile::TempDir,
    /// Where the calls of the server are noted.
    calls: Option<PathBuf>,
}

struct Ended {
    /// The exit code that the helper was told.
    code: Option<u32>,
    opened: Vec<PathBuf>,
    server: Child,
}

fn prepared() -> Option<Service> {
    let at = prepared_for_root()?;
    let program = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir_in("/tmp").unwrap();
    fs::copy(env!("CARGO_BIN_EXE_xfskit"), program.path().join("xfskit")).unwrap();
    Some(Service { at, program, calls: None })
}

impl Service {
    fn start(&self, socket: std::os::fd::OwnedFd) -> Child {
        let mut command = match &self.calls {
            Some(calls) => {
                let mut strace = strace(calls);
                strace.arg("unshare");
                strace
            }
            None => Command::new("unshare"),
        };
        command.args(["--mount", "--net", "sh", "-c", CONFINED]).arg(self.program.path().join("xfskit"));
        command.stdin(socket).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn ask(&self, fault: Fault, image: &str, options: &str) -> Ended {
        let (mut helper, theirs) = MountHelper::new(&self.at.dir, fault);
        let server = self.start(theirs);
        let code = helper.run(&["xfskit", image, self.at.dir.to_str().unwrap(), "-o", options]);
        Ended { code, opened: helper.opened, server }
    }

    /// Mounts; returns the server.
    fn mount(&self, image: &str, options: &str) -> (Child, Vec<PathBuf>) {
        let Ended { code, opened, server } = self.ask(Fault::None, image, options);
        if code != Some(0) {
            panic!("{code:?}: {}", said(server));
        }
        (server, opened)
    }

    /// Is refused; returns the exit code that the helper was told, and the server's message.
    fn refused(&self, fault: Fault, image: &str, options: &str) -> (Option<u32>, String) {
        let Ended { code, server, .. } = self.ask(fault, image, options);
        (code, said(server))
    }

    fn image(&self) -> &str {
        self.at.image.to_str().unwrap()
    }

    fn line_of_mounts(&self) -> String {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let place = format!(" {} ", self.at.dir.display());
        mounts.lines().find(|line| line.contains(&place)).unwrap_or_default().to_owned()
    }
}

/// What a server that fails says.
fn said(server: Child) -> String {
    let Output { status, stderr, .. } = server.wait_with_output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.code().is_some_and(|code| code > 0), "{status}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn a_server_without_files_serves_a_mount() {
    let Some(service) = prepared() else { return };
    let (server, opened) = service.mount(service.image(), "rw,dev,suid,noatime,commit=1");
    assert!(opened.contains(&service.at.image) && opened.contains(&"/dev/fuse".into()), "{opened:?}");
    let line = service.line_of_mounts();
    let expected = format!("{} {} fuse.xfskit rw,nosuid,nodev,noatime,", service.image(), service.at.dir.display());
    assert!(line.starts_with(&expected) && line.contains("default_permissions"), "{line}");
    for number in 0..200 {
        fs::write(service.at.dir.join(format!("file-{number}")), number.to_string()).unwrap();
    }
    fs::File::open(service.at.dir.join("file-7")).unwrap().sync_all().unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    for line in ["Uid:\t65534", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}\n{status}");
    }
    let stats = ok(&format!("stats {}", service.at.dir.display()), &service.at.image);
    assert!(stats.contains("seccomp"), "{stats}");
    service.at.line("umount DIR");
    // The image is closed by then.
    assert_eq!(ok("cat IMAGE /file-199", &service.at.image), "199");
    assert!(ok("info IMAGE --export", &service.at.image).contains("XFS_JOURNAL=clean"));
    let Output { status, stderr, .. } = server.wait_with_output().unwrap();
    assert!(status.success() && stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&service.at.image);
    }
}

#[test]
fn a_read_only_mount_asks_for_no_right_to_write() {
    let Some(service) = prepared() else { return };
    let before = fs::read(&service.at.image).unwrap();
    let (server, _) = service.mount(service.image(), "ro,allow_other");
    assert!(service.line_of_mounts().contains(" ro,nosuid,nodev,") && service.line_of_mounts().contains("allow_other"));
    let files = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().flatten();
    let is_image = |path: &PathBuf| fs::read_link(path).is_ok_and(|link| link == service.at.image);
    let of_image = files.map(|file| file.path()).find(is_image).expect("the image is open");
    let info = of_image.to_str().unwrap().replace("/fd/", "/fdinfo/");
    let flags = fs::read_to_string(info).unwrap();
    let flags = flags.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
    assert_eq!(u32::from_str_radix(flags, 8).unwrap() & 3, 0, "{flags}");
    service.at.line("umount DIR");
    assert!(fs::read(&service.at.image).unwrap() == before);
}

#[test]
fn parts_of_disks_and_files_below_them_are_opened_by_the_helper() {
    let Some(service) = prepared() else { return };
    if !disks::have(&["qemu-img", "sfdisk"]) {
        return;
    }
    let folder = service.at.scratch.path();
    let raw = disks::table(&service.at.scratch, "raw.img", disks::GPT, disks::MIB);
    let part = format!("{}#2", raw.display());
    ok(&format!("mkfs -q --small {part}"), &service.at.image);
    ok(&format!("mkdir {part} /within"), &service.at.image);
    let (base, top) = (folder.join("base.qcow2"), folder.join("top.qcow2"));
    disks::run("qemu-img", &["convert", "-O", "qcow2", raw.to_str().unwrap(), base.to_str().unwrap()]);
    let overlay = |base: &str, top: &Path| {
        disks::run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, top.to_str().unwrap()]);
    };
    overlay("base.qcow2", &top);
    // The only XFS of the disk; what is below it lies beside it.
    let (_, opened) = service.mount(top.to_str().unwrap(), "rw");
    assert!(opened.contains(&base), "{opened:?}");
    assert!(service.line_of_mounts().starts_with(&format!("{} ", top.display())), "{}", service.line_of_mounts());
    assert!(service.at.dir.join("within").is_dir());
    fs::create_dir(service.at.dir.join("new")).unwrap();
    service.at.line("umount DIR");
    assert_eq!(ok(&format!("ls {}#2 /", top.display()), &service.at.image), "new\nwithin\n");

    let elsewhere = folder.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let stray = elsewhere.join("stray.qcow2");
    overlay("../base.qcow2", &stray);
    let (code, why) = service.refused(Fault::None, stray.to_str().unwrap(), "ro");
    assert!(code.is_some_and(|code| code > 0) && why.contains("another folder"), "{code:?} {why}");
}

/// What a header names is opened by the helper when the server can open nothing itself.
#[test]
fn a_server_reads_no_table_and_no_header_before_it_gives_up_its_rights() {
    let Some(mut service) = prepared() else { return };
    if !disks::have(&["qemu-img", "sfdisk", "mkfs.ext4", "strace"]) {
        return;
    }
    let base = disks::table(&service.at.scratch, "base.img", disks::GPT, disks::MIB);
    let top = service.at.scratch.file("top.qcow2");
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "base.img", top.to_str().unwrap()];
    disks::run("qemu-img", &create);
    let part = format!("{}#2", top.display());
    ok(&format!("mkfs -q --small {part}"), &service.at.image);
    service.calls = Some(service.at.scratch.file("calls"));
    for operand in [part, service.image().to_owned()] {
        let (server, _) = service.mount(&operand, "rw");
        fs::create_dir(service.at.dir.join("new")).unwrap();
        service.at.line("umount DIR");
        assert!(server.wait_with_output().unwrap().status.success());
        let images = [top.clone(), base.clone(), service.at.image.clone()];
        let traced = Traced::of(service.calls.as_ref().unwrap(), &images);
        assert_eq!(traced.entered, 1, "{operand}");
        assert!(traced.before.is_empty(), "{operand}: {:#?}", traced.before);
        assert!(traced.read_after > SIGNATURE_BYTES, "{operand}");
    }
}

#[test]
fn what_a_service_cannot_do_is_refused() {
    let Some(service) = prepared() else { return };
    let relative = service.at.image.file_name().unwrap().to_str().unwrap();
    for (image, options, expected) in [
        (relative, "rw", "full path"),
        (service.image(), "allow_root", "allow_root"),
        (service.image(), "auto_unmount,allow_other", "auto_unmount"),
        (service.image(), "nosuch", "no such option"),
    ] {
        let (code, why) = service.refused(Fault::None, image, options);
        assert_eq!(code, Some(2), "{why}");
        assert!(why.contains(expected), "{why}");
    }
    let vmdk = service.at.scratch.file("disk.vmdk");
    fs::write(&vmdk, "# Disk DescriptorFile\nversion=1\n").unwrap();
    let (code, why) = service.refused(Fault::None, vmdk.to_str().unwrap(), "ro");
    assert!(code == Some(7) && why.contains("a VMDK image"), "{code:?} {why}");
    let (code, why) = service.refused(Fault::None, "/no/image", "rw");
    assert!(code == Some(6) && why.contains("/no/image: no such image"), "{code:?} {why}");
    let damaged = service.at.scratch.image("damaged.img", 64 << 20);
    fs::write(&damaged, [7; 4096]).unwrap();
    let (code, why) = service.refused(Fault::None, damaged.to_str().unwrap(), "rw");
    assert!(code == Some(3), "{code:?} {why}");
    assert!(service.line_of_mounts().is_empty());
}

#[test]
fn a_helper_that_breaks_the_protocol_or_may_not_mount_leaves_the_image_as_it_was() {
    let Some(service) = prepared() else { return };
    for (fault, code, expected) in [
        (Fault::OtherVersion, None, "versions 7 to 7"),
        (Fault::NoDescriptor, None, "no descriptor came"),
        (Fault::OtherFile, Some(8), "another file came"),
        (Fault::Ends, None, "it has ended"),
        (Fault::MayNotMount, Some(8), "cannot mount: Operation not permitted"),
    ] {
        let (told, why) = service.refused(fault, service.image(), "rw");
        assert!(why.contains(expected), "{fault:?}: {why}");
        assert!(told.is_none() == code.is_none(), "{fault:?}: {told:?}");
        assert!(ok("info IMAGE --export", &service.at.image).contains("XFS_JOURNAL=clean"), "{fault:?}");
    }
    let by_hand = xfskit(["mount", "--service"]);
    let why = String::from_utf8(by_hand.stderr).unwrap();
    assert!(!by_hand.status.success() && why.contains("standard input is no socket"), "{why}");
}

/// It cannot unmount. Everything that reached it is in the image.
#[test]
fn a_server_that_is_asked_to_end_closes_the_image() {
    let Some(service) = prepared() else { return };
    let (mut server, _) = service.mount(service.image(), "rw,nowriteback");
    fs::write(service.at.dir.join("file"), "contents").unwrap();
    common::mounts::signal(server.id().cast_signed(), "-TERM");
    assert!(server.wait().unwrap().success());
    assert_eq!(ok("cat IMAGE /file", &service.at.image), "contents");
    common::mounts::run("umount", &["-l"], &service.at.dir);
}

/// libfuse's own helper, where it is built: it connects to the socket that systemd would have.
#[test]
fn the_helper_of_libfuse_mounts() {
    const SOCKET: &str = "/run/filesystems/xfskit";
    let helper = std::env::var("XFSKIT_FUSERVICEMOUNT").unwrap_or("fuservicemount3".into());
    if Command::new(&helper).stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        // No release of libfuse and no distribution that CI could install from has it.
        println!("skipped: no fuservicemount3 of libfuse 3.19 (XFSKIT_FUSERVICEMOUNT names it)");
        return;
    }
    let Some(service) = prepared() else { return };
    if Path::new(SOCKET).exists() {
        return skip("a service of this machine has the socket");
    }
    fs::create_dir_all("/run/filesystems").unwrap();
    let mut activate = Command::new("systemd-socket-activate");
    activate.args([
        "--seqpacket",
        "--accept",
        "--inetd",
        "-l",
        SOCKET,
        "unshare",
        "--mount",
        "--net",
        "sh",
        "-c",
        CONFINED,
    ]);
    let mut activate = activate.arg(service.program.path().join("xfskit")).stderr(Stdio::null()).spawn().unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !Path::new(SOCKET).exists() && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut mount = Command::new(&helper);
    mount.arg(&service.at.image).arg(&service.at.dir).args(["-t", "fuse.xfskit", "-o", "rw,noatime"]);
    let mounted = mount.output().unwrap();
    activate.kill().unwrap();
    activate.wait().unwrap();
    fs::remove_file(SOCKET).unwrap();
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let line = service.line_of_mounts();
    assert!(line.contains(" fuse.xfskit rw,nosuid,nodev,noatime,"), "{line}");
    fs::write(service.at.dir.join("file"), "contents").unwrap();
    service.at.line("umount DIR");
    assert_eq!(ok("cat IMAGE /file", &service.at.image), "contents");
}

const UNIT: &str = "packaging/systemd/xfskit@.service";

/// What the unit is for: each of these takes something away.
#[test]
fn the_units_are_what_systemd_understands_and_leave_nothing() {
    if !disks::have(&["systemd-analyze"]) {
        return;
    }
    let root = common::pages::root();
    let folder = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(root.join(UNIT)).unwrap();
    // It looks for the command, which is not installed here.
    let unit = unit.replace("ExecStart=/usr/bin/xfskit", concat!("ExecStart=", env!("CARGO_BIN_EXE_xfskit")));
    fs::write(folder.path().join("xfskit@.service"), unit).unwrap();
    fs::copy(root.join("packaging/systemd/xfskit.socket"), folder.path().join("xfskit.socket")).unwrap();
    let analyze = |arguments: &[&str]| {
        let output = Command::new("systemd-analyze").args(arguments).current_dir(&folder).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    };
    let said = analyze(&["verify", "--man=no", "./xfskit.socket", "./xfskit@1.service"]);
    assert!(!said.contains("xfskit"), "{said}");
    // In hundredths of what a service has that gives nothing up. With a network, devices or the host's files it is
    // more.
    let said = analyze(&["security", "--offline=true", "--threshold=5", "./xfskit@1.service"]);
    println!("{said}");
}

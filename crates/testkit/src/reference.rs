//! The reference tools, in a folder of their own that is entered by chroot.

use crate::skip;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where `scripts/reference` installs the tools by default.
const DEFAULT_ROOT: &str = "/opt/xfs-reference";
const UML_SECONDS: u32 = 300;
/// Disks of the reference kernel.
pub const UML_DISKS: usize = 16;

/// An installation of the reference tools.
#[derive(Clone, Debug)]
pub struct Reference {
    root: PathBuf,
}

/// The output and the exit status of a script in the reference kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UmlRun {
    /// The script's exit status.
    pub status: i32,
    /// What it printed.
    pub output: String,
}

/// The reference tools, in the folder that `XFS_REFERENCE` names or in the default one. If they are missing or cannot
/// be run, prints why and returns `None`.
///
/// # Panics
/// If they are missing and `CI=true`.
pub fn reference() -> Option<Reference> {
    let root = std::env::var_os("XFS_REFERENCE").map_or_else(|| DEFAULT_ROOT.into(), PathBuf::from);
    if !root.join("usr/sbin/xfs_repair").exists() {
        skip(&format!("no reference tools in {}: run scripts/reference", root.display()));
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        skip("the reference tools are run by chroot, which needs root");
        return None;
    }
    let reference = Reference { root };
    let probe = crate::scratch();
    if !reference.root.join(probe.path().strip_prefix("/").expect("an absolute path")).exists() {
        skip(&format!("{} cannot be seen by the reference tools: run scripts/reference", probe.path().display()));
        return None;
    }
    Some(reference)
}

impl Reference {
    /// The folder of the tools, for a test that runs one itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Runs one of the tools. Paths among the arguments must lie in a [`scratch`](crate::scratch()) folder.
    ///
    /// # Panics
    /// If the tool cannot be started.
    pub fn tool<A: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> Output {
        let mut command = Command::new("chroot");
        command.arg(&self.root).arg(program).args(arguments).env("LC_ALL", "C");
        command.output().expect("chroot")
    }

    /// Runs one of the tools and returns what it printed.
    ///
    /// # Panics
    /// If the tool fails.
    pub fn tool_output<A: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> String {
        let output = self.tool(program, arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} failed: {}\n{out}{err}", output.status);
        out.into_owned()
    }

    /// Makes an image with mkfs.xfs in a file of a [`scratch`](crate::scratch()) folder.
    ///
    /// # Panics
    /// If mkfs.xfs refuses it.
    pub fn mkfs(&self, image: &Path, options: &[&str]) {
        let options = options.iter().map(OsStr::new);
        self.tool_output("mkfs.xfs", [OsStr::new("-q")].into_iter().chain(options).chain([image.as_os_str()]));
    }

    /// Runs commands of xfs_db on an image, without writing to it.
    ///
    /// # Panics
    /// If xfs_db fails.
    pub fn db(&self, image: &Path, commands: &[&str]) -> String {
        let mut arguments: Vec<&OsStr> = vec!["-r".as_ref()];
        for command in commands {
            arguments.extend::<[&OsStr; 2]>(["-c".as_ref(), command.as_ref()]);
        }
        arguments.push(image.as_ref());
        self.tool_output("xfs_db", arguments)
    }

    /// Asserts that xfs_repair finds nothing wrong with an image.
    ///
    /// # Panics
    /// If it does, with all that it prints.
    pub fn repair_finds_nothing(&self, image: &Path) {
        if let Some(findings) = self.repair_findings(image, None) {
            panic!("{findings}");
        }
    }

    /// Runs xfs_repair on an image without writing to it. If it finds something wrong, returns what it prints. `log` is
    /// the device of an external log.
    pub fn repair_findings(&self, image: &Path, log: Option<&Path>) -> Option<String> {
        // An image with one AG has no second superblock to compare, where xfs_repair stops without this option.
        let mut arguments: Vec<&OsStr> = vec!["-n".as_ref(), "-o".as_ref(), "force_geometry".as_ref()];
        if let Some(log) = log {
            arguments.extend::<[&OsStr; 2]>(["-l".as_ref(), log.as_ref()]);
        }
        arguments.push(image.as_ref());
        let output = self.tool("xfs_repair", arguments);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        // xfs_repair exits with 0 after some complaints, so its output is searched too.
        let complains = |line: &str| ["would ", "bad ", "ALERT", "corrupt"].iter().any(|word| line.contains(word));
        let sound = output.status.success() && !text.lines().any(complains);
        (!sound).then(|| format!("xfs_repair on {}: {}\n{text}", image.display(), output.status))
    }

    /// Whether the log of an image is clean according to xfs_logprint.
    ///
    /// # Panics
    /// If xfs_logprint fails.
    pub fn log_is_clean(&self, image: &Path) -> bool {
        let output = self.tool_output("xfs_logprint", ["-t".as_ref(), image.as_os_str()]);
        output.contains("<CLEAN>")
    }

    /// Shuts down the filesystem that is mounted at `dir`, as a power cut would: nothing more is written. With
    /// `flush_log`, all changes so far are written to the log first.
    ///
    /// # Panics
    /// If xfs_io fails.
    pub fn shut_down(&self, dir: &Path, flush_log: bool) {
        self.io(dir, if flush_log { "shutdown -f" } else { "shutdown" });
    }

    /// Runs a command of xfs_io on a directory that is mounted here; returns what it printed.
    ///
    /// # Panics
    /// If xfs_io fails.
    pub fn io(&self, dir: &Path, command: &str) -> String {
        // The tools do not see the mounts of this process, but they can use an open directory. The dot is for commands
        // that do not follow a link at the end of the path.
        let dir = std::fs::File::open(dir).expect("a mounted directory");
        let mut xfs_io = Command::new("chroot");
        xfs_io.arg(&self.root).args(["xfs_io", "-x", "-c", command, "/proc/self/fd/0/."]).stdin(dir);
        let output = xfs_io.output().expect("chroot");
        assert!(output.status.success(), "xfs_io {command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Has this machine's kernel grow the filesystem that is mounted at `dir`, by xfs_growfs with `arguments`.
    ///
    /// # Panics
    /// If xfs_growfs fails.
    pub fn growfs(&self, dir: &Path, arguments: &[&str]) -> String {
        // It looks for the mount in the mount table, which the tools in their own root do not see: so it runs in this
        // one, with the libraries of its own.
        let below = |path: &str| self.root.join(path);
        let mut growfs = Command::new(below("lib64/ld-linux-x86-64.so.2"));
        growfs.arg("--library-path").arg(below("usr/lib/x86_64-linux-gnu")).arg(below("usr/sbin/xfs_growfs"));
        let output = growfs.args(arguments).arg(dir).output().expect("the loader of the reference tools");
        assert!(output.status.success(), "xfs_growfs: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Boots the reference kernel with `image` as `/dev/ubda` and runs `script` in it as root. To leave a dirty log
    /// behind, the script exits with 99 without unmounting.
    ///
    /// # Panics
    /// If the kernel does not boot or does not finish.
    pub fn uml(&self, image: &Path, script: &str) -> UmlRun {
        self.uml_with(&[image.to_owned()], script)
    }

    /// As [`Self::uml`], with up to sixteen images, as `/dev/ubda` to `/dev/ubdp`.
    ///
    /// # Panics
    /// As [`Self::uml`].
    pub fn uml_with(&self, images: &[PathBuf], script: &str) -> UmlRun {
        assert!(images.len() <= UML_DISKS, "the kernel knows no more than {UML_DISKS} disks");
        // Not below /dev, where the booted kernel mounts its own filesystems.
        let work = tempfile::tempdir_in("/tmp").expect("a folder for temporary files");
        let file = |name: &str| work.path().join(name);
        let (init, out, status) = (file("init"), file("out"), file("status"));
        std::fs::write(file("script"), script).expect("a script file");
        let text = format!(
            "#!/bin/bash\nmount -t proc proc /proc; mount -t sysfs sys /sys; mkdir -p /mnt\nexec >{out} 2>&1\n\
             bash {script}; echo $? >{status}\ngrep -q ^99$ {status} || {{ sync; umount /mnt 2>/dev/null; }}\n\
             echo o >/proc/sysrq-trigger; sleep 10\n",
            out = out.display(),
            script = file("script").display(),
            status = status.display()
        );
        std::fs::write(&init, text).expect("an init file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&init, mode).expect("an executable init file");
        let console = Command::new("timeout")
            .arg(UML_SECONDS.to_string())
            .arg("chroot")
            .arg(&self.root)
            .args(["/usr/bin/linux.uml", "mem=2G", "rootfstype=hostfs", "rootflags=/", "rw", "con=null"])
            .args(["con0=fd:0,fd:1", "quiet"])
            .arg(format!("init={}", init.display()))
            .args(images.iter().enumerate().map(|(disk, image)| format!("ubd{disk}={}", image.display())))
            .env("TMPDIR", work.path())
            .stdin(std::process::Stdio::null())
            .output()
            .expect("chroot");
        let output = std::fs::read(&out).unwrap_or_default();
        let output = String::from_utf8_lossy(&output).into_owned();
        match std::fs::read_to_string(&status).ok().and_then(|status| status.trim().parse().ok()) {
            Some(status) => UmlRun { status, output },
            None => panic!("the kernel did not finish:\n{output}\n{}", String::from_utf8_lossy(&console.stdout)),
        }
    }
}

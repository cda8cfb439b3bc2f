//! Arguments of `mount` and `umount`.

use super::examples;
use clap::Args;
use clap::builder::ArgPredicate::IsPresent;
use std::path::PathBuf;

/// Arguments of `umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// Where an image is mounted; or the image, if it is mounted at one place
    #[arg(value_name = "MOUNT_POINT")]
    pub mount: PathBuf,
}

const MOUNT_OPTIONS: &str = "\
Options for -o:
  ro, rw              read only, or not; a dirty journal is replayed, with ro in memory
  norecovery          with ro: do not replay a dirty journal in memory, show the image as it is on
                      disk, without what only the journal holds
  wsync               operations are durable when they return
  inode32             new files get inode numbers of 32 bits, for programs that know no larger ones
                      (EOVERFLOW): on images of more than 1 TiB they are made in the first of it
  logdev=DEVICE       device of an external journal
  cache=SIZE          memory for metadata (256M)
  commit=SECONDS      make everything durable this often (30; 0 for never)
  threads=N           threads that answer requests
  placement=client|scheduler   a client that is alone is answered on its own processor (client), or
                      where the scheduler puts the threads
  writeback, nowriteback   what programs write waits in the kernel's cache (the default), or each
                      write reports what became of it: docs/mounting.md has what it costs
  checkopen           the kernel asks before it opens a file, so that what is immutable, or only for
                      appends (chattr), is not opened to be written; two requests more a file
  discard, nodiscard  give what is freed back to the host, when it is durable: at each commit, at
                      syncs and at the unmount; or not (the default). 'xfskit admin trim' on the
                      mount point gives back all that is free
  larp=always|never   whether updates of attributes that take several transactions are logged by
                      intents, so that recovery finishes them (never); remount changes it
  attrpath=fast|general|intents    how attributes are updated, for comparison: as fast as possible;
                      without the fast path (as nofastpath); by an intent and a transaction each
  nowhiteout          log intents that are done in the same checkpoint
  noknownabsent       search for attributes that are known to be absent
  errortag=NAME[:NTH] for tests: a place fails when it is passed for the nth time; the names are
                      in docs/mounting.md
  allow_other, allow_root, auto_unmount    as for every FUSE mount
  dev, suid, exec, atime, dirsync and their opposites, nosymfollow
                      as for every mount, but nodev and nosuid unless dev and suid are given, for
                      root too
  remount             by mount(8): changes ro, rw, larp and those of the line before

umount and fusermount3 -u return a moment before the image is closed: the kernel does not wait for a FUSE server.
'xfskit umount' waits, and so does umount where xfskit is linked to /sbin/umount.fuse.xfskit.";

/// Arguments of `mount`.
#[derive(Debug, Args)]
#[command(after_help = examples::with(MOUNT_OPTIONS, examples::MOUNT))]
#[command(override_usage = "xfskit mount [OPTIONS] <IMAGE> <MOUNT_POINT>\n       xfskit mount --service")]
pub struct MountArgs {
    /// Image file or block device, or a part of a disk, as in disk.qcow2#3
    #[arg(required = false, required_unless_present = "service", default_value_if("service", IsPresent, "-"))]
    pub image: PathBuf,
    /// Where to mount it
    #[arg(required = false, required_unless_present = "service", default_value_if("service", IsPresent, "-"))]
    pub mount_point: PathBuf,
    /// Stay in the foreground
    #[arg(short, long)]
    pub foreground: bool,
    /// Options, separated by commas
    #[arg(short, value_name = "OPTS")]
    pub options: Vec<String>,
    /// Write warnings and errors to a file while mounted
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// The parent of a mount that does not stay in the foreground, or its server
    #[arg(long, hide = true)]
    pub server: bool,
    /// The server of a mount, whose parent has started it
    #[arg(long, hide = true)]
    pub server_process: bool,
    /// Serve a mount in a service of the system without files, devices and network: standard input is the socket of
    /// libfuse's fuservicemount3, which names image and folder, opens and mounts (docs/mounting.md)
    #[arg(long, conflicts_with_all = ["foreground", "options", "log_file", "server", "server_process"])]
    pub service: bool,
}

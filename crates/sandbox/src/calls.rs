//! Which system calls are left: seccomp.
//!
//! ```text
//! kill      a call of FORBIDDEN ends the process: nothing here makes it, so an attacker does
//! refuse    clone3 ─▶ ENOSYS: its flags lie in memory; C libraries then use clone
//! allow     the lists below; every other call ─▶ EPERM
//! ```
//! The kernel takes the most severe answer of all filters. A call that is refused and not fatal is one that a C library
//! may try in a later version.
//!
//! Source of facts: seccomp(2), clone(2), mmap(2), prctl(2), `include/uapi/asm-generic/ioctls.h`,
//! `include/uapi/linux/{fs,loop,fuse}.h`.

use crate::{Confined, Needs, SandboxError};
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// Which system calls a program makes beyond memory, threads, time, waiting and its open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// None: a program that reads and writes what it has open.
    Contents,
    /// Opening files: a program that reads and writes the contents of files that exist.
    Files,
    /// The same, and reading trees of files with their attributes.
    Sources,
    /// The same, and making files and giving them names.
    Outputs,
    /// The same, and making all kinds of files, with owners and attributes.
    Trees,
    /// A server that answers over connections that it has.
    Serve(IoUring),
}

/// System calls that few programs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// Connecting to a server by TCP, and looking its name up. Which port is said in [`Needs`].
    ConnectTcp,
    /// Connecting to a socket of this host.
    ConnectUnix,
    /// Messages and semaphores of System V, by which fakeroot asks for the owners that it pretends.
    Messages,
}

/// Whether a server's requests may come by io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoUring {
    /// They come by `read`.
    Not,
    /// The kernel offers it.
    Offered,
}

/// Calls that end the process: starting programs, other processes, the network, mounts, namespaces, users, the kernel.
pub const FORBIDDEN: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

/// Memory, threads, signals of its own, time and waiting; and what is done with files that are open.
const ALWAYS: &[c_long] = &[
    // Memory; mmap, mprotect and madvise have conditions.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    libc::SYS_get_mempolicy,
    // Threads; clone has conditions.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // The end of a process that was started before.
    libc::SYS_wait4,
    // Who it is.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_getrlimit,
    libc::SYS_umask,
    // Signals; tgkill has a condition.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigpending,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time and waiting.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Open files; fcntl, sendto and sendmsg have conditions.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // What open files are; with a name, what any file is.
    libc::SYS_newfstatat,
    libc::SYS_statx,
];

/// The same where the processor has calls from before these.
#[cfg(target_arch = "x86_64")]
const ALWAYS_OLD: &[c_long] = &[
    libc::SYS_arch_prctl,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_create,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_eventfd,
    libc::SYS_time,
    libc::SYS_stat,
    libc::SYS_lstat,
];
#[cfg(not(target_arch = "x86_64"))]
const ALWAYS_OLD: &[c_long] = &[];

/// Files by name, for reading: Landlock has the last word.
const NAMES: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_statfs,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
];
#[cfg(target_arch = "x86_64")]
const NAMES_OLD: &[c_long] = &[libc::SYS_open, libc::SYS_access, libc::SYS_readlink];
#[cfg(not(target_arch = "x86_64"))]
const NAMES_OLD: &[c_long] = &[];

/// What a file shows of itself in attributes.
const FILES: &[c_long] = &[libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr];

/// Trees that are read.
const SOURCES: &[c_long] = &[
    libc::SYS_openat2,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_copy_file_range,
];

/// New files, and their names; fchmod has a condition.
const OUTPUTS: &[c_long] =
    &[libc::SYS_linkat, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_unlinkat, libc::SYS_sync];
#[cfg(target_arch = "x86_64")]
const OUTPUTS_OLD: &[c_long] = &[libc::SYS_link, libc::SYS_rename, libc::SYS_unlink, libc::SYS_creat];
#[cfg(not(target_arch = "x86_64"))]
const OUTPUTS_OLD: &[c_long] = &[];

/// All kinds of files, with owners and attributes. They may be of any file of the host: Landlock looks at none of these
/// calls but those that make files.
const TREES: &[c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    /* fchmodat2, which libc does not name for every target */ 452,
];

#[cfg(target_arch = "x86_64")]
const TREES_OLD: &[c_long] = &[
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utimes,
];
#[cfg(not(target_arch = "x86_64"))]
const TREES_OLD: &[c_long] = &[];

/// The C library asks the kernel for its addresses over a socket of its own before it looks a name up. socket and
/// sendmmsg have conditions.
const CONNECTS: &[c_long] = &[libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_sendmmsg];
/// Which argument of a call has the flags with which something is sent.
const SENDS: &[(c_long, u8)] = &[(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];
/// The part of a socket's type that is no flag.
const SOCKET_KIND: u64 = 0xf;
const MESSAGES: &[c_long] =
    &[libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv, libc::SYS_semget, libc::SYS_semop, libc::SYS_semtimedop];

/// A server keeps a memory file by which it reports how it ended, and leaves its directory and its session.
const SERVES: &[c_long] = &[libc::SYS_memfd_create, libc::SYS_chdir, libc::SYS_setsid];
/// Its threads say where and how they run. Of other threads these calls would take those of any process of the user.
const SCHEDULES: &[c_long] = &[libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler];
const RINGS: &[c_long] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_register, libc::SYS_io_uring_enter];

/// Requests to devices and open files.
const IOCTLS: &[u64] = &[
    0x5401,      // TCGETS: is it a terminal
    0x5413,      // TIOCGWINSZ: how wide is it
    0x5421,      // FIONBIO
    0x541b,      // FIONREAD
    0x8004_e500, // FUSE_DEV_IOC_CLONE
    0x1268,      // BLKSSZGET
    0x127b,      // BLKPBSZGET
    0x125e,      // BLKROGET
    0x1277,      // BLKDISCARD
    0x127f,      // BLKZEROOUT
    0x8008_1272, // BLKGETSIZE64
    0x4c05,      // LOOP_GET_STATUS64
    0x4004_9409, // FICLONE
    0x4020_940d, // FICLONERANGE
    0x8008_6601, // FS_IOC_GETFLAGS
    0x801c_581f, // FS_IOC_FSGETXATTR
];

/// Requests to open files: descriptors, locks, pipes, files in memory. Others would have the kernel send any signal to
/// any process of the user (F_SETOWN, F_SETSIG), or hold up those who open a file (F_SETLEASE).
const FCNTLS: &[i32] = &[
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
    libc::F_GETPIPE_SZ,
    libc::F_SETPIPE_SZ,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// Advice by which root takes memory away from all processes: MADV_HWPOISON and MADV_SOFT_OFFLINE.
const POISONS: [u64; 2] = [100, 101];

/// Names of threads and of memory.
const PRCTLS: &[u64] = &[libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, 0x5356_4d41 /* PR_SET_VMA */];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, SandboxError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).map_err(refused)
}

/// An argument that is no address.
fn null(argument: u8) -> Result<SeccompCondition, SandboxError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0).map_err(refused)
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, SandboxError> {
    SeccompRule::new(conditions).map_err(refused)
}

fn refused(error: impl std::fmt::Display) -> SandboxError {
    SandboxError::Calls(error.to_string())
}

/// One rule for each value that an argument may have.
fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, SandboxError> {
    values.iter().map(|value| rule(vec![condition(argument, SeccompCmpOp::Eq, *value)?])).collect()
}

fn without_conditions(lists: &[&[c_long]]) -> Rules {
    lists.iter().flat_map(|list| list.iter()).map(|&call| (number(call), Vec::new())).collect()
}

/// A number of a system call, which some targets have in 32 bits.
#[allow(clippy::useless_conversion)]
fn number(call: c_long) -> i64 {
    i64::from(call)
}

/// The calls of [`More`].
fn besides(more: &[More]) -> impl Iterator<Item = c_long> {
    more.iter()
        .flat_map(|more| match more {
            More::ConnectTcp | More::ConnectUnix => CONNECTS,
            More::Messages => MESSAGES,
        })
        .copied()
}

/// The sockets that a connection needs: family, type and protocol. Landlock's rules of ports hold for TCP alone, so
/// another protocol that reaches its ports (MPTCP) must not be had. The C library asks the kernel for addresses by
/// netlink.
fn sockets(more: &More) -> Vec<(i32, i32, i32)> {
    let of = |family: i32, kinds: &[(i32, i32)]| kinds.iter().map(|&(kind, with)| (family, kind, with)).collect();
    let tcp = [(libc::SOCK_STREAM, libc::IPPROTO_TCP), (libc::SOCK_STREAM, 0)];
    let udp = [(libc::SOCK_DGRAM, libc::IPPROTO_UDP), (libc::SOCK_DGRAM, 0)];
    let ip = [tcp, udp].concat();
    let sockets: Vec<Vec<(i32, i32, i32)>> = match more {
        More::ConnectTcp => vec![
            of(libc::AF_INET, &ip),
            of(libc::AF_INET6, &ip),
            of(libc::AF_NETLINK, &[(libc::SOCK_RAW, libc::NETLINK_ROUTE), (libc::SOCK_DGRAM, libc::NETLINK_ROUTE)]),
        ],
        More::ConnectUnix => vec![of(libc::AF_UNIX, &[(libc::SOCK_STREAM, 0)])],
        More::Messages => vec![],
    };
    sockets.concat()
}

fn socket_rule((family, kind, protocol): (i32, i32, i32)) -> Result<SeccompRule, SandboxError> {
    let value = |number: i32| u64::from(number.unsigned_abs());
    rule(vec![
        condition(0, SeccompCmpOp::Eq, value(family))?,
        condition(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), value(kind))?,
        condition(2, SeccompCmpOp::Eq, value(protocol))?,
    ])
}

fn allowed(needs: &Needs) -> Result<Rules, SandboxError> {
    let mut rules = without_conditions(&[ALWAYS, ALWAYS_OLD]);
    rules.extend(besides(&needs.more).map(|call| (number(call), Vec::new())));
    let more: &[&[c_long]] = match needs.calls {
        Calls::Contents => &[],
        Calls::Files => &[NAMES, NAMES_OLD, FILES],
        Calls::Sources => &[NAMES, NAMES_OLD, FILES, SOURCES],
        Calls::Outputs => &[NAMES, NAMES_OLD, FILES, SOURCES, OUTPUTS, OUTPUTS_OLD],
        Calls::Trees => &[NAMES, NAMES_OLD, FILES, SOURCES, OUTPUTS, OUTPUTS_OLD, TREES, TREES_OLD],
        Calls::Serve(IoUring::Not) => &[NAMES, NAMES_OLD, SERVES],
        Calls::Serve(IoUring::Offered) => &[NAMES, NAMES_OLD, SERVES, RINGS],
    };
    rules.extend(without_conditions(more));
    let sockets: Vec<_> = needs.more.iter().flat_map(sockets).collect();
    if !sockets.is_empty() {
        let sockets = sockets.into_iter().map(socket_rule).collect::<Result<_, _>>()?;
        rules.insert(number(libc::SYS_socket), sockets);
    }
    // Bytes that go with a connection are not looked at by Landlock's rules of ports.
    let fast_open = u64::from(libc::MSG_FASTOPEN.unsigned_abs());
    let connects = rules.contains_key(&number(libc::SYS_sendmmsg));
    for (call, flags) in SENDS.iter().filter(|(call, _)| *call != libc::SYS_sendmmsg || connects) {
        let without = rule(vec![condition(*flags, SeccompCmpOp::MaskedEq(fast_open), 0)?])?;
        rules.insert(number(*call), vec![without]);
    }
    if needs.calls == Calls::Outputs {
        // Of any file that it has open, so what it may give is no more than a new file has anyway.
        let others = u64::from(!needs.permissions);
        rules.insert(number(libc::SYS_fchmod), vec![rule(vec![condition(1, SeccompCmpOp::MaskedEq(others), 0)?])?]);
    }
    let harmless = |operator, value| rule(vec![condition(2, operator, value)?]);
    let harmless = vec![harmless(SeccompCmpOp::Lt, POISONS[0])?, harmless(SeccompCmpOp::Gt, POISONS[1])?];
    rules.insert(number(libc::SYS_madvise), harmless);
    let requests: Vec<u64> = FCNTLS.iter().map(|request| u64::from(request.unsigned_abs())).collect();
    rules.insert(number(libc::SYS_fcntl), one_of(1, &requests)?);
    // Memory that is not executable.
    let executable = libc::PROT_EXEC as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let data_only = condition(2, SeccompCmpOp::MaskedEq(executable), 0)?;
        rules.insert(number(call), vec![rule(vec![data_only])?]);
    }
    add_threads(&mut rules, needs)?;
    // Limits of its own, to read.
    let own = vec![rule(vec![condition(0, SeccompCmpOp::Eq, 0)?, null(2)?])?];
    rules.insert(number(libc::SYS_prlimit64), own);
    rules.insert(number(libc::SYS_ioctl), one_of(1, IOCTLS)?);
    rules.insert(number(libc::SYS_prctl), one_of(0, PRCTLS)?);
    Ok(rules)
}

/// Threads of its own: new ones, signals to them, and how they are scheduled.
fn add_threads(rules: &mut Rules, needs: &Needs) -> Result<(), SandboxError> {
    // Nothing that has namespaces of its own.
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    let thread = libc::CLONE_THREAD as u64;
    let flags = thread | u64::from(namespaces.cast_unsigned());
    rules.insert(number(libc::SYS_clone), vec![rule(vec![condition(0, SeccompCmpOp::MaskedEq(flags), thread)?])?]);
    // The filter before this one answers it; of two refusals the last one's error would be taken.
    rules.insert(number(libc::SYS_clone3), Vec::new());
    // Signals to itself: abort.
    rules.insert(number(libc::SYS_tgkill), one_of(0, &[std::process::id().into()])?);
    if cfg!(target_env = "musl") {
        // Its abort names the thread alone, which no filter can tell from a thread of another process.
        rules.insert(number(libc::SYS_tkill), one_of(1, &[u64::from(libc::SIGABRT.unsigned_abs())])?);
    }
    if matches!(needs.calls, Calls::Serve(_)) {
        // The thread that calls, and those that are named.
        let threads: Vec<u64> = std::iter::once(0).chain(needs.threads.iter().map(|&id| id.into())).collect();
        for call in SCHEDULES {
            rules.insert(number(*call), one_of(0, &threads)?);
        }
    }
    Ok(())
}

fn compile(rules: Rules, otherwise: SeccompAction, then: SeccompAction) -> Result<BpfProgram, SandboxError> {
    let target = std::env::consts::ARCH.try_into().map_err(refused)?;
    let filter = SeccompFilter::new(rules, otherwise, then, target).map_err(refused)?;
    filter.try_into().map_err(refused)
}

/// Leaves all threads of the process these system calls.
///
/// # Errors
/// `Calls` when the kernel refuses a filter that it should know; a kernel without seccomp is no error.
pub fn filter_calls(needs: &Needs) -> Result<Confined, SandboxError> {
    let mut fatal = without_conditions(&[FORBIDDEN]);
    besides(&needs.more).for_each(|call| drop(fatal.remove(&number(call))));
    let fatal = compile(fatal, SeccompAction::Allow, SeccompAction::KillProcess)?;
    let opaque = without_conditions(&[&[libc::SYS_clone3]]);
    let opaque = compile(opaque, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    let refusal = SeccompAction::Errno(libc::EPERM as u32);
    let allowed = compile(allowed(needs)?, refusal, SeccompAction::Allow)?;
    // Installing a filter is a call that the last one refuses.
    for filter in [fatal, opaque, allowed] {
        match seccompiler::apply_filter_all_threads(&filter) {
            Ok(()) => {}
            Err(seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error))
                if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) =>
            {
                return Ok(Confined::default());
            }
            Err(error) => return Err(refused(error)),
        }
    }
    Ok(Confined { landlock: None, seccomp: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_both_forbidden_and_allowed() {
        let kinds = [Calls::Contents, Calls::Files, Calls::Sources, Calls::Outputs, Calls::Trees];
        for calls in kinds.into_iter().chain([Calls::Serve(IoUring::Offered)]) {
            let rules = allowed(&Needs::new(calls)).unwrap();
            assert!(FORBIDDEN.iter().all(|call| !rules.contains_key(&number(*call))), "{calls:?}");
        }
    }
}

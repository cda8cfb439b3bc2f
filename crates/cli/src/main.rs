//! The command `xfskit`: make, mount, edit and look into XFS images.
//!
//! Each command translates its arguments into calls of the library, and the results into text or JSON. Called by the
//! name `mount.fuse.xfskit` or `umount.fuse.xfskit`, the program is the helper of `mount` or `umount`; called
//! `mkfs.xfs`, `fsck.xfs` or `xfs_info`, it does what these do.
//!
//! A room uses those below it, and no two files use each other:
//!
//! | room | contains |
//! |---|---|
//! | `main`, `called_as` | which command runs, and how the program ends |
//! | `commands` | a file for each group of commands |
//! | `open` | the session: images, disks and files that are opened, and the rights that are given up before |
//! | `args` | what the command line says |
//! | `operand` | the names of images |
//! | `output` | text, messages, errors and exit codes |
#![forbid(unsafe_code)]

mod args;
mod called_as;
mod commands;
#[cfg(test)]
mod fuzz_tests;
mod interrupt;
mod open;
mod operand;
mod output;

use crate::output::error::{Context, Kind, Result};
use args::mount_helper::of_mount_fuse;
use args::{Cli, Command, mistakes};
use open::network::OtherClients;
use open::qemu::OtherPrograms;
use open::sandbox::Sandboxing;
use open::session::{Options, Session};
use open::{inherited, policy};
use output::exit;
use output::screen::Messages;
use std::process::ExitCode;

/// Threads of the engine constantly free log vectors that other threads have allocated, for which the C library's
/// allocator takes locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    inherited::close_unnamed();
    // A shell asks what may be completed, and this ends the program.
    clap_complete::CompleteEnv::with_factory(args::command).complete();
    let by_mount_fuse = || {
        let args: Vec<_> = std::env::args_os().skip(1).collect();
        of_mount_fuse(&args, |name| args::command().find_subcommand(name).is_some() || name == "help")
    };
    match (called_as::called_as(), by_mount_fuse()) {
        (Some(run), _) => run_in(&Session::new(Options::default()), Purpose::Other, run),
        (None, Some(args)) => {
            run_in(&Session::new(Options::default()), Purpose::Other, |session| called_as::mount(session, args))
        }
        (None, None) => match args::parse() {
            Ok(cli) => run_in(&Session::new(options(&cli)), purpose(&cli.command), |session| {
                run(session, cli.command, cli.json)
            }),
            Err(error) => mistakes::report(error),
        },
    }
}

/// Runs the program, reports what failed, and gives the exit code.
fn run_in(session: &Session, purpose: Purpose, run: impl FnOnce(&Session) -> Result<()>) -> ExitCode {
    let names = xfskit_transfer::refuse_other_names().map_err(|error| crate::output::causes::Usage(error.to_string()));
    let result = names.map_err(Into::into).and_then(|()| run(session));
    let result = result.and_then(|()| session.output.end().context("standard output"));
    session.helpers.end();
    match result {
        Ok(()) => read_code(session, purpose),
        // A backup that is cut off is useless.
        Err(error) if matches!(error.kind(), Kind::BrokenPipe) && purpose == Purpose::WritesData => {
            // This returns only where the system forbids it; then the exit code reports the signal.
            let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
            ExitCode::FAILURE
        }
        // The reader of a listing that closes the pipe has read enough.
        Err(error) if matches!(error.kind(), Kind::BrokenPipe) => read_code(session, purpose),
        Err(error) => {
            let (messages, wait) = (session.messages(), session.wait.time());
            // A server has already reported its error.
            match error.kind() {
                Kind::Several(failures) => {
                    failures.messages(wait).for_each(|(message, code)| messages.report_error(&message, code));
                }
                Kind::Reported(_) => {}
                _ => messages.report_error(&error.message(wait), error.code()),
            }
            // What fails after a signal may have failed by it.
            interrupt::end();
            ExitCode::from(error.code())
        }
    }
}

/// The exit code of a command that was carried out: an image of which something is lost was read as far as it goes.
fn read_code(session: &Session, purpose: Purpose) -> ExitCode {
    // A server has said what is missing, and goes on.
    let is_incomplete = purpose != Purpose::Other && session.is_incomplete.get();
    if is_incomplete { ExitCode::from(exit::DAMAGED) } else { ExitCode::SUCCESS }
}

/// What a command is for, as far as its end depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Standard output gets data of which a part is useless.
    WritesData,
    /// It reads or changes an image.
    Command,
    /// A server, or a call by another name.
    Other,
}

fn purpose(command: &Command) -> Purpose {
    use args::XattrCommand;
    match command {
        Command::Mount(_) => Purpose::Other,
        Command::Export(args) if args.output_file().is_none() => Purpose::WritesData,
        Command::Cat(_) => Purpose::WritesData,
        Command::Xattr(XattrCommand::Dump { .. } | XattrCommand::Get { .. }) => Purpose::WritesData,
        _ => Purpose::Command,
    }
}

/// What the options of the whole program say.
fn options(cli: &Cli) -> Options {
    Options {
        messages: Messages { json: cli.json, quiet: cli.quiet },
        wait: cli.wait,
        other_clients: if cli.others_kept_out { OtherClients::KeptOut } else { OtherClients::MayWrite },
        other_programs: if cli.no_helpers { OtherPrograms::LeftOut } else { OtherPrograms::MayHelp },
        sandboxing: if cli.no_sandbox { Sandboxing::LeftOut } else { Sandboxing::Planned },
    }
}

fn run(session: &Session, command: Command, json: bool) -> Result<()> {
    // Of a command that has several images, each message says which one is meant.
    let has_one = !matches!(command, Command::Cp(_));
    let plan = policy::of(&command);
    let image = plan.as_ref().filter(|_| has_one).and_then(|plan| Some(plan.images.first()?.0.clone()));
    plan.into_iter().for_each(|plan| session.sandbox.plan(plan));
    run_command(session, command, json).map_err(|error| match image {
        Some(image) => error.in_image(&image),
        None => error,
    })
}

fn run_command(session: &Session, command: Command, json: bool) -> Result<()> {
    match command {
        Command::Mkfs(args) => commands::mkfs::run(session, &args, json),
        Command::Mount(args) => commands::mount::run(session, &args),
        Command::Umount(args) => commands::umount::run(session, &args.mount),
        Command::Info(args) => commands::info::run(session, &args, json),
        Command::Admin(command) => commands::admin::run(session, &command, json),
        Command::Check(args) => commands::check::run(session, &args, json),
        Command::Ls(args) => commands::ls::ls(session, &args, json),
        Command::Tree(args) => commands::list::tree(session, &args, json),
        Command::Find(args) => commands::find::run(session, &args, json),
        Command::Stat(args) => commands::list::stat(session, &args, json),
        Command::Readlink(args) => commands::list::readlink(session, &args, json),
        Command::Mkdir(args) => commands::files::mkdir(session, &args),
        Command::Mknod(args) => commands::files::mknod(session, &args),
        Command::Touch(args) => commands::files::touch(session, &args),
        Command::Ln(args) => commands::names::ln(session, &args),
        Command::Mv(args) => commands::names::mv(session, &args),
        Command::Rm(args) => commands::names::rm(session, &args),
        Command::Cp(args) => commands::copy::run(session, &args),
        Command::Cat(args) => commands::contents::cat(session, &args),
        Command::Write(args) => commands::contents::write(session, &args),
        Command::Clone(args) => commands::contents::clone(session, &args),
        Command::Export(args) => commands::export::run(session, &args),
        Command::Import(args) => commands::import::run(session, &args),
        Command::Df(args) => commands::usage::df(session, &args, json),
        Command::Du(args) => commands::usage::du(session, &args, json),
        Command::Chmod(args) => commands::files::chmod(session, &args),
        Command::Chown(args) => commands::files::chown(session, &args),
        Command::Xattr(command) => commands::xattr::run(session, &command, json),
        Command::Parents(args) => commands::parents::parents(session, &args, json),
        Command::Path(args) => commands::parents::path(session, &args, json),
        Command::Stats(args) => commands::stats::run(session, &args, json),
        Command::Log(command) => commands::log::run(session, &command, json),
        #[cfg(feature = "bench")]
        Command::Bench(args) => commands::bench::run(session, &args, json),
        #[cfg(feature = "bench")]
        Command::CrashTest(args) => commands::crash_test::run(session, &args, json),
        Command::Man { dir } => commands::generate::man(&dir),
        Command::Completions { shell } => commands::generate::completions(shell),
    }
}

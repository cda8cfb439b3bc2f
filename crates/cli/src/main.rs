//! The command `xfskit`: make, mount, edit and look into XFS images.
//!
//! Each command translates its arguments into calls of the library, and the results into text or JSON. Called by the
//! name `mount.fuse.xfskit` or `umount.fuse.xfskit`, the program is the helper of `mount` or `umount`; called
//! `mkfs.xfs`, `fsck.xfs` or `xfs_info`, it does what these do.
#![forbid(unsafe_code)]

mod args;
mod called_as;
mod commands;
#[cfg(test)]
mod fuzz_builders;
#[cfg(test)]
mod fuzz_tests;
mod interrupt;
mod open;
mod output;

use anyhow::{Context, Result};
use args::{Cli, Command, mistakes};
use open::{image, inherited, network, policy, qemu, sandbox};
use output::{exit, screen};
use std::process::ExitCode;

/// Threads of the engine constantly free log vectors that other threads have allocated, for which the C library's
/// allocator takes locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    inherited::close_unnamed();
    // A shell asks what may be completed, and this ends the program.
    clap_complete::CompleteEnv::with_factory(args::command).complete();
    let (mut is_data, mut only_reads) = (false, false);
    let by_mount_fuse = || {
        let args: Vec<_> = std::env::args_os().skip(1).collect();
        called_as::of_mount_fuse(&args, |name| args::command().find_subcommand(name).is_some() || name == "help")
    };
    let names = xfskit_transfer::refuse_other_names().map_err(|error| exit::Usage(error.to_string()));
    let result = match (called_as::called_as(), by_mount_fuse()) {
        _ if names.is_err() => names.map_err(Into::into),
        (Some(run), _) => run(),
        (None, Some(args)) => called_as::mount(args),
        (None, None) => match args::parse() {
            Ok(cli) => {
                is_data = writes_data(&cli.command);
                // A server has said what is missing, and goes on.
                only_reads = !matches!(cli.command, Command::Mount(_));
                run(cli)
            }
            Err(error) => return mistakes::report(error),
        },
    };
    let result = result.and_then(|()| screen::end().context("standard output"));
    qemu::end();
    match result {
        Ok(()) => read_code(only_reads),
        // A backup that is cut off is useless.
        Err(error) if exit::is_broken_pipe(&error) && is_data => {
            // This returns only where the system forbids it; then the exit code reports the signal.
            let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
            ExitCode::FAILURE
        }
        // The reader of a listing that closes the pipe has read enough.
        Err(error) if exit::is_broken_pipe(&error) => read_code(only_reads),
        Err(error) => {
            // A server has already reported its error.
            match error.downcast_ref::<exit::Failures>() {
                Some(failures) => failures.messages().for_each(|(message, code)| screen::report_error(&message, code)),
                None if error.is::<exit::Reported>() => {}
                None => screen::report_error(&exit::message(&error), exit::code(&error)),
            }
            // What fails after a signal may have failed by it.
            interrupt::end();
            ExitCode::from(exit::code(&error))
        }
    }
}

/// The exit code of a command that was carried out: an image of which something is lost was read as far as it goes.
fn read_code(only_reads: bool) -> ExitCode {
    if only_reads && image::was_incomplete() { ExitCode::from(exit::DAMAGED) } else { ExitCode::SUCCESS }
}

/// Whether standard output gets data of which a part is useless, rather than a listing.
fn writes_data(command: &Command) -> bool {
    use args::XattrCommand;
    match command {
        Command::Export(args) => args.output_file().is_none(),
        Command::Cat(_) => true,
        Command::Xattr(command) => matches!(command, XattrCommand::Dump { .. } | XattrCommand::Get { .. }),
        _ => false,
    }
}

fn run(cli: Cli) -> Result<()> {
    let json = cli.json;
    screen::set_style(screen::Style { json, quiet: cli.quiet });
    image::wait_at_least(cli.wait);
    if cli.no_sandbox {
        sandbox::leave_out();
    }
    if cli.no_helpers {
        qemu::leave_out();
    }
    if cli.others_kept_out {
        network::others_are_kept_out();
    }
    if let Some(plan) = policy::of(&cli.command) {
        sandbox::plan(plan);
    }
    match cli.command {
        Command::Mkfs(args) => commands::mkfs::run(&args, json),
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::umount::run(&args.mount),
        Command::Info(args) => commands::info::run(&args, json),
        Command::Admin(command) => commands::admin::run(&command, json),
        Command::Check(args) => commands::check::run(&args, json),
        Command::Ls(args) => commands::ls::ls(&args, json),
        Command::Tree(args) => commands::list::tree(&args, json),
        Command::Find(args) => commands::find::run(&args, json),
        Command::Stat(args) => commands::list::stat(&args, json),
        Command::Readlink(args) => commands::list::readlink(&args, json),
        Command::Mkdir(args) => commands::files::mkdir(&args),
        Command::Mknod(args) => commands::files::mknod(&args),
        Command::Touch(args) => commands::files::touch(&args),
        Command::Ln(args) => commands::names::ln(&args),
        Command::Mv(args) => commands::names::mv(&args),
        Command::Rm(args) => commands::names::rm(&args),
        Command::Cp(args) => commands::copy::run(&args),
        Command::Cat(args) => commands::contents::cat(&args),
        Command::Write(args) => commands::contents::write(&args),
        Command::Clone(args) => commands::contents::clone(&args),
        Command::Export(args) => commands::export::run(&args),
        Command::Import(args) => commands::import::run(&args),
        Command::Df(args) => commands::usage::df(&args, json),
        Command::Du(args) => commands::usage::du(&args, json),
        Command::Chmod(args) => commands::files::chmod(&args),
        Command::Chown(args) => commands::files::chown(&args),
        Command::Xattr(command) => commands::xattr::run(&command, json),
        Command::Parents(args) => commands::parents::parents(&args, json),
        Command::Path(args) => commands::parents::path(&args, json),
        Command::Stats(args) => commands::stats::run(&args, json),
        Command::Log(command) => commands::log::run(&command, json),
        #[cfg(feature = "bench")]
        Command::Bench(args) => commands::bench::run(&args, json),
        #[cfg(feature = "bench")]
        Command::CrashTest(args) => commands::crash_test::run(&args, json),
        Command::Man { dir } => commands::generate::man(&dir),
        Command::Completions { shell } => commands::generate::completions(shell),
    }
}

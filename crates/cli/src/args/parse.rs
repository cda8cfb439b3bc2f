//! Parses the arguments of the program.

use super::apart::with_images_apart;
use super::cli::Cli;
use super::help;
use super::list::with_expression;
use crate::output::causes::Usage;
use clap::{CommandFactory, FromArgMatches};

/// The arguments of the program.
///
/// # Errors
/// Help, a version, or what is wrong with them.
pub fn parse() -> Result<Cli, clap::Error> {
    let args = with_expression(std::env::args_os().collect());
    let plain = Cli::command();
    match with_images_apart(args, plain.clone()) {
        Ok(args) => Cli::from_arg_matches(&help::shown(plain).try_get_matches_from(args)?),
        Err(Usage(why)) => Err(help::shown(plain).error(clap::error::ErrorKind::ValueValidation, why)),
    }
}

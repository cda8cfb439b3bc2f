//! `xfs_info`: the geometry of an image, in the form of the original.

use super::arguments::{Argument, parse};
use super::version::version_line;
use crate::args::{ImageArgs, ReadArgs};
use crate::commands::info;
use crate::open::policy;
use crate::open::session::Session;
use crate::output::causes::Usage;
use crate::output::error::Result;
use crate::output::screen::say;

/// Runs the program.
pub fn run(session: &Session) -> Result<()> {
    let mut images = Vec::new();
    for argument in parse(std::env::args_os().skip(1), "t", "V")? {
        match argument {
            Argument::Switch(_) => {
                say!(session.output, "{}", version_line("xfs_info"));
                return Ok(());
            }
            // Where the original looks for mount points.
            Argument::Valued(..) => {}
            Argument::Long(name) => return Err(Usage(format!("unknown option --{}", name.display())).into()),
            Argument::Operand(image) => images.push(image),
        }
    }
    let [image] = images.as_slice() else { return Err(Usage("expected one image or mount point".into()).into()) };
    let args = ReadArgs { image: ImageArgs { image: image.into(), logdev: None }, no_recovery: true };
    session.sandbox.plan(policy::of_reading(&args));
    info::print_geometry(session, &args)
}

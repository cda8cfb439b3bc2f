//! `xfskit stats`: the figures of a mount, from the hidden attribute of its root.

use crate::args::MountPointArgs;
use crate::open::session::Session;
use crate::output::error::{Context, Result, bail};
use crate::output::screen::say;
use rustix::io::Errno;
use serde_json::Value;
use std::path::Path;
use xfskit_fuse::STATS_XATTR;

const MAX_BYTES: usize = 64 << 10;

/// The figures of the mount at a path.
pub fn figures(path: &Path) -> Result<Value> {
    let mut value = vec![0u8; MAX_BYTES];
    let length = match rustix::fs::getxattr(path, STATS_XATTR, &mut value) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => bail!("{}: not the root of an xfskit mount", path.display()),
        result => result.map_err(std::io::Error::from).with_context(|| path.display().to_string())?,
    };
    serde_json::from_slice(&value[..length]).context("the server's answer")
}

/// Runs the command.
pub fn run(session: &Session, args: &MountPointArgs, as_json: bool) -> Result<()> {
    let figures = figures(&args.mount_point)?;
    if as_json {
        say!(session.output, "{figures:#}");
        return Ok(());
    }
    let Some(groups) = figures.as_object() else { bail!("the server's answer is no object") };
    for (group, fields) in groups {
        say!(session.output, "{group}");
        for (name, field) in fields.as_object().into_iter().flatten() {
            let text = field.as_str().map_or_else(|| field.to_string(), str::to_owned);
            say!(session.output, "  {:<24} {text:>14}", name.replace('_', " "));
        }
    }
    Ok(())
}

//! The names by which the program can be called, besides its own. `mount` and `umount` call their helpers for the type
//! `fuse.xfskit` with arguments of a form of their own; those of xfsprogs are in [`crate::xfsprogs`], that of the
//! process that reads headers is in [`crate::header`], and that of the one that becomes qemu-nbd in [`crate::qemu`].
//!
//! ```text
//! mount.fuse.xfskit IMAGE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
//! xfskit IMAGE DIR -o OPTIONS                              by mount.fuse, which knows the program's name
//! umount.fuse.xfskit DIR [-nlfrv] [-N NAMESPACE] [-t TYPE]
//! ```

use crate::args::MountArgs;
use crate::commands::mount::MountSettings;
use crate::commands::{self, umount};
use crate::exit::Usage;
use crate::header;
use crate::qemu;
use crate::xfsprogs;
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Letters of options that mount(8) and umount(8) pass to their helpers; `-o`, `-t` and `-N` have values.
const LETTERS: &str = "sfnvlr";

/// Arguments in the form of mount(8).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HelperArgs {
    /// The image and the folder.
    pub(crate) paths: Vec<PathBuf>,
    /// The lists of `-o`.
    pub(crate) options: Vec<String>,
    fake: bool,
}

/// What to run if the program was called by another name than its own.
pub fn called_as() -> Option<fn() -> Result<()>> {
    let name = std::env::args_os().next()?;
    match Path::new(&name).file_name()?.to_str()? {
        "mount.fuse.xfskit" => Some(run_mount),
        "umount.fuse.xfskit" => Some(run_unmount),
        "mkfs.xfs" => Some(xfsprogs::mkfs),
        "fsck.xfs" => Some(xfsprogs::fsck),
        "xfs_info" => Some(xfsprogs::info),
        header::NAME => Some(header::run),
        qemu::NAME => Some(qemu::run),
        _ => None,
    }
}

/// The arguments of a call by `mount.fuse`, the helper of mount(8) for the type `fuse.xfskit` where there is none of
/// its own: it runs the program that the type names.
///
/// ```text
/// xfskit IMAGE DIR -o OPTIONS
/// ```
pub fn of_mount_fuse(args: &[OsString], is_command: impl Fn(&OsStr) -> bool) -> Option<HelperArgs> {
    let first = args.first().filter(|first| first.as_bytes().first().is_some_and(|byte| *byte != b'-'))?;
    let mut parsed = parse(args.iter().cloned()).ok()?;
    if parsed.paths.len() != 2 || parsed.options.is_empty() || is_command(first) {
        return None;
    }
    // As in a service: it asks for these where its user has not.
    for list in &mut parsed.options {
        let options = list.split(',').filter(|option| !["dev", "suid"].contains(option));
        *list = options.collect::<Vec<_>>().join(",");
    }
    Some(parsed)
}

fn run_mount() -> Result<()> {
    mount(parse(std::env::args_os().skip(1))?)
}

/// Mounts.
pub fn mount(args: HelperArgs) -> Result<()> {
    let [image, mount_point] = args.paths.as_slice() else {
        return Err(Usage("expected an image and a folder".into()).into());
    };
    if args.fake {
        // Does everything but the mount itself, so that a wrong line in fstab is reported.
        MountSettings::parse(&args.options)?;
        return Ok(());
    }
    let (image, mount_point) = (image.clone(), mount_point.clone());
    let options = args.options;
    commands::mount::run(&MountArgs {
        image,
        mount_point,
        foreground: false,
        options,
        log_file: None,
        server: false,
        server_process: false,
        service: false,
    })
}

fn run_unmount() -> Result<()> {
    let args = parse(std::env::args_os().skip(1))?;
    let [mount_point] = args.paths.as_slice() else { return Err(Usage("expected a folder".into()).into()) };
    umount::run(mount_point)
}

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<HelperArgs, Usage> {
    let mut parsed = HelperArgs::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg.as_bytes().first() != Some(&b'-') {
            parsed.paths.push(arg.into());
            continue;
        }
        match arg.to_str() {
            Some("-o") => {
                let list = args.next().and_then(|list| list.into_string().ok());
                parsed.options.push(list.ok_or_else(|| Usage("-o needs options".into()))?);
            }
            // Only mount(8) itself needs types and namespaces.
            Some("-t" | "-N") => drop(args.next()),
            Some(option) if option.len() > 1 && option[1..].chars().all(|letter| LETTERS.contains(letter)) => {
                parsed.fake |= option.contains('f');
            }
            _ => return Err(Usage(format!("unknown option {}", arg.display()))),
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_by_mount_fuse_is_known() {
        let call = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            of_mount_fuse(&args, |first| first == "ls")
        };
        let parsed = call(&["/a.img", "/mnt", "-o", "rw,dev,suid,wsync"]).unwrap();
        assert_eq!((parsed.paths.len(), parsed.options), (2, vec!["rw,wsync".to_owned()]));
        for other in
            [&["ls", "/mnt", "-o", "rw"][..], &["/a.img"], &["-o", "rw"], &["lss", "/a.img"], &[], &["a", "-x"]]
        {
            assert_eq!(call(other), None, "{other:?}");
        }
    }

    #[test]
    fn arguments_of_mount_are_taken_apart() {
        let args = ["a.img", "/mnt", "-n", "-o", "rw,wsync", "-t", "fuse.xfskit"].map(OsString::from);
        let parsed = parse(args).unwrap();
        assert_eq!(parsed.paths, [Path::new("a.img"), Path::new("/mnt")]);
        assert_eq!(parsed.options, ["rw,wsync"]);
        assert!(!parsed.fake && parse(["-o".into()]).is_err());
        assert!(parse(["-sfv".into()]).unwrap().fake);
        for wrong in ["--foreground", "-x", "-", "-orw"] {
            let refusal = parse([OsString::from(wrong)]).unwrap_err().to_string();
            assert!(refusal.ends_with(&format!("unknown option {wrong}")), "{refusal}");
        }
    }
}

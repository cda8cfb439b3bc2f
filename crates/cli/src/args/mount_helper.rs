//! Arguments in the form in which mount(8) and umount(8) call their helpers.

use crate::output::causes::Usage;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Letters of options that mount(8) and umount(8) pass to their helpers; `-o`, `-t` and `-N` have values.
const LETTERS: &str = "sfnvlr";

/// Arguments in the form of mount(8).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HelperArgs {
    /// The image and the folder.
    pub paths: Vec<PathBuf>,
    /// The lists of `-o`.
    pub options: Vec<String>,
    /// Everything but the mount itself is done.
    pub fake: bool,
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

/// Takes the arguments apart.
///
/// # Errors
/// `Usage`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<HelperArgs, Usage> {
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
    use std::path::Path;

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

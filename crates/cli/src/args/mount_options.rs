//! The options of `-o`.

use super::known_mount_options::{Kind, kind_of};
use crate::output::causes::Usage;
use crate::output::text::parse_size;
use std::path::PathBuf;
use xfskit_engine::{AttrLogging, AttrPath, Discard, MountOptions};
use xfskit_fuse::protocol::Placement;
use xfskit_fuse::{KernelOption, Opens, Options, WriteCache};

/// Whether an option changes nothing, as those that the kernel shows of every FUSE mount.
pub fn is_ignored(option: &str) -> bool {
    let (name, value) = split(option);
    name == "rw" || name == "allow_other" || matches!(kind_of(name, value), Some(Kind::IsSo | Kind::Ignored))
}

/// Name and value of an option.
fn split(option: &str) -> (&str, Option<&str>) {
    option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)))
}

/// All options of a mount.
#[derive(Debug, Default)]
pub struct MountSettings {
    /// For the engine.
    pub engine: MountOptions,
    /// For the server.
    pub fuse: Options,
    /// Device of an external journal.
    pub log_device: Option<PathBuf>,
    /// The server keeps rights that it does not need.
    pub no_sandbox: bool,
}

impl MountSettings {
    /// Parses lists of options.
    ///
    /// # Errors
    /// [`Usage`] with the option.
    pub fn parse(lists: &[String]) -> Result<Self, Usage> {
        let mut settings = Self::default();
        let options = lists.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty());
        for option in options {
            settings.apply(option).map_err(|why| Usage(format!("-o {option}: {why}")))?;
        }
        // The kernel has each write wait then, but sends what is done to directories as it always does.
        settings.engine.wsync |= settings.fuse.is_synchronous();
        if settings.engine.no_recovery && !settings.engine.read_only {
            return Err(Usage("-o norecovery: only together with ro".into()));
        }
        Ok(settings)
    }

    pub fn apply(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = split(option);
        match kind_of(name, value) {
            Some(Kind::IsSo | Kind::Ignored) => return Ok(()),
            Some(Kind::Refused(why)) => return Err(why.into()),
            None => {}
        }
        if let Some(value) = value {
            return self.apply_value(name, value);
        }
        if apply_to_engine(&mut self.engine, name, None)? {
            return Ok(());
        }
        match name {
            "ro" => self.engine.read_only = true,
            "rw" => self.engine.read_only = false,
            "norecovery" => self.engine.no_recovery = true,
            "inode32" => self.engine.inode32 = true,
            "writeback" => self.fuse.cache = WriteCache::Back,
            "nowriteback" => self.fuse.cache = WriteCache::Through,
            "allow_other" => self.fuse.allow_other = true,
            "allow_root" => self.fuse.allow_root = true,
            "checkopen" => self.fuse.opens = Opens::Checked,
            "nosandbox" => self.no_sandbox = true,
            "auto_unmount" => self.fuse.auto_unmount = true,
            _ => match KernelOption::parse(name) {
                Some(option) => self.fuse.kernel.push(option),
                None => return Err("no such option".into()),
            },
        }
        Ok(())
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<(), String> {
        if apply_to_engine(&mut self.engine, name, Some(value))? {
            return Ok(());
        }
        let number = || value.parse::<u64>().map_err(|_| "expected a number".to_owned());
        match name {
            "logdev" => self.log_device = Some(value.into()),
            "cache" => {
                self.engine.cache_bytes = usize::try_from(parse_size(value)?).map_err(|_| "too large".to_owned())?;
            }
            "commit" => self.fuse.commit_seconds = number()?,
            "threads" => match number()? {
                0 => return Err("expected one thread at least".into()),
                threads => self.fuse.threads = threads.min(64) as usize,
            },
            "placement" => {
                self.fuse.placement = match value {
                    "client" => Placement::WithLoneClient,
                    "scheduler" => Placement::Scheduler,
                    _ => return Err("expected client or scheduler".into()),
                }
            }
            _ => return Err("no such option".into()),
        }
        Ok(())
    }
}

/// Options of the engine that a measurement may take: how it logs and updates attributes, and where it is made to fail.
///
/// # Errors
/// [`Usage`] with the option.
#[cfg(feature = "bench")]
pub fn parse_engine(lists: &[String]) -> Result<MountOptions, Usage> {
    let mut engine = MountOptions::default();
    for option in lists.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        match apply_to_engine(&mut engine, name, value) {
            Ok(true) => {}
            Ok(false) => return Err(Usage(format!("-o {option}: no such option; there are {ENGINE}"))),
            Err(why) => return Err(Usage(format!("-o {option}: {why}"))),
        }
    }
    Ok(engine)
}

#[cfg(feature = "bench")]
const ENGINE: &str = "larp=always|never, attrpath=fast|general|intents, nofastpath, nowhiteout, noknownabsent, wsync, \
                      discard, nodiscard and errortag=NAME[:PASS]";

/// Applies an option of the engine. `false`: it is none.
fn apply_to_engine(engine: &mut MountOptions, name: &str, value: Option<&str>) -> Result<bool, String> {
    match (name, value) {
        ("wsync", None) => engine.wsync = true,
        ("discard", None) => engine.discard = Discard::Freed,
        ("nodiscard", None) => engine.discard = Discard::Nothing,
        ("nofastpath", None) => engine.attr_path = AttrPath::General,
        ("nowhiteout", None) => engine.whiteouts = false,
        ("noknownabsent", None) => engine.known_absent = false,
        ("larp", Some(value)) => engine.attr_logging = parse_logging(value)?,
        ("attrpath", Some(value)) => {
            engine.attr_path = match value {
                "fast" => AttrPath::Fast,
                "general" => AttrPath::General,
                "intents" => AttrPath::Intents,
                _ => return Err("expected fast, general or intents".into()),
            };
        }
        ("errortag", Some(value)) => engine.error_tags.push(error_tag(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Whether attributes are logged, as `larp` says it.
///
/// # Errors
/// What was expected instead.
pub fn parse_logging(text: &str) -> Result<AttrLogging, String> {
    AttrLogging::from_name(text).ok_or_else(|| "expected always or never".into())
}

/// An error tag in an option: its name, and the number of the pass at which it fails.
pub fn error_tag(text: &str) -> Result<(&'static str, u32), String> {
    let (name, nth) = text.split_once(':').unwrap_or((text, "1"));
    let tag = xfskit_engine::error_tags::find(name);
    let tag = tag.ok_or_else(|| format!("{name:?} is not an error tag: docs/mounting.md lists them"))?;
    let nth = nth.parse::<std::num::NonZeroU32>();
    let nth = nth.map_err(|_| format!("{text:?}: expected NAME or NAME:NTH, from 1 on"))?;
    Ok((tag, nth.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MountSettings, Usage> {
        MountSettings::parse(&[text.to_owned()])
    }

    #[test]
    fn options_reach_their_places_and_wrong_ones_are_named() {
        let settings = parse("rw,wsync,cache=64M,larp=never,nofail,x-systemd.automount,allow_other,dev").unwrap();
        assert!(settings.engine.wsync && settings.fuse.allow_other);
        assert_eq!(settings.engine.cache_bytes, 64 << 20);
        assert_eq!(settings.engine.attr_logging, AttrLogging::Never);
        assert_eq!(settings.fuse.kernel, [KernelOption::Dev]);
        assert!(parse("wsink").unwrap_err().to_string().contains("wsink"));
        assert!(parse("threads=0").unwrap_err().to_string().contains("one thread at least"));
        assert_eq!(parse("placement=scheduler").unwrap().fuse.placement, Placement::Scheduler);
        assert!(parse("placement=moon").unwrap_err().to_string().contains("client or scheduler"));
        for refused in ["usrquota", "context=system_u:object_r:x:s0", "offset=1048576", "dax=always", "grpid"] {
            assert!(parse(refused).is_err(), "{refused}");
        }
        let line =
            "rw,inode64,attr2,logbufs=8,logbsize=256k,largeio,swalloc,allocsize=64k,noquota,nouuid,dax=inode,loop";
        assert_eq!(format!("{:?}", parse(line).unwrap()), format!("{:?}", MountSettings::default()));
        assert!(parse("inode32").unwrap().engine.inode32 && parse("ro,norecovery,nouuid").unwrap().engine.no_recovery);
        assert!(parse("larp=maybe").is_err() && parse("norecovery").is_err());
        assert!(parse("ro,norecovery").unwrap().engine.no_recovery);
    }
}

//! The options of `-o`.

use crate::exit::Usage;
use crate::text::parse_size;
use std::path::PathBuf;
use xfskit::volume::{AttrLogging, AttrPath, MountOptions};
use xfskit_fuse::{KernelOption, Options, WriteCache};

/// Options that mount(8) and fstab add and that have no meaning for a server.
const IGNORED: [&str; 26] = [
    "rw",
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "diratime",
    "nodiratime",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    "mand",
    "nomand",
    "default_permissions",
];

/// Whether an option has no meaning for a server. Options that the kernel shows of every FUSE mount have none either.
pub fn is_ignored(option: &str) -> bool {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let shown =
        ["user_id", "group_id", "max_read", "rootmode", "fd", "subtype", "fsname", "comment", "uhelper", "allow_other"];
    IGNORED.contains(&name) || shown.contains(&name) || name.starts_with("x-")
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
        if settings.engine.no_recovery && !settings.engine.read_only {
            return Err(Usage("-o norecovery: only together with ro".into()));
        }
        Ok(settings)
    }

    pub(super) fn apply(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        if let Some(value) = value {
            return self.apply_value(name, value);
        }
        let engine = &mut self.engine;
        match name {
            "ro" => engine.read_only = true,
            "norecovery" => engine.no_recovery = true,
            "wsync" => engine.wsync = true,
            "writeback" => self.fuse.cache = WriteCache::Back,
            "nowriteback" => self.fuse.cache = WriteCache::Through,
            "nofastpath" => engine.attr_path = AttrPath::General,
            "nowhiteout" => engine.whiteouts = false,
            "noknownabsent" => engine.known_absent = false,
            "allow_other" => self.fuse.allow_other = true,
            "allow_root" => self.fuse.allow_root = true,
            "auto_unmount" => self.fuse.auto_unmount = true,
            _ if IGNORED.contains(&name) || name.starts_with("x-") => {}
            _ => match KernelOption::parse(name) {
                Some(option) => self.fuse.kernel.push(option),
                None => return Err("no such option".into()),
            },
        }
        Ok(())
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<(), String> {
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
            "larp" => {
                self.engine.attr_logging = match value {
                    "always" => AttrLogging::Always,
                    "never" => AttrLogging::Never,
                    _ => return Err("expected always or never".into()),
                };
            }
            "attrpath" => {
                self.engine.attr_path = match value {
                    "fast" => AttrPath::Fast,
                    "general" => AttrPath::General,
                    "intents" => AttrPath::Intents,
                    _ => return Err("expected fast, general or intents".into()),
                };
            }
            "errortag" => {
                self.engine.error_tags.push(crate::commands::error_tag(value)?);
            }
            "comment" | "user" | "subtype" | "fsname" => {}
            _ if name.starts_with("x-") => {}
            _ => return Err("no such option".into()),
        }
        Ok(())
    }
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
        assert!(parse("larp=maybe").is_err() && parse("norecovery").is_err());
        assert!(parse("ro,norecovery").unwrap().engine.no_recovery);
    }
}

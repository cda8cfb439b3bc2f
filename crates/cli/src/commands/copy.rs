//! `xfskit cp`: trees between the host and images.

use super::list::is_dir;
use crate::args::CpArgs;
use crate::exit::{self, Usage};
use crate::image::{has_external_log, open, shown};
use crate::interrupt;
use crate::progress::CopyBar;
use crate::screen;
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit::ondisk::InodeNumber;
use xfskit::{Error, Filesystem, MountOptions};
use xfskit_transfer::{Adjust, HostSink, HostSource, ImageSink, ImageSource, Losses, Sink, Source, transfer};

/// A path as `cp` takes it.
enum Place {
    /// Of the host.
    Host(PathBuf),
    /// Within an image.
    Image(PathBuf, OsString),
}

impl Place {
    /// `IMAGE:/PATH`, or `IMAGE:` for its root; everything else, and whatever exists under its whole name, is the host's.
    fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let colon = bytes.windows(2).position(|pair| pair == b":/").or(bytes.strip_suffix(b":").map(<[u8]>::len));
        match colon {
            Some(colon) if colon > 0 && std::fs::symlink_metadata(text).is_err() => {
                let (image, path) = (&bytes[..colon], &bytes[colon + 1..]);
                let path = if path.is_empty() { b"/" } else { path };
                Self::Image(OsStr::from_bytes(image).into(), OsStr::from_bytes(path).into())
            }
            _ => Self::Host(text.into()),
        }
    }

    /// The path, whether of the host or of the image.
    fn path(&self) -> &[u8] {
        match self {
            Self::Host(path) => path.as_os_str().as_bytes(),
            Self::Image(_, path) => path.as_bytes(),
        }
    }

    /// The name that a copy gets in a directory; none where the contents of a directory are meant.
    fn name(&self) -> &[u8] {
        let path = self.path();
        let path = path.strip_suffix(b"/").unwrap_or(path);
        match path.rsplit(|&byte| byte == b'/').next() {
            Some(b"." | b"..") | None => b"",
            Some(name) => name,
        }
    }
}

/// Images that are open, each once: the lock of one that is written keeps even ourselves from opening it again.
struct Images {
    opened: Vec<(PathBuf, Arc<Filesystem>)>,
    /// The device of an external journal, until the image that needs it was opened.
    log_device: Option<PathBuf>,
}

impl Images {
    fn open(&mut self, image: &Path, options: MountOptions) -> Result<Arc<Filesystem>> {
        let key = image.canonicalize().unwrap_or_else(|_| image.into());
        if let Some((_, filesystem)) = self.opened.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(filesystem));
        }
        let log_device = if has_external_log(image) { self.log_device.take() } else { None };
        let filesystem = Arc::new(open(image, log_device.as_deref(), options)?);
        self.opened.push((key, Arc::clone(&filesystem)));
        Ok(filesystem)
    }

    /// Closes all of them, whether copying failed or not.
    fn close(self) -> Result<()> {
        let mut result = Ok(());
        for (image, filesystem) in self.opened {
            let filesystem = Arc::into_inner(filesystem).expect("nobody else uses the image any more");
            if !filesystem.mount().options.read_only {
                let closed = filesystem.unmount();
                result = result.and(closed.with_context(|| format!("{}: closing the image", image.display())));
            }
        }
        result
    }
}

/// Where copies go.
enum Target {
    Host(PathBuf),
    Image(Arc<Filesystem>, InodeNumber),
}

/// Runs `cp`.
pub fn run(args: &CpArgs) -> Result<()> {
    let (last, sources) = args.paths.split_last().expect("there are two paths at least");
    let sources: Vec<Place> = sources.iter().map(|path| Place::parse(path)).collect();
    let target = Place::parse(last);
    if args.no_recovery && matches!(target, Place::Image(..)) {
        return Err(Usage("--norecovery: only for copies to the host".into()).into());
    }
    interrupt::watch()?;
    let mut images = Images { opened: Vec::new(), log_device: args.logdev.clone() };
    let result = copy_all(args, &sources, &target, &mut images);
    let closed = images.close();
    let losses = result?;
    closed?;
    report(&losses)
}

/// Tells what was lost; an error if that is more than a name's first slash.
pub fn report(losses: &Losses) -> Result<()> {
    if *losses != Losses::default() {
        screen::tell(&losses.to_string());
    }
    if losses.are_real() { Err(exit::Reported(exit::LOSSES).into()) } else { Ok(()) }
}

fn copy_all(args: &CpArgs, sources: &[Place], target: &Place, images: &mut Images) -> Result<Losses> {
    let (base, name) = find_target(args, sources.len(), target, images)?;
    let adjust = Adjust {
        uid: args.owner.and_then(|owner| owner.uid),
        gid: args.owner.and_then(|owner| owner.gid),
        newest: None,
    };
    let bar = CopyBar::new("copying");
    let mut losses = Losses::default();
    for source in sources {
        let prefix = name.as_deref().unwrap_or(source.name());
        let lost = match source {
            Place::Host(path) => {
                let mut source =
                    HostSource::new(path, prefix, args.recursive).with_context(|| shown(path.as_os_str()))?;
                copy(&mut source, &base, &adjust, &bar)
            }
            Place::Image(image, path) => {
                let options = MountOptions { no_recovery: args.no_recovery, ..MountOptions::read_only() };
                let filesystem = images.open(image, options)?;
                // A slash at the end asks for the directory behind a link.
                let follow = path.as_bytes().ends_with(b"/") || path.as_bytes().ends_with(b"/.");
                let start = filesystem.resolve(path.as_bytes(), follow).with_context(|| shown(path))?;
                check_not_into_itself(&filesystem, start.inode, &base).with_context(|| shown(path))?;
                copy(&mut ImageSource::new(&filesystem, start.inode, prefix, args.recursive), &base, &adjust, &bar)
            }
        };
        losses = losses.and(lost?);
    }
    Ok(losses)
}

fn copy(source: &mut dyn Source, target: &Target, adjust: &Adjust, bar: &CopyBar) -> Result<Losses> {
    let mut to_host;
    let mut to_image;
    let sink: &mut dyn Sink = match target {
        Target::Host(folder) => {
            to_host = HostSink::new(folder)?;
            &mut to_host
        }
        Target::Image(filesystem, dir) => {
            to_image = ImageSink::new(filesystem, *dir)?;
            &mut to_image
        }
    };
    transfer(source, sink, adjust, bar)?;
    Ok(source.losses().and(sink.losses()))
}

/// The directory that copies go into, and their name there, if it is not that of their source.
fn find_target(
    args: &CpArgs,
    sources: usize,
    target: &Place,
    images: &mut Images,
) -> Result<(Target, Option<Vec<u8>>)> {
    let into = |is_dir: bool| -> Result<bool> {
        if sources > 1 && (!is_dir || args.no_target_directory) {
            let text = String::from_utf8_lossy(target.path()).into_owned();
            return Err(Usage(format!("{text}: several files can only be copied into a directory")).into());
        }
        Ok(is_dir && !args.no_target_directory)
    };
    match target {
        Place::Host(path) => {
            if into(path.is_dir())? {
                return Ok((Target::Host(path.clone()), None));
            }
            // What has no name, such as "..", is a folder that only its contents can be replaced of.
            let Some(name) = path.file_name() else { return Ok((Target::Host(path.clone()), Some(Vec::new()))) };
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok((Target::Host(parent.into()), Some(name.as_bytes().to_vec())))
        }
        Place::Image(image, path) => {
            let filesystem = images.open(image, MountOptions::default())?;
            match filesystem.resolve(path.as_bytes(), true) {
                Ok(stat) if into(is_dir(&stat))? => return Ok((Target::Image(filesystem, stat.inode), None)),
                Ok(stat) if target.name().is_empty() => {
                    return Ok((Target::Image(filesystem, stat.inode), Some(Vec::new())));
                }
                Ok(_) => {}
                Err(Error::NotFound) => drop(into(false)?),
                Err(error) => return Err(error).with_context(|| shown(path)),
            }
            let (dir, name) = xfskit::split_path(path.as_bytes()).with_context(|| shown(path))?;
            let dir = filesystem.resolve(dir, true).with_context(|| shown(path))?.inode;
            Ok((Target::Image(filesystem, dir), Some(name.to_vec())))
        }
    }
}

/// A directory that is copied into itself would never end.
fn check_not_into_itself(filesystem: &Arc<Filesystem>, start: InodeNumber, target: &Target) -> Result<()> {
    let Target::Image(other, dir) = target else { return Ok(()) };
    if !Arc::ptr_eq(filesystem, other) {
        return Ok(());
    }
    let mut at = *dir;
    let mut seen = std::collections::HashSet::new();
    while seen.insert(at) {
        if at == start {
            return Err(Usage("a directory cannot be copied into itself".into()).into());
        }
        at = filesystem.lookup(at, b"..")?.inode;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_and_a_slash_make_a_path_within_an_image() {
        let image = |text: &str| match Place::parse(OsStr::new(text)) {
            Place::Image(image, path) => Some((image.display().to_string(), path.into_string().unwrap())),
            Place::Host(_) => None,
        };
        assert_eq!(image("a.img:/etc"), Some(("a.img".into(), "/etc".into())));
        assert_eq!(image("d/a.img:"), Some(("d/a.img".into(), "/".into())));
        assert_eq!(image("a:b"), None);
        assert_eq!(image(":/etc"), None);
    }

    #[test]
    fn copies_are_named_like_their_source() {
        let name = |text: &str| String::from_utf8(Place::parse(OsStr::new(text)).name().to_vec()).unwrap();
        assert_eq!(name("a.img:/etc/"), "etc");
        assert_eq!(name("a.img:/etc/."), "");
        assert_eq!(name("a.img:/"), "");
        assert_eq!((name("dir/file").as_str(), name(".").as_str()), ("file", ""));
    }
}

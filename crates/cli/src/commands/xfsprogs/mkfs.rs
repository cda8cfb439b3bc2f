//! `mkfs.xfs`: makes an image in the file or on the device that it is given, as the programs that build images call it.
//!
//! ```text
//! mkfs.xfs [-b -d -i -l -m -n -s OPTS]... [-c options=FILE] [-p SOURCE] [-L LABEL] [-fKNqV] DEVICE
//! ```
//! Two things differ from `xfskit mkfs`. The file is written in place, for a caller may have it open already. And only
//! a filesystem or partition table that is known is in the way without `-f`, not every byte.

use super::arguments::{Argument, parse};
use super::version::version_line;
use crate::args::mkfs_config as config;
use crate::args::{MkfsArgs, Overwrite, Placement, ProtoArgs};
use crate::commands::info::summary_of;
use crate::commands::mkfs;
use crate::open::policy;
use crate::open::session::Session;
use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use crate::output::screen::{say, say_part};
use std::ffi::OsString;
use std::path::PathBuf;
use xfskit_device::{Access, BlockDevice};
use xfskit_mkfs::{Options, plan};

/// Letters with values, and those without.
const VALUED: &str = "bcdilLmnprs";
const SWITCHES: &str = "fKNqV";
/// What `--help` says.
const USAGE: &str = "\
Usage: mkfs.xfs [OPTIONS] DEVICE
  -b size=BYTES
  -c options=FILE,defaults=FILE     options from configuration files
  -d agcount=N,agsize=SIZE,file,name=PATH,size=SIZE,sunit=N,swidth=N,su=SIZE,sw=N,noalign,sectsize=BYTES
  -f                                overwrite a filesystem that is there
  -i size=BYTES,perblock=N,maxpct=N,sparse=0|1,nrext64=0|1,exchange=0|1
  -K                                discard nothing
  -l agnum=N,internal,logdev=PATH,size=SIZE,su=SIZE,sunit=N,sectsize=BYTES
  -L LABEL
  -m finobt=0|1,inobtcount=0|1,rmapbt=0|1,reflink=0|1,bigtime=0|1,autofsck=VALUE,uuid=UUID
  -n size=BYTES,parent=0|1
  -N                                show what would be made
  -p FOLDER|PROTOFILE               make files in it; with atime=0|1,slashes_are_spaces=0|1
  -q                                print nothing
  -s size=BYTES
  -V                                print the version
  --unsupported                     allow less than 300 MB
Options of mkfs.xfs 7.2 that ask for nothing are taken as well. This is xfskit; xfskit mkfs --help has its own form.
";

/// What the arguments ask for.
#[derive(Debug, Default)]
struct Request {
    options: Options,
    /// Each option that was given: its letter and name.
    given: Vec<(char, String)>,
    proto: Option<ProtoArgs>,
    /// The operand, or `-d name=`.
    image: Option<PathBuf>,
    /// `-d file`: the image is a file, which is made or cut.
    makes_file: bool,
    overwrites: bool,
    only_shows: bool,
    is_quiet: bool,
}

/// Runs the program.
pub fn run(session: &Session) -> Result<()> {
    let arguments = parse(std::env::args_os().skip(1), VALUED, SWITCHES)?;
    if arguments.contains(&Argument::Switch('V')) {
        say!(session.output, "{}", version_line("mkfs.xfs"));
        return Ok(());
    }
    if arguments.contains(&Argument::Long("help".into())) {
        say_part!(session.output, "{USAGE}");
        return Ok(());
    }
    let request = Request::new(arguments)?;
    let image =
        request.image.clone().ok_or_else(|| Usage("expected a device or file; --help has the options".into()))?;
    if request.only_shows {
        return show(session, &request, image);
    }
    if !request.makes_file && !image.exists() {
        let hint = "no such file; -d file=1,size=SIZE makes one";
        return Err(Usage(format!("{}: {hint}", image.display())).into());
    }
    let mut options = request.options.clone();
    options.uuid.get_or_insert_with(|| *uuid::Uuid::new_v4().as_bytes());
    let args = request.into_args(image);
    mkfs::make_image(session, &args, &options, false)
}

/// Shows what would be made.
fn show(session: &Session, request: &Request, image: PathBuf) -> Result<()> {
    session.sandbox.plan(policy::of_devices([Some(&image), request.options.log_device.as_ref()].into_iter().flatten()));
    let shown = image.display().to_string();
    let (bytes, sector_bytes) = match request.options.data_bytes().filter(|_| request.makes_file) {
        Some(bytes) => (bytes, 512),
        None => {
            let device = session.open_device(&image, Access::Read)?;
            (device.size_bytes(), device.hints().sector_bytes)
        }
    };
    let log = request.options.log_device.as_deref().map(|path| session.open_device(path, Access::Read)).transpose()?;
    let log_bytes = log.map(|log| log.size_bytes());
    let superblock = plan(&request.options, bytes, sector_bytes, log_bytes).with_context(|| shown.clone())?;
    say_part!(session.output, "{}", summary_of(&shown, &superblock));
    Ok(())
}

impl Request {
    fn new(arguments: Vec<Argument>) -> Result<Self> {
        let mut request = Self::default();
        let mut files = config::Files::default();
        for argument in arguments {
            match argument {
                Argument::Switch('f') => request.overwrites = true,
                Argument::Switch('N') => request.only_shows = true,
                Argument::Switch('q') => request.is_quiet = true,
                // Nothing is discarded: the space of a file that is written in place is given back as a whole.
                Argument::Switch(_) => {}
                Argument::Valued('c', list) => files.take(&text('c', list)?)?,
                Argument::Valued(letter, list) => request.apply(letter, &text(letter, list)?)?,
                Argument::Long(name) if name == "unsupported" => request.options.allow_small = true,
                Argument::Long(name) => return Err(Usage(format!("unknown option --{}", name.display())).into()),
                Argument::Operand(path) => request.set_image(path.into())?,
            }
        }
        let read = |path: Option<PathBuf>| path.map(|path| config::read(&path)).transpose();
        for (letter, option) in read(files.options)?.unwrap_or_default() {
            request.apply(letter, &option)?;
        }
        for (letter, option) in read(files.defaults)?.unwrap_or_default() {
            let name = option.split('=').next().unwrap_or_default();
            if !request.given.iter().any(|(given, other)| *given == letter && other == name) {
                request.apply(letter, &option)?;
            }
        }
        Ok(request)
    }

    fn set_image(&mut self, path: PathBuf) -> Result<(), Usage> {
        match self.image.replace(path) {
            None => Ok(()),
            Some(first) => Err(Usage(format!("{}: one device or file only", first.display()))),
        }
    }

    fn apply(&mut self, letter: char, list: &str) -> Result<()> {
        match letter {
            'L' => self.options.set_label(list)?,
            'p' => self.proto.get_or_insert_default().apply(list)?,
            _ => {
                let kept = self.take_image_options(letter, list)?;
                self.note(letter, &kept)?;
                if !kept.is_empty() {
                    self.options.apply(letter, &kept.join(","))?;
                }
            }
        }
        Ok(())
    }

    /// Takes the options that say what the image is; returns the others, which say how it is made.
    fn take_image_options<'a>(&mut self, letter: char, list: &'a str) -> Result<Vec<&'a str>> {
        let mut kept = Vec::new();
        for item in list.split(',') {
            match (letter, item.split_once('=').unwrap_or((item, "1"))) {
                ('d', ("file", "1")) => self.makes_file = true,
                ('d', ("file", "0")) => {}
                ('d', ("name", path)) => self.set_image(path.into())?,
                _ => kept.push(item),
            }
        }
        Ok(kept)
    }

    /// An option that is given twice, in a file and on the command line too, is a slip.
    fn note(&mut self, letter: char, items: &[&str]) -> Result<(), Usage> {
        for item in items {
            let option = (letter, item.split('=').next().unwrap_or_default().to_owned());
            if self.given.contains(&option) {
                return Err(Usage(format!("-{letter} {}: the option is given twice", option.1)));
            }
            self.given.push(option);
        }
        Ok(())
    }

    fn into_args(self, image: PathBuf) -> MkfsArgs {
        let size = self.options.data_bytes().filter(|_| self.makes_file).map(|bytes| bytes.to_string());
        MkfsArgs {
            target: image.into(),
            size,
            quiet: self.is_quiet,
            small: self.options.allow_small,
            placement: Placement::InPlace,
            force: self.overwrites,
            overwrites: Overwrite::Unformatted,
            proto: self.proto,
            ..MkfsArgs::default()
        }
    }
}

fn text(letter: char, value: OsString) -> Result<String, Usage> {
    value.into_string().map_err(|value| Usage(format!("-{letter} {}: it is not UTF-8", value.display())))
}

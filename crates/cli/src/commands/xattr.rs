//! `xfskit xattr`.

use super::label;
use super::list::path_of;
use crate::args::{PathArgs, XattrCommand};
use crate::interrupt;
use crate::open::edit::{edit, edit_after};
use crate::open::paths::{find, shown};
use crate::open::session::Session;
use crate::open::volume::open_to_read;
use crate::output::causes::Usage;
use crate::output::dump::{Block, Encoding, decode_value, encode_value, read_blocks, write_block};
use crate::output::error::{Context, Failures, Result, for_each};
use crate::output::screen::Messages;
use crate::output::screen::{self, out};
use crate::output::text::{json_of, set_json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, IsTerminal, Read, Write, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use xfskit_engine::{Caller, SetMode, Volume, XattrChange};
use xfskit_ondisk::InodeNumber;
use xfskit_transfer::{FileContexts, ImageWalk, is_not_the_files};

const MAX_VALUE_BYTES: u64 = 64 * 1024;
/// What the names begin with that are dumped if nothing else is asked for, as by getfattr.
const USUAL_PREFIX: &str = "user.";

/// Runs the command.
pub fn run(session: &Session, command: &XattrCommand, as_json: bool) -> Result<()> {
    match command {
        XattrCommand::List(args) => list(session, args, as_json),
        XattrCommand::Get { read, path, name, encoding } => {
            let filesystem = open_to_read(session, read)?;
            let stat = find(&filesystem, path)?;
            let value = filesystem.get_xattr(stat.inode, name.as_bytes()).with_context(|| name.clone())?;
            print_value(name, &value, *encoding, as_json)
        }
        XattrCommand::Set { image, logging, path, name, value, value_file, create, replace } => {
            let value = match value_file {
                Some(file) => read_value(file)?,
                None => decode_value(value.as_deref().unwrap_or_default().as_bytes()).map_err(Usage)?,
            };
            let mode = match (create, replace) {
                (true, _) => SetMode::Create,
                (_, true) => SetMode::Replace,
                _ => SetMode::Any,
            };
            edit(session, image, |filesystem| {
                logging.apply(filesystem);
                let stat = find(filesystem, path)?;
                filesystem
                    .set_xattr(stat.inode, name.as_bytes(), &value, mode, &Caller::root())
                    .at(format!("{}: {name}", shown(path)))
            })
        }
        XattrCommand::Rm { image, logging, path, names } => edit(session, image, |filesystem| {
            logging.apply(filesystem);
            let stat = find(filesystem, path)?;
            let change = |name: &String| XattrChange { name: name.clone().into_bytes(), value: None };
            let changes: Vec<XattrChange> = names.iter().map(change).collect();
            filesystem.change_xattrs(stat.inode, &changes, SetMode::Any, &Caller::root()).at(path)
        }),
        XattrCommand::Dump { path, recursive, prefix, encoding } => {
            dump(session, path, *recursive, prefix.as_deref(), *encoding, as_json)
        }
        XattrCommand::Label { image, logging, paths, file_contexts, verbose } => {
            let contexts = FileContexts::read(file_contexts)?;
            let report = if *verbose { label::Report::Changes } else { label::Report::Nothing };
            let look = |filesystem: &Volume| for_each(paths, |path| find(filesystem, path).map(drop));
            edit_after(session, image, look, |filesystem| {
                logging.apply(filesystem);
                label::run(&session.output, filesystem, paths, &contexts, report)
            })
        }
        XattrCommand::Restore { image, logging, file, root } => {
            let blocks = read_dump(file)?;
            edit(session, image, |filesystem| {
                logging.apply(filesystem);
                restore(filesystem, &blocks, root)
            })
        }
    }
}

fn list(session: &Session, args: &PathArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(session, &args.read)?;
    let stat = find(&filesystem, &args.path)?;
    let mut names = filesystem.list_xattrs(stat.inode)?;
    names.sort();
    let mut out = out();
    if as_json {
        let names = names.iter().map(|name| json_of("name", name)).collect();
        writeln!(out, "{:#}", Value::Array(names))?;
        return Ok(out.flush()?);
    }
    for name in names {
        out.write_all(&screen::name(&name))?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

fn print_value(name: &str, value: &[u8], encoding: Option<Encoding>, as_json: bool) -> Result<()> {
    let mut out = out();
    if as_json {
        let text = std::str::from_utf8(value).ok();
        writeln!(out, "{:#}", json!({ "name": name, "base64": BASE64.encode(value), "text": text }))?;
    } else if encoding.is_some() {
        out.write_all(&encode_value(value, encoding))?;
        writeln!(out)?;
    } else {
        out.write_all(value)?;
    }
    Ok(out.flush()?)
}

fn dump(
    session: &Session,
    args: &PathArgs,
    recursive: bool,
    asked: Option<&str>,
    encoding: Option<Encoding>,
    as_json: bool,
) -> Result<()> {
    let filesystem = open_to_read(session, &args.read)?;
    let start = find(&filesystem, &args.path)?;
    let prefix = asked.map_or(USUAL_PREFIX, |prefix| if prefix == "-" { "" } else { prefix });
    let mut out = out();
    let mut left_out = LeftOut::default();
    // Without the leading slash, as getfattr prints it.
    let path = args.path.as_bytes().split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    let mut failures = Failures::default();
    for found in ImageWalk::new(&filesystem, start.inode, &path.collect::<Vec<_>>().join(&b'/')).found() {
        interrupt::check()?;
        let Some(found) = failures.unless_failed(found)? else { continue };
        let attributes = attributes(&filesystem, found.stat.inode, prefix.as_bytes(), &mut left_out);
        let attributes = attributes.with_context(|| path_of(&found));
        let shown = if found.path.is_empty() { b".".to_vec() } else { found.path };
        failures.note(attributes.and_then(|attributes| {
            match as_json {
                true => writeln!(out, "{}", block_json(&shown, &attributes))?,
                false => write_block(&mut out, &Block { path: shown, attributes }, encoding)?,
            }
            Ok(())
        }))?;
        if !recursive {
            break;
        }
    }
    out.flush()?;
    if asked.is_none() && !as_json {
        left_out.report(session.messages());
    }
    failures.into_result()
}

/// Attributes whose names have another prefix.
#[derive(Default)]
struct LeftOut {
    attributes: u64,
    files: u64,
}

impl LeftOut {
    fn report(&self, messages: Messages) {
        let several = |number, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
        if self.attributes > 0 {
            let (attributes, files) = (several(self.attributes, "attribute"), several(self.files, "file"));
            messages.note(&format!(
                "left out, since they do not begin with {USUAL_PREFIX}: {attributes} of {files}; -m - shows all"
            ));
        }
    }
}

/// A file's attributes as a line of JSON.
fn block_json(path: &[u8], attributes: &[(Vec<u8>, Vec<u8>)]) -> Value {
    let one = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let mut object = json!({ "base64": BASE64.encode(value), "text": std::str::from_utf8(value).ok() });
        set_json(&mut object, "name", name);
        object
    };
    let mut block = json!({ "attributes": attributes.iter().map(one).collect::<Vec<_>>() });
    set_json(&mut block, "path", path);
    block
}

/// The attributes whose names have a prefix.
fn attributes(
    filesystem: &Volume,
    inode: InodeNumber,
    prefix: &[u8],
    left_out: &mut LeftOut,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = filesystem.list_xattrs(inode)?;
    let is_missed = |name: &&Vec<u8>| !name.starts_with(prefix) && !is_not_the_files(name);
    let missed = names.iter().filter(is_missed).count() as u64;
    left_out.attributes += missed;
    left_out.files += u64::from(missed > 0);
    names.retain(|name| name.starts_with(prefix));
    names.sort();
    let with_value = |name: Vec<u8>| {
        let value = filesystem.get_xattr(inode, &name)?;
        Ok((name, value))
    };
    names.into_iter().map(with_value).collect()
}

/// Reads a value from a file. Of a value that is too long, it reads enough for the engine to refuse it.
fn read_value(file: &Path) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let read = if file == Path::new("-") {
        stdin().lock().take(MAX_VALUE_BYTES + 1).read_to_end(&mut value)
    } else {
        File::open(file).and_then(|file| file.take(MAX_VALUE_BYTES + 1).read_to_end(&mut value))
    };
    read.with_context(|| file.display().to_string())?;
    Ok(value)
}

fn read_dump(file: &Path) -> Result<Vec<Block>> {
    let read = || -> std::io::Result<Vec<Block>> {
        if file == Path::new("-") {
            read_blocks(stdin().lock())
        } else {
            read_blocks(BufReader::new(File::open(file)?))
        }
    };
    match read() {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Err(Usage(format!("{}: {error}", file.display())).into())
        }
        result => result.with_context(|| file.display().to_string()),
    }
}

/// Sets the attributes of a dump, for files below `root`.
pub fn restore(filesystem: &Volume, blocks: &[Block], root: &OsStr) -> Result<()> {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let progress = ProgressBar::with_draw_target(Some(blocks.len() as u64), target);
    let done = for_each(blocks, |block| {
        // As setfattr, which does not look up a file without attributes.
        if block.attributes.is_empty() {
            return Ok(());
        }
        let path = [root.as_bytes(), b"/", &block.path].concat();
        let path = OsStr::from_bytes(&path);
        let change =
            |(name, value): &(Vec<u8>, Vec<u8>)| XattrChange { name: name.clone(), value: Some(value.clone()) };
        let changes: Vec<XattrChange> = block.attributes.iter().map(change).collect();
        let stat = find(filesystem, path)?;
        progress.inc(1);
        filesystem.change_xattrs(stat.inode, &changes, SetMode::Any, &Caller::root()).at(path)
    });
    progress.finish_and_clear();
    done
}

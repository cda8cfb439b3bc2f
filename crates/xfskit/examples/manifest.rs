//! Makes an image from a text that says what is to be in it, one file on a line:
//!
//! ```text
//! dir   0755 0:0 /etc
//! file  0644 0:0 /etc/motd    hello from a manifest
//! link  /etc/message          motd
//! xattr /etc/motd             user.color blue
//! ```
//! Usage: cargo run -p xfskit --example manifest MANIFEST IMAGE

use std::path::Path;
use xfskit::{Filesystem, MkfsOptions, Permissions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const IMAGE_BYTES: u64 = 64 << 20;

/// Makes `image` with what `manifest` says. A file that cannot be finished goes away again.
///
/// # Errors
/// A line that says nothing, by its number; those of the image.
pub fn build(manifest: &str, image: &Path) -> Result<()> {
    let fs = xfskit::create(image, IMAGE_BYTES, &MkfsOptions::new().small())?;
    let result = manifest
        .lines()
        .enumerate()
        .try_for_each(|(index, line)| add(&fs, line).map_err(|error| format!("line {}: {error}", index + 1).into()));
    if result.is_err() {
        drop(fs);
        std::fs::remove_file(image)?;
        return result;
    }
    Ok(fs.close()?)
}

fn add(fs: &Filesystem, line: &str) -> Result<()> {
    match words(line, 2).first().copied().unwrap_or_default() {
        "" => Ok(()),
        comment if comment.starts_with('#') => Ok(()),
        "dir" => {
            let [_, mode, owner, path] = words(line, 4)[..] else { return Err("dir MODE UID:GID PATH".into()) };
            fs.create_dir_all(path)?;
            own(fs, path, mode, owner)
        }
        "file" => {
            let [_, mode, owner, path, ref text @ ..] = words(line, 5)[..] else {
                return Err("file MODE UID:GID PATH [TEXT]".into());
            };
            fs.write(path, text.join(""))?;
            own(fs, path, mode, owner)
        }
        "link" => {
            let [_, path, target] = words(line, 3)[..] else { return Err("link PATH TARGET".into()) };
            Ok(fs.symlink(target, path)?)
        }
        "xattr" => {
            let [_, path, name, value] = words(line, 4)[..] else { return Err("xattr PATH NAME VALUE".into()) };
            Ok(fs.set_xattr(path, name, value)?)
        }
        other => Err(format!("{other}: neither dir, file, link nor xattr").into()),
    }
}

/// At most `most` words; the last one is the rest of the line.
fn words(line: &str, most: usize) -> Vec<&str> {
    let (mut rest, mut words) = (line.trim(), Vec::new());
    while words.len() + 1 < most
        && let Some((word, after)) = rest.split_once(char::is_whitespace)
    {
        words.push(word);
        rest = after.trim_start();
    }
    words.push(rest);
    words
}

fn own(fs: &Filesystem, path: &str, mode: &str, owner: &str) -> Result<()> {
    let (uid, gid) = owner.split_once(':').ok_or("an owner is UID:GID")?;
    fs.set_owner(path, Some(uid.parse()?), Some(gid.parse()?))?;
    Ok(fs.set_permissions(path, Permissions::new(u16::from_str_radix(mode, 8)?))?)
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, manifest, image] = arguments.as_slice() else { return Err("usage: manifest MANIFEST IMAGE".into()) };
    build(&std::fs::read_to_string(manifest)?, Path::new(image))
}

//! Sources that are container images: `oci:DIR`, `oci-archive:FILE`, `docker-archive:FILE`, each with a name behind it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a container image on the command line begins with.
const CONTAINERS: [(&str, Form); 3] =
    [("oci:", Form::Layout), ("oci-archive:", Form::Layout), ("docker-archive:", Form::Saved)];

/// How the parts of a container image lie in its folder or archive.
#[derive(Clone, Copy)]
pub enum Form {
    /// As the OCI layout.
    Layout,
    /// As `docker save` writes them.
    Saved,
}

/// A container image on the command line.
pub struct Container {
    /// Its form.
    pub form: Form,
    /// Its folder or file.
    pub path: PathBuf,
    /// Which image of several it is.
    pub name: Option<String>,
}

impl Container {
    /// Takes `oci:PATH` or `oci:PATH:NAME` apart; `None` for what is none. NAME may have colons, and so may PATH: it
    /// ends at the first one before which there is a file or folder.
    pub fn parse(source: &Path) -> Option<Self> {
        if std::fs::symlink_metadata(source).is_ok() {
            return None;
        }
        let text = source.as_os_str().as_bytes();
        let (rest, form) =
            CONTAINERS.iter().find_map(|(prefix, form)| Some((text.strip_prefix(prefix.as_bytes())?, *form)))?;
        let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
        let colons = || (0..rest.len()).filter(|at| rest[*at] == b':');
        let found = if path(rest).exists() { None } else { colons().find(|at| path(&rest[..*at]).exists()) };
        let end = found.or_else(|| colons().next().filter(|_| !path(rest).exists()));
        Some(match end {
            Some(at) => {
                let name = String::from_utf8_lossy(&rest[at + 1..]).into_owned();
                Self { form, path: path(&rest[..at]), name: Some(name) }
            }
            None => Self { form, path: path(rest), name: None },
        })
    }
}

/// The file or folder of a source.
pub fn path_of_source(source: &Path) -> PathBuf {
    Container::parse(source).map_or_else(|| source.into(), |container| container.path)
}

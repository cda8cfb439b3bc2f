//! Where a file of an archive lies in it.

/// A file of an archive.
#[derive(Debug)]
pub(super) enum Place {
    /// Its contents, by their offset and length.
    Data(u64, u64),
    /// Another path of the archive.
    Link(Vec<u8>),
}

/// A path without `.` and with `..` taken out, which stays in the archive.
pub(super) fn clean(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join(&b'/')
}

//! Prints what carries no SELinux label, or another than its directory, below a path of an image.
//! The image stays as it is.
//! Usage: cargo run -p xfskit --example labels IMAGE [PATH]

use std::collections::HashMap;
use std::path::Path;
use xfskit::Filesystem;

const LABEL: &str = "security.selinux";

/// A line for each finding; what cannot be read is one as well.
///
/// # Errors
/// Those of opening the image.
pub fn audit(image: &Path, below: &str) -> xfskit::Result<Vec<String>> {
    let fs = Filesystem::options().read_only(true).open(image)?;
    let mut labels = HashMap::from([(Path::new(below).to_path_buf(), fs.get_xattr(below, LABEL)?)]);
    let mut findings = Vec::new();
    for entry in fs.walk(below)? {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                findings.push(error.to_string());
                continue;
            }
        };
        let path = entry.path();
        // The entry's own, where a call by path would follow a symbolic link.
        let label = entry.get_xattr(LABEL)?;
        match &label {
            None => findings.push(format!("{}: no label", path.display())),
            Some(own) if path.parent().and_then(|dir| labels.get(dir)).is_some_and(|dir| dir != &label) => {
                let shown = own.strip_suffix(b"\0").unwrap_or(own).escape_ascii();
                findings.push(format!("{}: {shown}, unlike its directory", path.display()));
            }
            Some(_) => {}
        }
        if entry.file_type().is_dir() {
            labels.insert(path, label);
        }
    }
    fs.close()?;
    Ok(findings)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args().nth(1).ok_or("which image?")?;
    let below = std::env::args().nth(2).unwrap_or_else(|| "/".to_owned());
    for finding in audit(Path::new(&image), &below)? {
        println!("{finding}");
    }
    Ok(())
}

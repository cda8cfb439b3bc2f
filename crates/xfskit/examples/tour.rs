//! Makes a file with an attribute and two names in an image, and prints every path of it.
//! Usage: cargo run -p xfskit --example tour IMAGE

use xfskit::Filesystem;

/// Does it with the image at `image`; says what was found.
///
/// # Errors
/// Those of the image.
pub fn tour(image: &str) -> xfskit::Result<Vec<String>> {
    let fs = Filesystem::open(image)?;
    fs.create_dir_all("/etc")?;
    fs.write("/etc/motd", "hello\n")?;
    fs.set_xattr("/etc/motd", "security.selinux", "system_u:object_r:etc_t:s0\0")?;
    fs.hard_link("/etc/motd", "/message")?;
    let paths = fs.paths_of("/message")?;
    fs.close()?;
    Ok(paths.iter().map(|path| path.display().to_string()).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args().nth(1).ok_or("which image?")?;
    for path in tour(&image)? {
        println!("{path}");
    }
    Ok(())
}

//! Writes to an image in memory, cuts the power, and shows what the journal brings back.
//! Usage: cargo run -p xfskit --example crash

use std::sync::Arc;
use xfskit::device::MemoryDevice;
use xfskit::{Filesystem, MkfsOptions};

/// What recovery says, and the names that are there after it.
///
/// # Errors
/// None, unless the library has a defect.
pub fn crash() -> xfskit::Result<(String, Vec<String>)> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let fs = xfskit::create_on(device.clone(), &MkfsOptions::new().small())?;
    fs.create_dir("/letters")?;
    for number in 0..100 {
        fs.write_atomic(format!("/letters/{number}"), format!("dear reader of letter {number}\n"))?;
    }
    fs.sync()?;
    fs.remove_dir_all("/letters")?;

    // What the device holds at this moment is what a power cut leaves: the letters are removed in memory only.
    let survived = device.to_bytes();
    drop(fs);

    let fs = Filesystem::options().open_device(Arc::new(MemoryDevice::from_bytes(survived)))?;
    let recovery = fs.info().recovery.unwrap_or_else(|| "nothing to recover".to_owned());
    let names = fs.walk("/")?.map(|entry| Ok(entry?.path().display().to_string())).collect::<xfskit::Result<_>>()?;
    fs.close()?;
    Ok((recovery, names))
}

fn main() -> xfskit::Result<()> {
    let (recovery, names) = crash()?;
    println!("{recovery}");
    println!("{} names: {} ...", names.len(), names.iter().take(3).cloned().collect::<Vec<_>>().join(" "));
    Ok(())
}

//! Set-ID bits of a file of which a part was changed before the change failed, compared with the kernel's XFS.

mod common;

use common::{NOBODY, both};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use xfskit_fuse::WriteCache;

fn python(who: &[&str], program: &str, dir: &Path) -> String {
    let output = Command::new("setpriv").args(who).args(["/usr/bin/python3", "-c", program]).arg(dir).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)).trim().to_owned()
}

/// All but some hundred KiB is taken.
const FILL: &str = "
import os,sys
root=sys.argv[1]
fd=os.open(root+'/filler',os.O_RDWR|os.O_CREAT)
end,step=0,1<<28
while step>=4096:
    try:
        os.posix_fallocate(fd,end,step); end+=step
    except OSError:
        os.ftruncate(fd,end); step//=2
os.ftruncate(fd,end-(400<<10)); os.fsync(fd)
";

const COPY: &str = "
import os,sys
root=sys.argv[1]
a=os.open(root+'/evil',os.O_RDONLY); b=os.open(root+'/file',os.O_RDWR)
try: print(os.copy_file_range(a,b,4<<20,1,0))
except OSError as e: print(e.errno)
";

const ZERO: &str = "
import os,sys,ctypes
root=sys.argv[1]
b=os.open(root+'/file',os.O_RDWR)
libc=ctypes.CDLL(None,use_errno=True)
libc.fallocate.argtypes=[ctypes.c_int,ctypes.c_int,ctypes.c_long,ctypes.c_long]
print(libc.fallocate(b,0x10,0,8<<30), ctypes.get_errno())
";

/// Mode, and whether the first bytes were changed.
fn after(dir: &Path, program: &str) -> (u32, bool, String) {
    let (evil, file) = (dir.join("evil"), dir.join("file"));
    fs::write(&evil, vec![b'e'; 4 << 20]).unwrap();
    fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4777)).unwrap();
    for path in [&evil, &file] {
        fs::File::open(path).unwrap().sync_all().unwrap();
    }
    python(&["--no-new-privs"], FILL, dir);
    let said = python(&NOBODY, program, dir);
    // What the kernel remembers of the file from before is not asked.
    python(
        &["--no-new-privs"],
        "import os,sys; fd=os.open(sys.argv[1]+'/file',os.O_RDONLY); os.fsync(fd); os.posix_fadvise(fd,0,0,4)",
        dir,
    );
    let found = (fs::metadata(&file).unwrap().mode() & 0o7777, fs::read(&file).unwrap()[0] != b'x', said);
    for name in ["evil", "file", "filler"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    found
}

#[test]
fn a_change_that_fails_half_way_takes_the_bits_away() {
    let Some((fixture, kernel, _image)) = both(WriteCache::Back) else { return };
    let results = [COPY, ZERO].map(|program| (after(&fixture.path(""), program), after(kernel.path(), program)));
    kernel.unmount();
    println!("(mode, changed, said) of xfskit and of the kernel: {results:?}");
    let kept = |(mode, changed, _): &(u32, bool, String)| mode & 0o6000 != 0 && *changed;
    assert!(!results.iter().any(|(ours, _)| kept(ours)), "changed, and still set-user-ID");
}

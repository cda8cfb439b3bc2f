//! The opcodes of requests.

macro_rules! opcodes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $(
            #[allow(missing_docs)] // The names are the kernel's.
            pub const $name: u32 = $code;
        )*
        /// The name of an opcode, in small letters; `None` for one that this crate does not know.
        pub fn name_of(opcode: u32) -> Option<&'static str> {
            match opcode {
                $($code => Some($text),)*
                _ => None,
            }
        }
    };
}

opcodes! {
    LOOKUP = 1, "lookup";
    FORGET = 2, "forget";
    GETATTR = 3, "getattr";
    SETATTR = 4, "setattr";
    READLINK = 5, "readlink";
    SYMLINK = 6, "symlink";
    MKNOD = 8, "mknod";
    MKDIR = 9, "mkdir";
    UNLINK = 10, "unlink";
    RMDIR = 11, "rmdir";
    RENAME = 12, "rename";
    LINK = 13, "link";
    OPEN = 14, "open";
    READ = 15, "read";
    WRITE = 16, "write";
    STATFS = 17, "statfs";
    RELEASE = 18, "release";
    FSYNC = 20, "fsync";
    SETXATTR = 21, "setxattr";
    GETXATTR = 22, "getxattr";
    LISTXATTR = 23, "listxattr";
    REMOVEXATTR = 24, "removexattr";
    FLUSH = 25, "flush";
    INIT = 26, "init";
    OPENDIR = 27, "opendir";
    READDIR = 28, "readdir";
    RELEASEDIR = 29, "releasedir";
    FSYNCDIR = 30, "fsyncdir";
    GETLK = 31, "getlk";
    SETLK = 32, "setlk";
    SETLKW = 33, "setlkw";
    ACCESS = 34, "access";
    CREATE = 35, "create";
    INTERRUPT = 36, "interrupt";
    BMAP = 37, "bmap";
    DESTROY = 38, "destroy";
    IOCTL = 39, "ioctl";
    POLL = 40, "poll";
    NOTIFY_REPLY = 41, "notify_reply";
    BATCH_FORGET = 42, "batch_forget";
    FALLOCATE = 43, "fallocate";
    READDIRPLUS = 44, "readdirplus";
    RENAME2 = 45, "rename2";
    LSEEK = 46, "lseek";
    COPY_FILE_RANGE = 47, "copy_file_range";
    SETUPMAPPING = 48, "setupmapping";
    REMOVEMAPPING = 49, "removemapping";
    SYNCFS = 50, "syncfs";
    TMPFILE = 51, "tmpfile";
    STATX = 52, "statx";
    COPY_FILE_RANGE_64 = 53, "copy_file_range_64";
}

/// One more than the largest opcode.
pub const COUNT: usize = 54;

/// Whether the kernel waits for no reply.
pub fn is_silent(opcode: u32) -> bool {
    matches!(opcode, FORGET | BATCH_FORGET | NOTIFY_REPLY)
}

//! The examples in `--help`: each command's run one after another, where `folder` is a folder with a file `file`, and
//! `disk.img` an image with a file `/etc/motd`. `tests/documented.rs` runs them.

/// Notes with examples behind them.
pub fn with(notes: &str, examples: &str) -> String {
    format!("{notes}\n\n{examples}")
}

pub const CAT: &str = "\
Examples:
  xfskit cat disk.img /etc/motd
  xfskit cat disk.img /etc/motd > copy
  xfskit cat --offset 1 --length 512 disk.img /etc/motd";

pub const CHECK: &str = "\
Examples:
  xfskit check disk.img
  xfskit --json check disk.img";

pub const CHMOD: &str = "\
Examples:
  xfskit chmod disk.img 600 /etc/motd
  xfskit chmod -R disk.img go-w /etc";

pub const CHOWN: &str = "\
Examples:
  xfskit chown disk.img 1000:1000 /etc/motd
  xfskit chown -R disk.img :100 /etc";

pub const CP: &str = "\
Examples:
  xfskit cp folder/file disk.img:/etc
  xfskit cp -a folder disk.img:/
  xfskit cp -r disk.img:/etc copy";

pub const EXPORT: &str = "\
Examples:
  xfskit export disk.img -o disk.tar
  xfskit export disk.img /etc | tar -t";

pub const FIND: &str = "\
Examples:
  xfskit find disk.img / -name '*.conf' -type f
  xfskit find disk.img /etc -size +10M -o -mtime -7 -printf '%s %p\\n'
  xfskit find disk.img /etc -type f -exec xfskit cat disk.img {} \\;
  xfskit find disk.img / -perm -o+w ! -type l -exec xfskit chmod disk.img o-w {} +";

pub const IMPORT: &str = "\
Examples:
  tar -C folder -c . | xfskit import disk.img /etc
  xfskit import disk.img --from folder --owner 0:0";

pub const LN: &str = "\
Examples:
  xfskit ln disk.img /etc/motd /message
  xfskit ln -s disk.img etc/motd /link";

pub const LOG_PRINT: &str = "\
Examples:
  xfskit log print disk.img
  xfskit log print --transactions disk.img";

pub const MKFS: &str = "\
Examples:
  xfskit mkfs --size 1G new.img
  xfskit mkfs --small --size 32M -L tiny small.img
  xfskit mkfs --from folder tree.img
  xfskit mkfs --from folder --for linux-6.1,grub-2.06 --free 20% boot.img";

pub const MKNOD: &str = "\
Examples:
  xfskit mknod -m 666 disk.img /null c 1 3
  xfskit mknod disk.img /pipe p";

pub const MOUNT: &str = "\
Examples:
  xfskit mount disk.img mnt
  xfskit umount mnt
  xfskit mount -o ro disk.img mnt
  xfskit umount mnt";

pub const PATHS: &str = "\
Examples:
  xfskit parents disk.img /etc/motd
  xfskit parents --inodes disk.img /etc/motd";

pub const PATH: &str = "\
Examples:
  xfskit path disk.img 128
  xfskit path disk.img inode:128";

pub const INFO: &str = "\
Examples:
  xfskit info disk.img
  xfskit --json info disk.img
  xfskit info disk.img#whole
  eval $(xfskit info --export disk.img) && echo $UUID $FSSIZE";

pub const GROW: &str = "\
Examples:
  xfskit admin grow disk.img 1G
  xfskit admin grow disk.img +200M
  truncate -s 2G disk.img && xfskit admin grow disk.img";

pub const LABEL: &str = "\
Examples:
  xfskit admin label disk.img data
  xfskit admin label disk.img
  xfskit admin label disk.img ''";

pub const UUID: &str = "\
Examples:
  cp disk.img copy.img && xfskit admin uuid copy.img random
  xfskit admin uuid disk.img
  xfskit admin uuid copy.img restore";

pub const TRIM: &str = "\
Examples:
  xfskit admin trim disk.img
  xfskit admin trim --zero disk.img";

pub const TOUCH: &str = "\
Examples:
  xfskit touch disk.img /etc/new
  xfskit touch -d '2026-01-31 12:00 Z' disk.img /etc/motd";

pub const WRITE: &str = "\
Examples:
  echo hello | xfskit write disk.img /etc/motd
  echo more | xfskit write --append disk.img /etc/motd";

pub const XATTR_DUMP: &str = "\
Examples:
  xfskit xattr dump -R disk.img / > attributes
  xfskit xattr restore disk.img attributes";

pub const XATTR_LABEL: &str = "\
Examples:
  echo '/.* system_u:object_r:etc_t:s0' > contexts
  xfskit xattr label disk.img /etc --file-contexts contexts";

pub const XATTR_SET: &str = "\
Examples:
  xfskit xattr set disk.img /etc/motd user.colour blue
  xfskit xattr set disk.img /etc/motd user.bytes 0x00ff";

//! The fuzz targets of the command's own parsers: dumps of attributes, and options.

use crate::args::{Cli, Command, MountSettings, is_ignored, mount_helper, with_expression};
use crate::commands::find::Expression;
use crate::commands::xattr::restore;
use crate::output::dump::{Encoding, read_blocks, write_block};
use clap::Parser;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use xfskit_device::{BlockDevice, MemoryDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, Volume};
use xfskit_fuzz_harness::fuzz::{self, Target};
use xfskit_fuzz_harness::{Behaviour, Overlay};
use xfskit_ondisk::Timestamp;

/// All option names in docs/mounting.md and mount(8), without and with a value.
const OPTIONS: &str = "ro rw norecovery wsync writeback nowriteback nofastpath nowhiteout noknownabsent allow_other \
    allow_root auto_unmount logdev cache commit threads placement larp errortag comment user subtype fsname defaults \
    auto noauto nouser users owner group nofail _netdev relatime norelatime strictatime nostrictatime lazytime \
    nolazytime diratime nodiratime iversion noiversion silent loud mand nomand default_permissions dev nodev suid \
    nosuid exec noexec atime noatime dirsync sync async inode32 checkopen discard nodiscard attrpath nosymfollow";

/// An image with files that a dump may name.
static BASE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| {
    let device = Arc::new(MemoryDevice::new(24 << 20));
    let options = xfskit_mkfs::Options {
        allow_small: true,
        log_size: Some(xfskit_mkfs::Size::Bytes(8 << 20)),
        uuid: Some([6; 16]),
        ..xfskit_mkfs::Options::default()
    };
    xfskit_mkfs::make(&*device, None, &options, Timestamp::default()).expect("an image");
    let filesystem = Volume::open(Arc::clone(&device) as _, MountOptions::default()).expect("a sound image");
    for (name, mode) in [(&b"a"[..], 0o100_644), (b"b c", 0o100_600), (b"dir", 0o040_755), (b"x\ny", 0o100_644)] {
        filesystem.create(filesystem.root(), name, &NewFile::of_mode(mode).unwrap(), &Caller::root()).expect("a file");
    }
    filesystem.symlink(filesystem.root(), b"link", b"a", &Caller::root()).expect("a link");
    filesystem.unmount().expect("an image that can be closed");
    Arc::new(device.to_bytes())
});

fn dump_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 7] = [
        b"# file: a\nuser.one=\"text\"\nuser.two=0x00ff10\nuser.three=0sAP8B\n\n",
        b"# file: dir\nuser.empty\nuser.also=\"\"\n\n# file: b c\nuser.q=\"a\\\"b\\\\c\\012d\"\n\n",
        b"# file: x\\012y\nuser.a\\075b=\"v\"\n",
        b"# a comment\n# file: .\ntrusted.t=0s\nsecurity.s=0x\n\n# file: link\ntrusted.l=\"1\"\n",
        b"# file: a\nsystem.posix_acl_access=0x0200000001000600ffffffff02000400e803000004000400ffffffff10000600\
          ffffffff20000400ffffffff\n",
        b"# file: missing\nuser.a=\"1\"\r\n\r\n# file: ../../a\nuser.b=\"2\"\n",
        b"user.before=\"1\"\n# file: a\nunknown.a=\"1\"\n",
    ];
    seeds.map(<[u8]>::to_vec).to_vec()
}

fn dump(input: &[u8]) -> Behaviour {
    let mut behaviour = Behaviour::new();
    let blocks = read_blocks(input);
    behaviour.note_result("read", &blocks);
    let Ok(blocks) = blocks else { return behaviour };
    for encoding in [None, Some(Encoding::Hex), Some(Encoding::Base64), Some(Encoding::Text)] {
        let mut text = Vec::new();
        for block in &blocks {
            write_block(&mut text, block, encoding).expect("memory");
        }
        let mut kept = blocks.clone();
        kept.retain(|block| !block.attributes.is_empty());
        assert_eq!(read_blocks(text.as_slice()).expect("a dump of ours"), kept);
    }
    let image = Arc::new(Overlay::new(&BASE));
    let filesystem = Volume::open(Arc::clone(&image) as _, MountOptions::default()).expect("a sound image");
    if let Err(error) = restore(&filesystem, &blocks, OsStr::new("/")) {
        behaviour.note(("restore", error.message(Duration::ZERO).rsplit(": ").next()));
        let code = error.code();
        behaviour.note(code);
        assert_ne!(code, 3, "the image counts as damaged: {error:#}");
    }
    for block in &blocks {
        behaviour
            .note((block.attributes.len().min(4), block.attributes.iter().map(|(_, value)| value.len().min(2)).max()));
    }
    filesystem.unmount().expect("an image that can be closed");
    let options = xfskit_check::CheckOptions { threads: 1, ..Default::default() };
    let report = xfskit_check::check(image as Arc<dyn BlockDevice>, None, &options, &xfskit_check::Quiet);
    let report = report.expect("an image that can be checked");
    assert!(report.is_clean(), "{report:?}");
    behaviour
}

#[test]
fn fuzz_dump() {
    fuzz::run(&Target { name: "dump", seeds: dump_seeds, run: dump });
}

fn line_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 11] = [
        b"a.img\n/mnt\n-o\nro,norecovery,larp=always,cache=64M,commit=5,threads=3",
        b"a.img\n/mnt\n-sfv\n-o\nrw,x-systemd.automount,dev,suid,errortag=free_extent:3\n-t\nfuse.xfskit",
        b"mount\n-f\na.img\nmnt\n-o\nwsync,allow_other,bogus",
        b"mkfs\n-q\n--size\n1G\n-m\nuuid=5dcd97ce-f6b3-4d0c-a1d6-7ff3be2e42a0,bigtime=1\n-i\nsize=1024\na.img",
        b"ls\n-la\n--json\na.img\n/\n-R",
        b"xattr\nset\na.img\n/f\nuser.a\n0x00\n--create",
        b"chmod\n-R\na.img\ngo-w,u+rwX\n/",
        b"find\na.img\n/\n--size\n+10k\n--name\n*.[ch]",
        b"find\na.img\n(\n-perm\n/u+s\n-o\n!\n-mtime\n+1.5\n)\n-printf\n%-5.3T@\\t%p\\n\n,\n-user\nroot",
        b"find\na.img\n-maxdepth\n2\n-newermt\n2026-01-31\n-exec\nrm\n{}\n;\n-exec\necho\n{}\n+\n-quit",
        OPTIONS.as_bytes(),
    ];
    seeds.map(|line| line.iter().map(|byte| if *byte == b' ' { b',' } else { *byte }).collect()).to_vec()
}

/// Parses a command line in each way in which the program can be called.
fn command_line(input: &[u8]) -> Behaviour {
    let mut behaviour = Behaviour::new();
    let words: Vec<OsString> = input
        .split(|byte| *byte == b'\n')
        .filter(|word| !word.contains(&0))
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    let parsed = mount_helper::parse(words.clone());
    behaviour.note(("helper", parsed.is_ok()));
    let line = with_expression([OsString::from("xfskit")].into_iter().chain(words.clone()).collect());
    match Cli::try_parse_from(line) {
        Ok(Cli { command: Command::Find(args), .. }) => {
            let refusal = Expression::parse(&args.words).err().map(|refusal| refusal.to_string());
            behaviour.note(("find", refusal.as_deref().and_then(|text| text.rsplit(": ").next())));
        }
        Ok(_) => behaviour.note("a command"),
        Err(error) => {
            behaviour.note(format!("{:?}", error.kind()));
            let _ = error.to_string();
        }
    }
    for word in words.iter().filter_map(|word| word.to_str()) {
        let refusal = options(word).err().map(|refusal| refusal.to_string());
        behaviour.note(("options", refusal.as_deref().and_then(|text| text.rsplit(": ").next())));
    }
    behaviour
}

/// Parses a list of options: an unknown option must be refused by its name.
fn options(list: &str) -> Result<MountSettings, crate::output::causes::Usage> {
    let is_known = |option: &str| {
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        is_ignored(option) || OPTIONS.split(' ').any(|known| known == name)
    };
    for option in list.split(',').filter(|option| !option.is_empty()) {
        let parsed = MountSettings::parse(&[option.to_owned()]);
        if !is_known(option) {
            let refusal = parsed.expect_err("an unknown option was taken").to_string();
            assert!(refusal.contains(option), "{option:?} is refused as {refusal:?}");
        }
    }
    let parsed = MountSettings::parse(&[list.to_owned()]);
    if !list.split(',').all(|option| option.is_empty() || is_known(option)) {
        assert!(parsed.is_err(), "{list:?}");
    }
    parsed
}

#[test]
fn fuzz_command_line() {
    fuzz::run(&Target { name: "command_line", seeds: line_seeds, run: command_line });
}

#[test]
fn every_documented_option_is_known() {
    let known = |option: &&str| {
        let with_value = [
            "logdev=a",
            "cache=1M",
            "commit=1",
            "threads=1",
            "placement=client",
            "larp=never",
            "attrpath=intents",
            "errortag=",
            "comment=a",
        ];
        let value = with_value.iter().find(|value| value.split('=').next() == Some(*option));
        match MountSettings::parse(&[(*value.unwrap_or(option)).to_owned()]) {
            Ok(_) => true,
            Err(refusal) => !refusal.to_string().contains("no such option"),
        }
    };
    let unknown: Vec<&str> = OPTIONS.split(' ').filter(|option| !known(option)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

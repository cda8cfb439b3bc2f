//! `xattr restore` compared with `setfattr --restore` on the kernel's mount, with mutated dumps. If setfattr accepts
//! all of a dump, the image must have the same attributes.

mod common;

use common::{ok, words, xfskit};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use xfskit_fuzz_harness::Random;
use xfskit_fuzz_harness::fuzz::change;
use xfskit_testkit::{copy_image, kernel_mount, scratch, skip};

const DUMPS: usize = 60;

const SEEDS: [&[u8]; 5] = [
    b"# file: a\nuser.one=\"text\"\nuser.two=0x00ff10\nuser.three=0sAP8B\n\n",
    b"# file: dir\nuser.empty\nuser.also=\"\"\n\n# file: b c\nuser.q=\"a\\\"b\\\\c\\012d\"\n\n",
    b"# file: x\\012y\nuser.a\\075b=\"v\"\n",
    b"# a comment\n# file: dir/\ntrusted.t=0s\nsecurity.s=0x\n",
    b"# file: a\nuser.one=\"1\"\nuser.one=\"2\"\ntrusted.two=text\n\n# file: a\nuser.three=0X0a0B\n",
];

/// All attributes on a mount, as getfattr shows them.
fn attributes(folder: &Path) -> String {
    let mut command = Command::new("getfattr");
    command.args(["-R", "-d", "-m", "^(user|trusted|security)", "-e", "hex", "."]).current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut blocks: Vec<String> =
        String::from_utf8_lossy(&output.stdout).split("\n\n").map(|block| block.trim().to_owned()).collect();
    blocks.sort();
    blocks.join("\n")
}

#[test]
fn a_dump_that_setfattr_takes_is_restored_the_same() {
    if Command::new("setfattr").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("this machine has no setfattr");
    }
    let scratch = scratch();
    let (base, ours, dump) = (scratch.file("base.img"), scratch.file("ours.img"), scratch.file("dump"));
    ok("mkfs IMAGE -q --small --size 32M", &base);
    ok("mkdir IMAGE /dir", &base);
    for name in ["/a", "/b c", "/x\ny"] {
        let output = Command::new(env!("CARGO_BIN_EXE_xfskit")).arg("touch").arg(&base).arg(name).output().unwrap();
        assert!(output.status.success(), "{name}");
    }
    let seeds: Vec<Vec<u8>> = SEEDS.map(<[u8]>::to_vec).to_vec();
    let mut random = Random::new(std::env::var("XFSKIT_SEED").map_or(1, |seed| seed.parse().unwrap()));
    let mut same = 0;
    for number in 0..DUMPS {
        let mut text = random.pick(&seeds).unwrap().clone();
        for _ in 0..usize::from(number >= SEEDS.len()) * (1 + random.below(2)) {
            change(&mut text, &seeds, &mut random);
        }
        // setfattr takes a zero byte for the end of a line, and ignores the rest.
        text.retain(|byte| *byte != 0);
        fs::write(&dump, &text).unwrap();
        let theirs = scratch.file("theirs.img");
        copy_image(&base, &theirs);
        copy_image(&base, &ours);
        let Some(kernel) = kernel_mount(&theirs) else { return };
        let mut command = Command::new("setfattr");
        let output = command.arg("--restore").arg(&dump).current_dir(kernel.path()).output().unwrap();
        let expected = attributes(kernel.path());
        kernel.unmount();
        let line = format!("xattr restore IMAGE {}", dump.display());
        let restored = xfskit(words(&line, &ours));
        let refusal = String::from_utf8_lossy(&restored.stderr);
        assert!(!refusal.contains("panicked"), "{}: {refusal}", text.escape_ascii());
        if !output.status.success() || !output.stderr.is_empty() {
            continue;
        }
        assert!(restored.status.success(), "{}: {refusal}", text.escape_ascii());
        let Some(kernel) = kernel_mount(&ours) else { return };
        assert_eq!(attributes(kernel.path()), expected, "{}", text.escape_ascii());
        kernel.unmount();
        same += 1;
    }
    println!("{same} of {DUMPS} dumps were restored by both");
    assert!(same >= SEEDS.len() - 1, "{same}");
}

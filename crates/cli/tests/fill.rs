//! `mkfs --from` and `export`: how other programs read the images and archives, and invalid sources.

mod common;

use common::trees::{assert_same, is_root, make_tree, run};
use common::{fails, ok, words, xfskit};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use xfskit_testkit::{kernel_mount, reference, scratch, skip, tree};

const UUID: &str = "uuid=6b1ff5a1-2d3c-4e5f-8a9b-0c1d2e3f4a5b";

/// Makes an image at a fixed time.
fn make_at(epoch: &str, line: &str, image: &Path, input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    command.args(words(line, image)).env("SOURCE_DATE_EPOCH", epoch);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that refuses its input does not read all of it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn tar(arguments: &[&str], source: &Path) -> Vec<u8> {
    run(Command::new("tar").args(["-C", source.to_str().unwrap(), "-c", "-f", "-"]).args(arguments).arg(".")).stdout
}

#[test]
fn an_image_of_a_folder_holds_what_the_folder_holds() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, source) = (scratch.file("a.img"), scratch.file("source"));
    make_tree(&source);
    ok(&format!("mkfs IMAGE --from {} -q", source.display()), &image);
    let size = fs::metadata(&image).unwrap().len();
    assert_eq!(size, 300 << 20, "the smallest that mkfs.xfs makes");
    ok(&format!("mkfs -f IMAGE --size auto --small --from {} -q", source.display()), &image);
    let size = fs::metadata(&image).unwrap().len();
    assert!(size < 40 << 20, "{size} bytes for 7 MB");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    let Some(kernel) = kernel_mount(&image) else { return };
    assert_same(&source, kernel.path(), "as the kernel sees it");
    kernel.unmount();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2, "nothing temporary is left");
}

#[test]
fn an_image_of_the_same_source_is_the_same_image() {
    let scratch = scratch();
    let names: Vec<String> = (0..200).map(|n| format!("name-{:03}", n * 37 % 200)).collect();
    let fill = |dir: &Path, names: &mut dyn Iterator<Item = &String>| {
        fs::create_dir_all(dir.join("below")).unwrap();
        for name in names {
            fs::write(dir.join("below").join(name), name.repeat(100)).unwrap();
            let set = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(dir.join("below").join(name), "user.name", name.as_bytes(), set).unwrap();
        }
        fs::hard_link(dir.join("below/name-001"), dir.join("again")).unwrap();
    };
    let (one, other) = (scratch.file("one"), scratch.file("other"));
    fill(&one, &mut names.iter());
    fill(&other, &mut names.iter().rev());
    let mut images = Vec::new();
    for (name, source) in [("a.img", &one), ("b.img", &other), ("c.img", &one)] {
        let image = scratch.file(name);
        let line = format!("mkfs IMAGE --small --from {} -q -m {UUID}", source.display());
        let output = make_at("1700000000", &line, &image, b"");
        assert!(output.status.success(), "{output:?}");
        images.push(image);
    }
    run(Command::new("cmp").args(&images[..2]));
    run(Command::new("cmp").args(&images[1..]));
    assert!(ok("stat IMAGE /below/name-007", &images[0]).contains("modified:   2023-11-14 22:13:20.000000000"));
    let archive = tar(&["--sort=name", "--xattrs", "--format=posix"], &one);
    for name in ["d.img", "e.img"] {
        let line = format!("mkfs IMAGE --small --from - -q -m {UUID}");
        let output = make_at("1700000000", &line, &scratch.file(name), &archive);
        assert!(output.status.success(), "{output:?}");
    }
    run(Command::new("cmp").arg(scratch.file("d.img")).arg(scratch.file("e.img")));
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&images[0]);
        reference.repair_finds_nothing(&scratch.file("d.img"));
    }
}

#[test]
fn archives_of_gnu_tar_fill_an_image() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, source) = (scratch.file("a.img"), scratch.file("source"));
    make_tree(&source);
    // A tar stream cannot contain sockets.
    fs::remove_file(source.join("socket")).unwrap();
    let everything = ["--xattrs", "--xattrs-include=*", "--acls", "--sparse", "--numeric-owner"];
    for format in
        ["--format=posix", "--format=gnu", "--format=posix --sparse-version=0.0", "--format=posix --sparse-version=0.1"]
    {
        let mut arguments: Vec<&str> = format.split(' ').collect();
        if format != "--format=gnu" {
            arguments.extend(everything);
        } else {
            arguments.extend(["--sparse", "--numeric-owner"]);
        }
        let archive = scratch.file("a.tar");
        fs::write(&archive, tar(&arguments, &source)).unwrap();
        ok(&format!("mkfs IMAGE -f --small --size 40M --from {} -q", archive.display()), &image);
        if let Some(reference) = reference() {
            reference.repair_finds_nothing(&image);
        }
        let Some(kernel) = kernel_mount(&image) else { return };
        if format == "--format=gnu" {
            run(Command::new("diff")
                .args(["-r", "--no-dereference"])
                .args(["--exclude=pipe", "--exclude=null", "--exclude=disk"])
                .arg(&source)
                .arg(kernel.path()));
        } else {
            assert_same(&source, kernel.path(), format);
        }
        kernel.unmount();
    }
}

#[test]
fn other_programs_read_an_exported_tree() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, source, archive) = (scratch.file("a.img"), scratch.file("source"), scratch.file("a.tar"));
    make_tree(&source);
    fs::remove_file(source.join("socket")).unwrap();
    ok(&format!("mkfs IMAGE --from {} -q", source.display()), &image);
    ok(&format!("export IMAGE -o {}", archive.display()), &image);
    let out = scratch.file("out");
    fs::create_dir(&out).unwrap();
    let extract =
        ["-x", "-p", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "--atime-preserve=system"];
    run(Command::new("tar").args(extract).arg("-C").arg(&out).arg("-f").arg(&archive));
    assert_same(&source, &out, "GNU tar");
    if Command::new("bsdtar").arg("--version").output().is_ok() {
        let out = scratch.file("out-bsd");
        fs::create_dir(&out).unwrap();
        run(Command::new("bsdtar")
            .args(["-x", "-p", "--xattrs", "--acls", "--numeric-owner", "-S"])
            .arg("-C")
            .arg(&out)
            .arg("-f")
            .arg(&archive));
        let diff = ["-r", "--no-dereference", "--exclude=pipe", "--exclude=null", "--exclude=disk"];
        run(Command::new("diff").args(diff).arg(&source).arg(&out));
    } else {
        skip("bsdtar is not installed");
    }
    let script = "import sys,tarfile\nt=tarfile.open(sys.argv[1])\n\
                  m=t.getmember('./sparse' if './sparse' in t.getnames() else 'sparse')\n\
                  print(m.size,m.issparse(),t.extractfile(m).read()[5000000:5000013])";
    match Command::new("python3").arg("-c").arg(script).arg(&archive).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text, "10000000 True b'in the middle'\n", "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(_) => skip("python3 is not installed"),
    }
    // In the other direction, xfskit reads the archive.
    let again = scratch.file("b.img");
    ok(&format!("mkfs IMAGE --from {} -q", archive.display()), &again);
    let Some(kernel) = kernel_mount(&again) else { return };
    assert_same(&source, kernel.path(), "exported and filled again");
    kernel.unmount();
}

#[test]
fn a_bad_source_leaves_nothing_behind() {
    let scratch = scratch();
    let source = scratch.file("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), vec![7; 100_000]).unwrap();
    symlink("file", source.join("link")).unwrap();
    let good = tar(&[], &source);
    let with = |arguments: &[&str]| {
        let mut tar = Command::new("tar");
        run(tar.args(["-C", source.to_str().unwrap(), "-c", "-P", "-f", "-"]).args(arguments).arg("file")).stdout
    };
    let long = format!("--transform=s/file/{}/", "x".repeat(256));
    let mut damaged = good.clone();
    damaged[512 + 100] ^= 1;
    let cases: [(&str, Vec<u8>, i32, &str); 9] = [
        ("cut within a file", good[..40_000].to_vec(), 5, "cut short"),
        ("cut within a header", good[..700].to_vec(), 5, "cut short"),
        ("empty", Vec::new(), 5, "cut short"),
        ("damaged", damaged, 5, "checksum"),
        ("compressed and damaged", b"\x1f\x8b\x08\0".repeat(200), 5, "gzip: corrupt"),
        ("compressed otherwise", b"\xfd7zXZ\0".repeat(200), 5, "xz -dc"),
        ("leads out", with(&["--transform=s,file,a/../../file,"]), 5, ".."),
        ("too long a name", with(&[&long]), 1, "longer than 255"),
        ("too large", good.repeat(1), 1, "no space left"),
    ];
    for (what, archive, code, part) in cases {
        let image = scratch.file("a.img");
        let size = if what == "too large" { "--size 16M -l size=12M" } else { "--size 20M" };
        let archive = if what == "too large" { tar_of_zeros(&scratch.file("zeros")) } else { archive };
        let output = make_at("1", &format!("mkfs IMAGE --small {size} --from -"), &image, &archive);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && message.contains(part), "{what}: {output:?}");
        let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("img")), "{what}: {left:?}");
    }
    // A file is named, and what in it is damaged.
    let archive = scratch.file("some.tar");
    let mut second = good.clone();
    let at = good.chunks(512).rposition(|block| block.starts_with(b"./link")).unwrap();
    second[at * 512 + 150] ^= 1;
    for (bytes, parts) in [
        (good[..40_000].to_vec(), ["some.tar: in ", "file: the tar stream is cut short"]),
        (second, ["some.tar: behind ", "wrong checksum"]),
        (with(&["--transform=s,file,a/../../file,"]), ["some.tar: in a/../../file: ", "leads out"]),
        (b"\xfd7zXZ\0".to_vec(), ["some.tar: ", "xz: unpack it first: xz -dc "]),
        (b"BZh91AY&SY".repeat(100), ["some.tar: ", "bzip2: unpack it first: bzip2 -dc "]),
        (b"PK\x03\x04".repeat(300), ["some.tar: ", "zip: unpack it first: bsdtar -cf - @"]),
    ] {
        fs::write(&archive, bytes).unwrap();
        let (code, message) =
            fails(&format!("mkfs IMAGE --small --from {}", archive.display()), &scratch.file("a.img"));
        assert!(code == 5 && parts.iter().all(|part| message.contains(part)), "{code}: {message}");
    }
    // A leading slash is dropped, as by GNU tar.
    let image = scratch.file("a.img");
    let output = make_at("1", "mkfs IMAGE --small --from - -q", &image, &with(&["--transform=s,file,/abs/file,"]));
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("slash"), "{output:?}");
    assert_eq!(ok("tree IMAGE", &image), "/\n└── abs\n    └── file\n");
    let missing = xfskit(words("mkfs IMAGE -f --from /no/such/source", &image));
    assert_eq!(missing.status.code(), Some(6));
    assert_eq!(ok("ls IMAGE", &image), "abs\n", "what was there is kept");
}

/// An image that is written has a temporary name in the folder, under which `mkfs --from` must not find it.
#[test]
fn an_image_in_its_own_folder_does_not_hold_itself() {
    let scratch = scratch();
    let (source, image) = (scratch.file("source"), scratch.file("source/disk.img"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    let log = source.join("log.img");
    fs::File::create(&log).unwrap().set_len(64 << 20).unwrap();
    let from = source.display();
    for line in [
        format!("mkfs IMAGE --size 300M --from {from} -q"),
        format!("mkfs IMAGE -f --from {from} -q"),
        format!("mkfs IMAGE -f --size auto --from {from} -q -l logdev={}", log.display()),
    ] {
        ok(&line, &image);
        let names = if line.contains("logdev") { "file\n" } else { "file\nlog.img\n" };
        let logdev = if line.contains("logdev") { format!(" --logdev {}", log.display()) } else { String::new() };
        assert_eq!(ok(&format!("ls IMAGE{logdev}"), &image), names, "{line}");
    }
    if let Some(reference) = reference() {
        assert_eq!(reference.repair_findings(&image, Some(&log)), None);
    }
}

/// An ordinary user can make an image with files of root.
#[test]
fn an_image_has_the_owners_that_were_asked_for() {
    let scratch = scratch();
    let (image, source) = (scratch.file("a.img"), scratch.file("source"));
    fs::create_dir_all(source.join("dir/below")).unwrap();
    for name in ["file", "dir/below/file", "dir/program"] {
        fs::write(source.join(name), name).unwrap();
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    fs::hard_link(source.join("file"), source.join("dir/again")).unwrap();
    fs::set_permissions(source.join("dir/program"), fs::Permissions::from_mode(0o4775)).unwrap();
    symlink("nowhere", source.join("dir/below/link")).unwrap();
    ok(&format!("mkfs IMAGE --from {} --owner 7:8 -q", source.display()), &image);
    assert!(ok("stat IMAGE /dir/program", &image).contains("4775"), "a new owner does not take the set-id bits away");
    ok("chown -R IMAGE 3000000000 /dir/below /file", &image);
    ok("chmod -R IMAGE go-w,u+X /dir", &image);
    let expected = [
        ("", 7, 8, None),
        ("dir", 7, 8, None),
        ("dir/again", 3_000_000_000, 8, Some(0o100_644)),
        ("dir/below", 3_000_000_000, 8, None),
        ("dir/below/file", 3_000_000_000, 8, Some(0o100_644)),
        ("dir/below/link", 3_000_000_000, 8, Some(0o120_777)),
        ("dir/program", 7, 8, Some(0o104_755)),
        ("file", 3_000_000_000, 8, Some(0o100_644)),
    ];
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    let Some(kernel) = kernel_mount(&image) else { return };
    for (entry, (path, uid, gid, mode)) in tree(kernel.path()).iter().zip(expected) {
        assert_eq!((entry.path.to_str(), entry.uid, entry.gid), (Some(path), uid, gid));
        assert_eq!(entry.mode, mode.unwrap_or(entry.mode), "{path}");
    }
    kernel.unmount();
}

fn tar_of_zeros(dir: &Path) -> Vec<u8> {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("zeros"), vec![0; 20 << 20]).unwrap();
    tar(&[], dir)
}

#[test]
fn a_source_that_changes_is_noticed() {
    let scratch = scratch();
    let source = scratch.file("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("growing"), vec![1; 64 << 20]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(source.join("growing")).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                file.write_all(b"more").unwrap();
                std::thread::yield_now();
            }
        });
        let line = format!("mkfs IMAGE --size 400M --from {}", source.display());
        let output = xfskit(words(&line, &scratch.file("a.img")));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        output
    });
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(5) && message.contains("growing: it changed"), "{output:?}");
    assert!(!scratch.file("a.img").exists());
}

/// No other user may foresee the name of the file that becomes the image, and put a link there.
#[test]
fn no_foreseen_name_leads_a_new_image_elsewhere() {
    let scratch = scratch();
    let dir = scratch.path().display();
    fs::create_dir(scratch.file("source")).unwrap();
    fs::write(scratch.file("stranger"), "a stranger's file").unwrap();
    let program = env!("CARGO_BIN_EXE_xfskit");
    for (name, source) in [("xfskit", "source"), ("tar", "-")] {
        let line = format!(
            "cd {dir}; tar -C source -cf source.tar .; ln -s stranger .a.img.{name}-$$; \
             exec {program} mkfs -q -f --from {source} a.img < source.tar"
        );
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_to_string(scratch.file("stranger")).unwrap(), "a stranger's file");
        ok("ls IMAGE", &scratch.file("a.img"));
    }
}

#[test]
fn who_may_not_read_a_file_may_not_read_it_in_an_image() {
    let scratch = scratch();
    let source = scratch.file("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "secret").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let (image, archive) = (scratch.file("a.img"), scratch.file("a.tar"));
    let line = format!("mkfs IMAGE -q -f --from {}", source.display());
    let export = format!("export IMAGE / -o {}", archive.display());
    let usual = {
        fs::write(scratch.file("usual"), "").unwrap();
        mode(&scratch.file("usual"))
    };
    for (dir_mode, file_mode, expected) in [(0o755, 0o644, usual), (0o755, 0o640, 0o600), (0o750, 0o644, 0o600)] {
        set(&source, dir_mode);
        set(&source.join("file"), file_mode);
        for path in [&image, &archive] {
            let _ = fs::remove_file(path);
        }
        ok(&line, &image);
        assert_eq!(mode(&image), expected, "{dir_mode:o} {file_mode:o}");
        set(&image, 0o644);
        ok(&export, &image);
        assert_eq!(mode(&archive), expected, "{dir_mode:o} {file_mode:o}");
    }
    // A file that is replaced does not become readable for more users, and the archive of a private image is private.
    set(&source, 0o755);
    set(&image, 0o600);
    ok(&line, &image);
    assert_eq!(mode(&image), 0o600);
    fs::remove_file(&archive).unwrap();
    ok(&export, &image);
    assert_eq!(mode(&archive), 0o600);
}

/// A run that ends early leaves neither a part of an archive nor a change of the old one.
#[test]
fn an_archive_gets_its_name_when_it_is_complete() {
    let scratch = scratch();
    let image = common::image(&scratch);
    let large = vec![7; 60 << 20];
    assert!(common::with_input("write IMAGE /large", &image, &large).status.success());
    let archive = scratch.file("a.tar");
    fs::write(&archive, "the old one").unwrap();
    let mut line = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    line.args(common::words("export IMAGE / -f -o", &image)).arg(&archive);
    let mut child = line.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(8));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    if !child.wait().unwrap().success() {
        assert_eq!(fs::read_to_string(&archive).unwrap(), "the old one");
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
    ok(&format!("export IMAGE / -f -o {}", archive.display()), &image);
    assert!(fs::metadata(&archive).unwrap().len() > 60 << 20);
    // A file that is not a regular file is written directly.
    ok("export IMAGE / -o /dev/null", &image);
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

/// Owners and device nodes that fakeroot simulates, as mke2fs -d and tar see them, by its two ways to its server.
#[test]
fn fakeroot_is_believed() {
    for fakeroot in ["fakeroot-sysv", "fakeroot-tcp"] {
        let scratch = scratch();
        let (image, dir) = (scratch.file("a.img"), scratch.path().display());
        let line = format!(
            "cd {dir} && mkdir -p s/d && echo x > s/f && chown 12:34 s/f && chmod 4755 s/f && mknod s/null c 1 3 && \
             chown 56:78 s/d && ln s/f s/d/again && ln -s f s/link && chown -h 9:8 s/link && \
             $X mkfs -q --from s a.img && mkdir one two && chown 21:22 one && echo y > two/g && chown 23:24 two/g && \
             mknod two/disk b 259 70000 && $X import --from one a.img /d && $X cp -a two a.img:/two && \
             $X cp -a two/g two/disk a.img:/d"
        );
        let mut command = Command::new(fakeroot);
        let Ok(output) = command.args(["sh", "-c", &line]).env("X", env!("CARGO_BIN_EXE_xfskit")).output() else {
            return skip("fakeroot is not installed");
        };
        assert!(output.status.success(), "{fakeroot}: {}", String::from_utf8_lossy(&output.stderr));
        let listed = ["/", "/d", "/two"].map(|dir| ok(&format!("ls -l IMAGE {dir}"), &image)).join("\n");
        for expected in [
            "-rwsr-xr-x   2    12    34",
            "crw-r--r--   1     0     0     1, 3",
            "drwxr-xr-x   2    21    22",
            "lrwxrwxrwx   1     9     8",
            "-rw-r--r--   1    23    24",
            "brw-r--r--   1     0     0 259, 70000",
        ] {
            let count = listed.matches(expected).count();
            let names = if expected.starts_with("-rw-") || expected.starts_with(['b']) { 2 } else { 1 };
            assert!(count >= names, "{fakeroot}: {expected}: {listed}");
        }
        assert_eq!(ok("cat IMAGE /f", &image), "x\n");
        let Some(kernel) = kernel_mount(&image) else { return };
        assert_eq!(fs::metadata(kernel.path().join("f")).unwrap().uid(), 12);
        kernel.unmount();
    }
}

/// What cannot be seen is refused, and not lost.
#[test]
fn what_is_pretended_and_cannot_be_seen_is_refused() {
    let scratch = scratch();
    fs::create_dir(scratch.file("s")).unwrap();
    // The names are what the command goes by.
    for (variables, who) in [
        (vec![("LD_PRELOAD", "/nowhere/libfakechroot.so"), ("FAKECHROOT_BASE", "/x")], "fakechroot pretends"),
        (vec![("LD_PRELOAD", "/nowhere/libpseudo.so"), ("PATH", "/nowhere")], "pseudo pretends"),
    ] {
        let image = scratch.file("a.img");
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        command.args(common::words("mkfs -q IMAGE --from", &image)).arg(scratch.file("s")).envs(variables);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(who), "{output:?}");
        assert!(message.contains("run it outside") && !image.exists(), "{message}");
    }
}

/// An ordinary user can make an image whose root directory belongs to another user.
#[test]
fn the_root_directory_has_the_owner_that_was_asked_for() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    for _ in 0..2 {
        let line = "mkfs IMAGE --size 300M -q -f --owner 12:34 -m uuid=6b1ff5a1-2d3c-4e5f-8a9b-0c1d2e3f4a5b";
        let output = make_at("1700000000", line, &image, b"");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(ok("stat IMAGE /", &image).contains("12:34"));
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    let Some(kernel) = kernel_mount(&image) else { return };
    let data = fs::metadata(kernel.path()).unwrap();
    assert_eq!((data.uid(), data.gid()), (12, 34));
    kernel.unmount();
}

/// A file in a known format that is not XFS is reported by the name of the format.
#[test]
fn what_is_no_image_is_named() {
    let scratch = scratch();
    let file = scratch.file("a.img");
    let tar = tar(&["-c", "."], scratch.path());
    for (contents, expected) in [
        (&b""[..], "0 bytes"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzip"),
        (b"\x7fELF\x02\x01\x01", "a program"),
        (&tar, "tar archive"),
    ] {
        fs::write(&file, contents).unwrap();
        for line in ["info IMAGE", "ls IMAGE", "touch IMAGE /a", "check IMAGE"] {
            let (code, message) = common::fails(line, &file);
            assert!(code == if line.starts_with("check") { 8 } else { 3 }, "{line}: {code} {message}");
            assert!(message.contains("not an XFS image") && message.contains(expected), "{line}: {message}");
            assert!(!message.contains("first four bytes"), "{message}");
        }
    }
}

/// A known format is reported without searching a whole disk for a copy of the superblock.
#[test]
fn what_is_no_image_is_named_at_once() {
    let scratch = scratch();
    let file = scratch.file("a.img");
    let mut mbr = vec![7; 512];
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    let cases = [(&b"\x1f\x8b\x08"[..], 1 << 20, 3), (b"KDMV", 1 << 20, 7), (&mbr, 200 << 20, 3)];
    for (start, most_bytes, code) in cases {
        let mut contents = vec![7; 400 << 20];
        contents[..start.len()].copy_from_slice(start);
        fs::write(&file, contents).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        let mut child = command.arg("ls").arg(&file).stderr(std::process::Stdio::null()).spawn().unwrap();
        let place = |name: &str| format!("/proc/{}/{name}", child.id());
        // Until another process waits for the child, the kernel has the number of bytes that it has read.
        while !fs::read_to_string(place("stat")).unwrap().contains(") Z ") {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let io = fs::read_to_string(place("io")).unwrap();
        let read: u64 = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(read < most_bytes, "{read} bytes");
    }
    let (_, message) = common::fails("ls IMAGE", &file);
    assert!(message.contains("MBR") && message.contains("the device of the partition"), "{message}");
}

/// A file with the name `.` cannot be unpacked.
#[test]
fn a_single_file_is_exported_under_its_name() {
    let scratch = scratch();
    let [image, tar] = ["a.img", "a.tar"].map(|name| scratch.file(name));
    ok("mkfs IMAGE -q --small --size 64M", &image);
    ok("mkdir IMAGE /dir", &image);
    ok("touch IMAGE /dir/file", &image);
    ok(&format!("export IMAGE /dir/file -o {}", tar.display()), &image);
    let listed = run(Command::new("tar").arg("-tf").arg(&tar)).stdout;
    assert_eq!(String::from_utf8_lossy(&listed), "file\n");
}

/// An owner that `chown` refuses must be refused here, too.
#[test]
fn no_owner_comes_from_an_archive() {
    let scratch = scratch();
    let (source, image) = (scratch.file("source"), scratch.file("a.img"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    for option in ["--owner=:4294967294", "--group=:4294967294"] {
        let mut archive = tar(&["--format=pax", option], &source);
        // tar takes the number itself for "no owner", so the test puts it into the archive.
        let places: Vec<usize> = (0..archive.len()).filter(|at| archive[*at..].starts_with(b"id=4294967294")).collect();
        assert!(!places.is_empty());
        places.iter().for_each(|at| archive[at + 12] = b'5');
        let made = common::with_input("mkfs -q --small --size 64M --from - IMAGE", &image, &archive);
        let message = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.code() == Some(5) && message.contains("--owner"), "{message}");
        assert!(!image.exists());
        let made = common::with_input("mkfs -q --small --size 64M --owner 0:0 --from - IMAGE", &image, &archive);
        assert!(made.status.success(), "{made:?}");
        fs::remove_file(&image).unwrap();
    }
}

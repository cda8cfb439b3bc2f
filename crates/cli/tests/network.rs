//! Images that an NBD server has: commands that read and write them, the option without which nothing is written, and
//! servers that are killed.

mod common;

use common::{fails, image, ok, words, xfskit};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{Scratch, reference, scratch, skip};

/// A server of one image. It ends with the test.
struct Server {
    child: Child,
    address: PathBuf,
}

impl Server {
    fn start(command: &mut Command, socket: &Path) -> Self {
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let address = PathBuf::from(format!("nbd+unix:///?socket={}", socket.display()));
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, address }
    }

    fn qemu(scratch: &Scratch, image: &Path) -> Self {
        let socket = scratch.file("qemu.sock");
        let _ = fs::remove_file(&socket);
        Self::start(
            Command::new("qemu-nbd").args(["-t", "-e", "8", "-f", "raw", "-k"]).arg(&socket).arg(image),
            &socket,
        )
    }

    /// By TCP.
    fn tcp(image: &Path) -> Self {
        // A port that is free now, and hardly taken until the server has it.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-i", "127.0.0.1", "-p", &port.to_string(), "file"]).arg(image);
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, address: format!("nbd://127.0.0.1:{port}").into() }
    }

    fn nbdkit(scratch: &Scratch, image: &Path, filter: &str, parameters: &[&str]) -> Self {
        let socket = scratch.file("nbdkit.sock");
        let _ = fs::remove_file(&socket);
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(&socket).args([filter, "file"]).arg(image).args(parameters);
        Self::start(&mut command, &socket)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip(&format!("this machine has no {program}"));
    }
    found
}

fn repair_finds_nothing(image: &Path) {
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(image);
    }
}

#[test]
fn an_image_on_a_server_is_read_and_written() {
    if !has("qemu-nbd") {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE /first", &image);
    let server = Server::qemu(&scratch, &image);
    let address = &server.address;
    assert_eq!(ok("ls IMAGE /", address), "first\n");
    for line in ["mkdir IMAGE /new", "rm -r IMAGE /first", "log replay IMAGE", "mount IMAGE /mnt -f"] {
        let (code, message) = fails(line, address);
        assert!(code == 2 && message.contains("--others-kept-out"), "{line}: {code} {message}");
    }
    ok("--others-kept-out mkdir IMAGE /new", address);
    let source = scratch.file("source");
    fs::create_dir(&source).unwrap();
    for n in 0..200 {
        fs::write(source.join(n.to_string()), vec![n as u8; n * 100]).unwrap();
    }
    let target = format!("{}:/copied", address.display());
    ok(&format!("cp -r --others-kept-out {} {target}", source.display()), address);
    let back = scratch.file("back");
    ok(&format!("cp -r {target} {}", back.display()), address);
    for n in 0..200 {
        assert!(fs::read(back.join(n.to_string())).unwrap() == vec![n as u8; n * 100]);
    }
    assert!(ok("check IMAGE", address).ends_with("no faults\n"));
    // QEMU's lock keeps others from the file meanwhile.
    assert_eq!(fails("mkdir IMAGE /other", &image).0, 4);
    drop(server);
    assert_eq!(ok("ls IMAGE /", &image), "copied\nfirst\nnew\n");
    repair_finds_nothing(&image);
}

/// A server that names no sizes takes blocks of 512 bytes.
/// A server gives up its rights before it connects, and its threads cannot get them back for the second one.
#[test]
fn an_image_and_its_log_may_be_on_two_servers() {
    if !has("nbdkit") || common::mounts::prepared().is_none() {
        return;
    }
    let scratch = scratch();
    let (image, log) = (scratch.file("disk.img"), scratch.file("log.img"));
    fs::File::create(&log).unwrap().set_len(64 << 20).unwrap();
    ok(&format!("mkfs -q --small --size 300M IMAGE -l logdev={},size=64m", log.display()), &image);
    let (disk, journal) = (Server::tcp(&image), Server::tcp(&log));
    let dir = scratch.file("mount");
    fs::create_dir(&dir).unwrap();
    // The name of a part is none of the server's.
    let options = format!("logdev={}#whole", journal.address.display());
    ok(&format!("mount --others-kept-out -o {options} IMAGE {}", dir.display()), &disk.address);
    fs::write(dir.join("file"), b"on two servers").unwrap();
    fs::File::open(dir.join("file")).unwrap().sync_all().unwrap();
    ok("umount IMAGE", &dir);
    drop((disk, journal));
    let listed = ok(&format!("cat --logdev {} IMAGE /file", log.display()), &image);
    assert_eq!(listed, "on two servers");
}

#[test]
fn a_file_grows_by_parts_of_a_block() {
    if !has("nbdkit") {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    let server = Server::nbdkit(&scratch, &image, "--filter=noextents", &[]);
    for _ in 0..50 {
        let output =
            common::with_input("write --others-kept-out --append IMAGE /file", &server.address, b"seventeen bytes!\n");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(ok("cat IMAGE /file", &server.address), "seventeen bytes!\n".repeat(50));
    drop(server);
    repair_finds_nothing(&image);
}

#[test]
fn addresses_that_are_wrong_are_named() {
    let codes = [
        ("nbd://", 2, "no host"),
        ("nbd://host/disk?tls-certificates=/etc", 2, "nbds://"),
        ("nbds://host/disk?tls-type=psk", 2, "x509"),
        ("nbds://host/disk?tls-certificates=/nonexistent", 6, "/nonexistent/ca-cert.pem"),
        ("nbd+unix:///disk", 2, "no ?socket=PATH"),
        ("nbd+unix:///disk?socket=/nonexistent/socket", 6, "cannot be reached"),
    ];
    for (address, code, what) in codes {
        let got = fails("ls IMAGE /", Path::new(address));
        assert!(got.0 == code && got.1.contains(what), "{address}: {got:?}");
    }
}

#[test]
fn a_server_with_larger_blocks_than_sectors_is_only_read() {
    if !has("nbdkit") {
        return;
    }
    for (sector, writable) in [("512", false), ("4096", true)] {
        let scratch = scratch();
        let image = scratch.file("a.img");
        ok(&format!("mkfs IMAGE --size 512M -q -s size={sector}"), &image);
        let sizes = ["blocksize-minimum=4k", "blocksize-error-policy=error"];
        let server = Server::nbdkit(&scratch, &image, "--filter=blocksize-policy", &sizes);
        assert_eq!(ok("ls IMAGE /", &server.address), "");
        let made = xfskit(words("--others-kept-out mkdir IMAGE /new", &server.address));
        let message = String::from_utf8_lossy(&made.stderr);
        assert_eq!(made.status.success(), writable, "{message}");
        assert!(writable || message.contains("sectors of 512"), "{message}");
        drop(server);
        repair_finds_nothing(&image);
    }
}

/// The server is killed in the middle of a copy; what was copied before is there.
#[test]
fn a_server_that_is_killed_leaves_what_was_acknowledged() {
    if !has("nbdkit") {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    let source = scratch.file("source");
    fs::create_dir(&source).unwrap();
    for n in 0..2000 {
        fs::write(source.join(n.to_string()), vec![n as u8; 6000]).unwrap();
    }
    let mut lost = 0;
    for round in 0..5 {
        let server = Server::nbdkit(&scratch, &image, "--filter=delay", &["wdelay=5ms"]);
        let address = server.address.clone();
        ok(&format!("--others-kept-out mkdir IMAGE /before{round}"), &address);
        let target = format!("{}:/copy{round}", address.display());
        let line = format!("cp -r --others-kept-out {} {target}", source.display());
        let copier = std::thread::spawn(move || xfskit(words(&line, &address)));
        std::thread::sleep(Duration::from_millis(50 + round * 100));
        drop(server);
        let copied = copier.join().unwrap();
        let message = String::from_utf8_lossy(&copied.stderr);
        assert!(!message.contains("panicked"), "{message}");
        assert!(copied.status.success() || message.contains("nbd+unix:"), "{message}");
        lost += usize::from(message.contains("the connection is lost"));
        let server = Server::nbdkit(&scratch, &image, "--filter=delay", &["wdelay=5ms"]);
        let listed = ok("--others-kept-out ls IMAGE /", &server.address);
        assert!((0..=round).all(|n| listed.contains(&format!("before{n}\n"))), "{listed}");
        assert!(ok("check IMAGE", &server.address).ends_with("no faults\n"));
        ok("--others-kept-out log replay IMAGE", &server.address);
    }
    assert!(lost > 0, "no server was killed in the middle");
    repair_finds_nothing(&image);
}

/// The requests of one kind that a server had at once, by the lines of nbdkit's filter `log`.
fn most_at_once(log: &str, kind: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for line in log.lines() {
        let mut words = line.split_whitespace().filter(|word| word.starts_with(kind) || word.starts_with("..."));
        match words.next() {
            Some(word) if word == kind => now += 1,
            Some(word) if word == format!("...{kind}") => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}

/// Files are written to a server with several requests at a time, also while an image is made.
#[test]
fn an_image_is_filled_with_several_requests_at_a_time() {
    if !has("nbdkit") {
        return;
    }
    let scratch = scratch();
    let source = scratch.file("source");
    for n in 0..10 {
        fs::create_dir_all(source.join(n.to_string())).unwrap();
        for m in 0..20 {
            fs::write(source.join(format!("{n}/{m}")), vec![(n * 20 + m) as u8; 40_000]).unwrap();
        }
    }
    let image = scratch.file("image");
    let file = fs::File::create(&image).unwrap();
    file.set_len(600 << 20).unwrap();
    let log = scratch.file("log");
    let logged = format!("logfile={}", log.display());
    let server =
        Server::nbdkit(&scratch, &image, "--filter=log", &["--filter=delay", &logged, "wdelay=5ms", "rdelay=5ms"]);
    ok(&format!("mkfs -q -f --others-kept-out --from {} IMAGE", source.display()), &server.address);
    drop(server);
    let most = most_at_once(&fs::read_to_string(&log).unwrap(), "Write");
    assert!(most >= 8, "at most {most} writes at once");
    repair_finds_nothing(&image);
}

//! Programs that people use run on the mount, and their own checks find nothing.

mod common;

use common::{Fixture, has, mounted};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use xfskit_testkit::tree;

/// Runs a shell script with `M` as the mount's path and `T` as a folder outside; returns its output.
fn sh(fixture: &Fixture, script: &str) -> String {
    let home = fixture.scratch.path();
    let mut command = Command::new("sh");
    command.args(["-euc", script]).env("M", fixture.path("")).env("T", home).env("HOME", home).current_dir(home);
    for (name, value) in [("AUTHOR", "a"), ("COMMITTER", "c")] {
        command.env(format!("GIT_{name}_NAME"), value).env(format!("GIT_{name}_EMAIL"), format!("{value}@localhost"));
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}\n{error}");
    out.into_owned()
}

/// A folder on the host with all kinds of files.
fn host_tree(root: &Path) {
    for dir in 0..10 {
        fs::create_dir_all(root.join(format!("d{dir}/sub"))).unwrap();
        for file in 0..30 {
            let text = format!("{dir} {file} ").repeat((dir * 31 + file * 97) % 3000);
            fs::write(root.join(format!("d{dir}/f{file}")), text).unwrap();
        }
        fs::hard_link(root.join(format!("d{dir}/f1")), root.join(format!("d{dir}/sub/one"))).unwrap();
        std::os::unix::fs::symlink("../f2", root.join(format!("d{dir}/sub/two"))).unwrap();
    }
    fs::set_permissions(root.join("d1/f4"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(root.join("d1/sub"), fs::Permissions::from_mode(0o2775)).unwrap();
    std::os::unix::fs::chown(root.join("d1/f5"), Some(1234), Some(4321)).unwrap();
    for (name, value) in [("user.small", vec![1u8; 20]), ("user.large", vec![2; 3000]), ("trusted.t", vec![3; 9])] {
        rustix::fs::setxattr(root.join("d2/f2"), name, &value, rustix::fs::XattrFlags::empty()).unwrap();
    }
    let holes = fs::File::create(root.join("holes")).unwrap();
    for at in [1 << 20, 5 << 20] {
        std::os::unix::fs::FileExt::write_all_at(&holes, &[7; 10_000], at).unwrap();
    }
    holes.set_len(9 << 20).unwrap();
}

#[test]
fn git_clones_commits_collects_and_finds_nothing_wrong() {
    if !has("git") {
        return;
    }
    let Some(fixture) = mounted() else { return };
    host_tree(&fixture.scratch.file("source"));
    sh(
        &fixture,
        "cd $T/source; git init -q .; git add -A; git commit -qm first
        git clone -q --no-local $T/source $M/clone
        cd $M/clone; git status --porcelain
        for n in 1 2 3 4 5 6 7 8; do
            for d in 1 2 3; do echo $n >> d$d/f$n; done; git rm -q d5/f$n; mv d6/f$n d6/sub/moved$n
            git add -A; git commit -qm $n
        done
        git branch other HEAD~4; git checkout -q other; echo x > new; git add -A; git commit -qm other
        git merge -q -m merged master || git merge -q -m merged main
        git gc -q --prune=now --aggressive; git fsck --full --strict; git stash list
        test -z \"$(git status --porcelain)\"
        git clone -q --no-local $M/clone $M/second; git -C $M/second fsck --full
        git -C $M/second worktree add -q ../tree HEAD~2",
    );
    let wanted = sh(&fixture, "git -C $M/second rev-parse HEAD");
    fixture.judge(|dir| {
        let git = |arguments: &[&str]| {
            let repository = dir.join("second");
            let mut command = Command::new("git");
            command.args(["-c", "safe.directory=*", "-C"]).arg(repository).args(arguments);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        git(&["fsck", "--full"]);
        assert_eq!(git(&["rev-parse", "HEAD"]), wanted);
        assert_eq!(git(&["status", "--porcelain"]), "");
    });
}

/// The work of a client that the test kills. Each transaction adds a pair, so that half a transaction is visible.
const SQL: &str = "create table if not exists t(n integer primary key, pair, text);
create index if not exists i on t(pair);";

fn sqlite(fixture: &Fixture, mode: &str) {
    let base = fixture.path(&format!("{mode}.db"));
    let database = base.to_str().unwrap();
    let query = |sql: &str| {
        let output = Command::new("sqlite3").args([database, sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(query(&format!("pragma journal_mode={mode};{SQL}")), mode);
    let mut least = 0;
    for round in 0..4 {
        let statement = format!(
            "begin; insert into t(pair, text) values (abs(random()), hex(randomblob(300)));
            insert into t(pair, text) select pair, text from t where n = last_insert_rowid(); commit;
            select 'done';\n{}",
            if round == 2 { "delete from t where pair in (select pair from t order by pair limit 1);\n" } else { "" }
        );
        let mut client = Command::new("sqlite3")
            .args(["-cmd", ".timeout 5000", database])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = client.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            // The client is killed while it reads its input.
            while std::io::Write::write_all(&mut input, statement.as_bytes()).is_ok() {}
        });
        let lines = std::io::BufRead::lines(std::io::BufReader::new(client.stdout.take().unwrap()));
        let done = lines.take(60 + 20 * round).filter(|line| line.as_ref().is_ok_and(|line| line == "done")).count();
        client.kill().unwrap();
        client.wait().unwrap();
        writer.join().unwrap();
        assert_eq!(query("pragma integrity_check"), "ok", "{mode}, round {round}");
        assert_eq!(query("select count(*) from (select pair from t group by pair having count(*) % 2 = 1)"), "0");
        if round < 2 {
            least += 2 * done;
            let count: usize = query("select count(*) from t").parse().unwrap();
            assert!(count >= least, "{mode}: {count} rows of {least} that were committed");
        }
    }
    query("vacuum");
    assert_eq!(query("pragma integrity_check"), "ok");
}

#[test]
fn databases_stay_whole_when_their_clients_are_killed() {
    if !has("sqlite3") {
        return;
    }
    let Some(fixture) = mounted() else { return };
    for mode in ["wal", "delete", "truncate", "persist"] {
        sqlite(&fixture, mode);
    }
    fixture.judge(|dir| {
        for mode in ["wal", "delete", "truncate", "persist"] {
            let output = Command::new("sqlite3")
                .arg(dir.join(format!("{mode}.db")))
                .arg("pragma integrity_check")
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{mode}");
        }
    });
}

#[test]
fn copies_by_rsync_tar_and_cp_are_what_was_copied() {
    if !has("rsync") {
        return;
    }
    let Some(fixture) = mounted() else { return };
    let source = fixture.scratch.file("source");
    host_tree(&source);
    let differences = sh(
        &fixture,
        "rsync -aHAXS $T/source/ $M/rsync/; rsync -aHAXn --checksum --itemize-changes --delete $T/source/ $M/rsync/
        tar -C $T/source --xattrs --xattrs-include='*' --acls --sparse -cf $M/t.tar .
        mkdir $M/tar; tar -C $M/tar --xattrs --xattrs-include='*' --acls -xpf $M/t.tar
        rsync -aHAXn --checksum --itemize-changes --delete $T/source/ $M/tar/
        cp -a --sparse=auto $M/tar $M/cp; rsync -aHAXn --checksum --itemize-changes --delete $T/source/ $M/cp/
        cp -a $M/cp $T/back; rsync -aHAXn --checksum --itemize-changes --delete $T/source/ $T/back/
        diff -r --no-dereference $T/source $M/cp; cmp $T/source/holes $M/cp/holes",
    );
    assert_eq!(differences, "");
    for copy in ["rsync", "tar", "cp"] {
        let holes = fs::metadata(fixture.path(&format!("{copy}/holes"))).unwrap();
        assert!(holes.blocks() <= 64, "{copy} has {} blocks of {}", holes.blocks(), holes.size());
    }
    let ours = tree(&fixture.path("cp"));
    fixture.judge(|dir| {
        let theirs = tree(&dir.join("cp"));
        let lines = |tree: &[xfskit_testkit::TreeEntry]| tree.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(lines(&ours), lines(&theirs));
        let options = ["-aHAXn", "--checksum", "--itemize-changes", "--delete"];
        let [from, to] = [source.join(""), dir.join("rsync/")];
        let output = Command::new("rsync").args(options).args([from, to]).output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    });
}

#[test]
fn a_compiler_builds_what_then_runs() {
    if !has("cc") || !has("make") {
        return;
    }
    let Some(fixture) = mounted() else { return };
    let source = |name: &str, text: &str| fs::write(fixture.path(name), text).unwrap();
    let names: Vec<String> = (0..12).map(|n| format!("part{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        source(&format!("{name}.c"), &format!("int {name}(void) {{ return {n}; }}\n"));
    }
    let declared: String = names.iter().map(|name| format!("int {name}(void);")).collect();
    let sum = names.iter().map(|name| format!("{name}()")).collect::<Vec<_>>().join("+");
    source("main.c", &format!("#include <stdio.h>\n{declared}\nint main(void) {{ printf(\"%d\\n\", {sum}); }}\n"));
    let objects: String = names.iter().map(|name| format!(" {name}.o")).collect();
    source(
        "Makefile",
        &format!("all: main.o libparts.a\n\tcc -o program main.o libparts.a\nlibparts.a:{objects}\n\tar rc $@ $^\n"),
    );
    assert_eq!(sh(&fixture, "cd $M; make -s -j4; ./program; touch part3.c; make -s; ./program"), "66\n66\n");
    // A running program must not be writable. `spawn` returns once the program runs. With a shell's `&` the test might
    // write before that, and then the start of the program would fail with "text file busy".
    let busy = fixture.path("program");
    let sleeping = fixture.path("sleep");
    fs::copy("/bin/sleep", &sleeping).unwrap();
    let mut running = Command::new(&sleeping).arg("60").spawn().unwrap();
    let refused = fs::OpenOptions::new().append(true).open(&sleeping).unwrap_err();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::ExecutableFileBusy);
    assert!(fs::metadata(&busy).unwrap().permissions().mode() & 0o111 != 0);
    fixture.judge(|dir| {
        let output = Command::new(dir.join("program")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "66\n");
    });
}

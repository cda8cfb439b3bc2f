//! Runs the examples of docs/transfer.md, each in an empty folder.

use std::path::Path;
use std::process::Command;
use xfskit_testkit::scratch;

#[test]
fn the_examples_of_the_page_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/transfer.md");
    let page = std::fs::read_to_string(page).unwrap();
    let examples: Vec<&str> = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 4);
    let program = Path::new(env!("CARGO_BIN_EXE_xfskit")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    for example in examples {
        let scratch = scratch();
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", example]).current_dir(scratch.path()).env("PATH", &path);
        let output = bash.output().unwrap();
        assert!(output.status.success(), "{example}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

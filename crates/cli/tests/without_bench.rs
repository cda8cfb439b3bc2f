//! The binary of users, which has no commands for those who measure or change the engine.
#![cfg(not(feature = "bench"))]

mod common;

use common::xfskit;

#[test]
fn the_benchmarks_are_tested() {
    xfskit_testkit::skip("this build is without them: cargo test --workspace --features xfskit-cli/bench has them");
}

#[test]
fn a_command_that_this_build_leaves_out_says_where_it_is() {
    for command in ["bench", "crash-test"] {
        let output = xfskit([command, "--quick"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("cargo install xfskit-cli --features bench"), "{message}");
        assert!(!message.contains("similar"), "{message}");
    }
    let help = String::from_utf8(xfskit(["--help"]).stdout).unwrap();
    assert!(!help.contains("bench") && !help.contains("crash-test"), "{help}");
}

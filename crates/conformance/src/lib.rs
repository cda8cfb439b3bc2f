//! What every filesystem behind the trait [`Volume`] must pass, in cases with sentences as names.
//!
//! ```text
//! names, links, renames      what is found, made, moved and taken away
//! attributes, xattrs         modes, owners, times, flags; extended attributes, ACLs, the label
//! contents, ranges           bytes and sizes; holes, space, copies; a long run of random steps beside a model
//! durability                 what a reopening and a crash must leave
//! ```
//! A new filesystem has a [`Medium`], and its test calls [`check`]. What a filesystem says in its [`Limits`] is tried
//! up to the limit and one beyond; what it says it cannot do has to be refused. `tests/all` runs the cases on the
//! filesystem in memory, on XFS, and on the kernel's XFS through paths, which shows that they demand what Linux does.
//!
//! [`Limits`]: xfskit_vfs::Limits
#![forbid(unsafe_code)]

mod attributes;
mod contents;
mod durability;
mod errno;
mod given;
mod links;
mod names;
mod ranges;
mod renames;
mod xattrs;

use given::{Case, Run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use xfskit_vfs::Volume;

/// What a filesystem lies on.
pub trait Medium {
    /// Opens the filesystem, which is not open.
    fn open(&self) -> Box<dyn Volume>;

    /// Another medium, which has what a crash at this moment leaves. The filesystem is open.
    fn after_crash(&self) -> Box<dyn Medium>;
}

/// Makes an empty filesystem, of 64 MiB at least and of no more than 128.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Medium>;

/// A case that a filesystem need not pass.
#[derive(Clone, Copy, Debug)]
pub struct Excuse {
    /// The name of the case.
    pub case: &'static str,
    /// Why it cannot be asked of this filesystem.
    pub why: &'static str,
}

fn cases() -> impl Iterator<Item = &'static Case> {
    [
        names::CASES,
        links::CASES,
        renames::CASES,
        attributes::CASES,
        xattrs::CASES,
        contents::CASES,
        ranges::CASES,
        durability::CASES,
    ]
    .into_iter()
    .flatten()
}

/// Runs all cases, each on a filesystem of its own, and names those that fail.
///
/// # Panics
/// When a case fails that has no excuse, and when an excuse is for none, or for one that passes.
pub fn check(make: Make<'_>, excuses: &[Excuse]) {
    let mut wrong = Vec::new();
    let mut passed = 0;
    for case in cases() {
        let excuse = excuses.iter().find(|excuse| excuse.case == case.name);
        let outcome = catch_unwind(AssertUnwindSafe(|| match case.run {
            Run::Volume(run) => run(&*make().open()),
            Run::Media(run) => run(make),
        }));
        match (outcome, excuse) {
            (Ok(()), None) => passed += 1,
            (Ok(()), Some(_)) => wrong.push(format!("{}: passes, and needs no excuse", case.name)),
            (Err(_), Some(excuse)) => println!("excused: {}: {}", case.name, excuse.why),
            (Err(panic), None) => wrong.push(format!("{}: {}", case.name, message(&*panic))),
        }
    }
    let is_case = |excuse: &&Excuse| !cases().any(|case| case.name == excuse.case);
    wrong.extend(excuses.iter().filter(is_case).map(|excuse| format!("{}: no such case", excuse.case)));
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases().count(), wrong.join("\n"));
    println!("{passed} cases passed");
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

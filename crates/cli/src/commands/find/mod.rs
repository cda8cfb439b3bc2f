//! The expression of `find`, in the words of find(1).
//!
//! ```text
//! arguments ──words──▶ the words of the expression ──parse──▶ Expression: tests, actions, operators
//!                                                              bound to an image: names of users, references
//! test      what is asked of a file          printf    the text of -printf and -ls
//! numbers   sizes, counts, ages, modes       owners    names of users and groups, of the image's own lists
//! runner    the process that runs the commands of -exec
//! ```
//! walk      goes through the trees and evaluates the expression for each file

mod numbers;
mod owners;
mod parse;
mod printf;
mod runner;
mod test;
mod walk;

#[cfg(test)]
pub use parse::Expression;
pub use walk::run;

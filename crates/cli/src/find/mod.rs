//! The expression of `find`, in the words of find(1).
//!
//! ```text
//! arguments ──words──▶ the words of the expression ──parse──▶ Expression: tests, actions, operators
//!                                                              bound to an image: names of users, references
//! test      what is asked of a file          printf    the text of -printf and -ls
//! numbers   sizes, counts, ages, modes       owners    names of users and groups, of the image's own lists
//! runner    the process that runs the commands of -exec
//! ```
//! The walk is in [`crate::commands::find`].

mod numbers;
mod owners;
mod parse;
mod printf;
mod refused;
mod runner;
mod test;
mod words;

pub use owners::Owners;
pub use parse::{Action, Expression, Node, Order};
pub use printf::list_line;
pub use runner::{Connection, run};
pub use test::{Entry, label};
pub use words::{position, split};

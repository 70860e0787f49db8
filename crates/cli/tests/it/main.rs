//! The tests of the command: one program of all of them, as each would have the library linked into it. What they look at are
//! processes that they start.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, clippy::panic)]

mod biggraph_folders;
mod cli;
mod diff;
mod documents;
mod edit;
#[cfg(target_os = "linux")]
mod faults;
mod folders;
mod hints;
mod hugging_face;
mod lengths;
mod looking;
mod loss;
#[cfg(target_os = "linux")]
mod memory;
mod pages;
mod run;
mod salvage;
mod scan;
mod seal;
mod several;
mod shards;
mod support;
#[cfg(target_os = "linux")]
mod system;
#[cfg(target_os = "linux")]
mod timeout;

//! Hostile input for every room that reads bytes: none may bring the library to panic, to hang, to
//! take memory, or to say something that is not so.
//!
//! A [`Target`] takes any bytes. There is one for each format, one for telling formats apart, one for
//! pickles, and one for plans, which makes up an index, writes it in every format and reads it again.
//!
//! Two drivers feed the targets:
//!
//! - the campaign here, which damages the small files below `testdata` by a generator that depends
//!   on the number of the case alone, with the stable compiler:
//!   ```text
//!   cargo test -p weighbridge-fuzz                                    200,000 inputs
//!   WEIGHBRIDGE_FUZZ_INPUTS=2000000 cargo test -p weighbridge-fuzz    as CI does
//!   cargo run --release -p weighbridge-fuzz -- --inputs 100000000     as long as you like, every target
//!   cargo run --release -p weighbridge-fuzz -- npz --inputs 5000000   one target
//!   cargo run --release -p weighbridge-fuzz -- npz --case 123         one case again, with its bytes
//!   cargo run --release -p weighbridge-fuzz -- npz --file crash.npz   any file
//!   ```
//! - libFuzzer, which is led by the branches that an input reaches: `fuzz/guided/run npz -max_total_time=600`.
//!
//! What is found leaves a file in `testdata/FORMAT/bad`, named after what was wrong, so that it stays mended.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, clippy::panic)]

mod campaign;
pub mod counting;
mod mutate;
mod random;
mod seeds;
mod targets;

pub use campaign::{Case, Outcomes, case, run, run_case};
pub use seeds::{Seed, seeds};
pub use targets::{Outcome, TARGETS, Target, target};
pub use weighbridge::quiet_panics;

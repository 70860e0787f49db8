//! Fuzzing of all code that reads untrusted bytes: no input may cause a panic, a hang, excessive memory use, or a wrong result.
//!
//! A [`Target`] accepts any bytes. There is one for each format, one for detection, one for pickles, and one for plans, which
//! generates an index, writes it in every format and reads it back.
//!
//! Two drivers feed the targets:
//!
//! - the campaign in this crate mutates the small files in `testdata`; each case depends only on its number. It runs with the
//!   stable compiler:
//!   ```text
//!   cargo test -p weighbridge-fuzz                                    200,000 inputs
//!   WEIGHBRIDGE_FUZZ_INPUTS=500000 cargo test -p weighbridge-fuzz     500,000 inputs
//!   cargo run --release -p weighbridge-fuzz -- --inputs 100000000     all targets
//!   cargo run --release -p weighbridge-fuzz -- npz --inputs 5000000   one target
//!   cargo run --release -p weighbridge-fuzz -- npz --case 123         repeat one case and print its bytes
//!   cargo run --release -p weighbridge-fuzz -- npz --file crash.npz   any file
//!   ```
//! - libFuzzer, guided by branch coverage: `fuzz/guided/run npz -max_total_time=600`.
//!
//! Each bug found adds a regression file to `testdata/FORMAT/bad`, named after the fault.
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

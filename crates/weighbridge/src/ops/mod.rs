//! What can be done with checkpoints: one file each, checkpoints in and reports out.
//!
//! - [`convert`] and [`plan`]: to another form;
//! - [`resolve`] and [`Slice`]: what is written after a name, such as `fc1.w[0:3, :]`;
//! - [`show()`] and [`values_json`]: values, printed as numpy prints them;
//! - [`stats()`]: range, moments, oddities and a histogram;
//! - [`sha256`]: a hash of the elements, the same in every format;
//! - [`info()`]: the checkpoint as a whole.
//!
//! Each reads through the engine, in bounded memory whatever the size of the tensor.

mod convert;
pub mod hash;
pub mod info;
mod numpy;
mod parallel;
pub mod show;
pub mod slice;
pub mod stats;

pub use convert::{Changes, ConvertOptions, convert, plan, plan_checkpoint, save};
pub use hash::{sha256, sha256_all};
pub use info::{Info, Large, Tally, info};
pub use show::{MAX_JSON_ELEMENTS, MAX_TEXT_ELEMENTS, Shown, format_array, show, values_json};
pub use slice::{Picked, Slice, Taken, resolve};
pub use stats::{Histogram, Number, Stats, StatsOptions, stats};

use serde_json::{Value as Json, json};

/// A real number in JSON; `"NaN"`, `"Infinity"` and `"-Infinity"`, which JSON lacks, are strings.
fn number_json(x: f64) -> Json {
    if x.is_finite() {
        json!(x)
    } else if x.is_nan() {
        json!("NaN")
    } else if x > 0.0 {
        json!("Infinity")
    } else {
        json!("-Infinity")
    }
}

//! One job on a Paddle file, timed inside the process, for `benches/paddle.py`:
//!
//! `load FILE` reads every tensor into memory; `save FILE OUT` reads them first and times the writing.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

use std::sync::Arc;
use std::time::Instant;
use weighbridge::engine::{LocalSink, RunOptions, load, run};
use weighbridge::formats::{PlanOptions, registry};
use weighbridge::source::{MemorySource, SourceRef};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let begun = Instant::now();
    let mut checkpoint = weighbridge::formats::open(&words[1]).unwrap();
    let tensors = load(&checkpoint.tensors, None, 0).unwrap();
    if words[0] == "load" {
        println!("{}", begun.elapsed().as_secs_f64());
        assert!(!tensors.is_empty());
        return;
    }
    for (entry, bytes) in checkpoint.tensors.iter_mut().zip(tensors) {
        let source: SourceRef = Arc::new(MemorySource::new("memory", bytes));
        entry.extents[0].source = source;
        entry.extents[0].offset = 0;
    }
    let begun = Instant::now();
    let plan =
        registry().by_id("paddle").unwrap().plan(&checkpoint, &PlanOptions::of_kind("combined")).unwrap();
    let options = RunOptions { sync: false, ..RunOptions::default() };
    run(&plan, &LocalSink::file(&words[2], false).unwrap(), &options).unwrap();
    println!("{}", begun.elapsed().as_secs_f64());
}

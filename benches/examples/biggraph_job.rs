//! One job on BigGraph files, timed inside the process, for `benches/biggraph.py`:
//!
//! `load PATH` reads every tensor of a file or folder into memory; `save FILE OUT` reads a partition and times the synced
//! writing of it with its state; `open FOLDER` opens a folder.
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
    if words[0] == "open" {
        println!("{}", begun.elapsed().as_secs_f64());
        return;
    }
    let tensors = load(&checkpoint.tensors, None, 0).unwrap();
    if words[0] == "load" {
        println!("{}", begun.elapsed().as_secs_f64());
        assert!(!tensors.is_empty());
        return;
    }
    for (entry, bytes) in checkpoint.tensors.iter_mut().zip(tensors) {
        let source: SourceRef = Arc::new(MemorySource::new("memory", bytes));
        let mut extent = entry.extents[0].clone();
        (extent.source, extent.offset, extent.len) = (source.clone(), 0, source.len());
        // The checksum of the source file does not apply to the copy.
        extent.check = None;
        entry.extents = [extent].into();
    }
    let begun = Instant::now();
    let plan =
        registry().by_id("biggraph").unwrap().plan(&checkpoint, &PlanOptions::of_kind("embeddings")).unwrap();
    run(&plan, &LocalSink::file(&words[2], false).unwrap(), &RunOptions::default()).unwrap();
    println!("{}", begun.elapsed().as_secs_f64());
}

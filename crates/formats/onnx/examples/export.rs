//! Exports a Paddle model to ONNX with the format crates alone: `export MODEL TARGET [NAME=VALUE ...]`.
//!
//! Words that begin with `convert` or `--` are ignored, so that it takes the place of the command in judges.

use weighbridge_core::error::Result;
use weighbridge_format::{Format, OpenOptions, PlanOptions, Registry};
use weighbridge_io::engine::{LocalSink, RunOptions, run};

static FORMATS: [&dyn Format; 2] = [&weighbridge_paddle::Paddle, &weighbridge_onnx::Onnx];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut words = words.iter().filter(|word| *word != "convert" && !word.starts_with("--"));
    let (Some(source), Some(target)) = (words.next(), words.next()) else {
        eprintln!("usage: export MODEL TARGET [NAME=VALUE ...]");
        std::process::exit(2);
    };
    let settings = words.filter_map(|word| word.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    if let Err(error) = export(source, target, settings.collect()) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn export(source: &str, target: &str, settings: Vec<(String, String)>) -> Result<()> {
    let registry = Registry::new(FORMATS);
    let checkpoint = registry.open_with(source, &OpenOptions::default())?;
    let options = PlanOptions { settings, ..PlanOptions::default() };
    let plan = registry.by_id("onnx")?.plan(&checkpoint, &options)?;
    let sink = LocalSink::for_plan(&plan, target, true)?;
    run(&plan, &sink, &RunOptions::default())?;
    Ok(())
}

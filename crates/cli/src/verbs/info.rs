//! `info`: format, size, parameter count and metadata of a file.

use crate::args::{Common, Info};
use crate::output::{DIM, HEADING, ODD, Output, human_bytes, human_count, human_counted};
use crate::several::{self, Report};
use crate::{Failure, Outcome};
use serde::Serialize;
use std::io::{self, Write};
use weighbridge::NoteCode;
use weighbridge::checkpoint::{Checkpoint, Role, Value};
use weighbridge::finding::Verdict;
use weighbridge::ops::info::{self, Tally};
use weighbridge::phrase::{Face, Worded};
use weighbridge::text::{escape, first_and_more};

/// Maximum characters of a metadata value in text; JSON has all.
const SHOWN_TEXT: usize = 200;

/// Role of tensors that are not trained.
const BUFFER: &str = "buffer";

/// Maximum tied tensors in text; JSON has all.
const SHOWN_TIES: usize = 3;

/// Maximum files beside a model in text; JSON has all.
const SHOWN_OTHERS: usize = 8;

/// Maximum pairs of a map in text; JSON has all.
const SHOWN_PAIRS: usize = 20;

/// Maximum nesting of maps with one line per pair; deeper maps are shown as one value.
const SHOWN_LEVELS: usize = 8;

pub(crate) fn run(args: &Info, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    several::run(&args.paths, output, |path| {
        let checkpoint = crate::salvage::open(path, &args.input)?;
        let mut info = info::info(&checkpoint);
        info.add_others(path, &checkpoint)?;
        Ok(Opened { info, checkpoint })
    })
}

/// An opened checkpoint and its totals.
struct Opened {
    checkpoint: Checkpoint,
    info: info::Info,
}

impl Worded for Opened {
    fn word(&mut self, face: Face<'_>) {
        self.checkpoint.word(face);
        self.info.word(face);
    }
}

impl Report for Opened {
    fn verdict(&self) -> Verdict {
        Verdict::Sound
    }
    fn json(&self) -> impl Serialize {
        self.info.to_json()
    }
    fn text(&self, output: &mut Output) -> io::Result<()> {
        text(&self.checkpoint, &self.info, output)
    }
    fn begins_with_path(&self) -> bool {
        true
    }
    fn word(_: Verdict) -> String {
        "opened".to_owned()
    }
}

fn text(checkpoint: &Checkpoint, info: &info::Info, output: &mut Output) -> io::Result<()> {
    let (warnings, notes): (Vec<_>, Vec<_>) =
        checkpoint.notes.iter().cloned().partition(|note| note.code == NoteCode::RunsCode);
    for warning in &warnings {
        writeln!(output, "{ODD}warning{ODD:#}      {}", escape(&warning.text))?;
    }
    let mut line = |label: &str, text: String| writeln!(output, "{HEADING}{label:<12}{HEADING:#} {text}");
    line("file", escape(&checkpoint.label))?;
    let title = weighbridge::formats::registry().by_id(checkpoint.format).map_or("", |f| f.info().title);
    let format = match checkpoint.kind {
        "pickle" => "Python pickle (the framework that wrote it is unknown)".to_owned(),
        kind if kind == checkpoint.format => format!("{kind} - {title}"),
        kind => format!("{} {kind} - {title}", checkpoint.format),
    };
    line("format", format)?;
    if let Some(origin) = &info.origin {
        line("made from", escape(&format!("{} {}", origin.format, origin.kind)))?;
    }
    if let Some(headline) = checkpoint.damage_headline() {
        line("damaged", headline)?;
    }
    if info.files > 0 {
        let files =
            if info.files > 1 { format!(" in {}", human_counted(info.files, "file")) } else { String::new() };
        line("size", format!("{}{files}", human_bytes(info.file_bytes)))?;
    }
    if !info.others.is_empty() {
        let names = info.others.iter().map(|name| escape(name));
        line("others", first_and_more(names, SHOWN_OTHERS))?;
    }
    line("tensors", human_count(info.total.tensors))?;
    if info.total.tensors > 0 {
        let mut without = Vec::new();
        let known = info.by_role.iter().filter(|(role, _)| *role == BUFFER);
        let buffers = known.map(|(_, tally)| tally.tensors).sum::<u64>() + info.buffers.tensors;
        if buffers > 0 {
            without.push(human_counted(buffers, "buffer"));
        }
        if !info.tied.is_empty() {
            without.push(human_counted(info.tied.len() as u64, "tied tensor"));
        }
        let without =
            if without.is_empty() { String::new() } else { format!(", excluding {}", without.join(" and ")) };
        line("parameters", format!("{} elements{without}", human_count(info.parameters)))?;
        if !info.tied.is_empty() {
            let pairs = info.tied.iter().map(|(name, of)| format!("{} = {}", escape(name), escape(of)));
            line("tied", first_and_more(pairs, SHOWN_TIES))?;
        }
        let data = human_bytes(info.total.bytes);
        line(
            "data",
            match info.tied_bytes {
                0 => data,
                tied => format!("{data} ({} stored)", human_bytes(info.total.bytes.saturating_sub(tied))),
            },
        )?;
        let dtypes = info.by_dtype.iter().map(|(dtype, tally)| (dtype.name(), tally));
        for (name, tally) in dtypes {
            line("", format!("{DIM}{name}: {}{DIM:#}", count(tally)))?;
        }
        for (role, tally) in info.by_role.iter().filter(|(_, tally)| tally.tensors > 0) {
            // Buffers by name or dtype: a guess.
            let buffers = match info.buffers.tensors {
                guessed if guessed > 0 && *role == Role::Parameter.as_str() => {
                    let buffers = if guessed == 1 { "a buffer" } else { "buffers" };
                    format!(", {} of them {buffers} by name or dtype", human_count(guessed))
                }
                _ => String::new(),
            };
            line("", format!("{DIM}{role}: {}{buffers}{DIM:#}", count(tally)))?;
        }
    }
    let mut pairs = checkpoint.metadata.iter().take(SHOWN_PAIRS).peekable();
    if pairs.peek().is_some() {
        writeln!(output, "{HEADING}metadata{HEADING:#}")?;
    }
    for (key, value) in pairs {
        metadata(key, value, 1, output)?;
    }
    let more = checkpoint.metadata.iter().count().saturating_sub(SHOWN_PAIRS);
    if more > 0 {
        writeln!(output, "{DIM}  ... and {} more{DIM:#}", human_count(more as u64))?;
    }
    output.notes(&notes)
}

fn count(tally: &Tally) -> String {
    format!("{}, {}", human_counted(tally.tensors, "tensor"), human_bytes(tally.bytes))
}

/// Prints a pair of metadata, indented by `depth`.
fn metadata(key: &str, value: &Value, depth: usize, output: &mut Output) -> io::Result<()> {
    // Quotes make a blank key visible.
    let shown = if key.trim().is_empty() { format!("\"{}\"", escape(key)) } else { escape(key) };
    let label = format!("{}{shown}", "  ".repeat(depth));
    if let Value::Map(pairs) = value
        && depth <= SHOWN_LEVELS
    {
        writeln!(output, "{HEADING}{label}{HEADING:#}")?;
        for (key, value) in pairs.iter().take(SHOWN_PAIRS) {
            metadata(&key.to_text(), value, depth + 1, output)?;
        }
        if pairs.len() > SHOWN_PAIRS {
            let more = human_count((pairs.len() - SHOWN_PAIRS) as u64);
            writeln!(output, "{DIM}{}... and {more} more{DIM:#}", "  ".repeat(depth + 1))?;
        }
        return Ok(());
    }
    // Only the shown beginning is formatted.
    let mut shown = Shown::default();
    match value {
        Value::Text(text) => shown.write_all(text.as_bytes())?,
        other => serde_json::to_writer(&mut shown, other)?,
    }
    // The last character may be incomplete.
    let first = shown.first.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let text = if matches!(value, Value::Text(_)) { escape(first) } else { first.to_owned() };
    let cut: String = text.chars().take(SHOWN_TEXT).collect();
    let more = if cut.len() < text.len() || shown.first.len() < shown.len {
        format!("{DIM} ... ({} bytes){DIM:#}", shown.len)
    } else {
        String::new()
    };
    writeln!(output, "{HEADING}{label:<12}{HEADING:#} {cut}{more}")
}

/// Writer that keeps the first bytes and counts all. A character has at most four bytes.
#[derive(Default)]
struct Shown {
    first: Vec<u8>,
    len: usize,
}

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let free = (4 * SHOWN_TEXT).saturating_sub(self.first.len());
        self.first.extend(bytes.iter().take(free));
        self.len += bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

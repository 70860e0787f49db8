//! Plans as JSON and as text.

use super::{Content, PlannedFile, Segment, WritePlan};
use crate::checkpoint::{Loss, escape_text};
use crate::json::{rows, tree};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::fmt;

/// JSON document of a plan.
#[derive(Serialize)]
struct Plan<'a, Files: Serialize, Losses: Serialize> {
    format: &'a str,
    kind: &'a str,
    bytes: u64,
    files: Files,
    losses: Losses,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated: Option<bool>,
}

/// JSON document of a file.
#[derive(Serialize)]
struct Planned<'a, Segments: Serialize> {
    name: &'a str,
    bytes: u64,
    segments: Segments,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

impl WritePlan {
    /// Returns a JSON tree with `format`, `kind`, `bytes`, `files` with their `segments`, and `losses`. An estimate of `bytes`
    /// has `"estimated": true` beside it; such a file has `content` and no segments. [`WritePlan::as_json`] avoids the tree.
    pub fn to_json(&self) -> Json {
        tree(&self.as_json())
    }

    /// Returns the document of [`WritePlan::to_json`], serialized without a tree in memory.
    pub fn as_json(&self) -> impl Serialize + '_ {
        Plan {
            format: self.format,
            kind: self.kind,
            bytes: self.bytes(),
            files: rows(&self.files, PlannedFile::as_json),
            losses: rows(&self.losses, Loss::to_json),
            estimated: self.is_estimated().then_some(true),
        }
    }
}

impl PlannedFile {
    fn as_json(&self) -> impl Serialize + '_ {
        let content = self.stream.as_ref().map(|stream| stream.encoder().describe());
        Planned {
            name: &self.name,
            bytes: self.len,
            segments: rows(&self.segments, Segment::to_json),
            estimated: content.is_some().then_some(true),
            content,
        }
    }
}

impl Segment {
    /// Returns the action of the segment: `literal`, `padding`, `copy`, `transform`, `latin1` or `crc32`.
    pub fn action(&self) -> &'static str {
        match &self.content {
            Content::Literal(_) => "literal",
            Content::Padding(_) => "padding",
            Content::Copy { .. } => "copy",
            Content::Tensor { .. } => "transform",
            Content::Latin1 { .. } => "latin1",
            Content::Crc32(_) => "crc32",
        }
    }

    /// Returns the origin of the bytes and the steps applied to them, for users.
    pub fn detail(&self) -> String {
        match &self.content {
            Content::Literal(_) => String::new(),
            Content::Padding(byte) => format!("0x{byte:02x}"),
            Content::Copy { source, offset, tensor } => {
                format!("{tensor}  from {} at {offset}", escape_text(source.label()))
            }
            Content::Tensor { entry, order } | Content::Latin1 { entry, order, .. } => {
                let mut steps = Vec::new();
                if entry.order() != *order && !entry.shape.is_order_free() {
                    steps.push(format!("{} to {} order", entry.order().as_str(), order.as_str()));
                }
                if let Some(to) = entry.cast {
                    steps.push(format!("{} to {to}", entry.stored));
                }
                if let Content::Latin1 { region, .. } = &self.content {
                    let start: Vec<_> = region.start.iter().map(u64::to_string).collect();
                    steps.push(format!("as text from [{}] on", start.join(", ")));
                } else if steps.is_empty() {
                    steps.push("gathered".into());
                }
                format!("{}  {}", entry.name(), steps.join(", "))
            }
            Content::Crc32(range) => format!("of {}..{}", range.start, range.end),
        }
    }

    fn to_json(&self) -> Json {
        let mut json = json!({ "offset": self.offset, "bytes": self.len, "action": self.action() });
        match &self.content {
            Content::Copy { source, offset, tensor } => {
                json["tensor"] = json!(tensor);
                json["source"] = json!(source.label());
                json["source_offset"] = json!(offset);
            }
            Content::Tensor { entry, order } | Content::Latin1 { entry, order, .. } => {
                json["tensor"] = json!(entry.text());
                json["from"] = json!({ "dtype": entry.stored.name(), "order": entry.order().as_str() });
                json["to"] = json!({ "dtype": entry.dtype().name(), "order": order.as_str() });
                if let Content::Latin1 { region, .. } = &self.content {
                    json["start"] = json!(region.start);
                    json["extent"] = json!(region.shape);
                }
            }
            Content::Crc32(range) => json["range"] = json!([range.start, range.end]),
            Content::Literal(_) | Content::Padding(_) => {}
        }
        json
    }
}

impl fmt::Display for WritePlan {
    /// Writes one line per segment, then one per loss.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            let name = if file.name.is_empty() { "the target" } else { &file.name };
            let about = if file.is_estimated() { "about " } else { "" };
            let (form, kind, name) = (self.format, self.kind, escape_text(name));
            writeln!(f, "{form} {kind} ({about}{} bytes in {name})", file.len)?;
            if let Some(stream) = &file.stream {
                writeln!(f, "{}", escape_text(&stream.encoder().describe()))?;
                continue;
            }
            writeln!(f, "{:>14} {:>14}  {:<9}  from", "offset", "bytes", "action")?;
            for segment in &file.segments {
                let line = format!(
                    "{:>14} {:>14}  {:<9}  {}",
                    segment.offset,
                    segment.len,
                    segment.action(),
                    segment.detail()
                );
                writeln!(f, "{}", line.trim_end())?;
            }
        }
        for loss in &self.losses {
            writeln!(f, "loss {}: {}: {}", loss.code, loss.subject, loss.detail)?;
        }
        Ok(())
    }
}

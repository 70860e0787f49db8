//! Plans as JSON and as text.

use super::{Content, PlannedFile, Segment, WritePlan};
use crate::LossCode;
use crate::checkpoint::{Loss, escape_text};
use crate::json::{rows, tree};
use crate::tensor::{DType, Shape};
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
    /// has `"estimated": true` beside it; such a file has `content` and no segments. The graph of a file is its `content`, too.
    /// [`WritePlan::as_json`] avoids the tree.
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
        let streamed = self.stream.as_ref().map(|stream| stream.encoder().describe());
        let estimated = streamed.is_some().then_some(true);
        let content = streamed.or_else(|| (!self.content.is_empty()).then(|| self.content.clone()));
        Planned {
            name: &self.name,
            bytes: self.len,
            segments: rows(&self.segments, Segment::to_json),
            estimated,
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

    /// Returns the tensor of the elements, with its dtype and shape in the file; `None` for other bytes.
    fn tensor(&self) -> Option<(String, DType, &Shape)> {
        match &self.content {
            Content::Copy { tensor, form, .. } => form.as_ref().map(|form| (tensor.clone(), form.0, &form.1)),
            Content::Tensor { entry, .. } | Content::Latin1 { entry, .. } => {
                Some((entry.name(), entry.dtype(), &entry.shape))
            }
            _ => None,
        }
    }

    fn to_json(&self) -> Json {
        let mut json = json!({ "offset": self.offset, "bytes": self.len, "action": self.action() });
        match &self.content {
            Content::Copy { source, offset, tensor, .. } => {
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

impl PlannedFile {
    /// Returns true for a copy of another file, without tensors.
    fn is_copy(&self) -> bool {
        match self.segments.as_slice() {
            [Segment { content: Content::Copy { tensor, source, offset: 0, .. }, .. }] => {
                tensor.is_empty()
                    && source.len() == self.len
                    && self.content.is_empty()
                    && self.stream.is_none()
            }
            _ => false,
        }
    }
}

impl fmt::Display for WritePlan {
    /// Writes one line per file, one per tensor in it, then one per loss.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            let name = if file.name.is_empty() { "the target" } else { &file.name };
            let about = if file.is_estimated() { "about " } else { "" };
            let (form, kind, name) = (self.format, self.kind, escape_text(name));
            if file.is_copy() {
                writeln!(f, "{name} ({} bytes, copied)", file.len)?;
                continue;
            }
            writeln!(f, "{form} {kind} ({about}{} bytes in {name})", file.len)?;
            if let Some(stream) = &file.stream {
                writeln!(f, "{}", escape_text(&stream.encoder().describe()))?;
                continue;
            }
            let mut tensors =
                file.segments.iter().filter_map(|segment| Some((segment.tensor()?, segment.len))).peekable();
            if tensors.peek().is_some() {
                writeln!(f, "{:>14}  {:<6}  {:<16}  tensor", "bytes", "dtype", "shape")?;
            }
            while let Some((own, mut bytes)) = tensors.next() {
                // A large tensor may have several segments.
                while let Some((_, more)) = tensors.next_if(|(next, _)| *next == own) {
                    bytes += more;
                }
                let (name, dtype, shape) = own;
                writeln!(f, "{bytes:>14}  {:<6}  {:<16}  {name}", dtype.to_string(), shape.to_string())?;
            }
            f.write_str(&file.content)?;
        }
        for loss in &self.losses {
            // The subject of an omission is the code of its note.
            match loss.code {
                LossCode::Omitted => writeln!(f, "loss {}: {}", loss.subject, loss.detail)?,
                code => writeln!(f, "loss {code}: {}: {}", loss.subject, loss.detail)?,
            }
        }
        Ok(())
    }
}

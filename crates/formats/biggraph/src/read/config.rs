//! Configurations: the one named by the caller, the one next to the files, and the one in them.

use super::super::config::{Config, json_text};
use super::super::layout::FileName;
use crate::ReadOptions;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Note, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, MemorySource, SourceRef, read_vec};

/// Maximum length of a configuration in bytes. One with a thousand relations has 200 kB.
const MAX_BYTES: u64 = 64 << 20;

/// Configuration and its text.
pub(in super::super) struct Known {
    pub(in super::super) config: Config,
    pub(in super::super) text: String,
}

/// JSON text of a configuration, which may be a Python file of literals.
///
/// [`weighbridge_core::Kind::Limit`]; [`weighbridge_core::Kind::Corrupt`], `config-text`, if it is not UTF-8;
/// [`weighbridge_core::Kind::Unsupported`], `python-config`, for Python code other than literals.
pub(super) fn text_of(source: &SourceRef) -> Result<String> {
    Limits::check("bytes of a configuration", "header_bytes", source.len(), MAX_BYTES)
        .map_err(|e| e.in_file(source.label()))?;
    let bytes = read_vec(&**source, 0, source.len())?;
    String::from_utf8(bytes)
        .map_err(|_| Error::corrupt("config-text", "the configuration is not UTF-8"))
        .and_then(json_text)
        .map_err(|e| e.in_file(source.label()))
}

/// Configuration named by the caller.
///
/// # Errors
/// Errors of parsing it.
pub(in super::super) fn given(options: &OpenOptions) -> Result<Option<Known>> {
    let Some(source) = &options.own::<ReadOptions>().config else { return Ok(None) };
    let text = text_of(source)?;
    let (config, _) = Config::parse(&text, options.lenient).map_err(|e| e.in_file(source.label()))?;
    Ok(Some(Known { config, text }))
}

/// The `config.json` of a folder; `None` if it is missing or cannot be parsed: the
/// files contain their own.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`].
pub(super) fn beside(folder: &FolderRef) -> Result<Option<Known>> {
    let Some(source) = folder.open(Path::new(&FileName::Config.to_string()))? else { return Ok(None) };
    let text = match text_of(&source) {
        Ok(text) => text,
        Err(error) if super::is_content(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(lenient(&text).map(|config| Known { config, text }))
}

/// Configuration parsed leniently, if possible; faults in it are left to the
/// check.
pub(in super::super) fn lenient(text: &str) -> Option<Config> {
    Config::parse(text, true).ok().map(|(config, _)| config)
}

/// Required parameters of a model, in optimizer order, with their shapes; the first
/// dimension of a dynamic one is not known. `None` for an unknown operator.
pub(in super::super) fn parameters(config: &Config) -> Option<Vec<(TensorPath, Vec<u64>)>> {
    let all = config.parameters(0).ok()?;
    let path =
        |parts: &[String]| TensorPath::new(parts.iter().map(|p| Name::from(p.as_str())).collect::<Vec<_>>());
    Some(all.iter().map(|parameter| (path(&parameter.path), parameter.shape.clone())).collect())
}

/// True for JSON text with the required keys of a configuration. Checks only
/// the available head.
pub(super) fn looks_like_config(head: &[u8]) -> bool {
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    text.trim_start().starts_with('{') && has("entities") && (has("num_partitions") || has("numPartitions"))
}

/// Opens a configuration as a checkpoint without tensors.
///
/// # Errors
/// Errors of parsing it; with `options.lenient` notes.
pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = super::checkpoint(super::CONFIG, source.label());
    let text = text_of(source)?;
    match Config::parse(&text, options.lenient) {
        Ok((_, findings)) => checkpoint.notes.extend(findings.into_iter().map(|f| Note::new(f.code, f.text))),
        Err(error) if options.lenient => checkpoint.notes.push(Note::new(error.code(), error.message())),
        Err(error) => return Err(error.in_file(source.label())),
    }
    // The file itself, unless it is Python.
    let is_json = read_vec(&**source, 0, source.len())? == text.as_bytes();
    let file = if is_json {
        source.clone()
    } else {
        Arc::new(MemorySource::new(source.label(), text.clone().into_bytes()))
    };
    checkpoint.metadata.set("config", Value::Text(text));
    checkpoint.companions.push((FileName::Config.to_string(), file));
    Ok(checkpoint)
}

//! Scan of a file and all embedded content, to a bounded depth.

use super::outside;
use crate::engine::LOCK_NAME;
use crate::error::{Error, Kind, Result};
use crate::formats::{self, OpenOptions, Scan};
use crate::limits::Limits;
use crate::pickle::{Options, inspect};
use crate::scan::{
    AssumedType, Beginning, Class, Inner, archive, begins_as_zip, config, embedded, ends_as_zip, is_tar,
    may_be_pickle, pickles, runs, tar, template, yaml,
};
use crate::source::{SourceRef, read_vec};
use crate::text::escape;
use std::path::Path;
use weighbridge_core::{Budget, HeldMemory, phrase};

/// Work for an embedded item, besides its bytes.
const ITEM_WORK: u64 = 512;
/// Bytes at the beginning of a file for detection.
const HEAD: u64 = 4096;
/// Extensions of texts that programs do not load.
const TEXTS: &[&str] =
    &["md", "txt", "rst", "csv", "tsv", "toml", "yml", "yaml", "gitattributes", "gitignore"];

/// Extensions of Jinja templates.
const TEMPLATES: &[&str] = &["jinja", "jinja2", "j2"];

/// Names of placeholder files, which are empty on purpose.
const PLACEHOLDERS: &[&str] =
    &[LOCK_NAME, "__init__.py", "py.typed", ".gitkeep", ".keep", ".nojekyll", "_SUCCESS"];

/// Scans `source` as the given type, with all embedded content. Returns the format where it is known. `name` is the name of
/// the file, if it has one.
pub(super) fn look(
    source: &SourceRef,
    name: Option<&Path>,
    assumed_type: AssumedType,
    options: &OpenOptions,
) -> Result<(Option<&'static str>, Scan)> {
    let budget = options.limits.budget_of(source);
    let mut options = options.clone();
    options.limits.budget = Some(budget.clone());
    let (format, mut scan) = one(source, name, assumed_type, &options, 0, &budget)?;
    if budget.work_left() == 0 {
        let text = "limit: the embedded content is many times larger than the file; the rest was not scanned";
        scan.push("left-out", text);
    }
    scan.finish();
    Ok((format, scan))
}

fn one(
    source: &SourceRef,
    name: Option<&Path>,
    assumed_type: AssumedType,
    options: &OpenOptions,
    depth: usize,
    budget: &Budget,
) -> Result<(Option<&'static str>, Scan)> {
    let limits = &options.limits;
    let mut scan = Scan::default();
    let memory = budget.memory_left();
    let format = match assumed_type {
        AssumedType::Pickle => {
            pickles(source, 0, 1, false, limits, &mut scan);
            None
        }
        AssumedType::Numbers => {
            embedded(source, limits, &mut scan);
            None
        }
        AssumedType::Bytes if is_saved_zip(source)? => file(source, name, options, &mut scan)?,
        AssumedType::Bytes if embedded(source, limits, &mut scan) => None,
        AssumedType::Bytes => bytes(source, options, &mut scan)?,
        AssumedType::File => file(source, name, options, &mut scan)?,
    };
    // The memory of the scan is free again.
    budget.give_memory(memory.saturating_sub(budget.memory_left()));
    for inner in std::mem::take(&mut scan.inner) {
        let found = within(&inner, options, depth + 1, budget).or_else(Scan::of_error)?;
        scan.absorb(found, Some(&inner.name));
    }
    Ok((format, scan))
}

/// Scans an embedded item, as far as the budget allows.
fn within(inner: &Inner, options: &OpenOptions, depth: usize, budget: &Budget) -> Result<Scan> {
    // Options for the file do not apply to its content.
    let options = OpenOptions { limits: options.limits.clone(), ..OpenOptions::default() };
    let mut refused = Scan::default();
    let mut assumed_type = inner.assumed_type;
    if assumed_type == AssumedType::Numbers {
        if !may_be_pickle(&inner.source)? {
            return Ok(refused);
        }
        // Libraries also store a saved model in an array of bytes.
        if !inner.source.is_sequential() && is_saved_zip(&inner.source)? {
            assumed_type = AssumedType::File;
        }
    }
    if assumed_type != AssumedType::Numbers && inner.source.is_empty() {
        return Ok(refused);
    }
    if Budget::check_depth(depth).is_err() {
        refused.push("nested-too-deep", "embedded files are nested too deeply to scan");
        return Ok(refused);
    }
    // Items may share their bytes. For numbers that are decompressed while reading, only the header is read; a completely
    // decompressed item stays in memory during its scan.
    let packed = inner.source.within().filter(|within| within.encoded);
    let mut held = HeldMemory::of(budget);
    let is_numbers = assumed_type == AssumedType::Numbers;
    let taken = match packed {
        Some(within) if is_numbers || inner.source.is_sequential() => {
            budget.take_work(within.len + ITEM_WORK)
        }
        Some(_) => held.take(inner.source.len()).and_then(|()| budget.take_work(ITEM_WORK)),
        None => budget.take_work(inner.source.len().saturating_add(ITEM_WORK)),
    };
    if let Err(error) = taken {
        refused.push("nested-too-deep", format!("limit: {}; the item was not scanned", error.message()));
        return Ok(refused);
    }
    Ok(one(&inner.source, Some(Path::new(&inner.name)), assumed_type, &options, depth, budget)?.1)
}

fn is_zip(source: &SourceRef) -> Result<bool> {
    let head = read_vec(&**source, 0, source.len().min(4))?;
    Ok(begins_as_zip(&head) || (!source.is_sequential() && ends_as_zip(source).is_some()))
}

/// True for a zip archive from its first byte to its end.
fn is_saved_zip(source: &SourceRef) -> Result<bool> {
    let head = read_vec(&**source, 0, source.len().min(4))?;
    Ok(begins_as_zip(&head) && ends_as_zip(source).is_some())
}

/// Scans untyped bytes: as a file if they are recognized, otherwise they are opaque.
fn bytes(source: &SourceRef, options: &OpenOptions, scan: &mut Scan) -> Result<Option<&'static str>> {
    let head = read_vec(&**source, 0, source.len().min(HEAD))?;
    if Beginning::of(&head).is_some()
        || is_tar(&head)
        || formats::registry().detect(source).is_ok()
        || is_zip(source)?
    {
        return file(source, None, options, scan);
    }
    scan.push("opaque-bytes", format!("{} bytes without a type", source.len()));
    Ok(None)
}

/// Scans a file: by its format, or by another type.
fn file(
    source: &SourceRef,
    name: Option<&Path>,
    options: &OpenOptions,
    scan: &mut Scan,
) -> Result<Option<&'static str>> {
    let head = read_vec(&**source, 0, source.len().min(HEAD))?;
    let format = match &options.format {
        Some(id) => formats::registry().by_id(id),
        None => formats::registry().detect(source),
    };
    let known = match format {
        Ok(format) if format.scanner().is_some_and(|scanner| scanner.is_plain_archive(&head)) => {
            members(source, &options.limits, scan)?;
            Some("zip")
        }
        Ok(format) => {
            *scan = match format.scanner() {
                Some(scanner) => scanner.scan(source, options)?,
                // The format cannot contain code: a file that opens is clean.
                None => match format.open(source.clone(), options) {
                    Ok(checkpoint) => Scan::of_notes(&checkpoint),
                    Err(error) => Scan::of_error(error)?,
                },
            };
            let plain = format.scanner().and_then(|own| own.plain_container(&head, name?, scan));
            Some(plain.unwrap_or(format.info().id))
        }
        Err(error) if matches!(error.kind(), Kind::Usage | Kind::Io) => return Err(error),
        Err(error) => other(error, source, &head, name, &options.limits, scan)?,
    };
    outside::judge(source, &head, name, known, &options.limits, scan)?;
    Ok(known)
}

/// Scans a file that is not of a model format.
fn other(
    error: Error,
    source: &SourceRef,
    head: &[u8],
    name: Option<&Path>,
    limits: &Limits,
    scan: &mut Scan,
) -> Result<Option<&'static str>> {
    if source.is_empty() {
        let name = name.and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or("");
        if !PLACEHOLDERS.contains(&name) && !is_plain(name) {
            scan.push("unknown-content", error.message());
        }
        return Ok(Some("empty"));
    }
    let known = Beginning::of(head);
    if begins_as_zip(head) || (known.is_none() && ends_as_zip(source).is_some()) {
        members(source, limits, scan)?;
        return Ok(Some("zip"));
    }
    if is_tar(head) {
        tar(source, limits, scan)?;
        return Ok(Some("tar"));
    }
    if let Some(known) = known.filter(|known| known.class == Class::Program) {
        scan.push("program-file", format!("this is {}", known.what));
        return Ok(None);
    }
    if let Some(known) = known.filter(|known| known.class == Class::Packed) {
        scan.push("archive-not-entered", format!("this is {}; its content was not scanned", known.what));
        return Ok(None);
    }
    if known.is_some_and(|known| known.what == "a pickle") || is_old_pickle(source, limits) {
        pickles(source, 0, 1, false, limits, scan);
        return Ok(Some("pickle"));
    }
    if let Some(kind) = text(source, head, name, limits, scan)? {
        return Ok(Some(kind));
    }
    let hint = error.hint_phrase().map(|hint| phrase![": ", hint]).unwrap_or_default();
    scan.push("unknown-content", phrase![error.message(), hint]);
    Ok(None)
}

/// Scans every member of an archive without a known format.
fn members(source: &SourceRef, limits: &Limits, scan: &mut Scan) -> Result<()> {
    archive(source, limits, scan, &|_| false, &mut |member, bytes, scan| {
        scan.look_into(escape(&member.name), bytes, AssumedType::File);
        Ok(())
    })
}

/// True for a pickle of protocol 0 or 1, which has no signature: it parses to its end, or imports something dangerous or calls
/// an import before an error. Much text begins with the letter of an opcode.
fn is_old_pickle(source: &SourceRef, limits: &Limits) -> bool {
    if !may_be_pickle(source).is_ok_and(|may| may) || source.len() > limits.header_bytes {
        return false;
    }
    let report = inspect(source, 0, &Options::with_limits(limits.clone()));
    (report.error.is_none() && report.instructions > 1) || runs(&report)
}

/// True for the name of a text that programs do not load.
fn is_plain(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    TEXTS.contains(&extension.as_str()) || matches!(name, "LICENSE" | "README" | "NOTICE")
}

/// Scans inert text: JSON, and readable text.
fn text(
    source: &SourceRef,
    head: &[u8],
    name: Option<&Path>,
    limits: &Limits,
    scan: &mut Scan,
) -> Result<Option<&'static str>> {
    let name = name.and_then(|name| name.file_name()).and_then(|name| name.to_str()).unwrap_or("");
    let plain = is_plain(name);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    if TEMPLATES.contains(&extension.as_str()) {
        return as_template(source, limits, scan);
    }
    let json =
        head.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| matches!(byte, b'{' | b'['));
    if !(plain || json) || source.len() > limits.header_bytes {
        return Ok(None);
    }
    let Some((bytes, _held)) = whole(source, limits)? else { return Ok(None) };
    let Some(text) = readable(&bytes) else { return Ok(None) };
    if json && config(text, limits, scan) {
        return Ok(Some("json"));
    }
    if matches!(&*extension, "yml" | "yaml") {
        yaml(text, scan);
    }
    Ok(plain.then_some("text"))
}

/// Returns all bytes, with their memory; `None` where the budget is too small.
fn whole(source: &SourceRef, limits: &Limits) -> Result<Option<(Vec<u8>, HeldMemory)>> {
    let mut held = HeldMemory::of(&limits.budget_of(source));
    if held.take(source.len()).is_err() {
        return Ok(None);
    }
    Ok(Some((read_vec(&**source, 0, source.len())?, held)))
}

/// Returns the bytes as text without control characters.
fn readable(bytes: &[u8]) -> Option<&str> {
    let is_odd = |c: char| c.is_control() && !c.is_ascii_whitespace();
    std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(is_odd))
}

/// Scans a chat template, recognized by its name.
fn as_template(source: &SourceRef, limits: &Limits, scan: &mut Scan) -> Result<Option<&'static str>> {
    let Some((bytes, _held)) = whole(source, limits)? else { return Ok(None) };
    let Some(text) = readable(&bytes) else { return Ok(None) };
    template(text, scan);
    Ok(Some("template"))
}

//! A file and all that is inside, to a bounded depth.

use super::outside;
use crate::containers::zip::survey;
use crate::error::{Error, Kind, Result};
use crate::formats::{self, OpenOptions, Scan};
use crate::limits::Limits;
use crate::pickle::inspect;
use crate::scan::{
    Beginning, Class, Inner, TakenFor, archive, begins_as_zip, config, embedded, ends_as_zip, is_tar,
    may_be_pickle, pickle_options, pickles, runs, tar, template, yaml,
};
use crate::source::{SourceRef, read_vec};
use crate::text::escape;
use std::path::Path;
use weighbridge_core::phrase;

/// Archives within archives that are looked through.
const DEPTH: usize = 4;
/// Archives within archives may unpack to this many bytes, all together.
const UNPACKED: u64 = 1 << 30;
/// Files within archives that are looked through, all together; members that are numbers do not count.
const FILES: u64 = 200_000;
/// What is inside may take this many times the length of the file, and [`UNPACKED`] bytes more.
const TIMES: u64 = 16;
/// Bytes of the beginning by which a file is told.
const HEAD: u64 = 4096;
/// Extensions of texts that nothing loads.
const TEXTS: &[&str] = &["md", "txt", "rst", "csv", "yml", "yaml", "gitattributes", "gitignore"];

/// Extensions of templates of Jinja.
const TEMPLATES: &[&str] = &["jinja", "jinja2", "j2"];
/// The longest template that is read; it may be too long to be followed all the same.
const LONGEST_TEMPLATE: u64 = 1 << 20;

/// Names of files that are there to be empty.
const PLACEHOLDERS: &[&str] = &["__init__.py", "py.typed", ".gitkeep", ".keep", ".nojekyll", "_SUCCESS"];

/// What may still be spent on what is inside.
struct Budget {
    unpacked: u64,
    files: u64,
    /// Bytes of what is inside: parts may share their bytes, and are each looked at.
    bytes: u64,
}

/// Looks through `source`, which is taken for that, and through all that is inside. The format is told where
/// it is known. `name` is that of the file, where it has one.
pub(super) fn look(
    source: &SourceRef,
    name: Option<&Path>,
    taken_for: TakenFor,
    options: &OpenOptions,
) -> Result<(Option<&'static str>, Scan)> {
    let bytes = source.len().saturating_mul(TIMES).saturating_add(UNPACKED);
    let mut budget = Budget { unpacked: UNPACKED, files: FILES, bytes };
    let whole = weighbridge_core::Budget::new(source.len(), &options.limits);
    let mut options = options.clone();
    options.limits.budget = Some(whole.clone());
    let (format, mut scan) = one(source, name, taken_for, &options, DEPTH, &mut budget)?;
    if whole.work_left() == 0 {
        let text = "pickle-bytes: pickles and headers in the file are many times as long as it is; the rest was not looked at";
        scan.push("left-out", text);
    }
    scan.finish();
    Ok((format, scan))
}

fn one(
    source: &SourceRef,
    name: Option<&Path>,
    taken_for: TakenFor,
    options: &OpenOptions,
    depth: usize,
    budget: &mut Budget,
) -> Result<(Option<&'static str>, Scan)> {
    let limits = &options.limits;
    let mut scan = Scan::default();
    let format = match taken_for {
        TakenFor::Pickle => {
            pickles(source, 0, 1, false, limits, &mut scan);
            None
        }
        TakenFor::Numbers => {
            embedded(source, limits, &mut scan);
            None
        }
        TakenFor::Bytes if is_saved_zip(source)? => file(source, name, options, &mut scan)?,
        TakenFor::Bytes if embedded(source, limits, &mut scan) => None,
        TakenFor::Bytes => bytes(source, options, &mut scan)?,
        TakenFor::File => file(source, name, options, &mut scan)?,
    };
    for inner in std::mem::take(&mut scan.inner) {
        let found = within(&inner, options, depth, budget).or_else(Scan::of_error)?;
        scan.absorb(found, Some(&inner.name));
    }
    Ok((format, scan))
}

/// Looks through something inside, as far as may be.
fn within(inner: &Inner, options: &OpenOptions, depth: usize, budget: &mut Budget) -> Result<Scan> {
    // What the caller says of the file does not hold for what is in it.
    let options = OpenOptions { limits: options.limits.clone(), ..OpenOptions::default() };
    let mut refused = Scan::default();
    let mut taken_for = inner.taken_for;
    if taken_for == TakenFor::Numbers {
        if !may_be_pickle(&inner.source)? {
            return Ok(refused);
        }
        // Numbers of a byte each are what libraries keep a saved model in, too.
        if !inner.source.is_sequential() && is_saved_zip(&inner.source)? {
            taken_for = TakenFor::File;
        }
    }
    // Of numbers that are unpacked while they are read only the header is looked at.
    let packed = inner.source.within().filter(|within| within.encoded && inner.source.is_sequential());
    let cost = packed.map_or(inner.source.len(), |within| within.len);
    let Some(rest) = budget.bytes.checked_sub(cost) else {
        refused.push("nested-too-deep", "what is inside is many times as long as the file");
        return Ok(refused);
    };
    budget.bytes = rest;
    if taken_for != TakenFor::Numbers {
        if inner.source.is_empty() {
            return Ok(refused);
        }
        if budget.files == 0 {
            refused.push("nested-too-deep", format!("more than {FILES} files within archives"));
            return Ok(refused);
        }
        budget.files -= 1;
        if is_zip(&inner.source)? {
            let Some(left) = depth.checked_sub(1).filter(|&left| left > 0) else {
                refused
                    .push("nested-too-deep", format!("an archive within {DEPTH} others was not looked into"));
                return Ok(refused);
            };
            match survey(&inner.source, &options.limits) {
                Ok(known) => {
                    let claim =
                        known.members.iter().fold(0u64, |sum, found| sum.saturating_add(found.member.len));
                    let Some(rest) = budget.unpacked.checked_sub(claim) else {
                        refused.push(
                            "nested-too-deep",
                            format!("the archive would unpack to {claim} bytes more"),
                        );
                        return Ok(refused);
                    };
                    budget.unpacked = rest;
                }
                Err(error) => {
                    refused.push_error(error)?;
                    return Ok(refused);
                }
            }
            let path = Path::new(&inner.name);
            return Ok(one(&inner.source, Some(path), taken_for, &options, left, budget)?.1);
        }
    }
    let Some(left) = depth.checked_sub(1) else {
        refused.push("nested-too-deep", "files within files go deeper than is looked through");
        return Ok(refused);
    };
    Ok(one(&inner.source, Some(Path::new(&inner.name)), taken_for, &options, left, budget)?.1)
}

fn is_zip(source: &SourceRef) -> Result<bool> {
    let head = read_vec(&**source, 0, source.len().min(4))?;
    Ok(begins_as_zip(&head) || (!source.is_sequential() && ends_as_zip(source).is_some()))
}

/// True for an archive from its first byte to its end.
fn is_saved_zip(source: &SourceRef) -> Result<bool> {
    let head = read_vec(&**source, 0, source.len().min(4))?;
    Ok(begins_as_zip(&head) && ends_as_zip(source).is_some())
}

/// Bytes without a type: whatever they are recognised as, else opaque.
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

/// A file: by its format, or by what else it is.
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
    let told = match format {
        Ok(format) if format.scanner().is_some_and(|scanner| scanner.is_plain_archive(&head)) => {
            members(source, &options.limits, scan)?;
            Some("zip")
        }
        Ok(format) => {
            *scan = match format.scanner() {
                Some(scanner) => scanner.scan(source, options)?,
                // No code is known in such files: what opens is clean.
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
    outside::judge(source, &head, name, told, &options.limits, scan)?;
    Ok(told)
}

/// A file of no format of models.
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
        scan.push("archive-not-entered", format!("this is {}; it was not looked into", known.what));
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

/// Every member of an archive that is nobody's.
fn members(source: &SourceRef, limits: &Limits, scan: &mut Scan) -> Result<()> {
    archive(source, limits, scan, &|_| false, &mut |member, bytes, scan| {
        scan.look_into(escape(&member.name), bytes, TakenFor::File);
        Ok(())
    })
}

/// True for a pickle of protocol 0 or 1, which declares nothing: it is one to its end, or imports what is
/// dangerous or calls what it imports before it breaks. Much text begins with the letter of an instruction.
fn is_old_pickle(source: &SourceRef, limits: &Limits) -> bool {
    if !may_be_pickle(source).is_ok_and(|may| may) || source.len() > limits.header_bytes {
        return false;
    }
    let report = inspect(source, 0, &pickle_options(source, limits));
    (report.error.is_none() && report.instructions > 1) || runs(&report)
}

/// True for the name of a text that nothing loads.
fn is_plain(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    TEXTS.contains(&extension.as_str()) || matches!(name, "LICENSE" | "README" | "NOTICE")
}

/// Text that runs nothing: JSON, which is looked through, and what people read.
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
        return as_template(source, scan);
    }
    let json =
        head.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| matches!(byte, b'{' | b'['));
    if !(plain || json) || source.len() > limits.header_bytes {
        return Ok(None);
    }
    let bytes = read_vec(&**source, 0, source.len())?;
    let Some(text) = readable(&bytes) else { return Ok(None) };
    if json && config(text, scan) {
        return Ok(Some("json"));
    }
    if matches!(&*extension, "yml" | "yaml") {
        yaml(text, scan);
    }
    Ok(plain.then_some("text"))
}

/// Text that people can read.
fn readable(bytes: &[u8]) -> Option<&str> {
    let is_odd = |c: char| c.is_control() && !c.is_ascii_whitespace();
    std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(is_odd))
}

/// A template of chats by its name.
fn as_template(source: &SourceRef, scan: &mut Scan) -> Result<Option<&'static str>> {
    if source.len() > LONGEST_TEMPLATE {
        scan.push("left-out", "template: it is longer than a template that is looked through");
        return Ok(Some("template"));
    }
    let bytes = read_vec(&**source, 0, source.len())?;
    let Some(text) = readable(&bytes) else { return Ok(None) };
    template(text, scan);
    Ok(Some("template"))
}

//! Content and names that contradict the detected format: two formats in one file, misleading extensions.

use crate::error::Result;
use crate::formats::Scan;
use crate::limits::Limits;
use crate::scan::{
    AssumedType, Beginning, Class, Ending, archive, begins_as_zip, ends_as_zip, is_tar, pickle_too, tar,
};
use crate::source::{SourceRef, read_vec};
use crate::text::escape;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::FindingCode;

/// Possible offsets of an HDF5 file after other bytes: this, or two, four, eight times this, and so on.
const USER_BLOCK: u64 = 512;
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Readers of PDF search for the signature in this many bytes.
const PDF: usize = 1024;
/// Maximum number of scanned bytes before an HDF5 file.
const FRONT: u64 = 1 << 20;
/// Extensions of formats without code: users expect that loading them runs nothing.
const DATA_ONLY: &[&str] = &[
    "safetensors",
    "json",
    "tsv",
    "csv",
    "txt",
    "md",
    "vec",
    "parquet",
    "arrow",
    "feather",
    "yaml",
    "yml",
    "jinja",
    "gguf",
    "png",
    "jpg",
    "jpeg",
    "gif",
];
/// Extensions of formats that may contain objects but are not a pickle as a whole.
const NO_PICKLE: &[&str] = &["npy", "npz", "h5", "hdf5", "keras", "onnx", "gguf", "pb"];

/// Extensions of files that are executed, imported, or control a program, for any content. Web pages and notebooks are not
/// listed: they are not part of a model, and nothing runs them by itself.
#[rustfmt::skip]
const PROGRAMS: &[&str] = &[
    "py", "pyc", "pyo", "pyw", "pyx", "pyd", "pyz", "so", "dylib", "dll", "exe", "com", "scr", "sys", "msi", "sh", "bash", "zsh",
    "csh", "ksh", "fish", "bat", "cmd", "ps1", "psm1", "psd1", "vbs", "vbe", "wsf", "wsh", "hta", "js", "mjs", "cjs", "jse", "ts", "php",
    "phtml", "phar", "pl", "pm", "rb", "lua", "tcl", "r", "jl", "jar", "war", "class", "wasm",
    "desktop", "command", "scpt", "reg", "inf", "lnk", "url", "jnlp", "docm", "xlsm", "pptm",
];

/// Scans for other formats in the file than the known one.
pub(super) fn judge(
    source: &SourceRef,
    head: &[u8],
    name: Option<&Path>,
    known_format: Option<&'static str>,
    limits: &Limits,
    scan: &mut Scan,
) -> Result<()> {
    extension(head, name, known_format, scan);
    if source.is_sequential() {
        // Decompressed while reading: numbers of an archive, whose header was scanned.
        return Ok(());
    }
    if !matches!(known_format, None | Some("pickle" | "json" | "template" | "text")) {
        pickle_too(source, limits, scan)?;
    }
    let own = known_format.unwrap_or("of unknown format");
    let mut two = |at: u64, what: &str| {
        scan.push_at("two-formats", at, format!("the file is {own} and also {what}"));
    };
    let tarred = !matches!(known_format, Some("tar" | "torch")) && is_tar(head);
    if tarred {
        two(0, "a tar archive");
    }
    if let Some(at) = memchr::memmem::find(&head[..head.len().min(PDF)], b"%PDF-").filter(|&at| at > 0) {
        two(at as u64, "a PDF document");
    }
    let hdf5 = behind(source)?;
    match (hdf5, known_format) {
        (Some(at), Some("hdf5" | "biggraph")) if !head.starts_with(HDF5) => front(source, at, scan)?,
        (Some(at), _) if !head.starts_with(HDF5) => two(at, "an HDF5 file"),
        _ => {}
    }
    if known_format != Some("parquet") && ends_as_parquet(source)? {
        let at = source.len() - 4;
        scan.push_at("two-formats", at, format!("the file is {own} and also ends as a Parquet file"));
    }
    let is_archive = known_format == Some("zip")
        || (begins_as_zip(head) && matches!(known_format, Some("npz" | "torch" | "dcp")));
    if !is_archive
        && let Some(ending) = ends_as_zip(source)
        && !is_part(&ending, source, scan)
    {
        scan.push_at("two-formats", ending.at, format!("the file is {own} and also a zip archive"));
        let mut other = Scan::default();
        archive(source, limits, &mut other, &|_| false, &mut |member, bytes, other| {
            other.look_into(escape(&member.name), bytes, AssumedType::File);
            Ok(())
        })?;
        scan.absorb(other, None);
    }
    if tarred {
        let mut other = Scan::default();
        tar(source, limits, &mut other)?;
        scan.absorb(other, None);
    }
    Ok(())
}

/// True where a zip archive at the end of the file is a part of it that is scanned by itself, such as optimizer state saved by
/// torch.
fn is_part(ending: &Ending, source: &SourceRef, scan: &Scan) -> bool {
    let mut head = [0; 4];
    let begins = ending.begins.filter(|&at| source.read_at(at, &mut head).is_ok() && begins_as_zip(&head));
    let looked_into = scan.inner.iter().filter(|inner| inner.assumed_type != AssumedType::Pickle);
    looked_into.filter_map(|inner| inner.source.within()).any(|part| {
        std::ptr::addr_eq(Arc::as_ptr(part.source), Arc::as_ptr(source))
            && !part.encoded
            && begins == Some(part.offset)
            && ending.at < part.offset.saturating_add(part.len)
    })
}

/// Checks the extension of the name against the content.
fn extension(head: &[u8], name: Option<&Path>, known_format: Option<&'static str>, scan: &mut Scan) {
    let extension = name.and_then(Path::extension).and_then(|extension| extension.to_str()).unwrap_or("");
    // Windows ignores blanks at the end.
    let extension = extension.trim_end_matches(' ').to_ascii_lowercase();
    // An empty file runs nothing: `__init__.py`.
    if !head.is_empty() {
        program(name, &extension, scan);
    }
    if let (Some(known_format), Some(name)) = (known_format, name)
        && promises_pickle(name, &extension)
        && !matches!(known_format, "torch" | "pickle" | "paddle" | "zip" | "tar")
    {
        let text =
            format!("the name suggests a pickle or a torch archive, but the content is {known_format}");
        scan.push("name-of-a-pickle", text);
    }
    let known = Beginning::of(head);
    let is_pickle = known.is_some_and(|known| known.what == "a pickle")
        || known_format == Some("pickle")
        || (known_format == Some("paddle") && !scan.imports.is_empty());
    let holds_objects = is_pickle || known.is_some_and(|known| known.class == Class::Objects);
    let data_only = DATA_ONLY.contains(&extension.as_str());
    if (data_only && holds_objects) || (NO_PICKLE.contains(&extension.as_str()) && is_pickle) {
        let what = if is_pickle { "a pickle" } else { known.map_or("a pickle", |known| known.what) };
        scan.push("extension-differs", format!("the name ends with .{extension}, but the content is {what}"));
    }
}

/// Reports a file with the name of a program, for any content: a text table may be a program, too.
fn program(name: Option<&Path>, extension: &str, scan: &mut Scan) {
    let file =
        name.and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or("").to_ascii_lowercase();
    // Windows ignores dots and blanks at the end.
    let named = file.trim_end_matches(['.', ' ']);
    // Libraries may end with a version.
    let runs = PROGRAMS.contains(&extension)
        || named.rsplit_once('.').is_some_and(|(_, extension)| PROGRAMS.contains(&extension))
        || named.contains(".so.");
    if runs
        && !scan
            .findings
            .iter()
            .any(|finding| finding.code == FindingCode::ProgramFile && finding.member.is_none())
    {
        scan.push(
            "program-file",
            format!("by its name a script, library or executable, which is not read: {}", escape(named)),
        );
    }
}

/// True for a name that suggests a pickle, or a torch archive.
fn promises_pickle(name: &Path, extension: &str) -> bool {
    let stem = name.file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
    matches!(extension, "pt" | "pth" | "pkl" | "pickle")
        || (extension == "bin" && stem.starts_with("pytorch_model"))
}

/// Returns the offset of an HDF5 file after other bytes.
fn behind(source: &SourceRef) -> Result<Option<u64>> {
    let mut at = USER_BLOCK;
    while at.saturating_add(HDF5.len() as u64) <= source.len() {
        if read_vec(&**source, at, HDF5.len() as u64)? == HDF5 {
            return Ok(Some(at));
        }
        at = at.saturating_mul(2);
    }
    Ok(None)
}

/// Scans foreign bytes before an HDF5 file.
fn front(source: &SourceRef, len: u64, scan: &mut Scan) -> Result<()> {
    let bytes = read_vec(&**source, 0, len.min(FRONT))?;
    if len <= FRONT && bytes.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    match Beginning::of(&bytes) {
        Some(known) => scan.push_at("two-formats", 0, format!("the file is hdf5 and also {}", known.what)),
        None => scan.push_at("unknown-content", 0, format!("{len} unrecognized bytes before the HDF5 file")),
    }
    Ok(())
}

fn ends_as_parquet(source: &SourceRef) -> Result<bool> {
    let Some(at) = source.len().checked_sub(8).filter(|&at| at >= 4) else { return Ok(false) };
    let tail = read_vec(&**source, at, 8)?;
    let [a, b, c, d, mark @ ..] = tail.as_slice() else { return Ok(false) };
    let footer = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    Ok(mark == b"PAR1" && footer > 0 && footer <= at)
}

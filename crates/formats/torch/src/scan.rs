//! Scan of a file for code that torch would run on load.

use super::header_members::is_header_member;
use super::read;
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::text::{escape, first_and_more};
use weighbridge_core::{ErrorCode, FindingCode, HeldMemory};
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::{RangeSource, Source, SourceRef, read_vec};
use weighbridge_pickle::{Cost, ImportVerdict};
use weighbridge_scan::{AssumedType, archive, found, is_tar, pickles, tar};
use weighbridge_torch_archive::{self as torch, is_legacy};
use weighbridge_zip::Unpacked;

/// Number of pickles in the legacy form.
const PICKLES: usize = 5;

/// Scans one file.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut head = [0; 512];
    let count = usize::try_from(source.len()).unwrap_or(head.len()).min(head.len());
    source.read_at(0, &mut head[..count])?;
    let mut scan = Scan::default();
    if is_tar(&head[..count]) {
        tar(source, &options.limits, &mut scan)?;
        // torch tries tar before its legacy form; other loaders use another order.
        if !is_legacy(&head[..count]) && !head.starts_with(b"PK") {
            return Ok(scan);
        }
        scan.push_at("two-formats", 0, "the file is both a tar archive and another torch format");
    }
    if is_legacy(&head[..count]) {
        legacy(source, options, &mut scan)?;
    } else {
        zipped(source, options, &mut scan)?;
    }
    // A file that cannot be opened may hold more. Data after an archive and a missing directory are already reported.
    match read::open(source, &OpenOptions { lenient: true, ..options.clone() }) {
        Ok(checkpoint) => scan.judge_names(&checkpoint),
        Err(error)
            if error.code() == ErrorCode::ZipNoEnd
                && scan.findings.iter().any(|finding| finding.code == FindingCode::ZipDamaged) => {}
        Err(error) => scan.push_error(error)?,
    }
    Ok(scan)
}

/// Scans the consecutive pickles of the legacy form. Raw storage data follows them.
fn legacy(source: &SourceRef, options: &OpenOptions, scan: &mut Scan) -> Result<()> {
    if pickles(source, 0, PICKLES, true, &options.limits, scan).is_none() {
        return Ok(());
    }
    match torch::read(source, &options.limits) {
        Ok(saved) => {
            if let Some(end) = saved.legacy_end().filter(|&end| end < source.len()) {
                let text = format!("{} bytes follow the last storage", source.len() - end);
                scan.push_at("trailing-bytes", end, text);
                let rest = RangeSource::new(source.clone(), end, source.len() - end)?;
                scan.look_into("(after the last storage)", Arc::new(rest), AssumedType::Numbers);
            }
        }
        Err(error) if error.kind() == Kind::Io => return Err(error),
        // Opening reports the error.
        Err(_) => {}
    }
    Ok(())
}

/// Scans every member of an archive.
pub(super) fn zipped(source: &SourceRef, options: &OpenOptions, scan: &mut Scan) -> Result<()> {
    let inner = |name: &str| name.split_once('/').map_or(String::new(), |(_, inner)| inner.to_owned());
    let is_numbers = |name: &str| {
        let inner = inner(name);
        inner.starts_with("data/") || (inner.starts_with("constants/") && !inner.ends_with(".pkl"))
    };
    let mut code = Vec::new();
    let mut classes =
        Classes { known: HashSet::new(), held: HeldMemory::of(&options.limits.budget_of(source)) };
    archive(source, &options.limits, scan, &is_numbers, &mut |member, bytes, scan| {
        let name = member.name.as_str();
        let own = inner(name);
        // Code members have a pickle of source positions beside them.
        if name.ends_with(".pkl") || name.ends_with(".debug_pkl") {
            let bytes: SourceRef =
                Arc::new(Unpacked { bytes, archive: source.clone(), member: member.clone() });
            let mut pickled = Scan::default();
            pickles(&bytes, 0, 1, false, &options.limits, &mut pickled);
            scan.absorb(pickled, Some(&escape(name)));
        } else if name.ends_with(".py") {
            code.push(escape(name));
            classes.read(&own, &*bytes);
        } else if is_numbers(name) {
            scan.look_into(escape(name), bytes, AssumedType::Numbers);
        } else if !is_header_member(&own, &bytes)? {
            scan.look_into(escape(name), bytes, AssumedType::File);
        }
        Ok(())
    })?;
    classes.mark(scan);
    if !code.is_empty() {
        let text =
            format!("TorchScript code that can run when the file is loaded: {}", first_and_more(code, 1));
        // First, as the objects of its classes are no other danger.
        scan.findings.insert(0, found("torchscript-code", text));
    }
    Ok(())
}

/// TorchScript classes that the code of an archive defines. Its pickles make objects of them without importing anything from
/// Python.
struct Classes {
    /// Module and name of each class.
    known: HashSet<(String, String)>,
    /// Memory of the names. Classes beyond the budget stay unknown.
    held: HeldMemory,
}

impl Classes {
    /// Collects the classes of a code member, such as `code/__torch__/nets.py`.
    fn read(&mut self, member: &str, bytes: &dyn Source) {
        let module = member.strip_prefix("code/").and_then(|path| path.strip_suffix(".py"));
        let Some(module) = module.filter(|module| module.split('/').next() == Some("__torch__")) else {
            return;
        };
        let mut own = HeldMemory::of(self.held.budget());
        if own.take(bytes.len()).and_then(|()| own.budget().take_work(bytes.len())).is_err() {
            return;
        }
        // Classes of an unreadable member stay unknown.
        let Ok(code) = read_vec(bytes, 0, bytes.len()) else { return };
        let module = module.replace('/', ".");
        for line in code.split(|&byte| byte == b'\n') {
            let name = line.strip_prefix(b"class ").and_then(|rest| rest.split(|&byte| byte == b'(').next());
            let name = name.and_then(|name| std::str::from_utf8(name).ok());
            let is_name = |name: &&str| name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
            if let Some(name) = name.filter(|name| !name.is_empty()).filter(is_name)
                && self.held.take(Cost::ITEM + (module.len() + name.len()) as u64).is_ok()
            {
                self.known.insert((module.clone(), name.to_owned()));
            }
        }
    }

    /// Marks the imports that are such classes.
    fn mark(&self, scan: &mut Scan) {
        let mut places = HashSet::new();
        for import in &mut scan.imports {
            let name = (import.module.clone(), import.name.clone());
            if import.judgement == ImportVerdict::Unknown && self.known.contains(&name) {
                import.judgement = ImportVerdict::Defined("a TorchScript class that the archive defines");
                places.insert((import.member.clone(), import.offset));
            }
        }
        for finding in scan.findings.iter_mut().filter(|finding| finding.code == FindingCode::UnknownImport) {
            let place = finding.offset.map(|offset| (finding.member.clone(), offset));
            if place.is_some_and(|place| places.contains(&place)) {
                let name = finding.text.split('`').nth(1).unwrap_or_default();
                let text = format!(
                    "the pickle makes an object of the TorchScript class `{name}`, whose code is in the archive"
                );
                let plain = found("torchscript-code", text);
                (finding.code, finding.severity, finding.text) = (plain.code, plain.severity, plain.text);
            }
        }
    }
}

//! What would run if torch opened a file with all that a pickle may do.

use super::facts::is_fact;
use super::read;
use crate::containers::torch::{self, is_legacy};
use crate::containers::zip::{Member, Method};
use crate::error::{Kind, Result};
use crate::formats::{OpenOptions, Scan};
use crate::scan::{TakenFor, archive, is_tar, pickles, tar};
use crate::source::{RangeSource, Source, SourceRef, Within};
use crate::text::{counted, escape};
use std::sync::Arc;

/// Pickles of the legacy form.
const PICKLES: usize = 5;
/// Looks through one file.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut head = [0; 512];
    let count = usize::try_from(source.len()).unwrap_or(head.len()).min(head.len());
    source.read_at(0, &mut head[..count])?;
    let mut scan = Scan::default();
    if is_tar(&head[..count]) {
        tar(source, &options.limits, &mut scan)?;
        // torch takes a file for a tar archive before it takes it for its legacy form; others take it otherwise.
        if !is_legacy(&head[..count]) && !head.starts_with(b"PK") {
            return Ok(scan);
        }
        scan.push_at("two-formats", 0, "the file is a tar archive, and of another form of torch as well");
    }
    if is_legacy(&head[..count]) {
        legacy(source, options, &mut scan)?;
    } else {
        zipped(source, options, &mut scan)?;
    }
    // What cannot be opened may hold more than was seen. What follows an archive was told with it.
    match read::open(source, &OpenOptions { lenient: true, ..options.clone() }) {
        Ok(checkpoint) => scan.judge_names(&checkpoint),
        Err(error) => scan.push_error(error)?,
    }
    Ok(scan)
}

/// The bytes of a member, which know what they are packed in: its objects may take so many times that.
#[derive(Debug)]
struct Unpacked {
    bytes: SourceRef,
    archive: SourceRef,
    member: Member,
}

impl Source for Unpacked {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.bytes.read_at(offset, buffer)
    }

    fn label(&self) -> &str {
        self.bytes.label()
    }

    fn as_slice(&self) -> Option<&[u8]> {
        self.bytes.as_slice()
    }

    fn is_sequential(&self) -> bool {
        self.bytes.is_sequential()
    }

    fn within(&self) -> Option<Within<'_>> {
        let (offset, len) = (self.member.data_offset, self.member.compressed_len);
        Some(Within { source: &self.archive, offset, len, encoded: self.member.method == Method::Deflated })
    }
}

/// The pickles of the legacy form, one behind the other. Raw numbers follow.
fn legacy(source: &SourceRef, options: &OpenOptions, scan: &mut Scan) -> Result<()> {
    if pickles(source, 0, PICKLES, true, &options.limits, scan).is_none() {
        return Ok(());
    }
    match torch::read(source, &options.limits) {
        Ok(saved) => {
            if let Some(end) = saved.legacy_end().filter(|&end| end < source.len()) {
                let text = format!("{} bytes follow behind the last storage", source.len() - end);
                scan.push_at("trailing-bytes", end, text);
                let rest = RangeSource::new(source.clone(), end, source.len() - end)?;
                scan.look_into("(behind the last storage)", Arc::new(rest), TakenFor::Numbers);
            }
        }
        Err(error) if error.kind() == Kind::Io => return Err(error),
        // Opening tells it.
        Err(_) => {}
    }
    Ok(())
}

/// Every member of an archive.
fn zipped(source: &SourceRef, options: &OpenOptions, scan: &mut Scan) -> Result<()> {
    let inner = |name: &str| name.split_once('/').map_or(String::new(), |(_, inner)| inner.to_owned());
    let is_numbers = |name: &str| {
        let inner = inner(name);
        inner.starts_with("data/") || (inner.starts_with("constants/") && !inner.ends_with(".pkl"))
    };
    let mut code = Vec::new();
    archive(source, &options.limits, scan, &is_numbers, &mut |member, bytes, scan| {
        let name = member.name.as_str();
        let own = inner(name);
        if name.ends_with(".pkl") {
            let bytes: SourceRef =
                Arc::new(Unpacked { bytes, archive: source.clone(), member: member.clone() });
            let mut pickled = Scan::default();
            pickles(&bytes, 0, 1, false, &options.limits, &mut pickled);
            scan.absorb(pickled, Some(&escape(name)));
        } else if own.starts_with("code/") || name.ends_with(".py") {
            code.push(escape(name));
        } else if is_numbers(name) {
            scan.look_into(escape(name), bytes, TakenFor::Numbers);
        } else if !is_fact(&own, &bytes)? {
            scan.look_into(escape(name), bytes, TakenFor::File);
        }
        Ok(())
    })?;
    if let Some(first) = code.first() {
        let members = counted(code.len(), "member holds", "members hold");
        let text = format!("{members} code that would run, such as {first}");
        scan.push("torchscript-code", text);
    }
    Ok(())
}

//! Outline of an archive: the zip structures, and the header of each array.

use super::{METADATA, SUFFIX};
use crate::npy;
use weighbridge_core::check::Outline;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape;
use weighbridge_io::source::SourceRef;
use weighbridge_zip::{self as zip, Method};

/// Name of the bytes of other members in outlines.
const UNREAD: &str = "member that is not a tensor";

pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let (mut outline, members) = zip::outline(source, limits)?;
    for member in &members {
        let (at, len) = (member.data_offset, member.compressed_len);
        let stem = member.name.strip_suffix(SUFFIX);
        match (stem, member.method) {
            (Some(METADATA), _) => outline.header(at, len, "metadata"),
            (Some(_), Method::Stored) => {
                // An invalid array is reported where it is opened.
                if npy::array_outline(&mut outline, source, at, len, limits).is_err() {
                    outline.unread(at, len, UNREAD);
                }
            }
            (Some(_), Method::Deflated) => {
                // The inflated header is checked; the bytes are those of the deflated member.
                let mut inner = Outline::default();
                let found = npy::array_outline(&mut inner, &member.open(source)?, 0, member.len, limits);
                if found.is_err() {
                    outline.unread(at, len, UNREAD);
                } else {
                    let hidden =
                        inner.parts.iter().find(|part| part.used == weighbridge_core::check::Use::Unknown);
                    outline.findings.extend(hidden.map(|part| {
                        let text =
                            format!("{} bytes hidden as {} of {}", part.len, part.what, escape(&member.name));
                        weighbridge_core::finding::Finding::unchecked("hidden-bytes", text).at(at)
                    }));
                    let name = escape(&member.name);
                    outline.findings.extend(inner.findings.into_iter().map(|mut finding| {
                        finding.offset = Some(at);
                        finding.text = weighbridge_core::phrase![format_args!("{name}: "), finding.text];
                        finding
                    }));
                }
            }
            // Opening notes the skipped member.
            _ => outline.unread(at, len, UNREAD),
        }
    }
    Ok(outline)
}

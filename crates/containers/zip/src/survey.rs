//! Survey of an archive that continues after faults: the content that each kind of reader would see.
//!
//! [`read_directory`](super::read_directory) refuses contradictory archives. A scan for code must continue, as some
//! programs accept them. The survey reports every fault and lists every member that any reader could find: through
//! the directory that most readers find, through directories that others find, and through local headers that the
//! directory does not name.

mod central;
mod ends;
mod local;

use ends::Reading;
pub use ends::readings;

use super::read::{Member, le32};
use super::salvage::salvage;
use super::{CENTRAL, CENTRAL_LEN, DEFLATE_RATIO, DESCRIPTOR, DESCRIPTOR_LEN, LOCAL};
use std::collections::{HashMap, HashSet};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Listed faults of one kind.
const MAX_ODDITIES: usize = 20;

/// Fault or ambiguity of an archive that common writers do not produce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oddity {
    /// Kebab-case code that begins with `zip-`, or `member-link`.
    pub code: &'static str,
    /// Offset in the archive, in bytes.
    pub at: u64,
    /// Description; names from the file are escaped.
    pub text: String,
}

/// Member that some reader finds.
#[derive(Debug, Clone)]
pub struct Found {
    /// The member; its range was checked against the archive.
    pub member: Member,
    /// True where the data can be read: not encrypted, of a known length.
    pub readable: bool,
}

/// Result of a survey.
#[derive(Debug, Default)]
pub struct Survey {
    /// Members in the order of the directory, then members that it does not name.
    pub members: Vec<Found>,
    /// Oddities in the order of their detection.
    pub oddities: Vec<Oddity>,
    dropped: HashMap<&'static str, u64>,
}

impl Survey {
    fn odd(&mut self, code: &'static str, at: u64, text: impl Into<String>) {
        if self.oddities.iter().filter(|odd| odd.code == code).count() < MAX_ODDITIES {
            self.oddities.push(Oddity { code, at, text: text.into() });
        } else {
            *self.dropped.entry(code).or_default() += 1;
        }
    }

    /// Reports the numbers of faults that are not listed.
    fn finish(mut self) -> Self {
        let mut dropped: Vec<_> = self.dropped.drain().collect();
        dropped.sort_unstable();
        for (code, count) in dropped {
            self.oddities.push(Oddity { code, at: 0, text: format!("{count} more faults of this kind") });
        }
        self
    }

    /// Finds the lengths of members that only their descriptors have, where the data match the checksum.
    fn find_lengths(&mut self, source: &SourceRef, limits: &Limits) -> Result<()> {
        if self.members.iter().all(|found| found.readable) {
            return Ok(());
        }
        let intact = salvage(source, limits)?.members.into_iter();
        let mut intact: HashMap<u64, Member> = intact.map(|member| (member.header_offset, member)).collect();
        for found in self.members.iter_mut().filter(|found| !found.readable) {
            if let Some(member) = intact.remove(&found.member.header_offset)
                && ends_at_a_header(source, &member)?
            {
                *found = Found { member, readable: true };
            }
        }
        Ok(())
    }

    /// Reports duplicate names, and names that are equal on some systems.
    fn judge_names(&mut self) {
        let names: Vec<(String, u64)> = self
            .members
            .iter()
            .map(|found| (found.member.name.clone(), found.member.header_offset))
            .collect();
        let (mut exact, mut folded) = (HashMap::new(), HashMap::<String, &str>::new());
        for (name, at) in &names {
            let shown = weighbridge_core::text::escape(name);
            if exact.insert(name.as_str(), *at).is_some() {
                self.odd("zip-duplicate-name", *at, format!("two members have the name `{shown}`"));
                continue;
            }
            match folded.insert(fold(name), name) {
                Some(other) if other != name => {
                    let other = weighbridge_core::text::escape(other);
                    self.odd(
                        "zip-similar-names",
                        *at,
                        format!("`{shown}` and `{other}` are the same name on some systems"),
                    );
                }
                _ => {}
            }
        }
    }

    /// Reports members with impossible lengths.
    fn judge_lengths(&mut self) {
        let claims: Vec<_> = self
            .members
            .iter()
            .map(|found| &found.member)
            .map(|member| (member.len, member.compressed_len, member.header_offset))
            .collect();
        for (len, packed, at) in claims {
            if len / DEFLATE_RATIO > packed {
                self.odd(
                    "zip-bomb",
                    at,
                    format!("a member ({packed} bytes) claims to unpack to {len} bytes"),
                );
            }
        }
    }
}

/// True where a local header, the directory or the end of the archive follows the descriptor of a member. Data may look like a
/// descriptor, too.
fn ends_at_a_header(source: &SourceRef, member: &Member) -> Result<bool> {
    let at = member.data_offset.saturating_add(member.compressed_len);
    let tail = read_vec(&**source, at, (DESCRIPTOR_LEN + 4).min(source.len().saturating_sub(at)))?;
    let mark = if tail.starts_with(&DESCRIPTOR) { DESCRIPTOR.len() } else { 0 };
    // The lengths have four or eight bytes.
    let short = tail
        .get(mark + 4..mark + 8)
        .is_some_and(|_| u64::from(le32(&tail, mark + 4)) == member.compressed_len);
    Ok(match tail.get(mark + if short { 12 } else { 20 }..) {
        // The archive may end within the next signature.
        Some(rest) => [LOCAL, CENTRAL].iter().any(|next| rest.starts_with(next) || next.starts_with(rest)),
        None => false,
    })
}

/// The name on systems that ignore case and trailing dots and spaces.
fn fold(name: &str) -> String {
    let parts = name.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".");
    parts.map(|part| part.trim_end_matches(['.', ' ']).to_lowercase()).collect::<Vec<_>>().join("/")
}

/// Adds the members of directories other than the one that most programs find, reported as `message`. Together these
/// directories have no more than `available` bytes, as well-formed ones do not share bytes.
fn other_directories(
    source: &SourceRef,
    others: &[Reading],
    message: &str,
    mut available: u64,
    limits: &Limits,
    survey: &mut Survey,
) -> Result<()> {
    for other in others {
        let text = format!("{message}, at {}", other.start);
        survey.odd("zip-end-records", other.end, text);
        let Some(rest) = available.checked_sub(other.size) else {
            survey.odd("zip-end-records", other.start, "this directory was not scanned");
            continue;
        };
        available = rest;
        let known = survey.members.len();
        let left = limits.tensors.saturating_sub(known as u64);
        Limits::check("archive members", "tensors", other.size / CENTRAL_LEN, left)?;
        let directory = central::directory_at(source, other, survey)?;
        local::compare(source, directory, limits, survey)?;
        let mut seen = HashSet::new();
        survey.members.retain(|found| {
            let Member { header_offset, method, len, compressed_len, .. } = found.member;
            seen.insert((
                header_offset,
                found.member.name.clone(),
                method,
                len,
                compressed_len,
                found.readable,
            ))
        });
    }
    Ok(())
}

/// Surveys the archive `source` as far as any reader could read it. Reads the directory, local headers and bytes
/// between members; the data of members only where there is no usable directory.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Limit`] for more members than `limits.tensors`. Damage is an oddity.
pub fn survey(source: &SourceRef, limits: &Limits) -> Result<Survey> {
    let mut survey = Survey::default();
    let mut others = readings(source)?;
    match central::directory(source, !others.is_empty(), limits, &mut survey)? {
        Some(directory) => {
            others.retain(|other| (other.start, other.shift) != (directory.start, directory.shift));
            let size = directory.end - directory.start;
            local::compare(source, directory, limits, &mut survey)?;
            let message = "some programs find a different directory";
            other_directories(
                source,
                &others,
                message,
                source.len().saturating_sub(size),
                limits,
                &mut survey,
            )?;
        }
        None if !others.is_empty() => {
            let message = "most programs find no usable directory, but some find one";
            other_directories(source, &others, message, source.len(), limits, &mut survey)?;
        }
        None => {
            local::walk(source, limits, &mut survey)?;
            survey.find_lengths(source, limits)?;
        }
    }
    survey.judge_names();
    survey.judge_lengths();
    Ok(survey.finish())
}

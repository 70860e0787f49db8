//! A look at an archive that does not stop at the first fault: what each kind of reader would see.
//!
//! [`read_directory`](super::read_directory) refuses what is not the same in all places. Who looks for code
//! must go on: some program accepts the archive all the same. So here every fault is told, and every member
//! that any reader could find is listed: by the directory that most readers find, by those that others find, and by
//! local headers that the directory does not name.

mod central;
mod ends;
mod local;

use ends::Reading;
pub use ends::readings;

use super::read::Member;
use super::{CENTRAL_LEN, DEFLATE_RATIO};
use std::collections::{HashMap, HashSet};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::SourceRef;

/// Faults of one kind that are told.
const MOST: usize = 20;

/// Something about an archive that honest writers do not do, or that keeps it from being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oddity {
    /// What it is, as a code in kebab-case that begins with `zip-` or is `member-link`.
    pub code: &'static str,
    /// Where it stands in the archive, in bytes.
    pub at: u64,
    /// In words; names from the file are escaped.
    pub text: String,
}

/// A member as some reader finds it.
#[derive(Debug, Clone)]
pub struct Found {
    /// The member; its place was held against the archive.
    pub member: Member,
    /// True where the data can be read: not encrypted, of a known length.
    pub readable: bool,
}

/// What is known of an archive.
#[derive(Debug, Default)]
pub struct Survey {
    /// The members, in the order of the directory; those that it does not name follow.
    pub members: Vec<Found>,
    /// What is odd, in the order in which it was met.
    pub oddities: Vec<Oddity>,
    dropped: HashMap<&'static str, u64>,
}

impl Survey {
    fn odd(&mut self, code: &'static str, at: u64, text: impl Into<String>) {
        if self.oddities.iter().filter(|odd| odd.code == code).count() < MOST {
            self.oddities.push(Oddity { code, at, text: text.into() });
        } else {
            *self.dropped.entry(code).or_default() += 1;
        }
    }

    /// Tells how many faults were not listed.
    fn finish(mut self) -> Self {
        let mut dropped: Vec<_> = self.dropped.drain().collect();
        dropped.sort_unstable();
        for (code, count) in dropped {
            self.oddities.push(Oddity { code, at: 0, text: format!("and {count} more of this kind") });
        }
        self
    }

    /// Members that share a name, or names that some systems take for one.
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
                self.odd("zip-duplicate-name", *at, format!("there are two members of the name {shown}"));
                continue;
            }
            match folded.insert(fold(name), name) {
                Some(other) if other != name => {
                    let other = weighbridge_core::text::escape(other);
                    self.odd(
                        "zip-similar-names",
                        *at,
                        format!("{shown} and {other} are one name to some systems"),
                    );
                }
                _ => {}
            }
        }
    }

    /// Members that claim to be longer than they can be.
    fn judge_lengths(&mut self) {
        let claims: Vec<_> = self
            .members
            .iter()
            .map(|found| &found.member)
            .map(|member| (member.len, member.compressed_len, member.header_offset))
            .collect();
        for (len, packed, at) in claims {
            if len / DEFLATE_RATIO > packed {
                self.odd("zip-bomb", at, format!("{packed} bytes claim to unpack to {len}"));
            }
        }
    }
}

/// The name as systems see it that know no upper and lower case, and no dots and spaces at the end.
fn fold(name: &str) -> String {
    let parts = name.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".");
    parts.map(|part| part.trim_end_matches(['.', ' ']).to_lowercase()).collect::<Vec<_>>().join("/")
}

/// Members of directories that are not the one that most programs find, of which `what` is said; together they have no more
/// than `room` bytes, as honest ones do not share theirs.
fn other_directories(
    source: &SourceRef,
    others: &[Reading],
    what: &str,
    mut room: u64,
    limits: &Limits,
    survey: &mut Survey,
) -> Result<()> {
    for other in others {
        let text = format!("{what}, at {}", other.start);
        survey.odd("zip-end-records", other.end, text);
        let Some(rest) = room.checked_sub(other.size) else {
            survey.odd("zip-end-records", other.start, "this directory was not looked at");
            continue;
        };
        room = rest;
        let known = survey.members.len();
        let left = limits.tensors.saturating_sub(known as u64);
        Limits::check("archive members", "tensors", other.size / CENTRAL_LEN, left)?;
        let directory = central::directory_at(source, other, survey)?;
        local::compare(source, directory, limits, survey)?;
        let mut place = HashSet::new();
        survey.members.retain(|found| {
            let Member { header_offset, method, len, compressed_len, .. } = found.member;
            place.insert((
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

/// Looks at the archive `source` as far as any reader could. Reads the directory, local headers and what lies
/// between members; the data of members only where there is no directory to be used.
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
            let what = "some programs find the directory of another archive";
            other_directories(source, &others, what, source.len().saturating_sub(size), limits, &mut survey)?;
        }
        None if !others.is_empty() => {
            let what = "most programs find no directory that they can use, and some find one";
            other_directories(source, &others, what, source.len(), limits, &mut survey)?;
        }
        None => local::walk(source, limits, &mut survey)?,
    }
    survey.judge_names();
    survey.judge_lengths();
    Ok(survey.finish())
}

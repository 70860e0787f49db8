//! The walk through a file, from the root to each object.

use super::beside::Beside;
use super::broken::Broken;
use super::file::{Address, File};
use super::header::{About, Header};
use super::heap::Heaps;
use super::layout::Layout;
use super::links::{self, Target};
use super::{attributes, mapped, open};
use crate::{Attributes, Contents, Dataset, Item, Leads, Link, NamedType, Problem, Types};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::checkpoint::Value;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape;
use weighbridge_io::source::SourceRef;

/// Estimated memory of a problem with its text, in bytes.
const PROBLEM: u64 = 512;

/// Lists what is in an HDF5 file, without reading the elements of datasets.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], code `hdf5-magic`, where it is no HDF5 file; other codes where the
/// superblock or the header of the root group cannot be read; [`weighbridge_core::Kind::Limit`] for more datasets than
/// `limits.tensors`; [`weighbridge_core::Kind::Io`]. What is bad further down is a [`Problem`], as is each part of a group.
pub fn read(source: &SourceRef, limits: &Limits) -> Result<Contents> {
    let place = open::find(source, limits, None)?;
    read_from(&place).map_err(|error| error.in_file(source.label()))
}

/// As [`read`]; the virtual datasets are those of the files of `beside`, which [`Dataset::entry`] opens.
///
/// # Errors
/// As [`read`].
pub fn read_beside(source: &SourceRef, beside: Beside, limits: &Limits) -> Result<Contents> {
    let place = open::find(source, limits, Some(Arc::new(beside)))?;
    read_from(&place).map_err(|error| error.in_file(source.label()))
}

fn read_from(place: &Arc<Address>) -> Result<Contents> {
    listed(place, place.open())
}

/// Lists what `file` holds.
///
/// # Errors
/// Those of [`read`].
pub(super) fn listed(place: &Arc<Address>, file: File) -> Result<Contents> {
    let (block, len) = (&place.superblock, place.source.len());
    let root = block.root;
    let mut walk = Walk {
        file,
        heaps: Heaps::default(),
        contents: Contents {
            superblock: block.version,
            user_block: block.at,
            end: place.stated_end(),
            is_open: open::is_open(place),
            ..Contents::default()
        },
        path: Trail::default(),
        groups: HashSet::from([root]),
        met: 0,
    };
    if walk.contents.end > len {
        let error = Error::corrupt("truncated", "HDF5: the file is shorter than it says")
            .expected(format_args!("{} bytes", walk.contents.end))
            .found(format_args!("{len} bytes"))
            .hint("the file may be cut short, or was not closed by its writer");
        walk.problem(&[], error)?;
    }
    if let Err(error) = open::check(&walk.file) {
        walk.problem(&[], error)?;
    }
    let mut broken = Broken::default();
    let header = Header::read_parts(&walk.file, root, &mut broken)?;
    let mut problems = Vec::new();
    (walk.contents.attributes, walk.contents.types) = walk.attributes(&header, &mut problems);
    problems.into_iter().try_for_each(|error| walk.problem(&[], error))?;
    let mut open = vec![walk.members(&header, broken)?];
    // The group that was entered last is walked first: so items come group by group.
    while let Some(links) = open.last_mut() {
        let Some(link) = links.next() else {
            open.pop();
            walk.path.pop();
            continue;
        };
        walk.count()?;
        walk.path.push(link.name);
        match link.target.and_then(|target| walk.follow(target)) {
            // Its name stays in the path until its members are walked through.
            Ok(Some(members)) => {
                open.push(members);
                continue;
            }
            Ok(None) => {}
            Err(error) => {
                let path = walk.listed_path()?;
                walk.problem(&path, error)?;
            }
        }
        walk.path.pop();
    }
    walk.lead()?;
    Ok(walk.contents)
}

/// Soft links that are followed one after the other, as the original does.
const MOST_LINKS: usize = 16;

/// Resolves `target` from the group at `group`; `None` after too many soft links.
pub(super) fn resolve(
    group: &[String],
    target: &str,
    soft: &HashMap<Vec<String>, String>,
    limits: &Limits,
) -> Option<Vec<String>> {
    let most = usize::try_from(limits.path_parts).unwrap_or(usize::MAX);
    let parts = |path: &str| -> Vec<String> {
        let parts = path.rsplit('/').filter(|part| !part.is_empty() && *part != ".");
        parts.take(most).map(str::to_owned).collect()
    };
    let mut at = if target.starts_with('/') { Vec::new() } else { group.to_vec() };
    // The parts that are still to come, the next one last.
    let (mut open, mut followed) = (parts(target), 1);
    while let Some(part) = open.pop() {
        at.push(part);
        let Some(target) = soft.get(&at) else { continue };
        followed += 1;
        if followed > MOST_LINKS || open.len() > most {
            return None;
        }
        at.pop();
        if target.starts_with('/') {
            at.clear();
        }
        open.extend(parts(target));
    }
    Some(at)
}

/// The memory that a value takes, in bytes.
fn weight(value: &Value) -> u64 {
    let within = match value {
        Value::Text(text) => text.len() as u64,
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::List(values) => values.iter().map(weight).sum(),
        Value::Map(pairs) => {
            pairs.iter().map(|(name, value)| name.as_bytes().len() as u64 + weight(value)).sum()
        }
        _ => 0,
    };
    within + size_of::<(String, Value)>() as u64
}

/// The members of a group that are still to be listed.
type Members = std::vec::IntoIter<links::Link>;

/// The names from the root to where the walk is.
#[derive(Default)]
struct Trail {
    parts: Vec<String>,
    /// Bytes of all parts together.
    bytes: u64,
}

impl Trail {
    fn push(&mut self, part: String) {
        self.bytes += part.len() as u64;
        self.parts.push(part);
    }

    fn pop(&mut self) {
        self.bytes -= self.parts.pop().map_or(0, |part| part.len() as u64);
    }
}

struct Walk {
    file: File,
    heaps: Heaps,
    contents: Contents,
    path: Trail,
    /// Addresses of the groups that were entered.
    groups: HashSet<u64>,
    /// Objects that were met.
    met: u64,
}

impl Walk {
    fn problem(&mut self, path: &[String], error: Error) -> Result<()> {
        let error = error.in_file(self.file.place.source.label());
        let bytes: usize = path.iter().map(|part| part.len() + size_of::<String>()).sum();
        self.file.place.list(PROBLEM + bytes as u64)?;
        self.contents.problems.push(Problem { path: path.to_vec(), error, members: false });
        Ok(())
    }

    /// The attributes of an object.
    fn attributes(&mut self, header: &Header, problems: &mut Vec<Error>) -> (Attributes, Types) {
        attributes::attributes(&self.file, header, &mut self.heaps, problems)
    }

    fn link(&mut self, target: String, leads: Leads) -> Result<()> {
        let path = self.listed_path()?;
        self.contents.links.push(Link { path, target, leads });
        Ok(())
    }

    /// Finds what the soft links lead to. What leads to a dataset is one more name of it, as a hard link is.
    fn lead(&mut self) -> Result<()> {
        let mut soft = HashMap::new();
        for link in self.contents.links.iter().filter(|link| link.leads == Leads::Nowhere) {
            soft.insert(link.path.clone(), link.target.clone());
        }
        if soft.is_empty() {
            return Ok(());
        }
        let (mut datasets, mut groups) = (HashMap::new(), HashSet::from([Vec::new()]));
        for (number, item) in self.contents.items.iter().enumerate() {
            if item.dataset.is_some() {
                datasets.insert(item.path.clone(), number);
            } else {
                groups.insert(item.path.clone());
            }
            // Groups that say nothing by themselves are not listed.
            for len in (1..item.path.len()).rev() {
                let prefix = &item.path[..len];
                if groups.contains(prefix) {
                    break;
                }
                self.file.place.list(prefix.iter().map(|part| part.len() as u64 + 32).sum())?;
                groups.insert(prefix.to_vec());
            }
        }
        for number in 0..self.contents.links.len() {
            let link = &self.contents.links[number];
            let Some(target) = soft.get(&link.path) else { continue };
            let group = &link.path[..link.path.len().saturating_sub(1)];
            let Some(end) = resolve(group, target, &soft, &self.file.place.limits) else { continue };
            let dataset = datasets.get(&end).copied();
            let leads = match dataset {
                Some(_) => Leads::Dataset,
                None if groups.contains(&end) => Leads::Group,
                None => continue,
            };
            let path = link.path.clone();
            self.contents.links[number].leads = leads;
            let Some(Item { attributes, types, dataset, .. }) =
                dataset.and_then(|at| self.contents.items.get(at))
            else {
                continue;
            };
            let (attributes, types, dataset) = (attributes.clone(), types.clone(), dataset.clone());
            let parts: usize = path.iter().map(|part| part.len() + 32).sum();
            let values: u64 = attributes.iter().map(|(name, value)| name.len() as u64 + weight(value)).sum();
            let held =
                dataset.as_ref().map_or(0, Dataset::held) + values + (parts + size_of::<Item>()) as u64;
            self.file.place.list(held)?;
            self.contents.items.push(Item { path, attributes, types, dataset, is_empty: false });
        }
        Ok(())
    }

    /// Holds one more object against the limits of the whole.
    fn count(&mut self) -> Result<()> {
        Limits::check("objects", "tensors", self.met, self.file.place.limits.tensors)?;
        self.met += 1;
        Ok(())
    }

    /// The path, to be kept: of groups within groups it may be far longer than the last name.
    fn listed_path(&mut self) -> Result<Vec<String>> {
        let Trail { parts, bytes } = &self.path;
        self.file.place.list(bytes + 32 * parts.len() as u64 + size_of::<Item>() as u64)?;
        Ok(parts.clone())
    }

    /// Lists what a link leads to, by the path to it; the members of a group that is to be walked through.
    fn follow(&mut self, target: Target) -> Result<Option<Members>> {
        let limits = &self.file.place.limits;
        Limits::check("parts in a name", "path_parts", self.path.parts.len() as u64, limits.path_parts)?;
        Limits::check("bytes in a name", "name_bytes", self.path.bytes, limits.name_bytes)?;
        let address = match target {
            Target::Hard(address) => address,
            Target::Soft(target) => {
                self.link(target, Leads::Nowhere)?;
                return Ok(None);
            }
            Target::External(file, inner) => {
                return Err(Error::unsupported(
                    "hdf5-external-link",
                    "HDF5: a link to another file is not followed",
                )
                .found(format_args!("{} in {}", escape(&inner), escape(&file)))
                .hint("open that file itself"));
            }
        };
        let mut broken = Broken::default();
        let header = Header::read_parts(&self.file, address, &mut broken)?;
        let is_group =
            [About::SymbolTable, About::LinkInfo, About::Link].into_iter().any(|kind| header.has(kind));
        if !is_group {
            std::mem::take(&mut broken).none()?;
        }
        if is_group && !self.groups.insert(address) {
            self.link(format!("the group at address {address}, listed before"), Leads::Group)?;
            return Ok(None);
        }
        if !is_group && !header.has(About::Dataspace) {
            if header.has(About::Datatype) {
                self.named_type(&header)?;
                return Ok(None);
            }
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: neither a group nor a dataset").at(address));
        }
        let mut problems = Vec::new();
        let (attributes, types) = self.attributes(&header, &mut problems);
        if !problems.is_empty() {
            let path = self.listed_path()?;
            problems.into_iter().try_for_each(|error| self.problem(&path, error))?;
        }
        let dataset = match is_group {
            true => None,
            false => Some(self.dataset(&header)?),
        };
        // A dataset may have many names, and is kept for each.
        self.file.place.list(dataset.as_ref().map_or(0, Dataset::held))?;
        let before = self.contents.problems.len();
        let members = if is_group { Some(self.members(&header, broken)?) } else { None };
        // One whose members are lost is not empty.
        let is_empty = members.as_ref().is_some_and(|members| members.len() == 0)
            && self.contents.problems.len() == before;
        // Further down a group without attributes that leads on says nothing by itself, and its path may be long.
        if dataset.is_some() || !attributes.is_empty() || is_empty || self.path.parts.len() == 1 {
            let path = self.listed_path()?;
            self.contents.items.push(Item { path, attributes, types, dataset, is_empty });
        }
        Ok(members)
    }

    /// A dataset, with the mappings of one that is virtual.
    fn dataset(&mut self, header: &Header) -> Result<Dataset> {
        let mut dataset = Dataset::read(&self.file, header)?;
        let Layout::Virtual(own) = &mut dataset.stored.layout else { return Ok(dataset) };
        let Some(address) = own.address else {
            return if self.file.place.sources.is_some() { Ok(dataset) } else { Err(mapped::refused()) };
        };
        if self.file.place.sources.is_none() {
            // It is a structure of the file, also where nothing is read of it.
            if self.file.record().is_some() {
                let _ = self.heaps.find(&self.file, address, own.object);
            }
            return Err(mapped::refused());
        }
        let block = self.heaps.find(&self.file, address, own.object)?.ok_or_else(|| {
            Error::corrupt("hdf5-corrupt", "HDF5: the mappings of a virtual dataset are not in their heap")
                .at(address)
                .found(format_args!("no object {}", own.object))
        })?;
        self.file.place.list(block.len() as u64)?;
        own.block = block;
        Ok(dataset)
    }

    /// Lists a named type. Its attributes are read all the same: so what they point to is known to be theirs.
    fn named_type(&mut self, header: &Header) -> Result<()> {
        let mut problems = Vec::new();
        let attributes = self.attributes(header, &mut problems).0.len() + problems.len();
        let path = self.listed_path()?;
        self.contents.named_types.push(NamedType { path, attributes });
        Ok(())
    }

    /// The members of a group, to be walked through. What `broken` has of its header, and what cannot be read of its
    /// links, are problems of it.
    fn members(&mut self, header: &Header, mut broken: Broken) -> Result<Members> {
        let links = links::links(&self.file, header, &mut broken)?;
        for error in broken.into_errors() {
            let path = self.listed_path()?;
            self.problem(&path, error)?;
            if let Some(problem) = self.contents.problems.last_mut() {
                problem.members = true;
            }
        }
        Ok(links.into_iter())
    }
}

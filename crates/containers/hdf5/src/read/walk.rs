//! Traversal of a file, from the root group to each object.

use super::broken::Broken;
use super::file::{File, FileContext};
use super::header::{Header, MessageType};
use super::heap::Heaps;
use super::layout::Layout;
use super::links::{self, Target};
use super::sibling_files::SiblingFiles;
use super::{attributes, mapped, open};
use crate::{Attributes, Contents, Dataset, Item, Link, LinkTarget, NamedType, Problem, Types};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::checkpoint::Value;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape;
use weighbridge_io::source::SourceRef;

/// Estimated memory of a problem with its text, in bytes.
const PROBLEM: u64 = 512;

/// Lists the objects of an HDF5 file without reading the elements of datasets.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], code `hdf5-magic`, for other files; other codes where the
/// superblock or the header of the root group cannot be read; [`weighbridge_core::Kind::Limit`] for more datasets than
/// `limits.tensors`; [`weighbridge_core::Kind::Io`]. Damage in other objects, and in parts of a group, is a [`Problem`].
pub fn read(source: &SourceRef, limits: &Limits) -> Result<Contents> {
    let place = open::find(source, limits, None)?;
    read_from(&place).map_err(|error| error.in_file(source.label()))
}

/// As [`read`], with virtual datasets: [`Dataset::entry`] opens their source files from `siblings`.
///
/// # Errors
/// As [`read`].
pub fn read_with_siblings(source: &SourceRef, beside: SiblingFiles, limits: &Limits) -> Result<Contents> {
    let place = open::find(source, limits, Some(Arc::new(beside)))?;
    read_from(&place).map_err(|error| error.in_file(source.label()))
}

fn read_from(place: &Arc<FileContext>) -> Result<Contents> {
    listed(place, place.open())
}

/// Lists the objects of `file`.
///
/// # Errors
/// Those of [`read`].
pub(super) fn listed(place: &Arc<FileContext>, file: File) -> Result<Contents> {
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
        path: CurrentPath::default(),
        groups: HashSet::from([root]),
        visited: 0,
    };
    if walk.contents.end > len {
        let error = Error::corrupt("truncated", "HDF5: the file is shorter than the superblock states")
            .expected(format_args!("{} bytes", walk.contents.end))
            .found(format_args!("{len} bytes"))
            .hint("the download may be incomplete, or the writer did not close the file; get another copy");
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
    // Depth first, so that items are ordered by group.
    while let Some(links) = open.last_mut() {
        let Some(link) = links.next() else {
            open.pop();
            walk.path.pop();
            continue;
        };
        walk.count()?;
        walk.path.push(link.name);
        match link.target.and_then(|target| walk.follow(target)) {
            // Its name stays in the path while its members are listed.
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
    walk.resolve_links()?;
    Ok(walk.contents)
}

/// Maximum number of consecutive soft links, that of the HDF5 library.
const MAX_SOFT_LINKS: usize = 16;

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
    // Remaining parts, the next one last.
    let (mut open, mut followed) = (parts(target), 1);
    while let Some(part) = open.pop() {
        at.push(part);
        let Some(target) = soft.get(&at) else { continue };
        followed += 1;
        if followed > MAX_SOFT_LINKS || open.len() > most {
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

/// Memory of a value, in bytes.
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

/// Members of a group that are not listed yet.
type Members = std::vec::IntoIter<links::Link>;

/// Path from the root to the current object.
#[derive(Default)]
struct CurrentPath {
    parts: Vec<String>,
    /// Total length of the parts in bytes.
    bytes: u64,
}

impl CurrentPath {
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
    path: CurrentPath,
    /// Addresses of visited groups.
    groups: HashSet<u64>,
    /// Number of visited objects.
    visited: u64,
}

impl Walk {
    fn problem(&mut self, path: &[String], error: Error) -> Result<()> {
        let error = error.in_file(self.file.context.source.label());
        let bytes: usize = path.iter().map(|part| part.len() + size_of::<String>()).sum();
        self.file.context.list(PROBLEM + bytes as u64)?;
        self.contents.problems.push(Problem { path: path.to_vec(), error, members: false });
        Ok(())
    }

    /// Reads the attributes of an object.
    fn attributes(&mut self, header: &Header, problems: &mut Vec<Error>) -> (Attributes, Types) {
        attributes::attributes(&self.file, header, &mut self.heaps, problems)
    }

    fn link(&mut self, target: String, leads: LinkTarget) -> Result<()> {
        let path = self.listed_path()?;
        self.contents.links.push(Link { path, target, leads });
        Ok(())
    }

    /// Resolves the soft links. One to a dataset is listed as a further item, like a hard link.
    fn resolve_links(&mut self) -> Result<()> {
        let mut soft = HashMap::new();
        for link in self.contents.links.iter().filter(|link| link.leads == LinkTarget::Missing) {
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
            // Groups without items of their own are added by their paths.
            for len in (1..item.path.len()).rev() {
                let prefix = &item.path[..len];
                if groups.contains(prefix) {
                    break;
                }
                self.file.context.list(prefix.iter().map(|part| part.len() as u64 + 32).sum())?;
                groups.insert(prefix.to_vec());
            }
        }
        for number in 0..self.contents.links.len() {
            let link = &self.contents.links[number];
            let Some(target) = soft.get(&link.path) else { continue };
            let group = &link.path[..link.path.len().saturating_sub(1)];
            let Some(end) = resolve(group, target, &soft, &self.file.context.limits) else { continue };
            let dataset = datasets.get(&end).copied();
            let leads = match dataset {
                Some(_) => LinkTarget::Dataset,
                None if groups.contains(&end) => LinkTarget::Group,
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
            self.file.context.list(held)?;
            self.contents.items.push(Item { path, attributes, types, dataset, is_empty: false });
        }
        Ok(())
    }

    /// Counts an object against the limit.
    fn count(&mut self) -> Result<()> {
        Limits::check("objects", "tensors", self.visited, self.file.context.limits.tensors)?;
        self.visited += 1;
        Ok(())
    }

    /// Returns a copy of the current path; nested groups make it far longer than the last name, so it is budgeted.
    fn listed_path(&mut self) -> Result<Vec<String>> {
        let CurrentPath { parts, bytes } = &self.path;
        self.file.context.list(bytes + 32 * parts.len() as u64 + size_of::<Item>() as u64)?;
        Ok(parts.clone())
    }

    /// Lists the target of a link under the current path. Returns the members of a group that must be visited.
    fn follow(&mut self, target: Target) -> Result<Option<Members>> {
        let limits = &self.file.context.limits;
        Limits::check("parts in a name", "path_parts", self.path.parts.len() as u64, limits.path_parts)?;
        Limits::check("bytes in a name", "name_bytes", self.path.bytes, limits.name_bytes)?;
        let address = match target {
            Target::Hard(address) => address,
            Target::Soft(target) => {
                self.link(target, LinkTarget::Missing)?;
                return Ok(None);
            }
            Target::External(file, inner) => {
                return Err(Error::unsupported(
                    "hdf5-external-link",
                    "HDF5: the external link to another file is not followed",
                )
                .found(format_args!("{} in {}", escape(&inner), escape(&file)))
                .hint("open that file instead"));
            }
        };
        let mut broken = Broken::default();
        let header = Header::read_parts(&self.file, address, &mut broken)?;
        let is_group = [MessageType::SymbolTable, MessageType::LinkInfo, MessageType::Link]
            .into_iter()
            .any(|kind| header.has(kind));
        if !is_group {
            std::mem::take(&mut broken).into_result()?;
        }
        if is_group && !self.groups.insert(address) {
            self.link(format!("the group at address {address}, which is listed already"), LinkTarget::Group)?;
            return Ok(None);
        }
        if !is_group && !header.has(MessageType::Dataspace) {
            if header.has(MessageType::Datatype) {
                self.named_type(&header)?;
                return Ok(None);
            }
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the object is neither a group nor a dataset")
                .at(address));
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
        // A dataset with several names is listed for each of them.
        self.file.context.list(dataset.as_ref().map_or(0, Dataset::held))?;
        let before = self.contents.problems.len();
        let members = if is_group { Some(self.members(&header, broken)?) } else { None };
        // A group with unreadable members is not empty.
        let is_empty = members.as_ref().is_some_and(|members| members.len() == 0)
            && self.contents.problems.len() == before;
        // A deeper group without attributes is implied by its members, and its path may be long.
        if dataset.is_some() || !attributes.is_empty() || is_empty || self.path.parts.len() == 1 {
            let path = self.listed_path()?;
            self.contents.items.push(Item { path, attributes, types, dataset, is_empty });
        }
        Ok(members)
    }

    /// Reads a dataset, with its mappings if it is virtual.
    fn dataset(&mut self, header: &Header) -> Result<Dataset> {
        let mut dataset = Dataset::read(&self.file, header)?;
        let Layout::Virtual(own) = &mut dataset.stored.layout else { return Ok(dataset) };
        let Some(address) = own.address else {
            return if self.file.context.sources.is_some() {
                Ok(dataset)
            } else {
                Err(mapped::not_followed())
            };
        };
        if self.file.context.sources.is_none() {
            // For outlines: the mapping list is a structure of the file.
            if self.file.record().is_some() {
                let _ = self.heaps.find(&self.file, address, own.object);
            }
            return Err(mapped::not_followed());
        }
        let block = self.heaps.find(&self.file, address, own.object)?.ok_or_else(|| {
            Error::corrupt(
                "hdf5-corrupt",
                "HDF5: the global heap does not contain the mappings of the virtual dataset",
            )
            .at(address)
            .found(format_args!("no object {}", own.object))
        })?;
        self.file.context.list(block.len() as u64)?;
        own.block = block;
        Ok(dataset)
    }

    /// Lists a committed datatype. Its attributes are read for their number, and for the heaps that they refer to.
    fn named_type(&mut self, header: &Header) -> Result<()> {
        let mut problems = Vec::new();
        let attributes = self.attributes(header, &mut problems).0.len() + problems.len();
        let path = self.listed_path()?;
        self.contents.named_types.push(NamedType { path, attributes });
        Ok(())
    }

    /// Reads the links of a group. The errors in `broken`, those of its header, and unreadable links become its problems.
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

//! Links of a group: names and targets.

mod dense;
mod table;

pub(super) use dense::dense_attributes;

use super::broken::Broken;
use super::file::File;
use super::header::{Header, MessageType};
use super::types::Padding;
use weighbridge_core::error::{Error, Result};

/// Types of links; those above the last one are user-defined.
const HARD: u8 = 0;
const SOFT: u8 = 1;
const EXTERNAL: u8 = 64;

/// A link; its target is an error where it could not be read.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) target: Result<Target>,
    /// Creation index, where the group stores it.
    order: Option<u64>,
}

impl Link {
    /// Total length of its texts in bytes.
    fn bytes(&self) -> u64 {
        let target = match &self.target {
            Ok(Target::Soft(path)) => path.len(),
            Ok(Target::External(file, path)) => file.len() + path.len(),
            _ => 0,
        };
        (self.name.len() + target) as u64
    }
}

/// Target of a link.
pub(super) enum Target {
    /// FileContext of an object header.
    Hard(u64),
    /// A path in this file.
    Soft(String),
    /// Another file and a path in it.
    External(String, String),
}

/// Reads the readable links of a group, in creation order where the
/// group stores it, else by name. Damaged parts go to `broken`.
///
/// # Errors
/// Those of [`Broken::part`]; [`weighbridge_core::Kind::Limit`] where the links exceed the memory budget.
pub(super) fn links(file: &File, header: &Header, broken: &mut Broken) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    let mut keep = |link: Link| {
        file.context.list(link.bytes() + size_of::<Link>() as u64)?;
        links.push(link);
        Ok(())
    };
    if let Some(message) = header.first(file, MessageType::SymbolTable)? {
        let found = table::links(file, &message, broken, &mut keep);
        broken.part(found)?;
        return Ok(links);
    }
    for message in header.all(MessageType::Link) {
        let Some(payload) = broken.part(header.payload(file, message))? else { continue };
        keep(named(file, &payload))?;
    }
    let found = dense::links(file, header, broken, |bytes| keep(named(file, bytes)));
    broken.part(found)?;
    match links.iter().all(|link| link.order.is_some()) {
        true => links.sort_by_key(|link| link.order),
        false => links.sort_by(|a, b| a.name.cmp(&b.name)),
    }
    Ok(links)
}

/// Parses a link message; an unreadable link has the name `?` and an error as target.
fn named(file: &File, bytes: &[u8]) -> Link {
    parse(file, bytes).unwrap_or_else(|error| Link { name: "?".to_owned(), target: Err(error), order: None })
}

fn parse(file: &File, bytes: &[u8]) -> Result<Link> {
    let mut reader = file.reader(bytes);
    let (version, flags) = (reader.u8()?, reader.u8()?);
    if version != 1 {
        return Err(Error::unsupported(
            "hdf5-unsupported",
            "HDF5: the link message has an unsupported version",
        )
        .found(version));
    }
    let kind = if flags & 8 != 0 { reader.u8()? } else { HARD };
    let order = if flags & 4 != 0 { Some(reader.number(8)?) } else { None };
    // Character set of the name, ASCII or UTF-8: read as UTF-8 in both cases.
    reader.skip(if flags & 16 != 0 { 1 } else { 0 })?;
    let len = reader.number(1 << (flags & 3))?;
    let name = text(reader.take(weighbridge_io::source::to_usize(len)?)?)?;
    let target = match kind {
        HARD => Ok(Target::Hard(reader.offset()?)),
        SOFT => {
            let len = usize::from(reader.u16()?);
            Ok(Target::Soft(text(reader.take(len)?)?))
        }
        EXTERNAL => {
            // A length, version and flags.
            reader.skip(3)?;
            Ok(Target::External(text(reader.text()?)?, text(reader.text()?)?))
        }
        kind if kind > EXTERNAL => {
            let text = "HDF5: the link has a user-defined type";
            Err(Error::unsupported("hdf5-user-link", text).found(format_args!("type {kind}")))
        }
        kind => {
            let text = "HDF5: the link has an unknown type";
            Err(Error::unsupported("hdf5-unsupported", text).found(format_args!("type {kind}")))
        }
    };
    Ok(Link { name, target, order })
}

/// Parses a text without trailing zeros.
fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(Padding::Zeros.trim(bytes).to_vec())
        .map_err(|_| Error::corrupt("hdf5-corrupt", "HDF5: the name or target of a link is not UTF-8"))
}

//! What a group holds: names, and where each leads.

mod dense;
mod table;

pub(super) use dense::dense_attributes;

use super::broken::Broken;
use super::file::File;
use super::header::{About, Header};
use super::types::Padding;
use weighbridge_core::error::{Error, Result};

/// Kinds of links; those above the last one are defined by users.
const HARD: u8 = 0;
const SOFT: u8 = 1;
const EXTERNAL: u8 = 64;

/// A link; or the name under which one could not be read, and why.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) target: Result<Target>,
    /// Its place in the order in which links were made, where the group keeps it.
    order: Option<u64>,
}

impl Link {
    /// Bytes of the texts of it.
    fn bytes(&self) -> u64 {
        let target = match &self.target {
            Ok(Target::Soft(path)) => path.len(),
            Ok(Target::External(file, path)) => file.len() + path.len(),
            _ => 0,
        };
        (self.name.len() + target) as u64
    }
}

/// Where a link leads.
pub(super) enum Target {
    Hard(u64),
    /// A path in this file.
    Soft(String),
    /// Another file and a path in it.
    External(String, String),
}

/// The links of the group of that header, as far as they can be read: in the order in which they were made where the
/// group keeps it, else by name. What is damaged goes to `broken`.
///
/// # Errors
/// Those of [`Broken::part`]; [`weighbridge_core::Kind::Limit`] where they take too much memory.
pub(super) fn links(file: &File, header: &Header, broken: &mut Broken) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    let mut keep = |link: Link| {
        file.place.list(link.bytes() + size_of::<Link>() as u64)?;
        links.push(link);
        Ok(())
    };
    if let Some(message) = header.first(file, About::SymbolTable)? {
        let found = table::links(file, &message, broken, &mut keep);
        broken.part(found)?;
        return Ok(links);
    }
    for message in header.all(About::Link) {
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

/// The link in a link message, also where it cannot be read.
fn named(file: &File, bytes: &[u8]) -> Link {
    parse(file, bytes).unwrap_or_else(|error| Link { name: "?".to_owned(), target: Err(error), order: None })
}

fn parse(file: &File, bytes: &[u8]) -> Result<Link> {
    let mut reader = file.reader(bytes);
    let (version, flags) = (reader.u8()?, reader.u8()?);
    if version != 1 {
        return Err(Error::unsupported("hdf5-unsupported", "HDF5: a link of unknown version").found(version));
    }
    let kind = if flags & 8 != 0 { reader.u8()? } else { HARD };
    let order = if flags & 4 != 0 { Some(reader.number(8)?) } else { None };
    // How the name is encoded: UTF-8 in any case, as ASCII is a part of it.
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
            let text = "HDF5: a link of a kind that its maker defined";
            Err(Error::unsupported("hdf5-user-link", text).found(format_args!("kind {kind}")))
        }
        kind => {
            let text = "HDF5: a link of an unknown kind";
            Err(Error::unsupported("hdf5-unsupported", text).found(format_args!("kind {kind}")))
        }
    };
    Ok(Link { name, target, order })
}

/// A text without the zeros behind it.
fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(Padding::Zeros.trim(bytes).to_vec())
        .map_err(|_| Error::corrupt("hdf5-corrupt", "HDF5: a link with a name that is not UTF-8"))
}

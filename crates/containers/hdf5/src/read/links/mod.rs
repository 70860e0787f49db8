//! What a group holds: names, and where each leads.

mod dense;
mod table;

pub(super) use dense::dense_attributes;

use super::attributes::spend;
use super::file::{File, fault};
use super::header::Header;
use hdf5_reader::messages::{self, link, link::LinkTarget, link_info};
use weighbridge_core::error::{Error, Kind, Result};

/// Parts of one group that cannot be read are told one by one up to this number, then counted.
const TOLD: usize = 16;

/// The kind of links to other files; kinds above it are defined by users.
const EXTERNAL_LINK: u8 = 64;

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

/// What of a group cannot be read, part by part: a leaf of its tree, a block of its heap, a name.
#[derive(Default)]
pub(super) struct Broken {
    errors: Vec<Error>,
    more: u64,
}

impl Broken {
    /// Notes the error of a part that is damaged: the others are read all the same.
    ///
    /// # Errors
    /// The error, where it says anything else: that a limit is reached, that the file cannot be read.
    pub(super) fn part<T>(&mut self, part: Result<T>) -> Result<Option<T>> {
        match part {
            Ok(part) => return Ok(Some(part)),
            Err(error) if error.kind() != Kind::Corrupt => return Err(error),
            Err(error) if self.errors.len() < TOLD => self.errors.push(error),
            Err(_) => self.more += 1,
        }
        Ok(None)
    }

    /// The first of them.
    pub(super) fn first(self) -> Option<Error> {
        self.errors.into_iter().next()
    }

    /// One more of the kind that was told last.
    fn again(&mut self) {
        self.more += 1;
    }

    /// All of them, the first first.
    pub(super) fn into_errors(self) -> Vec<Error> {
        let Self { mut errors, more } = self;
        if more > 0 {
            let text = format!("HDF5: {more} more parts or names of a group cannot be read");
            errors.push(Error::corrupt("hdf5-corrupt", text));
        }
        errors
    }
}

/// The links of the group of that header, as far as they can be read: in the order in which they were made where the
/// group keeps it, else by name. What is damaged goes to `broken`. `room` is the memory that they may still take.
pub(super) fn links(file: &File, header: &Header, broken: &mut Broken, room: &mut u64) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    let mut keep = |link: Link| {
        spend(room, link.bytes() + size_of::<Link>() as u64)?;
        links.push(link);
        Ok(())
    };
    if let Some(message) = header.first(file, messages::MSG_SYMBOL_TABLE)? {
        let found = table::links(file, &message, broken, &mut keep);
        broken.part(found)?;
        return Ok(links);
    }
    for message in header.all(messages::MSG_LINK) {
        let Some(payload) = broken.part(header.payload(file, message))? else { continue };
        keep(parse(file, &payload))?;
    }
    let found = outside(file, header, broken, &mut keep);
    broken.part(found)?;
    match links.iter().all(|link| link.order.is_some()) {
        true => links.sort_by_key(|link| link.order),
        false => links.sort_by(|a, b| a.name.cmp(&b.name)),
    }
    Ok(links)
}

/// Gives `keep` the links of a group that stand outside of its header.
fn outside(
    file: &File,
    header: &Header,
    broken: &mut Broken,
    keep: &mut impl FnMut(Link) -> Result<()>,
) -> Result<()> {
    let Some(message) = header.first(file, messages::MSG_LINK_INFO)? else { return Ok(()) };
    let mut cursor = hdf5_reader::io::Cursor::new(&message);
    let info = link_info::parse(&mut cursor, file.offset_size(), file.length_size(), message.len())
        .map_err(fault)?;
    dense::links(file, info.fractal_heap_address, info.btree_name_index_address, broken, |bytes| {
        keep(parse(file, &bytes))
    })?;
    dense::claim_order(file, info.btree_creation_order_address)
}

/// The bytes of a file that the members of a group may still be made of: each has its own.
struct Owned {
    left: u64,
    all: u64,
}

impl Owned {
    fn new(file: &File) -> Self {
        let all = file.place.source.len();
        Self { left: all, all }
    }

    /// Takes those of one member.
    fn take(&mut self, bytes: u64) -> Result<()> {
        let Some(left) = self.left.checked_sub(bytes) else {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: what a group or its attributes are made of is longer than the file",
            )
            .expected(format_args!("at most {} bytes", self.all))
            .hint("several names may stand for the same bytes"));
        };
        self.left = left;
        Ok(())
    }
}

/// The link in a link message.
fn parse(file: &File, bytes: &[u8]) -> Link {
    let mut cursor = hdf5_reader::io::Cursor::new(bytes);
    match link::parse(&mut cursor, file.offset_size(), file.length_size(), bytes.len()) {
        Ok(link) => {
            let target = match link.target {
                LinkTarget::Hard { address } => Target::Hard(address),
                LinkTarget::Soft { path } => Target::Soft(path),
                LinkTarget::External { filename, path } => Target::External(filename, path),
            };
            Link { name: link.name, target: Ok(target), order: link.creation_order }
        }
        Err(error) => {
            let error = match user_kind(bytes) {
                Some(kind) => {
                    Error::unsupported("hdf5-user-link", "HDF5: a link of a kind that its maker defined")
                        .found(format_args!("kind {kind}"))
                }
                None => fault(error),
            };
            Link { name: "?".to_owned(), target: Err(error), order: None }
        }
    }
}

/// The kind of a link in a link message, where the format leaves its meaning to whoever registers it.
fn user_kind(bytes: &[u8]) -> Option<u8> {
    // Version, flags; the kind follows where the flags say so.
    let [1, flags, kind, ..] = *bytes else { return None };
    (flags & 8 != 0 && kind > EXTERNAL_LINK).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_broken_parts_are_counted() {
        let mut broken = Broken::default();
        for part in 0..40 {
            let error = Error::corrupt("hdf5-corrupt", "bad").at(part);
            assert!(broken.part::<()>(Err(error)).unwrap().is_none());
        }
        let errors = broken.into_errors();
        assert_eq!(errors.len(), 17);
        assert!(errors[16].message().contains("24 more"), "{}", errors[16].message());
    }

    #[test]
    fn a_place_is_told_once() {
        let end = hdf5_reader::error::Error::UnexpectedEof { offset: 1 << 41, needed: 64, available: 0 };
        let error = fault(end);
        assert_eq!((error.message(), error.offset()), ("HDF5: unexpected end of data", Some(1 << 41)));
    }
}

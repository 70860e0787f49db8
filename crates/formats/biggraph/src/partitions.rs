//! Requested partition counts of entity types.

use super::layout::split_counts;
use weighbridge_core::checkpoint::{Attributes, Name, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};

/// Maximum number of partitions of a type: as many as the reader accepts.
const MAX_PARTITIONS: u64 = super::read::MAX_ALL_PARTITIONS;

/// Requested partition counts of entity types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partitions {
    /// This number for every partitioned type; unpartitioned types stay so.
    Partitioned(u64),
    /// These numbers for these types; the others stay unchanged.
    Named(Vec<(String, u64)>),
}

impl Partitions {
    /// Parses `8`, or `user:8,item:4`. A name may contain a colon, but not a comma.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `bad-partitions`, for any other text, or a number of 0 or above
    /// 50,000.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage("bad-partitions", "invalid number of partitions")
                .expected(format_args!("a number from 1 to {MAX_PARTITIONS}, or TYPE:NUMBER,TYPE:NUMBER"))
                .found(text)
        };
        let number =
            |digits: &str| digits.parse().ok().filter(|n| (1..=MAX_PARTITIONS).contains(n)).ok_or_else(bad);
        if !text.contains(':') {
            return number(text).map(Self::Partitioned);
        }
        let one = |part: &str| {
            let (name, digits) =
                part.rsplit_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(bad)?;
            Ok((name.to_owned(), number(digits)?))
        };
        text.split(',').map(one).collect::<Result<_>>().map(Self::Named)
    }

    /// Number for a type that has `old` partitions now.
    pub fn of(&self, name: &str, old: u64) -> u64 {
        match self {
            Self::Partitioned(_) if old == 1 => 1,
            Self::Partitioned(new) => *new,
            Self::Named(all) => all.iter().rev().find(|(own, _)| own == name).map_or(old, |(_, new)| *new),
        }
    }

    /// Resolves a bare number for these types with their current partition counts: it applies to all with
    /// several partitions, or to a single unpartitioned type.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `which-type`, if a bare number would change nothing and the
    /// type is ambiguous.
    pub fn resolve(&self, types: &[(String, u64)]) -> Result<Self> {
        match (self, types) {
            (Self::Partitioned(new), [(only, 1)]) => Ok(Self::Named(vec![(only.clone(), *new)])),
            (Self::Partitioned(new), _) if *new > 1 && types.iter().all(|(_, old)| *old == 1) => {
                let names: Vec<_> = types.iter().map(|(name, _)| name.as_str()).collect();
                Err(Error::usage("which-type", "ambiguous entity type: none of the types is partitioned")
                    .expected(format_args!("TYPE:{new}, with the types {}", names.join(", ")))
                    .found(new))
            }
            _ => Ok(self.clone()),
        }
    }

    /// Fails if a type is not among `types`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `no-such-type`.
    pub fn check<'a>(&self, types: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
        let Self::Named(all) = self else { return Ok(()) };
        match all.iter().find(|(name, _)| !types.clone().any(|own| own == name)) {
            None => Ok(()),
            Some((name, _)) => Err(Error::usage("no-such-type", "unknown entity type")
                .expected(types.collect::<Vec<_>>().join(", "))
                .found(name)),
        }
    }
}

/// Row count of each of `parts` partitions, where the current ones are `counts`: unchanged if
/// the number stays, else balanced. The caller checks that the sum of `counts` is below 2^64.
pub(super) fn new_counts(counts: &[u64], parts: u64) -> Vec<u64> {
    if counts.len() as u64 == parts {
        return counts.to_vec();
    }
    split_counts(counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)), parts).collect()
}

/// Entity type under which the metadata lists a table or its names: its type when opened, empty if its
/// file does not name it.
pub(super) fn stored_type(rows: &TensorEntry) -> String {
    let type_of = |path: &TensorPath| path.parts().get(1).and_then(Name::as_str).unwrap_or("").to_owned();
    match rows.text_attribute(Attributes::RENAMED_FROM) {
        // Type names have no dots.
        Some(old) => type_of(&TensorPath::from_dotted(old)),
        None => type_of(&rows.path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_numbers_and_names() {
        let all = Partitions::parse("8").unwrap();
        assert_eq!((all.of("user", 4), all.of("country", 1), all.of("user", 8)), (8, 1, 8));
        let some = Partitions::parse("user:8,a:b:1,country:3").unwrap();
        assert_eq!((some.of("user", 4), some.of("a:b", 9), some.of("country", 1)), (8, 1, 3));
        assert_eq!(some.of("item", 4), 4);
        let types = |all: &[(&str, u64)]| all.iter().map(|(n, p)| ((*n).to_owned(), *p)).collect::<Vec<_>>();
        let only = Partitions::parse("4").unwrap().resolve(&types(&[("a", 1)])).unwrap();
        assert_eq!(only, Partitions::Named(vec![("a".to_owned(), 4)]));
        assert_eq!(all.resolve(&types(&[("a", 1), ("b", 2)])).unwrap(), all);
        assert_eq!(all.resolve(&types(&[("a", 1), ("b", 1)])).unwrap_err().code().as_str(), "which-type");
        for bad in ["", "0", "-1", "x", ":3", "user:", "user:0", "user:2,", "1000001", "1.0"] {
            assert_eq!(Partitions::parse(bad).unwrap_err().code().as_str(), "bad-partitions", "{bad}");
        }
        assert!(all.check(["user"].into_iter()).is_ok());
        assert_eq!(some.check(["user", "a:b"].into_iter()).unwrap_err().code().as_str(), "no-such-type");
    }
}

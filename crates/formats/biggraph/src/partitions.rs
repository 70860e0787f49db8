//! How many partitions the types of entities are to have.

use super::layout::split_counts;
use weighbridge_core::checkpoint::{Attributes, Name, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};

/// The most partitions that a type may be given: as many as are read.
const MOST: u64 = super::read::MOST_PARTS;

/// How many partitions each type of entities is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partitions {
    /// So many for every type that is partitioned; types with one partition keep it.
    Partitioned(u64),
    /// So many for these types; the others stay as they are.
    Named(Vec<(String, u64)>),
}

impl Partitions {
    /// Reads `8`, or `user:8,item:4`. A name may hold a colon, not a comma.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `bad-partitions`, where it is neither, or a number is 0 or above
    /// 50,000.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage("bad-partitions", "this does not say how many partitions there are to be")
                .expected(format_args!("a number from 1 to {MOST}, or TYPE:NUMBER,TYPE:NUMBER"))
                .found(text)
        };
        let number = |digits: &str| digits.parse().ok().filter(|n| (1..=MOST).contains(n)).ok_or_else(bad);
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

    /// The number for a type that has `old` partitions now.
    pub fn of(&self, name: &str, old: u64) -> u64 {
        match self {
            Self::Partitioned(_) if old == 1 => 1,
            Self::Partitioned(new) => *new,
            Self::Named(all) => all.iter().rev().find(|(own, _)| own == name).map_or(old, |(_, new)| *new),
        }
    }

    /// The same for these types with the partitions that they have. A bare number is for all that have
    /// several; where none has, it is for the only one.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `which-type`, where a bare number would change nothing, and it is
    /// not plain which type is meant.
    pub fn resolve(&self, types: &[(String, u64)]) -> Result<Self> {
        match (self, types) {
            (Self::Partitioned(new), [(only, 1)]) => Ok(Self::Named(vec![(only.clone(), *new)])),
            (Self::Partitioned(new), _) if *new > 1 && types.iter().all(|(_, old)| *old == 1) => {
                let names: Vec<_> = types.iter().map(|(name, _)| name.as_str()).collect();
                Err(Error::usage("which-type", "no type has several partitions: say which ones get them")
                    .expected(format_args!("TYPE:{new}, with the types {}", names.join(", ")))
                    .found(new))
            }
            _ => Ok(self.clone()),
        }
    }

    /// Fails where a type is named that is not among `types`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `no-such-type`.
    pub fn check<'a>(&self, types: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
        let Self::Named(all) = self else { return Ok(()) };
        match all.iter().find(|(name, _)| !types.clone().any(|own| own == name)) {
            None => Ok(()),
            Some((name, _)) => Err(Error::usage("no-such-type", "there is no such type of entities")
                .expected(types.collect::<Vec<_>>().join(", "))
                .found(name)),
        }
    }
}

/// The rows of each of `parts` partitions, where they are dealt out as `counts` now: as they are, if
/// the number stays, else balanced. The sum of `counts` is held against 2^64 before.
pub(super) fn new_counts(counts: &[u64], parts: u64) -> Vec<u64> {
    if counts.len() as u64 == parts {
        return counts.to_vec();
    }
    split_counts(counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)), parts).collect()
}

/// The type under which the metadata know a table or its names: the one that it was opened with, empty where its
/// file does not tell.
pub(super) fn stored_type(rows: &TensorEntry) -> String {
    let type_of = |path: &TensorPath| path.parts().get(1).and_then(Name::as_str).unwrap_or("").to_owned();
    match rows.text_attribute(Attributes::RENAMED_FROM) {
        // Names of types have no dots.
        Some(old) => type_of(&TensorPath::from_dotted(old)),
        None => type_of(&rows.path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
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

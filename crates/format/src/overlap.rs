//! Bytes of a file that its tensors read again and again.

use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::limit;

/// Tensors may read the bytes that they lie in so many times more, all together. Honest ones see the same elements as a
/// whole and in parts, or turned.
const TIMES: u64 = 8;

/// What tensors read that share no elements by name: each once, however it lies over others.
#[derive(Debug, Default)]
pub struct OverlapBudget {
    /// The number of a storage, first byte, byte behind the last one.
    spans: Vec<(usize, u64, u64)>,
    read: u64,
}

impl OverlapBudget {
    /// A tensor that reads `bytes` out of `from .. to` of a storage.
    pub fn add(&mut self, storage: usize, (from, to): (u64, u64), bytes: u64) {
        self.read = self.read.saturating_add(bytes);
        self.spans.push((storage, from, to));
    }

    /// Refuses tensors that read the same bytes without measure: a few bytes more in the file would be as much
    /// to read as all of it.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] with that code.
    pub fn check(mut self, code: &'static str, limits: &Limits) -> Result<()> {
        self.spans.sort_unstable();
        let (mut covered, mut last) = (0u64, None::<&(usize, u64, u64)>);
        for span in &self.spans {
            let begin = last.filter(|last| last.0 == span.0).map_or(span.1, |last| last.2.max(span.1));
            covered = covered.saturating_add(span.2.saturating_sub(begin));
            if last.is_none_or(|last| last.0 != span.0 || last.2 < span.2) {
                last = Some(span);
            }
        }
        let again = self.read.saturating_sub(covered);
        let most = limits.repeated_bytes.saturating_add(covered.saturating_mul(TIMES));
        if again <= most {
            return Ok(());
        }
        Err(Error::limit(code, "tensors share their elements without measure")
            .expected(format_args!("at most {most} bytes that are read again, of all such tensors together"))
            .found(format_args!("{again} bytes out of {covered}"))
            .hint(phrase!["if you trust the file, raise the limit ", limit("repeated_bytes")]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_again_is_counted() {
        let limits = Limits { repeated_bytes: 5, ..Limits::default() };
        let check = |spans: &[(usize, u64, u64)]| {
            let mut all = OverlapBudget::default();
            spans.iter().for_each(|&(key, from, to)| all.add(key, (from, to), to - from));
            all.check("code", &limits).map_err(|error| error.found_text().map(str::to_owned))
        };
        // A whole and its parts, many times; other storages do not matter.
        check(&[(0, 0, 100), (0, 0, 50), (0, 50, 100), (1, 0, 100)]).unwrap();
        check(&[(0, 0, 10); 9]).unwrap();
        assert_eq!(check(&[(0, 0, 10); 11]), Err(Some("100 bytes out of 10".to_owned())));
        let moved: Vec<_> = (0..20).map(|i| (0, i, i + 10)).collect();
        check(&moved).unwrap();
        let moved: Vec<_> = (0..20).map(|i| (0, i, i + 100)).collect();
        assert_eq!(check(&moved), Err(Some("1881 bytes out of 119".to_owned())));
        // What lies within another one ends nothing.
        check(&[(0, 0, 100), (0, 10, 20), (0, 50, 150)]).unwrap();
    }
}

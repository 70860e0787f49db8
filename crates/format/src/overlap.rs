//! Limit on tensors that share bytes of a file.

use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::limit;

/// Maximum ratio of repeatedly read bytes to distinct bytes. Well-formed files have views of a whole, of its parts, or transposed.
const MAX_RATIO: u64 = 8;

/// Budget for the bytes that overlapping tensors read more than once. Aliases of one tensor count once.
#[derive(Debug, Default)]
pub struct OverlapBudget {
    /// Number of the storage, first byte, byte after the last one.
    spans: Vec<(usize, u64, u64)>,
    read: u64,
}

impl OverlapBudget {
    /// Adds a tensor that reads `bytes` of the range `from .. to` of a storage.
    pub fn add(&mut self, storage: usize, (from, to): (u64, u64), bytes: u64) {
        self.read = self.read.saturating_add(bytes);
        self.spans.push((storage, from, to));
    }

    /// Rejects tensors that share bytes excessively: a few more bytes of header would cost as much reading as the whole file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] with the given code.
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
        let repeated = self.read.saturating_sub(covered);
        let most = limits.repeated_bytes.saturating_add(covered.saturating_mul(MAX_RATIO));
        if repeated <= most {
            return Ok(());
        }
        Err(Error::limit(code, "tensors overlap too much")
            .expected(format_args!("at most {most} repeatedly read bytes of all overlapping tensors"))
            .found(format_args!("{repeated} bytes out of {covered}"))
            .hint(phrase!["if you trust the file, raise the limit ", limit("repeated_bytes")]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_excessive_overlap() {
        let limits = Limits { repeated_bytes: 5, ..Limits::default() };
        let check = |spans: &[(usize, u64, u64)]| {
            let mut all = OverlapBudget::default();
            spans.iter().for_each(|&(key, from, to)| all.add(key, (from, to), to - from));
            all.check("code", &limits).map_err(|error| error.found_text().map(str::to_owned))
        };
        // A whole and its parts, several times; other storages are independent.
        check(&[(0, 0, 100), (0, 0, 50), (0, 50, 100), (1, 0, 100)]).unwrap();
        check(&[(0, 0, 10); 9]).unwrap();
        assert_eq!(check(&[(0, 0, 10); 11]), Err(Some("100 bytes out of 10".to_owned())));
        let moved: Vec<_> = (0..20).map(|i| (0, i, i + 10)).collect();
        check(&moved).unwrap();
        let moved: Vec<_> = (0..20).map(|i| (0, i, i + 100)).collect();
        assert_eq!(check(&moved), Err(Some("1881 bytes out of 119".to_owned())));
        // A span within another one does not end it.
        check(&[(0, 0, 100), (0, 10, 20), (0, 50, 150)]).unwrap();
    }
}

//! Generated sources, longer than the available memory.

use std::sync::Arc;
use weighbridge::source::{Source, SourceRef, check_range};

/// Bytes, or a repeated pattern.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// Literal bytes.
    Bytes(Vec<u8>),
    /// A pattern, repeated to this number of bytes.
    Repeat(Vec<u8>, u64),
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Repeat(_, len) => *len,
        }
    }
}

/// A concatenation of parts.
#[derive(Debug)]
struct GeneratedSource(Vec<Part>);

/// Makes a source of these parts.
pub(crate) fn made(parts: Vec<Part>) -> SourceRef {
    // Short patterns are repeated, for fewer and longer copies.
    let long = |part| match part {
        Part::Repeat(pattern, len) => Part::Repeat(pattern.repeat((64 << 10) / pattern.len() + 1), len),
        bytes => bytes,
    };
    Arc::new(GeneratedSource(parts.into_iter().map(long).collect()))
}

/// Makes a source of these bytes.
pub(crate) fn bytes(bytes: Vec<u8>) -> SourceRef {
    made(vec![Part::Bytes(bytes)])
}

impl Source for GeneratedSource {
    fn len(&self) -> u64 {
        self.0.iter().map(Part::len).sum()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> weighbridge::Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let mut start = 0;
        let (from, to) = (offset, offset + buffer.len() as u64);
        for part in &self.0 {
            let (first, last) = (from.max(start), to.min(start + part.len()));
            if first < last {
                let place = |at: u64| usize::try_from(at - offset).unwrap();
                let inside = usize::try_from(first - start).unwrap();
                let target = &mut buffer[place(first)..place(last)];
                match part {
                    Part::Bytes(bytes) => target.copy_from_slice(&bytes[inside..inside + target.len()]),
                    Part::Repeat(pattern, _) => {
                        let mut inside = inside % pattern.len();
                        for piece in target.chunks_mut(pattern.len()) {
                            let begin = piece.len().min(pattern.len() - inside);
                            piece[..begin].copy_from_slice(&pattern[inside..inside + begin]);
                            let rest = piece.len() - begin;
                            piece[begin..].copy_from_slice(&pattern[..rest]);
                            inside = (inside + piece.len()) % pattern.len();
                        }
                    }
                }
            }
            start += part.len();
        }
        Ok(())
    }

    fn label(&self) -> &str {
        "bomb"
    }
}

#[test]
fn generated_sources_return_their_parts() {
    let source =
        made(vec![Part::Bytes(b"ab".to_vec()), Part::Repeat(b"xyz".to_vec(), 7), Part::Bytes(b"c".to_vec())]);
    let mut all = vec![0; 10];
    source.read_at(0, &mut all).unwrap();
    assert_eq!(all, b"abxyzxyzxc");
    source.read_at(4, &mut all[..4]).unwrap();
    assert_eq!(&all[..4], b"zxyz");
    assert_eq!(source.read_at(7, &mut all).unwrap_err().code().as_str(), "past-the-end");
}

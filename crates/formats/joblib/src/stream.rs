//! Compressed files: zlib, gzip, bzip2, xz, lzma and lz4 frames, as a source of their unpacked bytes.

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use std::fmt;
use std::io::{BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{Source, SourceRef, Within, check_range, to_usize};

/// Bytes of one read of the compressed file, and of one piece of skipped bytes.
const CHUNK: usize = 64 << 10;
/// Maximum memory of an xz or lzma decoder in KiB; the highest preset of liblzma needs 65 MiB.
const MAX_LZMA_KIB: u32 = 128 << 10;

/// Compression of a file, as joblib writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Zlib,
    Gzip,
    Bzip2,
    Xz,
    Lzma,
    Lz4,
}

impl Compression {
    /// Detects the compression by the first bytes.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let is_zlib = |head: &[u8]| {
            matches!(*head, [cmf, flags, ..] if cmf & 0x8f == 0x08
                && (u16::from(cmf) << 8 | u16::from(flags)) % 31 == 0 && flags & 0x20 == 0)
        };
        Some(match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => Self::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x5d, 0, 0, ..] => Self::Lzma,
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Lz4,
            head if is_zlib(head) => Self::Zlib,
            _ => return None,
        })
    }

    /// Returns the name of the compression.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Gzip => "gzip",
            Self::Bzip2 => "bz2",
            Self::Xz => "xz",
            Self::Lzma => "lzma",
            Self::Lz4 => "lz4",
        }
    }

    fn decoder(self, source: &SourceRef) -> std::io::Result<Box<dyn Read + Send>> {
        let packed = BufReader::with_capacity(CHUNK, Packed { source: source.clone(), at: 0 });
        Ok(match self {
            Self::Zlib => Box::new(ZlibDecoder::new(packed)),
            Self::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Self::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(packed)),
            Self::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, MAX_LZMA_KIB)),
            Self::Lzma => Box::new(lzma_rust2::LzmaReader::new_mem_limit(packed, MAX_LZMA_KIB, None)?),
            Self::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(packed)),
        })
    }
}

/// Reader of the compressed bytes.
struct Packed {
    source: SourceRef,
    at: u64,
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = to_usize(self.source.len() - self.at).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        let Some(buffer) = buffer.get_mut(..count) else { return Ok(0) };
        self.source.read_at(self.at, buffer).map_err(|error| std::io::Error::other(error.to_string()))?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Unpacked bytes of a compressed file.
///
/// Sequential reads continue the stream; a read at an earlier offset begins again at the start. Memory is that of one decoder,
/// and is freed after the last byte is read.
pub(super) struct StreamSource {
    outer: SourceRef,
    compression: Compression,
    len: u64,
    running: Mutex<Option<Running>>,
}

struct Running {
    decoder: Box<dyn Read + Send>,
    at: u64,
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource").field("outer", &self.outer.label()).field("len", &self.len).finish()
    }
}

/// Returns the first unpacked bytes, at most `most`; fewer if the stream ends or is damaged.
pub(super) fn prefix(source: &SourceRef, compression: Compression, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(decoder) = compression.decoder(source) {
        _ = decoder.take(most as u64).read_to_end(&mut bytes);
    }
    bytes
}

impl StreamSource {
    /// Unpacks the file once to learn the number of its bytes. Its checksum, if any, is verified on the way.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `joblib-stream`, for a damaged stream; [`weighbridge_core::Kind::Limit`] if it unpacks to too many bytes.
    pub(super) fn open(outer: &SourceRef, compression: Compression, limits: &Limits) -> Result<Arc<Self>> {
        let budget = limits.budget_of(outer);
        let mut source = Self { outer: outer.clone(), compression, len: 0, running: Mutex::new(None) };
        let mut decoder = compression.decoder(outer).map_err(|error| source.broken(&error))?;
        let mut waste = vec![0; CHUNK];
        loop {
            let count = decoder.read(&mut waste).map_err(|error| source.broken(&error))?;
            if count == 0 {
                break;
            }
            source.len += count as u64;
            limits.check_expansion("the file is", source.len, outer.len())?;
            budget.take_work(count as u64)?;
        }
        Ok(Arc::new(source))
    }

    fn broken(&self, error: &std::io::Error) -> Error {
        let text = format!("the {} stream is damaged or truncated", self.compression.as_str());
        Error::corrupt("joblib-stream", text).in_file(self.outer.label()).found(error)
    }

    fn fill(&self, running: &mut Option<Running>, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if running.as_ref().is_none_or(|running| running.at > offset) {
            let decoder = self.compression.decoder(&self.outer).map_err(|error| self.broken(&error))?;
            *running = Some(Running { decoder, at: 0 });
        }
        let Some(Running { decoder, at }) = running else { return Ok(()) };
        let mut waste = Vec::new();
        while *at < offset {
            waste.resize(CHUNK.min(to_usize(offset - *at)?), 0);
            decoder.read_exact(&mut waste).map_err(|error| self.broken(&error))?;
            *at += waste.len() as u64;
        }
        decoder.read_exact(buffer).map_err(|error| self.broken(&error))?;
        *at += buffer.len() as u64;
        Ok(())
    }
}

impl Source for StreamSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = self.fill(&mut running, offset, buffer);
        // A failed decoder cannot continue; the last byte ends the stream.
        if filled.is_err() || running.as_ref().is_some_and(|running| running.at == self.len) {
            *running = None;
        }
        filled
    }

    fn label(&self) -> &str {
        self.outer.label()
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn within(&self) -> Option<Within<'_>> {
        Some(Within { source: &self.outer, offset: 0, len: self.outer.len(), encoded: true })
    }
}

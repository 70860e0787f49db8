//! Telling a pickle from everything else.

use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Options, opcode_name, read};
use weighbridge_torch_archive::is_legacy;

/// Files without a declared protocol are read to find out, up to this length in bytes.
const MOST_READ: u64 = 1 << 20;

/// True where a file that begins with `head` is a pickle that Paddle may have written; false for
/// those of PyTorch.
pub(in super::super) fn looks_like_pickle(head: &[u8], source: &SourceRef) -> bool {
    match head {
        [0x80, protocol, rest @ ..] => {
            let known = rest.first().is_some_and(|&code| opcode_name(code).is_some());
            (2..=5).contains(protocol) && known && !is_legacy(head)
        }
        // Protocols 0 and 1 declare nothing: a dict, list or import must begin it, and all must be read.
        [b'(', b'd' | b'l', ..] | [b'}' | b']', b'q', ..] | [b'c', b'a'..=b'z' | b'_', ..] => {
            source.len() <= MOST_READ && read(source, 0, &Options::default()).is_ok()
        }
        _ => false,
    }
}

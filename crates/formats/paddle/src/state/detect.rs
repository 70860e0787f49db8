//! Detection of pickles.

use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Options, opcode_name, read};
use weighbridge_torch_archive::is_legacy;

/// Maximum length in bytes of a file without a declared protocol that is read for detection.
const MAX_LEN_READ: u64 = 1 << 20;

/// True if a file that begins with `head` is a pickle that Paddle may have written. False for pickles of PyTorch.
pub(in super::super) fn looks_like_pickle(head: &[u8], source: &SourceRef) -> bool {
    match head {
        [0x80, protocol, rest @ ..] => {
            let known = rest.first().is_some_and(|&code| opcode_name(code).is_some());
            (2..=5).contains(protocol) && known && !is_legacy(head)
        }
        // Protocols 0 and 1 have no declaration: the pickle must begin with a dict, list or import, and be readable as a whole.
        [b'(', b'd' | b'l', ..] | [b'}' | b']', b'q', ..] | [b'c', b'a'..=b'z' | b'_', ..] => {
            source.len() <= MAX_LEN_READ && read(source, 0, &Options::default()).is_ok()
        }
        _ => false,
    }
}

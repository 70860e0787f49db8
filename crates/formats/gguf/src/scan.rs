//! Scan of a model: chat templates, which programs run for each conversation.

use crate::header::Header;
use crate::read::{self, Contents};
use weighbridge_core::checkpoint::Value;
use weighbridge_core::error::Result;
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::SourceRef;
use weighbridge_scan::template;

/// Metadata key of the chat template, and beginning of the keys of named ones.
const TEMPLATE: &str = "tokenizer.chat_template";

/// Scans the chat templates and the names of tensors. GGUF itself has no code.
pub(crate) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let read = Header::read(source, &options.limits).and_then(|header| read::contents(header, source, None));
    match read {
        Ok(Contents { checkpoint, metadata, .. }) => {
            let mut scan = Scan::of_notes(&checkpoint);
            for (key, value) in &metadata {
                if let (true, Value::Text(text)) = (is_template(key), value) {
                    template(text, &mut scan);
                }
            }
            Ok(scan)
        }
        Err(error) => Scan::of_error(error.in_file(source.label())),
    }
}

fn is_template(key: &str) -> bool {
    key.strip_prefix(TEMPLATE).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

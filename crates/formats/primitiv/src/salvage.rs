//! Recovery of a damaged file: complete parameters, values and stats before the break.
//!
//! Every object starts with its length; so objects before a break are at their original offsets, and after the
//! break nothing is certain. No checksum protects the values.

use super::FileKind;
use super::raw::{RawTensor, Reader};
use super::read::{self, NameBudget};
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Checkpoint, Name, Note, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Returns the index of the intact tensors.
///
/// # Errors
/// Fails where the header is damaged: then the kind of the file is unknown.
pub(super) fn open(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let mut reader = Reader::new(source.clone(), options)?;
    let kind = reader.kind();
    let mut saver =
        Saver { source, checkpoint: read::start(kind, source.label()), names: NameBudget::of(source) };
    // The main damage is recorded here; later errors are the reasons why reading stopped.
    saver.checkpoint.damage_mut(error);
    let broken = match kind {
        FileKind::Model => saver.model(&mut reader),
        FileKind::Parameter => saver.parameter(&mut reader, &TensorPath::value()),
        FileKind::Tensor => saver.value(&mut reader, &TensorPath::value()),
        FileKind::Shape | FileKind::Optimizer => Broken::Yes,
    };
    let (at, rest) = reader.place();
    if matches!(broken, Broken::No) && rest > 0 {
        let rest = counted(rest, "byte", "bytes");
        let text = format!("{rest} after the last object ignored, from offset {at} on");
        saver.checkpoint.notes.push(Note::omission("trailing-bytes", text));
    }
    Ok(saver.finish())
}

/// State of reading: at a break, reading cannot continue.
enum Broken {
    Yes,
    No,
}

struct Saver<'a> {
    source: &'a SourceRef,
    checkpoint: Checkpoint,
    names: NameBudget,
}

impl Saver<'_> {
    fn model(&mut self, reader: &mut Reader<'_>) -> Broken {
        let Ok(count) = reader.claimed_count("the number of parameters") else { return Broken::Yes };
        for number in 0..count {
            let broken = match reader.address() {
                Ok(path) => self.parameter(reader, &path),
                Err(error) => {
                    self.checkpoint.lose(format_args!("(parameter {} of {count})", number + 1), &error);
                    Broken::Yes
                }
            };
            if matches!(broken, Broken::Yes) {
                let more = count - number - 1;
                if more > 0 {
                    let text = format!("{more} of {count} parameters follow the damage and were not read");
                    self.checkpoint.notes.push(Note::omission("not-reached", text));
                }
                return Broken::Yes;
            }
        }
        Broken::No
    }

    /// Reads a parameter: its value, and the stats before a break.
    fn parameter(&mut self, reader: &mut Reader<'_>, path: &TensorPath) -> Broken {
        if matches!(self.value(reader, path), Broken::Yes) {
            return Broken::Yes;
        }
        let count = match reader.claimed_count("the number of stats") {
            Ok(count) => count,
            Err(error) => {
                self.checkpoint.lose(format_args!("(stats of {path})"), &error);
                return Broken::Yes;
            }
        };
        for number in 0..count {
            let slot = match reader.stat_name() {
                Ok(slot) => slot,
                Err(error) => {
                    let name = format!("(stat {} of {count} of {path})", number + 1);
                    self.checkpoint.lose(name, &error);
                    return Broken::Yes;
                }
            };
            let tensor = reader.tensor();
            if matches!(self.keep(tensor, path, Some(slot)), Broken::Yes) {
                return Broken::Yes;
            }
        }
        Broken::No
    }

    fn value(&mut self, reader: &mut Reader<'_>, path: &TensorPath) -> Broken {
        let tensor = reader.tensor();
        self.keep(tensor, path, None)
    }

    /// Adds a tensor, or records that it is lost.
    fn keep(&mut self, tensor: Result<RawTensor>, path: &TensorPath, slot: Option<Name>) -> Broken {
        let kept = tensor.and_then(|raw| {
            self.names.take(path)?;
            read::entry(self.source, path.clone(), &raw, slot.clone())
        });
        match kept {
            Ok(entry) => {
                self.checkpoint.tensors.push(entry);
                Broken::No
            }
            Err(error) => {
                let name = match &slot {
                    Some(slot) => format!("{path}/{slot}"),
                    None => path.to_string(),
                };
                self.checkpoint.lose(name, &error);
                Broken::Yes
            }
        }
    }

    /// Moves tensors with duplicate names to the lost ones: either may be the wrong one.
    fn finish(mut self) -> Checkpoint {
        let mut count: HashMap<String, usize> = HashMap::with_capacity(self.checkpoint.tensors.len());
        for tensor in &self.checkpoint.tensors {
            *count.entry(tensor.name()).or_default() += 1;
        }
        let is_duplicate = |tensor: &TensorEntry| count.get(&tensor.name()).is_some_and(|&count| count > 1);
        let (duplicates, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.checkpoint.tensors).into_iter().partition(is_duplicate);
        self.checkpoint.tensors = kept;
        for tensor in duplicates {
            let error = Error::corrupt("duplicate-address", "duplicate tensor name");
            self.checkpoint.lose(tensor.name(), &error);
        }
        self.checkpoint
    }
}

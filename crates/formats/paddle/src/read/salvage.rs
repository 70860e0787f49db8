//! Extraction of intact tensors from damaged parameters.
//!
//! The shape of a stream determines its length, and the next stream begins at its end. A stream is
//! therefore intact if another begins after it, the file ends there, or the program declares its shape.
//! If no stream follows, the last stream is uncertain: its own shape may be damaged.

use super::super::stream::{Stream, combined};
use super::join::agrees;
use super::params::wanted;
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::Error;
use weighbridge_core::text::escape;
use weighbridge_core::topology::{Topology, Variable, VariableKind};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Maximum plausible number of LoD levels of a tensor. Paddle itself uses at most three.
const MAX_PLAUSIBLE_LOD_LEVELS: u64 = 8;

/// Returns the streams of a combined file up to the damage. Later parameters of the program are lost.
pub(super) fn streams(
    source: &SourceRef,
    program: Option<&Topology>,
    error: &Error,
    checkpoint: &mut Checkpoint,
    options: &OpenOptions,
) -> Vec<Stream> {
    let limits = &options.limits;
    let (mut streams, broken) = match program {
        Some(topology) => {
            let found = combined::salvage_with(source, &wanted(topology), limits);
            (found.streams, found.error)
        }
        None => {
            let found = combined::salvage(source, limits);
            (found.streams.into_iter().map(Stream::Dense).collect(), found.error)
        }
    };
    let quantized = program.map(Topology::quantized).unwrap_or_default();
    let parameters: Vec<&Variable> = program.map(Topology::parameters).unwrap_or_default();
    // The file has the length that its shapes imply, except for the part cut off.
    let cut = match &broken {
        None => true,
        Some(e) if e.code() == ErrorCode::TrailingBytes => begins_a_stream(source, e),
        // The LoD levels exceed the file: if their number is plausible, the file is truncated.
        Some(e) if e.code() == ErrorCode::LodTooLong => begins_with_levels(source, streams.last()),
        Some(e) => e.code().as_str().starts_with("truncated") || e.code() == ErrorCode::MissingTensors,
    };
    let declared = |place: usize, stream: &Stream| match (parameters.get(place), stream) {
        (Some(variable), Stream::Dense(dense)) => {
            variable.kind != VariableKind::Vocab && agrees(&dense.entry, variable, &quantized)
        }
        _ => false,
    };
    let whole = streams.len();
    while let Some(last) = streams.last().filter(|_| !cut) {
        let place = streams.len() - 1;
        if declared(place, last) {
            break;
        }
        streams.pop();
        if program.is_none() {
            let error = Error::corrupt("shape-uncertain", "no tensor follows: the shape may be damaged");
            checkpoint.lose(format_args!("#{place}"), &error);
            break;
        }
    }
    let broken = broken.as_ref().unwrap_or(error);
    let mut lost = parameters.iter().skip(streams.len());
    if let Some(first) = lost.next() {
        checkpoint.lose(&first.name, broken);
        // The fault is that of the first tensor, unless tensors before it are uncertain.
        let text = match whole == streams.len() {
            true => format!("it follows the damaged data of {}", escape(&first.name)),
            false => "it follows damaged data".to_owned(),
        };
        let mut after = Error::new(broken.kind(), broken.code(), text);
        after = broken.offset().into_iter().fold(after, Error::at);
        after = broken.file().into_iter().fold(after, Error::in_file);
        let is_end = broken.code() == ErrorCode::MissingTensors;
        lost.for_each(|variable| checkpoint.lose(&variable.name, if is_end { broken } else { &after }));
    }
    if parameters.is_empty() {
        checkpoint.lose(format_args!("(tensors after #{})", streams.len()), broken);
    }
    checkpoint.damage_mut(broken).expected = program.map(|_| parameters.len() as u64);
    streams
}

/// True if the few remaining bytes can be the version that begins a stream: zero.
fn begins_a_stream(source: &SourceRef, error: &Error) -> bool {
    let mut rest = [1; 4];
    let left = error.offset().and_then(|at| source.len().checked_sub(at));
    let Some(rest) = left.and_then(|left| rest.get_mut(..usize::try_from(left).ok()?)) else { return false };
    source.read_at(source.len() - rest.len() as u64, rest).is_ok() && rest.iter().all(|&b| b == 0)
}

/// True if a version and a plausible number of LoD levels follow `last`.
fn begins_with_levels(source: &SourceRef, last: Option<&Stream>) -> bool {
    let Some(Stream::Dense(dense)) = last else { return false };
    let Some(extent) = dense.entry.single_extent() else { return false };
    let (mut version, mut levels) = ([1; 4], [0; 8]);
    let at = extent.offset.saturating_add(extent.len);
    let read = source.read_at(at, &mut version).and_then(|()| source.read_at(at + 4, &mut levels));
    read.is_ok() && version == [0; 4] && u64::from_le_bytes(levels) <= MAX_PLAUSIBLE_LOD_LEVELS
}

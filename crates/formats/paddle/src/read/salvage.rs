//! What is intact of damaged parameters.
//!
//! A stream says how long it is by its shape, and the next one begins where it ends; so a stream is
//! intact where another begins behind it, or the file ends, or the program declares what it is. Where
//! what follows is no stream, the last one before is not certain: its shape may be what is damaged.

use super::super::stream::{Stream, combined};
use super::join::agrees;
use super::params::wanted;
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::Error;
use weighbridge_core::topology::{Topology, Variable, VariableKind};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Levels of LoD that a tensor may have without a doubt: Paddle's own have three at most.
const HONEST_LEVELS: u64 = 8;

/// The streams of a combined file up to its break. Those that the program has behind it are lost.
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
    // The file is as long as the shapes say, but for what is cut off.
    let cut = match &broken {
        None => true,
        Some(e) if e.code() == ErrorCode::TrailingBytes => begins_a_stream(source, e),
        // Levels of LoD for which there is no room: a few of them are honest, and the file is cut.
        Some(e) if e.code() == ErrorCode::LodTooLong => begins_with_levels(source, streams.last()),
        Some(e) => e.code().as_str().starts_with("truncated") || e.code() == ErrorCode::MissingTensors,
    };
    let declared = |place: usize, stream: &Stream| match (parameters.get(place), stream) {
        (Some(variable), Stream::Dense(dense)) => {
            variable.kind != VariableKind::Vocab && agrees(&dense.entry, variable, &quantized)
        }
        _ => false,
    };
    while let Some(last) = streams.last().filter(|_| !cut) {
        let place = streams.len() - 1;
        if declared(place, last) {
            break;
        }
        streams.pop();
        if program.is_none() {
            let error =
                Error::corrupt("shape-uncertain", "what follows it is no tensor: its shape may be wrong");
            checkpoint.lose(format_args!("#{place}"), &error);
            break;
        }
    }
    let broken = broken.as_ref().unwrap_or(error);
    for variable in parameters.iter().skip(streams.len()) {
        checkpoint.lose(&variable.name, broken);
    }
    if parameters.is_empty() {
        checkpoint.lose(format_args!("(tensors behind #{})", streams.len()), broken);
    }
    checkpoint.damage_mut(broken).expected = program.map(|_| parameters.len() as u64);
    streams
}

/// True where the few bytes that are left could be the version that begins a stream: zero.
fn begins_a_stream(source: &SourceRef, error: &Error) -> bool {
    let mut rest = [1; 4];
    let left = error.offset().and_then(|at| source.len().checked_sub(at));
    let Some(rest) = left.and_then(|left| rest.get_mut(..usize::try_from(left).ok()?)) else { return false };
    source.read_at(source.len() - rest.len() as u64, rest).is_ok() && rest.iter().all(|&b| b == 0)
}

/// True where the version and a number of levels of LoD that a tensor may have stand behind `last`.
fn begins_with_levels(source: &SourceRef, last: Option<&Stream>) -> bool {
    let Some(Stream::Dense(dense)) = last else { return false };
    let Some(extent) = dense.entry.single_extent() else { return false };
    let (mut version, mut levels) = ([1; 4], [0; 8]);
    let at = extent.offset.saturating_add(extent.len);
    let read = source.read_at(at, &mut version).and_then(|()| source.read_at(at + 4, &mut levels));
    read.is_ok() && version == [0; 4] && u64::from_le_bytes(levels) <= HONEST_LEVELS
}

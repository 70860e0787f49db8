//! Root attributes of every checkpoint file.

use super::super::config::Config;
use super::super::layout::{EpochPosition, Schedule};
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::Result;
use weighbridge_hdf5::write::Hdf5Builder;

/// Attribute with the version of the file format.
pub(crate) const FORMAT_VERSION: &str = "format_version";
/// Attribute with the configuration.
pub(super) const CONFIG_JSON: &str = "config/json";

/// Attributes of the root group, in order.
#[derive(Debug, Clone)]
pub(super) struct Root(Vec<(String, Value)>);

impl Root {
    /// Attributes of the checkpoint. If it has none, those of a finished run of
    /// `config`. `text` is the configuration to write, if changed.
    pub(super) fn of(checkpoint: &Checkpoint, config: Option<&Config>, text: Option<&str>) -> Self {
        let mut all: Vec<(String, Value)> = match checkpoint.metadata.get("attributes") {
            Some(Value::Map(pairs)) => pairs
                .iter()
                .filter_map(|(name, value)| Some((name.as_str()?.to_owned(), value.clone())))
                .collect(),
            _ => Vec::new(),
        };
        if let Some(text) = text {
            match all.iter_mut().find(|(name, _)| name == CONFIG_JSON) {
                Some((_, old)) => *old = Value::Text(text.to_owned()),
                None => all.push((CONFIG_JSON.to_owned(), Value::Text(text.to_owned()))),
            }
        }
        if !all.iter().any(|(name, _)| name == FORMAT_VERSION) {
            all.insert(0, (FORMAT_VERSION.to_owned(), Value::I64(1)));
        }
        if let Some(config) = config
            && !all.iter().any(|(name, _)| name.starts_with("iteration/"))
        {
            all.extend(iteration(config));
        }
        Self(all)
    }

    /// Writes them into a file.
    pub(super) fn put(&self, file: &mut Hdf5Builder) -> Result<()> {
        self.0.iter().try_for_each(|(name, value)| file.attribute(&[], name, value))
    }
}

/// Schedule of a run of this configuration.
pub(super) fn schedule(config: &Config) -> Schedule {
    Schedule {
        epochs: config.num_epochs,
        paths: config.edge_paths.len() as u64,
        chunks: config.num_edge_chunks.unwrap_or(1),
    }
}

/// Attributes of the last iteration of a run.
fn iteration(config: &Config) -> Vec<(String, Value)> {
    let schedule = schedule(config);
    let last = schedule.iterations().and_then(|all| schedule.made_by(all));
    let EpochPosition { epoch, path, chunk } = last.unwrap_or(EpochPosition { epoch: 0, path: 0, chunk: 0 });
    let edge_path = usize::try_from(path).ok().and_then(|path| config.edge_paths.get(path));
    let number = |n: u64| Value::I64(i64::try_from(n).unwrap_or(i64::MAX));
    [
        ("num_epochs", number(schedule.epochs)),
        ("epoch_idx", number(epoch)),
        ("num_edge_paths", number(schedule.paths)),
        ("edge_path_idx", number(path)),
        ("edge_path", Value::Text(edge_path.cloned().unwrap_or_default())),
        ("num_edge_chunks", number(schedule.chunks)),
        ("edge_chunk_idx", number(chunk)),
    ]
    .map(|(name, value)| (format!("iteration/{name}"), value))
    .into()
}

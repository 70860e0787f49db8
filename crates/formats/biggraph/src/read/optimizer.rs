//! Optimizer state blob of a file: located, read, and converted to metadata.

use super::super::state::{self, State};
use super::file::File;
use weighbridge_core::checkpoint::{Name, Note, TensorPath, Value};
use weighbridge_core::error::{Error, Kind as Situation};
use weighbridge_core::tensor::DType;
use weighbridge_format::OpenOptions;
use weighbridge_hdf5::Kind;

/// Path of the blob.
pub(crate) const STATE: [&str; 2] = ["optimizer", "state_dict"];

/// Unreadable blob: the checkpoint is opened without it.
pub(super) struct UnreadableState(pub(super) Note);

/// State in the blob of a file; `None` if the file has no blob.
pub(super) fn state_of(file: &File, options: &OpenOptions) -> Result<Option<State>, UnreadableState> {
    let Some(dataset) = file.dataset(&STATE) else { return Ok(None) };
    let read = || {
        let bytes =
            matches!(&dataset.kind, Kind::Opaque { size: 1, .. } | Kind::Numbers(DType::U8 | DType::I8, _));
        if !bytes || dataset.shape.rank() != 1 {
            return Err(Error::corrupt(
                "state-form",
                "the optimizer state is not a one-dimensional byte dataset",
            ));
        }
        state::read(&dataset.entry(TensorPath::value())?, &options.limits)
    };
    read().map(Some).map_err(|error| {
        let damaged = !matches!(error.kind(), Situation::Unsupported | Situation::Limit);
        let code = if damaged { "state-broken" } else { "state-not-understood" };
        let text = format!("{}: optimizer state dropped: {}", file.source.label(), error.message());
        UnreadableState(Note::omission(code, text))
    })
}

/// Form of a blob and its options, as metadata: `form`, `param_groups`, and `empty` for a blob with
/// options and no state.
pub(super) fn optimizer_value(state: &State) -> Value {
    let form = (Name::from("form"), Value::Text(state.form.to_owned()));
    let groups = state.groups.clone().map(|groups| (Name::from("param_groups"), groups));
    let empty = (groups.is_some() && state.state.is_empty()).then(state::empty_mark);
    Value::Map(std::iter::once(form).chain(groups).chain(empty).collect())
}

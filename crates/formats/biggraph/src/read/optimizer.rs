//! The blob of a file: found, read, and what it says as metadata.

use super::super::state::{self, State};
use super::file::File;
use weighbridge_core::checkpoint::{Name, Note, TensorPath, Value};
use weighbridge_core::error::{Error, Kind as Situation};
use weighbridge_core::tensor::DType;
use weighbridge_format::OpenOptions;
use weighbridge_hdf5::Kind;

/// Where the blob stands.
pub(crate) const STATE: [&str; 2] = ["optimizer", "state_dict"];

/// A blob that cannot be read: the checkpoint is one without it.
pub(super) struct Broken(pub(super) Note);

/// What the blob of a file says; `None` where the file has none.
pub(super) fn state_of(file: &File, options: &OpenOptions) -> Result<Option<State>, Broken> {
    let Some(dataset) = file.dataset(&STATE) else { return Ok(None) };
    let read = || {
        let bytes =
            matches!(&dataset.kind, Kind::Opaque { size: 1, .. } | Kind::Numbers(DType::U8 | DType::I8, _));
        if !bytes || dataset.shape.rank() != 1 {
            return Err(Error::corrupt("state-form", "the optimizer's state is not kept as a row of bytes"));
        }
        state::read(&dataset.entry(TensorPath::value())?, &options.limits)
    };
    read().map(Some).map_err(|error| {
        let damaged = !matches!(error.kind(), Situation::Unsupported | Situation::Limit);
        let code = if damaged { "state-broken" } else { "state-not-understood" };
        let text = format!(
            "{}: the optimizer's state cannot be read and was left out: {}",
            file.source.label(),
            error.message()
        );
        Broken(Note::omission(code, text))
    })
}

/// The form of a blob and the options in it, as metadata: `form`, `param_groups`, and `empty` where it has
/// options and remembers nothing.
pub(super) fn optimizer_value(state: &State) -> Value {
    let form = (Name::from("form"), Value::Text(state.form.to_owned()));
    let groups = state.groups.clone().map(|groups| (Name::from("param_groups"), groups));
    let empty = (groups.is_some() && state.state.is_empty()).then(state::empty_mark);
    Value::Map(std::iter::once(form).chain(groups).chain(empty).collect())
}

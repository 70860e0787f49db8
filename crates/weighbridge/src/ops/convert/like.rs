//! Tensors of one model in the layout of another.

use crate::checkpoint::{Attributes, Checkpoint, TensorEntry, Value};
use crate::error::{Error, Result};
use crate::formats::{self, OpenOptions};
use crate::ops::inputs::Inputs;
use crate::source::LocalFolder;
use crate::text::{counted, first_and_more};
use std::collections::HashMap;
use std::path::Path;
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Maximum number of tensors that an error names.
const MAX_NAMED: usize = 5;
/// Attributes about bytes shared by tensors: they follow the elements.
const SHARING: [&str; 2] = [Attributes::ALIAS_OF, Attributes::STORAGE];

/// Fails where writing to `target` would replace the model `like`, or a file of it.
///
/// # Errors
/// [`crate::Kind::Usage`], `output-is-input`.
pub(super) fn check_apart(like: &Path, target: &Path) -> Result<()> {
    let mut inputs = Inputs::default();
    inputs.add(like.to_owned());
    // A path that is no folder has no files; opening reports its errors.
    if let Ok(found) = LocalFolder::open(like).and_then(|folder| folder.survey(1)) {
        found.items.iter().for_each(|item| inputs.add(like.join(&item.name)));
    }
    inputs.check_apart(target)
}

/// Returns the model at `like` with the elements of the tensors of `source`, by name. A tensor of the model may also be named by
/// its structured name or variable name. Without state, the optimizer state of both is dropped.
///
/// # Errors
/// Errors of opening; [`crate::Kind::Mismatch`]: `missing-tensors`, `extra-tensors`, `shape-differs`, `dtype-differs`,
/// `name-collision`.
pub(super) fn fill(
    source: Checkpoint,
    like: &Path,
    open: &OpenOptions,
    no_state: bool,
) -> Result<Checkpoint> {
    let open = OpenOptions { lenient: open.lenient, limits: open.limits.clone(), ..OpenOptions::default() };
    let mut model = formats::open_with(like, &open)?;
    let label = model.label.clone();
    let places = places(&model.tensors);
    let mut found: Vec<Option<TensorEntry>> = vec![None; model.tensors.len()];
    // New names of the source's tensors, for their ties.
    let (mut renamed, mut extra) = (HashMap::new(), Vec::new());
    for tensor in source.tensors {
        let name = tensor.text();
        let Some(&place) = places.get(&name) else {
            extra.push(tensor.name());
            continue;
        };
        renamed.insert(name, model.tensors[place].text());
        if found[place].replace(tensor).is_some() {
            let text = "two tensors of the source belong to one tensor of the model";
            return Err(Error::mismatch("name-collision", text).on_tensor(model.tensors[place].name()));
        }
    }
    let (mut tensors, mut missing, mut state) = (Vec::new(), Vec::new(), 0usize);
    for (own, given) in std::mem::take(&mut model.tensors).into_iter().zip(found) {
        match given {
            _ if no_state && own.role.is_state() => {}
            Some(given) => tensors.push(filled(own, given, &renamed)?),
            None => {
                state += usize::from(own.role.is_state());
                missing.push(own.name());
            }
        }
    }
    if !missing.is_empty() {
        let count = counted(missing.len(), "tensor of the model is", "tensors of the model are");
        let error = Error::mismatch("missing-tensors", format!("{count} missing in the source"))
            .expected(format_args!("the tensors of {}", escape_text(&label)))
            .found(format_args!("no {}", first_and_more(&missing, MAX_NAMED)));
        let hint = match state == missing.len() {
            true => phrase![Opt::NoState, " writes the model without its optimizer state"],
            false => phrase![Opt::Rename, " changes the names in the source"],
        };
        return Err(error.hint(hint));
    }
    if !extra.is_empty() {
        let count = counted(extra.len(), "tensor of the source is", "tensors of the source are");
        return Err(Error::mismatch("extra-tensors", format!("{count} not in the model"))
            .expected(format_args!("the tensors of {}", escape_text(&label)))
            .found(first_and_more(&extra, MAX_NAMED))
            .hint(phrase![
                Opt::Rename,
                " changes the names in the source, ",
                Opt::Drop,
                " leaves tensors out"
            ]));
    }
    model.tensors = tensors;
    if no_state {
        model.drop_state();
    }
    // Parts of the source that are not in its index stay losses.
    model.notes.extend(source.notes.into_iter().filter(|note| note.omission));
    model.damage = source.damage;
    Ok(model)
}

/// Returns the places of tensors by name. A name of several tensors that is not the path of one of them has none.
fn places(tensors: &[TensorEntry]) -> HashMap<String, usize> {
    let mut others: HashMap<String, Option<usize>> = HashMap::new();
    for (place, tensor) in tensors.iter().enumerate() {
        for key in [Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME] {
            let Some(name) = tensor.text_attribute(key) else { continue };
            let other = others.entry(name.to_owned()).or_insert(Some(place));
            *other = other.filter(|&other| other == place);
        }
    }
    let mut places: HashMap<String, usize> =
        others.into_iter().filter_map(|(name, place)| Some((name, place?))).collect();
    places.extend(tensors.iter().enumerate().map(|(place, tensor)| (tensor.text(), place)));
    places
}

/// Returns the tensor `own` of the model with the elements of `given`.
fn filled(own: TensorEntry, given: TensorEntry, renamed: &HashMap<String, String>) -> Result<TensorEntry> {
    let fail = |code, what: &str| {
        Error::mismatch(code, format!("the tensor has another {what} in the model")).on_tensor(given.name())
    };
    if given.shape != own.shape {
        return Err(fail("shape-differs", "shape").expected(&own.shape).found(&given.shape));
    }
    if given.dtype() != own.dtype() {
        let error = fail("dtype-differs", "dtype").expected(own.dtype()).found(given.dtype());
        let hint = phrase![Opt::Cast.with(own.dtype().to_string()), " casts the tensors of the source"];
        return Err(match own.dtype().is_float() && given.dtype().is_float() {
            true => error.hint(hint),
            false => error,
        });
    }
    let mut attributes = own.attributes;
    for key in SHARING {
        attributes.remove(key);
        let Some(value) = given.attributes.get(key) else { continue };
        let value = match value {
            Value::Text(name) => Value::Text(renamed.get(name).unwrap_or(name).clone()),
            value => value.clone(),
        };
        attributes.insert(key.to_owned(), value);
    }
    Ok(TensorEntry {
        path: own.path,
        role: own.role,
        attributes,
        row_names: given.row_names.or(own.row_names),
        guessed: own.guessed || given.guessed,
        ..given
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::ops::{Changes, ConvertOptions, convert};
    use crate::tensor::{DType, Order};
    use std::path::PathBuf;

    fn model(name: &str) -> PathBuf {
        weighbridge_testkit::testdata(format!("hdf5/models/{name}"))
    }

    fn options(like: &Path, changes: Changes) -> ConvertOptions {
        ConvertOptions { like: Some(like.to_owned()), changes, ..ConvertOptions::default() }
    }

    /// Returns the code of the error, after a conversion of the weights of `dense.keras` into it.
    fn code(target: &Path, changes: Changes) -> &'static str {
        let like = model("dense.keras");
        convert(&like, target, &options(&like, changes)).map_or_else(|e| e.code().as_str(), |_| "fine")
    }

    #[test]
    fn tensors_go_into_the_layout_of_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let (weights, target) = (folder.path().join("w.npz"), folder.path().join("m.keras"));
        let like = model("dense.keras");
        let plain = ConvertOptions { plain: true, ..ConvertOptions::default() };
        convert(&like, &weights, &plain).unwrap();
        convert(&weights, &target, &options(&like, Changes::default())).unwrap();
        let (own, written) = (formats::open(&like).unwrap(), formats::open(&target).unwrap());
        assert_eq!((written.format, written.kind), ("hdf5", "keras"));
        assert_eq!(written.metadata.to_json(), own.metadata.to_json());
        assert_eq!(written.tensors.len(), own.tensors.len());
        for (one, other) in written.tensors.iter().zip(&own.tensors) {
            assert_eq!((&one.path, &one.role), (&other.path, &other.role));
            assert_eq!(one.read_tensor(Order::Row).unwrap(), other.read_tensor(Order::Row).unwrap());
        }
        // Weights alone have another layout than a whole model.
        let error =
            convert(&weights, folder.path().join("m.h5"), &options(&model("dense.h5"), Changes::default()));
        assert_eq!(error.unwrap_err().code().as_str(), "missing-tensors");
    }

    #[test]
    fn each_tensor_must_be_in_both() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("m.keras");
        let drop = |pattern: &str| Changes { drop: vec![pattern.to_owned()], ..Changes::default() };
        let rename = |rule: &str| Changes { rename: vec![rule.to_owned()], ..Changes::default() };
        assert_eq!(code(&target, drop("layers.dense.vars.0")), "missing-tensors");
        assert_eq!(code(&target, rename("layers.dense.vars.0=other")), "missing-tensors");
        let cast = Changes { cast: Some(DType::F16), ..Changes::default() };
        assert_eq!(code(&target, cast), "dtype-differs");
        let dense = crate::ops::edit::Rule::parse("transpose", &["layers.dense.vars.0".to_owned()]).unwrap();
        let transpose = Changes { rules: dense, ..Changes::default() };
        assert_eq!(code(&target, transpose), "shape-differs");
        assert!(!target.exists());
        let state = Changes { drop: vec!["optimizer.*".to_owned()], ..Changes::default() };
        let like = model("dense.keras");
        let error = convert(&like, &target, &options(&like, state.clone())).unwrap_err();
        assert_eq!(
            (error.code().as_str(), error.hint_text().unwrap().contains("no_state")),
            ("missing-tensors", false)
        );
        assert!(error.hint_text().unwrap().contains("optimizer state"), "{error}");
        convert(&like, &target, &options(&like, Changes { no_state: true, ..state })).unwrap();
        assert!(formats::open(&target).unwrap().tensors.iter().all(|tensor| !tensor.role.is_state()));
        // A smaller model than the source.
        let error = convert(&like, folder.path().join("c.keras"), &options(&target, Changes::default()));
        assert_eq!(error.unwrap_err().code().as_str(), "extra-tensors");
        let stateless = Changes { no_state: true, ..Changes::default() };
        convert(&like, folder.path().join("c.keras"), &options(&target, stateless)).unwrap();
    }

    #[test]
    fn state_without_a_role_is_dropped_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (weights, target) = (folder.path().join("w.safetensors"), folder.path().join("m.keras"));
        let like = model("dense.keras");
        convert(&like, &weights, &ConvertOptions { plain: true, ..ConvertOptions::default() }).unwrap();
        let stateless = Changes { no_state: true, ..Changes::default() };
        convert(&weights, &target, &options(&like, stateless)).unwrap();
        assert_eq!(formats::open(&target).unwrap().tensors.len(), 8);
    }

    #[test]
    fn variable_names_find_their_tensors() {
        let folder = tempfile::tempdir().unwrap();
        let (weights, target) = (folder.path().join("w.safetensors"), folder.path().join("m.h5"));
        let like = model("k2_dense.h5");
        let open = OpenOptions { names: formats::Names::Variable, ..OpenOptions::default() };
        convert(&like, &weights, &ConvertOptions { open, plain: true, ..ConvertOptions::default() }).unwrap();
        assert!(formats::open(&weights).unwrap().tensors.iter().any(|t| t.text() == "hidden/kernel:0"));
        convert(&weights, &target, &options(&like, Changes::default())).unwrap();
        let names = |path: &Path| {
            formats::open(path).unwrap().tensors.iter().map(TensorEntry::text).collect::<Vec<_>>()
        };
        assert_eq!(names(&target), names(&like));
        // Both names of one tensor.
        let mut both = formats::open(&weights).unwrap();
        both.tensors.extend(formats::open(&like).unwrap().tensors);
        let error = fill(both, &like, &OpenOptions::default(), false).unwrap_err();
        assert_eq!(error.code().as_str(), "name-collision");
    }

    #[test]
    fn the_model_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("m.keras");
        std::fs::copy(model("dense.keras"), &copy).unwrap();
        let before = std::fs::read(&copy).unwrap();
        let force = ConvertOptions { force: true, ..options(&copy, Changes::default()) };
        let error = convert(model("dense.keras"), &copy, &force).unwrap_err();
        assert_eq!(error.code().as_str(), "output-is-input");
        assert_eq!(std::fs::read(&copy).unwrap(), before);
        // Nor is a file of a model that is a folder.
        let force = ConvertOptions { force: true, ..options(folder.path(), Changes::default()) };
        let error = convert(model("dense.keras"), &copy, &force).unwrap_err();
        assert_eq!(error.code().as_str(), "output-is-input");
        assert_eq!(std::fs::read(&copy).unwrap(), before);
    }

    #[test]
    fn models_of_other_formats_are_filled_too() {
        let folder = tempfile::tempdir().unwrap();
        let like = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
        let (weights, target) = (folder.path().join("w.safetensors"), folder.path().join("m.model"));
        convert(&like, &weights, &ConvertOptions { plain: true, ..ConvertOptions::default() }).unwrap();
        convert(&weights, &target, &options(&like, Changes::default())).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), std::fs::read(&like).unwrap());
    }
}

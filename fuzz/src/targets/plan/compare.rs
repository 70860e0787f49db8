//! Comparison of a planned checkpoint with the one read back: all content must return, except for reported losses.

use std::collections::HashSet;
use weighbridge::LossCode;
use weighbridge::checkpoint::{
    Checkpoint, Loss, Role, RowNameList, TensorEntry, TensorPath, Value, escape_text,
};
use weighbridge::tensor::{Cast, DType, Order};

/// Formats of rows only, without names and roles of tensors.
const ROW_FORMATS: [&str; 2] = ["tsv", "word2vec"];

/// A tensor with its content.
#[derive(Debug, Clone)]
struct FullTensor {
    path: TensorPath,
    role: Role,
    dtype: String,
    dims: Vec<u64>,
    bytes: Vec<u8>,
    /// Elements cast to f32, if supported.
    as_f32: Option<Vec<u8>>,
    row_names: Option<RowNameList>,
    attributes: weighbridge::checkpoint::Attributes,
}

impl FullTensor {
    fn of(tensor: &TensorEntry) -> Result<Self, String> {
        let fail = |error| format!("{}: cannot be read: {error}", tensor.name());
        let row_names = tensor.row_names.as_ref().map(|names| names.read()).transpose().map_err(fail)?;
        let as_f32 = tensor.stored.cast_is_supported(DType::F32).then(|| {
            let cast = TensorEntry { cast: Some(Cast::from(DType::F32)), ..tensor.clone() };
            cast.read_tensor(Order::Row).map_err(fail)
        });
        Ok(Self {
            as_f32: as_f32.transpose()?,
            path: tensor.path.clone(),
            role: tensor.role.clone(),
            dtype: tensor.dtype().to_string(),
            dims: tensor.shape.dims().to_vec(),
            bytes: tensor.read_tensor(Order::Row).map_err(fail)?,
            row_names: row_names.map(|list| (*list).clone()),
            attributes: tensor.attributes.clone(),
        })
    }
}

/// Differences of a tensor that the losses explain.
#[derive(Debug, Default)]
struct Excuses {
    /// Missing tensor.
    absent: bool,
    name: bool,
    role: bool,
    dtype: bool,
    /// Dimensions of size 1.
    ones: bool,
    /// NaN payloads.
    payloads: bool,
    row_names: bool,
    /// Details of attribute losses, each with the name of an attribute.
    attributes: Vec<String>,
    all_attributes: bool,
}

/// Returns the differences of `tensor` that the losses of the plan explain.
///
/// # Errors
/// A loss code that this function does not handle yet.
fn excuses(tensor: &TensorEntry, format: &str, losses: &[Loss]) -> Result<Excuses, String> {
    let mut all = Excuses::default();
    if ROW_FORMATS.contains(&format) {
        // With "apart", the file name is the name of the tensor.
        all.name = losses.iter().any(|loss| loss.code == "apart");
        // NaN is written as `nan`, without payload.
        all.payloads = true;
        // Tables may be read as embeddings.
        all.role = matches!(tensor.role, Role::Parameter | Role::Embedding);
    }
    if format == "biggraph" {
        // A table named by its type only is read as the embedding `embeddings.TYPE`.
        all.name = tensor.path.parts().len() == 1;
        all.role = matches!(tensor.role, Role::Parameter | Role::Embedding);
    }
    for loss in losses {
        let its = loss.subject == tensor.name()
            || (tensor.role.slot().is_none() && loss.subject == tensor.path.to_string());
        match loss.code {
            LossCode::NoPlace | LossCode::NotATable | LossCode::StateDropped | LossCode::StateSlot => {
                all.absent |= its
            }
            LossCode::NameDropped => all.name |= its,
            // BigGraph changes name and role of a table. Other formats report one loss for all names that have other parts
            // when split at dots.
            LossCode::NameChanged if format == "biggraph" => {
                all.name |= its;
                all.role |= its;
            }
            LossCode::NameChanged => {
                all.name |= TensorPath::from_dotted(&tensor.path.to_text()) != tensor.path
            }
            // One loss for all tensors that are neither parameters nor state.
            LossCode::RoleDropped => all.role |= tensor.role.slot().is_none(),
            LossCode::Role => all.role |= its,
            // The key of state includes its slot and becomes the name of a parameter, or the other way round.
            LossCode::ReadAsParameter | LossCode::ReadAsState => {
                all.role |= its;
                all.name |= its;
            }
            LossCode::IndexDropped => {
                all.role |= its;
                all.all_attributes |= its;
            }
            LossCode::AttributeDropped if its => all.attributes.push(loss.detail.to_string()),
            LossCode::DtypeLost | LossCode::Rounding => all.dtype |= its,
            LossCode::Shape | LossCode::ShapeNormalised => all.ones |= its,
            // Losses name a BigGraph table by its type.
            LossCode::NamesLeftOut if format == "biggraph" => {
                let last = tensor.path.parts().last();
                all.row_names |= its || last.is_some_and(|last| last.to_text() == loss.subject);
            }
            LossCode::NamesLeftOut | LossCode::NamesMade => all.row_names |= its,
            // The row names become a column.
            LossCode::NamesLikeNumbers => all.absent |= its,
            // Without rows there may be no file.
            LossCode::NoRows => all.absent |= its,
            // Losses of keys, which `compare` handles; of the whole checkpoint; and warnings about compatibility.
            LossCode::AttributeDropped
            | LossCode::MetadataDropped
            | LossCode::ReservedKey
            | LossCode::Apart
            | LossCode::ConfigMade
            | LossCode::Omitted
            | LossCode::Program
            | LossCode::Companion
            | LossCode::RecentDtype
            | LossCode::DtypeRefused
            | LossCode::Renamed => {}
            code => return Err(format!("unhandled loss code {code}")),
        }
    }
    Ok(all)
}

/// Replaces every NaN of f32 elements by the same one.
fn without_payloads(bytes: &[u8]) -> Vec<u8> {
    let plain = |one: &[u8; 4]| if f32::from_le_bytes(*one).is_nan() { f32::NAN.to_le_bytes() } else { *one };
    bytes.as_chunks().0.iter().flat_map(plain).collect()
}

/// Fails unless `read` equals `written`, except for excused differences; returns the kind of difference.
fn check_equal(read: &FullTensor, written: &FullTensor, excused: &Excuses) -> Result<(), &'static str> {
    let without_ones = |dims: &[u64]| dims.iter().copied().filter(|&dim| dim != 1).collect::<Vec<_>>();
    let same = |same: bool, what| if same { Ok(()) } else { Err(what) };
    same(excused.name || read.path == written.path, "name")?;
    same(excused.role || read.role == written.role, "role")?;
    same(excused.dtype || read.dtype == written.dtype, "dtype")?;
    let ones = excused.ones && without_ones(&read.dims) == without_ones(&written.dims);
    same(ones || read.dims == written.dims, "shape")?;
    // Equal bytes of another dtype, or equal values after a cast to f32.
    let cast = match &written.as_f32 {
        Some(as_f32) if read.dtype == "f32" && excused.payloads => {
            without_payloads(as_f32) == without_payloads(&read.bytes)
        }
        Some(as_f32) => read.dtype == "f32" && *as_f32 == read.bytes,
        None => false,
    };
    same(cast || read.bytes == written.bytes, "values")?;
    same(excused.row_names || read.row_names == written.row_names, "row names")?;
    let mut attributes = written.attributes.iter();
    let kept = attributes.all(|(key, value)| {
        read.attributes.get(key) == Some(value)
            || excused.attributes.iter().any(|detail| detail.contains(&escape_text(key)))
    });
    same(excused.all_attributes || kept, "attributes")
}

/// Assigns a read tensor to an expected one; reassigns others if needed (augmenting paths of a bipartite matching).
fn find_match(wanted: usize, fits: &[Vec<bool>], taken: &mut [Option<usize>], tried: &mut [bool]) -> bool {
    for place in 0..taken.len() {
        if !fits[wanted][place] || std::mem::replace(&mut tried[place], true) {
            continue;
        }
        if taken[place].is_none_or(|other| find_match(other, fits, taken, tried)) {
            taken[place] = Some(wanted);
            return true;
        }
    }
    false
}

/// Returns true if `read` is what Python's value of `written` is read as: an integer of 64 bits, a float of 64 bits.
fn python_equal(read: &Value, written: &Value) -> bool {
    match (read, written) {
        (Value::I64(read), Value::U32(written)) => *read == i64::from(*written),
        (Value::I64(read), Value::U64(written)) => u64::try_from(*read) == Ok(*written),
        (Value::F64(read), Value::F32(written)) => {
            let (read, written) = (f64::from_bits(*read), f64::from(f32::from_bits(*written)));
            read == written || read.is_nan() && written.is_nan()
        }
        (Value::List(read), Value::List(written)) => {
            read.len() == written.len()
                && read.iter().zip(written).all(|(read, written)| python_equal(read, written))
        }
        (Value::Map(read), Value::Map(written)) => {
            read.len() == written.len()
                && read
                    .iter()
                    .zip(written)
                    .all(|((a, read), (b, written))| a == b && python_equal(read, written))
        }
        _ => read == written,
    }
}

/// Compares the checkpoint read back with the one written.
///
/// # Errors
/// Missing or extra content that no loss explains.
pub(super) fn compare(
    written: &Checkpoint,
    read: &Checkpoint,
    format: &str,
    losses: &[Loss],
) -> Result<(), String> {
    let reported =
        || losses.iter().map(|loss| format!("{} of {}", loss.code, loss.subject)).collect::<Vec<_>>();
    let mut read_tensors = read.tensors.iter().map(FullTensor::of).collect::<Result<Vec<_>, _>>()?;
    let mut expected = Vec::new();
    for tensor in &written.tensors {
        expected.push((FullTensor::of(tensor)?, excuses(tensor, format, losses)?));
    }
    let absent = expected.iter().filter(|(_, excused)| excused.absent).count();
    expected.retain(|(_, excused)| !excused.absent);
    let fits: Vec<Vec<bool>> = expected
        .iter()
        .map(|(wanted, excused)| {
            read_tensors.iter().map(|read| check_equal(read, wanted, excused).is_ok()).collect()
        })
        .collect();
    let mut taken: Vec<Option<usize>> = vec![None; read_tensors.len()];
    for (number, (wanted, excused)) in expected.iter().enumerate() {
        if !find_match(number, &fits, &mut taken, &mut vec![false; read_tensors.len()]) {
            let differ: Vec<_> = read_tensors.iter().map(|read| check_equal(read, wanted, excused)).collect();
            return Err(format!(
                "{wanted:?} is not read back, only {read_tensors:?} ({differ:?}); losses: {:?}",
                reported()
            ));
        }
    }
    let mut taken = taken.into_iter();
    read_tensors.retain(|_| taken.next().flatten().is_none());
    if read_tensors.len() > absent {
        return Err(format!("{read_tensors:?} was never written; losses: {:?}", reported()));
    }
    let dropped: HashSet<&str> = losses
        .iter()
        .filter(|loss| matches!(loss.code, LossCode::MetadataDropped | LossCode::ReservedKey))
        .map(|loss| loss.subject.as_str())
        .collect();
    for (key, value) in written.metadata.iter() {
        let found = read.metadata.get(key);
        let is_kept = match found {
            // Python's numbers have no width.
            Some(found) if format == "dcp" => python_equal(found, value),
            found => found == Some(value),
        };
        if !is_kept && !dropped.contains(escape_text(key).as_str()) {
            return Err(format!(
                "metadata {key:?} = {value:?} is read as {found:?}; losses: {:?}",
                reported()
            ));
        }
    }
    Ok(())
}

//! What was planned beside what is read back: all that no loss names must be there.

use std::collections::HashSet;
use weighbridge::LossCode;
use weighbridge::checkpoint::{Checkpoint, Loss, Role, RowNameList, TensorEntry, TensorPath, escape_text};
use weighbridge::tensor::{Cast, DType, Order};

/// Formats whose files are rows alone, of which nothing says what they are for.
const ROWS_ALONE: [&str; 2] = ["tsv", "word2vec"];

/// A tensor, all of it.
#[derive(Debug, Clone)]
struct Seen {
    path: TensorPath,
    role: Role,
    dtype: String,
    dims: Vec<u64>,
    bytes: Vec<u8>,
    /// The bytes of the elements as f32, where they can be that.
    as_f32: Option<Vec<u8>>,
    row_names: Option<RowNameList>,
    attributes: weighbridge::checkpoint::Attributes,
}

impl Seen {
    fn of(tensor: &TensorEntry) -> Result<Self, String> {
        let fail = |error| format!("{}: cannot be read: {error}", tensor.name());
        let labels = tensor.row_names.as_ref().map(|labels| labels.read()).transpose().map_err(fail)?;
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
            row_names: labels.map(|list| (*list).clone()),
            attributes: tensor.attributes.clone(),
        })
    }
}

/// What losses excuse of one tensor.
#[derive(Debug, Default)]
struct Excuses {
    /// All of it.
    absent: bool,
    name: bool,
    role: bool,
    dtype: bool,
    /// Dimensions of one element, not the others.
    ones: bool,
    /// Which NaN it was.
    payloads: bool,
    row_names: bool,
    /// The details of losses of attributes, each of which names one; and all of them.
    attributes: Vec<String>,
    all_attributes: bool,
}

/// What the losses of the plan excuse of `tensor`.
///
/// # Errors
/// A code that is not known here: it is to be decided what it excuses.
fn excuses(tensor: &TensorEntry, format: &str, losses: &[Loss]) -> Result<Excuses, String> {
    let mut all = Excuses::default();
    if ROWS_ALONE.contains(&format) {
        // "apart" says where the name of each is: it is that of its file.
        all.name = losses.iter().any(|loss| loss.code == "apart");
        // The word is `nan`, as the formats' pages say.
        all.payloads = true;
        // A table of rows is one of embeddings as like as not.
        all.role = matches!(tensor.role, Role::Parameter | Role::Embedding);
    }
    if format == "biggraph" {
        // A table that is called by its type alone is read as `embeddings.TYPE`, one of embeddings.
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
            // A table of BigGraph has a name and a role of its own; of others there is one loss for those whose names
            // have other parts when they are cut at their dots.
            LossCode::NameChanged if format == "biggraph" => {
                all.name |= its;
                all.role |= its;
            }
            LossCode::NameChanged => {
                all.name |= TensorPath::from_dotted(&tensor.path.to_text()) != tensor.path
            }
            // One loss for all that are neither parameters nor state.
            LossCode::RoleDropped => all.role |= tensor.role.slot().is_none(),
            LossCode::Role => all.role |= its,
            // State has its slot in its key, which is the name of a parameter then; and the other way round.
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
            // A table of BigGraph is spoken of by its type.
            LossCode::NamesLeftOut if format == "biggraph" => {
                let last = tensor.path.parts().last();
                all.row_names |= its || last.is_some_and(|last| last.to_text() == loss.subject);
            }
            LossCode::NamesLeftOut | LossCode::NamesMade => all.row_names |= its,
            // The names become a column.
            LossCode::NamesLikeNumbers => all.absent |= its,
            // There may be no file of rows without a row.
            LossCode::NoRows => all.absent |= its,
            // Of keys, which `compare` asks for; of the whole; and what is there all the same, but not for everybody.
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
            code => return Err(format!("what does the loss {code} excuse?")),
        }
    }
    Ok(all)
}

/// The bytes of f32 with one NaN for all.
fn without_payloads(bytes: &[u8]) -> Vec<u8> {
    let plain = |one: &[u8; 4]| if f32::from_le_bytes(*one).is_nan() { f32::NAN.to_le_bytes() } else { *one };
    bytes.as_chunks().0.iter().flat_map(plain).collect()
}

/// Fails unless `read` is what was written, but for what is excused.
fn is_same(read: &Seen, written: &Seen, excused: &Excuses) -> Result<(), &'static str> {
    let without_ones = |dims: &[u64]| dims.iter().copied().filter(|&dim| dim != 1).collect::<Vec<_>>();
    let same = |same: bool, what| if same { Ok(()) } else { Err(what) };
    same(excused.name || read.path == written.path, "name")?;
    same(excused.role || read.role == written.role, "role")?;
    same(excused.dtype || read.dtype == written.dtype, "type")?;
    let ones = excused.ones && without_ones(&read.dims) == without_ones(&written.dims);
    same(ones || read.dims == written.dims, "shape")?;
    // Bytes that are read as another type, or the values as that type has them.
    let cast = match &written.as_f32 {
        Some(as_f32) if read.dtype == "f32" && excused.payloads => {
            without_payloads(as_f32) == without_payloads(&read.bytes)
        }
        Some(as_f32) => read.dtype == "f32" && *as_f32 == read.bytes,
        None => false,
    };
    same(cast || read.bytes == written.bytes, "values")?;
    same(excused.row_names || read.row_names == written.row_names, "names of rows")?;
    let mut attributes = written.attributes.iter();
    let kept = attributes.all(|(key, value)| {
        read.attributes.get(key) == Some(value)
            || excused.attributes.iter().any(|detail| detail.contains(&escape_text(key)))
    });
    same(excused.all_attributes || kept, "attributes")
}

/// Gives a wanted tensor a place that fits it, where need be by giving those that have one another: what little is known
/// of one shall not keep another from the only one that it can be.
fn find_place(wanted: usize, fits: &[Vec<bool>], taken: &mut [Option<usize>], tried: &mut [bool]) -> bool {
    for place in 0..taken.len() {
        if !fits[wanted][place] || std::mem::replace(&mut tried[place], true) {
            continue;
        }
        if taken[place].is_none_or(|other| find_place(other, fits, taken, tried)) {
            taken[place] = Some(wanted);
            return true;
        }
    }
    false
}

/// Holds what was read against what was planned.
///
/// # Errors
/// What is missing, or there too much, although no loss names it.
pub(super) fn compare(
    written: &Checkpoint,
    read: &Checkpoint,
    format: &str,
    losses: &[Loss],
) -> Result<(), String> {
    let told = || losses.iter().map(|loss| format!("{} of {}", loss.code, loss.subject)).collect::<Vec<_>>();
    let mut read_tensors = read.tensors.iter().map(Seen::of).collect::<Result<Vec<_>, _>>()?;
    let mut expected = Vec::new();
    for tensor in &written.tensors {
        expected.push((Seen::of(tensor)?, excuses(tensor, format, losses)?));
    }
    let absent = expected.iter().filter(|(_, excused)| excused.absent).count();
    expected.retain(|(_, excused)| !excused.absent);
    let fits: Vec<Vec<bool>> = expected
        .iter()
        .map(|(wanted, excused)| {
            read_tensors.iter().map(|read| is_same(read, wanted, excused).is_ok()).collect()
        })
        .collect();
    let mut taken: Vec<Option<usize>> = vec![None; read_tensors.len()];
    for (number, (wanted, excused)) in expected.iter().enumerate() {
        if !find_place(number, &fits, &mut taken, &mut vec![false; read_tensors.len()]) {
            let differ: Vec<_> = read_tensors.iter().map(|read| is_same(read, wanted, excused)).collect();
            return Err(format!(
                "{wanted:?} is not read back, only {read_tensors:?} ({differ:?}); losses: {:?}",
                told()
            ));
        }
    }
    let mut taken = taken.into_iter();
    read_tensors.retain(|_| taken.next().flatten().is_none());
    if read_tensors.len() > absent {
        return Err(format!("{read_tensors:?} was never written; losses: {:?}", told()));
    }
    let dropped: HashSet<&str> = losses
        .iter()
        .filter(|loss| matches!(loss.code, LossCode::MetadataDropped | LossCode::ReservedKey))
        .map(|loss| loss.subject.as_str())
        .collect();
    for (key, value) in written.metadata.iter() {
        let found = read.metadata.get(key);
        if found != Some(value) && !dropped.contains(escape_text(key).as_str()) {
            return Err(format!("metadata {key:?} = {value:?} is read as {found:?}; losses: {:?}", told()));
        }
    }
    Ok(())
}

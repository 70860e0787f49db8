//! Checkpoint folders, and their single files.

use super::super::align::ALIGNED;
use super::super::layout::FileName;
use super::super::state::{self, Slots, Step};
use super::super::text::number_text;
use super::known::{self, CONFIG_FILE, Known};
use super::model::{self, Model};
use super::root::{self, Root};
use super::settings::Settings;
use super::tables::{self, Part, Table};
use super::{as_float32, bytes_of, entities, foreign, literal, no_place, no_such_slot};
use weighbridge_core::checkpoint::{Checkpoint, Loss, TensorEntry};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::PlannedFile;
use weighbridge_core::{ErrorCode, phrase};
use weighbridge_hdf5::write::{Data, Hdf5Builder};
use weighbridge_io::source::SourceRef;

/// Name of the training statistics file.
const STATS_FILE: &str = "training_stats.json";
/// Dataset of rows.
const EMBEDDINGS: &str = "embeddings";

/// Common properties of table files.
struct Form<'a> {
    root: &'a Root,
    /// True to convert rows and sums to `f32`, as upstream writes them.
    float32: bool,
    /// Default learning rate of an optimizer.
    lr: f64,
    /// Optimizer state as written by `torch.save`; otherwise made from the sums of the table.
    state: Option<&'a [u8]>,
}

/// Plans a checkpoint of one version. The version file comes last.
pub(super) fn folder(
    checkpoint: &Checkpoint,
    settings: &Settings,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    let known = known::find(checkpoint)?;
    let tables = tables::tables(checkpoint, settings, known.as_ref().map(|k| &k.config))?;
    let mut known = match known {
        Some(known) => known,
        None => known::make(&tables, losses)?,
    };
    known::fit(&mut known, &tables, losses)?;
    let version = version(checkpoint, settings, &known)?;
    let root = Root::of(checkpoint, Some(&known.config), known.changed.then_some(known.text.as_str()));
    let form = Form { root: &root, float32: true, lr: known.config.lr, state: None };
    let mut files = partitions(&tables, version, &form, losses)?;
    losses.extend(settings.entity.is_none().then(|| foreign::names(&tables)).into_iter().flatten());
    let name = FileName::Model { version }.to_string();
    files.push(Model::of(checkpoint).file(name, &root, Some(&known.config), None, losses)?);
    rest(checkpoint, &tables, losses);
    let relations: Vec<String> = known.config.relations.iter().map(|r| r.name.clone()).collect();
    let relations = (!known.config.dynamic_relations).then_some(relations.as_slice());
    files.extend(names(checkpoint, &tables, settings, relations, losses)?);
    files.push(match &known.file {
        Some(source) => bytes_of(CONFIG_FILE, source.clone())?,
        None => literal(CONFIG_FILE, &known.text),
    });
    if let Some(source) = companion(checkpoint, STATS_FILE) {
        files.push(bytes_of(STATS_FILE, source.clone())?);
    }
    files.push(literal(&FileName::Version.to_string(), number_text(version)));
    Ok(files)
}

/// Plans an `init_path` folder: version 0, without a version file.
pub(super) fn init(
    checkpoint: &Checkpoint,
    settings: &Settings,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    if settings.version.is_some_and(|version| version != 0) {
        return Err(Error::usage("bad-setting", "the files of an init_path must have version 0")
            .hint(phrase![Opt::Kind.with("checkpoint"), " writes another version"]));
    }
    let known = known::find(checkpoint)?;
    let config = known.as_ref().map(|k| &k.config);
    let tables = tables::tables(checkpoint, settings, config)?;
    let root = Root::of(checkpoint, None, known.as_ref().and_then(Known::instead));
    let form = Form { root: &root, float32: false, lr: config.map_or(DEFAULT_LR, |c| c.lr), state: None };
    let mut files = partitions(&tables, 0, &form, losses)?;
    losses.extend(settings.entity.is_none().then(|| foreign::names(&tables)).into_iter().flatten());
    let model = Model::of(checkpoint);
    if !model.is_empty() {
        let name = FileName::Model { version: 0 }.to_string();
        files.push(model.file(name, &root, config, None, losses)?);
    }
    rest(checkpoint, &tables, losses);
    files.extend(names(checkpoint, &tables, settings, None, losses)?);
    Ok(files)
}

/// Learning rate of a configuration without one.
const DEFAULT_LR: f64 = 0.01;

/// Plans one table as one file.
pub(super) fn embeddings(
    checkpoint: &Checkpoint,
    settings: &Settings,
    losses: &mut Vec<Loss>,
) -> Result<PlannedFile> {
    let known = known::find(checkpoint)?;
    // The file does not contain the type.
    let settings =
        Settings { entity: settings.entity.clone().or(Some("table".to_owned())), ..Settings::default() };
    let tables = tables::tables(checkpoint, &settings, None).map_err(|e| match e.code() {
        ErrorCode::OneType => Error::mismatch("several-tables", "an embeddings file holds one table")
            .in_file(&checkpoint.label)
            .hint(phrase![
                Opt::Select,
                " selects one; ",
                Opt::Kind.with("checkpoint"),
                " writes a folder with all tables"
            ]),
        _ => e,
    })?;
    let table = tables.first().ok_or_else(|| Error::mismatch("no-tables", "no embedding table"))?;
    let root = Root::of(checkpoint, None, known.as_ref().and_then(Known::instead));
    let lr = known.map_or(DEFAULT_LR, |k| k.config.lr);
    let form = Form { root: &root, float32: false, lr, state: None };
    let all = table.rows.shape.dims().first().copied().unwrap_or(0);
    let file = partition(table, &Part { number: 0, rows: 0..all }, String::new(), &form, losses)?;
    rest(checkpoint, &tables, losses);
    if table.row_names().is_some() {
        losses.push(names_left_out(table));
    }
    Ok(file)
}

/// Plans the parameters as one file.
pub(super) fn model(checkpoint: &Checkpoint, losses: &mut Vec<Loss>) -> Result<PlannedFile> {
    let known = known::find(checkpoint)?;
    let root = Root::of(checkpoint, None, known.as_ref().and_then(Known::instead));
    let model = Model::of(checkpoint);
    let file = model.file(String::new(), &root, known.as_ref().map(|k| &k.config), None, losses)?;
    for tensor in checkpoint.tensors.iter().filter(|t| !model::is_parameter(&t.path)) {
        losses.push(no_place(tensor));
    }
    Ok(file)
}

/// Lays out one file of a version: partition `part` of the only table of `checkpoint`, or its parameters
/// if `part` is `None`. A table larger than memory can be written this way, one partition at a time.
///
/// `state` is the optimizer state as written by `torch.save`. Without it, the state is made from the tensors with the
/// role of optimizer state. Rows and sums become `f32`.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-tables`, `several-tables`, `no-place` if a tensor does not belong in the file.
pub fn version_file(
    checkpoint: &Checkpoint,
    version: u64,
    part: Option<u64>,
    state: Option<&[u8]>,
) -> Result<(PlannedFile, Vec<Loss>)> {
    let mut losses = Vec::new();
    let known = known::find(checkpoint)?;
    let config = known.as_ref().map(|k| &k.config);
    let root = Root::of(checkpoint, config, known.as_ref().and_then(Known::instead));
    let Some(part) = part else {
        let name = FileName::Model { version }.to_string();
        let file = Model::of(checkpoint).file(name, &root, config, state, &mut losses)?;
        return match checkpoint.tensors.iter().find(|t| !model::is_parameter(&t.path)) {
            Some(tensor) => {
                Err(misplaced(tensor, "a parameter, such as relations.0.operator.rhs.translation"))
            }
            None => Ok((file, losses)),
        };
    };
    let tables = tables::tables(checkpoint, &Settings::default(), None)?;
    let [table] = tables.as_slice() else {
        return Err(Error::mismatch("several-tables", "a partition file holds rows of one table")
            .found(format_args!("{} tables", tables.len())));
    };
    if let Some(other) = checkpoint.tensors.iter().find(|t| t.path != table.rows.path) {
        return Err(misplaced(other, "the rows of one table, and their optimizer state"));
    }
    let form = Form { root: &root, float32: true, lr: config.map_or(DEFAULT_LR, |c| c.lr), state };
    let name = FileName::Embeddings { entity: table.entity.clone(), part, version };
    let all = Part { number: part, rows: 0..table.rows.shape.dims().first().copied().unwrap_or(0) };
    let file = partition(table, &all, name.to_string(), &form, &mut losses)?;
    rest(checkpoint, &tables, &mut losses);
    Ok((file, losses))
}

fn misplaced(tensor: &TensorEntry, expected: &str) -> Error {
    Error::mismatch("no-place", "the tensor does not belong in this file")
        .on_tensor(tensor.name())
        .expected(expected)
}

/// Plans the configuration alone.
pub(super) fn config(checkpoint: &Checkpoint, losses: &mut Vec<Loss>) -> Result<PlannedFile> {
    let Some(known) = known::find(checkpoint)? else {
        return Err(Error::mismatch("no-config", "the configuration is missing").in_file(&checkpoint.label));
    };
    let none = |tensor: &TensorEntry| {
        Loss::new("tensors", tensor.name(), "tensor dropped: a configuration file holds none")
    };
    losses.extend(checkpoint.tensors.iter().map(none));
    match &known.file {
        Some(source) => bytes_of("", source.clone()),
        None => Ok(literal("", &known.text)),
    }
}

/// Version to write.
fn version(checkpoint: &Checkpoint, settings: &Settings, known: &Known) -> Result<u64> {
    if settings.version == Some(0) {
        return Err(Error::usage(
            "bad-setting",
            "a checkpoint cannot have version 0, the state before training",
        )
        .hint(phrase![Opt::Kind.with("init"), " writes files to start training from"]));
    }
    let stored = super::version_of(checkpoint).filter(|version| *version > 0);
    let finished = || root::schedule(&known.config).iterations().filter(|n| *n > 0).unwrap_or(1);
    Ok(settings.version.or(stored).unwrap_or_else(finished))
}

/// Plans the files of all partitions of all tables.
fn partitions(
    tables: &[Table<'_>],
    version: u64,
    form: &Form<'_>,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    let mut files = Vec::new();
    for table in tables {
        // Losses are reported per table, not per partition.
        let mut of_table = Vec::new();
        for part in table.parts() {
            let name = FileName::Embeddings { entity: table.entity.clone(), part: part.number, version };
            files.push(partition(table, &part, name.to_string(), form, &mut of_table)?);
        }
        for loss in of_table {
            if !losses.contains(&loss) {
                losses.push(loss);
            }
        }
    }
    Ok(files)
}

fn partition(
    table: &Table<'_>,
    part: &Part,
    name: String,
    form: &Form<'_>,
    losses: &mut Vec<Loss>,
) -> Result<PlannedFile> {
    let mut written = |entry: &TensorEntry| {
        let entry = entry.rows(part.rows.clone())?;
        if form.float32 { as_float32(&entry, losses) } else { Ok(entry) }
    };
    let rows = written(table.rows)?;
    let sum = table.sum.map(&mut written).transpose()?;
    let mut file = Hdf5Builder::new(name);
    form.root.put(&mut file)?;
    file.dataset(&[EMBEDDINGS], Data::Tensor(rows))?;
    if let Some(state) = form.state {
        file.dataset(&super::STATE, Data::Opaque(super::literal("", state)))?;
        return file.finish();
    }
    let optimizer = table.optimizer(part.number);
    let said = optimizer.and_then(super::param_groups).flatten();
    if let Some(sum) = sum {
        let groups = said.cloned().unwrap_or_else(|| state::table_groups(form.lr));
        let slots = Slots { parameter: 0, step: table.step(part.number).map(Step::Number), sum: Some(sum) };
        file.dataset(&super::STATE, Data::Opaque(state::blob(&[slots], &groups)?))?;
    } else if let Some(groups) = said.filter(|_| optimizer.is_some_and(state::is_marked_empty)) {
        file.dataset(&super::STATE, Data::Opaque(state::blob(&[], groups)?))?;
    }
    file.finish()
}

/// Plans the entity files, or reports them as dropped.
fn names(
    checkpoint: &Checkpoint,
    tables: &[Table<'_>],
    settings: &Settings,
    relations: Option<&[String]>,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    if settings.entities {
        return entities::beside(checkpoint, tables, relations, losses);
    }
    // If no row moves and none is new, the name files next to the checkpoint stay valid; aligned tables use
    // those of the entity folder.
    let stale = |table: &&Table<'_>| {
        let opened = table.row_names().is_some_and(|labels| !labels.sources().is_empty());
        let beside = checkpoint.format == super::ID || table.rows.attributes.contains_key(ALIGNED);
        !beside || table.moved || table.renamed || !opened
    };
    let labelled = tables.iter().filter(stale).filter(|table| table.row_names().is_some());
    losses.extend(labelled.map(names_left_out));
    Ok(Vec::new())
}

fn names_left_out(table: &Table<'_>) -> Loss {
    let detail = phrase![
        "row names dropped; to write them use ",
        Opt::Set.pair("entities", "yes"),
        " or ",
        Opt::Kind.with("entities")
    ];
    Loss::new("names-left-out", &table.entity, detail)
}

/// Reports tensors that are neither a table nor a parameter, nor state of one.
fn rest(checkpoint: &Checkpoint, tables: &[Table<'_>], losses: &mut Vec<Loss>) {
    for tensor in &checkpoint.tensors {
        if tables::is_table(tensor) || model::is_parameter(&tensor.path) {
            continue;
        }
        let table = tables.iter().find(|table| table.rows.path == tensor.path);
        match table {
            Some(table) if table.sum.is_some_and(|sum| sum.role == tensor.role) => {}
            Some(_) => losses.push(no_such_slot(tensor)),
            None => losses.push(no_place(tensor)),
        }
    }
}

fn companion<'a>(checkpoint: &'a Checkpoint, name: &str) -> Option<&'a SourceRef> {
    checkpoint.companions.iter().find(|(own, _)| own == name).map(|(_, source)| source)
}

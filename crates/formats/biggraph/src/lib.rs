//! PyTorch-BigGraph: entities, edges, partitioned tables of embeddings and their checkpoints.
//!
//! ```text
//! entity folder      entity_count_{type}_{part}.txt   entity_names_{type}_{part}.json
//! edge folder        edges_{l}_{r}.h5                 lhs, rhs, rel [, lists of features] [, weight]
//! checkpoint folder  checkpoint_version.txt, config.json, training_stats.json
//!                    embeddings_{type}_{part}.v{N}.h5 embeddings, optimizer/state_dict
//!                    model.v{N}.h5                    model/..., optimizer/state_dict
//!                    epoch_{E}/                       links to the files of one version
//! ```
//!
//! A table is one tensor, whatever the number of its partitions: its path is
//! `["embeddings", TYPE]`. Parameters have the path of their dataset below `model`.
//!
//! | module | content |
//! | --- | --- |
//! | `config` | configuration: keys, defaults, rules |
//! | `effective_config` | effective configuration of a checkpoint |
//! | `text` | count files, name files, version files, training statistics |
//! | `layout` | names of files, partitions and buckets, without file contents |
//! | [`import`] | import of edge lists |
//! | `edges` | edge columns, repartitioning of edges, edges by name |
//! | `rows` | sources of rows: random rows, and rows of a table in another order |
//! | `align` | alignment of tables from other formats with an entity folder |
//! | `init_embeddings` | initial embeddings for an entity folder |
//! | `add_entities` | new entities for a trained table |
//! | `retype` | renaming of entity types |
//! | `detect` | detection of BigGraph's HDF5 files |
//! | `read` | index of files and folders |
//! | `state` | optimizer state blobs |
//! | `write` | files of a folder from an index |
//! | `check` | faults that upstream finds late or never |
//! | `partitions` | partition counts of entity types |
//! | `scores` | scores of pairs of rows, as the trained model computes them |
//! | `evaluate` | ranks of edges, and metrics |
//! | `compared` | rows as a search compares them |
//! | `neighbors` | nearest rows, and predictions of a relation |
//! | `scan` | pickles that BigGraph would load |
//! | [`store`] | crash-safe folders of versions |

mod add_entities;
mod align;
mod check;
mod compared;
pub mod config;
mod detect;
pub mod edges;
mod effective_config;
mod evaluate;
pub mod import;
mod init_embeddings;
mod layout;
mod neighbors;
mod options;
mod partitions;
mod read;
mod retype;
mod rows;
#[cfg(feature = "scan")]
mod scan;
mod scores;
mod state;
pub mod store;
mod text;
mod transforms;
mod write;

pub use add_entities::add_entities;
pub(crate) use align::add_edge_meaning;
pub use align::align;
pub use compared::ComparedRows;
pub(crate) use effective_config::text_in_file;
pub use evaluate::{
    EdgeRank, EvaluateOptions, Evaluation, HITS, Metrics, Negatives, RelationMetrics, SideRank, evaluate,
    name_difference, rank, ranked_types,
};
pub use init_embeddings::{InitEmbeddings, init_embeddings};
pub use layout::FileName;
pub use neighbors::{Neighbor, NeighborOptions, Neighbors, Queries, neighbors};
pub use options::ReadOptions;
pub use partitions::Partitions;
pub use scores::Comparator;
pub use transforms::{AddEntities, WithGlobal, read_name_list};
pub(crate) use write::is_edge_list;
pub use write::version_file;

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Loss, RowNameList, TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::{PlannedFile, WritePlan};
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{
    Companion, Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};

/// PyTorch-BigGraph format.
#[derive(Debug)]
pub struct BigGraph;

static INFO: FormatInfo = FormatInfo {
    id: "biggraph",
    title: "PyTorch-BigGraph entities, edges and checkpoints",
    coverage: Coverage {
        name: "PyTorch-BigGraph",
        read: "checkpoints, edges, entities, configurations",
        written: "yes",
        not_read: "configurations that compute",
    },
    extensions: &[],
    dtypes: &[
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F16,
        DType::F32,
        DType::F64,
    ],
    order: Some(Order::Row),
    settings: write::SETTINGS,
};

impl Format for BigGraph {
    fn info(&self) -> &'static FormatInfo {
        &INFO
    }

    fn writer(&self) -> Option<&dyn WriteFormat> {
        Some(self)
    }

    fn salvager(&self) -> Option<&dyn Salvage> {
        Some(self)
    }

    fn checker(&self) -> Option<&dyn DeepCheck> {
        Some(self)
    }

    #[cfg(feature = "scan")]
    fn scanner(&self) -> Option<&dyn ScanCode> {
        Some(self)
    }
}

impl Detect for BigGraph {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        read::recognises(head, source)
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        read::recognises_folder(folder)
    }

    fn owns_sibling(&self, name: &Path) -> bool {
        name.iter().next().and_then(|first| first.to_str()).and_then(layout::FileName::parse).is_some()
    }
}

impl ReadFormat for BigGraph {
    fn row_names(&self, checkpoint: &Checkpoint, tensor: &TensorEntry) -> Option<RowNameList> {
        read::relation_rows(checkpoint, tensor)
    }

    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options)
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        read::open_beside(&source, folder, name, options)
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open_folder(folder, options)
    }

    fn is_format_metadata(&self, key: &str, value: &Value) -> bool {
        // A text under this key comes from another program.
        ["format_version", "attributes/format_version"].contains(&key) && !matches!(value, Value::Text(_))
    }
}

impl WriteFormat for BigGraph {
    fn companions(
        &self,
        checkpoint: &Checkpoint,
        folder: &Path,
        open: &OpenOptions,
        settings: &PlanOptions,
        all: bool,
    ) -> Result<Option<Vec<Companion>>> {
        write::companions(checkpoint, folder, open, settings, all)
    }

    fn add_companion(&self, plan: &mut WritePlan, companion: &Companion, files: Vec<PlannedFile>) {
        write::add_companion(plan, companion, files);
    }

    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }

    fn adapt(
        &self,
        checkpoint: &mut Checkpoint,
        settings: &PlanOptions,
        open: &OpenOptions,
        seed: u64,
    ) -> Result<Vec<Loss>> {
        // A table from BigGraph keeps its row order, unless an entity folder is given that may differ.
        let on_its_way_back = checkpoint.carried_origin().is_some_and(|origin| origin.format == INFO.id);
        if checkpoint.format == INFO.id || (on_its_way_back && open.own::<ReadOptions>().entities.is_none()) {
            return Ok(Vec::new());
        }
        let is_edges = settings.kind.as_deref() == Some("edges") || settings.setting("columns").is_some();
        if is_edges || is_edge_list(checkpoint) {
            return add_edge_meaning(checkpoint, open).map(|()| Vec::new());
        }
        align(checkpoint, settings.setting("type"), seed, open)
    }

    fn labels_in(&self) -> RowNameSupport {
        // Names are stored in separate files; the layouter reports dropped ones.
        RowNameSupport::Column
    }
}

impl Salvage for BigGraph {
    /// Opens the readable files: a missing or damaged partition, bucket or model file
    /// does not hide the others. Rows of lost partitions are omitted from their table.
    fn salvage(&self, place: &Input<'_>, _: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        match *place {
            Input::Alone(source) => read::open(source, options).map(Some),
            Input::Beside(source, folder, name) => read::open_beside(source, folder, name, options).map(Some),
            Input::Folder(folder) => read::open_folder(folder, options).map(Some),
        }
    }
}

impl DeepCheck for BigGraph {
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        check::check(checkpoint)
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        read::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for BigGraph {
    fn is_text(&self, name: &Path, source: &SourceRef, limits: &Limits) -> Result<bool> {
        scan::is_text(name, source, limits)
    }

    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}

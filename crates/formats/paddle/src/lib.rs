//! PaddlePaddle: programs, tensor streams and pickles of all eras.
//!
//! ```text
//! era      program          parameters                         other files
//! 1.x      __model__        one file per variable | __params__
//! 2.x      x.pdmodel        x.pdiparams                        x.pdiparams.info
//! training x.pdmodel        x.pdparams, x.pdopt (pickles)
//! 3.x      x.json           x.pdiparams | one file per variable
//! ```
//!
//! A combined file (`__params__`, `x.pdiparams`) contains [streams](stream) end to end without names: the k-th stream
//! belongs to the k-th of the [program]'s sorted parameters. Opening any of the files finds the related ones;
//! writing creates the separate files.
//!
//! | module | content |
//! | --- | --- |
//! | [`stream`] | encoding of tensors, selected rows and vocabularies |
//! | [`program`], [`pir`] | programs of 1.x and 2.x (protobuf), and of 3.x (JSON) |
//! | `state` | pickles of `paddle.save` |
//! | `read` | association of the files of a model, and names of its tensors |
//! | `write` | layout of tensors in files |
//! | `check` | format-specific checks |
//! | [`exec`] | execution of programs that save and load |

mod any_program;
mod check;
mod dtype;
mod edit;
#[cfg(feature = "exec")]
pub mod exec;
mod flow;
mod options;
mod outline;
pub mod pir;
pub mod program;
mod read;
#[cfg(feature = "scan")]
mod scan;
mod state;
pub mod stream;
mod strip_options;
mod write;

pub use any_program::{Program, SourceLeak};
pub use edit::{rename, strip};
pub use options::ReadOptions;
pub use read::attach;
pub use state::state_structure;
pub use strip_options::{Strip, StripReport};

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Metadata, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::Order;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat, Salvage,
    Setting, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};

/// Metadata key of the name of the program file.
const PROGRAM_FILE: &str = Metadata::PROGRAM_FILE_KEY;
/// Metadata key of the name of the combined file.
const PARAMETERS_FILE: &str = "paddle.parameters";
/// Metadata key of the name of the list of structured names.
const INFO_FILE: &str = "paddle.info";
/// Extensions of further pickles of the framework.
#[cfg(feature = "scan")]
const OTHER_ENDINGS: [&str; 3] = ["pdiparams.info", "distcp", "metadata"];
/// Attribute of a variable, from its layer: true if no gradient flows to it.
const STOP_GRADIENT: &str = "stop_gradient";
/// Attribute of a parameter, from its layer: true if training changes it.
const TRAINABLE: &str = "trainable";
/// Code of the note about parameters of a program without a file.
const PARAMETERS_MISSING: &str = "parameters-missing";
/// Metadata key of vocabularies: a map from names to maps from words to numbers.
const VOCAB: &str = "paddle.vocab";

/// PaddlePaddle format.
#[derive(Debug)]
pub struct Paddle;

impl Paddle {
    /// Form of a topology from a protobuf message.
    pub const FORM_DESC: &'static str = "program-desc";
    /// Form of a topology from PIR JSON.
    pub const FORM_PIR: &'static str = "pir";
}

static INFO: FormatInfo = FormatInfo {
    id: "paddle",
    title: "PaddlePaddle models of all eras",
    coverage: Coverage {
        name: "PaddlePaddle",
        read: "programs (protobuf, PIR), parameters and pickled states of versions 1.x to 3.x",
        written: "yes",
        not_read: "encrypted models",
    },
    extensions: &[
        ("pdiparams", "combined"),
        ("pdparams", "state"),
        ("pdopt", "state"),
        ("pdmodel", "program"),
    ],
    dtypes: dtype::ALL,
    order: Some(Order::Row),
    settings: &[
        Setting {
            name: "era",
            values: "1, 2 or 3",
            what: "file names of a model: __model__ and __params__; x.pdmodel and x.pdiparams; x.json and x.pdiparams (default: unchanged)",
        },
        Setting {
            name: "prefix",
            values: "TEXT",
            what: "the x in these names (default: unchanged, else model)",
        },
        Setting {
            name: "protocol",
            values: "2, 3 or 4",
            what: "pickle protocol of a state (default: unchanged, else 4)",
        },
        Setting {
            name: "numpy",
            values: "1 or 2",
            what: "numpy generation of the module names in a state; 2 requires numpy 2 to load (default: unchanged, else 1)",
        },
        Setting {
            name: "stream",
            values: "paddle, design-note or size-prefixed",
            what: "form of tensor streams; Paddle reads `paddle` only (default: paddle)",
        },
    ],
};

/// Kinds of files and folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tensor,
    SelectedRows,
    Combined,
    Separate,
    Inference,
    Training,
    Program,
    State,
    Pir,
    Vocab,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Tensor,
        Self::SelectedRows,
        Self::Combined,
        Self::Separate,
        Self::Inference,
        Self::Training,
        Self::Program,
        Self::State,
        Self::Pir,
        Self::Vocab,
    ];

    /// Name of the kind.
    fn word(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::SelectedRows => "selected-rows",
            Self::Combined => "combined",
            Self::Separate => "separate",
            Self::Inference => "inference",
            Self::Training => "training",
            Self::Program => "program",
            Self::State => "state",
            Self::Pir => "pir",
            Self::Vocab => "vocab",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        if word == weighbridge_core::checkpoint::PICKLE {
            return Some(Self::State);
        }
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl Format for Paddle {
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

impl Detect for Paddle {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        any_program::Form::of(head, source.len()).is_some()
            || state::looks_like_pickle(head, source)
            || read::is_index(head, source)
            || stream::detect(source, &Limits::default()).is_some()
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        read::recognises_folder(folder)
    }
}

impl ReadFormat for Paddle {
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

    /// Adds the program named in the options to tensors of another format.
    fn attach(&self, checkpoint: &mut Checkpoint, options: &OpenOptions) -> Result<()> {
        match &options.own::<ReadOptions>().program {
            Some(program) if checkpoint.topology.is_none() => read::attach(checkpoint, program, options),
            _ => Ok(()),
        }
    }

    fn is_format_metadata(&self, key: &str, _: &Value) -> bool {
        [PROGRAM_FILE, PARAMETERS_FILE, INFO_FILE].contains(&key) || state::is_of_parameters(key)
    }
}

impl WriteFormat for Paddle {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }

    /// True because of pickled states; other kinds store each tensor separately.
    fn supports_shared_storage(&self) -> bool {
        true
    }
}

impl Salvage for Paddle {
    fn salvage(&self, place: &Input<'_>, _: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        read::salvage(place, options).map(Some)
    }
}

impl DeepCheck for Paddle {
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        check::check(checkpoint)
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        outline::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Paddle {
    /// Reports pickles without a sign of the framework, neither in the name nor in the imports.
    fn plain_container(&self, head: &[u8], name: &Path, scan: &Scan) -> Option<&'static str> {
        let name = name.to_str()?;
        let is_pickle = matches!(head, [0x80 | b'(' | b'}' | b']' | b'c', ..]);
        let extensions = INFO.extensions.iter().map(|(extension, _)| *extension);
        let own = extensions.chain(OTHER_ENDINGS).any(|end| name.ends_with(&format!(".{end}")));
        let imports = scan.imports.iter().any(|import| import.module.split('.').next() == Some("paddle"));
        (is_pickle && !own && !imports).then_some("pickle")
    }

    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}

/// Registry with the formats of this crate, for tests.
#[cfg(test)]
pub(crate) mod opening {
    use weighbridge_core::Checkpoint;
    use weighbridge_core::Result;
    use weighbridge_core::source::FolderRef;
    use weighbridge_format::{OpenOptions, Registry};

    fn registry() -> Registry {
        Registry::new([&crate::Paddle as _])
    }

    pub(crate) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        registry().open_folder(folder, options)
    }
}

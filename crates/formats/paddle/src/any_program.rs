//! Programs in either form.

use super::pir::{self, PirProgram};
use super::program::{self, Derived, ProgramDesc};
use super::{Strip, StripReport};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Job;
use weighbridge_core::topology::Topology;
use weighbridge_format::unknown;
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// Paddle program: protobuf (fluid 1.x, 2.x) or PIR JSON (3.x). Changes keep the form, so that unknown content is
/// preserved.
#[derive(Debug, Clone)]
pub enum Program {
    /// A `ProgramDesc`: `__model__`, `x.pdmodel`.
    Desc(Box<ProgramDesc>),
    /// PIR: `x.json`.
    Pir(Box<PirProgram>),
}

/// Operator attribute that discloses the author's source code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLeak {
    /// Type of the operator.
    pub operator: String,
    /// Name of the attribute.
    pub attribute: String,
    /// Length of its text in bytes.
    pub bytes: u64,
    /// First line of the text.
    pub sample: Option<String>,
}

/// Form of a program file, detected from its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Desc,
    DescText,
    Pir,
}

impl Form {
    /// Detects the form of a file that begins with `head` and has `len` bytes.
    pub(super) fn of(head: &[u8], len: u64) -> Option<Self> {
        if pir::looks_like(head) {
            Some(Self::Pir)
        } else if program::looks_like(head, len) {
            Some(Self::Desc)
        } else if program::looks_like_text(head) {
            Some(Self::DescText)
        } else {
            None
        }
    }
}

impl Program {
    /// Reads the program of the model in a folder: a `__model__`, a `.pdmodel` or a `.json` of PIR. For a layer with
    /// several functions, the program of the first function is returned.
    ///
    /// # Errors
    /// Same as [`read`](Self::read); [`weighbridge_core::Kind::Usage`]: `several-models` with their names, and `no-program`.
    pub fn read_folder(folder: &FolderRef, limits: &Limits) -> Result<Self> {
        Self::read(&super::read::program_in(folder)?, limits)
    }

    /// Reads a program file of any form.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for a damaged program, [`weighbridge_core::Kind::Unsupported`] for other
    /// files, [`weighbridge_core::Kind::Limit`] for a program longer than `limits.header_bytes`.
    pub fn read(source: &SourceRef, limits: &Limits) -> Result<Self> {
        let read = || {
            Limits::check_part("bytes of a program", "header_bytes", source.len(), limits.header_bytes, 1)?;
            let bytes = read_vec(&**source, 0, source.len())?;
            Self::parse(&bytes, limits).map_err(|error| {
                let head = &bytes[..bytes.len().min(weighbridge_format::HEAD)];
                if let Some(error) = unknown::encrypted(head, source, "Paddle program") {
                    return error;
                }
                let named = [".pdmodel", "__model__", ".pb"].iter().any(|end| source.label().ends_with(end));
                if named || Form::of(head, source.len()).is_some() {
                    return error;
                }
                Error::unsupported("not-a-program", "the file is not a Paddle program")
                    .expected("a __model__, a .pdmodel (binary or text), or a .json of PIR")
            })
        };
        read().map_err(|e| e.in_file(source.label()))
    }

    /// Parses a program of any form.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let head = &bytes[..bytes.len().min(weighbridge_format::HEAD)];
        match Form::of(head, bytes.len() as u64) {
            Some(Form::Pir) => Ok(Self::Pir(Box::new(PirProgram::parse(bytes, limits)?))),
            Some(Form::DescText) => {
                let text = std::str::from_utf8(bytes)
                    .map_err(|_| Error::corrupt("not-text", "the text of the program is not UTF-8"))?;
                Ok(Self::Desc(Box::new(ProgramDesc::from_text(text, limits)?)))
            }
            // Protobuf has no magic bytes: its parser returns the most specific error.
            Some(Form::Desc) | None => Ok(Self::Desc(Box::new(ProgramDesc::parse(bytes, limits)?))),
        }
    }

    /// Parses the bytes of a topology's program.
    ///
    /// # Errors
    /// Same as [`parse`](Self::parse).
    pub fn of(topology: &Topology) -> Result<Self> {
        // These bytes were read before, within the limits of that read.
        let limits = Limits { header_bytes: u64::MAX, ..Limits::default() };
        match topology.form {
            "pir" => Ok(Self::Pir(Box::new(PirProgram::parse(&topology.bytes, &limits)?))),
            "program-desc" => Ok(Self::Desc(Box::new(ProgramDesc::parse(&topology.bytes, &limits)?))),
            other => Err(Error::mismatch("other-form", "the graph of the model is not a Paddle program")
                .expected("program-desc or pir")
                .found(other)
                .hint(phrase![
                    "its tensors can be renamed with ",
                    Job::Edit.brief(),
                    ", or written to a format such as .safetensors"
                ])),
        }
    }

    /// True if names of variables are not UTF-8. A topology shows escaped names, so their order
    /// differs from that of the file.
    pub fn has_odd_names(&self) -> bool {
        match self {
            Self::Desc(program) => program.has_odd_names(),
            Self::Pir(_) => false,
        }
    }

    /// Returns the content of the program.
    pub fn topology(&self) -> Topology {
        match self {
            Self::Desc(program) => program.topology(),
            Self::Pir(program) => program.topology(),
        }
    }

    /// Returns the bytes of the program; the original bytes if the program is unchanged.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Desc(program) => program.to_bytes(),
            Self::Pir(program) => program.to_bytes(),
        }
    }

    /// Renames variables in all places, together with derived names such as gradients.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] if a new name is in use or an old one does not exist.
    pub fn rename(&mut self, names: &BTreeMap<String, String>) -> Result<()> {
        match self {
            Self::Desc(program) => program.rename(names, Derived::Along).map(drop),
            Self::Pir(program) => program.rename(names).map(drop),
        }
    }

    /// Returns notes on irregularities.
    pub fn notes(&self) -> Vec<Note> {
        match self {
            Self::Desc(_) => Vec::new(),
            Self::Pir(program) => program.notes(),
        }
    }

    /// Lists attributes with source paths or lines of source code.
    pub fn source_leaks(&self) -> Vec<SourceLeak> {
        match self {
            Self::Desc(program) => program
                .source_leaks()
                .into_iter()
                .map(|leak| SourceLeak {
                    operator: leak.kind,
                    attribute: leak.attribute,
                    bytes: leak.bytes,
                    sample: leak.sample.into_iter().next(),
                })
                .collect(),
            Self::Pir(program) => program
                .source_leaks()
                .into_iter()
                .map(|leak| SourceLeak {
                    operator: leak.operator,
                    attribute: leak.attribute,
                    bytes: leak.text.len() as u64,
                    sample: leak.text.lines().next().map(str::to_owned),
                })
                .collect(),
        }
    }

    /// Removes the requested parts.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for an inconsistent program.
    pub fn strip(&mut self, what: &Strip) -> Result<StripReport> {
        match self {
            Self::Desc(program) => program.strip(what),
            Self::Pir(program) => program.strip(what),
        }
    }

    /// Returns the program in protobuf's text format.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`] for PIR, which is text itself.
    pub fn to_text(&self) -> Result<String> {
        match self {
            Self::Desc(program) => Ok(program.to_text()),
            Self::Pir(_) => Err(Error::unsupported("no-text-form", "a PIR program has no text form")
                .hint("write the program unchanged; it is JSON text")),
        }
    }
}

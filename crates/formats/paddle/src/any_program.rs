//! A program in either of its forms.

use super::pir::{self, PirProgram};
use super::program::{self, Derived, ProgramDesc};
use super::{Strip, StripReport};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::topology::Topology;
use weighbridge_format::unknown;
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// A Paddle program: protobuf (fluid 1.x, 2.x) or PIR json (3.x). It is changed in its own form, so
/// that what is unknown here survives.
#[derive(Debug, Clone)]
pub enum Program {
    /// A `ProgramDesc`: `__model__`, `x.pdmodel`.
    Desc(Box<ProgramDesc>),
    /// PIR: `x.json`.
    Pir(Box<PirProgram>),
}

/// A setting of an operator that tells of the author's source code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLeak {
    /// The type of the operator.
    pub operator: String,
    /// The name of the attribute.
    pub attribute: String,
    /// How many bytes of text it holds.
    pub bytes: u64,
    /// A line of it.
    pub sample: Option<String>,
}

/// What a program file looks like from its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Desc,
    DescText,
    Pir,
}

impl Form {
    /// The form of a file that begins with `head` and is `len` bytes long.
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
    /// Reads the program of the model that stands in a folder: a `__model__`, a `.pdmodel` or a `.json` of PIR. Of the
    /// functions of one layer it is the first.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`weighbridge_core::Kind::Usage`]: `several-models`, which names them, and `no-program`.
    pub fn read_folder(folder: &FolderRef, limits: &Limits) -> Result<Self> {
        Self::read(&super::read::program_in(folder)?, limits)
    }

    /// Reads the program in a file, whichever form it has.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where it is damaged, [`weighbridge_core::Kind::Unsupported`] where it is no
    /// program, [`weighbridge_core::Kind::Limit`] where it is longer than `limits.header_bytes`.
    pub fn read(source: &SourceRef, limits: &Limits) -> Result<Self> {
        let read = || {
            Limits::check("bytes of a program", "header_bytes", source.len(), limits.header_bytes)?;
            let bytes = read_vec(&**source, 0, source.len())?;
            Self::parse(&bytes, limits).map_err(|error| {
                let head = &bytes[..bytes.len().min(weighbridge_format::HEAD)];
                if let Some(error) = unknown::encrypted(head, source, "program of Paddle") {
                    return error;
                }
                let meant = [".pdmodel", "__model__", ".pb"].iter().any(|end| source.label().ends_with(end));
                if meant || Form::of(head, source.len()).is_some() {
                    return error;
                }
                Error::unsupported("not-a-program", "this is no program of Paddle")
                    .expected("a __model__, a .pdmodel, its text form, or a .json of PIR")
            })
        };
        read().map_err(|e| e.in_file(source.label()))
    }

    /// Parses a program, whichever form it has.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let head = &bytes[..bytes.len().min(weighbridge_format::HEAD)];
        match Form::of(head, bytes.len() as u64) {
            Some(Form::Pir) => Ok(Self::Pir(Box::new(PirProgram::parse(bytes, limits)?))),
            Some(Form::DescText) => {
                let text = std::str::from_utf8(bytes)
                    .map_err(|_| Error::corrupt("not-text", "a program as text must be UTF-8"))?;
                Ok(Self::Desc(Box::new(ProgramDesc::from_text(text, limits)?)))
            }
            // Protobuf has no mark of its own: its parser says best what is wrong.
            Some(Form::Desc) | None => Ok(Self::Desc(Box::new(ProgramDesc::parse(bytes, limits)?))),
        }
    }

    /// The program of a topology: its bytes, read again.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn of(topology: &Topology) -> Result<Self> {
        // These bytes were read once within the limits of that time.
        let limits = Limits { header_bytes: u64::MAX, ..Limits::default() };
        match topology.form {
            "pir" => Ok(Self::Pir(Box::new(PirProgram::parse(&topology.bytes, &limits)?))),
            _ => Ok(Self::Desc(Box::new(ProgramDesc::parse(&topology.bytes, &limits)?))),
        }
    }

    /// True where names of variables are not UTF-8. A topology shows such a name escaped, so its order
    /// among the others is not that of the file.
    pub fn has_odd_names(&self) -> bool {
        match self {
            Self::Desc(program) => program.has_odd_names(),
            Self::Pir(_) => false,
        }
    }

    /// What was understood of it.
    pub fn topology(&self) -> Topology {
        match self {
            Self::Desc(program) => program.topology(),
            Self::Pir(program) => program.topology(),
        }
    }

    /// The bytes of the program: those that were read, where nothing was changed.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Desc(program) => program.to_bytes(),
            Self::Pir(program) => program.to_bytes(),
        }
    }

    /// Renames variables wherever they are named; gradients and the like go along.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] where a new name is taken or an old one is not there.
    pub fn rename(&mut self, names: &BTreeMap<String, String>) -> Result<()> {
        match self {
            Self::Desc(program) => program.rename(names, Derived::Along).map(drop),
            Self::Pir(program) => program.rename(names).map(drop),
        }
    }

    /// What is odd about it.
    pub fn notes(&self) -> Vec<Note> {
        match self {
            Self::Desc(_) => Vec::new(),
            Self::Pir(program) => program.notes(),
        }
    }

    /// The settings that hold source paths or lines of source code.
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

    /// Takes out what is asked for.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where the program contradicts itself.
    pub fn strip(&mut self, what: &Strip) -> Result<StripReport> {
        match self {
            Self::Desc(program) => program.strip(what),
            Self::Pir(program) => program.strip(what),
        }
    }

    /// The protobuf text form.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`] for PIR, which is text already.
    pub fn to_text(&self) -> Result<String> {
        match self {
            Self::Desc(program) => Ok(program.to_text()),
            Self::Pir(_) => Err(Error::unsupported("no-text-form", "a PIR program is text already")
                .hint("write it as it is: it is JSON")),
        }
    }
}

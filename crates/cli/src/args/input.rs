//! Arguments that tell how to read the input.

use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge::formats::{Names, biggraph, gguf, hdf5, paddle};
use weighbridge::source::{FileSource, LocalFolder};
use weighbridge::{OpenOptions, Result};

use super::{FormatName, whole};

/// How to read the input.
#[derive(Debug, ClapArgs)]
pub(crate) struct Input {
    /// Format of the input, when its content is ambiguous
    #[arg(long, value_name = "FORMAT", value_parser = FormatName, hide_possible_values = true)]
    #[arg(help_heading = "Input")]
    pub from: Option<String>,
    /// Read files that break a rule of their format, where the meaning is unambiguous
    ///
    /// Each broken rule is reported as a note.
    #[arg(long, help_heading = "Input")]
    pub lenient: bool,
    /// Read the intact tensors of a damaged file and name the others
    #[arg(long, help_heading = "Input")]
    pub salvage: bool,
    /// Follow the virtual datasets of HDF5 into other files of the same folder
    #[arg(long, help_heading = "Input", hide_short_help = true)]
    pub follow_virtual: bool,
    /// List the values of quantized GGUF tensors as f32, instead of their blocks
    #[arg(long, help_heading = "Input", hide_short_help = true)]
    pub dequantize: bool,
    /// Program of a Paddle parameter file, when it is in another folder
    #[arg(long, value_name = "FILE", help_heading = "Input", hide_short_help = true)]
    pub program: Option<PathBuf>,
    /// Which names to use where a tensor has several (Paddle, Keras): as-stored, structured or variable
    #[arg(long, value_name = "WHICH", default_value = "as-stored")]
    #[arg(help_heading = "Input", hide_short_help = true)]
    pub names: NameStyle,
    /// Folder with entity counts and names of a BigGraph checkpoint or edge list
    ///
    /// Needed when the configuration does not point to it.
    #[arg(long, value_name = "FOLDER", help_heading = "Input", hide_short_help = true)]
    pub entities: Option<PathBuf>,
    /// Configuration (config.json) of a BigGraph edge list or table
    #[arg(long, value_name = "FILE", help_heading = "Input", hide_short_help = true)]
    pub config: Option<PathBuf>,
    /// Version to read from a BigGraph checkpoint folder (default: the current one)
    #[arg(long, value_name = "VERSION", value_parser = whole::<u64>(0, None))]
    #[arg(help_heading = "Input", hide_short_help = true)]
    pub at: Option<u64>,
    /// Change a limit on untrusted input, such as header_bytes=500000000; may be repeated
    ///
    /// The limits are listed in the book under "Limits".
    #[arg(long, value_name = "NAME=NUMBER", help_heading = "Input")]
    pub limit: Vec<String>,
}

/// Which of its names a tensor goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NameStyle {
    /// Names in the file
    AsStored,
    /// Names in the source code: conv1.weight
    Structured,
    /// Names of program variables: `conv2d_0.w_0`
    Variable,
}
impl Input {
    pub(crate) fn options(&self) -> Result<OpenOptions> {
        let mut options = OpenOptions::default();
        options.limits.blocks = crate::block_cache();
        options.format.clone_from(&self.from);
        options.lenient = self.lenient;
        options.salvage = self.salvage;
        options.set_own(hdf5::ReadOptions { follow_virtual: self.follow_virtual });
        options.set_own(gguf::ReadOptions { dequantize: self.dequantize });
        if let Some(path) = &self.program {
            options.set_own(paddle::ReadOptions::of_program(path)?);
        }
        let mut biggraph = biggraph::ReadOptions { version: self.at, ..Default::default() };
        if let Some(path) = &self.entities {
            biggraph.entities = Some(Arc::new(LocalFolder::open(path)?));
        }
        if let Some(path) = &self.config {
            biggraph.config = Some(Arc::new(FileSource::open(path)?));
        }
        options.set_own(biggraph);
        options.names = match self.names {
            NameStyle::AsStored => Names::AsStored,
            NameStyle::Structured => Names::Structured,
            NameStyle::Variable => Names::Variable,
        };
        for limit in &self.limit {
            let pair = limit.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?)));
            let Some((name, value)) = pair else {
                return Err(weighbridge::Error::usage("bad-limit", "a limit is not of the form NAME=NUMBER")
                    .found(limit));
            };
            options.limits.set(name, value)?;
        }
        Ok(options)
    }
}

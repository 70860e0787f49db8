//! How to read what is named.

use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge::formats::{Names, biggraph, hdf5, paddle};
use weighbridge::source::{FileSource, LocalFolder};
use weighbridge::{OpenOptions, Result};

/// How to read the input.
#[derive(Debug, ClapArgs)]
pub(crate) struct Input {
    /// The format of the input, where its content does not tell
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<String>,
    /// Read what can be read unambiguously from a file that breaks a rule, and note it
    #[arg(long)]
    pub lenient: bool,
    /// Of a damaged file give the tensors that are intact, and say which are lost
    #[arg(long)]
    pub salvage: bool,
    /// Read virtual datasets of HDF5 from the files in the same folder that they are made of
    #[arg(long)]
    pub follow_virtual: bool,
    /// The program that a Paddle parameter file belongs to, where it does not stand beside it
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// The names that tensors go by, where several are known
    #[arg(long, value_name = "WHICH", default_value = "as-stored")]
    pub names: NameStyle,
    /// The folder of entity counts and names that a PyTorch-BigGraph checkpoint or edge list belongs
    /// to, where the configuration does not lead there
    #[arg(long, value_name = "FOLDER")]
    pub entities: Option<PathBuf>,
    /// The configuration (config.json) of a PyTorch-BigGraph edge list or table
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The version of a checkpoint folder that holds several; the current one if left out
    #[arg(long, value_name = "VERSION")]
    pub at: Option<u64>,
    /// Raise or lower a limit on what the file may ask for, such as header_bytes=500000000
    #[arg(long, value_name = "NAME=NUMBER")]
    pub limit: Vec<String>,
}

/// Which of its names a tensor goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NameStyle {
    /// Those that the file itself uses
    AsStored,
    /// Those of the source code's structure: conv1.weight
    Structured,
    /// Those of the program's variables: `conv2d_0.w_0`
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
                return Err(
                    weighbridge::Error::usage("bad-limit", "a limit is written NAME=NUMBER").found(limit)
                );
            };
            options.limits.set(name, value)?;
        }
        Ok(options)
    }
}

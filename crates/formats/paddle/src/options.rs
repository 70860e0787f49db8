//! Format-specific options for opening.

use std::path::Path;
use std::sync::Arc;
use weighbridge_core::ErrorCode;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::source::{Folder, SourceRef};
use weighbridge_format::{FormatOptions, WrapFiles};
use weighbridge_io::source::{FileSource, LocalFolder};

/// Options for opening PaddlePaddle files.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// Program of the parameters, if it is not in their folder.
    pub program: Option<SourceRef>,
    /// List of structured names of that program.
    pub program_info: Option<SourceRef>,
}

impl ReadOptions {
    /// Selects the program at `path`; the list of structured names in its folder is found.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] and [`weighbridge_core::Kind::Usage`] if the file cannot be read.
    pub fn of_program(path: &Path) -> Result<Self> {
        let is_folder = |error: &Error| error.code() == ErrorCode::NotAFile;
        let opened = FileSource::open(path).map_err(|error| match is_folder(&error) {
            true => Error::usage("not-a-file", "the program is a folder")
                .in_file(path.display())
                .hint("give the path of the program file in it, such as model.pdmodel"),
            false => error,
        })?;
        let program: Option<SourceRef> = Some(Arc::new(opened));
        let program_info = match LocalFolder::around(path) {
            Some((folder, name)) => folder.open(&name.with_extension("pdiparams.info"))?,
            None => None,
        };
        Ok(Self { program, program_info })
    }
}

impl FormatOptions for ReadOptions {
    fn wrapped(&self, wrap: &dyn WrapFiles) -> Arc<dyn FormatOptions> {
        let wrapped = |source: &Option<SourceRef>| source.clone().map(|source| wrap.source(source));
        Arc::new(Self { program: wrapped(&self.program), program_info: wrapped(&self.program_info) })
    }

    fn sources(&self) -> Vec<SourceRef> {
        [&self.program, &self.program_info].into_iter().flatten().cloned().collect()
    }

    fn words(&self) -> Vec<String> {
        self.program.iter().map(|_| "program".to_owned()).collect()
    }
}

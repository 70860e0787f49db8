//! Options for opening BigGraph files.

use super::read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::error::Result;
use weighbridge_core::source::{FolderRef, SourceRef};
use weighbridge_format::{FormatOptions, WrapFiles};

/// Options for opening files of PyTorch-BigGraph.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// Folder of entity counts and names for tables, if not found automatically.
    pub entities: Option<FolderRef>,
    /// Configuration that defines the meaning of edges and entities, if there is none next to them.
    pub config: Option<SourceRef>,
    /// Version to open in a folder of several; the newest one if `None`.
    pub version: Option<u64>,
}

impl FormatOptions for ReadOptions {
    fn wrapped(&self, wrap: &dyn WrapFiles) -> Arc<dyn FormatOptions> {
        Arc::new(Self {
            entities: self.entities.clone().map(|folder| wrap.folder(folder)),
            config: self.config.clone().map(|source| wrap.source(source)),
            version: self.version,
        })
    }

    fn sources(&self) -> Vec<SourceRef> {
        self.config.iter().cloned().collect()
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let Some(folder) = &self.entities else { return Ok(Vec::new()) };
        let names = read::entity_files(folder)?;
        Ok(names.into_iter().map(|name| Path::new(folder.label()).join(name)).collect())
    }

    fn words(&self) -> Vec<String> {
        let version = self.version.map(|version| format!("at={version}"));
        let named = [("entities", self.entities.is_some()), ("config", self.config.is_some())];
        let named = named.into_iter().filter(|(_, given)| *given).map(|(word, _)| word.to_owned());
        version.into_iter().chain(named).collect()
    }
}

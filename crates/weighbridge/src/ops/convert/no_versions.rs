//! Without PyTorch-BigGraph there is no checkpoint that has several versions.

use super::ConvertOptions;
use crate::error::Result;
use crate::formats::Format;
use crate::plan::WritePlan;
use std::path::Path;

/// Adds nothing.
pub(super) fn add(
    _: &mut WritePlan,
    _: &Path,
    _: Option<u64>,
    _: &dyn Format,
    _: &ConvertOptions,
) -> Result<()> {
    Ok(())
}

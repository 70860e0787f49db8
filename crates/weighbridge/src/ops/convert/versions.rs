//! Other checkpoints beside the converted one: earlier versions, snapshots.

use super::{ConvertOptions, denied, plan_noting};
use crate::checkpoint::{Checkpoint, Loss};
use crate::error::{Error, Kind, Result};
use crate::formats::{Companion, Format, PlanOptions, open_with};
use crate::plan::WritePlan;
use crate::source::real_path;
use std::path::Path;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Returns the companions of the opened checkpoint that a plan for `target` could include.
///
/// # Errors
/// [`Kind::Usage`], `no-versions`, where they are requested and the format does not support them; errors of listing.
pub(super) fn companions(
    checkpoint: &Checkpoint,
    source: Option<&Path>,
    target: &Path,
    format: &dyn Format,
    kind: &str,
    options: &ConvertOptions,
) -> Result<Vec<Companion>> {
    let settings = PlanOptions {
        kind: Some(kind.to_owned()),
        settings: options.settings.clone(),
        ..PlanOptions::default()
    };
    let elsewhere = source.filter(|source| real_path(source) != real_path(target));
    let found = match elsewhere {
        None => None,
        Some(source) => {
            let writer = format.required_writer()?;
            writer.companions(checkpoint, source, &options.open, &settings, options.all_versions)?
        }
    };
    match found {
        None if options.all_versions => Err(Error::usage(
            "no-versions",
            "all versions can be written only from one PyTorch-BigGraph folder to another",
        )
        .in_file(&checkpoint.label)
        .hint(phrase!["remove ", Opt::Versions.with("all"), ", or add ", Opt::To.with("biggraph")])),
        found => Ok(found.unwrap_or_default()),
    }
}

/// Adds the companions to `plan`, or lists them as losses where they are not requested or cannot be read.
///
/// # Errors
/// [`Kind::Io`]; errors of planning a companion; `loss-denied`.
pub(super) fn add(
    plan: &mut WritePlan,
    companions: Vec<Companion>,
    format: &dyn Format,
    options: &ConvertOptions,
) -> Result<()> {
    for companion in companions {
        if !options.all_versions {
            let detail = phrase![
                "not converted: ",
                Opt::Versions.with("all"),
                " includes complete versions and snapshots"
            ];
            plan.losses.push(Loss::new("companion", companion.name, &detail));
            continue;
        }
        let checkpoint = match open_with(&companion.path, &companion.options) {
            Ok(checkpoint) => checkpoint,
            Err(error) if matches!(error.kind(), Kind::Io | Kind::Usage | Kind::Cancelled) => {
                return Err(error);
            }
            Err(error) => {
                let detail = format!("not converted, because it cannot be read: {}", error.message());
                plan.losses.push(Loss::new("version-unread", companion.name, detail));
                continue;
            }
        };
        let kind = Some(plan.kind.to_owned());
        let planned = plan_noting(checkpoint, format, kind, options, &mut Vec::new())?;
        format.required_writer()?.add_companion(plan, &companion, planned.files);
        for loss in planned.losses {
            if !plan.losses.contains(&loss) {
                plan.losses.push(loss);
            }
        }
    }
    if options.deny_loss && !plan.losses.is_empty() {
        return Err(denied(&plan.losses));
    }
    Ok(())
}

//! File names of a model.

use super::super::{PARAMETERS_FILE, PROGRAM_FILE, Paddle};
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::PlanOptions;

/// Names of the program and the parameters in their folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileNames {
    pub(super) program: String,
    pub(super) parameters: String,
}

/// Returns the requested names, else the original names, else the default names.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`] for an unknown era, or one that did not have the form of the program.
pub(super) fn of(checkpoint: &Checkpoint, form: &str, options: &PlanOptions) -> Result<FileNames> {
    let pir = form == Paddle::FORM_PIR;
    let prefix = options.setting("prefix").map(plain).transpose()?;
    let stemmed = |prefix: &str| FileNames {
        program: format!("{prefix}{}", if pir { ".json" } else { ".pdmodel" }),
        parameters: format!("{prefix}.pdiparams"),
    };
    let had = had(checkpoint, pir);
    match options.setting("era") {
        None => Ok(match (prefix, had) {
            (None, Some(names)) => names,
            (prefix, _) => stemmed(prefix.unwrap_or("model")),
        }),
        Some("1") if pir => Err(era_of_other_form("1", "protobuf")),
        Some("1") => Ok(FileNames { program: "__model__".to_owned(), parameters: "__params__".to_owned() }),
        Some("2") if pir => Err(era_of_other_form("2", "protobuf")),
        Some("3") if !pir => Err(era_of_other_form("3", "PIR json")),
        Some("2" | "3") => {
            let stem = had.and_then(|names| names.parameters.strip_suffix(".pdiparams").map(str::to_owned));
            Ok(stemmed(prefix.or(stem.as_deref()).unwrap_or("model")))
        }
        Some(other) => Err(Error::usage("unknown-era", "unknown value for the setting `era`")
            .expected("1, 2 or 3")
            .found(other)),
    }
}

/// Returns the common prefix of the files of a training state.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`] for a prefix that cannot begin a file name.
pub(super) fn stem(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<String> {
    if let Some(prefix) = options.setting("prefix") {
        return plain(prefix).map(str::to_owned);
    }
    let had = match checkpoint.metadata.get(PROGRAM_FILE) {
        Some(Value::Text(name)) => [".pdmodel", ".json"].iter().find_map(|end| name.strip_suffix(end)),
        _ => None,
    };
    Ok(had.and_then(|stem| plain(stem).ok()).unwrap_or("model").to_owned())
}

/// Fails unless `prefix` can begin a file name.
fn plain(prefix: &str) -> Result<&str> {
    if prefix.is_empty() || prefix.contains(['/', '\\', '\0']) || prefix == "." || prefix == ".." {
        return Err(Error::usage("bad-prefix", "the prefix cannot begin a file name").found(prefix));
    }
    Ok(prefix)
}

/// Returns the original names, if both are plain file names of the same form.
fn had(checkpoint: &Checkpoint, pir: bool) -> Option<FileNames> {
    let name = |key: &str| match checkpoint.metadata.get(key) {
        Some(Value::Text(name)) if Path::new(name).components().count() == 1 && !name.contains('\0') => {
            Some(name.clone()).filter(|n| n != "." && n != "..")
        }
        _ => None,
    };
    let (program, parameters) = (name(PROGRAM_FILE)?, name(PARAMETERS_FILE)?);
    let same_form = program.to_ascii_lowercase().ends_with(".json") == pir;
    (same_form && program != parameters).then_some(FileNames { program, parameters })
}

fn era_of_other_form(era: &str, form: &str) -> Error {
    Error::usage(
        "era-of-other-form",
        format!("era {era} requires a program as {form}, and this model has another form"),
    )
    .hint("choose the era that fits the program; the form of a program cannot be changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> PlanOptions {
        let settings = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        PlanOptions { settings, ..PlanOptions::default() }
    }

    #[test]
    fn chooses_file_names_by_era() {
        let mut c = Checkpoint::new("paddle", "inference", "m");
        let names = |c: &Checkpoint, form: &str, pairs: &[(&str, &str)]| {
            of(c, form, &settings(pairs)).map(|n| format!("{} {}", n.program, n.parameters))
        };
        assert_eq!(names(&c, "program-desc", &[]).unwrap(), "model.pdmodel model.pdiparams");
        assert_eq!(names(&c, Paddle::FORM_PIR, &[("prefix", "x")]).unwrap(), "x.json x.pdiparams");
        c.metadata.set(PROGRAM_FILE, Value::Text("inference.pdmodel".into()));
        c.metadata.set(PARAMETERS_FILE, Value::Text("inference.pdiparams".into()));
        assert_eq!(names(&c, "program-desc", &[]).unwrap(), "inference.pdmodel inference.pdiparams");
        assert_eq!(names(&c, "program-desc", &[("era", "1")]).unwrap(), "__model__ __params__");
        assert_eq!(
            names(&c, "program-desc", &[("era", "2")]).unwrap(),
            "inference.pdmodel inference.pdiparams"
        );
        assert_eq!(names(&c, Paddle::FORM_PIR, &[]).unwrap(), "model.json model.pdiparams");
        for (pairs, code) in [
            (&[("era", "4")], "unknown-era"),
            (&[("era", "3")], "era-of-other-form"),
            (&[("prefix", "../x")], "bad-prefix"),
        ] {
            assert_eq!(names(&c, "program-desc", pairs).unwrap_err().code().as_str(), code);
        }
        // A name from a file cannot point outside the folder.
        c.metadata.set(PROGRAM_FILE, Value::Text("../x.pdmodel".into()));
        assert_eq!(names(&c, "program-desc", &[]).unwrap(), "model.pdmodel model.pdiparams");
    }
}

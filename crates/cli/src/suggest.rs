//! Suggestions for mistyped file names, missing verbs and misplaced options.

use crate::args::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use std::path::{Path, PathBuf};
use weighbridge::source::{Folder, LocalFolder};
use weighbridge::text::{escape, first_and_more, near};
use weighbridge::{Error, ErrorCode};

/// Maximum number of suggestions.
const MAX_NAMES: usize = 3;

/// Maximum number of verbs in a suggestion.
const MAX_VERBS: usize = 4;

/// Adds similar file names of the same folder as a hint to an error about a missing file.
pub(crate) fn with_similar_files(error: Error) -> Error {
    if error.code() != ErrorCode::NotFound || error.hint_text().is_some() {
        return error;
    }
    let Some(similar) = error.file().and_then(|file| similar_files(Path::new(file))) else { return error };
    error.hint(format!("did you mean {similar}?"))
}

/// Returns the error for a file in place of a verb.
pub(crate) fn missing_verb(error: &clap::Error) -> Option<Error> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let is_path = word.contains('.') || Path::new(word).exists();
    is_path.then(|| {
        Error::usage("bad-arguments", format!("`{word}` is not a verb"))
            .hint(format!("try `weighbridge info {word}`"))
    })
}

/// Adds the verbs that have an option to the error of a verb that has not.
pub(crate) fn with_verbs(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return error };
    let Some(name) = argument.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument)
    else {
        return error;
    };
    let name = name.split('=').next().unwrap_or(name);
    let is_own = |own: &Arg| {
        let names = own.get_long_and_visible_aliases().unwrap_or_default();
        !own.is_hide_set() && names.contains(&name)
    };
    let command = Args::command();
    let verbs = command.get_subcommands().filter(|verb| verb.get_arguments().any(is_own));
    let verbs: Vec<&str> = verbs.map(Command::get_name).collect();
    let verbs = match verbs.as_slice() {
        [] => return error,
        [rest @ .., last] if (1..MAX_VERBS).contains(&rest.len()) => {
            format!("{} and {last}", rest.join(", "))
        }
        all => first_and_more(all, MAX_VERBS),
    };
    let tip = format!("--{name} is an option of {verbs}");
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// Returns the similar names beside `missing`, each in backticks: `` `a.pt` or `b.pt` ``.
fn similar_files(missing: &Path) -> Option<String> {
    let name = missing.file_name()?.to_str()?;
    let parent = missing.parent().filter(|parent| !parent.as_os_str().is_empty());
    let items = LocalFolder::open(parent.unwrap_or(Path::new("."))).ok()?.list(1).ok()?;
    let names: Vec<String> = items.iter().filter_map(|item| Some(item.name.to_str()?.to_owned())).collect();
    let found = near(|| names.iter().map(String::as_str), name, MAX_NAMES);
    let shown = |name: &&str| {
        let path = parent.map_or_else(|| PathBuf::from(name), |parent| parent.join(name));
        format!("`{}`", escape(&path.display().to_string()))
    };
    (!found.is_empty()).then(|| found.iter().map(shown).collect::<Vec<_>>().join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_names_of_the_same_folder() {
        let folder = tempfile::tempdir().unwrap();
        #[allow(clippy::disallowed_methods, reason = "a file of a test")]
        std::fs::write(folder.path().join("model.safetensors"), b"").unwrap();
        let error = |name: &str| {
            let path = folder.path().join(name);
            let missing = Error::io("cannot open the file", std::io::ErrorKind::NotFound.into());
            with_similar_files(missing.in_file(path.display()))
        };
        let hint = error("modle.safetensors");
        assert!(hint.hint_text().unwrap().ends_with("model.safetensors`?"), "{hint}");
        assert_eq!(error("x").hint_text(), None);
    }
}

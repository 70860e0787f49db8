//! Suggestions for mistyped file names, missing verbs and misplaced options.

use crate::args::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use weighbridge::formats::registry;
use weighbridge::source::{Folder, LocalFolder};
use weighbridge::text::{escape, first_and_more, near};
use weighbridge::{Error, ErrorCode};

/// Maximum number of suggestions.
const MAX_NAMES: usize = 3;

/// Maximum number of verbs in a suggestion.
const MAX_VERBS: usize = 4;

/// Names of options of other tools, the options of the same use here, and the tip.
const OTHER_NAMES: [(&[&str], &str, &str); 3] = [
    (&["filter", "grep", "include", "match", "pattern"], "select", "use --select PATTERN"),
    (&["dtype", "precision", "type"], "cast", "use --cast, for example --cast f16"),
    (
        &["tol", "tolerance", "eps"],
        "atol",
        "use --atol for an absolute tolerance, or --rtol for a relative one",
    ),
];

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

/// Adds a tip to an error about arguments, and removes tips that lead away: similar names by chance, and an unknown option as a
/// value.
pub(crate) fn with_tip(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if let Some(tip) = cast_tip(&error) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    if let (Some(ContextValue::String(word)), None) =
        (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::SuggestedSubcommand))
    {
        // `help` suggests none itself.
        let command = Args::command();
        let similar = near(|| command.get_subcommands().map(clap::Command::get_name), word, 1);
        let similar: Vec<String> = similar.into_iter().map(Into::into).collect();
        if !similar.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(similar));
        }
        return error;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return error };
    let Some(name) = argument.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument)
    else {
        return error;
    };
    let name = name.split('=').next().unwrap_or(name).to_owned();
    let mut command = Args::command();
    command.build();
    let called = arguments.iter().filter_map(|argument| argument.to_str());
    let called = called.map(str::to_owned).find(|word| command.find_subcommand(word).is_some());
    let verb = called.as_deref().and_then(|called| command.find_subcommand(called));
    let tip = verb
        .and_then(|verb| other_name_tip(verb, &name))
        .or_else(|| verbs_tip(&command, &name))
        .or_else(|| setting_tip(verb?, &name, arguments));
    error.remove(ContextKind::Suggested);
    let is_similar = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(similar)) => {
            let similar = similar.trim_start_matches('-');
            !near(|| std::iter::once(similar), &name, 1).is_empty()
        }
        _ => false,
    };
    if (tip.is_some() || !is_similar) && error.remove(ContextKind::SuggestedArg).is_some() {
        // The usage contains the similar option.
        let usage = called.and_then(|verb| Some(command.find_subcommand_mut(&verb)?.render_usage()));
        if let Some(usage) = usage {
            error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
        }
    }
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Returns the tip with the verbs that have an option.
fn verbs_tip(command: &Command, name: &str) -> Option<String> {
    let is_own = |own: &Arg| {
        let names = own.get_long_and_visible_aliases().unwrap_or_default();
        !own.is_hide_set() && names.contains(&name)
    };
    let verbs = command.get_subcommands().filter(|verb| verb.get_arguments().any(is_own));
    let verbs: Vec<&str> = verbs.map(Command::get_name).collect();
    let verbs = match verbs.as_slice() {
        [] => return None,
        [rest @ .., last] if (1..MAX_VERBS).contains(&rest.len()) => {
            format!("{} and {last}", rest.join(", "))
        }
        all => first_and_more(all, MAX_VERBS),
    };
    Some(format!("--{name} is an option of {verbs}"))
}

fn has_option(verb: &Command, option: &str) -> bool {
    verb.get_arguments().any(|own| own.get_long() == Some(option))
}

/// Returns the tip with the option of the verb for the name that another tool has for it.
fn other_name_tip(verb: &Command, name: &str) -> Option<String> {
    let is_other =
        |(names, option, _): &&(&[&str], &str, &str)| names.contains(&name) && has_option(verb, option);
    OTHER_NAMES.iter().find(is_other).map(|(.., tip)| (*tip).to_owned())
}

/// Returns the tip with `--set` for the name of a setting.
fn setting_tip(verb: &Command, name: &str, arguments: &[OsString]) -> Option<String> {
    let key = name.replace('-', "_");
    let mut settings = registry().iter().flat_map(|format| format.info().settings);
    if !has_option(verb, "set") || !settings.any(|setting| setting.name == key) {
        return None;
    }
    let words: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let place =
        words.iter().position(|word| word.strip_prefix("--").is_some_and(|word| word.starts_with(name)))?;
    let value = match words[place].split_once('=') {
        Some((_, value)) => value,
        None => words.get(place + 1).copied().filter(|word| !word.starts_with('-')).unwrap_or("VALUE"),
    };
    Some(format!("use --set {key}={}", escape(value)))
}

/// Returns the tip for a cast of some tensors by a verb that casts all.
fn cast_tip(error: &clap::Error) -> Option<String> {
    let (Some(ContextValue::String(argument)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    (argument.starts_with("--cast ") && value.contains('='))
        .then(|| "edit --cast takes PATTERN=DTYPE, for some tensors".to_owned())
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

//! Wording of options, verbs and limits for the command: `--force`.

use weighbridge::phrase::{Call, Choice, Opt, Term};

/// Returns the wording of a term: a flag, a call of the command, or the option that raises a limit.
pub(crate) fn flags(term: &Term) -> String {
    match term {
        Term::Choice(choice) => flag(choice),
        Term::Call(Call { job, is_brief, arguments, choices }) => {
            let name = if *is_brief { "" } else { "weighbridge " };
            let arguments = arguments.iter().map(|word| format!(" {word}"));
            let choices = choices.iter().map(|choice| format!(" {}", flag(choice)));
            format!("{name}{}{}", job.name(), arguments.chain(choices).collect::<String>())
        }
        Term::Limit { name, enough } => {
            let number = enough.map_or_else(|| "NUMBER".to_owned(), |enough| enough.to_string());
            format!("with --limit {name}={number}")
        }
        other => other.to_string(),
    }
}

fn flag(choice: &Choice) -> String {
    // The value of --in-place is optional, so it needs the equals sign.
    let gap = if choice.option == Opt::InPlace { "=" } else { " " };
    let key = choice.key.map_or_else(String::new, |key| format!("{key}="));
    match &choice.value {
        Some(value) => format!("--{}{gap}{key}{value}", choice.option.name()),
        None => format!("--{}", choice.option.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::flags;
    use crate::args::Args;
    use clap::CommandFactory;
    use weighbridge::phrase;
    use weighbridge::phrase::{Job, Opt, Phrase, Worded};

    fn worded(phrase: Phrase) -> String {
        phrase.worded(&flags).to_string()
    }

    #[test]
    fn words_terms_as_flags() {
        for (phrase, text) in [
            (phrase!["use ", Opt::Force, " to replace it"], "use --force to replace it"),
            (Opt::Cast.with("f32").into(), "--cast f32"),
            (Opt::InPlace.with("rewrite").into(), "--in-place=rewrite"),
            (Opt::Set.any_pair("type", "NAME").into(), "--set type=NAME"),
            (Job::Edit.call().of(&["SRC", "DST"]).into(), "weighbridge edit SRC DST"),
            (Job::Edit.brief().with(Opt::NoState).into(), "edit --no-state"),
            (phrase::limit("tensors").into(), "with --limit tensors=NUMBER"),
        ] {
            assert_eq!(worded(phrase), text);
        }
    }

    #[test]
    fn every_option_and_job_has_a_flag_or_verb() {
        let command = Args::command();
        let verbs: Vec<_> = command.get_subcommands().collect();
        for job in Job::ALL {
            assert!(verbs.iter().any(|verb| verb.get_name() == job.name()), "{}", job.name());
        }
        for option in Opt::ALL {
            let has = verbs
                .iter()
                .any(|verb| verb.get_arguments().any(|own| own.get_long() == Some(option.name())));
            assert!(has, "{}", option.name());
        }
    }
}

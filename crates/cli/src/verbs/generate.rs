//! `completions` and `man`: made from the declaration of the arguments.

use crate::args::{Args, Completions, Man};
use crate::output::Output;
use crate::{Failure, Outcome};
use clap::CommandFactory;
use std::io::Write;
use weighbridge::Error;

pub(crate) fn completions(args: &Completions, output: &mut Output) -> Result<Outcome, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "weighbridge", &mut text);
    output.write_all(&text)?;
    Ok(Outcome::Done)
}

pub(crate) fn man(args: &Man, output: &mut Output) -> Result<Outcome, Failure> {
    let mut command = Args::command();
    command.build();
    let page = match &args.verb {
        None => command,
        Some(verb) => match command.find_subcommand(verb) {
            Some(found) => found.clone(),
            None => {
                let verbs: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
                return Err(Error::usage("unknown-verb", "there is no such verb")
                    .found(verb)
                    .hint(format_args!("the verbs are {}", verbs.join(", ")))
                    .into());
            }
        },
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    output.write_all(&text)?;
    Ok(Outcome::Done)
}

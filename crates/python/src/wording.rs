//! Options worded as Python keywords: `force=True`.

use serde_json::Value as Json;
use weighbridge::checkpoint::Loss;
use weighbridge::phrase::{Call, Choice, Job, Opt, Term, Worded};

/// A function of the package and the options it accepts as keywords.
struct Function {
    name: &'static str,
    takes: &'static [&'static [Opt]],
}

/// Options of functions that read a model.
const READING: &[Opt] = &[
    Opt::From,
    Opt::At,
    Opt::Lenient,
    Opt::Salvage,
    Opt::FollowVirtual,
    Opt::Dequantize,
    Opt::Program,
    Opt::Names,
    Opt::Entities,
    Opt::Config,
];
/// Options of functions that write a model.
const WRITING: &[Opt] = &[Opt::To, Opt::Kind, Opt::Set, Opt::DenyLoss, Opt::Force, Opt::Memory];

/// Functions in order of preference, for hints about an option that the called function lacks.
const FUNCTIONS: &[Function] = &[
    Function { name: "open", takes: &[READING] },
    Function { name: "save", takes: &[WRITING, &[Opt::Cast, Opt::Seed]] },
    Function {
        name: "convert",
        takes: &[
            READING,
            WRITING,
            &[
                Opt::Select,
                Opt::Drop,
                Opt::NoState,
                Opt::LenientRules,
                Opt::Rename,
                Opt::Cast,
                Opt::ReverseDims,
                Opt::Seed,
                Opt::Versions,
                Opt::CopyOthers,
                Opt::Like,
            ],
        ],
    },
    Function {
        name: "edit",
        takes: &[
            READING,
            WRITING,
            &[
                Opt::Drop,
                Opt::NoState,
                Opt::LenientRules,
                Opt::Rename,
                Opt::RenameGlob,
                Opt::RenameRegex,
                Opt::Cast,
                Opt::InPlace,
                Opt::Undo,
                Opt::ForgetUndo,
            ],
        ],
    },
    Function { name: "shard", takes: &[READING, WRITING] },
    Function { name: "merge", takes: &[READING, WRITING, &[Opt::Prefer, Opt::PrefixEach]] },
    Function {
        name: "import_edges",
        takes: &[&[Opt::Columns, Opt::Config, Opt::From, Opt::Force, Opt::Memory, Opt::Order, Opt::Seed]],
    },
    Function { name: "seal", takes: &[READING, &[Opt::FilesOnly, Opt::AllowSymlinks, Opt::Force]] },
    Function { name: "verify", takes: &[READING, &[Opt::Values, Opt::TensorsOnly]] },
    Function {
        name: "diff",
        takes: &[
            READING,
            &[
                Opt::Memory,
                Opt::Select,
                Opt::Drop,
                Opt::NoState,
                Opt::LenientRules,
                Opt::Rename,
                Opt::RenameRegex,
            ],
        ],
    },
    Function { name: "checkpoint", takes: &[READING, &[Opt::Recover, Opt::Rollback]] },
    Function {
        name: "program",
        takes: &[READING, &[Opt::List, Opt::Strip, Opt::Outputs, Opt::Rename, Opt::Set, Opt::Force]],
    },
    Function { name: "evaluate", takes: &[READING, &[Opt::Candidates, Opt::Memory, Opt::Seed]] },
    Function { name: "neighbors", takes: &[READING, &[Opt::By, Opt::Memory]] },
    Function { name: "rank", takes: &[READING] },
    Function { name: "scan", takes: &[READING] },
    Function { name: "show", takes: &[READING] },
    Function { name: "stats", takes: &[READING] },
    Function { name: "ls", takes: &[READING, &[Opt::Select, Opt::Drop]] },
    Function { name: "info", takes: &[READING] },
];

/// Options that the format-specific functions accept, too.
const EVERYWHERE: [Opt; 2] = [Opt::Force, Opt::Lenient];

/// Boolean options.
const SWITCHES: [Opt; 20] = [
    Opt::AllowSymlinks,
    Opt::CopyOthers,
    Opt::DenyLoss,
    Opt::Dequantize,
    Opt::FilesOnly,
    Opt::FollowVirtual,
    Opt::Force,
    Opt::ForgetUndo,
    Opt::InPlace,
    Opt::Lenient,
    Opt::LenientRules,
    Opt::List,
    Opt::NoState,
    Opt::PrefixEach,
    Opt::Recover,
    Opt::ReverseDims,
    Opt::Salvage,
    Opt::TensorsOnly,
    Opt::Undo,
    Opt::Values,
];

impl Function {
    fn takes(&self, option: Opt) -> bool {
        self.takes.iter().any(|options| options.contains(&option))
    }

    fn named(name: &str) -> Option<&'static Self> {
        FUNCTIONS.iter().find(|function| function.name == name)
    }
}

/// Keywords that hints can name, by function: a test compares them with the signatures.
pub(crate) fn keywords() -> Vec<(&'static str, Vec<String>)> {
    let of = |function: &'static Function| {
        let options = Opt::ALL.iter().filter(|option| function.takes(**option));
        let mut all: Vec<String> = options.map(|option| keyword(*option, function.name)).collect();
        if function.takes(Opt::Lenient) {
            all.push(limits(function.name).to_owned());
        }
        (function.name, all)
    };
    FUNCTIONS.iter().map(of).collect()
}

/// Wording for the caller of the function `asked`; `None` for format-specific functions.
pub(crate) fn words(asked: Option<&'static str>) -> impl Fn(&Term) -> String {
    move |term| match term {
        Term::Choice(choice) => chosen(choice, asked),
        Term::Call(call) => called(call),
        Term::Limit { name, enough } => {
            let number = enough.map_or_else(|| "NUMBER".to_owned(), |enough| enough.to_string());
            let reads = |name: &&str| Function::named(name).is_some_and(|own| own.takes(Opt::Lenient));
            let given = match asked.filter(reads) {
                Some(own) => format!("{}={{\"{name}\": {number}}}", limits(own)),
                None => format!("weighbridge.open(..., limits={{\"{name}\": {number}}})"),
            };
            format!("{term}: {given}")
        }
        other => other.to_string(),
    }
}

/// Losses as JSON, worded for format-specific functions.
pub(crate) fn losses_json(losses: &[Loss]) -> Json {
    losses.iter().map(|loss| loss.clone().worded(&words(None)).to_json()).collect()
}

/// Keyword for limits.
fn limits(function: &str) -> &'static str {
    if function == "open" { "limits" } else { "limit" }
}

/// Keyword of a function for an option.
fn keyword(option: Opt, function: &str) -> String {
    match (function, option) {
        ("open", Opt::From) | ("save", Opt::To) => "format".to_owned(),
        ("save", Opt::Set) => "settings".to_owned(),
        (_, Opt::From) => "from_".to_owned(),
        _ => option.name().replace('-', "_"),
    }
}

/// Keyword for a choice; a whole call if the called function does not accept it.
fn chosen(choice: &Choice, asked: Option<&'static str>) -> String {
    let own = asked.and_then(Function::named).filter(|function| function.takes(choice.option));
    let other = || FUNCTIONS.iter().find(|function| function.takes(choice.option));
    match (own, EVERYWHERE.contains(&choice.option)) {
        (Some(function), _) => assigned(choice, function.name),
        (None, true) => assigned(choice, ""),
        (None, false) => match other() {
            Some(function) => {
                format!("weighbridge.{}(..., {})", function.name, assigned(choice, function.name))
            }
            None => format!("`{choice}`"),
        },
    }
}

fn called(call: &Call) -> String {
    // Its name is a keyword of Python.
    let name = if call.job == Job::Import { "import_edges" } else { call.job.name() };
    let mut given: Vec<String> = call.arguments.iter().map(|word| (*word).to_owned()).collect();
    if given.is_empty() && !call.choices.is_empty() {
        given.push("...".to_owned());
    }
    given.extend(call.choices.iter().map(|choice| assigned(choice, name)));
    match given.as_slice() {
        [] => format!("weighbridge.{name}"),
        given => format!("weighbridge.{name}({})", given.join(", ")),
    }
}

fn assigned(choice: &Choice, function: &str) -> String {
    let keyword = keyword(choice.option, function);
    let quoted = |word: &str, is_example: bool| match is_example || word.parse::<u64>().is_ok() {
        true => word.to_owned(),
        false => format!("\"{word}\""),
    };
    match (&choice.value, choice.key) {
        (Some(value), Some(key)) => format!("{keyword}={{\"{key}\": {}}}", quoted(value, choice.is_example)),
        (Some(value), None) => format!("{keyword}={}", quoted(value, choice.is_example)),
        (None, _) if SWITCHES.contains(&choice.option) => format!("{keyword}=True"),
        (None, _) => format!("{keyword}=..."),
    }
}

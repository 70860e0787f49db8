//! Templates of chats: whether one reaches further than what it is given.
//!
//! A template of Jinja comes from any value to all of Python by names that begin with an underscore, and a few others. As for
//! Jinja's sandbox, only what is looked up counts: `a.name`, `a[key]`, and the filters that look up an attribute (`attr`, `map`,
//! `selectattr`, `rejectattr`, `groupby`, `sort`, `sum`, `unique`, `min`, `max`, `join`). Plain text, comments, and texts that are
//! only shown, compared or split may have any letters.
//!
//! A name that is written out is looked at as it is, without its escapes. A key that is not is found where it may be the name
//! of such a thing, that is, where it was put together. For that each value is some of these ([`value::Kinds`]):
//!
//! | value | what has it | as a key |
//! | --- | --- | --- |
//! | number | numbers, truths, counts, `loop.index0`, what is reckoned with them | clean |
//! | list, mapping | lists and mappings; their items are known apart | clean |
//! | plain | texts of the template that begin with no underscore; such a text with anything tied behind it | clean |
//! | data | what the template is given, unchanged or cut: `messages`, `tools`, what is in all that is given | clean |
//! | foreign | other names that the template does not set: files of the model may set them to a text | clean; what is cut of it is built |
//! | function | what may be called, or is an object: methods, macros, what is not known | clean; what it gives is built |
//! | space | a namespace; its attributes are known by their names, apart | clean |
//! | built | the rest: texts that are tied, formatted, replaced, joined, repeated from an underscore on, cut out of a text with an underscore; what a macro, a block or a function gives; names that end with `token`, which the files of the model set | found |
//!
//! A name that is set several times is each of its values everywhere, whatever the order; so are attributes of namespaces. So
//! nothing is run, and no path is passed over.
//!
//! Only what templates of chats have is followed exactly. Any other filter, method or call gives whatever there is, which is
//! found as a key, and what such a one is given may be met again in any list, mapping or macro ([`Names::lose`]).

mod calls;
mod filters;
mod lexer;
mod names;
mod reader;
mod statements;
#[cfg(test)]
mod tests;
mod value;

use lexer::Broken;
use names::Names;
pub(super) use names::format_leads_on;
use reader::Reader;
use std::collections::HashSet;

/// Bytes of the longest template that is followed: those of models have up to 30,000.
const LONGEST: usize = 256 << 10;
/// How often a template is gone through until no value changes any more: names may be set from names that are set later.
const PASSES: usize = 12;

/// What is thought of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Clean,
    /// It reaches further than what it is given; where, and by what.
    Reaches(String),
    /// It could not be followed; why.
    Unread(&'static str),
}

/// Judges a template. `tokens` are names that the files of the model set, to texts of which a piece may be the name of anything.
pub(super) fn judge(template: &str, tokens: &HashSet<String>) -> Judged {
    if template.len() > LONGEST {
        return Judged::Unread("it is longer than a template that is looked through");
    }
    // Jinja does so before it cuts the template: within a text a backslash takes away the whole end of a line.
    let lines = template.contains('\r').then(|| template.replace("\r\n", "\n").replace('\r', "\n"));
    let template = lines.as_deref().unwrap_or(template);
    let mut names = Names::new(tokens);
    // Which names there are; no value is known yet.
    let whole = pass(template, &mut names).0.is_ok();
    names.restart();
    for _ in 0..PASSES {
        names.changed = false;
        if let (_, Some(found)) = pass(template, &mut names) {
            return Judged::Reaches(found);
        }
        if !whole {
            return Judged::Unread("it is no template of Jinja as far as known here");
        }
        if !names.changed {
            return Judged::Clean;
        }
    }
    Judged::Unread("its names are set from names that are set later, again and again")
}

/// Goes through the template once; gives what it reaches for.
fn pass<'a>(template: &'a str, names: &mut Names<'a>) -> (Result<(), Broken>, Option<String>) {
    match Reader::new(template, names) {
        Ok(mut reader) => (reader.all(), reader.found),
        Err(broken) => (Err(broken), None),
    }
}

//! Templates of chats: whether one reaches further than what it is given.
//!
//! A template of Jinja comes from any value to all of Python by names with two underscores. Such a name may stand in one piece,
//! or be put together: so what looks something up by a name that is computed is as bad. Templates as people write them look up
//! plain names, numbers and variables.

/// Names of Python that reach further without two underscores: frames of generators, and what hangs on them.
const REACHING: &[&str] = &[
    "gi_frame",
    "gi_code",
    "gi_yieldfrom",
    "cr_frame",
    "cr_code",
    "ag_frame",
    "ag_code",
    "f_back",
    "f_builtins",
    "f_code",
    "f_globals",
    "f_locals",
    "tb_frame",
    "tb_next",
    "co_code",
    "func_globals",
    "func_code",
];
/// Filters that look up an attribute which their first argument names.
const BY_FIRST: &[&str] = &["selectattr", "rejectattr", "groupby"];
/// Words before a bracket that begins a list, and looks nothing up.
const BEFORE_LIST: &[&str] =
    &["in", "if", "else", "elif", "and", "or", "not", "is", "return", "set", "do", "recursive"];

/// True for a template that reaches further than what it is given, or looks something up by a name that it computes.
pub(super) fn reaches(template: &str) -> bool {
    template.contains("__")
        || REACHING.iter().any(|name| template.contains(name))
        || has_escape(template)
        || words(template).any(|(at, word)| looks_up(template, at, word))
        || template.char_indices().any(|(at, c)| c == '[' && computes_key(template, at))
        || joins_underscores(template)
}

/// True for an escape that spells a character by its number.
fn has_escape(template: &str) -> bool {
    let mut rest = template;
    while let Some((_, behind)) = rest.split_once('\\') {
        if behind.starts_with(|c: char| matches!(c, 'x' | 'u' | 'U' | 'N' | '0'..='7')) {
            return true;
        }
        // A backslash that is escaped escapes nothing.
        rest = behind.strip_prefix('\\').unwrap_or(behind);
    }
    false
}

/// The words of a template, and where they begin.
fn words(template: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
    template.split(move |c| !is_part(c)).filter(|word| !word.is_empty()).map(move |word| {
        // Each word is a part of the template.
        (word.as_ptr().addr() - template.as_ptr().addr(), word)
    })
}

/// True where the word is a filter that looks up an attribute, and which one is computed; for `attr` always.
fn looks_up(template: &str, at: usize, word: &str) -> bool {
    let (before, behind) = (template[..at].trim_end(), template[at + word.len()..].trim_start());
    let argument = behind.strip_prefix('(').map(str::trim_start);
    match word {
        "attr" => {
            // As a filter, in a block of its own, or by name in `map`.
            before.ends_with('|')
                || before.ends_with("filter")
                || (before.ends_with(['\'', '"']) && behind.starts_with(['\'', '"']))
        }
        "attribute" => behind.strip_prefix('=').is_some_and(|value| !is_plain(value)),
        // The name of a filter, or an attribute.
        "map" if before.ends_with('|') => argument.is_some_and(|argument| {
            !argument.starts_with("attribute") && !is_plain(argument) && !argument.starts_with(')')
        }),
        word if BY_FIRST.contains(&word) => {
            argument.is_some_and(|argument| !argument.starts_with("attribute") && !is_plain(argument))
        }
        _ => false,
    }
}

/// True for an argument that is a plain name in quotes, or a number, and nothing else.
fn is_plain(argument: &str) -> bool {
    let argument = argument.trim_start();
    let ends = |rest: &str| rest.trim_start().starts_with([',', ')']);
    let Some(quote) = argument.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
        let rest = argument.trim_start_matches(|c: char| c.is_ascii_digit());
        return rest.len() < argument.len() && ends(rest);
    };
    let Some((name, rest)) = argument[1..].split_once(quote) else { return false };
    name.chars().all(|c| matches!(c, '_' | '-' | '.' | ' ') || c.is_alphanumeric()) && ends(rest)
}

/// True where the bracket at `at` looks up a key that is put together: text, and something that is done with it.
fn computes_key(template: &str, at: usize) -> bool {
    let before = template[..at].trim_end();
    let word = before.rsplit(|c: char| c != '_' && !c.is_ascii_alphanumeric()).next().unwrap_or("");
    let looks_up =
        before.ends_with([')', ']', '\'', '"']) || !(word.is_empty() || BEFORE_LIST.contains(&word));
    if !looks_up {
        return false;
    }
    // Of the key itself, without what stands in brackets of its own: `a[b['c'] + 1]` looks up a number.
    let (mut depth, mut quote, mut end) = (0u32, None, template.len());
    let (mut text, mut done, mut tied) = (false, false, false);
    for (offset, c) in template[at + 1..].char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => {
                quote = Some(c);
                text |= depth == 0;
            }
            (None, '[' | '(' | '{') => depth += 1,
            (None, ']' | ')' | '}') => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => {
                    end = at + 1 + offset;
                    break;
                }
            },
            (None, '~') => tied = true,
            (None, '+' | '*' | '%' | '|') => done |= depth == 0,
            _ => {}
        }
    }
    let key = &template[at + 1..end];
    // Text that does not end hides what follows.
    quote.is_some() || tied || (text && done) || words(key).any(|(at, word)| makes_text(key, at, word))
}

/// True where the word is a filter or a method that makes text of texts.
fn makes_text(key: &str, at: usize, word: &str) -> bool {
    let (before, behind) = (key[..at].trim_end(), key[at + word.len()..].trim_start());
    matches!(word, "join" | "format" | "replace" | "reverse" | "translate")
        && (before.ends_with('|') || (before.ends_with('.') && behind.starts_with('(')))
}

/// True where text that begins with an underscore is put together with other text: the pieces of a name with two.
fn joins_underscores(template: &str) -> bool {
    let joins = |rest: &str| rest.starts_with(['~', '+', '*', '%']);
    ["'_", "\"_"].iter().any(|start| {
        template.match_indices(start).any(|(at, _)| {
            let quote = &start[..1];
            let Some((piece, behind)) = template[at + 1..].split_once(quote) else { return true };
            // What ends one text and begins with an underscore is no text.
            let is_text = piece.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
            let before = template[..at].trim_end();
            is_text
                && (joins(behind.trim_start())
                    || before.ends_with(['~', '+', '*', '%', '['])
                    || behind.trim_start().starts_with(']'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_that_reach_out() {
        for bad in [
            "{{ (cycler|attr('__in'~'it__')|attr('__glo'~'bals__'))['o'~'s'].popen('id').read() }}",
            "{{ ''|attr('_'*2+'class'+'_'*2) }}",
            "{{ ''| attr ('x') }}",
            "{% filter attr('x') %}{% endfilter %}",
            "{{ ['']|map('attr', x) }}",
            "{{ ['']|map('at'~'tr', x) }}",
            "{{ x['\\x5f\\x5fclass'] }}",
            "{{ x['\\137\\137class'] }}",
            "{{ x.__reduce__ }}",
            "{{ cycler['_' ~ '_init_' ~ '_'] }}",
            "{{ cycler['XXinitXX'|replace('X', u)] }}",
            "{{ cycler[('a' ~ 'b')|lower] }}",
            "{{ cycler[['a', b]|join] }}",
            "{{ cycler['XXinitXX'.replace('X', u)] }}",
            "{{ cycler[u ~ 'init' ~ u] }}",
            "{% set k = '_' ~ '_init_' ~ '_' %}{{ cycler[k] }}",
            "{% set k = ['_','_','init']|join %}{{ cycler[k] }}",
            "{{ messages|map(attribute='_' ~ 'x')|list }}",
            "{{ messages|map(attribute=k)|list }}",
            "{{ messages|selectattr(k)|list }}",
            "{{ (messages|map('upper')).gi_frame.f_globals }}",
        ] {
            assert!(reaches(bad), "{bad}");
        }
    }

    #[test]
    fn templates_as_people_write_them() {
        for good in [
            "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}",
            "{% set loop_messages = messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}",
            "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}{%- else %}{%- set system_message = '' %}{%- endif %}",
            "{{- '{\"name\": ' + message.tool_calls[0].function.name | tojson + '}' }}",
            "{%- if messages[loop.index0 - 1]['role'] != 'tool' and messages[loop.index0 + 1].role == \"tool\" %}{%- endif %}",
            "{%- set loop_messages = messages | selectattr('role', 'equalto', 'user') | list %}",
            "{{ messages | rejectattr(\"role\", \"equalto\", \"system\") | map(attribute='content') | join('\\n') }}",
            "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{%- endif %}",
            "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{{ tool_name | replace('_', ' ') | title }}",
            "{%- for key, value in tool.parameters['properties'].items() %}{{ params[key] ~ ': ' ~ value['type'] }}{%- endfor %}",
            "{%- set ns = namespace(found=false, last=messages[-1]['content']) %}{%- set ns.index = (messages|length - 1) - loop.index0 %}",
            "{%- for name in ['system', 'user'] %}{{ name + ' \\\\ ' + roles[name] }}{%- endfor %}",
            "{%- macro render(attr, value) %}{{ attr }}={{ value['a'] if value['a'] is defined else \"it's\" }}{%- endmacro %}",
            "{{ strftime_now('%d %b %Y') }}{{ messages[-1:][0]['content'] }}{{ message['tool_calls'][0]['function']['name'] }}",
        ] {
            assert!(!reaches(good), "{good}");
        }
    }
}

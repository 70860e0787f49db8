//! Plain words: texts for users, and documentation, have none of the words that made them hard to read.
//!
//! `docs/glossary.md` lists the word to use instead.

use super::house::sources;
use std::path::{Path, PathBuf};

/// Words and phrases that no text has, in lower case.
const BANNED: &[&str] = &[
    "told",
    "tells of",
    "nobody",
    "honest",
    "hostile",
    "believe",
    "believed",
    "believes",
    "whoever",
    "of which",
    "what is",
    "what was",
    "what are",
    "what it",
    "stands",
    "stands in",
    "stand in",
    "stand beside",
    "stood",
    "gave way",
    "gives way",
    "taken for",
    "take for",
    "takes for",
    "taken back",
    "left out",
    "leaves out",
    "leave out",
    "twins",
    "crew",
    "once more",
    "at hand",
    "anyhow",
    "goes along",
    "brings along",
    "come to light",
    "as it lies",
    "lies in",
    "shall",
    "nowhere",
    "in vain",
    "without measure",
    "so many",
    "for want of",
    "makes sense",
    "be it",
    "hereby",
    "thereby",
    "therein",
    "wherein",
    "all the same",
    "held against",
    "somebody",
];

/// Words after which a sentence of the pattern "this is no pickle" is plain: "there is no pickle", "is no longer".
const PLAIN_AFTER_NO: [&str; 4] = ["longer", "more", "need", "limit"];

/// First words of documentation that is not a noun or a verb.
const RIDDLES: [&str; 5] = ["What", "Who", "Where", "Of", "Whose"];

/// Texts that need a word of the list: the file, a part of the text, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// A text for users, with its place.
struct Text {
    file: String,
    line: usize,
    text: String,
    is_doc: bool,
}

/// Returns the banned word or phrase in `text`.
fn banned(text: &str) -> Option<String> {
    let mut words: Vec<String> = vec![String::new()];
    // Names in backticks are not prose.
    for (place, part) in text.split('`').enumerate() {
        if place % 2 == 1 {
            words.push("``".to_owned());
            continue;
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == '\'' || c == '/';
        for word in part.split_whitespace() {
            // A mark between words separates phrases.
            let trimmed = word.trim_matches(|c| !is_word(c)).to_lowercase();
            let before = word.starts_with(|c| !is_word(c));
            if before {
                words.push(String::new());
            }
            words.push(trimmed);
            if word.ends_with(|c| !is_word(c)) {
                words.push(String::new());
            }
        }
    }
    words.push(String::new());
    for phrase in BANNED {
        let parts: Vec<&str> = phrase.split(' ').collect();
        if words
            .windows(parts.len())
            .any(|window| window.iter().map(String::as_str).eq(parts.iter().copied()))
        {
            return Some((*phrase).to_owned());
        }
    }
    // "This is no pickle", but not "there is no pickle".
    words.windows(4).find_map(|window| {
        let [before, verb, no, next] = window else { return None };
        let is_negated =
            ["is", "are", "was", "were"].contains(&verb.as_str()) && ["no", "none"].contains(&no.as_str());
        let is_plain = before == "there" || (no == "no" && PLAIN_AFTER_NO.contains(&next.as_str()));
        (is_negated && !is_plain).then(|| format!("{verb} {no}"))
    })
}

/// Collects the documentation and the messages of a Rust source: doc comments, and string literals of several words outside
/// of tests.
fn texts_of_rust(file: &str, source: &str, texts: &mut Vec<Text>) {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut doc: Option<(usize, String)> = None;
    let mut add = |line, text: String, is_doc| texts.push(Text { file: file.to_owned(), line, text, is_doc });
    let (mut rest, mut line) = (source, 1);
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '/' if rest.starts_with("//") => {
                let end = rest.find('\n').unwrap_or(rest.len());
                let comment = rest[..end].strip_prefix("///").or_else(|| rest[..end].strip_prefix("//!"));
                if let Some(text) = comment {
                    let (_, all) = doc.get_or_insert((line, String::new()));
                    all.push_str(text);
                    all.push('\n');
                }
                end
            }
            'r' if rest.starts_with("r#\"") => rest[3..].find("\"#").map_or(rest.len(), |end| end + 5),
            '"' => {
                let mut end = 1;
                while end < rest.len() && !rest[end..].starts_with('"') {
                    end += if rest[end..].starts_with('\\') {
                        2
                    } else {
                        rest[end..].chars().next().map_or(1, char::len_utf8)
                    };
                }
                let text = &rest[1..end.min(rest.len())];
                if text.contains(' ') {
                    add(line, text.replace("\\\n", " "), false);
                }
                end + 1
            }
            // A quote or a backslash as a character.
            '\'' if rest.starts_with("'\"'") => 3,
            '\'' if rest.starts_with("'\\") => rest[2..].find('\'').map_or(2, |end| end + 3),
            _ => c.len_utf8(),
        };
        let len = len.min(rest.len());
        let (done, after) = rest.split_at(len);
        if !c.is_whitespace()
            && !done.starts_with("//")
            && let Some((line, text)) = doc.take()
        {
            add(line, text, true);
        }
        line += done.matches('\n').count();
        rest = after;
    }
}

/// Collects the paragraphs of a page, without code blocks.
fn texts_of_page(file: &str, page: &str, texts: &mut Vec<Text>) {
    let (mut in_code, mut text, mut first) = (false, String::new(), 1);
    for (place, line) in page.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if is_fence || in_code || line.trim().is_empty() || line.starts_with("    ") {
            if !text.is_empty() {
                texts.push(Text {
                    file: file.to_owned(),
                    line: first,
                    text: std::mem::take(&mut text),
                    is_doc: false,
                });
            }
            first = place + 2;
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    if !text.is_empty() {
        texts.push(Text { file: file.to_owned(), line: first, text, is_doc: false });
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lists the files below `folder` with this extension.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("tests") {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
}

/// Returns the texts for users of the whole project.
fn texts() -> Vec<Text> {
    let mut texts = Vec::new();
    for (file, source) in sources() {
        let is_test = ["/tests", "tests.rs", "fuzz/", "benches/", "testkit", "framework.rs"];
        if !is_test.iter().any(|part| file.contains(part)) {
            texts_of_rust(&file, &source, &mut texts);
        }
    }
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)).into();
    files(&root().join("docs/src"), "md", &mut pages);
    files(&root().join("crates"), "md", &mut pages);
    files(&root().join("python/weighbridge"), "py", &mut pages);
    for path in pages {
        let file = path.strip_prefix(root()).unwrap().display().to_string();
        texts_of_page(&file, &std::fs::read_to_string(&path).unwrap(), &mut texts);
    }
    assert!(texts.len() > 5000, "{}", texts.len());
    texts
}

#[test]
fn texts_have_no_banned_words() {
    assert!(EXCEPTIONS.len() < 40);
    let mut used = vec![false; EXCEPTIONS.len()];
    let mut found = Vec::new();
    for Text { file, line, text, .. } in texts() {
        let Some(word) = banned(&text) else { continue };
        match EXCEPTIONS.iter().position(|(of, part, _)| *of == file && text.contains(part)) {
            Some(place) => used[place] = true,
            None => found
                .push(format!("{file}:{line}: `{word}` in {:?}", text.chars().take(160).collect::<String>())),
        }
    }
    assert!(found.is_empty(), "{} texts:\n{}", found.len(), found.join("\n"));
    let unused: Vec<_> = EXCEPTIONS.iter().zip(used).filter(|(_, used)| !used).map(|(of, _)| of).collect();
    assert!(unused.is_empty(), "exceptions that nothing needs: {unused:?}");
}

#[test]
fn documentation_begins_with_a_noun_or_a_verb() {
    let begins = |text: &Text| RIDDLES.contains(&text.text.split_whitespace().next().unwrap_or_default());
    let found: Vec<String> = texts()
        .iter()
        .filter(|text| text.is_doc && begins(text))
        .map(|text| {
            format!("{}:{}: {:?}", text.file, text.line, text.text.lines().next().unwrap_or_default())
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_rules_find_riddles_and_keep_plain_sentences() {
    let found = |text: &str| banned(text).unwrap_or_default();
    assert_eq!(found("the name that it is told"), "told");
    assert_eq!(found("files, of which some are empty"), "of which");
    assert_eq!(found("this is no pickle"), "is no");
    assert_eq!(found("which are none"), "are none");
    for plain in
        ["there is no pickle", "it is no longer read", "`told` is a name", "tie-not-held", "so, many files"]
    {
        assert_eq!(found(plain), "", "{plain}");
    }
    let mut texts = Vec::new();
    texts_of_rust(
        "x",
        "/// A doc.\n/// More.\nfn f() { g(\"two words\", '\"', \"one\"); } // not read\n",
        &mut texts,
    );
    let texts: Vec<_> = texts.iter().map(|text| (text.text.as_str(), text.is_doc)).collect();
    assert_eq!(texts, [(" A doc.\n More.\n", true), ("two words", false)]);
}

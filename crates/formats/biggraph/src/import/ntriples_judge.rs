//! The independent parser `oxttl` judges the reader of N-Triples, on generated and damaged documents.
//!
//! `NTRIPLES_DOCUMENTS` sets the number of documents. The reader differs on purpose in three things:
//!
//! - [Unchecked]: an IRI, a language tag or a datatype that fits the grammar of N-Triples is accepted, also where it breaks the rules of
//!   RFC 3987 or BCP 47, or is `rdf:langString`. It is a name, and files in use have such terms.
//! - [Colons]: the label of a blank node may have colons, as in RDF 1.1.
//! - [Returns]: a carriage return without a line feed does not end a line.

use super::ntriples::terms;
use super::tests::Rng;
use oxrdf::{Literal, NamedNode, NamedOrBlankNode, Term};
use oxttl::NTriplesParser;

const DOCUMENTS: u64 = 20_000;
const LANG_STRING: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString";

/// Statements of a document as names; `None` for a malformed one.
type Names = Option<Vec<[String; 3]>>;

fn ours(document: &[u8]) -> Names {
    let mut all = Vec::new();
    for line in document.split(|byte| *byte == b'\n') {
        let mut text = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        let end = text.len();
        if let Some(found) = terms(&mut text, 0..end).ok()? {
            // A name is UTF-8, as N-Triples are.
            all.push(found.map(|range| String::from_utf8(text[range].to_vec()).unwrap()));
        }
    }
    Some(all)
}

fn oxttl(document: &[u8], lenient: bool) -> Names {
    let parser = if lenient { NTriplesParser::new().lenient() } else { NTriplesParser::new() };
    let iri = |node: &NamedNode| format!("<{}>", node.as_str());
    let mut all = Vec::new();
    for triple in parser.for_slice(document) {
        let triple = triple.ok()?;
        let subject = match &triple.subject {
            NamedOrBlankNode::NamedNode(node) => iri(node),
            NamedOrBlankNode::BlankNode(node) => format!("_:{}", node.as_str()),
        };
        let object = match &triple.object {
            Term::NamedNode(node) => iri(node),
            Term::BlankNode(node) => format!("_:{}", node.as_str()),
            Term::Literal(literal) => canonical(literal),
        };
        all.push([subject, iri(&triple.predicate), object]);
    }
    Some(all)
}

/// Canonical text of a literal, by the rules of the recommendation.
fn canonical(literal: &Literal) -> String {
    let value = literal.value();
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
    match literal.language() {
        Some(language) => format!("\"{value}\"@{language}"),
        None if literal.datatype() == oxrdf::vocab::xsd::STRING => format!("\"{value}\""),
        None => format!("\"{value}\"^^<{}>", literal.datatype().as_str()),
    }
}

/// True where a name has a part that the grammar of N-Triples allows, and other rules do not.
fn breaks_other_rules(name: &str) -> bool {
    let is_bad_iri = |iri: &str| NamedNode::new(iri).is_err() || iri == LANG_STRING;
    if let Some(iri) = name.strip_prefix('<') {
        return NamedNode::new(iri.trim_end_matches('>')).is_err();
    }
    let Some((_, suffix)) = name.rsplit_once('"') else { return false };
    if let Some(tag) = suffix.strip_prefix('@') {
        return Literal::new_language_tagged_literal("", tag).is_err();
    }
    suffix.strip_prefix("^^<").is_some_and(|iri| is_bad_iri(iri.trim_end_matches('>')))
}

/// Agreement of the two on a document.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Accepted,
    Refused,
    Unchecked,
    Colons,
    Returns,
}

fn judge(document: &[u8]) -> Verdict {
    let (own, theirs) = (ours(document), oxttl(document, false));
    match (&own, &theirs) {
        (Some(own), Some(theirs)) if own == theirs => return Verdict::Accepted,
        (None, None) => return Verdict::Refused,
        _ => {}
    }
    let shown = || format!("{}\nown: {own:?}\noxttl: {theirs:?}", String::from_utf8_lossy(document));
    if let (Some(names), None) = (&own, &theirs) {
        // Without its checks of IRIs and tags it finds the same.
        let is_same = oxttl(document, true).as_ref() == Some(names);
        if is_same && names.iter().flatten().any(|name| breaks_other_rules(name)) {
            return Verdict::Unchecked;
        }
    }
    // With line feeds for other carriage returns, and without colons in labels, the two agree.
    let mut same = document.to_vec();
    for at in 0..same.len() {
        if same[at] == b'\r' && same.get(at + 1) != Some(&b'\n') {
            same[at] = b'\n';
        }
    }
    let has_returns = same != document;
    for label in own.iter().flatten().flatten().filter_map(|name| name.strip_prefix("_:")) {
        let plain = label.replace(':', "x");
        same = replaced(&same, format!("_:{label}").as_bytes(), format!("_:{plain}").as_bytes());
    }
    assert!(same != document, "{}", shown());
    let rest = judge(&same);
    assert!(rest != Verdict::Returns && (rest != Verdict::Colons || has_returns), "{}", shown());
    if has_returns { Verdict::Returns } else { Verdict::Colons }
}

fn replaced(document: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut document = document.to_vec();
    let mut at = 0;
    while let Some(found) = memchr::memmem::find(&document[at..], from) {
        document.splice(at + found..at + found + from.len(), to.iter().copied());
        at += found + to.len();
    }
    document
}

/// Generator of documents that are mostly well-formed.
struct Maker(Rng);

impl Maker {
    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[usize::try_from(self.0.below(all.len() as u64)).unwrap()]
    }

    /// Picks a usual piece, or seldom an odd one.
    fn usual<'a>(&mut self, usual: &[&'a str], odd: &[&'a str]) -> &'a str {
        if self.0.below(25) == 0 { self.pick(odd) } else { self.pick(usual) }
    }

    fn some(&mut self, most: u64, usual: &[&str], odd: &[&str]) -> String {
        (0..self.0.below(most + 1)).map(|_| self.usual(usual, odd)).collect()
    }

    fn iri(&mut self) -> String {
        let starts =
            ["http://a/", "http://example.org/", "urn:x:", "a:", "p+-.1:", "tag:a,2020:", "http://[::1]/"];
        let start = self.usual(&starts, &["http://[:/", "http://a:80b/", "relative", "", "1:", ":"]);
        let usual = [
            "a",
            "Z9",
            "/",
            "?q=1",
            ":",
            "@",
            "%20",
            "é",
            "\u{1f600}",
            "\\u00e9",
            "\\U0001F600",
            "-",
            ".",
            "&'()*+,;=",
        ];
        let odd = [
            "//",
            "#f",
            "%zz",
            "\\u003E",
            "\\u0020",
            "\\ud83d\\ude00",
            "\\t",
            "[",
            "]",
            "\u{e000}",
            "\u{fffe}",
            "\\u005C",
            "\\u000a",
        ];
        format!("<{start}{}>", self.some(4, &usual, &odd))
    }

    fn node(&mut self) -> String {
        let usual = ["a", "B", "0", "_", "-", ".", "..", "é", "\u{b7}", "\u{300}", "\u{2040}", "\u{10000}"];
        let start = self.usual(&["b", "0", "_", "é"], &["", ":", "-", "\u{b7}"]);
        format!("_:{start}{}", self.some(4, &usual, &[":", "\u{37e}", "\u{f0000}", "\u{d7}", "\\u0041"]))
    }

    fn literal(&mut self) -> String {
        let usual = [
            "a",
            " ",
            "text",
            "é",
            "\u{1f600}",
            "\\t",
            "\\b",
            "\\n",
            "\\r",
            "\\f",
            "\\\"",
            "\\'",
            "\\\\",
            "\\u0041",
            "\\u0022",
            "\\u005c",
            "\\u000A",
            "\\u000d",
            "\\U0001F600",
            "\u{0}",
            "\t",
            "#",
            "<",
            ">",
            ".",
            "'",
        ];
        let odd = ["\\uD800", "\\U00110000", "\\u12", "\\q", "\r", "\"", "\\"];
        let text = self.some(6, &usual, &odd);
        let types =
            ["2001/XMLSchema#string", "2001/XMLSchema#integer", "1999/02/22-rdf-syntax-ns#langString"];
        let tags = ["abcdefghij", "en-", "e1", "en--ltr", "a-b-c", "", " en"];
        let suffix = match self.0.below(6) {
            0 => format!("@{}", self.usual(&["en", "en-GB", "DE-de-1996", "x-y"], &tags)),
            1 => format!("^^{}", self.iri()),
            2 => format!(
                "{}^^ <http://www.w3.org/{}>",
                self.usual(&["", " "], &["^"]),
                self.usual(&types[..2], &types)
            ),
            _ => self.usual(&[""], &["^", "^^", " @en", "@"]).to_owned(),
        };
        format!("\"{text}\"{suffix}")
    }

    fn space(&mut self) -> &'static str {
        self.usual(&[" ", " ", "\t", "", "  \t"], &["\u{a0}", "\u{b}", "\n"])
    }

    fn line(&mut self) -> String {
        let mut line = match self.0.below(12) {
            0 => self.some(3, &[" ", "\t", "# a comment", "#"], &["\"", "a"]),
            _ => {
                let subject = if self.0.below(3) == 0 { self.node() } else { self.iri() };
                let predicate = if self.0.below(40) == 0 { self.node() } else { self.iri() };
                let object = match self.0.below(4) {
                    0 => self.node(),
                    1 => self.iri(),
                    _ => self.literal(),
                };
                let [one, two, three] = [0; 3].map(|_| self.space());
                let end = self.usual(&[".", " .", " . ", ".\t# end", ".#"], &["..", "", ". <a:b>"]);
                format!("{subject}{one}{predicate}{two}{object}{three}{end}")
            }
        };
        line.push_str(self.usual(&["\n", "\n", "\r\n", "\n\n"], &["", "\r", "\r\r\n", "\n\r"]));
        line
    }

    /// Makes a document. A third of them is damaged afterwards.
    fn document(&mut self) -> Vec<u8> {
        const BYTES: &[u8] = b"<>\"\\_:.@^#uU0aZ-%/ \t\r\n\x00\x80\xc3\xe9\xff{}|`'";
        let mut document: Vec<u8> =
            (0..=self.0.below(2)).map(|_| self.line()).collect::<String>().into_bytes();
        if self.0.below(3) == 0 {
            for _ in 0..=self.0.below(3) {
                let byte = BYTES[usize::try_from(self.0.below(BYTES.len() as u64)).unwrap()];
                let at = usize::try_from(self.0.below(document.len() as u64 + 1)).unwrap();
                match (self.0.below(3), document.get_mut(at)) {
                    (0, Some(old)) => *old = byte,
                    (1, Some(_)) => drop(document.remove(at)),
                    _ => document.insert(at, byte),
                }
            }
        }
        document
    }
}

#[test]
fn accepts_what_oxttl_accepts_with_the_same_names() {
    let documents = std::env::var("NTRIPLES_DOCUMENTS").map_or(DOCUMENTS, |text| text.parse().unwrap());
    let mut maker = Maker(Rng(11));
    let mut counts = [0u64; 5];
    for _ in 0..documents {
        counts[judge(&maker.document()) as usize] += 1;
    }
    // Every verdict is common enough to mean something.
    assert!(counts.iter().all(|count| *count > documents / 500), "{counts:?}");
    println!("accepted, refused, unchecked, colons, returns: {counts:?}");
}

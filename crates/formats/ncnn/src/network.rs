//! Networks: layers with their blobs and parameters, from text or from the binary form.

use crate::types;
use std::collections::HashMap;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::quoted;
use weighbridge_format::unknown::is_pnnx;

/// Number at the beginning of both forms.
const MAGIC: i32 = 7_767_517;
/// Keys of parameters are below this number.
const MAX_KEYS: i32 = 32;
/// Base of the keys of lists: list 3 has the key -23303.
const LISTS: i32 = -23300;
/// Base of the keys of texts in the binary form.
const TEXTS: i32 = -23400;
/// Key after the last parameter of a layer in the binary form.
const END: i32 = -233;
/// Maximum bytes of a text in the binary form.
const MAX_TEXT: i32 = 255;
/// Memory of a layer, besides its names.
const ENTRY: u64 = 500;
/// Memory of a blob, a parameter or an item of a list, besides its name.
const ITEM: u64 = 150;

/// Form of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Words.
    Text,
    /// Numbers of 4 bytes.
    Binary,
}

/// Value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Param {
    /// Integer, or the bits of a float: the binary form does not distinguish them.
    Int(i32),
    /// Float.
    Float(f32),
    /// List of the two above.
    List(Vec<Param>),
    /// Text.
    Text(String),
}

impl Param {
    /// Returns the integer that ncnn reads from a parameter of any type.
    pub(crate) fn int(&self) -> i32 {
        match self {
            Self::Int(value) => *value,
            Self::Float(value) => value.to_bits().cast_signed(),
            Self::List(_) | Self::Text(_) => 0,
        }
    }
}

/// Layer.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Type.
    pub(crate) kind: String,
    /// Name; in the binary form, the type and the number of the layer.
    pub(crate) name: String,
    /// Offset.
    pub(crate) at: u64,
    /// Blobs that it reads.
    pub(crate) inputs: Vec<usize>,
    /// Blobs that it produces.
    pub(crate) outputs: Vec<usize>,
    /// Parameters by their keys, in the order of the file.
    pub(crate) params: Vec<(i32, Param)>,
}

impl Layer {
    /// Returns a parameter. The last one of several counts.
    pub(crate) fn param(&self, key: i32) -> Option<&Param> {
        self.params.iter().rev().find(|(own, _)| *own == key).map(|(_, value)| value)
    }

    /// Returns the integer of a parameter, or a default.
    pub(crate) fn int(&self, key: i32, default: i32) -> i32 {
        self.param(key).map_or(default, Param::int)
    }
}

/// Network.
#[derive(Debug)]
pub(crate) struct Network {
    /// Layers in order.
    pub(crate) layers: Vec<Layer>,
    /// Names of the blobs, all different.
    pub(crate) blobs: Vec<String>,
}

/// Returns the form of a network by its beginning.
pub(crate) fn form(head: &[u8]) -> Option<Form> {
    if head.starts_with(&MAGIC.to_le_bytes()) {
        return Some(Form::Binary);
    }
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let is_magic = text.split_whitespace().next().is_some_and(|word| word.parse() == Ok(MAGIC));
    // Networks of pnnx begin with the same number.
    (is_magic && text.len() > 7 && !is_pnnx(head)).then_some(Form::Text)
}

/// Returns true for the beginning of a network. A table may begin with the same number: in a text, the number is a line of its own,
/// and two integers are the next line. A layer follows.
pub(crate) fn is_recognized(head: &[u8]) -> bool {
    if form(head) != Some(Form::Text) {
        return form(head).is_some();
    }
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let mut lines = text.trim_start().lines();
    let numbers: Option<Vec<Vec<i32>>> = lines
        .by_ref()
        .take(2)
        .map(|line| line.split_whitespace().map(|word| word.parse().ok()).collect())
        .collect();
    let layer = lines.find_map(|line| line.split_whitespace().next()).unwrap_or_default();
    let is_number =
        layer.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '+' | '.'));
    numbers.is_some_and(|lines| matches!(&*lines, [first, second] if first.len() == 1 && second.len() == 2))
        && !is_number
}

/// Reads a network in either form.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for malformed content; [`weighbridge_core::Kind::Limit`].
pub(crate) fn read(bytes: &[u8], budget: &Budget) -> Result<Network> {
    match form(bytes) {
        Some(Form::Text) => {
            let text = std::str::from_utf8(bytes).map_err(|fault| {
                Error::corrupt("bad-text", "the network is not UTF-8 text").at(fault.valid_up_to() as u64)
            })?;
            Text { text, at: 0, budget }.network()
        }
        Some(Form::Binary) => Binary { bytes, at: 0, budget, blobs: Blobs::default() }.network(),
        None => Err(Error::corrupt("bad-magic", "the file is not a network of ncnn")
            .at(0)
            .expected(MAGIC)
            .found(quoted(&String::from_utf8_lossy(bytes.get(..bytes.len().min(16)).unwrap_or_default())))),
    }
}

/// Network in text: words between blanks. Lines have no meaning, except for texts in quotes.
struct Text<'a> {
    text: &'a str,
    at: usize,
    budget: &'a Budget,
}

/// Word with its offset.
type Word<'a> = (usize, &'a str);

impl<'a> Text<'a> {
    fn network(mut self) -> Result<Network> {
        self.word("the number 7767517")?;
        let (start, layers) = self.count("the number of layers")?;
        let (_, most) = self.count("the number of blobs")?;
        if layers == 0 || most == 0 {
            return Err(self.bad(
                start,
                "the network states that it has no layers or no blobs",
                "at least 1",
            ));
        }
        let (mut read, mut blobs) = (Vec::new(), Blobs::default());
        for _ in 0..layers {
            let (at, kind) = self.word("the type of a layer")?;
            let (_, name) = self.word("the name of a layer")?;
            let (_, inputs) = self.count("the number of inputs of a layer")?;
            let (_, outputs) = self.count("the number of outputs of a layer")?;
            self.budget.take_memory(ENTRY + 2 * (kind.len() + name.len()) as u64)?;
            let mut layer = Layer {
                kind: kind.to_owned(),
                name: name.to_owned(),
                at: at as u64,
                inputs: Vec::new(),
                outputs: Vec::new(),
                params: Vec::new(),
            };
            for _ in 0..inputs {
                let (_, name) = self.word("the name of an input")?;
                self.budget.take_memory(ITEM + 3 * name.len() as u64)?;
                layer.inputs.push(blobs.input(name));
            }
            for _ in 0..outputs {
                let (_, name) = self.word("the name of an output")?;
                self.budget.take_memory(ITEM + 3 * name.len() as u64)?;
                layer.outputs.push(blobs.output(name));
            }
            if blobs.names.len() as u64 > u64::from(most) {
                return Err(Error::corrupt("length-mismatch", "the network has more blobs than it states")
                    .at(at as u64)
                    .expected(format_args!("at most {most}"))
                    .found(format_args!("{}, in {}", blobs.names.len(), self.line(at))));
            }
            while let Some(param) = self.param()? {
                layer.params.push(param);
            }
            read.push(layer);
        }
        if let Some((at, word)) = self.peek() {
            return Err(Error::corrupt("length-mismatch", "the network has more layers than it states")
                .at(at as u64)
                .expected(format_args!("the end after {layers} layers"))
                .found(format_args!("{} in {}", quoted(word), self.line(at))));
        }
        Ok(Network { layers: read, blobs: blobs.names })
    }

    /// Returns the next word without its removal.
    fn peek(&self) -> Option<Word<'a>> {
        let is_blank = |c: char| c.is_ascii_whitespace() || c == '\x0b';
        let rest = self.text.get(self.at..)?;
        let word = rest.trim_start_matches(is_blank);
        let at = self.at + (rest.len() - word.len());
        let end = word.find(is_blank).unwrap_or(word.len());
        word.get(..end).filter(|word| !word.is_empty()).map(|word| (at, word))
    }

    fn word(&mut self, expected: &str) -> Result<Word<'a>> {
        let found = self.peek().ok_or_else(|| {
            Error::corrupt("truncated", "the network ends within a layer")
                .at(self.text.len() as u64)
                .expected(expected)
        })?;
        self.at = found.0 + found.1.len();
        Ok(found)
    }

    fn count(&mut self, expected: &str) -> Result<(usize, u32)> {
        let (at, word) = self.word(expected)?;
        let number = word.parse::<i32>().ok().and_then(|number| u32::try_from(number).ok());
        let fail = || self.bad(at, "a number of the network is malformed", expected);
        number.map(|number| (at, number)).ok_or_else(fail)
    }

    /// Reads the next parameter of a layer; `None` if the next word is not a parameter.
    fn param(&mut self) -> Result<Option<(i32, Param)>> {
        let Some((at, word)) = self.peek() else { return Ok(None) };
        let Some((key, value)) = word.split_once('=') else { return Ok(None) };
        let Ok(key) = key.parse::<i32>() else { return Ok(None) };
        let fail = |text: &str, expected: &str| self.bad(at, text, expected);
        self.budget.take_memory(ITEM + 2 * word.len() as u64)?;
        let is_list = key <= LISTS;
        let own = if is_list { LISTS.saturating_sub(key) } else { key };
        if !(0..MAX_KEYS).contains(&own) {
            return Err(fail("the key of a parameter is out of range", "0 to 31, or -23300 to -23331"));
        }
        let mut end = at + word.len();
        let value = if let Some(rest) = value.strip_prefix('"') {
            // Up to the next quote in the line, with blanks.
            let start = end - rest.len();
            let line = self.text.get(start..).unwrap_or_default();
            let (text, after) = line.split_at(line.find(['"', '\n']).unwrap_or(line.len()));
            self.budget.take_memory(2 * text.len() as u64)?;
            end = start + text.len() + usize::from(after.starts_with('"'));
            Param::Text(text.to_owned())
        } else if value.starts_with(|first: char| first.is_ascii_alphabetic()) && !is_list {
            Param::Text(value.to_owned())
        } else {
            let malformed = || fail("a parameter is malformed", "KEY=NUMBER, KEY=NUMBER,NUMBER or KEY=TEXT");
            let mut items = value.split(',');
            let count = if is_list { items.next().map(str::parse::<usize>) } else { None };
            let count = count.transpose().map_err(|_| malformed())?;
            // Such a list may be empty, and a list of the other form may end with a comma.
            let mut list = Vec::new();
            for item in items.filter(|item| !item.is_empty()) {
                self.budget.take_memory(ITEM)?;
                list.push(number(item).ok_or_else(malformed)?);
            }
            match (count, list.len()) {
                (Some(count), found) if count != found => {
                    return Err(fail(
                        "the length of a list differs from its items",
                        &format!("{count} items, not {found}"),
                    ));
                }
                (Some(_), _) => Param::List(list),
                (None, 0) => return Err(malformed()),
                (None, 1) if !value.contains(',') => list.remove(0),
                (None, _) => Param::List(list),
            }
        };
        self.at = end;
        Ok(Some((own, value)))
    }

    fn bad(&self, at: usize, text: &str, expected: &str) -> Error {
        let rest = self.text.get(at..).unwrap_or_default();
        let word = rest.split_whitespace().next().unwrap_or_default();
        let shown: String = word.chars().take(40).collect();
        Error::corrupt("bad-number", text).at(at as u64).expected(expected).found(format_args!(
            "{} in {}",
            quoted(&shown),
            self.line(at)
        ))
    }

    fn line(&self, at: usize) -> String {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        format!("line {}", before.iter().filter(|&&byte| byte == b'\n').count() + 1)
    }
}

/// Parses a number. As in ncnn, one with a point or an exponent is a float.
fn number(text: &str) -> Option<Param> {
    if text.contains(['.', 'e', 'E']) {
        text.parse().ok().map(Param::Float)
    } else {
        text.parse().ok().map(Param::Int)
    }
}

/// Blobs, each with a name of its own.
#[derive(Default)]
struct Blobs {
    names: Vec<String>,
    by_name: HashMap<String, usize>,
    by_number: HashMap<i32, usize>,
}

impl Blobs {
    /// Returns the blob of a name: the first one of several.
    fn input(&mut self, name: &str) -> usize {
        match self.by_name.get(name) {
            Some(&blob) => blob,
            None => self.output(name),
        }
    }

    /// Adds a blob.
    fn output(&mut self, name: &str) -> usize {
        let blob = self.names.len();
        let mut own = name.to_owned();
        while self.by_name.contains_key(&own) {
            own = format!("{own}~{blob}");
        }
        self.by_name.insert(own.clone(), blob);
        self.names.push(own);
        blob
    }

    /// Returns the blob of a number.
    fn numbered(&mut self, number: i32) -> usize {
        match self.by_number.get(&number) {
            Some(&blob) => blob,
            None => {
                let blob = self.output(&format!("blob_{number}"));
                self.by_number.insert(number, blob);
                blob
            }
        }
    }
}

/// Network in numbers of 4 bytes.
struct Binary<'a> {
    bytes: &'a [u8],
    at: usize,
    budget: &'a Budget,
    blobs: Blobs,
}

impl Binary<'_> {
    fn network(mut self) -> Result<Network> {
        self.int()?;
        let [layers, most] = [self.int()?, self.int()?];
        if layers <= 0 || most <= 0 {
            return Err(bad(4, "the network states that it has no layers or no blobs", "at least 1", layers));
        }
        let mut read = Vec::new();
        for number in 0..layers {
            let at = self.at;
            self.budget.take_memory(ENTRY)?;
            let [kind, inputs, outputs] = [self.int()?, self.int()?, self.int()?];
            if inputs < 0 || outputs < 0 {
                return Err(bad(at, "a number of blobs is negative", "at least 0", inputs.min(outputs)));
            }
            let kind = types::of_number(kind);
            let mut layer = Layer {
                name: format!("{kind}_{number}"),
                kind,
                at: at as u64,
                inputs: Vec::new(),
                outputs: Vec::new(),
                params: Vec::new(),
            };
            for _ in 0..inputs {
                layer.inputs.push(self.blob(most)?);
            }
            for _ in 0..outputs {
                layer.outputs.push(self.blob(most)?);
            }
            while let Some(param) = self.param()? {
                layer.params.push(param);
            }
            read.push(layer);
        }
        if self.at < self.bytes.len() {
            return Err(Error::corrupt("trailing-bytes", "bytes follow the last layer of the network")
                .at(self.at as u64)
                .expected(format_args!("{} bytes", self.at))
                .found(format_args!("{} bytes", self.bytes.len())));
        }
        Ok(Network { layers: read, blobs: self.blobs.names })
    }

    fn take(&mut self, len: usize) -> Result<&[u8]> {
        let at = self.at;
        let taken = at.checked_add(len).and_then(|end| self.bytes.get(at..end));
        let taken = taken.ok_or_else(|| {
            Error::corrupt("past-the-end", "the network ends within a layer")
                .at(at as u64)
                .expected(format_args!("{len} bytes from here"))
                .found(format_args!("{} bytes", self.bytes.len().saturating_sub(at)))
        })?;
        self.at += len;
        Ok(taken)
    }

    fn int(&mut self) -> Result<i32> {
        Ok(self.take(4)?.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes)))
    }

    fn blob(&mut self, most: i32) -> Result<usize> {
        let at = self.at;
        let number = self.int()?;
        if !(0..most).contains(&number) {
            return Err(Error::corrupt("index-out-of-range", "a layer refers to a blob that does not exist")
                .at(at as u64)
                .expected(format_args!("0 to {}", most - 1))
                .found(number));
        }
        self.budget.take_memory(ITEM)?;
        Ok(self.blobs.numbered(number))
    }

    fn param(&mut self) -> Result<Option<(i32, Param)>> {
        let at = self.at;
        let key = self.int()?;
        if key == END {
            return Ok(None);
        }
        self.budget.take_memory(ITEM)?;
        let base = [TEXTS, LISTS].into_iter().find(|&base| key <= base).unwrap_or(0);
        let own = if base == 0 { key } else { base.saturating_sub(key) };
        if !(0..MAX_KEYS).contains(&own) {
            let expected = "0 to 31, -23300 to -23331, or -23400 to -23431";
            return Err(bad(at, "the key of a parameter is out of range", expected, key));
        }
        let value = match base {
            TEXTS => {
                let at = self.at;
                let len = self.int()?;
                let Some(len) = usize::try_from(len).ok().filter(|_| len <= MAX_TEXT) else {
                    return Err(bad(at, "the length of a text is out of range", "0 to 255", len));
                };
                let bytes = self.take(len.next_multiple_of(4))?;
                let text = String::from_utf8_lossy(bytes.get(..len).unwrap_or_default()).into_owned();
                Param::Text(text)
            }
            LISTS => {
                let at = self.at;
                let len = self.int()?;
                let rest = self.bytes.len().saturating_sub(self.at) / 4;
                let Some(len) = usize::try_from(len).ok().filter(|&len| len <= rest) else {
                    return Err(bad(
                        at,
                        "the length of a list is out of range",
                        &format!("0 to {rest}"),
                        len,
                    ));
                };
                self.budget.take_memory(ITEM * len as u64)?;
                Param::List((0..len).map(|_| self.int().map(Param::Int)).collect::<Result<_>>()?)
            }
            _ => Param::Int(self.int()?),
        };
        Ok(Some((own, value)))
    }
}

fn bad(at: usize, text: &str, expected: &str, found: i32) -> Error {
    Error::corrupt("bad-number", text).at(at as u64).expected(expected).found(found)
}

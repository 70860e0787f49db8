//! Reading and writing of values by type, like upstream's `Loader` and `Dumper`.

use crate::text::json::{Json, float_text, write_string};
use weighbridge_core::error::Error;
use weighbridge_core::finding::Finding;
use weighbridge_core::text::escape;

/// Type of a configuration value.
pub(super) trait Field: Sized {
    /// Parses a JSON value.
    fn load(json: &Json, loader: &mut Loader) -> Result<Self, InvalidValue>;
    /// Writes the value as JSON.
    fn dump(&self, writer: &mut Writer);
    /// Comparison with 0, for the rules; `None` for values that are not numbers, and NaN.
    fn sign(&self) -> Option<std::cmp::Ordering> {
        None
    }
    /// True for an empty collection or text.
    fn is_empty(&self) -> bool {
        false
    }
}

/// Constraint on a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Any,
    Positive,
    NonNegative,
    NonEmpty,
}

impl Rule {
    fn check<T: Field>(self, value: &T) -> Result<(), InvalidValue> {
        use std::cmp::Ordering::{Equal, Less};
        match (self, value.sign()) {
            (Self::Positive, Some(Less | Equal)) => Err(InvalidValue::new("must be > 0")),
            (Self::NonNegative, Some(Less)) => Err(InvalidValue::new("must be >= 0")),
            (Self::NonEmpty, _) if value.is_empty() => Err(InvalidValue::new("must be non-empty")),
            _ => Ok(()),
        }
    }
}

/// Invalid value, and the path to it.
#[derive(Debug)]
pub(super) struct InvalidValue {
    path: String,
    message: String,
    hint: Option<String>,
}

impl InvalidValue {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { path: String::new(), message: message.into(), hint: None }
    }

    fn below(mut self, step: String) -> Self {
        self.path.insert_str(0, &step);
        self
    }

    /// Path and fault: `entities['user'].num_partitions: Not an int`.
    fn text(&self) -> String {
        match self.path.trim_start_matches('.') {
            "" => self.message.clone(),
            path => format!("{path}: {}", self.message),
        }
    }

    pub(super) fn error(self) -> Error {
        let error = Error::corrupt("config", format!("invalid configuration: {}", self.text()));
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// Loader of a configuration that collects findings.
#[derive(Debug)]
pub(super) struct Loader {
    lenient: bool,
    pub(super) findings: Vec<Finding>,
}

impl Loader {
    pub(super) fn new(lenient: bool) -> Self {
        Self { lenient, findings: Vec::new() }
    }

    /// Current name of a key: early releases wrote mixed case.
    pub(super) fn lower(&mut self, key: &str) -> String {
        let mut lower = String::with_capacity(key.len());
        for c in key.chars() {
            if c.is_uppercase() {
                lower.push('_');
                lower.extend(c.to_lowercase());
            } else {
                lower.push(c);
            }
        }
        lower
    }

    /// Value of a key; `None` for an invalid value in lenient mode.
    pub(super) fn value<T: Field>(
        &mut self,
        key: &str,
        rule: Rule,
        json: &Json,
    ) -> Result<Option<T>, InvalidValue> {
        let value = T::load(json, self).and_then(|value| rule.check(&value).map(|()| value));
        match value.map_err(|wrong| wrong.below(format!(".{key}"))) {
            Ok(value) => {
                if matches!(json, Json::Bool(_)) && value.sign().is_some() {
                    let text = format!("{key} is a number, but the value is a boolean");
                    self.findings.push(Finding::note("config-number", text));
                }
                Ok(Some(value))
            }
            Err(wrong) if self.lenient => {
                let text = format!("{}; ignored", wrong.text());
                self.findings.push(Finding::error("config", text));
                Ok(None)
            }
            Err(wrong) => Err(wrong),
        }
    }

    /// Handles a key that no version of upstream has.
    pub(super) fn unknown(&mut self, key: &str, keys: &[&str]) -> Result<(), InvalidValue> {
        let mut wrong = InvalidValue::new(format!("Unknown key: {}", escape(key)));
        let near = keys.iter().map(|known| (distance(key, known), known)).min();
        wrong.hint = match near {
            Some((steps, known)) if steps <= 1 + known.len() / 3 => Some(format!("did you mean `{known}`?")),
            _ => Some("remove the key: upstream refuses unknown keys".to_owned()),
        };
        if !self.lenient {
            return Err(wrong);
        }
        let finding = Finding::error("config", format!("{}; ignored", wrong.text()));
        self.findings.push(match wrong.hint {
            Some(hint) => finding.hint(hint),
            None => finding,
        });
        Ok(())
    }

    /// Reports a fault that upstream refuses and lenient mode ignores.
    pub(super) fn odd(&mut self, message: String) -> weighbridge_core::error::Result<()> {
        if !self.lenient {
            return Err(InvalidValue::new(escape(&message)).error());
        }
        self.findings.push(Finding::error("config", escape(&message)));
        Ok(())
    }
}

/// Pairs of a JSON object.
pub(super) fn object<'a>(json: &'a Json, message: &str) -> Result<&'a [(String, Json)], InvalidValue> {
    match json {
        Json::Object(pairs) => Ok(pairs),
        _ => Err(InvalidValue::new(message)),
    }
}

/// Unwraps a required value.
pub(super) fn given<T>(key: &str, value: Option<T>) -> Result<T, InvalidValue> {
    value.ok_or_else(|| InvalidValue::new(format!("the key `{key}` is missing")))
}

/// Edit distance between two words. Only the start of long words counts.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        for (y, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let here = (corner + usize::from(x != y)).min(left + 1).min(*cell + 1);
            corner = *cell;
            *cell = here;
            left = here;
        }
        row[0] = i + 1;
    }
    row.last().copied().unwrap_or(0)
}

/// Writer of JSON as `json.dumps(value, indent=4)`.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) text: String,
    /// True to write only the keys of release 1.0.0.
    pub(super) release: bool,
    depth: usize,
    /// True while the innermost bracket is empty.
    first: bool,
}

impl Writer {
    pub(super) fn new(release: bool) -> Self {
        Self { text: String::new(), release, depth: 0, first: true }
    }

    pub(super) fn open(&mut self, bracket: char) {
        self.text.push(bracket);
        self.depth += 1;
        self.first = true;
    }

    pub(super) fn close(&mut self, bracket: char) {
        self.depth = self.depth.saturating_sub(1);
        if !self.first {
            self.line();
        }
        self.text.push(bracket);
        self.first = false;
    }

    /// Starts the line of an item.
    fn item(&mut self) {
        if !self.first {
            self.text.push(',');
        }
        self.first = false;
        self.line();
    }

    fn line(&mut self) {
        self.text.push('\n');
        self.text.push_str(&"    ".repeat(self.depth));
    }

    pub(super) fn key(&mut self, key: &str) {
        self.item();
        write_string(&mut self.text, key);
        self.text.push_str(": ");
    }

    pub(super) fn text(&mut self, text: &str) {
        write_string(&mut self.text, text);
    }
}

impl Field for bool {
    fn load(json: &Json, _: &mut Loader) -> Result<Self, InvalidValue> {
        let word = match json {
            Json::Bool(b) => return Ok(*b),
            Json::Int(digits) => digits.trim_start_matches('-').to_owned(),
            Json::Text(word) => word.to_lowercase(),
            _ => String::new(),
        };
        let number = matches!(json, Json::Int(digits) if digits != "0" && digits != "-0" && digits != "1");
        match word.as_str() {
            _ if number => Err(InvalidValue::new("Not a bool")),
            "1" | "y" | "yes" | "true" | "on" => Ok(true),
            "0" | "n" | "no" | "false" | "off" => Ok(false),
            _ => Err(InvalidValue::new("Not a bool")),
        }
    }
    fn dump(&self, writer: &mut Writer) {
        writer.text.push_str(if *self { "true" } else { "false" });
    }
}

/// Parses an integer. Booleans are integers in Python.
fn integer(json: &Json) -> Result<i128, InvalidValue> {
    match json {
        Json::Bool(b) => Ok(i128::from(*b)),
        Json::Int(digits) => digits.parse().map_err(|_| InvalidValue::new("integer out of range")),
        _ => Err(InvalidValue::new("Not an int")),
    }
}

impl Field for u64 {
    fn load(json: &Json, _: &mut Loader) -> Result<Self, InvalidValue> {
        let value = integer(json)?;
        let message = if value < 0 { "must be >= 0" } else { "integer out of range" };
        Self::try_from(value).map_err(|_| InvalidValue::new(format!("{message}, got {value}")))
    }
    fn dump(&self, writer: &mut Writer) {
        writer.text.push_str(&self.to_string());
    }
    fn sign(&self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(&0))
    }
}

impl Field for i64 {
    fn load(json: &Json, _: &mut Loader) -> Result<Self, InvalidValue> {
        let value = integer(json)?;
        let message = "integer out of range";
        Self::try_from(value).map_err(|_| InvalidValue::new(format!("{message}, got {value}")))
    }
    fn dump(&self, writer: &mut Writer) {
        writer.text.push_str(&self.to_string());
    }
    fn sign(&self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(&0))
    }
}

impl Field for f64 {
    fn load(json: &Json, _: &mut Loader) -> Result<Self, InvalidValue> {
        match json {
            Json::Float(x) => Ok(*x),
            Json::Bool(b) => Ok(if *b { 1.0 } else { 0.0 }),
            Json::Int(digits) => {
                let value = digits.parse().ok().filter(|x: &f64| x.is_finite());
                value.ok_or_else(|| InvalidValue::new("int too large to convert to float"))
            }
            _ => Err(InvalidValue::new("Not a float")),
        }
    }
    fn dump(&self, writer: &mut Writer) {
        writer.text.push_str(&float_text(*self));
    }
    fn sign(&self) -> Option<std::cmp::Ordering> {
        self.partial_cmp(&0.0)
    }
}

impl Field for String {
    fn load(json: &Json, _: &mut Loader) -> Result<Self, InvalidValue> {
        match json {
            Json::Text(text) => Ok(text.clone()),
            _ => Err(InvalidValue::new("Not a str")),
        }
    }
    fn dump(&self, writer: &mut Writer) {
        writer.text(self);
    }
    fn is_empty(&self) -> bool {
        String::is_empty(self)
    }
}

impl<T: Field> Field for Option<T> {
    fn load(json: &Json, loader: &mut Loader) -> Result<Self, InvalidValue> {
        if *json == Json::Null { Ok(None) } else { T::load(json, loader).map(Some) }
    }
    fn dump(&self, writer: &mut Writer) {
        match self {
            Some(value) => value.dump(writer),
            None => writer.text.push_str("null"),
        }
    }
    fn sign(&self) -> Option<std::cmp::Ordering> {
        self.as_ref().and_then(Field::sign)
    }
}

impl<T: Field> Field for Vec<T> {
    fn load(json: &Json, loader: &mut Loader) -> Result<Self, InvalidValue> {
        let Json::List(items) = json else { return Err(InvalidValue::new("Not a list")) };
        let item = |(i, item)| T::load(item, loader).map_err(|wrong| wrong.below(format!("[{i}]")));
        items.iter().enumerate().map(item).collect()
    }
    fn dump(&self, writer: &mut Writer) {
        writer.open('[');
        for item in self {
            writer.item();
            item.dump(writer);
        }
        writer.close(']');
    }
    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }
}

/// A dict with strings as keys.
impl<T: Field> Field for Vec<(String, T)> {
    fn load(json: &Json, loader: &mut Loader) -> Result<Self, InvalidValue> {
        let pair = |(key, value): &(String, Json)| {
            let below = |wrong: InvalidValue| wrong.below(format!("['{}']", escape(key)));
            Ok((key.clone(), T::load(value, loader).map_err(below)?))
        };
        object(json, "Not a dict")?.iter().map(pair).collect()
    }
    fn dump(&self, writer: &mut Writer) {
        writer.open('{');
        for (key, value) in self {
            writer.key(key);
            value.dump(writer);
        }
        writer.close('}');
    }
    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }
}

//! Keywords of a verb as typed values.

use crate::errors::raise_to;
use crate::index::{GivenProgram, Opening};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyMapping, PyString};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::str::FromStr;
use weighbridge::Error;
use weighbridge::engine::RunOptions;
use weighbridge::ops::edit::InPlace;
use weighbridge::ops::values;

/// Keywords passed to a verb. `None` counts as absent.
pub(crate) struct Given<'py> {
    py: Python<'py>,
    verb: &'static str,
    values: Option<Bound<'py, PyDict>>,
    read: RefCell<BTreeSet<&'static str>>,
}

/// Keywords common to all verbs that write.
pub(crate) struct Writing {
    pub(crate) to: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) plan: bool,
    pub(crate) allow_loss: bool,
    pub(crate) deny_loss: bool,
    pub(crate) force: bool,
    pub(crate) run: RunOptions,
}

impl<'py> Given<'py> {
    /// Wraps the keywords `values` of a verb.
    pub(crate) fn new(py: Python<'py>, verb: &'static str, values: Option<&Bound<'py, PyDict>>) -> Self {
        Self { py, verb, values: values.cloned(), read: RefCell::default() }
    }

    /// Token of the attached interpreter.
    pub(crate) fn py(&self) -> Python<'py> {
        self.py
    }

    /// Name of the verb.
    pub(crate) fn verb(&self) -> &'static str {
        self.verb
    }

    /// Checks that every keyword was read.
    ///
    /// # Errors
    /// `TypeError` for a keyword that the verb does not accept.
    pub(crate) fn finish(&self) -> PyResult<()> {
        let read = self.read.borrow();
        for (name, _) in self.values.iter().flatten() {
            let name: String = name.extract()?;
            if !read.contains(name.as_str()) {
                let text = format!("{}() has no keyword '{name}'", self.verb);
                return Err(PyTypeError::new_err(text));
            }
        }
        Ok(())
    }

    /// Converts an error of the verb to an exception.
    pub(crate) fn raise(&self, error: Error) -> PyErr {
        raise_to(self.py, error, Some(self.verb))
    }

    /// Exception for invalid arguments.
    pub(crate) fn bad_arguments(&self, message: String) -> PyErr {
        let hint = format!("see help(weighbridge.{})", self.verb);
        self.raise(Error::usage("bad-arguments", message).hint(hint))
    }

    fn invalid(&self, name: &str, value: &str, why: &str) -> PyErr {
        self.bad_arguments(format!("invalid value '{value}' for {name}: {why}"))
    }

    /// Fails if `name` is given without `other`.
    pub(crate) fn requires(&self, name: &str, other: &str) -> PyResult<()> {
        if self.has(name)? && !self.has(other)? { Err(self.missing(other)) } else { Ok(()) }
    }

    /// Exception for a missing argument.
    pub(crate) fn missing(&self, name: &str) -> PyErr {
        self.bad_arguments(format!("the following required arguments were not provided: {name}"))
    }

    /// Fails if `name` is given together with one of `others`.
    pub(crate) fn excludes(&self, name: &str, others: &[&str]) -> PyResult<()> {
        if self.has(name)? {
            for other in others {
                if self.has(other)? {
                    return Err(
                        self.bad_arguments(format!("the argument {name} cannot be used with {other}"))
                    );
                }
            }
        }
        Ok(())
    }

    /// True if the value is given and is neither `None`, `False` nor empty.
    pub(crate) fn has(&self, name: &str) -> PyResult<bool> {
        let Some(values) = &self.values else { return Ok(false) };
        match values.get_item(name)? {
            Some(value) if value.is_none() || value.is(PyBool::new(self.py, false)) => Ok(false),
            Some(value) => Ok(value.len().map_or(true, |len| len > 0)),
            None => Ok(false),
        }
    }

    /// Raw value; marks the keyword as read.
    fn value(&self, name: &'static str) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.read.borrow_mut().insert(name);
        let Some(values) = &self.values else { return Ok(None) };
        Ok(values.get_item(name)?.filter(|value| !value.is_none()))
    }

    /// Boolean value; false if absent.
    pub(crate) fn flag(&self, name: &'static str) -> PyResult<bool> {
        let Some(value) = self.value(name)? else { return Ok(false) };
        match value.cast::<PyBool>() {
            Ok(truth) => Ok(truth.is_true()),
            Err(_) => Err(self.invalid(name, &self.word(&value)?, "expected True or False")),
        }
    }

    /// Value as a word: text unchanged, `true` and `false`, items of lists joined by commas.
    fn word(&self, value: &Bound<'py, PyAny>) -> PyResult<String> {
        if value.is_instance_of::<PyString>()
            || value.is_instance_of::<PyBytes>()
            || value.hasattr("__fspath__")?
        {
            let path: PathBuf = value.py().import("os")?.call_method1("fsdecode", (value,))?.extract()?;
            return Ok(path.to_string_lossy().into_owned());
        }
        if let Ok(truth) = value.cast::<PyBool>() {
            return Ok(if truth.is_true() { "true" } else { "false" }.to_owned());
        }
        let is_list =
            value.is_instance_of::<pyo3::types::PyList>() || value.is_instance_of::<pyo3::types::PyTuple>();
        let is_set = value.is_instance_of::<pyo3::types::PySet>()
            || value.is_instance_of::<pyo3::types::PyFrozenSet>();
        if is_list || is_set {
            let words = value.try_iter()?.map(|one| self.word(&one?)).collect::<PyResult<Vec<_>>>()?;
            return Ok(words.join(","));
        }
        Ok(value.str()?.to_string())
    }

    /// Text value.
    pub(crate) fn text(&self, name: &'static str) -> PyResult<Option<String>> {
        self.value(name)?.map(|value| self.word(&value)).transpose()
    }

    /// Bytes.
    pub(crate) fn bytes(&self, name: &'static str) -> PyResult<Option<Vec<u8>>> {
        self.value(name)?.map(|value| value.extract()).transpose()
    }

    /// One text value or several.
    pub(crate) fn texts(&self, name: &'static str) -> PyResult<Vec<String>> {
        let Some(value) = self.value(name)? else { return Ok(Vec::new()) };
        if let Ok(pairs) = value.cast::<PyMapping>() {
            return self.of_mapping(name, pairs);
        }
        self.each(&value)?.iter().map(|one| self.word(one)).collect()
    }

    /// Items of a list, or the single value.
    fn each(&self, value: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let is_text = value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>();
        match value.try_iter() {
            Ok(values) if !is_text => values.collect(),
            _ => Ok(vec![value.clone()]),
        }
    }

    /// Lists of words by name: a mapping, or one list without a name.
    pub(crate) fn lists(&self, name: &'static str) -> PyResult<Vec<(Option<String>, Vec<String>)>> {
        let Some(value) = self.value(name)? else { return Ok(Vec::new()) };
        let words = |list: &Bound<'py, PyAny>| {
            let is_text = list.is_instance_of::<PyString>() || list.is_instance_of::<PyBytes>();
            match list.try_iter() {
                Ok(items) if !is_text => items.map(|item| self.word(&item?)).collect(),
                _ => {
                    let found = list.get_type().name()?.to_string();
                    let error =
                        Error::usage("wrong-type", format!("{name} must be a list, or a dict of lists"));
                    Err(raise_to(self.py, error.found(found), None))
                }
            }
        };
        let Ok(lists) = value.cast::<PyMapping>() else { return Ok(vec![(None, words(&value)?)]) };
        let one = |pair: Bound<'py, PyAny>| {
            let (key, list): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract()?;
            Ok((Some(self.word(&key)?), words(&list)?))
        };
        lists.items()?.try_iter()?.map(|pair| one(pair?)).collect()
    }

    /// Pairs as `NAME=VALUE`; the name alone if the value is `None`.
    fn of_mapping(&self, name: &str, pairs: &Bound<'py, PyMapping>) -> PyResult<Vec<String>> {
        let one = |pair: Bound<'py, PyAny>| {
            let (key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract()?;
            let key = self.word(&key)?;
            if key.contains('=') {
                let text = format!("a name in {name} contains '=', the separator of name and value");
                let error = Error::usage("bad-arguments", text).found(&key);
                return Err(raise_to(self.py, error.hint("put the rule in a file (rules=)"), None));
            }
            Ok(if value.is_none() { key } else { format!("{key}={}", self.word(&value)?) })
        };
        pairs.items()?.try_iter()?.map(|pair| one(pair?)).collect()
    }

    /// Pairs of name and value.
    pub(crate) fn pairs(&self, name: &'static str) -> PyResult<Vec<(String, String)>> {
        let texts = self.texts(name)?;
        let pair = |text: String| values::setting(&text).map_err(|why| self.invalid(name, &text, &why));
        texts.into_iter().map(pair).collect()
    }

    /// List of words: a sequence, or text with commas.
    pub(crate) fn listed<T>(
        &self,
        name: &'static str,
        of: impl Fn(&str) -> Result<T, String>,
    ) -> PyResult<Vec<T>> {
        let mut all = Vec::new();
        for text in self.texts(name)? {
            for word in text.split(',') {
                all.push(of(word).map_err(|why| self.invalid(name, word, &why))?);
            }
        }
        Ok(all)
    }

    /// Value parsed from a word.
    pub(crate) fn parsed<T>(
        &self,
        name: &'static str,
        of: impl Fn(&str) -> Result<T, String>,
    ) -> PyResult<Option<T>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        of(&text).map(Some).map_err(|why| self.invalid(name, &text, &why))
    }

    /// Number within a range.
    pub(crate) fn number<T>(&self, name: &'static str, range: impl RangeBounds<T>) -> PyResult<Option<T>>
    where
        T: FromStr + PartialOrd,
    {
        self.parsed(name, |text| {
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| "not a number in the accepted range".to_owned())
        })
    }

    /// Value of one of these words.
    pub(crate) fn one_of<T: Copy>(&self, name: &'static str, words: &[(&str, T)]) -> PyResult<Option<T>> {
        self.parsed(name, |text| {
            let found = words.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                format!("expected one of {}", words.join(", "))
            })
        })
    }

    /// Converts a value to a path.
    fn path_of(&self, name: &str, value: &Bound<'py, PyAny>) -> PyResult<PathBuf> {
        self.py.import("weighbridge.checks")?.call_method1("path_text", (value, name))?.extract()
    }

    /// Optional path.
    pub(crate) fn path(&self, name: &'static str) -> PyResult<Option<PathBuf>> {
        self.value(name)?.map(|value| self.path_of(name, &value)).transpose()
    }

    /// Required path.
    pub(crate) fn needed(&self, name: &'static str) -> PyResult<PathBuf> {
        self.read.borrow_mut().insert(name);
        let value = self.values.as_ref().map(|values| values.get_item(name)).transpose()?.flatten();
        self.path_of(name, &value.ok_or_else(|| self.missing(name))?)
    }

    /// Optional name of a tensor.
    pub(crate) fn name(&self, name: &'static str) -> PyResult<Option<String>> {
        Ok(self.path(name)?.map(|path| path.to_string_lossy().into_owned()))
    }

    /// Mode of an edit in place, if requested.
    pub(crate) fn in_place(&self) -> PyResult<Option<InPlace>> {
        if let Some(value) = self.value("in_place")?
            && let Ok(truth) = value.cast::<PyBool>()
        {
            return Ok(truth.is_true().then_some(InPlace::Header));
        }
        self.one_of("in_place", &[("header", InPlace::Header), ("rewrite", InPlace::Rewrite)])
    }

    /// One path or several; may be empty.
    pub(crate) fn paths(&self, name: &'static str) -> PyResult<Vec<PathBuf>> {
        let Some(value) = self.value(name)? else { return Ok(Vec::new()) };
        if value.cast::<PyMapping>().is_ok() || (value.hasattr("__fspath__")?) {
            return Ok(vec![self.path_of(name, &value)?]);
        }
        if value.try_iter().is_err() {
            let found = value.get_type().name()?.to_string();
            let error = Error::usage("wrong-type", format!("{name} must be a path, or a list of paths"));
            return Err(raise_to(self.py, error.found(found), None));
        }
        self.each(&value)?.iter().map(|one| self.path_of(name, one)).collect()
    }

    /// Input paths of a verb: one or more.
    pub(crate) fn several(&self, name: &'static str) -> PyResult<Vec<PathBuf>> {
        let paths = self.paths(name)?;
        if paths.is_empty() { Err(self.missing("path")) } else { Ok(paths) }
    }

    /// Number of bytes.
    pub(crate) fn size(&self, name: &'static str) -> PyResult<Option<u64>> {
        self.parsed(name, values::size)
    }

    /// Number of threads; 0 is one per processor.
    pub(crate) fn threads(&self) -> PyResult<usize> {
        Ok(self.number("threads", ..)?.unwrap_or(0))
    }

    /// Keywords for reading.
    pub(crate) fn opening(&self) -> PyResult<Opening> {
        Ok(Opening {
            format: self.text("from_")?,
            lenient: self.flag("lenient")?,
            salvage: self.flag("salvage")?,
            follow_virtual: self.flag("follow_virtual")?,
            dequantize: self.flag("dequantize")?,
            program: self.path("program")?.map(GivenProgram::File),
            names: self
                .one_of("names", &["as-stored", "structured", "variable"].map(|word| (word, word)))?
                .map(str::to_owned),
            entities: self.path("entities")?,
            config: self.path("config")?,
            at: self.number("at", ..)?,
            limits: Some(self.limits()?),
        })
    }

    /// Keywords for reading the right side of a comparison: `lenient` and similar ones apply to both sides.
    pub(crate) fn opening_right(&self) -> PyResult<Opening> {
        let both = self.opening()?;
        Ok(Opening {
            format: self.text("right_from")?,
            program: self.path("right_program")?.map(GivenProgram::File),
            entities: self.path("right_entities")?,
            config: self.path("right_config")?,
            at: self.number("right_at", ..)?,
            ..both
        })
    }

    fn limits(&self) -> PyResult<HashMap<String, u64>> {
        let one = |text: String| {
            let pair =
                text.split_once('=').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
            pair.ok_or_else(|| {
                self.raise(Error::usage("bad-limit", "malformed limit").expected("NAME=NUMBER").found(text))
            })
        };
        self.texts("limit")?.into_iter().map(one).collect()
    }

    /// Keywords for writing.
    pub(crate) fn writing(&self) -> PyResult<Writing> {
        self.excludes("allow_loss", &["deny_loss"])?;
        Ok(Writing {
            to: self.text("to")?,
            kind: self.text("kind")?,
            settings: self.pairs("set")?,
            plan: self.flag("plan")?,
            allow_loss: self.flag("allow_loss")?,
            deny_loss: self.flag("deny_loss")?,
            force: self.flag("force")?,
            run: RunOptions {
                threads: self.threads()?,
                memory: self.size("memory")?.unwrap_or(RunOptions::default().memory),
                sync: !self.flag("no_sync")?,
                ..RunOptions::default()
            },
        })
    }
}

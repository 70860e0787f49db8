//! Optimizer settings in memory.

use super::raw::Reader;
use super::tensor::{MEMORY, memory};
use super::write::{put_settings, settings_of};
use super::{FileKind, Primitiv, read, wire};
use weighbridge_core::checkpoint::{Checkpoint, Name, Note};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::WritePlan;
use weighbridge_format::WriteFormat;
use weighbridge_format::{OpenOptions, PlanOptions};
use weighbridge_io::source::SourceRef;

/// Key of the number of updates: the only integer that every optimizer has.
const EPOCH: &str = "Optimizer.epoch";
/// Key prefix shared by all classes.
const COMMON: &str = "Optimizer";
/// Floats of every class, with their defaults as bits: 0, 0 and 1.
const CLIP: (&str, u32) = ("Optimizer.clip_threshold", 0);
const L2: (&str, u32) = ("Optimizer.l2_strength", 0);
const SCALE: (&str, u32) = ("Optimizer.lr_scale", 0x3f80_0000);

/// Classes of primitiv: name, stats per parameter, and floats with their defaults, in the observed order of the
/// original.
const CLASSES: &[Class] = &[
    Class {
        class: OptimizerClass::Sgd,
        name: "SGD",
        stats: &[],
        floats: &[("SGD.eta", 0x3dcc_cccd), CLIP, L2, SCALE],
    },
    Class {
        class: OptimizerClass::MomentumSgd,
        name: "MomentumSGD",
        stats: &["MomentumSGD.m"],
        floats: &[("MomentumSGD.momentum", 0x3f66_6666), ("MomentumSGD.eta", 0x3c23_d70a), CLIP, L2, SCALE],
    },
    Class {
        class: OptimizerClass::AdaGrad,
        name: "AdaGrad",
        stats: &["AdaGrad.m"],
        floats: &[CLIP, L2, ("AdaGrad.eps", 0x322b_cc77), ("AdaGrad.eta", 0x3a83_126f), SCALE],
    },
    Class {
        class: OptimizerClass::RmsProp,
        name: "RMSProp",
        stats: &["RMSProp.m"],
        floats: &[
            ("RMSProp.eps", 0x322b_cc77),
            ("RMSProp.eta", 0x3c23_d70a),
            CLIP,
            L2,
            ("RMSProp.alpha", 0x3f66_6666),
            SCALE,
        ],
    },
    Class {
        class: OptimizerClass::AdaDelta,
        name: "AdaDelta",
        stats: &["AdaDelta.m1", "AdaDelta.m2"],
        floats: &[("AdaDelta.eps", 0x3586_37bd), ("AdaDelta.rho", 0x3f73_3333), CLIP, L2, SCALE],
    },
    Class {
        class: OptimizerClass::Adam,
        name: "Adam",
        stats: &["Adam.m1", "Adam.m2"],
        floats: &[
            ("Adam.beta2", 0x3f7f_be77),
            ("Adam.beta1", 0x3f66_6666),
            CLIP,
            ("Adam.eps", 0x322b_cc77),
            ("Adam.alpha", 0x3a83_126f),
            L2,
            SCALE,
        ],
    },
];

struct Class {
    class: OptimizerClass,
    name: &'static str,
    stats: &'static [&'static str],
    floats: &'static [(&'static str, u32)],
}

/// Class of an optimizer, derived from its keys: the file does not store it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OptimizerClass {
    /// Plain stochastic gradient descent.
    Sgd,
    /// With momentum.
    MomentumSgd,
    /// AdaGrad.
    AdaGrad,
    /// RMSProp.
    RmsProp,
    /// AdaDelta.
    AdaDelta,
    /// Adam.
    Adam,
    /// A user-defined class, by the prefix of its keys.
    Other(Name),
}

impl OptimizerClass {
    /// Returns the class whose keys begin with `name` and a dot.
    pub fn from_name(name: impl Into<Name>) -> Self {
        let name = name.into();
        match CLASSES.iter().find(|c| c.name.as_bytes() == name.as_bytes()) {
            Some(class) => class.class.clone(),
            None => Self::Other(name),
        }
    }

    /// Returns the prefix of its keys, before the dot.
    pub fn name(&self) -> Name {
        match (self, self.known()) {
            (Self::Other(name), _) => name.clone(),
            (_, class) => Name::from(class.map_or("", |c| c.name)),
        }
    }

    /// Returns the names of the stats that it stores for each parameter; empty for [`Other`](Self::Other) classes.
    pub fn stats(&self) -> &'static [&'static str] {
        self.known().map_or(&[], |class| class.stats)
    }

    fn known(&self) -> Option<&'static Class> {
        CLASSES.iter().find(|c| c.class == *self)
    }

    fn floats(&self) -> &'static [(&'static str, u32)] {
        self.known().map_or(&[CLIP, L2, SCALE], |class| class.floats)
    }
}

/// Settings of an optimizer by key: integers and floats, each in file order.
///
/// Floats are stored as bits, and optimizers are compared by these bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Optimizer {
    pub(super) uints: Vec<(Name, u32)>,
    pub(super) floats: Vec<(Name, u32)>,
}

impl Optimizer {
    /// Creates an optimizer with all keys of its class and their defaults. For an [`Other`](OptimizerClass::Other) class,
    /// the keys are those of all classes.
    pub fn new(class: &OptimizerClass) -> Self {
        let floats = class.floats().iter().map(|&(key, bits)| (Name::from(key), bits)).collect();
        Self { uints: vec![(EPOCH.into(), 0)], floats }
    }

    /// Creates an optimizer with exactly these settings, in this order. For duplicate keys the last value counts, at the
    /// first position.
    pub fn from_settings(
        uints: impl IntoIterator<Item = (Name, u32)>,
        floats: impl IntoIterator<Item = (Name, f32)>,
    ) -> Self {
        let mut optimizer = Self { uints: Vec::new(), floats: Vec::new() };
        uints.into_iter().for_each(|(key, value)| optimizer.set_uint(key, value));
        floats.into_iter().for_each(|(key, value)| optimizer.set_float(key, value));
        optimizer
    }

    pub(super) fn from_raw(uints: Vec<(Name, u32)>, floats: Vec<(Name, u32)>) -> Self {
        Self { uints, floats }
    }

    /// Returns the class, if all keys other than the common ones have one prefix; `None` without such keys or if they
    /// differ.
    pub fn class(&self) -> Option<OptimizerClass> {
        let mut found: Option<&[u8]> = None;
        for (key, _) in self.uints.iter().chain(&self.floats) {
            let bytes = key.as_bytes();
            let prefix = &bytes[..bytes.iter().position(|&b| b == b'.')?];
            if prefix == COMMON.as_bytes() || found == Some(prefix) {
                continue;
            }
            if found.is_some() {
                return None;
            }
            found = Some(prefix);
        }
        found.map(|prefix| OptimizerClass::from_name(Name::new(prefix)))
    }

    /// Returns the keys of its class that are missing. The original then keeps its own values; versions up to 0.3.1
    /// refuse the file.
    pub fn missing_keys(&self) -> Vec<&'static str> {
        let class = self.class().unwrap_or(OptimizerClass::Other(Name::default()));
        let lacks =
            |list: &[(Name, u32)], key: &str| !list.iter().any(|(k, _)| k.as_bytes() == key.as_bytes());
        let epoch = lacks(&self.uints, EPOCH).then_some(EPOCH);
        let floats = class.floats().iter().map(|&(key, _)| key).filter(|key| lacks(&self.floats, key));
        epoch.into_iter().chain(floats).collect()
    }

    /// Returns the number of updates of the parameters, modulo 2^32.
    pub fn epoch(&self) -> Option<u32> {
        self.uint(EPOCH)
    }

    /// Sets the number of updates of the parameters.
    pub fn set_epoch(&mut self, epoch: u32) {
        self.set_uint(EPOCH, epoch);
    }

    /// Yields the integers in their order.
    pub fn uints(&self) -> impl ExactSizeIterator<Item = (&Name, u32)> {
        self.uints.iter().map(|(key, value)| (key, *value))
    }

    /// Yields the floats in their order.
    pub fn floats(&self) -> impl ExactSizeIterator<Item = (&Name, f32)> {
        self.floats.iter().map(|(key, bits)| (key, f32::from_bits(*bits)))
    }

    /// Returns the integer of a key.
    pub fn uint(&self, key: impl Into<Name>) -> Option<u32> {
        find(&self.uints, &key.into())
    }

    /// Returns the float of a key.
    pub fn float(&self, key: impl Into<Name>) -> Option<f32> {
        find(&self.floats, &key.into()).map(f32::from_bits)
    }

    /// Sets an integer, at its old position if the key exists, else at the end.
    pub fn set_uint(&mut self, key: impl Into<Name>, value: u32) {
        set(&mut self.uints, key.into(), value);
    }

    /// Sets a float, at its old position if the key exists, else at the end. Negative values and NaN are accepted: a file
    /// can contain them, though the setters of the original refuse negative ones.
    pub fn set_float(&mut self, key: impl Into<Name>, value: f32) {
        set(&mut self.floats, key.into(), value.to_bits());
    }

    /// Reads an optimizer file.
    ///
    /// # Errors
    /// As [`super::Tensor::read`].
    pub fn read(source: SourceRef, options: &OpenOptions) -> Result<Self> {
        Self::read_noted(source, options).map(|(optimizer, _)| optimizer)
    }

    pub(super) fn read_noted(source: SourceRef, options: &OpenOptions) -> Result<(Self, Vec<Note>)> {
        let label = source.label().to_owned();
        let read = || {
            let mut reader = Reader::new(source, options)?;
            reader.expect(FileKind::Optimizer)?;
            let raw = reader.optimizer()?;
            let optimizer = Self::from_raw(raw.uints, raw.floats);
            let mut notes = optimizer.notes();
            notes.extend(reader.finish()?);
            Ok((optimizer, notes))
        };
        read().map_err(|e: Error| e.in_file(label))
    }

    /// Same as [`read`](Self::read), from bytes with default options.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        Self::read(memory(bytes.into()), &OpenOptions::default())
    }

    /// Returns the bytes of an optimizer file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] for numbers or lengths of keys above 32 bits.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        wire::put_header(&mut out, FileKind::Optimizer);
        put_settings(&mut out, &self.uints, &self.floats)?;
        Ok(out)
    }

    /// Reads the settings from the metadata of an index, as read from an optimizer file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-settings`, `setting-type`, `duplicate-key`.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self> {
        let (uints, floats) = settings_of(&checkpoint.metadata)?;
        Ok(Self { uints, floats })
    }

    /// Returns an index with these settings as metadata.
    pub fn to_checkpoint(&self) -> Checkpoint {
        let mut checkpoint = read::start(FileKind::Optimizer, MEMORY);
        checkpoint.metadata = read::optimizer_metadata(&self.uints, &self.floats);
        checkpoint
    }

    /// Plans an optimizer file.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes).
    pub fn plan(&self) -> Result<WritePlan> {
        Primitiv.plan(&self.to_checkpoint(), &PlanOptions::default())
    }

    /// Returns the notes on an optimizer that was read.
    pub(super) fn notes(&self) -> Vec<Note> {
        let class = self.class();
        let text = match &class {
            Some(class) => format!("optimizer class {}, from the prefix of its keys", class.name()),
            None => "the optimizer class cannot be determined from the keys".into(),
        };
        let mut notes = vec![Note::new("optimizer-class", text)];
        let missing = self.missing_keys();
        if !missing.is_empty() {
            notes.push(Note::new(
                "optimizer-keys-missing",
                format!(
                    "the file lacks {}; primitiv keeps its own values, and refuses the file up to v0.3.1",
                    missing.join(", ")
                ),
            ));
        }
        // The meaning of the keys of unknown classes is unknown, so they may be negative.
        let class = class.unwrap_or(OptimizerClass::Other(Name::default()));
        let known = |key: &Name| class.floats().iter().any(|(k, _)| k.as_bytes() == key.as_bytes());
        for (key, value) in
            self.floats().filter(|(key, value)| known(key) && (value.is_nan() || *value < 0.0))
        {
            let text = format!(
                "{key} is {value}; primitiv loads this value, though its setters refuse negative values"
            );
            notes.push(Note::new("optimizer-value", text));
        }
        notes
    }
}

fn find(list: &[(Name, u32)], key: &Name) -> Option<u32> {
    list.iter().find(|(k, _)| k == key).map(|(_, value)| *value)
}

fn set(list: &mut Vec<(Name, u32)>, key: Name, value: u32) {
    match list.iter_mut().find(|(k, _)| *k == key) {
        Some((_, old)) => *old = value,
        None => list.push((key, value)),
    }
}

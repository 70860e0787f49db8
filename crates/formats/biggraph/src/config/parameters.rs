//! Parameters of a model: those of its operators, and the global embeddings.

use super::Config;
use std::fmt;
use weighbridge_core::error::{Error, Result};

/// Side of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Left.
    Lhs,
    /// Right.
    Rhs,
}

impl Side {
    /// Returns the word used in paths: `lhs`, `rhs`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lhs => "lhs",
            Self::Rhs => "rhs",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Initial value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// The identity matrix (one for each dynamic relation).
    Identity,
}

/// Parameter of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelParameter {
    /// Path of its dataset below `model`.
    pub path: Vec<String>,
    /// Name in the model's state dict: the attribute `state_dict_key`.
    pub key: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// Initial value.
    pub initial: Initial,
}

/// Static and dynamic name of an operator's parameter, its form, and its initial value.
type Named = (&'static str, &'static str, Form, Initial);

/// Shape of a parameter for one relation of dimension D.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// D.
    Vector,
    /// D / 2.
    HalfVector,
    /// D, D.
    Matrix,
}

/// Operators, with their parameters in order.
const OPERATORS: &[(&str, &[Named])] = &[
    ("none", &[]),
    ("diagonal", &[("diagonal", "diagonals", Form::Vector, Initial::Ones)]),
    ("translation", &[("translation", "translations", Form::Vector, Initial::Zeros)]),
    ("linear", &[("linear_transformation", "linear_transformations", Form::Matrix, Initial::Identity)]),
    (
        "affine",
        &[
            ("linear_transformation", "linear_transformations", Form::Matrix, Initial::Identity),
            ("translation", "translations", Form::Vector, Initial::Zeros),
        ],
    ),
    (
        "complex_diagonal",
        &[
            ("real", "real", Form::HalfVector, Initial::Ones),
            ("imag", "imag", Form::HalfVector, Initial::Zeros),
        ],
    ),
];

/// True where upstream has an operator of this name.
pub(super) fn is_operator(name: &str) -> bool {
    OPERATORS.iter().any(|(own, _)| *own == name)
}

impl Config {
    /// Returns the parameters of the model in the order of the optimizer: operators of left
    /// sides (dynamic relations only), operators of right sides, global embeddings.
    /// `dynamic_relations` is the number of dynamic relations; ignored without them.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `operator`, for an operator that upstream does not have.
    pub fn parameters(&self, dynamic_relations: u64) -> Result<Vec<ModelParameter>> {
        let mut parameters = Vec::new();
        let types = self.by_name();
        let sides: &[Side] = if self.dynamic_relations { &[Side::Lhs, Side::Rhs] } else { &[Side::Rhs] };
        let many = self.dynamic_relations.then_some(dynamic_relations);
        for &side in sides {
            for (index, relation) in self.relations.iter().enumerate() {
                let Some((_, named)) = OPERATORS.iter().find(|(name, _)| *name == relation.operator) else {
                    return Err(Error::mismatch("operator", "unknown operator")
                        .expected(operator_names())
                        .found(format_args!("{} of relation {index}", relation.operator)));
                };
                let dimension =
                    types.get(relation.side(side)).and_then(|own| own.dimension).unwrap_or(self.dimension);
                for &(one, all, form, initial) in *named {
                    let name = if many.is_some() { all } else { one };
                    let mut shape: Vec<u64> = many.into_iter().collect();
                    match form {
                        Form::Vector => shape.push(dimension),
                        Form::HalfVector => shape.push(dimension / 2),
                        Form::Matrix => shape.extend([dimension, dimension]),
                    }
                    let path = ["relations", &index.to_string(), "operator", side.as_str(), name];
                    parameters.push(ModelParameter {
                        path: path.map(str::to_owned).to_vec(),
                        key: format!("{side}_operators.{index}.{name}"),
                        shape,
                        initial,
                    });
                }
            }
        }
        // Upstream does not allow both; a configuration with both has no defined meaning.
        if self.global_emb && !self.dynamic_relations {
            for (name, entity) in &self.entities {
                let path = ["entities", name, "global_embedding"];
                parameters.push(ModelParameter {
                    path: path.map(str::to_owned).to_vec(),
                    key: format!("global_embs.emb_{name}"),
                    shape: vec![entity.dimension.unwrap_or(self.dimension)],
                    initial: Initial::Zeros,
                });
            }
        }
        Ok(parameters)
    }
}

/// Names of the operators, for messages.
pub(super) fn operator_names() -> String {
    OPERATORS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

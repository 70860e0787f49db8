//! Which parameters a model has: those of its operators, and the global embeddings.

use super::Config;
use std::fmt;
use weighbridge_core::error::{Error, Result};

/// A side of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Left.
    Lhs,
    /// Right.
    Rhs,
}

impl Side {
    /// The word in paths: `lhs`, `rhs`.
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

/// What a parameter is before training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// The identity matrix (of each relation, where there are many).
    Identity,
}

/// A parameter of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelParameter {
    /// The path of its dataset below `model`.
    pub path: Vec<String>,
    /// Its name in the model's state: the attribute `state_dict_key`.
    pub key: String,
    /// Its extents.
    pub shape: Vec<u64>,
    /// What it is before training.
    pub initial: Initial,
}

/// Names of an operator's parameters, static and dynamic, their rank, and what they begin with.
type Named = (&'static str, &'static str, Form, Initial);

/// The shape of a parameter for one relation of dimension D.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// D.
    Vector,
    /// D / 2.
    HalfVector,
    /// D, D.
    Matrix,
}

/// The operators, with their parameters in order.
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

/// True where upstream has an operator of that name.
pub(super) fn is_operator(name: &str) -> bool {
    OPERATORS.iter().any(|(own, _)| *own == name)
}

impl Config {
    /// The parameters of the model in the order in which the optimizer counts them: operators of left
    /// sides (dynamic relations only), operators of right sides, global embeddings.
    /// `dynamic_relations` is the number of dynamic relations; without them it is not looked at.
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
                    return Err(Error::mismatch("operator", "there is no such operator")
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
        // Upstream does not have both; what a configuration with both means is not known.
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

/// The names of the operators, for people.
pub(super) fn operator_names() -> String {
    OPERATORS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

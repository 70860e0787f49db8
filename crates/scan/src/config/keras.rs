//! Imports, calls and files that a Keras configuration makes Keras use.

use super::super::json::{Json, Map};
use super::{Document, short};

/// Modules of Keras, with their submodules, whose classes and functions a configuration may name.
const KERAS: &[&str] = &[
    "keras.activations",
    "keras.constraints",
    "keras.initializers",
    "keras.layers",
    "keras.losses",
    "keras.metrics",
    "keras.optimizers",
    "keras.regularizers",
    "keras.src.activations",
    "keras.src.backend.torch.optimizers",
    "keras.src.constraints",
    "keras.src.initializers",
    "keras.src.layers",
    "keras.src.losses",
    "keras.src.metrics",
    "keras.src.optimizers",
    "keras.src.regularizers",
];
/// Modules with only these allowed classes.
const KERAS_CLASSES: &[(&[&str], &[&str])] = &[
    (
        &[
            "keras",
            "keras.models",
            "keras.src.models.functional",
            "keras.src.models.sequential",
            "keras.src.engine.functional",
            "keras.src.engine.sequential",
        ],
        &["Functional", "Sequential", "Model"],
    ),
    (
        &["keras", "keras.src.dtype_policies", "keras.dtype_policies", "keras.mixed_precision"],
        &["DTypePolicy", "Policy", "FloatDTypePolicy", "QuantizedDTypePolicy"],
    ),
    // A wrapped type or shape, which is only looked up among dtype names.
    (&["builtins"], &["__tuple__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "slice"]),
];
/// Modules of Keras with operation classes of graphs, which only compute.
const KERAS_OPS: &[&str] = &["keras.ops", "keras.src.ops"];
/// Functions of Keras that a configuration may name: activations, losses, metrics.
#[rustfmt::skip]
const KERAS_FUNCTIONS: &[&str] = &[
    "celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh",
    "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink",
    "softmax", "softplus", "softsign", "sparse_plus", "sparsemax", "squareplus", "swish", "tanh", "tanh_shrink", "threshold",
    "binary_crossentropy", "binary_focal_crossentropy", "categorical_crossentropy", "categorical_focal_crossentropy",
    "categorical_generalized_cross_entropy", "categorical_hinge", "circle", "cosine_similarity", "ctc", "dice", "hinge",
    "huber", "kl_divergence", "log_cosh", "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_error",
    "mean_squared_logarithmic_error", "poisson", "sparse_categorical_crossentropy", "squared_hinge", "tversky",
    "accuracy", "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy", "sparse_top_k_categorical_accuracy",
    "top_k_categorical_accuracy",
];
/// Layers that load a torch module or a SavedModel, which may run any code.
const LOADING: &[&str] = &["TorchModuleWrapper", "TFSMLayer"];
/// Layers that read their vocabulary from a file or URL if it is a single string.
const WORDS: &[&str] = &["StringLookup", "IntegerLookup", "IndexLookup", "TextVectorization"];
/// Prefixes of TensorFlow functions that a layer may call by name: those that only compute.
const COMPUTES: &[&str] = &["__operators__.", "math.", "nn.", "linalg.", "image.", "signal."];
/// Further TensorFlow functions that only compute.
const COMPUTES_ALONE: &[&str] = &[
    "cast",
    "clip_by_value",
    "concat",
    "convert_to_tensor",
    "expand_dims",
    "gather",
    "identity",
    "ones_like",
    "one_hot",
    "pad",
    "repeat",
    "reshape",
    "shape",
    "slice",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "unstack",
    "where",
    "zeros_like",
    "compat.v1.shape",
    "compat.v1.gather",
    "compat.v1.transpose",
    "broadcast_to",
    "reverse",
];

/// TensorFlow graph operations that a layer may be: those that only compute.
#[rustfmt::skip]
const OPERATIONS: &[&str] = &[
    "Abs", "Add", "AddN", "AddV2", "All", "Any", "ArgMax", "ArgMin", "AvgPool", "BatchMatMul", "BatchMatMulV2", "BiasAdd", "Cast",
    "Ceil", "ClipByValue", "ConcatV2", "Conv2D", "Cos", "Cumprod", "Cumsum", "DepthToSpace", "DepthwiseConv2dNative", "Div",
    "DivNoNan", "Einsum", "Elu", "Equal", "Erf", "Exp", "ExpandDims", "Expm1", "Fill", "Floor", "FloorDiv", "FloorMod", "GatherNd",
    "Gather", "GatherV2", "Greater", "GreaterEqual", "Identity", "L2Loss", "LeakyRelu", "Less", "LessEqual", "Log", "Log1p",
    "LogSoftmax", "LogicalAnd", "LogicalNot", "LogicalOr", "MatMul", "Max", "MaxPool", "Maximum", "Mean", "Min", "Minimum",
    "MirrorPad", "Mul", "Neg", "NotEqual", "OneHot", "OnesLike", "Pack", "Pad", "PadV2", "Pow", "Prod", "Range", "Rank",
    "RealDiv", "Reciprocal", "Relu", "Relu6", "Reshape", "ResizeBilinear", "ResizeNearestNeighbor", "ReverseV2", "Round", "Rsqrt",
    "Select", "SelectV2", "Selu", "Shape", "Sigmoid", "Sign", "Sin", "Size", "Slice", "Softmax", "Softplus", "Softsign",
    "SpaceToDepth", "Split", "SplitV", "Sqrt", "Square", "SquaredDifference", "Squeeze", "StopGradient", "StridedSlice", "Sub",
    "Sum", "Tan", "Tanh", "Tile", "TopKV2", "Transpose", "Unpack", "Where", "ZerosLike",
];
/// Classes of TensorFlow whose constructors `from_...` a layer may call.
const MADE_BY_CLASS: &[&str] = &["RaggedTensor", "SparseTensor"];

impl Document {
    /// Judges an object that Keras deserializes to a class or function.
    pub(super) fn keras(&mut self, map: &Map<'_>) {
        let text = |key: &str| map.get(key).and_then(Json::as_str);
        if text("function_type") == Some("lambda") || text("output_shape_type") == Some("lambda") {
            self.lambda.push(|| "a function as Python bytecode".to_owned());
        }
        let Some(class) = text("class_name") else { return };
        let module = text("module").unwrap_or("");
        let config = |key: &str| map.get("config").and_then(|config| config.get(key));
        if LOADING.contains(&class) {
            let path = || {
                config("filepath")
                    .map_or_else(String::new, |path| format!(" from {}", short(&path.to_string())))
            };
            self.loads.push(|| format!("{class}{}", path()));
        }
        if let (true, Some(words)) = (WORDS.contains(&class), config("vocabulary").and_then(Json::as_str)) {
            self.loads.push(|| format!("{class} reads {}", short(words)));
        }
        // Bytes as text or base64.
        if let (true, Some(value)) = (class == "__bytes__", config("value").and_then(Json::as_str)) {
            self.bytes.push(value.as_bytes().to_vec());
            self.bytes.extend(base64(value));
        }
        match class {
            "Lambda" | "__lambda__" => {
                let name = map.get("config").and_then(|config| config.get("name")).and_then(Json::as_str);
                self.lambda.push(|| format!("{class} {}", short(name.unwrap_or_default())));
                return;
            }
            "ClassMethod" => {
                let class = config("cls_symbol").and_then(Json::as_str).unwrap_or_default();
                let method = config("method_name").and_then(Json::as_str).unwrap_or_default();
                let makes = MADE_BY_CLASS.contains(&class.rsplit('.').next().unwrap_or_default())
                    && method.starts_with("from_");
                if !makes {
                    self.foreign.push(|| format!("a call of tensorflow.{}.{}", short(class), short(method)));
                }
            }
            "TensorFlowOpLayer" => {
                let node = config("node_def").and_then(Json::as_str).map(Json::parse);
                let node = node.as_ref().map_or(config("node_def"), Option::as_ref);
                let operation = node.and_then(|node| node.get("op")).and_then(Json::as_str);
                if !operation.is_some_and(|name| OPERATIONS.contains(&name)) {
                    let name = operation.unwrap_or("(unknown)");
                    self.foreign.push(|| format!("the tensorflow operation {}", short(name)));
                }
            }
            "InstanceMethod" | "InstanceProperty" => {
                let name = config("method_name").or_else(|| config("attr_name")).and_then(Json::as_str);
                if !name.is_some_and(|name| !name.is_empty() && !name.starts_with('_') && !name.contains('.'))
                {
                    self.foreign
                        .push(|| format!("a call of {} of a tensor", short(name.unwrap_or("(unknown)"))));
                }
            }
            "TFOpLambda" | "SlicingOpLambda" => {
                let function = config("function").and_then(Json::as_str).unwrap_or_default();
                let computes = COMPUTES_ALONE.contains(&function)
                    || COMPUTES.iter().any(|prefix| function.starts_with(prefix));
                if !computes {
                    self.foreign.push(|| format!("a call of tensorflow.{}", short(function)));
                }
            }
            _ => {}
        }
        // Without a module the class is one that Keras or the caller registered.
        if map.get("module").is_some_and(|module| !matches!(module, Json::Null))
            && !of_keras(module, class)
            && (class != "function" || !function_of_keras(module, text("config").unwrap_or_default()))
        {
            self.foreign.push(|| format!("{}.{}", short(module), short(class)));
        }
    }
}

/// True for a function of Keras.
fn function_of_keras(module: &str, name: &str) -> bool {
    let inside = |outer: &&&str| {
        module.strip_prefix(**outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    // Keras resolves the module `builtins` among its own functions.
    let known = module == "builtins" || KERAS.iter().any(|outer| inside(&outer));
    known && KERAS_FUNCTIONS.contains(&name)
}

/// Decodes base64, with or without line breaks; `None` where the text is not base64.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.bytes().filter(|letter| !letter.is_ascii_whitespace() && *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count).to_le_bytes()[0]);
        }
    }
    Some(bytes)
}

/// True for a class or function of Keras.
fn of_keras(module: &str, class: &str) -> bool {
    let inside = |outer: &&&str| {
        module.strip_prefix(**outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let known =
        KERAS_CLASSES.iter().any(|(modules, classes)| modules.contains(&module) && classes.contains(&class));
    let named = class.starts_with(|c: char| c.is_ascii_uppercase())
        && class.chars().all(|c| c.is_ascii_alphanumeric());
    let operation = KERAS_OPS.iter().any(|outer| inside(&outer)) && named;
    known || operation || (KERAS.iter().any(|outer| inside(&outer)) && class != "function")
}

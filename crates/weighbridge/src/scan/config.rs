//! JSON beside and within models: what it makes a framework import, call or open.

use super::json::{Json, Map};
use super::template::{Judged, judge};
use super::{Beginning, Scan, TakenFor, found, leads_out, may_be_pickle};
use crate::pickle::{Judgement, allowed};
use crate::source::{MemorySource, SourceRef, read_vec};
use crate::text::escape;
use std::sync::Arc;

/// Findings of one rule in one text; more are counted.
const SHOWN: usize = 10;
/// The longest text that is shown, in characters.
const LONGEST: usize = 120;

/// Bytes of all templates of one text that are looked through.
const MOST_TEMPLATES: usize = 1 << 20;

/// Modules of Keras from which a configuration names classes and functions, whole or with a dot behind.
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
    "keras.src.constraints",
    "keras.src.initializers",
    "keras.src.layers",
    "keras.src.losses",
    "keras.src.metrics",
    "keras.src.optimizers",
    "keras.src.regularizers",
];
/// Modules of which only these classes are named.
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
    // A wrapped type or shape, which is only looked up among names of numbers.
    (&["builtins"], &["__tuple__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "slice"]),
];
/// Modules of Keras of which the classes compute, as a graph of operations names them.
const KERAS_OPS: &[&str] = &["keras.ops", "keras.src.ops"];
/// Functions of Keras that a configuration names: activations, losses, metrics.
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
/// Layers that load a module of torch, or a saved model, which may run anything.
const LOADING: &[&str] = &["TorchModuleWrapper", "TFSMLayer"];
/// Layers that read their words from a file, or from elsewhere, where they are given as one text.
const WORDS: &[&str] = &["StringLookup", "IntegerLookup", "IndexLookup", "TextVectorization"];
/// Bytes of text for each value, beside those that are free.
const VALUE_BYTES: usize = 5;
const FREE_VALUES: usize = 1 << 16;
/// Functions of TensorFlow that a layer may call by name: those that only compute.
const COMPUTES: &[&str] = &["__operators__.", "math.", "nn.", "linalg.", "image.", "signal."];
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

/// Judges a configuration in JSON, also one document a line. False where `text` is no JSON object or list;
/// nothing is added then.
pub fn config(text: &str, scan: &mut Scan) -> bool {
    if is_crowded(text) {
        scan.push("left-out", "too-many-values: JSON of that many values is not looked through");
        return true;
    }
    // The parser refuses what is nested deeper than 128.
    let mut looked = Looked::default();
    let whole = looked.text(text);
    // One document a line, as logs have them.
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let known = whole || (lines().next().is_some() && lines().all(|line| looked.text(line)));
    if known {
        looked.tell(scan);
    }
    known
}

/// Judges a file that is a template of chats.
pub fn template(text: &str, scan: &mut Scan) {
    let mut looked = Looked::default();
    looked.template(|| "the file".to_owned(), text);
    looked.tell(scan);
}

/// True where there are more values than a text of that length should have: each takes some 50 bytes when it is parsed.
/// Honest ones, words with their numbers among them, take ten bytes and more; pairs of short words five.
fn is_crowded(text: &str) -> bool {
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    values > text.len() / VALUE_BYTES + FREE_VALUES
}

/// Judges the configuration of a Keras model. Text that is no JSON could not be understood.
pub fn keras(text: &str, scan: &mut Scan) {
    if !config(text, scan) {
        scan.push("keras-unread", "the configuration of the model is no JSON");
    }
}

/// What was met of one rule: what is shown, and how much there is.
#[derive(Default)]
struct Met {
    shown: Vec<String>,
    count: usize,
}

impl Met {
    /// One more. Its text is made only where it is shown: it may be long, and there may be many.
    fn push(&mut self, text: impl FnOnce() -> String) {
        if self.count < SHOWN {
            self.shown.push(text());
        }
        self.count += 1;
    }
}

/// What was met in one text.
#[derive(Default)]
struct Looked {
    lambda: Met,
    foreign: Met,
    loads: Met,
    bytes: Vec<Vec<u8>>,
    remote: Met,
    targets: Met,
    out: Met,
    absolute: Met,
    unread: Met,
    /// Bytes of templates that were looked through.
    templates: usize,
}

impl Looked {
    /// Looks at one document; false where it is none.
    fn text(&mut self, text: &str) -> bool {
        match Json::parse(text) {
            Some(json @ (Json::Object(_) | Json::Array(_))) => {
                self.walk(&json, &mut Vec::new(), false);
                true
            }
            _ => false,
        }
    }

    /// `template` is true below a key of a chat template.
    fn walk<'a>(&mut self, json: &'a Json<'_>, keys: &mut Vec<&'a str>, template: bool) {
        let told = |keys: &[&str], text: &str| format!("{}: {}", short(&keys.join(".")), short(text));
        match json {
            Json::Object(map) => {
                self.object(map);
                for (key, value) in map.pairs() {
                    keys.push(key);
                    self.walk(value, keys, template || key.contains("chat_template"));
                    keys.pop();
                }
            }
            Json::Array(list) => list.iter().for_each(|value| self.walk(value, keys, template)),
            Json::Text(text) if template && self.template(|| keys.join("."), text) => {}
            Json::Text(text) if is_absolute(text) => self.absolute.push(|| told(keys, text)),
            _ => {}
        }
    }

    /// Judges a template; true where something is to be told of it.
    fn template(&mut self, name: impl Fn() -> String, text: &str) -> bool {
        self.templates = self.templates.saturating_add(text.len());
        let judged = if self.templates > MOST_TEMPLATES {
            Judged::Unread("there are more templates than are looked through")
        } else {
            judge(text)
        };
        match judged {
            Judged::Clean => return false,
            Judged::Reaches(what) => {
                self.remote.push(|| format!("{}: {what}: {}", short(&name()), short(text)));
            }
            Judged::Unread(why) => self.unread.push(|| format!("{}: {why}: {}", short(&name()), short(text))),
        }
        true
    }

    /// Tokens of a name of the model's own, which templates know by that name; those that end with `token` are told apart there.
    fn tokens(&mut self, map: &Map<'_>) {
        let Some(Json::Object(tokens)) = map.get("extra_special_tokens") else { return };
        for (name, value) in tokens.pairs() {
            let text =
                value.as_str().or_else(|| value.get("content").and_then(Json::as_str)).unwrap_or_default();
            if text.starts_with('_') && !name.ends_with("token") && !name.ends_with("tokens") {
                self.remote.push(|| format!("extra_special_tokens: {} is {}", short(name), short(text)));
            }
        }
    }

    fn object(&mut self, map: &Map<'_>) {
        self.tokens(map);
        for key in ["auto_map", "custom_pipelines"] {
            if let Some(value @ (Json::Object(_) | Json::Text(_) | Json::Array(_))) = map.get(key) {
                self.remote.push(|| format!("{key}: {}", short(&value.to_string())));
            }
        }
        if let Some(target) = map.get("_target_") {
            let name = target.as_str().unwrap_or_default();
            let (module, function) = name.rsplit_once('.').unwrap_or(("builtins", name));
            let text = || format!("_target_: {}", short(&target.to_string()));
            match allowed(module, function) {
                Judgement::Dangerous(_) | Judgement::Pattern(_) => self.remote.push(text),
                Judgement::Allowed(_) | Judgement::Defined(_) | Judgement::Unknown => self.targets.push(text),
            }
        }
        // PyTorch-BigGraph makes names of files from those of its entity types.
        if let (Some(Json::Object(types)), true) = (map.get("entities"), map.get("relations").is_some()) {
            let names = types.pairs().map(|(name, _)| name);
            let out = names.filter(|name| leads_out(name) || name.contains(['/', '\\']));
            out.for_each(|name| self.out.push(|| format!("the entity type {}", short(name))));
        }
        if let Some(Json::Object(files)) = map.get("weight_map") {
            let out = files.pairs().filter_map(|(_, file)| file.as_str()).filter(|name| leads_out(name));
            out.for_each(|name| self.out.push(|| format!("the shard {}", short(name))));
        }
        self.keras(map);
    }

    /// A class or function that Keras is asked to make.
    fn keras(&mut self, map: &Map<'_>) {
        let text = |key: &str| map.get(key).and_then(Json::as_str);
        if text("function_type") == Some("lambda") || text("output_shape_type") == Some("lambda") {
            self.lambda.push(|| "a function as Python byte code".to_owned());
        }
        let Some(class) = text("class_name") else { return };
        let module = text("module").unwrap_or("");
        let config = |key: &str| map.get("config").and_then(|config| config.get(key));
        if LOADING.contains(&class) {
            let what = || {
                config("filepath")
                    .map_or_else(String::new, |path| format!(" of {}", short(&path.to_string())))
            };
            self.loads.push(|| format!("{class}{}", what()));
        }
        if let (true, Some(words)) = (WORDS.contains(&class), config("vocabulary").and_then(Json::as_str)) {
            self.loads.push(|| format!("{class} reads {}", short(words)));
        }
        // Bytes as text, or in the letters of base64.
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
            "TFOpLambda" | "SlicingOpLambda" => {
                let function =
                    map.get("config").and_then(|config| config.get("function")).and_then(Json::as_str);
                let function = function.unwrap_or_default();
                let computes = COMPUTES_ALONE.contains(&function)
                    || COMPUTES.iter().any(|prefix| function.starts_with(prefix));
                if !computes {
                    self.foreign.push(|| format!("calls tensorflow.{}", short(function)));
                }
            }
            _ => {}
        }
        // Without a module the class is looked up among those that Keras or the caller registered.
        if map.get("module").is_some_and(|module| !matches!(module, Json::Null))
            && !of_keras(module, class)
            && (class != "function" || !function_of_keras(module, text("config").unwrap_or_default()))
        {
            self.foreign.push(|| format!("{}.{}", short(module), short(class)));
        }
    }

    fn tell(self, scan: &mut Scan) {
        for bytes in self.bytes {
            let source: SourceRef = Arc::new(MemorySource::new("bytes in a configuration", bytes));
            if may_be_pickle(&source).is_ok_and(|may| may) || !source.is_empty() && is_known(&source) {
                scan.look_into("(bytes in the configuration)", source, TakenFor::Bytes);
            }
        }
        let lists: [(&'static str, &str, Met); 8] = [
            ("keras-lambda", "the model holds Python code", self.lambda),
            ("keras-foreign-module", "the model names what is not of Keras", self.foreign),
            ("keras-loads", "the model loads code or a file", self.loads),
            ("names-callable", "the configuration names what is to be imported and called", self.targets),
            ("remote-code", "the configuration names code that comes along, or reaches for it", self.remote),
            ("name-leads-out", "a name of a file leads out of the folder", self.out),
            ("absolute-path", "an absolute path", self.absolute),
            ("left-out", "template: a template of chats was not followed", self.unread),
        ];
        for (code, what, list) in lists {
            for text in &list.shown {
                scan.findings.push(found(code, format!("{what}: {text}")));
            }
            if list.count > SHOWN {
                scan.findings.push(found(
                    code,
                    format!("{} in all; {} are not listed", list.count, list.count - SHOWN),
                ));
            }
        }
    }
}

/// True for one of Keras's own functions.
fn function_of_keras(module: &str, name: &str) -> bool {
    let inside = |outer: &&&str| {
        module.strip_prefix(**outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    // Built-in functions of Keras are looked up among its own, whatever they are called.
    let known = module == "builtins" || KERAS.iter().any(|outer| inside(&outer));
    known && KERAS_FUNCTIONS.contains(&name)
}

/// True for bytes that begin as something that is known.
fn is_known(source: &SourceRef) -> bool {
    read_vec(&**source, 0, source.len().min(512)).is_ok_and(|head| Beginning::of(&head).is_some())
}

/// What text in the letters of base64 says, with or without line breaks; `None` where it is none.
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

/// True for a class or function that Keras itself has.
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

/// True for an absolute path of a file system that people have: below some folder, or on a drive.
fn is_absolute(text: &str) -> bool {
    let bytes = text.as_bytes();
    let drive = bytes.get(1) == Some(&b':') && bytes.get(2).is_some_and(|b| matches!(b, b'\\' | b'/'));
    let parts =
        text.strip_prefix('/').map_or(0, |rest| rest.split('/').filter(|part| !part.is_empty()).count());
    text.len() < 4096
        && !text.contains('\n')
        && ((drive && bytes[0].is_ascii_alphabetic()) || (parts >= 2 && !text.starts_with("//")))
}

fn short(text: &str) -> String {
    let cut: String = text.chars().take(LONGEST).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", escape(&cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str) -> Vec<&'static str> {
        let mut scan = Scan::default();
        assert!(config(text, &mut scan), "{text}");
        scan.findings.iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn what_keras_would_import_or_run() {
        let layer = |module: &str, class: &str| {
            format!(r#"{{"module": {module}, "class_name": "{class}", "config": {{"name": "x"}}}}"#)
        };
        assert_eq!(codes(&layer(r#""keras.layers""#, "Dense")), [""; 0]);
        assert_eq!(codes(&layer(r#""keras""#, "Functional")), [""; 0]);
        assert_eq!(codes(&layer("null", "Dense")), [""; 0]);
        assert_eq!(codes(&layer(r#""keras.layers""#, "Lambda")), ["keras-lambda"]);
        assert_eq!(codes(&layer(r#""os""#, "system")), ["keras-foreign-module"]);
        assert_eq!(codes(&layer(r#""keras.layersevil""#, "Dense")), ["keras-foreign-module"]);
        assert_eq!(codes(&layer(r#""builtins""#, "exec")), ["keras-foreign-module"]);
        assert_eq!(codes(&layer(r#""keras.utils""#, "get_file")), ["keras-foreign-module"]);
        let op = |function: &str| {
            format!(r#"{{"class_name": "TFOpLambda", "config": {{"function": "{function}"}}}}"#)
        };
        assert_eq!(codes(&op("math.multiply")), [""; 0]);
        assert_eq!(codes(&op("io.write_file")), ["keras-foreign-module"]);
        assert_eq!(codes(r#"[{"function_type": "lambda"}]"#), ["keras-lambda"]);
    }

    #[test]
    fn paths_and_code_beside_the_model() {
        assert_eq!(codes(r#"{"auto_map": {"AutoModel": "modeling.Evil"}}"#), ["remote-code"]);
        assert_eq!(codes(r#"{"entity_path": "/home/me/data"}"#), ["absolute-path"]);
        assert_eq!(codes(r#"{"entities": {"../x": {}}, "relations": []}"#), ["name-leads-out"]);
        assert_eq!(
            codes(r#"{"weight_map": {"a": "../../etc/x", "b": "m.safetensors"}}"#),
            ["name-leads-out"]
        );
        assert_eq!(codes(r#"{"token": "/", "x": "//", "y": "a/b", "z": "/Conv"}"#), [""; 0]);
        let mut scan = Scan::default();
        assert!(!config("3", &mut scan) && !config("{", &mut scan));
        keras("{", &mut scan);
        assert_eq!(scan.findings[0].code, "keras-unread");
    }

    #[test]
    fn what_loads_and_what_only_computes() {
        let layer = |class: &str, config: &str| {
            format!(r#"{{"module": "keras.layers", "class_name": "{class}", "config": {config}}}"#)
        };
        assert_eq!(codes(&layer("TFSMLayer", r#"{"filepath": "x"}"#)), ["keras-loads"]);
        assert_eq!(codes(&layer("StringLookup", r#"{"vocabulary": "words.txt"}"#)), ["keras-loads"]);
        assert_eq!(codes(&layer("StringLookup", r#"{"vocabulary": ["a", "b"]}"#)), [""; 0]);
        let of = |module: &str, class: &str, config: &str| {
            codes(&format!(r#"{{"module": "{module}", "class_name": "{class}", "config": "{config}"}}"#))
        };
        assert_eq!(of("keras.src.ops.numpy", "Add", "x"), [""; 0]);
        assert_eq!(of("keras.src.ops.numpy", "np", "x"), ["keras-foreign-module"]);
        assert_eq!(of("keras.src.opsx", "Add", "x"), ["keras-foreign-module"]);
        assert_eq!(of("keras.losses", "function", "mean_squared_error"), [""; 0]);
        assert_eq!(of("builtins", "function", "relu"), [""; 0]);
        for function in ["deserialize", "exec", ""] {
            assert_eq!(of("keras.losses", "function", function), ["keras-foreign-module"]);
            assert_eq!(of("builtins", "function", function), ["keras-foreign-module"]);
        }
        let mut scan = Scan::default();
        // A pickle in base64: protocol 2, None, the end.
        let bytes = r#"{"class_name": "__bytes__", "config": {"value": "gAJOLg=="}}"#;
        config(&layer("TorchModuleWrapper", &format!(r#"{{"module": {bytes}}}"#)), &mut scan);
        assert_eq!((scan.inner.len(), scan.inner[0].source.len()), (1, 4));
    }

    #[test]
    fn targets_and_templates() {
        assert_eq!(codes(r#"{"auto_map": ["tok.Evil", null]}"#), ["remote-code"]);
        assert_eq!(codes(r#"{"_target_": "os.system"}"#), ["remote-code"]);
        assert_eq!(codes(r#"{"_target_": "eval"}"#), ["remote-code"]);
        assert_eq!(codes(r#"[{"a": {"_target_": "mine.Model"}}]"#), ["names-callable"]);
        assert_eq!(codes(r#"{"chat_template": "{{ x.__class__ }}"}"#), ["remote-code"]);
        assert_eq!(codes(r#"{"chat_template": [{"template": "{{ x.__mro__ }}"}]}"#), ["remote-code"]);
        assert_eq!(codes(r#"{"chat_template": "{% for m in messages %}{{ m.role }}{% endfor %}"}"#), [""; 0]);
        assert_eq!(
            codes(r#"{"chat_template": "__init__ {# x.__class__ #}{{ 'a__b'.split('__') }}"}"#),
            [""; 0]
        );
        assert_eq!(codes(r#"{"chat_template": "{% unheard of %}"}"#), ["left-out"]);
        let many = vec![r#"{"chat_template": "x"}"#.replace('x', &"x".repeat(100_000)); 11];
        assert_eq!(codes(&format!("[{}]", many.join(","))), ["left-out"]);
        assert_eq!(
            codes(r#"{"extra_special_tokens": {"leads": "__class__", "image_token": "<i>"}}"#),
            ["remote-code"]
        );
        assert_eq!(codes(r#"{"extra_special_tokens": {"image_token": "__image__"}}"#), [""; 0]);
    }

    #[test]
    fn crowded_json_is_told_and_not_looked_through() {
        // More values than there is text for them, and words with their numbers, as many.
        let mut crowded = Scan::default();
        let zeros = format!("[{}0]", "0,".repeat(1_000_000));
        assert!(config(&zeros, &mut crowded) && crowded.findings.iter().any(|f| f.code == "left-out"));
        let mut words = Scan::default();
        let text: Vec<_> = (0..200_000).map(|n| format!("\"w{n}\":{n}")).collect();
        assert!(config(&format!("{{{}}}", text.join(",")), &mut words) && words.findings.is_empty());
    }

    /// The merges of a tokenizer are pairs of words; it comes without blanks, too.
    #[test]
    fn a_large_vocabulary_is_looked_through() {
        let words: Vec<_> = (0..128_000).map(|n| format!("\"word{n}\":{n}")).collect();
        let merges: Vec<_> = (0..280_000).map(|n| format!(r#"["{:x}","b{}"]"#, n % 4096, n % 100)).collect();
        let text =
            format!(r#"{{"model":{{"vocab":{{{}}},"merges":[{}]}}}}"#, words.join(","), merges.join(","));
        assert_eq!(codes(&text), [""; 0]);
    }

    #[test]
    fn many_are_counted() {
        let many: Vec<String> = (0..100).map(|_| r#"{"class_name": "Lambda"}"#.to_owned()).collect();
        assert_eq!(codes(&format!("[{}]", many.join(","))).len(), SHOWN + 1);
    }
}

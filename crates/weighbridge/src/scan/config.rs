//! JSON beside and within models: what it makes a framework import, call or open.

use super::{Scan, found, leads_out};
use crate::text::escape;
use serde_json::{Map, Value as Json};

/// Findings of one rule in one text; more are counted.
const SHOWN: usize = 10;
/// The longest text that is shown, in characters.
const LONGEST: usize = 120;

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

/// Judges the configuration of a Keras model. Text that is no JSON could not be understood.
pub fn keras(text: &str, scan: &mut Scan) {
    if !config(text, scan) {
        scan.push("keras-unread", "the configuration of the model is no JSON");
    }
}

/// What was met in one text.
#[derive(Default)]
struct Looked {
    lambda: Vec<String>,
    foreign: Vec<String>,
    remote: Vec<String>,
    out: Vec<String>,
    absolute: Vec<String>,
}

impl Looked {
    /// Looks at one document; false where it is none.
    fn text(&mut self, text: &str) -> bool {
        match serde_json::from_str::<Json>(text) {
            Ok(json @ (Json::Object(_) | Json::Array(_))) => {
                self.walk(&json, &mut Vec::new());
                true
            }
            _ => false,
        }
    }

    fn walk(&mut self, json: &Json, keys: &mut Vec<String>) {
        match json {
            Json::Object(map) => {
                self.object(map);
                for (key, value) in map {
                    keys.push(key.clone());
                    self.walk(value, keys);
                    keys.pop();
                }
            }
            Json::Array(list) => list.iter().for_each(|value| self.walk(value, keys)),
            Json::String(text) if is_absolute(text) => {
                self.absolute.push(format!("{}: {}", keys.join("."), short(text)));
            }
            _ => {}
        }
    }

    fn object(&mut self, map: &Map<String, Json>) {
        for key in ["auto_map", "custom_pipelines"] {
            if let Some(value @ (Json::Object(_) | Json::String(_))) = map.get(key) {
                self.remote.push(format!("{key}: {}", short(&value.to_string())));
            }
        }
        // PyTorch-BigGraph makes names of files from those of its entity types.
        if let (Some(Json::Object(types)), true) = (map.get("entities"), map.contains_key("relations")) {
            let out = types.keys().filter(|name| leads_out(name) || name.contains(['/', '\\']));
            self.out.extend(out.map(|name| format!("the entity type {}", short(name))));
        }
        if let Some(Json::Object(files)) = map.get("weight_map") {
            let out = files.values().filter_map(Json::as_str).filter(|name| leads_out(name));
            self.out.extend(out.map(|name| format!("the shard {}", short(name))));
        }
        self.keras(map);
    }

    /// A class or function that Keras is asked to make.
    fn keras(&mut self, map: &Map<String, Json>) {
        let text = |key: &str| map.get(key).and_then(Json::as_str);
        if text("function_type") == Some("lambda") || text("output_shape_type") == Some("lambda") {
            self.lambda.push("a function as Python byte code".to_owned());
        }
        let Some(class) = text("class_name") else { return };
        let module = text("module").unwrap_or("");
        match class {
            "Lambda" | "__lambda__" => {
                let name = map.get("config").and_then(|config| config.get("name")).and_then(Json::as_str);
                self.lambda.push(format!("{class} {}", short(name.unwrap_or_default())));
                return;
            }
            "TFOpLambda" | "SlicingOpLambda" => {
                let function =
                    map.get("config").and_then(|config| config.get("function")).and_then(Json::as_str);
                let function = function.unwrap_or_default();
                let computes = COMPUTES_ALONE.contains(&function)
                    || COMPUTES.iter().any(|prefix| function.starts_with(prefix));
                if !computes {
                    self.foreign.push(format!("calls tensorflow.{}", short(function)));
                }
            }
            _ => {}
        }
        // Without a module the class is looked up among those that Keras or the caller registered.
        if map.contains_key("module")
            && !matches!(map.get("module"), Some(Json::Null))
            && !of_keras(module, class)
        {
            self.foreign.push(format!("{}.{}", short(module), short(class)));
        }
    }

    fn tell(self, scan: &mut Scan) {
        let lists: [(&'static str, &str, Vec<String>); 5] = [
            ("keras-lambda", "the model holds Python code", self.lambda),
            ("keras-foreign-module", "the model names what is not of Keras", self.foreign),
            ("remote-code", "the configuration names code that comes along", self.remote),
            ("name-leads-out", "a name of a file leads out of the folder", self.out),
            ("absolute-path", "an absolute path", self.absolute),
        ];
        for (code, what, list) in lists {
            for text in list.iter().take(SHOWN) {
                scan.findings.push(found(code, format!("{what}: {text}")));
            }
            if list.len() > SHOWN {
                scan.findings.push(found(
                    code,
                    format!("{} in all; {} are not listed", list.len(), list.len() - SHOWN),
                ));
            }
        }
    }
}

/// True for a class or function that Keras itself has.
fn of_keras(module: &str, class: &str) -> bool {
    let inside = |outer: &&&str| {
        module.strip_prefix(**outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let known =
        KERAS_CLASSES.iter().any(|(modules, classes)| modules.contains(&module) && classes.contains(&class));
    known || (KERAS.iter().any(|outer| inside(&outer)) && class != "function")
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
    fn many_are_counted() {
        let many: Vec<String> = (0..100).map(|_| r#"{"class_name": "Lambda"}"#.to_owned()).collect();
        assert_eq!(codes(&format!("[{}]", many.join(","))).len(), SHOWN + 1);
    }
}

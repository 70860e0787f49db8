//! JSON beside and within models: imports, calls and files that it makes a framework use.

mod keras;
mod yaml;

use super::json::{Json, Map};
use super::template::{Judged, format_leads_on, judge};
use super::{AssumedType, Beginning, Scan, found, leads_out, may_be_pickle};
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::HeldMemory;
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape;
use weighbridge_io::source::{MemorySource, SourceRef, read_vec};
use weighbridge_pickle::{ImportVerdict, allowed};

/// Keys of Hydra and LightningCLI for a class or function to import and call.
const TARGETS: [&str; 2] = ["_target_", "class_path"];
/// Findings of one rule listed for one text; the rest is counted.
const MAX_LISTED: usize = 10;
/// Longest displayed text, in characters.
const MAX_TEXT_CHARS: usize = 120;

/// Scanned bytes of all templates of one text.
const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// Estimated memory of a parsed value with its key, in bytes.
const VALUE_BYTES: u64 = 64;

/// Scans a JSON configuration, also with one document per line. Returns false, and adds nothing, where `text` is
/// not a JSON object or list.
pub fn config(text: &str, limits: &Limits, scan: &mut Scan) -> bool {
    let mut held = HeldMemory::of(&limits.budget_for(text.len() as u64));
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() as u64;
    if held.take(values.saturating_mul(VALUE_BYTES)).is_err() {
        scan.push("left-out", "too-many-values: the JSON has too many values and was not scanned");
        return true;
    }
    // The parser refuses values nested deeper than 128.
    let mut document = Document::default();
    let whole = document.text(text);
    // One document per line, as in logs.
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let known = whole || (lines().next().is_some() && lines().all(|line| document.text(line)));
    if known {
        document.report(scan);
    }
    known
}

/// Scans a file that is a chat template.
pub fn template(text: &str, scan: &mut Scan) {
    let mut document = Document::default();
    document.template(|| "the file".to_owned(), text);
    document.report(scan);
}

/// Scans YAML without parsing it: its tags, and the callables that it names.
pub fn yaml(text: &str, scan: &mut Scan) {
    let mut document = Document::default();
    document.yaml(text);
    document.report(scan);
}

/// Scans the configuration of a Keras model. Text that is not JSON is reported as `keras-unread`.
pub fn keras(text: &str, limits: &Limits, scan: &mut Scan) {
    if !config(text, limits, scan) {
        scan.push("keras-unread", "the configuration of the model is not JSON");
    }
}

/// Findings of one rule: the listed texts and the total count.
#[derive(Default)]
struct Matches {
    listed: Vec<String>,
    count: usize,
}

impl Matches {
    /// Adds a finding. Its text is built only where it is listed: it may be long, and there may be many.
    fn push(&mut self, text: impl FnOnce() -> String) {
        if self.count < MAX_LISTED {
            self.listed.push(text());
        }
        self.count += 1;
    }
}

/// Findings of one text.
#[derive(Default)]
struct Document {
    lambda: Matches,
    foreign: Matches,
    loads: Matches,
    bytes: Vec<Vec<u8>>,
    remote: Matches,
    targets: Matches,
    out: Matches,
    absolute: Matches,
    unread: Matches,
    /// Bytes of the templates so far.
    templates: usize,
    /// Template variables that the files of the model set to text whose slices may be any name.
    tokens: HashSet<String>,
}

impl Document {
    /// Scans one document; returns false where it is not JSON.
    fn text(&mut self, text: &str) -> bool {
        match Json::parse(text) {
            Some(json @ (Json::Object(_) | Json::Array(_))) => {
                self.walk(&json, &mut Vec::new(), false);
                true
            }
            _ => false,
        }
    }

    /// Scans a value; `template` is true below the key of a chat template.
    fn walk<'a>(&mut self, json: &'a Json<'_>, keys: &mut Vec<&'a str>, template: bool) {
        let shown = |keys: &[&str], text: &str| format!("{}: {}", short(&keys.join(".")), short(text));
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
            Json::Text(text) if is_absolute(text) => self.absolute.push(|| shown(keys, text)),
            _ => {}
        }
    }

    /// Judges a template; returns true where it is reported.
    fn template(&mut self, name: impl Fn() -> String, text: &str) -> bool {
        self.templates = self.templates.saturating_add(text.len());
        let judged = if self.templates > MAX_TEMPLATE_BYTES {
            Judged::Unread("not scanned, as the templates together exceed 1 MiB".to_owned())
        } else {
            judge(text, &self.tokens)
        };
        match judged {
            Judged::Clean => return false,
            Judged::Reaches(reason) => {
                self.remote.push(|| format!("{}: {}: {}", short(&name()), short(&reason), short(text)));
            }
            Judged::Unread(why) => self.unread.push(|| format!("{}: {why}: {}", short(&name()), short(text))),
        }
        true
    }

    /// Collects the tokens with names of the model's own, which are template variables. Names that end with `token` are
    /// recognized in the template itself.
    fn tokens(&mut self, map: &Map<'_>) {
        let lists = ["extra_special_tokens", "model_specific_special_tokens"].map(|key| (key, map.get(key)));
        let named = lists.iter().filter_map(|(key, list)| match list {
            Some(Json::Object(tokens)) => Some(tokens.pairs().map(|(name, value)| (*key, name, value))),
            _ => None,
        });
        for (key, name, value) in named.flatten() {
            let text =
                value.as_str().or_else(|| value.get("content").and_then(Json::as_str)).unwrap_or_default();
            if name.ends_with("token") || name.ends_with("tokens") {
                continue;
            }
            if text.starts_with('_') || format_leads_on(text) {
                self.remote.push(|| format!("{key}: {} is {}", short(name), short(text)));
            }
            // `&` begins an HTML entity, which `striptags` turns into any letter.
            if text.contains(['_', '&']) {
                self.tokens.insert(name.to_string());
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
        for key in TARGETS {
            if let Some(target) = map.get(key) {
                self.target(key, target.as_str().unwrap_or_default(), &target.to_string());
            }
        }
        // PyTorch-BigGraph builds file names from the names of entity types.
        if let (Some(Json::Object(types)), true) = (map.get("entities"), map.get("relations").is_some()) {
            let names = types.pairs().map(|(name, _)| name);
            let out = names.filter(|name| leads_out(name) || name.contains(['/', '\\']));
            out.for_each(|name| self.out.push(|| format!("the entity type {}", short(name))));
        }
        if let Some(Json::Object(files)) = map.get("weight_map") {
            let out = files.pairs().filter_map(|(_, file)| file.as_str()).filter(|name| leads_out(name));
            out.for_each(|name| self.out.push(|| format!("the shard {}", short(name))));
        }
        for (key, value) in map.pairs() {
            // A name with a slash is a repository of compiled and Python code, which is downloaded and run.
            let attention =
                key.ends_with("attn_implementation") || key.ends_with("attn_implementation_internal");
            if attention && texts(value).any(|text| text.contains('/')) {
                self.remote.push(|| format!("{key}: {}", short(&value.to_string())));
            }
            // Read as the vocabulary of a tokenizer.
            if let (true, Some(name)) = (key.ends_with("_file"), value.as_str())
                && leads_out(name)
                && !is_absolute(name)
            {
                self.out.push(|| format!("{key} {}", short(name)));
            }
        }
        self.keras(map);
    }

    /// Judges the name under `key` of a function or class that is imported and called.
    fn target(&mut self, key: &str, name: &str, shown: &str) {
        let (module, function) = name.rsplit_once('.').unwrap_or(("builtins", name));
        let text = || format!("{key}: {}", short(shown));
        match allowed(module, function) {
            ImportVerdict::Dangerous(_) | ImportVerdict::Pattern(_) => self.remote.push(text),
            ImportVerdict::Allowed(_) | ImportVerdict::Defined(_) | ImportVerdict::Unknown => {
                self.targets.push(text)
            }
        }
    }

    fn report(self, scan: &mut Scan) {
        for bytes in self.bytes {
            let source: SourceRef = Arc::new(MemorySource::new("bytes in a configuration", bytes));
            if may_be_pickle(&source).is_ok_and(|may| may) || !source.is_empty() && is_known(&source) {
                scan.look_into("(bytes in the configuration)", source, AssumedType::Bytes);
            }
        }
        let lists: [(&'static str, &str, Matches); 8] = [
            ("keras-lambda", "the model contains Python code", self.lambda),
            ("keras-foreign-module", "loading the model would use code outside Keras", self.foreign),
            ("keras-loads", "loading the model would load code or a file", self.loads),
            (
                "names-callable",
                "loading the configuration would import and call an unknown name",
                self.targets,
            ),
            ("remote-code", "the configuration would run code", self.remote),
            ("name-leads-out", "a file name points outside the folder", self.out),
            ("absolute-path", "an absolute path", self.absolute),
            ("left-out", "template: a chat template could not be checked", self.unread),
        ];
        for (code, message, list) in lists {
            for text in &list.listed {
                scan.findings.push(found(code, format!("{message}: {text}")));
            }
            if list.count > MAX_LISTED {
                scan.findings.push(found(
                    code,
                    format!("{} in total; {} are not listed", list.count, list.count - MAX_LISTED),
                ));
            }
        }
    }
}

/// Strings of a value, and of the direct values of an object.
fn texts<'a>(value: &'a Json<'_>) -> impl Iterator<Item = &'a str> {
    let inner = if let Json::Object(map) = value { Some(map.pairs()) } else { None };
    value.as_str().into_iter().chain(inner.into_iter().flatten().filter_map(|(_, value)| value.as_str()))
}

/// True for bytes of a known file type.
fn is_known(source: &SourceRef) -> bool {
    read_vec(&**source, 0, source.len().min(512)).is_ok_and(|head| Beginning::of(&head).is_some())
}

/// True for an absolute path of a common file system: two parts or more below the root, or on a drive.
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
    let cut: String = text.chars().take(MAX_TEXT_CHARS).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", escape(&cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str) -> Vec<&'static str> {
        let mut scan = Scan::default();
        assert!(config(text, &Limits::default(), &mut scan), "{text}");
        scan.findings.iter().map(|finding| finding.code.as_str()).collect()
    }

    #[test]
    fn keras_imports_and_code_are_reported() {
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
        let method = |class: &str, name: &str| {
            let config = format!(r#"{{"cls_symbol": "{class}", "method_name": "{name}"}}"#);
            format!(r#"{{"class_name": "ClassMethod", "config": {config}}}"#)
        };
        assert_eq!(codes(&method("RaggedTensor", "from_row_splits")), [""; 0]);
        for (class, name) in
            [("io.write_file", "__call__"), ("RaggedTensor", "__call__"), ("io.gfile.from_x", "from_x")]
        {
            assert_eq!(codes(&method(class, name)), ["keras-foreign-module"], "{class}.{name}");
        }
        let layer = |node: &str| {
            format!(r#"{{"class_name": "TensorFlowOpLayer", "config": {{"node_def": {node}}}}}"#)
        };
        assert_eq!(codes(&layer(r#"{"op": "AddV2"}"#)), [""; 0]);
        assert_eq!(codes(&layer(r#""{\"op\": \"Mul\"}""#)), [""; 0]);
        for node in [r#"{"op": "WriteFile"}"#, r#""{\"op\": \"ReadFile\"}""#, r#""?""#, "{}"] {
            assert_eq!(codes(&layer(node)), ["keras-foreign-module"], "{node}");
        }
        let of_tensor = |name: &str| {
            format!(r#"{{"class_name": "InstanceMethod", "config": {{"method_name": "{name}"}}}}"#)
        };
        assert_eq!(codes(&of_tensor("to_tensor")), [""; 0]);
        assert_eq!(codes(&of_tensor("__init__")), ["keras-foreign-module"]);
    }

    #[test]
    fn outside_paths_and_remote_code_are_reported() {
        assert_eq!(codes(r#"{"auto_map": {"AutoModel": "modeling.Evil"}}"#), ["remote-code"]);
        for key in ["_attn_implementation", "attn_implementation", "_attn_implementation_internal"] {
            assert_eq!(
                codes(&format!(r#"{{"text_config": {{"{key}": "some/kernel"}}}}"#)),
                ["remote-code"],
                "{key}"
            );
            assert_eq!(
                codes(&format!(r#"{{"{key}": {{"": "sdpa", "vision": "some/kernel"}}}}"#)),
                ["remote-code"]
            );
            assert_eq!(codes(&format!(r#"{{"{key}": "flash_attention_2"}}"#)), [""; 0], "{key}");
        }
        assert_eq!(codes(r#"{"vocab_file": "../../secret.txt"}"#), ["name-leads-out"]);
        assert_eq!(codes(r#"{"vocab_file": "vocab.txt", "merges_file": null}"#), [""; 0]);
        assert_eq!(codes(r#"{"entity_path": "/home/me/data"}"#), ["absolute-path"]);
        assert_eq!(codes(r#"{"entities": {"../x": {}}, "relations": []}"#), ["name-leads-out"]);
        assert_eq!(
            codes(r#"{"weight_map": {"a": "../../etc/x", "b": "m.safetensors"}}"#),
            ["name-leads-out"]
        );
        assert_eq!(codes(r#"{"token": "/", "x": "//", "y": "a/b", "z": "/Conv"}"#), [""; 0]);
        let mut scan = Scan::default();
        assert!(!config("3", &Limits::default(), &mut scan) && !config("{", &Limits::default(), &mut scan));
        keras("{", &Limits::default(), &mut scan);
        assert_eq!(scan.findings[0].code.as_str(), "keras-unread");
    }

    #[test]
    fn keras_layers_that_load_are_reported() {
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
        config(
            &layer("TorchModuleWrapper", &format!(r#"{{"module": {bytes}}}"#)),
            &Limits::default(),
            &mut scan,
        );
        assert_eq!((scan.inner.len(), scan.inner[0].source.len()), (1, 4));
    }

    #[test]
    fn targets_and_templates_are_judged() {
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
        let codes_of = |token: &str, template: &str| {
            codes(&format!(
                r#"{{"chat_template": "{template}", "extra_special_tokens": {{"foo": "{token}"}}}}"#
            ))
        };
        for (token, template) in [
            ("x__class__", "{{ ''[foo[1:]] }}"),
            ("<x>__class__", "{{ ''[foo|striptags] }}"),
            (" __class__", "{{ ''[foo|trim] }}"),
            ("&#95;&#95;class&#95;&#95;", "{{ ''[foo|striptags] }}"),
            ("x__class__", "{% macro f() %}{% set foo = 1 %}{% endmacro %}{{ ''[foo[1:]] }}"),
        ] {
            assert_eq!(codes_of(token, template), ["left-out"], "{token} {template}");
        }
        assert_eq!(codes_of("{0.__class__}", "{{ foo.format(x) }}"), ["remote-code", "left-out"]);
        for token in ["<|begin_of_text|>", "<unk_1>", "[extra_id_0]", "\u{2581}", "<start_of_turn>"] {
            assert_eq!(
                codes_of(token, "{{ foo ~ messages[0].role }}{{ tools[i][foo2] }}"),
                [""; 0],
                "{token}"
            );
        }
    }

    #[test]
    fn json_with_too_many_values_is_reported_as_unscanned() {
        // Too many values for the length of the text; then a vocabulary of words with their numbers.
        let mut crowded = Scan::default();
        let zeros = format!("[{}0]", "0,".repeat(1_000_000));
        assert!(
            config(&zeros, &Limits::default(), &mut crowded)
                && crowded.findings.iter().any(|f| f.code == "left-out")
        );
        let mut words = Scan::default();
        let text: Vec<_> = (0..200_000).map(|n| format!("\"w{n}\":{n}")).collect();
        assert!(
            config(&format!("{{{}}}", text.join(",")), &Limits::default(), &mut words)
                && words.findings.is_empty()
        );
    }

    /// The merges of a tokenizer are pairs of words; some files have no blanks.
    #[test]
    fn large_vocabularies_are_scanned() {
        let words: Vec<_> = (0..128_000).map(|n| format!("\"word{n}\":{n}")).collect();
        let merges: Vec<_> = (0..280_000).map(|n| format!(r#"["{:x}","b{}"]"#, n % 4096, n % 100)).collect();
        let text =
            format!(r#"{{"model":{{"vocab":{{{}}},"merges":[{}]}}}}"#, words.join(","), merges.join(","));
        assert_eq!(codes(&text), [""; 0]);
    }

    #[test]
    fn findings_beyond_the_list_are_counted() {
        let many: Vec<String> = (0..100).map(|_| r#"{"class_name": "Lambda"}"#.to_owned()).collect();
        assert_eq!(codes(&format!("[{}]", many.join(","))).len(), MAX_LISTED + 1);
    }
}

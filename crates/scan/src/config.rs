//! JSON beside and within models: what it makes a framework import, call or open.

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

/// The keys by which Hydra and LightningCLI name what they import and call.
const TARGETS: [&str; 2] = ["_target_", "class_path"];
/// Findings of one rule in one text; more are counted.
const SHOWN: usize = 10;
/// The longest text that is shown, in characters.
const LONGEST: usize = 120;

/// Bytes of all templates of one text that are looked through.
const MOST_TEMPLATES: usize = 1 << 20;
/// Estimated memory of a parsed value with its key.
const VALUE: u64 = 64;

/// Judges a configuration in JSON, also one document a line. False where `text` is no JSON object or list;
/// nothing is added then.
pub fn config(text: &str, limits: &Limits, scan: &mut Scan) -> bool {
    let mut held = HeldMemory::of(&limits.budget_for(text.len() as u64));
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() as u64;
    if held.take(values.saturating_mul(VALUE)).is_err() {
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

/// Judges a text of YAML, without parsing it: its tags, and the targets that it names.
pub fn yaml(text: &str, scan: &mut Scan) {
    let mut looked = Looked::default();
    looked.yaml(text);
    looked.tell(scan);
}

/// Judges the configuration of a Keras model. Text that is no JSON could not be understood.
pub fn keras(text: &str, limits: &Limits, scan: &mut Scan) {
    if !config(text, limits, scan) {
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
    /// Names that templates know, of texts of which a piece may be the name of anything.
    tokens: HashSet<String>,
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
            Judged::Unread("there are more templates than are looked through".to_owned())
        } else {
            judge(text, &self.tokens)
        };
        match judged {
            Judged::Clean => return false,
            Judged::Reaches(what) => {
                self.remote.push(|| format!("{}: {}: {}", short(&name()), short(&what), short(text)));
            }
            Judged::Unread(why) => self.unread.push(|| format!("{}: {why}: {}", short(&name()), short(text))),
        }
        true
    }

    /// Tokens of a name of the model's own, which templates know by that name; those that end with `token` are told apart there.
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
            // `&` begins an entity, of which `striptags` makes any letter.
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
        for (key, value) in map.pairs() {
            // A name with a slash is one of a repository of compiled and Python code, which is fetched and run.
            let attention =
                key.ends_with("attn_implementation") || key.ends_with("attn_implementation_internal");
            if attention && texts(value).any(|text| text.contains('/')) {
                self.remote.push(|| format!("{key}: {}", short(&value.to_string())));
            }
            // Read as the words of a tokenizer.
            if let (true, Some(name)) = (key.ends_with("_file"), value.as_str())
                && leads_out(name)
                && !is_absolute(name)
            {
                self.out.push(|| format!("{key} {}", short(name)));
            }
        }
        self.keras(map);
    }

    /// Judges the name under `key` of something that is imported and called.
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

    fn tell(self, scan: &mut Scan) {
        for bytes in self.bytes {
            let source: SourceRef = Arc::new(MemorySource::new("bytes in a configuration", bytes));
            if may_be_pickle(&source).is_ok_and(|may| may) || !source.is_empty() && is_known(&source) {
                scan.look_into("(bytes in the configuration)", source, AssumedType::Bytes);
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
            ("left-out", "template: a chat template could not be judged", self.unread),
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

/// The texts of a value, and of the values of an object.
fn texts<'a>(value: &'a Json<'_>) -> impl Iterator<Item = &'a str> {
    let inner = if let Json::Object(map) = value { Some(map.pairs()) } else { None };
    value.as_str().into_iter().chain(inner.into_iter().flatten().filter_map(|(_, value)| value.as_str()))
}

/// True for bytes that begin as something that is known.
fn is_known(source: &SourceRef) -> bool {
    read_vec(&**source, 0, source.len().min(512)).is_ok_and(|head| Beginning::of(&head).is_some())
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
        assert!(config(text, &Limits::default(), &mut scan), "{text}");
        scan.findings.iter().map(|finding| finding.code.as_str()).collect()
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
    fn paths_and_code_beside_the_model() {
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
        config(
            &layer("TorchModuleWrapper", &format!(r#"{{"module": {bytes}}}"#)),
            &Limits::default(),
            &mut scan,
        );
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
        let told = |token: &str, template: &str| {
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
            assert_eq!(told(token, template), ["left-out"], "{token} {template}");
        }
        assert_eq!(told("{0.__class__}", "{{ foo.format(x) }}"), ["remote-code", "left-out"]);
        for token in ["<|begin_of_text|>", "<unk_1>", "[extra_id_0]", "\u{2581}", "<start_of_turn>"] {
            assert_eq!(told(token, "{{ foo ~ messages[0].role }}{{ tools[i][foo2] }}"), [""; 0], "{token}");
        }
    }

    #[test]
    fn crowded_json_is_told_and_not_looked_through() {
        // More values than there is text for them, and words with their numbers, as many.
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

//! `scan` as a user meets it.

use crate::support::{code, golden, json, weighbridge};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn exit_codes_say_what_came_of_it() {
    assert_eq!(code(&["scan", &golden("safetensors/good/mlp.safetensors")]), 0);
    assert_eq!(code(&["scan", &golden("scan/bad/import_os.pkl")]), 1);
    assert_eq!(code(&["scan", &golden("no/such/file")]), 2);
    assert_eq!(code(&["scan"]), 2);
    assert_eq!(code(&["scan", &golden("scan/bad/breaks.pkl")]), 3);
    // One file of a folder is enough, also a hidden one.
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("safetensors/good/mlp.safetensors"), folder.path().join("m.safetensors")).unwrap();
    let path = folder.path().to_str().unwrap();
    assert_eq!(code(&["scan", path]), 0);
    fs::copy(golden("scan/bad/breaks.pkl"), folder.path().join(".cache")).unwrap();
    assert_eq!(code(&["scan", path]), 3);
    fs::copy(golden("scan/bad/import_os.pkl"), folder.path().join(".state")).unwrap();
    assert_eq!(code(&["scan", path]), 1);
    for form in ["--json", "--sarif"] {
        assert_eq!(code(&["scan", path, form]), 1);
    }
}

#[test]
fn text_names_the_import_and_the_member() {
    let output = weighbridge(&["scan", &golden("scan/bad/nested.zip")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("import dangerous os.getcwd"), "{text}");
    assert!(text.contains("member   inner.zip!evil.pkl"), "{text}");
    assert!(text.contains("calls os.getcwd"), "{text}");
}

/// Text says it once; JSON lists each place.
#[test]
fn findings_that_are_the_same_are_one_in_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.pkl");
    fs::write(&path, b"\x80\x02cos\ngetcwd\n)R.".repeat(200)).unwrap();
    let path = path.to_str().unwrap();
    let text = String::from_utf8(weighbridge(&["scan", path]).stdout).unwrap();
    assert!(text.lines().count() < 30, "{text}");
    assert!(text.contains("dangerous-import, 200 times: imports os.getcwd: runs commands"), "{text}");
    assert!(text.contains("also     197 more places, listed by --json"), "{text}");
    let report = json(&["scan", path]);
    let findings = report["files"][0]["findings"].as_array().unwrap();
    assert_eq!(findings.iter().filter(|finding| finding["code"] == "dangerous-import").count(), 200);
}

/// In a folder as alone.
#[test]
fn an_empty_file_is_not_clean_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    fs::write(folder.path().join(".gitkeep"), "").unwrap();
    assert_eq!(code(&["scan", path]), 0);
    fs::write(folder.path().join("config.json"), r#"{"model_type": "bert"}"#).unwrap();
    let report = json(&["scan", path]);
    let files = report["files"].as_array().unwrap();
    let formats: Vec<_> = files.iter().map(|file| file["format"].as_str().unwrap()).collect();
    assert_eq!((report["verdict"].as_str(), formats), (Some("clean"), vec!["empty", "json"]));
    fs::write(folder.path().join("model.safetensors"), "").unwrap();
    assert_eq!(code(&["scan", path]), 3);
}

#[test]
fn json_gives_imports_calls_and_places() {
    let report = json(&["scan", &golden("scan/bad/global_through_memo.pkl"), "--json"]);
    let file = &report["files"][0];
    assert_eq!((&report["verdict"], &file["verdict"]), (&Json::from("found"), &Json::from("found")));
    let import = &file["imports"][0];
    assert_eq!((&import["module"], &import["name"]), (&Json::from("os"), &Json::from("getcwd")));
    assert_eq!(
        (&import["opcode"], &import["judgement"]),
        (&Json::from("STACK_GLOBAL"), &Json::from("dangerous"))
    );
    assert_eq!(
        (&file["calls"][0]["how"], &file["calls"][0]["count"]),
        (&Json::from("REDUCE"), &Json::from(1))
    );
    let finding = &file["findings"][0];
    assert_eq!((&finding["code"], &finding["offset"]), (&Json::from("dangerous-import"), &import["offset"]));
}

/// What TorchScript defines is nothing that a pickle brings from outside.
#[test]
fn classes_of_torchscript_are_told_apart() {
    let path = golden("torch/good/script.pt");
    let report = json(&["scan", &path]);
    let file = &report["files"][0];
    assert_eq!(report["verdict"], "found");
    let judged: BTreeSet<_> = file["imports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|import| (import["name"].as_str().unwrap(), import["judgement"].as_str().unwrap()))
        .collect();
    assert!(judged.contains(&("Linear", "defined")), "{judged:?}");
    assert!(judged.iter().all(|(_, judgement)| *judgement != "unknown"), "{judged:?}");
    let findings = file["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["code"] != "unknown-import"), "{findings:?}");
    let text = String::from_utf8(weighbridge(&["scan", &path]).stdout).unwrap();
    assert!(
        text.contains(
            "import defined __torch__.torch.nn.modules.linear.Linear  a TorchScript class that the archive"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "the TorchScript class `__torch__.torch.nn.modules.linear.Linear`, whose code is in the archive"
        ),
        "{text}"
    );
    // Without the code that defines it, it is not known.
    let text = String::from_utf8(weighbridge(&["scan", &golden("torch/good/parameter.pt")]).stdout).unwrap();
    assert!(text.contains("import unknown"), "{text}");
}

/// Templates in files of their own are judged as those in configurations are.
#[test]
fn templates_of_a_folder_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    fs::create_dir(folder.path().join("additional_chat_templates")).unwrap();
    let names = ["chat_template.jinja", "additional_chat_templates/rag.jinja"];
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    for name in names {
        write(name, "{# x.__class__ #}{% for m in messages %}{{ m['role'] ~ '__' ~ m.content }}{% endfor %}");
    }
    let report = json(&["scan", path]);
    assert_eq!(report["verdict"], "clean");
    assert!(report["files"].as_array().unwrap().iter().all(|file| file["format"] == "template"));
    for name in names {
        write(name, "{{ ''['__cl' ~ 'ass__'] }}");
        let file = folder.path().join(name);
        assert_eq!((code(&["scan", file.to_str().unwrap()]), code(&["scan", path])), (1, 1));
        write(name, "{{ messages[0].role }}");
    }
    for unread in ["{{ x", &"x".repeat(300_000), &"x".repeat(2_000_000)] {
        write(names[0], unread);
        assert_eq!(code(&["scan", path]), 3);
    }
}

/// The bytes of a name, not what is shown for them.
#[cfg(unix)]
#[test]
fn sarif_has_the_bytes_of_names() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let names = [&b"a\xff.pkl"[..], b"a\xfe.pkl", b"b\xff/c d.pkl"];
    fs::create_dir(folder.path().join(OsStr::from_bytes(b"b\xff"))).unwrap();
    for name in names {
        fs::copy(golden("scan/bad/import_os.pkl"), folder.path().join(OsStr::from_bytes(name))).unwrap();
    }
    let log = json(&["scan", folder.path().to_str().unwrap(), "--sarif"]);
    let run = &log["runs"][0];
    let uris: Vec<_> =
        run["artifacts"].as_array().unwrap().iter().map(|a| a["location"]["uri"].as_str().unwrap()).collect();
    assert_eq!(uris.len(), 3, "{uris:?}");
    for end in ["/a%FF.pkl", "/a%FE.pkl", "/b%FF/c%20d.pkl"] {
        assert!(uris.iter().any(|uri| uri.ends_with(end)), "{end}: {uris:?}");
    }
    // Alone, and where it is not there.
    let (there, not) = (folder.path().join(OsStr::from_bytes(names[0])), OsStr::from_bytes(b"no\xff"));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args([OsStr::new("scan"), there.as_os_str(), not, OsStr::new("--sarif")])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("/a%FF.pkl\"") && text.contains("\"no%FF\"") && !text.contains("%EF%BF%BD"),
        "{text}"
    );
}

fn index(number: &Json) -> usize {
    usize::try_from(number.as_u64().unwrap()).unwrap()
}

/// The parts of a log that SARIF 2.1.0 requires, and how they refer to each other.
#[test]
fn sarif_has_what_its_schema_asks() {
    let log = json(&["scan", &golden("scan/bad"), "--sarif"]);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "weighbridge");
    let rules = driver["rules"].as_array().unwrap();
    let ids: BTreeSet<_> = rules.iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), rules.len());
    assert!(rules.iter().all(|rule| rule["shortDescription"]["text"].is_string()));
    assert_eq!(run["invocations"][0]["executionSuccessful"], true);
    let artifacts = run["artifacts"].as_array().unwrap();
    for (number, artifact) in artifacts.iter().enumerate() {
        let uri = artifact["location"]["uri"].as_str().unwrap();
        assert!(uri.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b)), "{uri}");
        assert!(
            artifact["parentIndex"].is_null() || artifact["parentIndex"].as_u64().unwrap() < number as u64
        );
    }
    let results = run["results"].as_array().unwrap();
    let told: BTreeSet<_> = results.iter().map(|result| result["ruleId"].as_str().unwrap()).collect();
    assert!(told.is_subset(&ids) && told.len() > 50, "{told:?}");
    for result in results {
        assert_eq!(rules[index(&result["ruleIndex"])]["id"], result["ruleId"]);
        assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()));
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let place = &result["locations"][0]["physicalLocation"];
        let artifact = &artifacts[index(&place["artifactLocation"]["index"])];
        assert_eq!(artifact["location"]["uri"], place["artifactLocation"]["uri"]);
        assert!(place.get("region").is_none_or(|region| region["byteOffset"].is_u64()));
    }
}

#[test]
fn rules_are_listed_and_documented() {
    let list = json(&["scan", "--list-rules", "--json"]);
    let rules = list["rules"].as_array().unwrap();
    let text = String::from_utf8(weighbridge(&["scan", "--list-rules"]).stdout).unwrap();
    let page = fs::read_to_string(golden("../docs/src/reference/scan.md")).unwrap();
    for rule in rules {
        let word = |key: &str| rule[key].as_str().unwrap();
        assert!(text.contains(word("code")) && text.contains(word("text")) && text.contains(word("proof")));
        let (severity, category) = (word("severity"), word("category"));
        let line = format!("| `{}` | {severity} | {category} | {} |", word("code"), word("text"));
        assert!(page.contains(&line), "docs/src/reference/scan.md lacks: {line}");
    }
    assert_eq!(page.lines().filter(|line| line.starts_with("| `")).count(), rules.len());
    assert_eq!(code(&["scan", "--list-rules", "x"]), 2);
}

/// What a program gives away is a warning, and denied it is found.
#[test]
fn denied_categories_are_found() {
    let path = golden("scan/bad/source.pdmodel");
    assert_eq!(code(&["scan", &path]), 0);
    assert_eq!(code(&["scan", &path, "--deny", "code", "--deny", "files"]), 0);
    assert_eq!(code(&["scan", &path, "--deny", "privacy"]), 1);
    assert_eq!(code(&["scan", &path, "--deny", "nothing"]), 2);
    let report = json(&["scan", &path, "--deny", "privacy"]);
    let findings = report["files"][0]["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["code"] == "source-code").unwrap();
    assert_eq!((&found["category"], &found["severity"]), (&"privacy".into(), &"error".into()));
}

/// The words of a model's settings are text, unless they name something of Python to call.
#[test]
fn yaml_beside_a_model_is_text() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("safetensors/good/mlp.safetensors"), folder.path().join("m.safetensors")).unwrap();
    let path = folder.path().to_str().unwrap();
    for (name, text, expected) in [
        ("inference.yml", "PreProcess:\n- Resize:\n    scale: 1./255.\n", 0),
        ("inference.yaml", "a: !!python/object/apply:os.getcwd []\n", 1),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        assert_eq!(code(&["scan", path]), expected, "{name}");
        fs::remove_file(file).unwrap();
    }
}

/// The first line says what loading would run, and what to do.
#[test]
fn info_warns_of_pickles_that_run_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.pkl");
    for (bytes, verb, verdict) in [
        (&b"\x80\x04cposix\nsystem\n."[..], "import", 3),
        (b"\x80\x04cposix\nsystem\nX\x02\0\0\0id\x85R.", "call", 3),
    ] {
        fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        let text = String::from_utf8(weighbridge(&["info", path]).stdout).unwrap();
        let line = format!(
            "loading this file in Python would {verb} `posix.system`; run `weighbridge scan` before you use it"
        );
        assert!(text.lines().next().unwrap().ends_with(&line), "{text}");
        assert!(text.contains("Python pickle ("), "{text}");
        assert_eq!((code(&["verify", path]), code(&["scan", path])), (verdict, 1));
        assert_eq!(json(&["info", path])["format"], "pickle");
    }
}

/// No finding prints how a type of Rust is written.
#[test]
fn findings_are_words() {
    let reports = json(&["scan", &golden("hdf5"), &golden("scan"), &golden("torch")]);
    let reports = reports["paths"].as_array().unwrap();
    let findings = reports.iter().flat_map(|report| report["files"].as_array().unwrap());
    let findings: Vec<&Json> = findings.flat_map(|file| file["findings"].as_array().unwrap()).collect();
    assert!(findings.len() > 100);
    let mut of_references = 0;
    for finding in findings {
        let text = finding["text"].as_str().unwrap();
        for word in ["Other(", "Some(", "None", "Numbers(", "Opaque {", "Ok(", "Err("] {
            assert!(!text.contains(word), "{finding}");
        }
        of_references += usize::from(text.contains("references"));
    }
    assert!(of_references > 0);
}

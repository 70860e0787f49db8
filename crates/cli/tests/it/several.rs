//! `verify` and `scan` of several paths.

use crate::support::{Folder, code, coded_json, complaint, golden, json, refused, text, weighbridge};
use std::fs;

/// A sound file, one that is not, one that cannot be told, and a path to nothing.
fn four(folder: &Folder) -> [String; 4] {
    let sound = folder.model("sound.safetensors");
    let bytes = fs::read(&sound).unwrap();
    let cut = folder.file("cut.safetensors", &bytes[..bytes.len() - 4]);
    let strange = folder.file("strange", b"nothing that anybody knows");
    [sound, cut, strange, folder.path("nothing")]
}

#[test]
fn verify_looks_at_each_and_ends_with_the_worst() {
    let folder = Folder::new();
    let [sound, cut, strange, nothing] = &four(&folder);
    assert_eq!([sound, cut, strange, nothing].map(|path| code(&["verify", path])), [0, 1, 3, 2]);
    for (paths, expected) in [
        (&[sound, sound][..], 0),
        (&[strange, sound], 3),
        (&[sound, strange, nothing], 2),
        (&[nothing, sound, strange], 2),
        (&[nothing, strange, cut, sound], 1),
    ] {
        let mut words = vec!["verify"];
        words.extend(paths.iter().map(|path| path.as_str()));
        assert_eq!(code(&words), expected, "{paths:?}");
        let (code, document) = coded_json(&words);
        assert_eq!((code, document["paths"].as_array().unwrap().len()), (expected, paths.len()));
    }
    // Each is what it is alone, in the order of the words; what cannot be read does not stop the others.
    let document = json(&["verify", nothing, cut, sound]);
    assert_eq!(document["paths"][1], json(&["verify", cut]));
    assert_eq!(document["paths"][2], json(&["verify", sound]));
    assert_eq!(document["paths"][0]["path"], nothing.as_str());
    assert_eq!(document["paths"][0]["error"]["code"], "not-found");
    let keys: Vec<&String> = document.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["paths"]);
}

#[test]
fn text_names_each_path_and_counts() {
    let folder = Folder::new();
    let [sound, cut, strange, nothing] = &four(&folder);
    for (verb, words) in [("verify", ["sound", "unsound"]), ("scan", ["clean", "could not tell"])] {
        let output = weighbridge(&[verb, sound, cut, strange, nothing]);
        let shown = text(&output);
        let places: Vec<usize> = [sound, cut, strange, nothing]
            .iter()
            .map(|path| {
                let begins = |line: &str| line.starts_with(path.as_str());
                shown.lines().position(begins).unwrap_or_else(|| panic!("{path}: {shown}"))
            })
            .collect();
        assert!(places.is_sorted(), "{shown}");
        let last = shown.lines().last().unwrap();
        assert!(last.contains("4: 1 ") && words.iter().all(|word| last.contains(word)), "{last}");
        assert!(last.ends_with("1 unreadable"), "{last}");
        let complaint = complaint(&output);
        assert!(
            complaint.contains("error[not-found]:") && complaint.contains(nothing.as_str()),
            "{complaint}"
        );
    }
    // A folder is named, too, before its files.
    let shown = text(&weighbridge(&["scan", &golden("scan/bad/import_os.pkl"), folder_of(sound)]));
    assert!(shown.lines().any(|line| line == folder_of(sound)), "{shown}");
    // Of one path nothing is counted.
    assert!(!text(&weighbridge(&["verify", sound])).contains("paths"));
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').unwrap().0
}

#[test]
fn scan_gathers_all_in_one_run() {
    let folder = Folder::new();
    let [sound, _, strange, nothing] = &four(&folder);
    let bad = &golden("scan/bad/import_os.pkl");
    for (paths, expected) in [
        (&[sound, sound][..], 0),
        (&[sound, strange], 3),
        (&[strange, nothing], 2),
        (&[nothing, bad, sound], 1),
    ] {
        let mut words = vec!["scan"];
        words.extend(paths.iter().map(|path| path.as_str()));
        assert_eq!(code(&words), expected, "{paths:?}");
        words.push("--sarif");
        assert_eq!(code(&words), expected, "{paths:?}");
    }
    let document = json(&["scan", bad, nothing, sound]);
    assert_eq!(document["paths"][0], json(&["scan", bad]));
    assert_eq!(document["paths"][2], json(&["scan", sound]));

    let output = weighbridge(&["scan", bad, nothing, strange, "--sarif"]);
    let log: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = log["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &runs[0]["properties"]["verdict"]), (1, &"found".into()));
    let invocation = &runs[0]["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], false);
    assert_eq!(invocation["toolExecutionNotifications"][0]["descriptor"]["id"], "not-found");
    let targets: Vec<&str> = runs[0]["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["location"]["uri"].as_str().unwrap())
        .collect();
    assert!(targets.iter().any(|uri| uri.ends_with("import_os.pkl")), "{targets:?}");
    assert!(targets.iter().any(|uri| uri.ends_with("strange")), "{targets:?}");
    for result in runs[0]["results"].as_array().unwrap() {
        let place = &result["locations"][0]["physicalLocation"]["artifactLocation"];
        let index = usize::try_from(place["index"].as_u64().unwrap()).unwrap();
        assert_eq!(place["uri"].as_str().unwrap(), targets[index]);
    }
    assert!(complaint(&output).contains("not-found"));
    // What was not read is not called clean.
    let output = weighbridge(&["scan", sound, nothing, "--sarif"]);
    let log: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(log["runs"][0]["properties"]["verdict"], "could-not-tell");
}

#[test]
fn a_manifest_is_of_one_path() {
    let folder = Folder::new();
    let model = folder.model("a.safetensors");
    let manifest = format!("{model}.manifest.json");
    assert_eq!(code(&["seal", &model]), 0);
    assert_eq!(code(&["verify", &model, "--manifest", &manifest]), 0);
    assert_eq!(refused(&["verify", &model, &model, "--manifest", &manifest]), "several-paths");
    assert_eq!(refused(&["verify"]), "bad-arguments");
}

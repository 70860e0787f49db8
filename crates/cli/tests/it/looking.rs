//! `info`, `ls`, `show` and `stats` of several paths, sorted, in groups, of streams.

use crate::support::{
    Folder, coded_json, command, complaint, error, golden, hashes, json, names, of_tensors, ok, refused,
};
use serde_json::{Value as Json, json as value};
use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

/// Runs the command with these bytes on standard input.
fn fed(words: &[&str], bytes: &[u8]) -> Output {
    let mut child =
        command(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The command may end before it has read all.
    let _ = stdin.write_all(bytes);
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// The document of a run with standard input.
fn fed_json(words: &[&str], bytes: &[u8]) -> Json {
    serde_json::from_slice(&fed(&[words, &["--json"]].concat(), bytes).stdout).unwrap()
}

#[test]
fn several_paths_are_looked_at_one_by_one() {
    let folder = Folder::new();
    let (a, b, bad) =
        (folder.model("a.safetensors"), folder.model("b.npz"), folder.file("c.npz", "no model"));
    for verb in ["info", "ls", "stats"] {
        let both = json(&[verb, &a, &b]);
        let each = [json(&[verb, &a]), json(&[verb, &b])];
        assert_eq!(both, value!({ "paths": each }), "{verb}");
        let text = ok(&[verb, &a, &b]);
        assert!(text.contains(&a) && text.contains(&b) && text.contains("2: 2 opened"), "{verb}: {text}");
        // One that cannot be read does not stop the others.
        let (code, some) = coded_json(&[verb, &bad, &a]);
        assert_eq!((code, &some["paths"][1]), (2, &each[0]), "{verb}");
        assert!(some["paths"][0]["error"]["code"].is_string(), "{verb}: {some}");
    }
    // The last argument of `stats` is a name where it is no file, or the first file has it.
    let one = json(&["stats", &a, &b, "w1"]);
    assert_eq!(one["paths"][1]["tensors"].as_array().unwrap().len(), 1);
    fs::write(folder.path("w1"), "").unwrap();
    let inside =
        command(&["stats", "a.safetensors", "w1", "--json"]).current_dir(folder.path("")).output().unwrap();
    let inside: Json = serde_json::from_slice(&inside.stdout).unwrap();
    assert_eq!(inside["tensors"][0]["name"], "w1");
    assert_eq!(refused(&["stats", &a, "no-such-name"]), "no-such-tensor");
}

#[test]
fn lists_are_sorted_and_grouped() {
    let folder = Folder::new();
    let source = folder.model("a.safetensors");
    let nested = folder.path("nested.safetensors");
    ok(&[
        "convert",
        &source,
        &nested,
        "--no-state",
        "--plain",
        "--rename",
        "w1=enc.layer.0.w",
        "--rename",
        "b1=enc.layer.1.b",
        "--rename",
        "w2=dec.w",
        "--rename",
        "b2=head",
    ]);
    let sorted = |key: &str| -> Vec<String> { of_tensors(&json(&["ls", &nested, "--sort", key]), "name") };
    assert_eq!(sorted("name"), ["dec.w", "enc.layer.0.w", "enc.layer.1.b", "head"]);
    let list = json(&["ls", &nested, "--sort", "size"]);
    let bytes: Vec<u64> =
        list["tensors"].as_array().unwrap().iter().map(|t| t["bytes"].as_u64().unwrap()).collect();
    assert!(bytes.is_sorted_by(|a, b| a >= b) && bytes[0] > bytes[3], "{bytes:?}");
    let mixed = folder.path("mixed.safetensors");
    ok(&["edit", &nested, &mixed, "--cast", "*.w=f16"]);
    let list = json(&["ls", &mixed, "--sort", "dtype", "--hash"]);
    assert_eq!(of_tensors(&list, "dtype"), ["f16", "f16", "f32", "f32"]);
    let plain = json(&["ls", &mixed, "--hash"]);
    for tensor in list["tensors"].as_array().unwrap() {
        assert!(plain["tensors"].as_array().unwrap().contains(tensor), "{tensor}");
    }
    let all = json(&["ls", &nested]);
    let sum = |key: &str, prefix: &str| -> u64 {
        let own = |t: &&Json| t["name"].as_str().unwrap().starts_with(prefix);
        let of = |t: &Json| match key {
            "elements" => t["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).product::<u64>(),
            _ => t[key].as_u64().unwrap(),
        };
        all["tensors"].as_array().unwrap().iter().filter(own).map(of).sum()
    };
    let groups = json(&["ls", &nested, "--group", "2", "--sort", "name"])["groups"].clone();
    let group = |name: &str, tensors: u64| value!({ "name": name, "tensors": tensors, "elements": sum("elements", name), "bytes": sum("bytes", name) });
    assert_eq!(groups, value!([group("dec.w", 1), group("enc.layer", 2), group("head", 1)]));
    let text = ok(&["ls", &nested, "--group", "1"]);
    assert!(text.lines().any(|line| line.starts_with("enc ") && line.contains(" 2 ")), "{text}");
    assert_eq!(refused(&["ls", &nested, "--group", "0"]), "bad-arguments");
}

#[test]
fn the_only_tensor_needs_no_name() {
    let array = golden("npy/good/float64.npy");
    let named = json(&["show", &array, "value"]);
    assert_eq!(json(&["show", &array]), named);
    assert_eq!(json(&["show", &array, "[0]"])["values"], named["values"][0]);
    let folder = Folder::new();
    let error = error(&["show", &folder.model("a.npz")]);
    assert_eq!(error["code"], "name-missing");
}

#[test]
fn slashes_separate_the_parts_of_names_too() {
    let folder = Folder::new();
    let (source, nested) = (folder.model("a.safetensors"), folder.path("b.safetensors"));
    ok(&["convert", &source, &nested, "--rename", "w1=enc.layer.w"]);
    let wanted = json(&["show", &nested, "enc.layer.w[0]"]);
    for name in ["enc/layer/w[0]", "/enc/layer/w[0]", "enc.layer/w[0]"] {
        assert_eq!(json(&["show", &nested, name]), wanted, "{name}");
    }
    assert_eq!(json(&["stats", &nested, "enc/layer/w"])["tensors"][0]["name"], "enc.layer.w");
    let state = names(&nested).into_iter().find(|name| name.starts_with("enc.layer.w/"));
    if let Some(state) = state {
        assert_eq!(json(&["show", &nested, &state])["name"], state);
    }
    assert_eq!(refused(&["show", &nested, "enc/layer"]), "no-such-tensor");
}

#[test]
fn info_counts_files_ties_and_what_is_trained() {
    let folder = Folder::new();
    let tied = golden("torch/good/tied.pt");
    let info = json(&["info", &tied]);
    assert_eq!(info["file_bytes"], fs::metadata(&tied).unwrap().len());
    let pairs = info["tied"].as_array().unwrap();
    assert!(!pairs.is_empty(), "{info}");
    let text = ok(&["info", &tied]);
    assert!(text.contains("\nsize ") && text.contains("\ntied "), "{text}");
    // Written apart they are no longer tied, and count each.
    let apart = folder.path("apart.safetensors");
    ok(&["convert", &tied, &apart]);
    let other = json(&["info", &apart]);
    assert_eq!(other["tied"], value!([]));
    assert!(other["parameters"].as_u64() > info["parameters"].as_u64(), "{other}");
    let shards = folder.path("shards");
    ok(&["shard", &folder.model("a.safetensors"), &shards, "--max-shard-size", "32B"]);
    let info = json(&["info", &shards]);
    let bytes: u64 = fs::read_dir(&shards).unwrap().map(|item| item.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(
        (info["files"].as_u64(), info["file_bytes"].as_u64()),
        (Some(fs::read_dir(&shards).unwrap().count() as u64), Some(bytes))
    );
}

#[test]
fn a_minus_is_standard_input() {
    let folder = Folder::new();
    let path = folder.model("a.safetensors");
    let bytes = fs::read(&path).unwrap();
    for words in [&["info"][..], &["ls", "--hash"], &["stats"], &["verify"], &["scan"]] {
        let mut fed = fed_json(&[words, &["-"]].concat(), &bytes);
        assert_eq!(fed["path"], "-", "{words:?}");
        let mut own = json(&[words, &[&path]].concat());
        for document in [&mut fed, &mut own] {
            document["path"].take();
            document["files"].take();
        }
        assert_eq!(fed, own, "{words:?}");
    }
    assert_eq!(fed_json(&["show", "-", "w1"], &bytes)["values"], json(&["show", &path, "w1"])["values"]);
    assert_eq!(fed_json(&["stats", "-", "w1"], &bytes)["tensors"][0]["name"], "w1");
    assert_eq!(fed_json(&["diff", "-", &path], &bytes)["same"], true);
    let target = folder.path("b.npz");
    assert!(fed(&["convert", "-", &target], &bytes).status.success());
    assert_eq!(hashes(&target).len(), hashes(&path).len());
    let code = |words: &[&str]| fed_json(words, &bytes)["error"]["code"].clone();
    assert_eq!(code(&["diff", "-", "-"]), "standard-input");
    assert_eq!(code(&["seal", "-"]), "standard-input");
    assert_eq!(code(&["edit", "-", "--in-place"]), "standard-input");
    assert_eq!(fed_json(&["info", "-"], b"")["error"]["code"], "empty-file");
    assert_eq!(fed_json(&["info", "-"], b"")["error"]["file"], "-");
    assert!(complaint(&fed(&["info", "-"], b"")).contains("file:     -\n"));
}

#[test]
fn a_minus_is_standard_output_of_convert() {
    let folder = Folder::new();
    let path = folder.model("a.safetensors");
    for (format, file) in [("npz", "b.npz"), ("torch", "b.pt"), ("hdf5", "b.h5"), ("primitiv", "b.model")] {
        let target = folder.path(file);
        ok(&["convert", &path, &target]);
        let kind: &[&str] = if format == "primitiv" { &["--kind", "model"] } else { &[] };
        let words = [&["convert", "-", "-", "--to", format][..], kind].concat();
        let streamed = fed(&words, &fs::read(&path).unwrap());
        assert!(streamed.status.success(), "{format}: {}", complaint(&streamed));
        assert_eq!(streamed.stdout, fs::read(&target).unwrap(), "{format}");
        assert!(complaint(&streamed).contains("wrote - ("), "{format}: {}", complaint(&streamed));
    }
    for words in [&["edit", &path, "-", "--rename", "w1=x"][..], &["merge", &path, "--output", "-"]] {
        assert_eq!(error(words)["code"], "standard-output");
    }
    // Nothing is written where it cannot be one stream, or fails.
    for words in [
        &["--to", "npy"][..],
        &["--to", "safetensors", "--set", "shard=16B"],
        &[],
        &["--to", "npz", "--select", "no*"],
    ] {
        let refused = command(&[&["convert", &path, "-"], words].concat()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(refused.stdout.is_empty(), "{words:?}");
        assert!(!complaint(&refused).contains("wrote"), "{words:?}: {}", complaint(&refused));
    }
}

#[test]
fn urls_are_refused_by_name() {
    let folder = Folder::new();
    let path = folder.model("a.npz");
    for url in
        ["https://example.org/net.pt", "http://x/y.npz", "s3://bucket/net.safetensors", "hf://user/model"]
    {
        for words in [
            &["info", url][..],
            &["ls", url],
            &["stats", url],
            &["show", url, "w"],
            &["verify", url],
            &["scan", url],
            &["diff", &path, url],
            &["convert", url, "b.npz"],
            &["convert", &path, url, "--to", "npz"],
            &["stats", &path, url],
        ] {
            let error = error(words);
            assert_eq!(
                (error["code"].as_str(), error["message"].as_str()),
                (Some("remote-file"), Some("the path is a URL; remote files are not supported")),
                "{words:?}"
            );
        }
    }
    assert_ne!(refused(&["info", "c:/no/such.npz"]), "remote-file");
}

#[test]
fn archives_of_keras_are_read() {
    let folder = Folder::new();
    for name in ["model.keras", "deflated.keras"] {
        let model = golden(&format!("hdf5/keras/{name}"));
        let info = json(&["info", &model]);
        assert_eq!((info["format"].as_str(), info["kind"].as_str()), (Some("hdf5"), Some("keras")));
        assert_eq!(
            (info["roles"]["optimizer"]["tensors"].as_u64(), info["parameters"].as_u64()),
            (Some(14), Some(15)),
            "{name}"
        );
        assert_eq!(json(&["verify", &model])["verdict"], "sound");
        let target = folder.path(&format!("{name}.safetensors"));
        ok(&["convert", &model, &target, "--no-state"]);
        assert_eq!(names(&target).len(), 8, "{name}");
        let metadata = json(&["info", &target])["metadata"].clone();
        assert!(metadata["config.json"].as_str().unwrap().contains("BatchNormalization"));
    }
    // The members of an archive are scanned one by one.
    let (_, scan) = coded_json(&["scan", &golden("scan/bad/model.keras")]);
    assert_eq!(scan["files"][0]["findings"][0]["code"], "keras-lambda");
}

#[test]
fn archives_of_keras_are_written() {
    let folder = Folder::new();
    let (model, target) = (golden("hdf5/keras/model.keras"), folder.path("again.keras"));
    ok(&["convert", &model, &target]);
    assert_eq!(json(&["diff", &model, &target])["same"], true);
    let copy = folder.path("copy.keras");
    fs::copy(&model, &copy).unwrap();
    ok(&["edit", &copy, "--in-place=rewrite", "--drop", "optimizer*"]);
    assert_eq!((names(&copy).len(), json(&["info", &copy])["kind"].as_str()), (8, Some("keras")));
    let weights = folder.path("weights.npz");
    ok(&["convert", &model, &weights, "--plain", "--no-state"]);
    let bare = folder.path("bare.keras");
    assert_eq!(refused(&["convert", &weights, &bare]), "config-missing");
    assert_eq!(refused(&["convert", &weights, &bare, "--like", &model]), "missing-tensors");
    let hint = error(&["convert", &weights, &bare, "--like", &model])["hint"].clone();
    assert_eq!(hint, "--no-state writes the model without its optimizer state");
    ok(&["convert", &weights, &bare, "--like", &model, "--no-state"]);
    assert_eq!(names(&bare), names(&copy));
    assert_eq!(
        json(&["info", &bare])["metadata"]["config.json"],
        json(&["info", &model])["metadata"]["config.json"]
    );
}

/// A dataset of the optimizer that is not read is a tensor that is lost, unless state is left out.
#[test]
fn skipped_state_is_no_loss_without_state() {
    let folder = Folder::new();
    let model = golden("hdf5/keras/skipped.weights.h5");
    let target = folder.path("a.safetensors");
    let (code, report) = coded_json(&["convert", &model, &target]);
    assert_eq!((code, report["losses"][0]["code"].as_str()), (1, Some("tensor-skipped")), "{report}");
    let (code, report) = coded_json(&["convert", &model, &target, "--force", "--no-state"]);
    assert_eq!(code, 0, "{report}");
    let edited = folder.path("b.h5");
    assert_eq!(coded_json(&["edit", &model, &edited, "--no-state"]).0, 0);
}

#[test]
fn optimizer_state_of_keras_has_its_role() {
    let folder = Folder::new();
    // 3x2 + 2 of dense, 2 + 2 of batch normalization, 2x1 + 1 of head; its two running statistics have no names in numbered files.
    for (name, state, trained) in [("whole.h5", 14, 15), ("numbered.weights.h5", 14, 19)] {
        let model = golden(&format!("hdf5/keras/{name}"));
        let info = json(&["info", &model]);
        assert_eq!(
            (info["roles"]["optimizer"]["tensors"].as_u64(), info["parameters"].as_u64()),
            (Some(state), Some(trained)),
            "{name}"
        );
        let target = folder.path(&format!("{name}.safetensors"));
        ok(&["convert", &model, &target, "--no-state"]);
        assert_eq!(names(&target).len(), 8, "{name}");
        assert!(names(&target).iter().all(|name| !name.starts_with("optimizer")), "{name}");
        // Written as HDF5 again the groups say it, and no entry of Weighbridge's own is needed.
        let again = folder.path(name);
        ok(&["convert", &model, &again]);
        let bytes = fs::read(&again).unwrap();
        assert!(!bytes.windows(17).any(|part| part == b"weighbridge.index"), "{name}");
        assert_eq!(json(&["info", &again])["roles"], info["roles"], "{name}");
    }
}

#[test]
fn virtual_datasets_are_read_where_they_are_asked_for() {
    let folder = Folder::new();
    let copy = |name: &str| folder.file(name, fs::read(golden(&format!("hdf5/virtual/{name}"))).unwrap());
    let (maps, part, _) = (copy("maps_latest.h5"), copy("part_0.h5"), copy("100%.h5"));
    let plain = json(&["ls", &maps]);
    assert_eq!(plain["tensors"].as_array().unwrap().len(), 1);
    assert!(plain["notes"].to_string().contains("--follow-virtual reads it"), "{plain}");
    let lost = error(&["ls", &maps, "--follow-virtual"]);
    assert_eq!((&lost["code"], &lost["found"]), (&value!("hdf5-virtual-missing"), &value!("no part_1.h5")));
    assert_eq!(json(&["verify", &maps, "--follow-virtual"])["verdict"], "unsound");
    let other = copy("part_1.h5");
    assert_eq!(json(&["ls", &maps, "--follow-virtual"])["tensors"].as_array().unwrap().len(), 17);
    // What it is made of are its files: they are checked, and nothing takes their place.
    let sound = json(&["verify", &maps, "--follow-virtual"]);
    assert_eq!(sound["verdict"], "sound", "{sound}");
    let files: Vec<_> = sound["files"].as_array().unwrap().iter().map(|f| f["path"].to_string()).collect();
    assert!(["part_0.h5", "part_1.h5"].iter().all(|name| files.iter().any(|f| f.contains(name))), "{sound}");
    let before = fs::read(&part).unwrap();
    let refusal = refused(&["convert", &maps, &part, "--follow-virtual", "--force"]);
    assert_eq!((refusal.as_str(), fs::read(&part).unwrap()), ("output-is-input", before));
    // Damage of a packed chunk of a source is damage of the model.
    let mut bytes = fs::read(&other).unwrap();
    bytes[2100] ^= 0xff;
    fs::write(&other, bytes).unwrap();
    assert_ne!(json(&["verify", &maps, "--follow-virtual"])["verdict"], "sound");
}

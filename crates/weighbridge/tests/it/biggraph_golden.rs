//! Golden files of PyTorch-BigGraph are read as h5py and torch read them: file by file, and joined.

use crate::support::biggraph::{
    SETS, at_version, codes, compare, copy, expected, golden, knowing, member, metadata, open, open_with,
    plain, sha256,
};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use weighbridge::formats::biggraph::ReadOptions;
use weighbridge::ops::hash;
use weighbridge::tensor::Order;
use weighbridge::{Checkpoint, TensorEntry};

/// The optimizer's order of parameters, from the specification alone: left operators, right ones, each by
/// relation and in the order of the operator, then global embeddings in the configuration's order.
fn optimizer_order(datasets: &[&str], config: &Json) -> Vec<String> {
    let types: Vec<&String> = config["entities"].as_object().unwrap().keys().collect();
    let rank = |name: &str| {
        let parts: Vec<&str> = name.split('/').collect();
        match parts.as_slice() {
            ["model", "relations", index, "operator", side, parameter] => {
                let side = ["lhs", "rhs"].iter().position(|s| s == side).unwrap();
                let within = ["linear_transformation", "translation", "real", "imag"];
                let within = within.iter().position(|p| parameter.starts_with(p)).unwrap_or(0);
                (side, index.parse::<usize>().unwrap(), within)
            }
            ["model", "entities", entity, "global_embedding"] => {
                (2, types.iter().position(|t| t == entity).unwrap(), 0)
            }
            _ => panic!("{name}"),
        }
    };
    let mut names: Vec<&str> = datasets.iter().copied().filter(|name| name.starts_with("model/")).collect();
    names.sort_by_key(|name| rank(name));
    names.into_iter().map(|name| name.trim_start_matches("model/").replace('/', ".")).collect()
}

/// Checks the state of an optimizer; gives the number of its tensors.
fn check_state(found: &Checkpoint, optimizer: &Json, blob: &Json, parameters: &[String], at: &str) -> usize {
    let content = &blob["content"];
    assert_eq!(optimizer["form"], blob["serialisation"], "{at}");
    let groups = member(content, "param_groups").map(plain);
    assert_eq!(optimizer.get("param_groups"), groups.as_ref(), "{at}");
    let Some(state) = member(content, "state") else { return 0 };
    let mut count = 0;
    for pair in state["dict"].as_array().unwrap() {
        let parameter = &parameters[usize::try_from(pair[0].as_u64().unwrap()).unwrap()];
        for slot in pair[1]["dict"].as_array().unwrap() {
            let name = format!("{parameter}/{}", slot[0].as_str().unwrap());
            let at = format!("{at}: {name}");
            let entry = found.tensor(&name).unwrap_or_else(|e| panic!("{at}: {e}"));
            compare(entry, &slot[1]["tensor"], &at);
            count += 1;
        }
    }
    count
}

/// The attributes of the root are those that h5py reads.
fn check_attributes(found: &Checkpoint, wanted: &Json, at: &str) {
    let own = metadata(found, "attributes");
    let wanted = wanted["root_attrs"].as_object().unwrap();
    assert_eq!(own.as_object().unwrap().len(), wanted.len(), "{at}");
    for (name, json) in wanted {
        if json["value"].is_null() {
            let text = own[name].as_str().unwrap();
            assert_eq!(json!(text.len()), json["bytes"], "{at}: {name}");
            assert_eq!(sha256(text.as_bytes()), json["sha256"].as_str().unwrap(), "{at}: {name}");
        } else {
            assert_eq!(own[name], json["value"], "{at}: {name}");
        }
    }
}

#[test]
fn every_file_alone() {
    let mut counts = BTreeMap::new();
    for set in SETS {
        for (name, json) in expected(set) {
            if json["kind"] != "hdf5" {
                continue;
            }
            let path = golden(set).join(&name);
            let at = format!("{set}/{name}");
            let found = open(&path);
            assert_eq!(found.format, "biggraph", "{at}");
            let datasets = json["datasets"].as_object().unwrap();
            let numbers: Vec<&str> =
                datasets.keys().map(String::as_str).filter(|name| *name != "optimizer/state_dict").collect();
            let blob = datasets.get("optimizer/state_dict");
            let optimizer = metadata(&found, "optimizer");
            let mut tensors = numbers.len();
            match found.kind {
                "edges" => {
                    for column in &numbers {
                        compare(found.tensor(column).unwrap(), &datasets[*column], &at);
                    }
                    assert_eq!(metadata(&found, "format_version"), json!(1), "{at}");
                }
                "embeddings" => {
                    let file = path.file_name().unwrap().to_str().unwrap();
                    let (entity, rest) = file.trim_start_matches("embeddings_").rsplit_once('_').unwrap();
                    let table = format!("embeddings.{entity}");
                    compare(found.tensor(&table).unwrap(), &datasets["embeddings"], &at);
                    let part = rest.split('.').next().unwrap().parse::<u64>().unwrap();
                    assert_eq!(metadata(&found, "partition"), json!(part), "{at}");
                    if let Some(blob) = blob {
                        tensors +=
                            check_state(&found, &optimizer["embeddings"][entity][0], blob, &[table], &at);
                    }
                    check_attributes(&found, &json, &at);
                }
                "model" => {
                    for name in &numbers {
                        let entry =
                            found.tensor(&name.trim_start_matches("model/").replace('/', ".")).unwrap();
                        compare(entry, &datasets[*name], &at);
                        let key = entry.attributes["state_dict_key"].to_json();
                        assert_eq!(key, datasets[*name]["attrs"]["state_dict_key"]["value"], "{at}: {name}");
                    }
                    let config: Json =
                        serde_json::from_str(metadata(&found, "attributes")["config/json"].as_str().unwrap())
                            .unwrap();
                    let order = optimizer_order(&numbers, &config);
                    tensors += check_state(&found, &optimizer["model"], blob.unwrap(), &order, &at);
                    check_attributes(&found, &json, &at);
                }
                other => panic!("{other}"),
            }
            assert_eq!(found.tensors.len(), tensors, "{at}");
            assert_eq!(found.notes, [], "{at}");
            *counts.entry(found.kind).or_insert(0) += 1;
        }
    }
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), ["edges", "embeddings", "model"]);
    assert!(counts["edges"] >= 40 && counts["embeddings"] >= 90 && counts["model"] >= 15, "{counts:?}");
}

/// The versions that the golden checkpoints have, by their files; the current one is what h5py says.
fn current(folder: &str, files: &serde_json::Map<String, Json>) -> u64 {
    let text = files[&format!("{folder}/checkpoint_version.txt")]["content"].as_str().unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn checkpoints_are_their_files_joined() {
    let mut checked = 0;
    for set in SETS {
        let files = expected(set);
        let mut folders: Vec<&str> = files.keys().filter_map(|f| f.strip_suffix("/config.json")).collect();
        folders.dedup();
        for folder in folders {
            let at = format!("{set}/{folder}");
            let path = golden(set).join(folder);
            let found = open(&path);
            assert_eq!((found.format, found.kind), ("biggraph", "checkpoint"), "{at}");
            let version = current(folder, &files);
            assert_eq!(metadata(&found, "version"), json!(version), "{at}");
            let config_text = fs::read_to_string(path.join("config.json")).unwrap();
            let config: Json = serde_json::from_str(&config_text).unwrap();
            if files[&format!("{folder}/model.v{version}.h5")]["root_attrs"]["config/json"]["same_as_config.json"]
                == true
            {
                assert_eq!(metadata(&found, "attributes")["config/json"], config_text, "{at}");
            }
            let mut tensors = 0;
            for (entity, json) in config["entities"].as_object().unwrap() {
                let (mut rows, mut sums, mut counts) = (Vec::new(), Vec::new(), Vec::new());
                for part in 0..json["num_partitions"].as_u64().unwrap() {
                    let one = open(path.join(format!("embeddings_{entity}_{part}.v{version}.h5")));
                    let table = one.tensor(&format!("embeddings.{entity}")).unwrap();
                    counts.push(table.shape.dims()[0]);
                    rows.extend(table.read_tensor(Order::Row).unwrap());
                    let sum = one.tensor(&format!("embeddings.{entity}/sum")).unwrap();
                    sums.extend(sum.read_tensor(Order::Row).unwrap());
                    let optimizer = &metadata(&found, "optimizer")["embeddings"][entity];
                    let own = &metadata(&one, "optimizer")["embeddings"][entity][0];
                    assert_eq!(&optimizer[usize::try_from(part).unwrap()], own, "{at}");
                }
                let all = counts.iter().sum::<u64>();
                let table = found.tensor(&format!("embeddings.{entity}")).unwrap();
                assert_eq!(table.shape.dims()[0], all, "{at}");
                assert_eq!(table.extents.len(), counts.len(), "{at}");
                assert_eq!(table.read_tensor(Order::Row).unwrap(), rows, "{at}");
                let sum = found.tensor(&format!("embeddings.{entity}/sum")).unwrap();
                assert_eq!(sum.shape.dims(), [all], "{at}");
                assert_eq!(sum.read_tensor(Order::Row).unwrap(), sums, "{at}");
                assert_eq!(metadata(&found, "partitions")[entity], json!(counts), "{at}");
                let names: Vec<String> = (0..counts.len())
                    .flat_map(|part| {
                        let entities = golden(set).join(config["entity_path"].as_str().unwrap());
                        let file = entities.join(format!("entity_names_{entity}_{part}.json"));
                        serde_json::from_slice::<Vec<String>>(&fs::read(file).unwrap()).unwrap()
                    })
                    .collect();
                let labels = table.row_names.as_ref().unwrap_or_else(|| panic!("{at}: {:?}", found.notes));
                assert_eq!(labels.read().unwrap().iter().collect::<Vec<_>>(), names, "{at}");
                tensors += 2;
            }
            let model = open(path.join(format!("model.v{version}.h5")));
            let name = |tensor: &TensorEntry| tensor.text();
            let of_model: Vec<String> = found.tensors[tensors..].iter().map(name).collect();
            assert_eq!(of_model, model.tensors.iter().map(name).collect::<Vec<_>>(), "{at}");
            assert_eq!(
                metadata(&found, "optimizer")["model"],
                metadata(&model, "optimizer")["model"],
                "{at}"
            );
            let companions: Vec<&str> = found.companions.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(companions, ["config.json", "training_stats.json"], "{at}");
            assert!(codes(&found).contains(&"names-from"), "{at}");
            assert!(found.notes.iter().all(|note| !note.omission), "{at}: {:?}", found.notes);
            checked += 1;
        }
    }
    assert!(checked >= 14, "{checked}");
}

#[test]
fn another_version_is_opened_on_demand() {
    let path = golden("set1/ckpt_std_zip");
    let options = at_version;
    let old = open_with(&path, &options(4));
    assert_eq!(metadata(&old, "version"), json!(4));
    let file = open(path.join("embeddings_tag_0.v4.h5"));
    let table = |checkpoint: &Checkpoint| hash::sha256(checkpoint.tensor("embeddings.tag").unwrap()).unwrap();
    assert_eq!(table(&old), table(&file));
    assert_ne!(table(&old), table(&open(&path)));
    let error = weighbridge::formats::open_with(&path, &options(5)).unwrap_err();
    assert_eq!(error.code().as_str(), "no-such-version");
    assert_eq!(error.expected_text(), Some("one of the versions 6 (complete), 4 (complete)"));
}

#[cfg(unix)]
#[test]
fn a_snapshot_is_a_checkpoint_behind_links() {
    for set in SETS {
        let tree = tempfile::tempdir().unwrap();
        copy(&golden(set), tree.path());
        let links: Json =
            serde_json::from_slice(&fs::read(golden(set).join("snapshot_links.json")).unwrap()).unwrap();
        for (link, target) in links.as_object().unwrap() {
            let link = tree.path().join(link);
            let target = link.parent().unwrap().join(target.as_str().unwrap());
            std::os::unix::fs::symlink(fs::canonicalize(target).unwrap(), link).unwrap();
        }
        let folder = tree.path().join("ckpt_std_zip");
        let snapshot = open(folder.join("epoch_2"));
        let same = open_with(&folder, &at_version(4));
        assert_eq!(metadata(&snapshot, "version"), json!(4));
        let hashes = |checkpoint: &Checkpoint| -> Vec<(String, String)> {
            checkpoint.tensors.iter().map(|t| (t.text(), hash::sha256(t).unwrap())).collect()
        };
        assert_eq!(hashes(&snapshot), hashes(&same));
        assert!(snapshot.tensor("embeddings.user").unwrap().row_names.is_some(), "{:?}", snapshot.notes);
    }
}

#[test]
fn folders_of_entities() {
    for (set, graph) in [("set1", "std"), ("set1", "dyn"), ("set2", "weighted"), ("set2", "feat")] {
        let path = golden(set).join(graph).join("entities");
        let found = open(&path);
        assert_eq!((found.format, found.kind), ("biggraph", "entities"));
        let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (name, json) in expected(set) {
            let Some(rest) = name.strip_prefix(&format!("{graph}/entities/entity_count_")) else { continue };
            let (entity, _) = rest.rsplit_once('_').unwrap();
            let count = json["content"].as_str().unwrap().trim().parse().unwrap();
            counts.entry(entity.to_owned()).or_default().push(count);
        }
        assert_eq!(metadata(&found, "partitions"), json!(counts));
        assert_eq!(found.tensors.len(), counts.len());
        for (entity, counts) in counts {
            let entry = found.tensor(&format!("entities.{entity}")).unwrap();
            assert_eq!(entry.shape.dims(), [counts.iter().sum::<u64>(), 0]);
            let labels = entry.row_names.as_ref().unwrap().read().unwrap();
            assert_eq!(labels.len() as u64, counts.iter().sum::<u64>());
        }
        let relations = path.join("dynamic_rel_names.json");
        let names: Json =
            fs::read(relations).map_or(Json::Null, |text| serde_json::from_slice(&text).unwrap());
        assert_eq!(metadata(&found, "relation_names"), names);
        let count = if graph == "dyn" { json!(names.as_array().unwrap().len()) } else { Json::Null };
        assert_eq!(metadata(&found, "dynamic_relations"), count);
    }
}

#[test]
fn folders_of_edges() {
    for (set, graph, checkpoint) in [("set1", "std", "ckpt_std_zip"), ("set1", "feat", "ckpt_feat")] {
        let path = golden(set).join(graph).join("edges");
        let config = golden(set).join(checkpoint).join("config.json");
        let found = open_with(&path, &knowing(Some(config.clone()), None));
        assert_eq!((found.format, found.kind), ("biggraph", "edges"));
        let mut columns = 0;
        for (name, json) in expected(set) {
            let Some(rest) = name.strip_prefix(&format!("{graph}/edges/edges_")) else { continue };
            let bucket = rest.trim_end_matches(".h5");
            let parts: Vec<u64> = bucket.split('_').map(|part| part.parse().unwrap()).collect();
            for (column, json) in json["datasets"].as_object().unwrap() {
                let entry = found.tensor(&format!("{bucket}.{column}")).unwrap();
                compare(entry, json, &name);
                assert_eq!(entry.attributes["bucket"].to_json(), json!(parts));
                columns += 1;
            }
        }
        assert_eq!(found.tensors.len(), columns);
        let first: Vec<String> = found.tensors.iter().take(3).map(TensorEntry::text).collect();
        assert_eq!(first, ["0_0.lhs", "0_0.rhs", "0_0.rel"]);
        assert_eq!(metadata(&found, "format_version"), json!(1));
        assert_eq!(metadata(&found, "config"), fs::read_to_string(config).unwrap());
        // The way from the edges to the entities is in the configuration.
        let entities = open(golden(set).join(graph).join("entities"));
        let (counts, partitions) = (metadata(&found, "counts"), metadata(&entities, "partitions"));
        assert_eq!(counts, partitions);
    }
}

#[test]
fn a_folder_to_start_training_from() {
    let path = golden("set1/init_v0_f64");
    let config = golden("set1/ckpt_from_init_v0/config.json");
    let entities = golden("set1/std/entities");
    for options in [knowing(None, None), knowing(Some(config), Some(entities.clone()))] {
        let found = open_with(&path, &options);
        assert_eq!((found.format, found.kind), ("biggraph", "init"));
        assert_eq!(metadata(&found, "version"), json!(0));
        let items = &metadata(&found, "partitions")["item"];
        assert!(items[2].is_null() && items[3].is_u64(), "{items}");
        let table = found.tensor("embeddings.item").unwrap();
        assert_eq!((table.dtype().name(), table.extents.len()), ("f64", 3));
        assert!(codes(&found).contains(&"partition-missing"));
        // The rows that are there have their own names; those of the missing partition are not among them.
        assert_eq!(table.row_names.is_some(), options.own::<ReadOptions>().entities.is_some());
        if let Some(labels) = &table.row_names {
            let mut wanted = Vec::new();
            for part in [0, 1, 3] {
                let text = fs::read(entities.join(format!("entity_names_item_{part}.json"))).unwrap();
                wanted.extend(serde_json::from_slice::<Vec<String>>(&text).unwrap());
            }
            let list = labels.read().unwrap();
            assert_eq!(list.iter().collect::<Vec<_>>(), wanted);
            assert_eq!(wanted.len() as u64, table.shape.dims()[0]);
        }
    }
    assert!(
        weighbridge::formats::registry()
            .detect_folder(
                &(std::sync::Arc::new(weighbridge::source::LocalFolder::open(&path).unwrap()) as _)
            )
            .is_ok_and(|format| format.info().id == "biggraph")
    );
}

#[test]
fn a_configuration_alone() {
    let path = golden("set1/ckpt_feat/config.json");
    let found = open(&path);
    assert_eq!((found.format, found.kind, found.tensors.len()), ("biggraph", "config", 0));
    assert_eq!(metadata(&found, "config"), fs::read_to_string(&path).unwrap());
    let folder = tempfile::tempdir().unwrap();
    fs::copy(&path, folder.path().join("config.json")).unwrap();
    assert_eq!(open(folder.path()).kind, "config");
    // A configuration of another program is not accepted.
    fs::write(folder.path().join("config.json"), "{\"entities\": 1, \"relations\": 2}").unwrap();
    assert!(weighbridge::formats::open(folder.path()).is_err());
}

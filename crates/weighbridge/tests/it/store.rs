//! The checkpoint store on real folders: listing, refusals, cleanup.

use crate::support::{names, testdata};
use std::fs;
use std::path::Path;
use weighbridge::plan::{FileBuilder, PlannedFile};
use weighbridge::store::{
    Basis, Carry, CheckpointStore, CommitOptions, LinkForm, Marker, OrphanKind, Previous, RecoverOptions,
    RollbackOptions, StoreOptions, SweepOptions, VersionWrite,
};

/// What a run of BigGraph leaves that died in iteration 3, before the model was written.
const CRASHED: [&str; 6] = [
    "embeddings_all_0.v2.h5",
    "embeddings_all_0.v3.h5",
    "embeddings_all_1.v2.h5",
    "embeddings_all_1.v3.h5",
    "model.v2.h5",
    "training_stats.json",
];
const CONFIG: &str = r#"{"entities": {"all": {"num_partitions": 2}},
    "relations": [{"name": "r", "lhs": "all", "rhs": "all"}], "dimension": 4, "margin": 0.1,
    "entity_path": "entities", "edge_paths": [], "checkpoint_path": "model"}"#;

fn folder(names: &[&str], marker: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        fs::write(dir.path().join(name), format!("{name}\n")).unwrap();
    }
    fs::write(dir.path().join("checkpoint_version.txt"), marker).unwrap();
    fs::write(dir.path().join("config.json"), CONFIG).unwrap();
    dir
}

fn store(dir: &Path) -> CheckpointStore {
    CheckpointStore::open(dir, StoreOptions::default()).unwrap()
}

fn file(name: &str) -> PlannedFile {
    let mut file = FileBuilder::new(name);
    file.literal(format!("new {name}"));
    file.finish()
}

fn commit(store: &CheckpointStore, options: &CommitOptions) -> u64 {
    let staging = store.begin().unwrap();
    for name in [staging.model(), staging.embeddings("all", 0), staging.embeddings("all", 1)] {
        staging.put(file(&name)).unwrap();
    }
    staging.commit(options).unwrap().version
}

#[test]
fn a_crashed_biggraph_run_is_recovered() {
    let dir = folder(&CRASHED, "2\n");
    let store = store(dir.path());
    let state = store.state().unwrap();
    assert_eq!((state.current().unwrap(), state.basis), (2, Basis::Config));
    assert_eq!(state.versions[&3].missing, ["model.v3.h5"]);
    let orphans: Vec<_> = state.orphans.iter().map(|o| (o.name.as_str(), o.kind)).collect();
    let newer = |name| (name, OrphanKind::Newer);
    assert_eq!(orphans, [newer("embeddings_all_0.v3.h5"), newer("embeddings_all_1.v3.h5")]);
    let files: Vec<_> = store.version(2).unwrap().into_iter().map(|f| f.name).collect();
    assert_eq!(files, ["model.v2.h5", "embeddings_all_0.v2.h5", "embeddings_all_1.v2.h5"]);
    assert_eq!(store.version(3).unwrap_err().code().as_str(), "incomplete-version");
    assert_eq!(store.version(4).unwrap_err().code().as_str(), "no-version");
    assert_eq!(state.to_json()["versions"][1]["complete"], false);
    // The next commit replaces the remnants.
    assert_eq!(commit(&store, &CommitOptions::default()), 3);
    assert_eq!(fs::read(dir.path().join("embeddings_all_1.v3.h5")).unwrap(), b"new embeddings_all_1.v3.h5");
    assert!(!dir.path().join("model.v2.h5").exists());
    assert_eq!(fs::read(dir.path().join("checkpoint_version.txt")).unwrap(), b"3\n");
}

#[test]
fn a_missing_partition_is_an_error() {
    let dir = folder(&CRASHED, "2\n");
    fs::remove_file(dir.path().join("embeddings_all_1.v2.h5")).unwrap();
    let store = store(dir.path());
    assert_eq!(store.begin().unwrap_err().code().as_str(), "incomplete-version");
    assert_eq!(store.prune(1).unwrap_err().code().as_str(), "incomplete-version");
    fs::write(dir.path().join("embeddings_all_1.v2.h5"), "").unwrap();
    assert_eq!(store.version(2).unwrap_err().code().as_str(), "incomplete-version");
    // Nor is a new version without one committed, and dropping it leaves nothing.
    fs::write(dir.path().join("embeddings_all_1.v2.h5"), "again").unwrap();
    let before = names(dir.path());
    let staging = store.begin().unwrap();
    staging.put(file("model.v3.h5")).unwrap();
    staging.put(file("embeddings_all_0.v3.h5")).unwrap();
    assert_eq!(staging.put(file("model.v4.h5")).unwrap_err().code().as_str(), "not-of-this-version");
    assert_eq!(staging.put(file("../model.v3.h5")).unwrap_err().code().as_str(), "not-of-this-version");
    assert_eq!(staging.names().len(), 2);
    let error = staging.commit(&CommitOptions::default()).unwrap_err();
    assert_eq!(error.code().as_str(), "incomplete-version");
    assert!(error.found_text().unwrap().contains("embeddings_all_1.v3.h5"));
    assert_eq!(names(dir.path()), before);
    assert_eq!(store.current().unwrap(), 2);
}

#[test]
fn the_version_file_is_read_by_the_rules_of_biggraph() {
    for (text, version) in [
        ("12\n", 12),
        ("12", 12),
        (" 12 \n\n", 12),
        ("+12\n", 12),
        ("1_2\n", 12),
        ("0012\n", 12),
        ("12\r\n", 12),
        ("１２\n", 12),
    ] {
        let dir = folder(&[], text);
        assert_eq!(store(dir.path()).state().unwrap().marker, Marker::Version(version), "{text:?}");
    }
    for text in ["", "\n", "12 13\n", "1.0\n", "-3\n", "0x10\n", "99999999999999999999\n", "1__2"] {
        let dir = folder(&CRASHED, text);
        let store = store(dir.path());
        assert_eq!(store.current().unwrap_err().code().as_str(), "version-lost", "{text:?}");
        assert_eq!(store.begin().unwrap_err().code().as_str(), "version-lost", "{text:?}");
        let report = store.recover(&RecoverOptions::default()).unwrap();
        assert_eq!((report.version, report.changed), (2, true));
        assert_eq!(report.passed_over, [(3, vec!["model.v3.h5".to_owned()])]);
        assert_eq!(fs::read(dir.path().join("checkpoint_version.txt")).unwrap(), b"2\n");
        assert!(!store.recover(&RecoverOptions::default()).unwrap().changed);
    }
    let dir = folder(&CRASHED[..2], "");
    let error = store(dir.path()).recover(&RecoverOptions::default()).unwrap_err();
    assert_eq!(error.code().as_str(), "no-complete-version");
    let over = RecoverOptions { start_over: true, ..RecoverOptions::default() };
    assert_eq!(store(dir.path()).recover(&over).unwrap().version, 0);
}

#[test]
fn a_second_writer_is_refused_and_readers_are_not() {
    let dir = folder(&CRASHED, "2\n");
    let store = store(dir.path());
    let staging = store.begin().unwrap();
    let other = CheckpointStore::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(other.begin().unwrap_err().code().as_str(), "locked");
    assert_eq!(other.sweep(SweepOptions::default()).unwrap_err().code().as_str(), "locked");
    assert_eq!(other.rollback(2, RollbackOptions::default()).unwrap_err().code().as_str(), "locked");
    assert_eq!(other.version(2).unwrap().len(), 3);
    // The version file has the same lock; its holder writes through it.
    assert_eq!(other.append_stats(["{}"]).unwrap_err().code().as_str(), "locked");
    assert_eq!(other.write_config(CONFIG.as_bytes()).unwrap_err().code().as_str(), "locked");
    assert_eq!(staging.append_stats(["{}"]).unwrap().lines, 1);
    staging.write_config(CONFIG.as_bytes()).unwrap();
    fs::write(dir.path().join("checkpoint_version.txt"), "1\n").unwrap();
    assert_eq!(staging.commit(&CommitOptions::default()).unwrap_err().code().as_str(), "version-moved");
    fs::write(dir.path().join("checkpoint_version.txt"), "2\n").unwrap();
    other.begin().unwrap();
}

#[test]
fn a_lock_is_held_from_one_version_to_the_next() {
    let dir = folder(&CRASHED, "2\n");
    let other = store(dir.path());
    let held = other.hold().unwrap();
    let refused = || {
        assert_eq!(other.begin().unwrap_err().code().as_str(), "locked");
        assert_eq!(other.hold().unwrap_err().code().as_str(), "locked");
    };
    refused();
    // Whoever holds it writes, one thing at a time.
    let staging = held.begin().unwrap();
    assert_eq!(held.begin().unwrap_err().code().as_str(), "locked");
    assert_eq!(held.clone().prune(1).unwrap_err().code().as_str(), "locked");
    drop(staging);
    refused();
    held.prune(1).unwrap();
    refused();
    // After release it is free once the current write ends, and locked for each further step.
    let staging = held.begin().unwrap();
    held.release();
    refused();
    assert_eq!(held.begin().unwrap_err().code().as_str(), "locked");
    drop(staging);
    other.begin().unwrap();
    held.begin().unwrap();
    drop(held);
    // Dropped, it is free, too.
    let held = other.hold().unwrap();
    refused();
    drop(held);
    other.begin().unwrap();
}

#[cfg(unix)]
#[test]
fn snapshots_keep_their_versions() {
    for (form, links) in [(LinkForm::Relative, true), (LinkForm::Absolute, true), (LinkForm::Copies, false)] {
        let dir = folder(&CRASHED, "2\n");
        let store = store(dir.path());
        assert!(store.preserve(1, form).unwrap().made);
        assert!(!store.preserve(1, form).unwrap().made);
        commit(&store, &CommitOptions::default());
        assert_eq!(store.preserve(1, form).unwrap_err().code().as_str(), "snapshot-exists");
        let state = store.state().unwrap();
        assert!(state.snapshots[&1].is_complete());
        assert_eq!(state.versions.contains_key(&2), links);
        assert_eq!(store.prune(1).unwrap().kept, if links { vec![2, 3] } else { vec![3] });
        assert_eq!(fs::read(dir.path().join("epoch_1/model.v2.h5")).unwrap(), b"model.v2.h5\n");
        let inner = CheckpointStore::open(dir.path().join("epoch_1"), StoreOptions::default()).unwrap();
        assert_eq!(inner.version(inner.current().unwrap()).unwrap().len(), 3);
        // Moved away, only absolute links break.
        let elsewhere = tempfile::tempdir().unwrap();
        let moved = elsewhere.path().join("moved");
        fs::rename(dir.path(), &moved).unwrap();
        let state = CheckpointStore::open(&moved, StoreOptions::default()).unwrap().state().unwrap();
        assert_eq!(state.snapshots[&1].is_complete(), form != LinkForm::Absolute);
        assert_eq!(state.snapshots[&1].broken.len(), if form == LinkForm::Absolute { 3 } else { 0 });
    }
}

#[test]
fn rollback_prune_and_sweep_report_their_changes() {
    let dir = folder(&CRASHED, "2\n");
    let store = store(dir.path());
    let keep = CommitOptions { previous: Previous::Keep, ..CommitOptions::default() };
    for version in 3..=6 {
        assert_eq!(commit(&store, &keep), version);
    }
    assert_eq!(store.prune(0).unwrap_err().code().as_str(), "keep-none");
    let report = store.prune(3).unwrap();
    assert_eq!((report.kept, report.deleted.len()), (vec![4, 5, 6], 6));
    assert_eq!(store.rollback(3, RollbackOptions::default()).unwrap_err().code().as_str(), "no-version");
    let report = store.rollback(4, RollbackOptions::default()).unwrap();
    assert_eq!((report.from, report.to, report.left, report.deleted.len()), (Some(6), 4, vec![5, 6], 0));
    assert_eq!(store.current().unwrap(), 4);
    // Forwards again, as after a crash just before the version file was written.
    assert_eq!(store.rollback(5, RollbackOptions { delete_newer: true }).unwrap().deleted.len(), 3);
    fs::write(dir.path().join("x.tmp"), "x").unwrap();
    fs::write(dir.path().join(".model.v9.h5.weighbridge-0123456789abcdef.part"), "x").unwrap();
    let report = store.sweep(SweepOptions::default()).unwrap();
    assert_eq!((report.removed.len(), report.left.len()), (1, 4));
    // Version 4 is complete and perhaps kept on purpose; version 3 is a remnant.
    fs::write(dir.path().join("embeddings_all_1.v3.h5"), "x").unwrap();
    let all = SweepOptions { newer: true, remnants: true, temporary: true, ..SweepOptions::default() };
    let report = store.sweep(all).unwrap();
    let removed: Vec<_> = report.removed.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(removed, ["x.tmp", "embeddings_all_1.v3.h5"]);
    assert_eq!((report.left.len(), store.version(4).unwrap().len()), (3, 3));
    let report = store.sweep(SweepOptions { older: true, ..all }).unwrap();
    assert_eq!((report.removed.len(), report.left.len()), (3, 0));
    assert_eq!(store.version(5).unwrap().len(), 3);
}

#[cfg(unix)]
#[test]
fn a_version_of_a_snapshot_is_not_rewritten() {
    let dir = folder(&CRASHED, "2\n");
    let store = store(dir.path());
    let keep = CommitOptions { previous: Previous::Keep, ..CommitOptions::default() };
    commit(&store, &keep);
    commit(&store, &CommitOptions { preserve: Some(2), ..keep.clone() });
    commit(&store, &keep);
    let kept = dir.path().join("epoch_2/model.v4.h5");
    fs::write(&kept, "of the first run").unwrap();
    // Version 3 is free of links, so version 4 is the first that is refused.
    store.rollback(2, RollbackOptions { delete_newer: true }).unwrap();
    assert_eq!(commit(&store, &keep), 3);
    let error = store.begin().unwrap_err();
    assert_eq!((error.code().as_str(), error.found_text()), ("snapshot-holds", Some("links in epoch_2")));
    assert_eq!(fs::read(&kept).unwrap(), b"of the first run");
    // Also for a snapshot made after the start, or with dead links.
    let aside = dir.path().join("aside");
    fs::rename(dir.path().join("epoch_2"), &aside).unwrap();
    let staging = store.begin().unwrap();
    for name in [staging.model(), staging.embeddings("all", 0), staging.embeddings("all", 1)] {
        staging.put(file(&name)).unwrap();
    }
    fs::rename(&aside, dir.path().join("epoch_2")).unwrap();
    assert_eq!(staging.commit(&keep).unwrap_err().code().as_str(), "snapshot-holds");
    assert_eq!(fs::read(&kept).unwrap(), b"of the first run");
    fs::remove_file(dir.path().join("model.v4.h5")).unwrap();
    assert_eq!(store.begin().unwrap_err().code().as_str(), "snapshot-holds");
    fs::remove_dir_all(dir.path().join("epoch_2")).unwrap();
    assert_eq!(commit(&store, &keep), 4);
}

#[cfg(unix)]
#[test]
fn a_snapshot_behind_a_link_keeps_its_version() {
    let dir = folder(&CRASHED, "2\n");
    let elsewhere = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    store.preserve(1, LinkForm::Absolute).unwrap();
    let moved = elsewhere.path().join("epoch_1");
    fs::rename(dir.path().join("epoch_1"), &moved).unwrap();
    std::os::unix::fs::symlink(&moved, dir.path().join("epoch_1")).unwrap();
    assert_eq!(commit(&store, &CommitOptions::default()), 3);
    assert_eq!(store.prune(1).unwrap().kept, [2, 3]);
    assert!(store.state().unwrap().snapshots[&1].is_complete());
    // Out of sight, it may hold anything.
    fs::rename(&moved, elsewhere.path().join("other")).unwrap();
    let snapshot = store.state().unwrap().snapshots[&1].clone();
    assert!(snapshot.out_of_sight && !snapshot.is_complete());
    assert_eq!(store.prune(1).unwrap().kept, [2, 3]);
    assert_eq!(commit(&store, &CommitOptions::default()), 4);
    fs::remove_file(dir.path().join("epoch_1")).unwrap();
    assert_eq!(store.prune(1).unwrap().kept, [4]);
}

#[test]
fn the_other_ways_to_write_give_the_same_folder() {
    let dir = folder(&CRASHED, "2\n");
    let options = StoreOptions { version_write: VersionWrite::InPlace, ..StoreOptions::default() };
    let store = CheckpointStore::open(dir.path(), options).unwrap();
    for (version, carry) in [(3, Carry::Copy), (4, Carry::Link)] {
        let staging = store.begin().unwrap();
        staging.put(file(&staging.model())).unwrap();
        let report = staging.commit(&CommitOptions { carry, ..CommitOptions::default() }).unwrap();
        assert_eq!((report.version, report.carried, report.deleted.len()), (version, 2, 3));
        let carried = fs::read(dir.path().join(format!("embeddings_all_0.v{version}.h5"))).unwrap();
        assert_eq!(carried, b"embeddings_all_0.v2.h5\n");
    }
}

/// Copies a folder of files and their versions, without its snapshots; the configuration gets a type
/// that only version 6 has.
fn with_a_new_type(target: &Path) {
    let from = testdata("biggraph/set1/ckpt_std_zip");
    for item in fs::read_dir(&from).unwrap().map(Result::unwrap) {
        if item.file_type().unwrap().is_file() {
            fs::copy(item.path(), target.join(item.file_name())).unwrap();
        }
    }
    let text = fs::read(target.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    config["entities"]["brand"] = serde_json::json!({"num_partitions": 1});
    let mut relation = config["relations"][0].clone();
    (relation["name"], relation["rhs"]) = ("of".into(), "brand".into());
    config["relations"].as_array_mut().unwrap().push(relation);
    fs::write(target.join("config.json"), config.to_string()).unwrap();
    fs::copy(target.join("embeddings_country_0.v6.h5"), target.join("embeddings_brand_0.v6.h5")).unwrap();
}

#[test]
fn missing_files_of_older_versions_follow_their_own_configuration() {
    let all = SweepOptions { newer: true, remnants: true, temporary: true, ..SweepOptions::default() };
    // The change to version 4, and the swept files of its 11.
    type Change = fn(&Path);
    let whole: Change = |_| {};
    let no_partition: Change = |at| fs::remove_file(at.join("embeddings_item_2.v4.h5")).unwrap();
    let no_model: Change = |at| fs::remove_file(at.join("model.v4.h5")).unwrap();
    let empty_model: Change = |at| fs::write(at.join("model.v4.h5"), "").unwrap();
    let bad_model: Change = |at| {
        fs::write(at.join("model.v4.h5"), "no HDF5").unwrap();
        fs::remove_file(at.join("embeddings_item_2.v4.h5")).unwrap();
    };
    let cannot_tell: Change = |at| {
        fs::write(at.join("model.v4.h5"), "no HDF5").unwrap();
        fs::write(at.join("embeddings_country_0.v4.h5"), "no HDF5").unwrap();
        fs::remove_file(at.join("embeddings_item_2.v4.h5")).unwrap();
    };
    for (change, swept) in
        [(whole, 0), (no_partition, 10), (no_model, 10), (empty_model, 11), (bad_model, 10), (cannot_tell, 0)]
    {
        let dir = tempfile::tempdir().unwrap();
        with_a_new_type(dir.path());
        change(dir.path());
        let store = store(dir.path());
        assert!(!store.state().unwrap().versions[&4].is_complete());
        if swept == 0 {
            // It is one of two to be kept, too.
            let report = store.prune(2).unwrap();
            assert_eq!((report.kept, report.deleted.len()), (vec![4, 6], 0));
        }
        let report = store.sweep(all).unwrap();
        assert_eq!(report.removed.len(), swept, "{report:?}");
        assert!(report.removed.iter().all(|file| file.name.contains(".v4.")), "{report:?}");
        assert_eq!(store.version(6).unwrap().len(), 12);
    }
}

#[test]
fn truncated_statistics_are_repaired() {
    let dir = folder(&["training_stats.json"], "0\n");
    let store = store(dir.path());
    let path = dir.path().join("training_stats.json");
    fs::write(&path, "{\"index\": 0}\n{\"index\": 1, \"sta").unwrap();
    let report = store.append_stats(["{\"index\": 1}", "{\"index\": NaN}"]).unwrap();
    assert_eq!((report.lines, report.cut), (2, 17));
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"index\": 0}\n{\"index\": 1}\n{\"index\": NaN}\n");
    assert_eq!(store.append_stats(["a\nb"]).unwrap_err().code().as_str(), "bad-line");
    assert_eq!(store.write_config(b"{}").unwrap_err().code().as_str(), "config");
    store.write_config(CONFIG.replace('2', "3").as_bytes()).unwrap();
    assert_eq!(store.state().unwrap().expected.0["all"], 3);
    assert_eq!(
        store.write_config(CONFIG.replace('2', "99999999").as_bytes()).unwrap_err().code().as_str(),
        "too-many-files"
    );
}

#[test]
fn configurations_are_read_as_biggraph_reads_them() {
    let dir = folder(&CRASHED, "2\n");
    let store = store(dir.path());
    let odd = CONFIG.replace("0.1", "NaN").replace("num_partitions", "numPartitions");
    store.write_config(odd.as_bytes()).unwrap();
    let state = store.state().unwrap();
    assert_eq!((state.basis, state.expected.0["all"], state.config_trouble), (Basis::Config, 2, None));
    let dangling = CONFIG.replace(r#""rhs": "all""#, r#""rhs": "nobody""#);
    assert_eq!(store.write_config(dangling.as_bytes()).unwrap_err().code().as_str(), "bad-config");
    assert_eq!(store.write_config(b"\xff").unwrap_err().code().as_str(), "not-json");
    // A damaged one is reported, and the versions take precedence.
    fs::write(dir.path().join("config.json"), "{").unwrap();
    let state = store.state().unwrap();
    assert!(state.basis == Basis::Versions && state.config_trouble.is_some());
}

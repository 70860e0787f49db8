//! Scans of Paddle files: code that would run and source code that would leak are found; unscanned parts are not called clean.

use crate::support::paddle::{copy_folder, files_below, good, is_data, open, source};
use crate::support::testdata;
use std::fs;
use std::path::{Path, PathBuf};
use weighbridge::OpenOptions;
use weighbridge::finding::{Severity, Verdict};
use weighbridge::formats::paddle::{Program, Strip};
use weighbridge::ops::scan::{ScanReport, scan, scan_word};

fn look(path: impl AsRef<Path>) -> ScanReport {
    scan(path, &OpenOptions::default()).unwrap()
}

fn word(report: &ScanReport) -> &'static str {
    scan_word(report.verdict)
}

/// Pickles that do what no state does, or that end where none may end.
fn bad_pickles() -> Vec<PathBuf> {
    let folder = testdata("pickle/bad");
    files_below(&folder).into_iter().filter(|f| is_data(f)).map(|f| folder.join(f)).collect()
}

#[test]
fn no_bad_pickle_is_clean() {
    let found: Vec<(String, &str)> = bad_pickles()
        .iter()
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), word(&look(path))))
        .collect();
    assert_eq!(found.len(), 42);
    assert!(found.iter().all(|(_, word)| *word != "clean"), "{found:?}");
    // Those that call for code are found, however they hide it.
    for name in [
        "computed_call",
        "damage_then_import",
        "dotted_name",
        "eval_code",
        "import_only",
        "import_thrown_away",
        "inst_import",
        "obj_import",
        "os_system_p0",
        "os_system_p4",
        "system_through_memo",
    ] {
        assert!(found.contains(&(name.to_owned(), "found")), "{name}: {found:?}");
    }
}

/// A state of Paddle into which a call was put.
#[test]
fn a_call_in_optimizer_state_is_found() {
    let temp = tempfile::tempdir().unwrap();
    let state = fs::read(good("p262/cnn_state_dict/m_p2.pdparams")).unwrap();
    let call = b"cos\nsystem\nX\x02\x00\x00\x00id\x85R0";
    let bytes = [&state[..2], call, &state[2..]].concat();
    fs::write(temp.path().join("m.pdparams"), &bytes).unwrap();
    fs::write(temp.path().join("m.pdiparams.info"), &bytes).unwrap();
    for name in ["m.pdparams", "m.pdiparams.info"] {
        let report = look(temp.path().join(name));
        assert_eq!(word(&report), "found", "{report:?}");
        let imports = &report.files[0].scan.imports;
        assert!(imports.iter().any(|i| i.module.contains("os") && i.name.contains("system")), "{imports:?}");
    }
    // One bad file is enough for a folder.
    copy_folder(&good("p262/cnn_legacy_separate"), temp.path());
    assert_eq!(word(&look(temp.path())), "found");
}

/// The program in a golden file, where it is one.
fn program_in(name: &Path) -> Option<Program> {
    let program = name.extension().is_some_and(|e| e == "pdmodel" || e == "pb" || e == "json")
        || name.ends_with("__model__");
    program.then(|| Program::read(&source(good("").join(name)), &Default::default()).unwrap())
}

/// Programs that save files are found, programs that hold the author's source are warned of; all other golden files are clean.
#[test]
fn golden_files_are_clean_but_for_saving() {
    let (mut leaking, mut naming, mut clean) = (0, 0, 0);
    for name in files_below(&good("")).iter().filter(|f| is_data(f)) {
        let report = look(good("").join(name));
        let program = program_in(name);
        let saves = program.as_ref().is_some_and(|p| {
            p.topology().operators().any(|op| op.kind == "save" || op.kind.ends_with("save_combine"))
        });
        let (names, leaks): (Vec<_>, Vec<_>) =
            program.iter().flat_map(Program::source_leaks).partition(|leak| leak.attribute == "struct_name");
        let findings = &report.files[0].scan.findings;
        let has = |severity, code: &str| findings.iter().any(|f| f.severity == severity && f.code == code);
        assert_eq!(has(Severity::Warning, "source-code"), !leaks.is_empty(), "{name:?}: {report:?}");
        assert_eq!(has(Severity::Error, "writes-files"), saves, "{name:?}: {report:?}");
        assert_eq!(has(Severity::Warning, "class-names"), !names.is_empty(), "{name:?}: {report:?}");
        leaking += usize::from(!leaks.is_empty());
        if saves {
            assert_eq!(word(&report), "found", "{name:?}");
            let error = |f: &&weighbridge::finding::Finding| f.severity == Severity::Error;
            assert!(findings.iter().filter(error).all(|f| f.code == "writes-files"), "{findings:?}");
        } else if name.extension().is_some_and(|e| e == "metadata") {
            // An index of shards holds classes that no state has.
            println!("{name:?} {report:?}");
        } else {
            assert_eq!(word(&report), "clean", "{name:?}: {report:?}");
            naming += usize::from(!names.is_empty());
            clean += 1;
        }
    }
    assert!(leaking >= 4 && naming >= 3 && clean >= 300, "{leaking} {naming} {clean}");
}

/// A program of Paddle 2.6.2 that saves to files, and one that loads.
#[test]
fn programs_with_external_access_are_found() {
    let folder = testdata("paddle/exec");
    let report = look(folder.join("save.pdmodel"));
    assert_eq!(word(&report), "found");
    let reported: Vec<_> =
        report.files[0].scan.findings.iter().filter(|f| f.code == "writes-files").collect();
    assert!(reported.iter().all(|f| f.severity == Severity::Error), "{reported:?}");
    for (operator, path) in [("save ", "deep/w\""), ("save_combine ", "all.pdiparams\"")] {
        let shown =
            |f: &&&weighbridge::finding::Finding| f.text.starts_with(operator) && f.text.ends_with(path);
        assert_eq!(reported.iter().filter(shown).count(), 1, "{reported:?}");
    }
}

#[test]
fn a_stripped_program_has_no_trace_of_its_author() {
    let temp = tempfile::tempdir().unwrap();
    let mut count = 0;
    for name in files_below(&good("")).into_iter().filter(|f| is_data(f)) {
        let path = good("").join(&name);
        let Some(mut program) = program_in(&name).filter(|p| !p.source_leaks().is_empty()) else { continue };
        let report = program.strip(&Strip { source: true, ..Strip::default() }).unwrap();
        assert!(report.attributes > 0, "{name:?}");
        let stripped = temp.path().join("program");
        fs::write(&stripped, program.to_bytes()).unwrap();
        let report = look(&stripped);
        let findings = &report.files[0].scan.findings;
        assert!(findings.iter().all(|f| f.code == "writes-files" || f.code == "reads-files"), "{findings:?}");
        assert_eq!(open(&stripped).topology.unwrap().histogram(), open(&path).topology.unwrap().histogram());
        count += 1;
    }
    assert!(count >= 8, "{count}");
}

/// What a folder holds and the scan does not look at keeps it from being clean.
#[cfg(unix)]
#[test]
fn hidden_files_of_a_folder_are_not_clean() {
    use std::os::unix::{fs::symlink, net::UnixListener};
    let elsewhere = tempfile::tempdir().unwrap();
    type Hide<'a> = &'a dyn Fn(&Path);
    let hide: [(&str, Hide); 4] = [
        ("too-deep", &|f| fs::create_dir_all(f.join("a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a")).unwrap()),
        ("link-to-folder", &|f| symlink(elsewhere.path(), f.join("link")).unwrap()),
        ("dead-link", &|f| symlink("nowhere", f.join("link")).unwrap()),
        ("not-a-file", &|f| drop(UnixListener::bind(f.join("socket")).unwrap())),
    ];
    for (code, hide) in hide {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(&good("p262/cnn_state_dict"), folder.path());
        assert_eq!(word(&look(folder.path())), "clean");
        hide(folder.path());
        let report = look(folder.path());
        assert_eq!(word(&report), "could-not-tell", "{code}");
        let labels: Vec<_> = report.files.iter().map(|f| f.label.clone()).collect();
        assert!(labels.is_sorted(), "{labels:?}");
        let reported: Vec<_> =
            report.files.iter().flat_map(|f| &f.scan.findings).map(|f| f.code.as_str()).collect();
        assert_eq!(reported.iter().filter(|c| **c == code).count(), 1, "{reported:?}");
    }
}

#[test]
fn unknown_or_damaged_files_are_not_clean() {
    let temp = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = temp.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let whole = fs::read(good("p262/cnn_static_infer/model.pdiparams")).unwrap();
    let state = fs::read(good("p262/cnn_state_dict/m_p4.pdparams")).unwrap();
    let program = fs::read(good("p331/cnn_pir/model.json")).unwrap();
    for path in [
        file("noise", b"no format has this beginning"),
        file("empty", b""),
        file("cut.pdiparams", &whole[..whole.len() - 1]),
        file("more.pdiparams", &[&whole[..], b"c"].concat()),
        file("cut.pdparams", &state[..state.len() - 1]),
        file("cut.json", &program[..program.len() - 1]),
    ] {
        let report = look(&path);
        assert_eq!(report.verdict, Verdict::CouldNotTell, "{path:?}: {report:?}");
    }
    // A second pickle behind the first is not looked at by Paddle, and may be anything.
    let system = fs::read(bad_pickles().iter().find(|p| p.ends_with("os_system_p4.pkl")).unwrap()).unwrap();
    assert_ne!(word(&look(file("two.pdparams", &[&state[..], &system].concat()))), "clean");

    let folder = tempfile::tempdir().unwrap();
    copy_folder(&good("p262/cnn_state_dict"), folder.path());
    assert_eq!(word(&look(folder.path())), "clean");
    fs::write(folder.path().join("run.sh"), b"#!/bin/sh\n").unwrap();
    assert_eq!(word(&look(folder.path())), "could-not-tell");
}

//! What goes wrong around the command: full disks, files that change, folders that cannot be written, links in circles,
//! thousands of files, hostile names, odd targets, requests to stop.
//!
//! What a system or a user cannot do is skipped aloud.

use crate::support::signal;
use serde_json::Value as Json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_weighbridge");

fn weighbridge(words: &[&Path]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

/// A mixture of words and paths.
fn words<'a>(words: &'a [&'a str]) -> Vec<&'a Path> {
    words.iter().map(Path::new).collect()
}

/// The error that it ended with, of which the exit code is 2.
fn error(output: &Output) -> Json {
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    serde_json::from_slice::<Json>(&output.stdout).unwrap()["error"].clone()
}

/// Names of means, with spaces between, that are known to be had: a test that does without them fails. `.ci/run` sets it.
const AT_HAND: &str = "WEIGHBRIDGE_TESTS_HAVE";

/// Says that something was not tried for want of `means`. Not by eprintln!, which the test harness would keep to itself.
fn skipped(means: &str, what: &str) {
    let had = std::env::var(AT_HAND).unwrap_or_default();
    assert!(!had.split_whitespace().any(|one| one == means), "{AT_HAND} says that there is {means}; {what}");
    let _ = std::io::stderr().write_all(format!("\nSKIPPED: {what}\n").as_bytes());
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// A safetensors file of bytes, whose data is a hole in the file.
fn sparse(path: &Path, tensors: u64, bytes: u64) {
    let one = |i| {
        let (start, end) = (i * bytes, (i + 1) * bytes);
        format!(r#""t{i}":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[{start},{end}]}}"#)
    };
    let header = format!("{{{}}}", (0..tensors).map(one).collect::<Vec<_>>().join(","));
    let mut file = File::create(path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + tensors * bytes).unwrap();
}

/// A safetensors file of tensors of two bytes with these names, as JSON texts.
fn named(path: &Path, names: &[&str]) {
    let one = |(i, name): (usize, &&str)| {
        let name = serde_json::to_string(name).unwrap();
        format!(r#"{name}:{{"dtype":"U8","shape":[2],"data_offsets":[{},{}]}}"#, i * 2, i * 2 + 2)
    };
    let header = format!("{{{}}}", names.iter().enumerate().map(one).collect::<Vec<_>>().join(","));
    let data: Vec<u8> = (0..names.len() * 2).map(|i| u8::try_from(i).unwrap()).collect();
    fs::write(path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()).unwrap();
}

/// Conversions of every way of writing: copies, checksums, streams, folders.
const TARGETS: [(&str, &[&str]); 5] = [
    ("x.safetensors", &[]),
    ("x.npz", &[]),
    ("x.pt", &[]),
    ("npy", &["--to", "npy", "--kind", "folder"]),
    ("shards", &["--to", "safetensors", "--set", "shard=300000"]),
];

/// The system refuses to write beyond a length: the error of a disk that is full, without needing one. The old target stays,
/// and nothing is left behind.
#[test]
fn a_limit_of_the_system_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.safetensors");
    sparse(&model, 4, 1 << 20);
    let folder = dir.path().join("out");
    for old in [false, true] {
        for (name, more) in TARGETS {
            fs::create_dir(&folder).unwrap();
            let target = folder.join(name);
            let mut words =
                vec!["convert", model.to_str().unwrap(), target.to_str().unwrap(), "--json", "--force"];
            words.extend(more);
            if old {
                // As large as that: the data of the second run differ by nothing, the file by its number.
                assert!(Command::new(PROGRAM).args(&words).output().unwrap().status.success());
            }
            let (before, numbers) = (names(&folder), inodes(&folder));
            // In units of 512 bytes or of 1 KiB.
            let limited = r#"ulimit -f 200; exec "$0" "$@""#;
            let output = Command::new("sh").args(["-c", limited, PROGRAM]).args(&words).output().unwrap();
            let error = error(&output);
            assert_eq!(error["kind"], "io", "{name}: {error}");
            assert!(error["file"].is_string() && error["message"].as_str().unwrap().len() > 10, "{error}");
            assert_eq!((names(&folder), inodes(&folder)), (before, numbers), "{name}");
            fs::remove_dir_all(&folder).unwrap();
        }
    }
}

/// Which files there are, whatever their names.
fn inodes(folder: &Path) -> Vec<u64> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            found.extend(inodes(&entry.path()));
        } else {
            found.push(entry.metadata().unwrap().ino());
        }
    }
    found.sort_unstable();
    found
}

/// A small disk, as long as it is held.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(kind: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let words = ["-t", kind, "-o", "size=1m", kind];
        let output = Command::new("mount").args(words).arg(dir.path()).output().ok()?;
        output.status.success().then_some(Self(dir))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    let Some(disk) = Disk::mount("tmpfs") else {
        skipped("small-disk", "a_full_disk_loses_nothing: this user may not mount a small disk");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.safetensors");
    sparse(&model, 2, 1 << 20);
    for (name, more) in TARGETS {
        let target = disk.0.path().join(name);
        fs::write(disk.0.path().join("other"), "other").unwrap();
        let mut all = vec!["convert", model.to_str().unwrap(), target.to_str().unwrap(), "--json"];
        all.extend(more);
        let error = error(&Command::new(PROGRAM).args(&all).output().unwrap());
        assert_eq!(error["code"], "storage-full", "{name}: {error}");
        assert_eq!(names(disk.0.path()), ["other"], "{name}");
    }
    // There is room after that.
    let small = dir.path().join("small.safetensors");
    sparse(&small, 1, 100_000);
    let target = disk.0.path().join("small.npz");
    assert!(weighbridge(&[Path::new("convert"), &small, &target]).status.success());
}

/// Standard output that is full is an error.
#[test]
fn full_output_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.safetensors");
    named(&model, &["a"]);
    for verb in ["ls", "info", "verify", "scan", "stats"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(PROGRAM).args([Path::new(verb), &model]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{verb}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the output"), "{verb}");
    }
}

/// True where the child has the file open.
fn has_open(child: &Child, file: &Path) -> bool {
    let Ok(handles) = fs::read_dir(format!("/proc/{}/fd", child.id())) else { return false };
    handles.flatten().any(|handle| fs::read_link(handle.path()).is_ok_and(|path| path == file))
}

/// Waits until something is so; fails where it does not come about.
fn wait_until(mut so: impl FnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A file that is cut short while a verb reads it: an error that says so, not a signal.
#[test]
fn a_file_that_is_cut_short_is_an_error_of_every_verb() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = dir.path().canonicalize().unwrap();
    let (model, copy, target) =
        (folder.join("model.safetensors"), folder.join("copy.safetensors"), folder.join("target.npz"));
    let size = 4 << 30;
    sparse(&copy, 1, size);
    let all = [&model, &copy, &target].map(|path| path.to_str().unwrap());
    let [model_name, copy_name, target_name] = all;
    for words in [
        &["stats", model_name, "--json"][..],
        &["ls", model_name, "--hash", "--json"],
        &["verify", model_name, "--values", "--json"],
        &["diff", model_name, copy_name, "--json", "--atol", "1"],
        &["convert", model_name, target_name, "--json"],
    ] {
        sparse(&model, 1, size);
        let mut child =
            Command::new(PROGRAM).args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        wait_until(|| has_open(&child, &model), "it does not open the file");
        // The header is read at once, the rest takes seconds.
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "{words:?} ended too early");
        File::options().write(true).open(&model).unwrap().set_len(4096).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), None, "{words:?}");
        let json: Json = serde_json::from_slice(&output.stdout).unwrap();
        assert!(json.to_string().contains("file-shrank"), "{words:?}: {json}");
        assert_ne!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(names(&folder).len(), 2, "{words:?} left something behind");
    }
}

/// A user that is not root, as a command; `None` where that cannot be had.
fn as_somebody() -> Option<Command> {
    let somebody = || {
        let mut command = Command::new(PROGRAM);
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(65534).gid(65534);
        }
        command
    };
    somebody().arg("--version").output().ok().filter(|output| output.status.success()).map(|_| somebody())
}

#[test]
fn what_may_not_be_read_or_written_is_said() {
    let Some(mut command) = as_somebody() else {
        skipped(
            "another-user",
            "what_may_not_be_read_or_written_is_said: root can, and nobody else may run the command",
        );
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (folder, secret) = (dir.path().join("folder"), dir.path().join("secret"));
    fs::create_dir(&folder).unwrap();
    let model = folder.join("model.safetensors");
    named(&model, &["a"]);
    fs::copy(&model, &secret).unwrap();
    for (path, mode) in [(&secret, 0o000), (&model, 0o444), (&folder, 0o555), (&dir.path().to_owned(), 0o755)]
    {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut run = |words: &[&Path]| {
        let mut again = as_somebody().unwrap();
        std::mem::swap(&mut command, &mut again);
        again.args(words).arg("--json").output().unwrap()
    };
    let target = folder.join("target.npz");
    for words in [
        &[Path::new("convert"), &model, &target][..],
        &[Path::new("convert"), &model, &model, Path::new("--force"), Path::new("--to"), Path::new("npz")],
        &[
            Path::new("convert"),
            &model,
            &folder.join("new"),
            Path::new("--to"),
            Path::new("npy"),
            Path::new("--kind"),
            Path::new("folder"),
        ],
        &[Path::new("ls"), &secret],
        &[Path::new("scan"), &secret],
        &[Path::new("verify"), &secret],
    ] {
        let error = error(&run(words));
        assert_eq!(error["code"], "permission-denied", "{words:?}: {error}");
    }
    assert_eq!(names(&folder), ["model.safetensors"]);
    // Of a folder with one such file nothing is called clean.
    let output = run(&[Path::new("scan"), dir.path()]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stdout));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn verify_names_a_file_of_a_folder_that_may_not_be_read() {
    let Some(mut command) = as_somebody() else {
        skipped(
            "another-user",
            "verify_names_a_file_of_a_folder: root can, and nobody else may run the command",
        );
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (model, secret) = (dir.path().join("model.safetensors"), dir.path().join("secret"));
    named(&model, &["a"]);
    named(&secret, &["b"]);
    for (path, mode) in [(dir.path(), 0o755), (&model, 0o644), (&secret, 0o000)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let output = command.args(words(&["verify", "--json"])).arg(dir.path()).output().unwrap();
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &json["verdict"]), (Some(3), &"could-not-tell".into()), "{json}");
    let named = json["findings"].as_array().unwrap().iter().find(|f| f["code"] == "unreadable-file");
    assert_eq!(named.unwrap()["file"], secret.to_str().unwrap());
}

/// A list of shards may name files in folders, but none behind a link to a folder.
#[test]
fn a_shard_behind_a_link_to_a_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    fs::create_dir(&real).unwrap();
    named(&real.join("model-00001-of-00001.safetensors"), &["a"]);
    std::os::unix::fs::symlink("real", &link).unwrap();
    for (folder, code) in [("real", None), ("link", Some("unsafe-name"))] {
        let list = dir.path().join(format!("{folder}.safetensors.index.json"));
        let text = format!(r#"{{"weight_map": {{"a": "{folder}/model-00001-of-00001.safetensors"}}}}"#);
        fs::write(&list, text).unwrap();
        let output = Command::new(PROGRAM).args(words(&["ls", "--json"])).arg(&list).output().unwrap();
        let json: Json = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["error"]["code"].as_str(), code, "{json}");
    }
}

#[test]
fn names_of_files_that_are_not_utf8_are_given_exactly() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(std::ffi::OsStr::from_bytes(b"m\xff\\.safetensors"));
    named(&path, &["a"]);
    for verb in ["ls", "verify", "scan"] {
        let output = Command::new(PROGRAM).args(words(&[verb, "--json"])).arg(&path).output().unwrap();
        let json: Json = serde_json::from_slice(&output.stdout).unwrap();
        let shown = json["path"].as_str().unwrap();
        assert!(shown.ends_with("/m\\xff\\x5c.safetensors"), "{shown}");
    }
    let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"d\xff"));
    let demo = Command::new(PROGRAM).arg("demo").arg(&odd).output().unwrap();
    assert!(String::from_utf8(demo.stdout).unwrap().contains("d\\xff"), "{:?}", demo.status);
    let model = weighbridge_testkit::testdata("paddle/good/p262/cnn_legacy_combined/__model__");
    let target = dir.path().join(std::ffi::OsStr::from_bytes(b"p\xff.txt"));
    let output = Command::new(PROGRAM)
        .args(words(&["program", "--list", "--json", "-o"]))
        .args([&target, &model])
        .output()
        .unwrap();
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["path"].as_str().is_some_and(|shown| shown.ends_with("/p\\xff.txt")), "{json}");
    let store = dir.path().join(std::ffi::OsStr::from_bytes(b"s\xff"));
    fs::create_dir(&store).unwrap();
    let output = Command::new(PROGRAM).args(words(&["checkpoint", "--json"])).arg(&store).output().unwrap();
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    let shown = json["path"].as_str().or_else(|| json["error"]["file"].as_str());
    assert!(shown.is_some_and(|shown| shown.ends_with("/s\\xff")), "{json}");
}

#[test]
fn a_folder_that_may_not_be_listed_hides_nothing_of_the_others() {
    let Some(mut command) = as_somebody() else {
        skipped(
            "another-user",
            "a_folder_that_may_not_be_listed: root can, and nobody else may run the command",
        );
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (closed, open) = (dir.path().join("b-closed"), dir.path().join("a-open"));
    fs::create_dir(&closed).unwrap();
    fs::create_dir(&open).unwrap();
    named(&closed.join("model.safetensors"), &["a"]);
    named(&open.join("model.safetensors"), &["a"]);
    fs::write(dir.path().join("c.pkl"), b"cos\ngetcwd\n.").unwrap();
    for (path, mode) in [(dir.path(), 0o755), (&closed, 0o000)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let output = command.args(words(&["scan", "--json"])).arg(dir.path()).output().unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    let file = |at: usize| (json["files"][at]["path"].as_str().unwrap(), &json["files"][at]["verdict"]);
    assert_eq!(file(0), (open.join("model.safetensors").to_str().unwrap(), &"clean".into()), "{json}");
    assert_eq!(file(1), (closed.to_str().unwrap(), &"could-not-tell".into()), "{json}");
    assert_eq!(json["files"][1]["findings"][0]["code"], "unreadable");
    assert_eq!((file(2).1, &json["verdict"]), (&"found".into(), &"found".into()), "{json}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn links_in_circles_and_to_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let model = folder.join("model.safetensors");
    named(&model, &["a"]);
    let (ring, dead, back) = (dir.path().join("ring"), dir.path().join("dead"), folder.join("back"));
    symlink(&ring, &ring).unwrap();
    symlink("nowhere", &dead).unwrap();
    for verb in ["ls", "info", "stats", "verify", "scan", "convert"] {
        for path in [&ring, &dead] {
            let mut all = vec![Path::new(verb), path, Path::new("--json")];
            let target = dir.path().join("x.npz");
            if verb == "convert" {
                all.push(&target);
            }
            let error = error(&weighbridge(&all));
            assert_eq!(error["kind"], "io", "{verb} {path:?}");
        }
    }
    // As targets: nothing is put in their place.
    for target in [&ring, &dead] {
        let all = [
            Path::new("convert"),
            &model,
            target,
            Path::new("--to"),
            Path::new("npz"),
            Path::new("--force"),
            Path::new("--json"),
        ];
        error(&weighbridge(&all));
        assert!(fs::symlink_metadata(target).unwrap().is_symlink());
    }
    // In a folder: they are not followed, and what was not looked at is not clean.
    symlink(&folder, &back).unwrap();
    symlink(&ring, folder.join("ring")).unwrap();
    symlink("nowhere", folder.join("dead")).unwrap();
    let output = weighbridge(&[Path::new("scan"), &folder, Path::new("--json")]);
    assert_eq!(output.status.code(), Some(3));
    let scan: Json = serde_json::from_slice(&output.stdout).unwrap();
    let codes: Vec<_> =
        scan["files"].as_array().unwrap().iter().map(|file| file["findings"][0]["code"].clone()).collect();
    assert_eq!(codes, [Json::from("link-to-folder"), "dead-link".into(), Json::Null, "dead-link".into()]);
}

/// Ten thousand files: read one by one where that is enough; where each is held open and the system allows fewer, that is an
/// error with a reason.
#[test]
fn ten_thousand_files() {
    const FILES: usize = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let head = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }";
    let array = [&b"\x93NUMPY\x01\0"[..], &[118, 0], format!("{head:<117}\n").as_bytes(), &[7]].concat();
    for i in 0..FILES {
        fs::write(dir.path().join(format!("t{i:05}.npy")), &array).unwrap();
    }
    let run = |handles: &str, verb: &str| {
        let limited = r#"ulimit -n "$0"; exec "$@""#;
        Command::new("sh")
            .args(["-c", limited, handles, PROGRAM, verb, "--json"])
            .arg(dir.path())
            .output()
            .unwrap()
    };
    let scanned = run("64", "scan");
    assert_eq!(scanned.status.code(), Some(0), "{}", String::from_utf8_lossy(&scanned.stderr));
    let json: Json = serde_json::from_slice(&scanned.stdout).unwrap();
    assert_eq!(json["files"].as_array().unwrap().len(), FILES);
    for verb in ["ls", "verify"] {
        let refused = error(&run("64", verb));
        assert_eq!(refused["kind"], "io", "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("open files"), "{refused}");
        assert!(refused["hint"].as_str().unwrap().contains("`ulimit -n NUMBER`"), "{refused}");
        // One handle a file, and some for the process itself.
        let output = run("10100", verb);
        if !Command::new("sh").args(["-c", "ulimit -n 10100 2>/dev/null"]).status().unwrap().success() {
            skipped("open-files", "ten_thousand_files: this system does not allow so many open files");
            continue;
        }
        let json: Json = serde_json::from_slice(&output.stdout).unwrap();
        let count = json[if verb == "ls" { "tensors" } else { "files" }].as_array().unwrap().len();
        assert_eq!(count, FILES, "{verb}");
    }
}

/// True where a terminal would show it as it is.
fn is_harmless(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.chars().all(|c| c == '\n' || !c.is_control()))
}

#[test]
fn names_in_files_are_shown_escaped_and_kept_exact() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(4096);
    let all = [
        "a\nb",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "../../evil",
        "/etc/evil",
        "a\\b",
        "..",
        long.as_str(),
        "\u{202e}txt",
        "a b\tc",
    ];
    let model = dir.path().join("model.safetensors");
    named(&model, &all);
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    for verb in
        [&["ls"][..], &["ls", "--tree"], &["ls", "--pieces"], &["info"], &["stats"], &["verify"], &["scan"]]
    {
        let mut words = words(verb);
        words.push(&model);
        let output = weighbridge(&words);
        assert!(is_harmless(&output.stdout) && is_harmless(&output.stderr), "{verb:?}");
        assert_eq!(output.status.code(), Some(0), "{verb:?}");
    }
    let output = weighbridge(&[Path::new("ls"), &model, Path::new("--json")]);
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    let mut found: Vec<_> =
        json["tensors"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect();
    found.sort();
    let mut wanted = all.map(str::to_owned);
    wanted.sort();
    assert_eq!(found, wanted);

    // Names that become names of files stay below the target, or are refused; and come back.
    for (name, more) in [
        ("npy", &["--to", "npy", "--kind", "folder"][..]),
        ("separate", &["--to", "paddle", "--kind", "separate"]),
    ] {
        let target = inner.join(name);
        let mut all = vec!["convert", model.to_str().unwrap(), target.to_str().unwrap(), "--json"];
        all.extend(more);
        let output = Command::new(PROGRAM).args(&all).output().unwrap();
        if output.status.code() == Some(0) {
            let back = weighbridge::formats::open(&target).unwrap();
            assert_eq!(back.tensors.len(), wanted.len(), "{name}");
        } else {
            assert!(error(&output)["message"].is_string());
            assert!(!target.exists());
        }
        assert!(
            names(&inner).iter().all(|own| own == "npy" || own == "separate"),
            "{name}: {:?}",
            names(&inner)
        );
        assert_eq!(names(dir.path()), ["inner", "model.safetensors"], "{name}");
    }
}

#[test]
fn names_of_files_are_shown_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let deep: PathBuf = std::iter::repeat_n("d".repeat(200), 15).collect();
    let odd = [
        OsString::from("new\nline.safetensors"),
        OsString::from("\u{1b}[2J.safetensors"),
        OsString::from_vec(b"not-utf8-\xff\xfe.safetensors".to_vec()),
        deep.join("model.safetensors").into_os_string(),
    ];
    for name in odd {
        let model = dir.path().join(&name);
        fs::create_dir_all(model.parent().unwrap()).unwrap();
        named(&model, &["a"]);
        for verb in ["ls", "info", "stats", "verify", "scan"] {
            let output = weighbridge(&[Path::new(verb), &model]);
            assert_eq!(output.status.code(), Some(0), "{verb} {name:?}");
            assert!(is_harmless(&output.stdout) && is_harmless(&output.stderr), "{verb} {name:?}");
        }
        let output = weighbridge(&[Path::new("ls"), &model, Path::new("--json")]);
        let json: Json = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["path"], weighbridge::text::path_text(&model));
        // Written beside it, under a name of that kind.
        let mut target = model.clone().into_os_string();
        target.push(".npz");
        let output = weighbridge(&[Path::new("convert"), &model, Path::new(&target)]);
        assert_eq!(output.status.code(), Some(0), "{name:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(is_harmless(&output.stdout));
        assert_eq!(weighbridge::formats::open(&target).unwrap().tensors.len(), 1);
    }
    // All of them in one folder, with names that are cut nowhere.
    let output = weighbridge(&[Path::new("scan"), dir.path()]);
    assert!(is_harmless(&output.stdout) && is_harmless(&output.stderr));
    // Longer than any system takes: an error, of reading and of writing.
    let endless = dir.path().join("x".repeat(5000));
    let model = dir.path().join(std::ffi::OsStr::from_bytes(b"new\nline.safetensors"));
    error(&weighbridge(&[Path::new("ls"), &endless, Path::new("--json")]));
    error(&weighbridge(&[Path::new("convert"), &model, &endless.with_extension("npz"), Path::new("--json")]));
}

#[test]
fn targets_that_are_no_files_stay_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (model, pipe, folder) =
        (dir.path().join("model.safetensors"), dir.path().join("pipe"), dir.path().join("folder"));
    named(&model, &["a"]);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("other"), "other").unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let full = fs::metadata("/dev/full").unwrap().rdev();
    for target in [&pipe, &folder, &PathBuf::from("/dev/full"), &model] {
        for force in [false, true] {
            let mut all = words(&["convert", "--to", "npz", "--json"]);
            all.extend([model.as_path(), target]);
            if force && *target == model {
                continue;
            }
            if force {
                all.push(Path::new("--force"));
            }
            error(&weighbridge(&all));
        }
    }
    // Nor can they be read.
    for source in [&pipe, &PathBuf::from("/dev/full")] {
        assert_eq!(
            error(&weighbridge(&[Path::new("ls"), source, Path::new("--json")]))["code"],
            "not-a-file"
        );
    }
    assert_eq!(fs::metadata("/dev/full").unwrap().rdev(), full);
    assert_eq!(names(&folder), ["other"]);
    assert_eq!(names(dir.path()), ["folder", "model.safetensors", "pipe"]);
    assert_eq!(weighbridge::formats::open(&model).unwrap().format, "safetensors");
}

/// Interrupted by Ctrl-C: the old target stays, and nothing else is left.
#[test]
fn an_interrupted_conversion_cleans_up() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (model, target) = (dir.path().join("model.safetensors"), dir.path().join("target.npz"));
    sparse(&model, 4, 1 << 30);
    fs::write(&target, "old").unwrap();
    let mut child = Command::new(PROGRAM)
        .args([Path::new("convert"), &model, &target, Path::new("--force")])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(|| names(dir.path()).len() == 3, "nothing is staged");
    assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(dir.path()), ["model.safetensors", "target.npz"]);
    assert_eq!(fs::read(&target).unwrap(), b"old");
}

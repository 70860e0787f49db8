//! Stopping a store at every step: no committed version is ever lost.
//!
//! Three ways: a disk in memory that stops before, amid and after each of its steps, with a writer that gets an error or dies,
//! and with a power loss; a process that is killed at random times on the real file system; and, for comparison,
//! PyTorch-BigGraph itself under the same stops.

mod sim;
mod upstream;

use sim::{Chance, MOMENTS, Moment, Power, SimDisk, Then};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use upstream::Start;
use weighbridge::Result;
use weighbridge::engine::{MIN_MEMORY, RunOptions};
use weighbridge::plan::{FileBuilder, PlannedFile};
use weighbridge::source::SourceRef;
use weighbridge::store::{
    Carry, CheckpointStore, CommitOptions, LinkForm, RecoverOptions, StoreOptions, VersionWrite,
};

const CONFIG: &str = r#"{"entities": {"user": {"num_partitions": 2}, "unused": {"num_partitions": 7}},
    "relations": [{"name": "r", "lhs": "user", "rhs": "user"}], "dimension": 4, "entity_path": "entities",
    "edge_paths": [], "checkpoint_path": "model"}"#;
/// Versions that the loops commit.
const ROUNDS: u64 = 5;
/// Every version that is a multiple of this becomes a snapshot.
const EVERY: u64 = 2;
const FILES: [&str; 3] = ["model", "embeddings_user_0", "embeddings_user_1"];

fn name(file: &str, version: u64) -> String {
    format!("{file}.v{version}.h5")
}

/// What the file of that name must hold.
fn content(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(300 + name.len()).collect()
}

fn file(name: &str) -> PlannedFile {
    let mut file = FileBuilder::new(name);
    file.literal(content(name));
    file.finish()
}

fn options(version_write: VersionWrite, sync: bool) -> StoreOptions {
    let run = RunOptions { threads: 1, memory: MIN_MEMORY, sync, ..RunOptions::default() };
    StoreOptions { run, version_write, ..StoreOptions::default() }
}

fn snapshot(version: u64) -> Option<u64> {
    version.is_multiple_of(EVERY).then_some(version / EVERY)
}

fn form(version: u64) -> LinkForm {
    [LinkForm::Relative, LinkForm::Copies][usize::try_from(version / EVERY % 2).unwrap()]
}

fn store_on(disk: &SimDisk, how: VersionWrite) -> Result<CheckpointStore> {
    CheckpointStore::on(Arc::new(disk.clone()), "/", options(how, true))
}

/// What a run does before it goes on: the snapshot that the last one had no time to make.
fn make_up(store: &CheckpointStore) -> Result<()> {
    let current = store.current()?;
    if let Some(epoch) = snapshot(current).filter(|_| current > 0) {
        store.preserve(epoch, form(current))?;
    }
    Ok(())
}

/// Writes the next version and commits it.
fn one_round(store: &CheckpointStore) -> Result<u64> {
    make_up(store)?;
    let staging = store.begin()?;
    let version = staging.version();
    for part in FILES {
        staging.put(file(&name(part, version)))?;
    }
    staging.append_stats(["{}"])?;
    let preserve = snapshot(version);
    let report =
        staging.commit(&CommitOptions { preserve, form: form(version), ..CommitOptions::default() })?;
    assert_eq!(report.version, version);
    Ok(version)
}

/// The same as [`upstream::run`], with the store.
fn run(disk: &SimDisk, how: VersionWrite, mut committed: impl FnMut(u64)) -> Result<()> {
    let store = store_on(disk, how)?;
    store.write_config(CONFIG.as_bytes())?;
    for _ in 0..ROUNDS {
        committed(one_round(&store)?);
    }
    Ok(())
}

fn bytes(source: Option<SourceRef>) -> Vec<u8> {
    let source = source.unwrap();
    let mut bytes = vec![0; usize::try_from(source.len()).unwrap()];
    source.read_at(0, &mut bytes).unwrap();
    bytes
}

/// The version that counts, found again where the version file is torn; all its files are right.
/// The store can go on from it.
fn check_store(store: &CheckpointStore, committed: u64, in_place: bool, what: &str) -> u64 {
    let version = match store.current() {
        Ok(version) => version,
        Err(error) => {
            assert!(in_place, "{what}: {error}");
            assert_eq!(error.code().as_str(), "version-lost", "{what}: {error}");
            let report = store.recover(&RecoverOptions { start_over: committed == 0, ..Default::default() });
            report.unwrap_or_else(|e| panic!("{what}: {e}")).version
        }
    };
    assert!(version == committed || version == committed + 1, "{what}: {version} after {committed}");
    if version > 0 {
        let files = store.version(version).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(files.len(), FILES.len(), "{what}");
        for file in files {
            assert!(bytes(store.source(&file.name).unwrap()) == content(&file.name), "{what}: {}", file.name);
        }
    }
    // Snapshots of versions before the last one were made in full.
    let state = store.state().unwrap();
    for kept in (1..committed).filter(|v| v % EVERY == 0) {
        let snapshot = &state.snapshots[&(kept / EVERY)];
        assert!(snapshot.is_complete(), "{what}: {snapshot:?}");
        for file in &snapshot.files {
            let path = format!("epoch_{}/{file}", kept / EVERY);
            assert!(bytes(store.source(&path).unwrap()) == content(file), "{what}: {path}");
        }
    }
    // A snapshot that was cut short has no name.
    assert!(state.snapshots.values().all(weighbridge::store::SnapshotState::is_complete), "{what}");
    version
}

/// A step, a moment, a fate: the disk as it is then, and the last version that was committed.
fn stopped(
    step: usize,
    moment: Moment,
    then: Then,
    run: impl Fn(&SimDisk, &mut dyn FnMut(u64)) -> Result<()>,
) -> (SimDisk, u64, bool) {
    let disk = SimDisk::new();
    disk.stop_at(step, moment, then);
    let mut last = 0;
    let ended = run(&disk, &mut |version| last = version).is_ok();
    (disk, last, ended)
}

fn steps(run: impl Fn(&SimDisk, &mut dyn FnMut(u64)) -> Result<()>) -> usize {
    let disk = SimDisk::new();
    let mut last = 0;
    run(&disk, &mut |version| last = version).unwrap();
    assert_eq!(last, ROUNDS);
    disk.steps()
}

fn ours(how: VersionWrite) -> impl Fn(&SimDisk, &mut dyn FnMut(u64)) -> Result<()> {
    move |disk, committed| run(disk, how, committed)
}

fn theirs(disk: &SimDisk, committed: &mut dyn FnMut(u64)) -> Result<()> {
    upstream::run(disk, committed)
}

#[test]
fn a_step_that_fails_loses_nothing_and_leaves_nothing() {
    for how in [VersionWrite::Replace, VersionWrite::InPlace] {
        let all = steps(ours(how));
        assert!(all > 100, "{all}");
        for step in 1..=all {
            for moment in MOMENTS {
                let what = format!("{how:?}, step {step}, {moment:?}");
                let (disk, last, _) = stopped(step, moment, Then::Fails, ours(how));
                let store = store_on(&disk, how).unwrap();
                check_store(&store, last, how == VersionWrite::InPlace, &what);
                // The same process goes on.
                let (next, before) = (one_round(&store), store.current().unwrap());
                check_store(&store, next.unwrap_or(before), false, &what);
                let left = store.state().unwrap().orphans;
                let staged = left.iter().filter(|o| o.name.starts_with('.')).count();
                assert_eq!(staged, 0, "{what}: {left:?}");
            }
        }
    }
}

#[test]
fn a_writer_that_dies_loses_nothing() {
    for how in [VersionWrite::Replace, VersionWrite::InPlace] {
        for step in 1..=steps(ours(how)) {
            for moment in MOMENTS {
                let what = format!("{how:?}, step {step}, {moment:?}");
                let (disk, last, ended) = stopped(step, moment, Then::Dies, ours(how));
                assert!(!ended || last == ROUNDS, "{what}");
                let store = store_on(&disk.after_death(), how).unwrap();
                let version = check_store(&store, last, how == VersionWrite::InPlace, &what);
                assert_eq!(one_round(&store).unwrap(), version + 1, "{what}");
                check_store(&store, version + 1, false, &what);
            }
        }
    }
}

const CHANCES: u64 = 20;

fn powers(step: usize) -> Vec<Power> {
    let chances = (0..CHANCES).map(|i| Power::Chance(step as u64 * 1000 + i));
    [Power::Nothing, Power::NamesOnly].into_iter().chain(chances).collect()
}

#[test]
fn a_loss_of_power_loses_nothing() {
    for how in [VersionWrite::Replace, VersionWrite::InPlace] {
        for step in 1..=steps(ours(how)) {
            for moment in MOMENTS {
                let (disk, last, _) = stopped(step, moment, Then::Dies, ours(how));
                for (number, power) in powers(step).into_iter().enumerate() {
                    let what = format!("{how:?}, step {step}, {moment:?}, {power:?}");
                    let store = store_on(&disk.after_power_loss(power), how).unwrap();
                    let version = check_store(&store, last, how == VersionWrite::InPlace, &what);
                    if number % 5 == 0 {
                        assert_eq!(one_round(&store).unwrap(), version + 1, "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn files_carried_over_survive_the_deletion_of_their_version() {
    for carry in [Carry::Copy, Carry::Link] {
        let round = |store: &CheckpointStore| -> Result<u64> {
            let staging = store.begin()?;
            let version = staging.version();
            staging.put(file(&staging.model()))?;
            let report = staging.commit(&CommitOptions { carry, ..CommitOptions::default() })?;
            assert_eq!((report.carried, report.files), (2, 3));
            Ok(version)
        };
        for step in 1..200 {
            let disk = SimDisk::new();
            let store = store_on(&disk, VersionWrite::Replace).unwrap();
            store.write_config(CONFIG.as_bytes()).unwrap();
            one_round(&store).unwrap();
            disk.stop_at(disk.steps() + step, Moment::Before, Then::Dies);
            let mut last = 1;
            while last < 4
                && let Ok(version) = round(&store)
            {
                last = version;
            }
            let ended = last == 4;
            for power in powers(step) {
                let store = store_on(&disk.after_power_loss(power), VersionWrite::Replace).unwrap();
                let version = store.current().unwrap();
                assert!(version == last || version == last + 1);
                for part in &FILES[1..] {
                    let held = bytes(store.source(&name(part, version)).unwrap());
                    assert!(held == content(&name(part, 1)), "{carry:?}, step {step}, {power:?}");
                }
                store.version(version).unwrap();
            }
            if ended {
                break;
            }
        }
    }
}

/// What BigGraph would find: stops, those that go on, that start over, that are damaged.
#[derive(Default, PartialEq, Eq)]
struct Tally {
    stops: usize,
    goes_on: usize,
    starts_over: usize,
    damaged: usize,
}

/// Stops `run` at every step and moment after its first commit; `found` gives the disks that are
/// found then. Every one is judged by the rules by which BigGraph starts.
fn tally(
    run: impl Fn(&SimDisk, &mut dyn FnMut(u64)) -> Result<()>,
    found: impl Fn(&SimDisk, usize) -> Vec<SimDisk>,
) -> Tally {
    let mut tally = Tally::default();
    for step in 1..=steps(&run) {
        for moment in MOMENTS {
            let (disk, last, _) = stopped(step, moment, Then::Dies, &run);
            for disk in found(&disk, step).iter().filter(|_| last > 0) {
                tally.stops += 1;
                match upstream::start(disk, last) {
                    Start::GoesOn => tally.goes_on += 1,
                    Start::StartsOver => tally.starts_over += 1,
                    Start::Damaged => tally.damaged += 1,
                }
            }
        }
    }
    tally
}

/// The table of the book.
fn table() -> String {
    type Found = fn(&SimDisk, usize) -> Vec<SimDisk>;
    let rows: [(&str, Found); 4] = [
        ("the process ends", |disk, _| vec![disk.after_death()]),
        ("power lost: nothing that was not synced stays", |disk, _| {
            vec![disk.after_power_loss(Power::Nothing)]
        }),
        ("power lost: names stay, data that was not synced does not", |disk, _| {
            vec![disk.after_power_loss(Power::NamesOnly)]
        }),
        ("power lost: each name and file by chance, 20 times a stop", |disk, step| {
            powers(step)[2..].iter().map(|&power| disk.after_power_loss(power)).collect()
        }),
    ];
    let mut text = String::from(
        "| what happens | written by | stops | goes on | starts over | damaged |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for (what, found) in rows {
        let both =
            [("BigGraph", tally(theirs, found)), ("the store", tally(ours(VersionWrite::Replace), found))];
        for (who, t) in both {
            let counts = format!("{} | {} | {} | {}", t.stops, t.goes_on, t.starts_over, t.damaged);
            writeln!(text, "| {what} | {who} | {counts} |").unwrap();
            assert!(who == "BigGraph" || t.goes_on == t.stops, "{what}: {counts}");
            assert!(who == "the store" || t.goes_on < t.stops, "{what}: {counts}");
        }
    }
    text
}

#[test]
fn the_table_in_the_docs_is_correct() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/how/reliability.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = table();
    assert!(page.contains(&table), "docs/src/how/reliability.md should have\n{table}");
}

// A process that is killed.

const CHILD: &str = "WEIGHBRIDGE_STORE_CHILD";

/// Not a test of its own: what runs in the process that is killed. It commits until it dies, and
/// says the number of each version that counts.
#[test]
fn child() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let sync = folder.ends_with("synced");
    let store = CheckpointStore::open(&folder, options(VersionWrite::Replace, sync)).unwrap();
    let mut out = std::io::stdout();
    make_up(&store).unwrap();
    loop {
        let staging = store.begin().unwrap();
        let version = staging.version();
        std::thread::scope(|scope| {
            for part in FILES {
                let staging = &staging;
                scope.spawn(move || staging.put(file(&name(part, version))).unwrap());
            }
        });
        staging.append_stats(["{}"]).unwrap();
        let preserve = snapshot(version);
        let options = CommitOptions { preserve, form: form(version), ..CommitOptions::default() };
        let report = staging.commit(&options).unwrap();
        assert!(report.troubles.is_empty(), "{:?}", report.troubles);
        writeln!(out, "\nversion {version}").unwrap();
        // Else the folder grows without an end.
        if let Some(epoch) = preserve.and_then(|epoch| epoch.checked_sub(8)) {
            let _ = std::fs::remove_dir_all(Path::new(&folder).join(format!("epoch_{epoch}")));
            store.prune(1).unwrap();
        }
    }
}

/// Lets a child work for a while and kills it. Returns the last version that it said.
fn kill_once(folder: &Path, chance: &mut Chance) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store_kill::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // From the first version on, it is in its loop.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let said = |line: &String| line.strip_prefix("version ").map(|v| v.parse::<u64>().unwrap());
    let mut last = if chance.below(4) == 0 { None } else { lines.by_ref().find_map(|line| said(&line)) };
    std::thread::sleep(Duration::from_micros(chance.below(6000)));
    child.kill().unwrap();
    for line in lines {
        last = said(&line).or(last);
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.code().is_none(), "it ended itself: {}", String::from_utf8_lossy(&output.stderr));
    last
}

#[cfg(unix)]
#[test]
fn a_thousand_killed_writers_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let lane = |number: u64, folder: &str, count: u64| {
        let folder = dir.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        let store = CheckpointStore::open(&folder, options(VersionWrite::Replace, false)).unwrap();
        store.write_config(CONFIG.as_bytes()).unwrap();
        let (mut chance, mut last) = (Chance(number), 0);
        for _ in 0..count {
            let said = kill_once(&folder, &mut chance);
            // Who spoke has committed; how much more it did is a matter of speed.
            assert!(said.is_none_or(|said| said > last), "{said:?} after version {last}");
            last = said.unwrap_or(last);
            let version = store.current().unwrap();
            // A version may count that it had no time to speak of.
            assert!(version >= last, "version {last} was lost: {version} counts");
            for file in if version > 0 { store.version(version).unwrap() } else { vec![] } {
                assert!(bytes(store.source(&file.name).unwrap()) == content(&file.name), "{}", file.name);
            }
            let snapshots = store.state().unwrap().snapshots;
            for snapshot in snapshots.values().rev().take(2) {
                assert!(snapshot.is_complete(), "{snapshot:?}");
            }
            last = version;
        }
        // Three of four were waited for until they spoke.
        assert!(last >= count / 2, "{count} kills, {last} versions");
    };
    std::thread::scope(|scope| {
        let lane = &lane;
        for number in 0..3 {
            scope.spawn(move || lane(number, &format!("{number}"), 300));
        }
        scope.spawn(move || lane(3, "synced", 100));
    });
}

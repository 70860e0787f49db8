//! A million damaged files: none may bring the library to panic, to hang, or to take memory.
//!
//! Seeds are the small files below `testdata/FORMAT/good`. Each case damages one of them by a
//! generator that depends on the number of the case alone, so a case can be run again:
//!
//! ```text
//! WEIGHBRIDGE_MUTATION_CASE=123 cargo test -p weighbridge --test hostile -- --nocapture
//! WEIGHBRIDGE_MUTATION_LOG=/tmp/case cargo test -p weighbridge --test hostile      where the process is aborted
//! WEIGHBRIDGE_MUTATIONS=20000000 cargo test --release -p weighbridge --test hostile
//! ```
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, clippy::panic)]

use std::any::Any;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weighbridge::checkpoint::Checkpoint;
use weighbridge::formats::{self, OpenOptions, PlanOptions, open_source};
use weighbridge::source::{MemorySource, SourceRef};
use weighbridge::tensor::Order;

/// Cases in a run.
const CASES: u64 = 1_000_000;
/// Larger files are no seeds: what breaks a parser is small.
const SEED_BYTES: u64 = 8 << 10;
/// What a case may hold at its peak, above what was held before it.
const PEAK: i64 = 64 << 20;
/// A case that takes this long hangs.
const STUCK: Duration = Duration::from_secs(60);
/// Tensors up to this length are read.
const READ: u64 = 1 << 20;

/// Counts the bytes that each thread holds. The library opens and plans in the thread of its
/// caller, so a case is seen by the counters of its own thread.
mod counting {
    // Rust knows no safe way to stand in for the allocator; nothing else in here is unsafe.
    #![allow(unsafe_code)]

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    struct Counting;

    thread_local! {
        static LIVE: Cell<i64> = const { Cell::new(0) };
        static PEAK: Cell<i64> = const { Cell::new(0) };
    }

    fn count(bytes: i64) {
        // At the end of a thread its counters may be gone.
        let live = LIVE.try_with(|live| {
            live.set(live.get() + bytes);
            live.get()
        });
        if let Ok(live) = live {
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live)));
        }
    }

    fn signed(bytes: usize) -> i64 {
        i64::try_from(bytes).unwrap_or(i64::MAX / 4)
    }

    // SAFETY: every call is passed on to the allocator of the system as it came; counting takes
    // no memory, as the counters are cells in the thread's own storage.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            count(signed(layout.size()));
            // SAFETY: the caller's promise is passed on.
            unsafe { System.alloc(layout) }
        }
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            count(signed(layout.size()));
            // SAFETY: the caller's promise is passed on.
            unsafe { System.alloc_zeroed(layout) }
        }
        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            count(-signed(layout.size()));
            // SAFETY: the caller's promise is passed on.
            unsafe { System.dealloc(pointer, layout) }
        }
        unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // While bytes move, both blocks may be held.
            count(signed(size));
            count(-signed(layout.size()));
            // SAFETY: the caller's promise is passed on.
            unsafe { System.realloc(pointer, layout, size) }
        }
    }

    /// Runs `work`; what it gives, and the bytes that it held at its peak.
    pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, i64) {
        let before = LIVE.with(Cell::get);
        PEAK.with(|peak| peak.set(before));
        let result = work();
        (result, PEAK.with(Cell::get) - before)
    }
}

/// xorshift64*, begun from the number of a case.
struct Random(u64);

impl Random {
    fn new(case: u64) -> Self {
        // One round of splitmix64, so that neighbours have nothing in common.
        let mut z = case.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, or 0 where that is 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end.max(1)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// The low byte of a number.
    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}

/// Signs, borders, and the tags of MessagePack, pickles and protobuf.
const BYTES: [u8; 24] = [
    0, 1, 2, 0x7f, 0x80, 0x81, 0x8f, 0x90, 0x9f, 0xa0, 0xc4, 0xc6, 0xca, 0xce, 0xcf, 0xd9, 0xdb, 0xdc, 0xdd,
    0xde, 0xdf, 0xfe, 0xff, b'"',
];
const NUMBERS: [u64; 26] = [
    0,
    1,
    2,
    7,
    8,
    9,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x3fff_ffff,
    0x4000_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    100_000_000,
    0x1fff_ffff_ffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fff8,
    0xffff_ffff_ffff_ffff,
];

struct Seed {
    /// The folder in `testdata`: mostly the id of the format.
    family: String,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// The seeds by family, in an order that does not depend on the file system.
fn seeds() -> Vec<Vec<Seed>> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, files);
            } else {
                files.push(path);
            }
        }
    }
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "testdata"].iter().collect();
    let mut families = BTreeMap::new();
    for family in std::fs::read_dir(&root).unwrap() {
        let family = family.unwrap().path();
        // The odd files of BigGraph are small; what it writes itself is larger than a seed may be.
        let good = match family.file_name().and_then(|name| name.to_str()) {
            Some("biggraph") => family.join("alt"),
            // All of them are good.
            Some("tables") => family.clone(),
            _ => family.join("good"),
        };
        if !good.is_dir() {
            continue;
        }
        let family = family.file_name().unwrap().to_str().unwrap().to_owned();
        let mut paths = Vec::new();
        walk(&good, &mut paths);
        paths.sort();
        let mut seeds = Vec::new();
        for path in paths {
            // What stands beside the files to say what they hold.
            let beside = path.file_name().is_some_and(|n| n == "expected.json" || n == "README.md")
                || path.extension().is_some_and(|e| ["md", "py", "txt"].iter().any(|b| e == *b))
                || path.extension().is_some_and(|e| e == "json") && family != "paddle";
            // Files that are refused as they are: their columns are those of the others.
            let refused = [
                "format_version_2",
                "format_version_as_string",
                "no_format_version",
                "lhs_shorter",
                "missing_lhs",
            ]
            .iter()
            .any(|name| path.parent().is_some_and(|folder| folder.ends_with(name)));
            if !beside && !refused && std::fs::metadata(&path).unwrap().len() < SEED_BYTES {
                let bytes = std::fs::read(&path).unwrap();
                seeds.push(Seed { family: family.clone(), path, bytes });
            }
        }
        if !seeds.is_empty() {
            families.insert(family, seeds);
        }
    }
    families.into_values().collect()
}

/// Damages `bytes` once, and says how.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) -> &'static str {
    let len = bytes.len();
    if len == 0 {
        bytes.push(random.byte());
        return "grow";
    }
    // A quarter of the places lie in the first 64 bytes, where the counts are.
    let place = if random.below(4) == 0 { random.below(len.min(64)) } else { random.below(len) };
    let short = 1 + random.below(32);
    let end = len.min(place + short);
    match random.below(12) {
        0 => {
            bytes[place] ^= 1 << random.below(8);
            "flip a bit"
        }
        1 => {
            bytes[place] = random.pick(&BYTES);
            "set a byte"
        }
        2 => {
            bytes[place] = random.byte();
            "change a byte"
        }
        3 | 4 => {
            let width = random.pick(&[2, 4, 4, 8, 8]).min(len - place);
            let rest = (len - place - width) as u64;
            let number = if random.below(4) == 0 { rest } else { random.pick(&NUMBERS) };
            let number: Vec<u8> = if random.below(2) == 0 {
                number.to_le_bytes()[..width].to_vec()
            } else {
                number.to_be_bytes()[8 - width..].to_vec()
            };
            bytes[place..place + width].copy_from_slice(&number);
            "write a number"
        }
        5 => {
            bytes.truncate(place);
            "truncate"
        }
        6 => {
            let new: Vec<u8> = (0..short).map(|_| random.pick(&BYTES)).collect();
            bytes.splice(place..place, new);
            "insert"
        }
        7 => {
            bytes.drain(place..end);
            "delete"
        }
        8 => {
            let slice = bytes[place..end].to_vec();
            bytes.splice(place..place, slice);
            "duplicate a slice"
        }
        9 => {
            let slice = bytes[place..end].to_vec();
            let to = random.below(len - slice.len() + 1);
            bytes[to..to + slice.len()].copy_from_slice(&slice);
            "copy a slice elsewhere"
        }
        10 => {
            bytes.truncate(place);
            bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            "go on as another file"
        }
        _ => {
            // In text, so that it stays text.
            let digits: Vec<usize> = (0..len).filter(|&i| bytes[i].is_ascii_digit()).collect();
            let Some(&at) = digits.get(random.below(digits.len())) else { return "nothing" };
            if random.below(2) == 0 {
                bytes[at] = b'0' + random.byte() % 10;
            } else {
                let run = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
                let number = random.pick(&NUMBERS).to_string();
                bytes.splice(at..at + run, number.into_bytes());
            }
            "change a digit"
        }
    }
}

/// The bytes of a case, and how they came about.
fn damaged(seeds: &[Vec<Seed>], case: u64) -> (&Seed, Vec<u8>, Vec<&'static str>) {
    let mut random = Random::new(case);
    let choose = |random: &mut Random| {
        let family = &seeds[random.below(seeds.len())];
        &family[random.below(family.len())]
    };
    let seed = choose(&mut random);
    let mut other = choose(&mut random);
    while other.family != seed.family && random.below(2) == 0 {
        other = choose(&mut random);
    }
    let mut bytes = seed.bytes.clone();
    let count = random.pick(&[1, 1, 1, 1, 2, 2, 3, 5]);
    let mut steps: Vec<_> = (0..count).map(|_| mutate(&mut bytes, &other.bytes, &mut random)).collect();
    // A safetensors file that grew or shrank ends at the length of its header, most likely. Correct
    // that in half of the cases, so that the parser sees the rest.
    let grown = (bytes.len() as u64).wrapping_sub(seed.bytes.len() as u64);
    if grown != 0
        && seed.family == "safetensors"
        && random.below(2) == 0
        && let Some(length) = bytes.first_chunk_mut::<8>()
    {
        *length = u64::from_le_bytes(*length).wrapping_add(grown).to_le_bytes();
        steps.push("correct the header's length");
    }
    (seed, bytes, steps)
}

/// What became of a case.
#[derive(Debug, PartialEq)]
enum Outcome {
    Opened,
    OpenedLeniently,
    Refused,
}

/// Opens the bytes in every way, and does with what opens all that does not take much time.
fn try_all(source: &SourceRef, family: &str) -> Outcome {
    let lenient = OpenOptions { lenient: true, ..OpenOptions::default() };
    let strictly = open_source(source.clone(), &OpenOptions::default());
    let leniently = open_source(source.clone(), &lenient);
    salvage(source, family, strictly.is_ok());
    match (&strictly, &leniently) {
        (Ok(strictly), Ok(leniently)) => {
            assert_eq!(strictly.tensors.len(), leniently.tensors.len(), "lenient reading sees the same");
            examine(strictly);
            Outcome::Opened
        }
        (Ok(_), Err(error)) => panic!("only a strict reading opens it: {error}"),
        (Err(error), Ok(leniently)) => {
            assert!(!error.to_string().is_empty());
            assert!(!leniently.notes.is_empty(), "what is forgiven is noted: {error}");
            examine(leniently);
            Outcome::OpenedLeniently
        }
        (Err(error), Err(_)) => {
            assert!(!error.to_string().is_empty());
            if error.code() == "unknown-format" && formats::by_id(family).is_ok() {
                // The reader must stand what it would not claim, too: a user can name it.
                let forced = OpenOptions { format: Some(family.into()), ..lenient };
                if let Ok(checkpoint) = open_source(source.clone(), &forced) {
                    examine(&checkpoint);
                }
            }
            Outcome::Refused
        }
    }
}

/// Opens the bytes as far as possible. What comes of bytes that are refused is marked, and all of it
/// that is small can be read: it was said to be intact.
fn salvage(source: &SourceRef, family: &str, opens: bool) {
    let format = formats::by_id(family).is_ok().then(|| family.to_owned());
    // Refused bytes may be of no format that is told; a user names it, or the extension does.
    let options = OpenOptions { salvage: true, format: format.filter(|_| !opens), ..OpenOptions::default() };
    let Ok(saved) = open_source(source.clone(), &options) else { return };
    assert!(opens || options.format.is_some() || saved.damage.is_some(), "what is damaged is marked");
    if let Some(damage) = &saved.damage {
        assert!(!damage.losses().is_empty());
        assert!(saved.notes.iter().any(|note| note.code == "damaged" && note.omission));
    }
    for tensor in saved.tensors.iter().filter(|t| t.bytes() <= READ / 16).take(3) {
        if let Err(error) = weighbridge::engine::read_tensor(tensor, Order::Row) {
            assert!(!error.to_string().is_empty());
        }
    }
}

fn examine(checkpoint: &Checkpoint) {
    let json = checkpoint.to_json();
    assert_eq!(json["tensors"].as_array().unwrap().len(), checkpoint.tensors.len());
    let mut by_size: Vec<_> = checkpoint.tensors.iter().filter(|t| t.bytes() <= READ).collect();
    by_size.sort_by_key(|t| t.bytes());
    for tensor in by_size.into_iter().take(3) {
        for order in [Order::Row, Order::Column] {
            match weighbridge::engine::read_tensor(tensor, order) {
                Ok(bytes) => assert_eq!(bytes.len() as u64, tensor.bytes()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    for format in formats::ALL {
        match format.plan(checkpoint, &PlanOptions::default()) {
            Ok(plan) => assert_eq!(plan.bytes(), plan.files.iter().map(|f| f.len).sum::<u64>()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Runs a case. An error says what went wrong.
fn run(seeds: &[Vec<Seed>], case: u64) -> Result<Outcome, String> {
    let (seed, bytes, _) = damaged(seeds, case);
    let source: SourceRef = Arc::new(MemorySource::new("hostile", bytes));
    let (result, peak) =
        counting::peak_of(|| catch_unwind(AssertUnwindSafe(|| try_all(&source, &seed.family))));
    match result {
        Err(panic) => Err(format!("it panics: {}", text_of(&*panic))),
        Ok(_) if peak >= PEAK => Err(format!("it takes {peak} bytes of memory")),
        Ok(outcome) => Ok(outcome),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?")
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Watches the workers. It ends the process when one hangs: a thread cannot be stopped.
fn watch(cases: &[AtomicU64], done: &AtomicBool) {
    let mut seen: Vec<(u64, Instant)> = cases.iter().map(|_| (u64::MAX, Instant::now())).collect();
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        for (case, (last, since)) in cases.iter().zip(&mut seen) {
            let case = case.load(Ordering::Relaxed);
            if case != *last {
                (*last, *since) = (case, Instant::now());
            } else if case != u64::MAX && since.elapsed() > STUCK {
                // Not by eprintln!, which the test harness would keep to itself.
                let text = format!("\nhangs: WEIGHBRIDGE_MUTATION_CASE={case}\n");
                let _ = std::io::stderr().write_all(text.as_bytes());
                std::process::abort();
            }
        }
    }
}

#[test]
fn damaged_files_never_panic_hang_or_take_memory() {
    let seeds = seeds();
    if let Some(case) = number_of("WEIGHBRIDGE_MUTATION_CASE") {
        let (seed, bytes, steps) = damaged(&seeds, case);
        println!("case {case}: {} {steps:?}\n{}", seed.path.display(), bytes.escape_ascii());
        println!("{:?}", run(&seeds, case).unwrap());
        return;
    }
    let total = number_of("WEIGHBRIDGE_MUTATIONS").unwrap_or(CASES);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let current: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(u64::MAX)).collect();
    let failures: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let outcomes = [const { AtomicU64::new(0) }; 3];
    let log = std::env::var_os("WEIGHBRIDGE_MUTATION_LOG");
    let work = |worker: usize, current: &AtomicU64| {
        let log = log.as_ref().map(|path| {
            let path = PathBuf::from(path).with_extension(worker.to_string());
            std::fs::File::create(path).unwrap()
        });
        loop {
            let case = next.fetch_add(1, Ordering::Relaxed);
            if case >= total || failures.lock().unwrap().len() > 20 {
                break;
            }
            current.store(case, Ordering::Relaxed);
            if let Some(log) = &log {
                // Where the process is aborted, as by a stack that overflows, this is what is left.
                log.write_all_at(format!("{case:>20}\n").as_bytes(), 0).unwrap();
            }
            match run(&seeds, case) {
                Ok(Outcome::Opened) => outcomes[0].fetch_add(1, Ordering::Relaxed),
                Ok(Outcome::OpenedLeniently) => outcomes[1].fetch_add(1, Ordering::Relaxed),
                Ok(Outcome::Refused) => outcomes[2].fetch_add(1, Ordering::Relaxed),
                Err(what) => {
                    failures.lock().unwrap().push(format!("WEIGHBRIDGE_MUTATION_CASE={case}: {what}"));
                    continue;
                }
            };
        }
        current.store(u64::MAX, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&current, &done));
        let work = &work;
        let workers = current.iter().enumerate();
        let workers: Vec<_> =
            workers.map(|(worker, current)| scope.spawn(move || work(worker, current))).collect();
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let [opened, leniently, refused] = outcomes.map(AtomicU64::into_inner);
    println!("{opened} opened, {leniently} only leniently, {refused} refused");
    assert_eq!(opened + leniently + refused, total);
    // Damage must reach the parsers, and some of it must leave something to examine.
    assert!(opened > total / 50 && refused > total / 50, "{opened} opened, {refused} refused");
}

/// The seeds themselves open, and the counters count.
#[test]
fn the_test_itself_works() {
    let mut opened = 0;
    // Among the pickles are some that are no checkpoints: what they hold is for the machine that reads them.
    for seed in seeds().iter().flatten().filter(|seed| seed.family != "pickle") {
        let source: SourceRef = Arc::new(MemorySource::new("seed", seed.bytes.clone()));
        let result = open_source(source, &OpenOptions::default());
        assert!(result.is_ok(), "{}: {:?}", seed.path.display(), result.err());
        opened += 1;
    }
    assert!(opened >= 10, "{opened} seeds open");
    let (bytes, peak) = counting::peak_of(|| vec![1u8; 3 << 20]);
    assert!((3 << 20..4 << 20).contains(&peak), "{peak} for {} bytes", bytes.len());
}

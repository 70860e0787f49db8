//! Operations on a bomb, and limits of their cost.

use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use weighbridge::Result;
use weighbridge::checkpoint::Checkpoint;
use weighbridge::engine::{RunOptions, Sink, StagedFile, run};
use weighbridge::formats::{OpenOptions, registry};
use weighbridge::ops::info::info;
use weighbridge::ops::scan::scan_source;
use weighbridge::ops::stats::{StatsOptions, stats};
use weighbridge::ops::verify::{VerifyOptions, verify_checkpoint};
use weighbridge::ops::{ConvertOptions, plan_checkpoint};
use weighbridge::plan::PlannedFile;
use weighbridge::source::{FileRange, FolderRef, SourceRef};
use weighbridge::tensor::{Order, Region};
use weighbridge_fuzz::counting;

/// Largest memory use of a bomb besides its own bytes.
pub(crate) const MAX_MEMORY: u64 = 64 << 20;
/// CPU time after which a bomb fails, in a build with little optimisation; the wall-clock limit is six times as long.
const CPU_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest tensor that is measured and converted whole, in bytes.
const MAX_WHOLE: u64 = 8 << 20;
/// Largest file that is also salvaged, in bytes.
const MAX_SALVAGED: u64 = 4 << 20;
/// Largest tensor whose last element is read, in bytes.
const MAX_LAST_READ: u64 = 2 << 30;

/// A bomb.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// A file.
    File(SourceRef),
    /// A folder.
    Folder(FolderRef),
}

/// Expected result of a strict open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Opens with this number of tensors.
    Opens(usize),
    /// Refused with this error code.
    Refused(&'static str),
    /// Refused, or opens with at most 100 tensors.
    Any,
}

pub(crate) use End::{Any, Opens, Refused};

/// Returns true in a process that runs a single test. Otherwise runs the current test in such a process, prints the lines of
/// its bombs, and fails if it fails.
fn is_isolated() -> bool {
    const CHILD: &str = "WEIGHBRIDGE_BOMBS_ALONE";
    let thread = std::thread::current();
    // With `--test-threads 1` tests run one by one in the main thread.
    let Some(name) = thread.name().filter(|&name| name != "main" && std::env::var_os(CHILD).is_none()) else {
        return true;
    };
    let mut child = Command::new(std::env::current_exe().unwrap());
    let ended = child.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    output.lines().filter(|line| line.contains(" KiB ")).for_each(|line| println!("{line}"));
    assert!(ended.status.success(), "{output}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(output.contains("1 passed"), "{name} was not run: {output}");
    false
}

/// Runs bombs of one format and collects failures.
pub(crate) struct Range {
    format: &'static str,
    failures: Vec<String>,
}

impl Range {
    /// Starts a run for bombs of a format, in a separate process, because the memory of all threads is counted together. Returns
    /// `None` if the current test has passed in such a process.
    pub(crate) fn alone(format: &'static str) -> Option<Self> {
        if !is_isolated() {
            return None;
        }
        // Panic output would allocate memory outside the library.
        weighbridge::quiet_panics();
        Some(Self { format, failures: Vec::new() })
    }

    /// Runs a file of these bytes.
    pub(crate) fn file(&mut self, name: &str, bytes: Vec<u8>, end: End) {
        self.source(name, super::made::bytes(bytes), end);
    }

    /// Runs a file.
    pub(crate) fn source(&mut self, name: &str, source: SourceRef, end: End) {
        self.run(name, &Input::File(source), MAX_MEMORY, end);
    }

    /// Runs a folder.
    pub(crate) fn folder(&mut self, name: &str, folder: FolderRef, end: End) {
        self.run(name, &Input::Folder(folder), MAX_MEMORY, end);
    }

    /// Runs a file that may open or be refused.
    pub(crate) fn any(&mut self, name: &str, bytes: Vec<u8>) {
        self.run(name, &Input::File(super::made::bytes(bytes)), MAX_MEMORY, Any);
    }

    /// Runs all operations on a bomb, with a limit of memory in bytes.
    pub(crate) fn run(&mut self, name: &str, input: &Input, memory: u64, end: End) {
        let stop = watch_for_hang(format!("{} {name}", self.format));
        let (begun, before) = (Instant::now(), cpu_time());
        let (found, peak) = counting::peak_of_all(|| use_in_every_way(self.format, input));
        let took = cpu_time().zip(before).map_or(begun.elapsed(), |(now, before)| now.saturating_sub(before));
        drop(stop);
        let peak = u64::try_from(peak).unwrap_or(0);
        println!("{:>8.2} s {:>6} KiB  {} {name}: {found:?}", took.as_secs_f64(), peak >> 10, self.format);
        if peak > memory {
            self.failures.push(format!("{name}: {peak} bytes of memory, at most {memory}"));
        }
        let as_expected = match end {
            Opens(tensors) => found == format!("opens {tensors}"),
            Refused(code) => found == code,
            // A small correct result.
            Any => {
                found.strip_prefix("opens ").is_none_or(|count| count.parse::<u64>().is_ok_and(|n| n <= 100))
            }
        };
        if !as_expected {
            self.failures.push(format!("{name}: {found:?} instead of {end:?}"));
        }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.failures.is_empty(), "{}:\n{}", self.format, self.failures.join("\n"));
        }
    }
}

/// Returns the CPU time of this process, if the system reports it. Wall-clock time depends on other processes.
fn cpu_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields after the name in brackets, in ticks of 10 ms.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

/// Aborts the process after [`CPU_TIMEOUT`], unless the returned sender is dropped first: a thread cannot be stopped.
fn watch_for_hang(name: String) -> Sender<()> {
    let (stop, stopped) = channel::<()>();
    let (begun, before) = (Instant::now(), cpu_time().unwrap_or_default());
    std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
            let took = cpu_time().map_or(begun.elapsed(), |now| now.saturating_sub(before));
            if took > CPU_TIMEOUT || begun.elapsed() > CPU_TIMEOUT * 6 {
                use std::io::Write;
                // Not by eprintln!, which the test harness captures.
                let _ = std::io::stderr().write_all(format!("\nhangs: {name}\n").as_bytes());
                std::process::abort();
            }
        }
    });
    stop
}

/// Opens a bomb in every mode, examines and scans it. Returns the result of the strict open: `opens N`, or the error code.
fn use_in_every_way(format: &'static str, input: &Input) -> String {
    let mut end = None;
    // The list of losses takes several times the memory of the names in it.
    let small = match input {
        Input::File(source) => source.len() <= MAX_SALVAGED,
        Input::Folder(_) => true,
    };
    for (lenient, salvage) in [(false, false), (true, false), (true, true)] {
        if salvage && !small {
            continue;
        }
        for named in [None, Some(format.to_owned())] {
            let options = OpenOptions { lenient, salvage, format: named, ..OpenOptions::default() };
            let opened = open(input, &options);
            let is_open = opened.is_ok();
            match &opened {
                Ok(checkpoint) => examine(checkpoint),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            // If detection fails, the result is that with a named format.
            let unknown =
                opened.as_ref().is_err_and(|e| matches!(e.code().as_str(), "unknown-format" | "not-a-file"));
            if end.is_none() && !unknown {
                end = Some(match opened {
                    Ok(checkpoint) => format!("opens {}", checkpoint.tensors.len()),
                    Err(error) => error.code().as_str().to_owned(),
                });
            }
            if is_open {
                break;
            }
        }
    }
    if let Input::File(source) = input {
        for named in [None, Some(format.to_owned())] {
            match scan_source(source, &OpenOptions { format: named, ..OpenOptions::default() }) {
                Ok(scanned) => assert!(!scanned.label.is_empty()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    end.unwrap_or_else(|| "unknown-format".to_owned())
}

fn open(input: &Input, options: &OpenOptions) -> Result<Checkpoint> {
    match input {
        Input::File(source) => registry().open_source(source.clone(), options),
        Input::Folder(folder) => registry().open_folder(folder, options),
    }
}

/// Runs all operations of the command on an opened file.
fn examine(checkpoint: &Checkpoint) {
    assert!(serde_json::to_writer(std::io::sink(), &checkpoint.as_json()).is_ok());
    assert!(info(checkpoint).to_json().is_object());
    match verify_checkpoint(checkpoint, &VerifyOptions::default()) {
        Ok(report) => assert!(serde_json::to_writer(std::io::sink(), &report.as_json(true)).is_ok()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for tensor in checkpoint.tensors.iter().take(3) {
        if tensor.bytes() <= MAX_WHOLE {
            match stats(tensor, &StatsOptions::default()) {
                Ok(stats) => assert_eq!(Some(stats.count), tensor.shape.elements()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        if (1..=MAX_LAST_READ).contains(&tensor.bytes()) && tensor.dtype().size().is_some() {
            let start = tensor.shape.dims().iter().map(|size| size - 1).collect();
            let region = Region { start, shape: vec![1; tensor.shape.rank()] };
            if let Err(error) = tensor.read_region(&region, Order::Row) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
    let npz = registry().by_id("npz").unwrap();
    match plan_checkpoint(checkpoint.clone(), npz, None, &ConvertOptions::default()) {
        Ok(plan) if plan.bytes() <= MAX_WHOLE => {
            let options = RunOptions { memory: 16 << 20, sync: false, ..RunOptions::default() };
            if let Err(error) = run(&plan, &NullSink, &options) {
                assert!(!error.to_string().is_empty());
            }
        }
        Ok(plan) => assert!(!plan.files.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Discards all output.
#[derive(Debug)]
struct NullSink;

impl Sink for NullSink {
    fn stage(&self, _: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        Ok(Box::new(Self))
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn publish(&self) -> Result<()> {
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self) {}
}

impl StagedFile for NullSink {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn copy_from(&self, _: FileRange<'_>, _: u64, _: u64, len: u64) -> Result<u64> {
        Ok(len)
    }
}

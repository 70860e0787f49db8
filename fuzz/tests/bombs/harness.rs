//! What is done with a bomb, and what it may take.

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

/// What a bomb may take beside itself.
pub(crate) const MEMORY: u64 = 64 << 20;
/// The time of a processor after which a bomb fails, in a build with little optimisation; six times as long on the clock.
const STUCK: Duration = Duration::from_secs(60);
/// Tensors up to this length are counted and converted as a whole.
const WHOLE: u64 = 8 << 20;
/// Files up to this length are opened as far as possible, too.
const SALVAGED: u64 = 4 << 20;
/// Of tensors up to this length the last element is read.
const LAST: u64 = 2 << 30;

/// The bomb.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// A file.
    File(SourceRef),
    /// A folder.
    Folder(FolderRef),
}

/// What opening it strictly shall come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It opens with that many tensors.
    Opens(usize),
    /// It is refused with this code.
    Refused(&'static str),
    /// Either, with no more than a hundred tensors.
    Any,
}

pub(crate) use End::{Any, Opens, Refused};

/// True in a process that runs one test. Elsewhere starts such a process for the current test, prints the lines of its bombs,
/// and fails where it fails.
fn is_alone() -> bool {
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

/// Bombs that are set off one after the other.
pub(crate) struct Range {
    format: &'static str,
    wrong: Vec<String>,
}

impl Range {
    /// For bombs of that format, in a process of their own, as the memory of all threads is counted together. `None` where
    /// the current test passed in such a process.
    pub(crate) fn alone(format: &'static str) -> Option<Self> {
        if !is_alone() {
            return None;
        }
        // What a panic prints takes memory that is not the library's.
        weighbridge::quiet_panics();
        Some(Self { format, wrong: Vec::new() })
    }

    /// A file of these bytes.
    pub(crate) fn file(&mut self, name: &str, bytes: Vec<u8>, end: End) {
        self.source(name, super::made::bytes(bytes), end);
    }

    /// A file.
    pub(crate) fn source(&mut self, name: &str, source: SourceRef, end: End) {
        self.set_off(name, &Input::File(source), MEMORY, end);
    }

    /// A folder.
    pub(crate) fn folder(&mut self, name: &str, folder: FolderRef, end: End) {
        self.set_off(name, &Input::Folder(folder), MEMORY, end);
    }

    /// A file that may open or be refused.
    pub(crate) fn any(&mut self, name: &str, bytes: Vec<u8>) {
        self.set_off(name, &Input::File(super::made::bytes(bytes)), MEMORY, Any);
    }

    /// Uses it in every way; `memory` is what it may take.
    pub(crate) fn set_off(&mut self, name: &str, input: &Input, memory: u64, end: End) {
        let stop = progress(format!("{} {name}", self.format));
        let (begun, before) = (Instant::now(), processor());
        let (found, peak) = counting::peak_of_all(|| use_it(self.format, input));
        let took =
            processor().zip(before).map_or(begun.elapsed(), |(now, before)| now.saturating_sub(before));
        drop(stop);
        let peak = u64::try_from(peak).unwrap_or(0);
        println!("{:>8.2} s {:>6} KiB  {} {name}: {found:?}", took.as_secs_f64(), peak >> 10, self.format);
        if peak > memory {
            self.wrong.push(format!("{name}: {peak} bytes of memory, at most {memory}"));
        }
        let as_wished = match end {
            Opens(tensors) => found == format!("opens {tensors}"),
            Refused(code) => found == code,
            // A small true result.
            Any => {
                found.strip_prefix("opens ").is_none_or(|count| count.parse::<u64>().is_ok_and(|n| n <= 100))
            }
        };
        if !as_wished {
            self.wrong.push(format!("{name}: {found:?} instead of {end:?}"));
        }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.wrong.is_empty(), "{}:\n{}", self.format, self.wrong.join("\n"));
        }
    }
}

/// Time that processors spent on this process, where the system tells: others may keep them busy.
fn processor() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which is in brackets: in ticks, of which 100 are a second.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

/// Ends the process after [`STUCK`], unless what is given is dropped before: a thread cannot be stopped.
fn progress(name: String) -> Sender<()> {
    let (stop, stopped) = channel::<()>();
    let (begun, before) = (Instant::now(), processor().unwrap_or_default());
    std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
            let took = processor().map_or(begun.elapsed(), |now| now.saturating_sub(before));
            if took > STUCK || begun.elapsed() > STUCK * 6 {
                use std::io::Write;
                // Not by eprintln!, which the test harness would keep to itself.
                let _ = std::io::stderr().write_all(format!("\nhangs: {name}\n").as_bytes());
                std::process::abort();
            }
        }
    });
    stop
}

/// What opening it strictly came to: `opens`, or the code of the error.
fn use_it(format: &'static str, input: &Input) -> String {
    let mut end = None;
    // A list of what is lost takes several times the memory of the names in it.
    let small = match input {
        Input::File(source) => source.len() <= SALVAGED,
        Input::Folder(_) => true,
    };
    for (lenient, salvage) in [(false, false), (true, false), (true, true)] {
        if salvage && !small {
            continue;
        }
        for told in [None, Some(format.to_owned())] {
            let options = OpenOptions { lenient, salvage, format: told, ..OpenOptions::default() };
            let opened = open(input, &options);
            let known = opened.is_ok();
            match &opened {
                Ok(checkpoint) => examine(checkpoint),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            // What is not recognised is told of what it is when the format is named.
            let unknown =
                opened.as_ref().is_err_and(|e| matches!(e.code().as_str(), "unknown-format" | "not-a-file"));
            if end.is_none() && !unknown {
                end = Some(match opened {
                    Ok(checkpoint) => format!("opens {}", checkpoint.tensors.len()),
                    Err(error) => error.code().as_str().to_owned(),
                });
            }
            if known {
                break;
            }
        }
    }
    if let Input::File(source) = input {
        for told in [None, Some(format.to_owned())] {
            match scan_source(source, &OpenOptions { format: told, ..OpenOptions::default() }) {
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

/// All that the command does with an opened file.
fn examine(checkpoint: &Checkpoint) {
    assert!(serde_json::to_writer(std::io::sink(), &checkpoint.as_json()).is_ok());
    assert!(info(checkpoint).to_json().is_object());
    match verify_checkpoint(checkpoint, &VerifyOptions::default()) {
        Ok(report) => assert!(serde_json::to_writer(std::io::sink(), &report.as_json(true)).is_ok()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for tensor in checkpoint.tensors.iter().take(3) {
        if tensor.bytes() <= WHOLE {
            match stats(tensor, &StatsOptions::default()) {
                Ok(stats) => assert_eq!(Some(stats.count), tensor.shape.elements()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        if (1..=LAST).contains(&tensor.bytes()) && tensor.dtype().size().is_some() {
            let start = tensor.shape.dims().iter().map(|extent| extent - 1).collect();
            let region = Region { start, shape: vec![1; tensor.shape.rank()] };
            if let Err(error) = tensor.read_region(&region, Order::Row) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
    let npz = registry().by_id("npz").unwrap();
    match plan_checkpoint(checkpoint.clone(), npz, None, &ConvertOptions::default()) {
        Ok(plan) if plan.bytes() <= WHOLE => {
            let options = RunOptions { memory: 16 << 20, sync: false, ..RunOptions::default() };
            if let Err(error) = run(&plan, &Nowhere, &options) {
                assert!(!error.to_string().is_empty());
            }
        }
        Ok(plan) => assert!(!plan.files.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Keeps nothing.
#[derive(Debug)]
struct Nowhere;

impl Sink for Nowhere {
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

impl StagedFile for Nowhere {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn copy_from(&self, _: FileRange<'_>, _: u64, _: u64, len: u64) -> Result<u64> {
        Ok(len)
    }
}

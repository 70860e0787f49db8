use super::*;

/// Length of the windows of the source.
const WINDOW: u64 = 16 << 20;
/// Length of their overlap.
const OVERLAP: u64 = 2 << 20;

use crate::source::{FileSource, MemorySource};
use std::io::Write;

#[test]
fn mapped_and_read_ranges_are_equal() {
    let len = usize::try_from(WINDOW).unwrap() * 2 + 12345;
    let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let file = FileSource::open(file.path()).unwrap();
    let memory = MemorySource::new("m", bytes.clone());
    let _table = guarded();
    let (windows, others) = (MapWindows::default(), MapWindows::default());
    let megabyte = 1 << 20;
    for start in [0, 5, WINDOW - megabyte, WINDOW - 1, WINDOW, WINDOW + OVERLAP, 2 * WINDOW - 1, 2 * WINDOW] {
        for wanted in [0, 1, megabyte, 3 * megabyte, WINDOW] {
            let wanted = wanted.min(len as u64 - start);
            let from = usize::try_from(start).unwrap();
            let truth = &bytes[from..from + usize::try_from(wanted).unwrap()];
            for held in [
                windows.get(&file, start, wanted, Vec::new()),
                others.get(&memory, start, wanted, vec![1; 9]),
                MaybeMapped::of(&file, start, wanted, vec![1; 9]),
            ] {
                let held = held.unwrap();
                assert!(held.bytes() == truth, "{start} {wanted}");
                held.intact().unwrap();
            }
        }
    }
    assert_eq!(windows.get(&file, len as u64, 1, Vec::new()).unwrap_err().code().as_str(), "past-the-end");
}

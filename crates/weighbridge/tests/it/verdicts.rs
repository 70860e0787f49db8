//! Files of tables and archives, each in a folder named after its verdict. `judges/make_verdicts.py` describes them.

use crate::support::testdata;
use std::path::Path;
use weighbridge::finding::Verdict;
use weighbridge::ops::verify::{VerifyOptions, verify};

fn codes(path: &Path) -> (Verdict, Vec<&'static str>) {
    let report = verify(path, &VerifyOptions::default()).unwrap();
    (report.verdict, report.findings.iter().map(|finding| finding.code.as_str()).collect())
}

#[test]
fn files_get_the_verdict_of_their_folder() {
    for (name, expected) in
        [("sound", Verdict::Sound), ("could-not-tell", Verdict::CouldNotTell), ("unsound", Verdict::Unsound)]
    {
        let mut count = 0;
        for entry in std::fs::read_dir(testdata("verdicts").join(name)).unwrap() {
            let path = entry.unwrap().path();
            let (verdict, codes) = codes(&path);
            assert_eq!(verdict, expected, "{}: {codes:?}", path.display());
            count += 1;
        }
        assert!(count > 5, "{name}: {count}");
    }
}

#[test]
fn encrypted_files_are_reported_as_encrypted() {
    for (name, code) in [
        ("encrypted-columns.parquet", "encrypted"),
        ("encrypted-footer.parquet", "encrypted"),
        ("encrypted.npz", "zip-encrypted"),
        ("version-needed.npz", "zip-version"),
        ("ragged.parquet", "ragged-list"),
    ] {
        let (_, codes) = codes(&testdata("verdicts").join("could-not-tell").join(name));
        assert!(codes.contains(&code), "{name}: {codes:?}");
    }
}

//! Edit rules from untrusted files: names that double, huge expressions, and rules at large offsets.

use crate::harness::{MAX_MEMORY, Range};
use std::sync::Arc;
use weighbridge::checkpoint::{Checkpoint, TensorEntry, TensorPath};
use weighbridge::ops::edit::{apply, parse_rules};
use weighbridge::source::{MemorySource, SourceRef};
use weighbridge::tensor::{DType, Encoding, Shape};
use weighbridge_fuzz::counting;

fn checkpoint(tensors: usize) -> Checkpoint {
    let source: SourceRef = Arc::new(MemorySource::new("bomb", Vec::new()));
    let mut checkpoint = Checkpoint::new("safetensors", "safetensors", "bomb");
    for number in 0..tensors {
        let path = TensorPath::from_dotted(&format!("t{number}"));
        let entry = TensorEntry::dense(path, DType::U8, Shape::new([0]), &source, 0, Encoding::ROW);
        checkpoint.tensors.push(entry.unwrap());
    }
    checkpoint
}

/// Reads and applies rules; returns `ok` or the error code.
fn outcome(name: &str, text: &str, tensors: usize) -> &'static str {
    let mut checkpoint = checkpoint(tensors);
    let begun = std::time::Instant::now();
    let (code, peak) = counting::peak_of_all(|| {
        let done = parse_rules(text, "bomb").and_then(|rules| apply(&mut checkpoint, &rules, true));
        done.map_or_else(|error| error.code().as_str(), |_| "ok")
    });
    println!("{:>8.2} s {:>6} KiB  rules {name}: {code}", begun.elapsed().as_secs_f64(), peak >> 10);
    assert!(u64::try_from(peak).unwrap_or(0) <= MAX_MEMORY, "{name}: {peak} bytes");
    code
}

#[test]
fn rules_that_multiply() {
    let Some(_alone) = Range::alone("rules") else { return };
    let double = "[[rule]]\nrename-regex = '(.*)={1}{1}'\n".repeat(40);
    assert_eq!(outcome("a name that doubles", &double, 1), "limit");
    assert_eq!(outcome("names that double", &double, 20_000), "names-too-long");
    let dots = "[[rule]]\nrename-regex = '(.*)={1}.{1}'\n".repeat(40);
    assert_eq!(outcome("parts that double", &dots, 1), "limit");
    let prefix = format!("[[rule]]\nprefix = '{}'\n", "a".repeat(1_000_000));
    assert_eq!(outcome("a prefix of 1 MB", &prefix, 20_000), "names-too-long");
    let list = |word: &str, one: &str, count: usize| {
        format!("[[rule]]\n{word} = [{}]\n", vec![one; count].join(","))
    };
    assert_eq!(
        outcome("long expressions", &list("rename-regex", "'.{900}=b'", 9_900), 1),
        "too-many-patterns"
    );
    assert_eq!(outcome("globs", &list("rename-glob", "'*=b'", 9_000), 1), "too-many-patterns");
    assert_eq!(outcome("lists", &list("rename", "'a=b'", 4_000).repeat(3), 1), "too-many-rules");
    let far = format!("#{}\n{}", "x".repeat(700_000), "[[rule]]\nprefix='a'\n".repeat(9_900));
    assert_eq!(outcome("rules far down", &far, 1), "limit");
    assert_eq!(outcome("globs to keep", &list("keep", "'*a*b*c*d*'", 9_000), 1_000), "too-many-patterns");
    // Each expression caches states for the names it meets.
    let learning = list("rename-regex", "'.*a.{12}=b'", 1_000);
    assert_ne!(outcome("expressions that learn", &learning, 200), "limit");
    let groups = list("rename-regex", &format!("'(a|aa)*{}t=b'", "(a?)".repeat(60)), 100);
    outcome("groups", &groups, 200);
    // Realistic rules are far below the limits.
    let kept = "[[rule]]\nkeep = ['t*']\n".repeat(1_000);
    assert_eq!(outcome("1,000 rules", &kept, 100), "ok");
    let realistic = list("rename-glob", "'*.layers.*.weight={1}.h.{2}.w'", 1_000);
    assert_eq!(outcome("1,000 globs", &realistic, 1), "ok");
}

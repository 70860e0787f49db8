//! Files of rules, which come from others too: names that double, expressions without end, and rules far down.

use crate::harness::{MEMORY, Range};
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

/// What reading and applying these rules comes to: `ok`, or the code of the error.
fn told(name: &str, text: &str, tensors: usize) -> &'static str {
    let mut checkpoint = checkpoint(tensors);
    let begun = std::time::Instant::now();
    let (code, peak) = counting::peak_of_all(|| {
        let done = parse_rules(text, "bomb").and_then(|rules| apply(&mut checkpoint, &rules, true));
        done.map_or_else(|error| error.code().as_str(), |_| "ok")
    });
    println!("{:>8.2} s {:>6} KiB  rules {name}: {code}", begun.elapsed().as_secs_f64(), peak >> 10);
    assert!(u64::try_from(peak).unwrap_or(0) <= MEMORY, "{name}: {peak} bytes");
    code
}

#[test]
fn rules_that_multiply() {
    let Some(_alone) = Range::alone("rules") else { return };
    let double = "[[rule]]\nrename-regex = '(.*)={1}{1}'\n".repeat(40);
    assert_eq!(told("a name that doubles", &double, 1), "limit");
    assert_eq!(told("names that double", &double, 20_000), "names-too-long");
    let dots = "[[rule]]\nrename-regex = '(.*)={1}.{1}'\n".repeat(40);
    assert_eq!(told("parts that double", &dots, 1), "limit");
    let prefix = format!("[[rule]]\nprefix = '{}'\n", "a".repeat(1_000_000));
    assert_eq!(told("a prefix of 1 MB", &prefix, 20_000), "names-too-long");
    let list = |word: &str, one: &str, count: usize| {
        format!("[[rule]]\n{word} = [{}]\n", vec![one; count].join(","))
    };
    assert_eq!(told("long expressions", &list("rename-regex", "'.{900}=b'", 9_900), 1), "too-many-patterns");
    assert_eq!(told("globs", &list("rename-glob", "'*=b'", 9_000), 1), "too-many-patterns");
    assert_eq!(told("lists", &list("rename", "'a=b'", 4_000).repeat(3), 1), "too-many-rules");
    let far = format!("#{}\n{}", "x".repeat(700_000), "[[rule]]\nprefix='a'\n".repeat(9_900));
    assert_eq!(told("rules far down", &far, 1), "limit");
    assert_eq!(told("globs to keep", &list("keep", "'*a*b*c*d*'", 9_000), 1_000), "too-many-patterns");
    // Each keeps what it learns of names.
    let learning = list("rename-regex", "'.*a.{12}=b'", 1_000);
    assert_ne!(told("expressions that learn", &learning, 200), "limit");
    let groups = list("rename-regex", &format!("'(a|aa)*{}t=b'", "(a?)".repeat(60)), 100);
    told("groups", &groups, 200);
    // What people write is far from that.
    let kept = "[[rule]]\nkeep = ['t*']\n".repeat(1_000);
    assert_eq!(told("1,000 rules", &kept, 100), "ok");
    let honest = list("rename-glob", "'*.layers.*.weight={1}.h.{2}.w'", 1_000);
    assert_eq!(told("1,000 globs", &honest, 1), "ok");
}

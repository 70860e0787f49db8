//! A campaign over all targets: no input may cause a panic, a hang or excessive memory use.
//! `WEIGHBRIDGE_FUZZ_INPUTS` sets the number of inputs.
#![allow(clippy::unwrap_used)]

use weighbridge_fuzz::{Outcomes, TARGETS, counting, run, run_case};

/// Default number of inputs of all targets together.
const DEFAULT_INPUTS: u64 = 200_000;

#[test]
fn malformed_input_causes_no_failure() {
    let inputs =
        std::env::var("WEIGHBRIDGE_FUZZ_INPUTS").map_or(DEFAULT_INPUTS, |text| text.parse().unwrap());
    let shares: u64 = TARGETS.iter().map(|target| target.share).sum();
    let mut failures = Vec::new();
    for target in TARGETS {
        let share = (inputs * target.share).div_ceil(shares);
        match run(target, 0, share) {
            Ok(Outcomes { opened, leniently, refused }) => {
                println!(
                    "{:<12} {opened:>8} opened, {leniently:>6} only leniently, {refused:>8} refused",
                    target.name
                );
                // Mutations must reach the parsers, and some inputs must still open.
                assert!(opened > share / 100, "{}: only {opened} of {share} were opened", target.name);
            }
            Err(more) => failures.extend(more),
        }
    }
    assert!(failures.is_empty(), "cargo run --release -p weighbridge-fuzz -- ...\n{}", failures.join("\n"));
}

/// Seeds cause no failures, every format has a target, and the memory counters count.
#[test]
fn seeds_targets_and_counters_are_valid() {
    for format in weighbridge::formats::ALL {
        assert!(TARGETS.iter().any(|target| target.name == format.info().id), "{}", format.info().id);
    }
    for target in TARGETS {
        let seeds = target.seeds();
        assert!(!seeds.is_empty(), "{}", target.name);
        for seed in seeds {
            let outcome = run_case(target, &seed.bytes);
            assert!(outcome.is_ok(), "{} {}: {outcome:?}", target.name, seed.path.display());
        }
    }
    let (bytes, peak) = counting::peak_of(|| vec![1u8; 3 << 20]);
    assert!((3 << 20..4 << 20).contains(&peak), "{peak} for {} bytes", bytes.len());
}

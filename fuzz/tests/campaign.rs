//! Inputs spread over the targets: none may bring the library to panic, to hang, or to take memory.
//! `WEIGHBRIDGE_FUZZ_INPUTS` sets another number.
#![allow(clippy::unwrap_used)]

use weighbridge_fuzz::{Outcomes, TARGETS, counting, run, run_case};

/// Inputs of all targets together, where nobody says otherwise.
const INPUTS: u64 = 200_000;

#[test]
fn hostile_input_does_no_harm() {
    let inputs = std::env::var("WEIGHBRIDGE_FUZZ_INPUTS").map_or(INPUTS, |text| text.parse().unwrap());
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
                // Damage must reach the parsers, and some of it must leave something to examine.
                assert!(opened > share / 100, "{}: only {opened} of {share} were opened", target.name);
            }
            Err(more) => failures.extend(more),
        }
    }
    assert!(failures.is_empty(), "cargo run --release -p weighbridge-fuzz -- ...\n{}", failures.join("\n"));
}

/// The seeds themselves do no harm and are taken for what they are, there is a target for every format, and the counters count.
#[test]
fn the_campaign_itself_works() {
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

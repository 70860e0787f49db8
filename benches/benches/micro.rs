//! In-memory microbenchmarks: transposes, casts, parsing. `cargo bench --profile dist -p weighbridge-benches --bench micro`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs)]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use weighbridge::tensor::{DType, Order, cast, relayout};
use weighbridge_benches::write_primitiv_model;

fn main() {
    divan::main();
}

/// Baseline for the others: a plain copy of the same bytes.
#[divan::bench]
fn copy_64_mib(bencher: Bencher<'_, '_>) {
    let src = vec![1u8; 64 << 20];
    let mut dst = vec![0u8; 64 << 20];
    bencher
        .counter(BytesCount::new(src.len()))
        .bench_local(|| black_box(&mut dst).copy_from_slice(black_box(&src)));
}

#[divan::bench(args = [1, 2, 4, 8])]
fn transpose_64_mib(bencher: Bencher<'_, '_>, size: usize) {
    let side = [8192, (64 << 20) / 8192 / size];
    let src = vec![1u8; 64 << 20];
    let mut dst = vec![0u8; 64 << 20];
    bencher.counter(BytesCount::new(src.len())).bench_local(|| {
        relayout(black_box(&src), Order::Column, black_box(&mut dst), Order::Row, &side, size)
    });
}

#[divan::bench(args = [(DType::F32, DType::BF16), (DType::F32, DType::F16), (DType::BF16, DType::F32), (DType::F64, DType::F32)])]
fn cast_16_mib(bencher: Bencher<'_, '_>, (from, to): (DType, DType)) {
    let src = vec![1u8; 16 << 20];
    bencher.counter(BytesCount::new(src.len())).bench_local(|| {
        let mut out = Vec::new();
        cast(black_box(&src), from, to, &mut out).unwrap();
        out
    });
}

#[divan::bench]
fn open_100_000_tensors(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("many.model");
    write_primitiv_model(&path, 100_000, 4, 4).unwrap();
    bencher.bench_local(|| weighbridge::formats::open(black_box(&path)).unwrap());
}

//! The time of encoding and decoding: `cargo bench --bench codec`, run in `benches/`.

#![allow(clippy::indexing_slicing, missing_docs, reason = "a benchmark")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};

#[expect(unreachable_pub, reason = "shared by two benchmarks")]
#[path = "../../protocol/benches/workloads/mod.rs"]
mod workloads;

fn codec(criterion: &mut Criterion) {
    for workload in workloads::WORKLOADS {
        let input = (workload.input)();
        let mut output = Vec::with_capacity(1 << 20);
        criterion.bench_function(workload.name, |bencher| {
            bencher.iter(|| {
                output.clear();
                (workload.run)(black_box(&input), black_box(&mut output))
            });
        });
    }
}

criterion_group!(benches, codec);
criterion_main!(benches);

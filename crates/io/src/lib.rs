//! Files and folders of this machine for Weighbridge: positional reads, guarded maps, and the engine that carries
//! out a [`WritePlan`](weighbridge_core::plan::WritePlan) in parallel, in bounded memory, and makes the result
//! visible all at once.

pub mod engine;
pub mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

//! Integration tests of the library: one binary for all of them, because each binary links the whole library.
//!
//! A test that needs its own process is a file beside this folder, with the reason.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, clippy::panic)]

mod account;
mod biggraph_change;
mod biggraph_damaged;
mod biggraph_edge_list;
mod biggraph_entities;
mod biggraph_evaluate;
mod biggraph_golden;
mod biggraph_write;
mod cast;
mod detection;
mod engine;
mod engine_folder;
mod engine_stream;
mod faults;
mod format_tables;
mod house;
mod limits;
mod onnx_export;
mod onnx_operators;
mod paddle_convert;
mod paddle_damaged;
mod paddle_edit;
mod paddle_golden;
mod paddle_names;
mod paddle_scan;
mod primitiv_edge;
mod primitiv_trained;
mod roundtrip;
mod salvage;
mod scan_rules;
mod store;
mod store_kill;
mod support;
mod verdicts;
mod words;
mod written;

//! Execution of programs that save and load tensors. In Paddle's original design, a program saves a model, and
//! another program loads it.
//!
//! Only operators that move tensors are supported; programs with other operators are rejected before anything
//! runs. Only the main block is run, in order.
//!
//! | operator | inputs → outputs | attributes (default) |
//! | --- | --- | --- |
//! | `feed` | → Out | col |
//! | `fetch` | X → | col |
//! | `save` | X → | file_path, overwrite (true), save_as_fp16 (false) |
//! | `load` | → Out | file_path, seek (-1), shape, load_as_fp16 (false) |
//! | `save_combine` | X, X, … → | as `save` |
//! | `load_combine` | → Out, Out, … | file_path, load_as_fp16 (false) |
//! | `fill_constant` | → Out | shape (of a scalar), dtype (FP32), value (0), str_value |
//! | `assign` | X → Out | |
//! | `cast` | X → Out | out_dtype |
//! | `scale` | X, ScaleTensor? → Out | scale (1), bias (0), bias_after_scale (true) |
//!
//! The operators behave as in Paddle 2.6.2 on the CPU, and files are identical byte for byte.
//! A loaded tensor is a range of its file, and a saved one a copy of ranges: `load`, `assign` and
//! `save` move no data. Casts to floats are done while a file is written. The results of `fill_constant`,
//! `scale` and casts to integers are kept in memory, up to [`Executor::memory`].
//!
//! Differences from Paddle are stricter checks, or definitions where C++ is undefined:
//!
//! - All operators, their arguments, attributes and paths are checked before the first one runs;
//!   a variable must have a value before it is read.
//! - Programs may be untrusted: files are read and written below one folder only. Components `.` of a path
//!   are dropped. A path with `..`, or an absolute one outside the folder, is rejected. A path with a symbolic
//!   link below the folder is rejected, regardless of its target, because a model may contain links. The folder
//!   itself may be a link.
//! - A saved file is complete or absent. A truncated file is not loaded, nor are elements beyond the end (`seek`).
//! - A float converted to an integer is truncated towards zero. Values out of range saturate, and NaN becomes 0;
//!   in C++ the result is undefined. Integers wrap, as in Paddle.
//! - `save` supports booleans and complex numbers; in 2.6.2 only `save_combine` does.
//! - The words of a vocabulary keep their bytes and their order in the file.

mod action;
mod arguments;
mod compute;
mod element;
mod number;
mod path;
mod run;
mod scope;
mod step;
mod storage;
#[cfg(test)]
mod tests;

pub use run::{Done, Executor};
pub use scope::{Scope, Value};
pub use step::Step;

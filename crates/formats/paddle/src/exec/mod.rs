//! Running programs that save and load: as Paddle was designed, a model is saved by a program
//! that an executor runs, and loaded by another one.
//!
//! Only operators that move tensors are known; whatever else a program does, it is refused before
//! anything runs. Only the main block is run, in order.
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
//! They mean what they mean to Paddle 2.6.2 on the CPU, and files come out byte for byte as its own.
//! A loaded tensor is a range of its file and a saved one a copy of ranges: `load`, `assign` and
//! `save` move no data. Casts to floats are done while a file is written. What `fill_constant`,
//! `scale` and casts to integers make stands in memory, up to [`Executor::memory`].
//!
//! Where it differs from Paddle, it is stricter, or says what C++ leaves open:
//!
//! - All operators, their arguments, attributes and paths are checked before the first one runs;
//!   a variable must have a value before it is read.
//! - A program may come from a stranger: files are read and written below one folder only. Parts of
//!   a path that are `.` are dropped; one with `..`, or an absolute one that does not lie below the
//!   folder, is refused. So is a path of which a part below the folder is a symbolic link, wherever it
//!   leads: a model from a stranger may bring links along. The folder itself may be one.
//! - A saved file is there whole or not at all. A file that is cut short is not loaded, nor are
//!   elements behind the end (`seek`).
//! - A float that becomes an integer is cut towards zero. One that does not fit becomes the nearest
//!   integer that does, and NaN becomes 0; in C++ that is undefined. Integers wrap, as in Paddle.
//! - `save` takes truth values and complex numbers too; in 2.6.2 only `save_combine` does.
//! - The words of a Vocab are kept as they stand in the file, in its order.

mod action;
mod arguments;
mod compute;
mod element;
mod number;
mod place;
mod run;
mod scope;
mod step;
mod storage;
#[cfg(test)]
mod tests;

pub use run::{Done, Executor};
pub use scope::{Scope, Value};
pub use step::Step;

//! Tensors as streams of bytes.

//! Caffe.

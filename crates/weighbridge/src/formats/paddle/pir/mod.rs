//! Programs as JSON, of Paddle 3: PIR.

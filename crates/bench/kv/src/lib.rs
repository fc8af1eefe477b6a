//! Named key-value workloads against the engine, each beside the time that its bare memory accesses take.
#![forbid(unsafe_code)]

//! Load over sockets for any server that speaks the Redis or the memcached protocol. It links no engine, so
//! every server is measured by the same client.
#![forbid(unsafe_code)]

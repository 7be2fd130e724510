//! Messages: MPI's order against an oracle, bounded memory, and that nothing legal waits for ever.

extern crate alloc;

mod host;
mod inline;
mod matching;
mod million;
mod misbehaving_peer;
mod point_to_point;
mod storage;

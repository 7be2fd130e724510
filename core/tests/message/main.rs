//! Point-to-point messages: MPI's order against an oracle, bounded memory, and no deadlock in correct programs.

extern crate alloc;

mod host;
mod inline;
mod matching;
mod million;
mod misbehaving_peer;
mod one_machine;
mod point_to_point;
mod storage;

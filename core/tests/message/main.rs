//! Messages: MPI's order against an oracle, bounded memory, and that nothing legal waits for ever.

extern crate alloc;

mod admission;
mod hostile;
mod lent;
mod matching;
mod million;
mod rim;
mod short;

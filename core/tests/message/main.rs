//! Messages: MPI's order against an oracle, bounded memory, and that nothing legal waits for ever.

mod admission;
mod lent;
mod matching;
mod million;
mod rim;

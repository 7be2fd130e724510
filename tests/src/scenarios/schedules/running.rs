//! A running collective of one rank: its executor and its bytes.

use unisono_core::ids::{CollectiveId, Rank, StepId};
use unisono_core::schedule::{BlockBuffer, BlockSpan, ByteRange, Executor, Fold, Plan, Spec, StepOperation};

use super::Workload;
use super::expected_result::{Buffers, GRAIN, compose};

/// A running collective.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) work: usize,
    pub(super) executor: Executor,
    buffers: Buffers,
    memory: Vec<u8>,
    scratch: Vec<u8>,
}

impl Running {
    pub(super) fn new(work: usize, of: &Workload, rank: Rank) -> Self {
        let plan = Plan::new(Spec { rank, ..of.call }).expect("a list of schedules that exist");
        let buffers = Buffers::new(of, &plan);
        let scratch = vec![0xdd; buffers.layout().scratch_bytes(plan.scratch_blocks())];
        let memory = buffers.filled(plan.spec());
        let id = CollectiveId { context: 1, sequence: work as u32 };
        Self { work, executor: Executor::new(id, plan), buffers, memory, scratch }
    }

    fn bytes(&mut self, piece: &ByteRange) -> &mut [u8] {
        let (memory, begin) = match piece.buffer {
            BlockBuffer::Input => (&mut self.memory, self.buffers.begin[0]),
            BlockBuffer::Output => (&mut self.memory, self.buffers.begin[1]),
            BlockBuffer::Scratch => (&mut self.scratch, 0),
        };
        &mut memory[begin + piece.offset..][..piece.bytes]
    }

    pub(super) fn length(&self, span: BlockSpan) -> u32 {
        self.buffers.layout().pieces(span).map(|piece| piece.bytes as u32).sum()
    }

    pub(super) fn gather(&mut self, span: BlockSpan) -> Vec<u8> {
        let pieces: Vec<ByteRange> = self.buffers.layout().pieces(span).collect();
        pieces.iter().flat_map(|piece| self.bytes(piece).to_vec()).collect()
    }

    pub(super) fn scatter(&mut self, span: BlockSpan, mut bytes: &[u8]) {
        let pieces: Vec<ByteRange> = self.buffers.layout().pieces(span).collect();
        for piece in &pieces {
            let (now, rest) = bytes.split_at(piece.bytes);
            self.bytes(piece).copy_from_slice(now);
            bytes = rest;
        }
        assert!(bytes.is_empty(), "a message as long as its receive");
    }

    /// A copy, or with a side a reduction.
    pub(super) fn combine(&mut self, from: BlockSpan, into: BlockSpan, fold: Option<Fold>) {
        let pairs: Vec<(ByteRange, ByteRange)> = self.buffers.layout().pairs(from, into).collect();
        for (from, into) in &pairs {
            let from = self.bytes(from).to_vec();
            let into = self.bytes(into);
            let Some(fold) = fold else {
                into.copy_from_slice(&from);
                continue;
            };
            for (from, into) in from.chunks(GRAIN).zip(into.chunks_mut(GRAIN)) {
                into.copy_from_slice(&match fold {
                    Fold::Left => compose(from, into),
                    Fold::Right => compose(into, from),
                });
            }
        }
    }

    pub(super) fn receive_of(&self, step: StepId) -> BlockSpan {
        match self.executor.plan().step(step.0).map(|step| step.operation) {
            Some(StepOperation::Receive { into, .. }) => into,
            other => panic!("a receive: {other:?}"),
        }
    }

    /// Its final output, and perhaps more bytes after it.
    pub(super) fn output(mut self) -> Vec<u8> {
        self.memory.split_off(self.buffers.begin[1])
    }
}

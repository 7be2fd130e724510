//! Alltoalls by remote writes: the exchange of keys, the writes, and the values that announce the blocks of others.

use unisono_core::collective::{CollectiveKind, CollectiveSpec, FailureCause, Order};
use unisono_core::device::Memory as _;
use unisono_core::ids::{Rank as Member, RemoteKey};
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::{Immediate, RemoteSpan, Rights, RmaError};
use unisono_core::span::{Region, Span};

use super::Process;
use super::remote_access::{CallEnd, CallMemory, StartError};
use crate::world::collective::engine::progress_table::CollectiveTable;
use crate::world::collective::engine::rdma_all_to_all::{
    BlockWrite, Exchange, NextWrite, OUTPUT, OpenedOutputs, RdmaAllToAll, RemoteOutput, immediate,
};
use crate::world::collective::engine::schedule::mix;
use crate::world::collective::partition::Shape;
use crate::world::window::memory::WindowMemory;
use unisono_bootstrap::Rank;

impl Process {
    /// Starts the exchange of a call that was started, if remote writes execute it: an allgather of the keys, or a
    /// barrier where all ranks have them. If that fails, the call has ended.
    pub(super) fn start_exchange(&mut self, now: u64, collective: u32) {
        let Some(running) = self.collectives.get_mut(collective) else { return };
        let context = running.executor.id().context;
        if running.executor.rdma().is_some_and(RdmaAllToAll::is_exchanging)
            && self.try_exchange(now, collective).is_none()
        {
            self.fail_locally(context);
        }
    }

    /// Starts it. `None`: there is no memory, or no region.
    fn try_exchange(&mut self, now: u64, collective: u32) -> Option<()> {
        let running = self.collectives.get_mut(collective)?;
        let (id, output, agreed, number) = (running.executor.id(), running.output, running.context, running.start.call);
        let plan = running.executor.plan();
        let (rank, size, bytes) = (plan.rank(), plan.size(), plan.bytes().saturating_mul(plan.size() as usize));
        let (kind, own, exposed) = match running.executor.rdma().and_then(|call| call.key) {
            Some(_) => (CollectiveKind::Barrier, 0, None),
            None => (CollectiveKind::Allgather, OUTPUT, Some(self.expose_output(collective, output, bytes)?)),
        };
        let (regions, all) = (self.transport.regions.get_mut(), own.saturating_mul(size as usize));
        let block = self.collectives.scratch.allocate(own + all, regions);
        let part = block.and_then(|block| Some((block, block.part(u32::try_from(own + all).ok()?))));
        let start = part.and_then(|(block, part)| Some((block, regions.address(part)?.adjacent()?)));
        let (block, start) = start?;
        if let (Some(exposed), Some(to)) = (exposed, regions.address(block.part(OUTPUT as u32))) {
            // SAFETY: the block was allocated just now, and nobody else uses it.
            unsafe { to.write(&exposed.encode()) };
        }
        // SAFETY: the block is at least as long as both buffers.
        let gathered = unsafe { start.add(own) };
        let spec = CollectiveSpec {
            collective: kind,
            rank,
            size,
            root: Member(0),
            bytes: own,
            grain: 1,
            order: Order::Any,
            in_place: false,
            reduction_id: 0,
        };
        let buffers = ((start, own), (gathered, all));
        // SAFETY: the block stays allocated until the exchange has ended, and nobody else uses it.
        let prepared = unsafe {
            self.prepare_collective((id.context, false), &spec, Shape::default(), buffers.0, buffers.1, &mut None)
        };
        let Ok(exchange) = prepared else {
            self.collectives.scratch.release(block, self.transport.regions.get_mut());
            return None;
        };
        let running = self.collectives.get_mut(exchange)?;
        running.exchange = Some(Exchange { of: collective, block });
        // Ranks whose calls differ find out by the messages of the exchange.
        running.context = id.context << 16 | mix(running.context, agreed) & 0xffff;
        self.collectives.start(now, exchange, number);
        // What fails is the user's call.
        if let Some(of) = self.collectives.contexts.get_mut(id.context) {
            of.started.last.verb = CollectiveKind::Alltoall;
        }
        Some(())
    }

    /// Lets the other ranks write into the output of a call. `None`: there are too many regions.
    fn expose_output(&mut self, collective: u32, output: Region, bytes: usize) -> Option<RemoteOutput> {
        let key = RemoteKey(self.transport.keys.next());
        let key = self.remote_machine().ok()?.rma.regions.register(output, 0, bytes, Rights::WRITE, key).ok()?;
        let call = self.collectives.get_mut(collective)?.executor.rdma_mut()?;
        call.key = Some(key);
        if call.is_hybrid() {
            let whole = u32::try_from(bytes).ok().map(|bytes| Span { region: output, offset: 0, bytes });
            let address = whole.and_then(|whole| self.transport.regions.get_mut().address(whole));
            if let Some(start) = address.and_then(|address| address.adjacent()) {
                // SAFETY: the output, which this collective has borrowed; nobody has a reference to it until it ends.
                let memory = unsafe { WindowMemory::new(start, bytes) };
                // SAFETY: the collective's end conceals the memory before it gives it back.
                unsafe { self.remote_access.native.expose(key, memory) };
            }
        }
        Some(RemoteOutput { key, native: self.remote_access.native.exposed(key) })
    }

    /// An exchange has ended, and its buffers are not used any more.
    pub(super) fn end_exchange(&mut self, Exchange { of, block }: Exchange, is_ok: bool) {
        let CollectiveTable { active, scratch, contexts, .. } = &mut self.collectives;
        let regions = self.transport.regions.get_mut();
        if !is_ok {
            return scratch.discard(block, regions);
        }
        let running = active.get_mut(of as usize).and_then(Option::as_mut);
        let members = running.as_ref().and_then(|running| contexts.get(running.executor.id().context));
        let mut native = Vec::new();
        if let Some(call) = running.and_then(|running| running.executor.rdma_mut()) {
            let mut outputs = vec![0; OUTPUT * call.size()];
            let gathered = Span { offset: OUTPUT, ..block.part(outputs.len() as u32) };
            match regions.address(gathered) {
                Some(address) if !call.knows_outputs => {
                    // SAFETY: the exchange has ended: nobody writes the block.
                    unsafe { address.read(&mut outputs) };
                    call.handle_outputs(&outputs);
                    let rank = |member: Member| members.and_then(|of| of.members.world_rank(Rank(member.0)));
                    native.extend(call.native_outputs().filter_map(|(to, output)| Some((rank(to)?, output))));
                }
                _ => call.handle_barrier(),
            }
        }
        scratch.release(block, regions);
        // Ranks of this node get their blocks through rings.
        native.retain(|(rank, _)| !self.transport.is_shm_peer((*rank).into()));
        for (rank, output) in native {
            self.remote_access.native.learn(rank.into(), output.key, output.native);
        }
        self.collectives.enqueue(of);
    }

    /// Starts the writes of a call for which there is room. Returns false if the context has failed.
    pub(super) fn write_blocks(&mut self, now: u64, collective: u32) -> bool {
        while let Some(running) = self.collectives.get_mut(collective)
            && let Some(call) = running.executor.rdma()
            && let Some(NextWrite { to: member, key: region, has_block, announces }) = call.next_write()
        {
            let (id, own, input, output) =
                (running.executor.id(), running.executor.plan().rank(), running.input, running.output);
            let bytes = running.executor.plan().bytes();
            let block = |of: Member| bytes.saturating_mul(of.0 as usize);
            let Ok(length) = u32::try_from(bytes) else { return false };
            let from = Span { region: input, offset: block(member), bytes: if has_block { length } else { 0 } };
            if member == own {
                let regions = self.transport.regions.get_mut();
                let into = Span { region: output, offset: block(own), bytes: length };
                if let (Some(from), Some(into)) = (regions.address(from), regions.address(into)) {
                    // SAFETY: borrowed by this collective: the input is not written, and nobody else writes this block.
                    unsafe { into.copy_from(from) };
                }
            } else {
                let of = self.collectives.contexts.get(id.context);
                let Some(rank) = of.and_then(|of| of.members.world_rank(Rank(member.0))) else { return false };
                let at = RemoteSpan { region, offset: block(own) as u64 };
                let request = RmaRequest::Write { from, immediate: announces.then(|| immediate(id)) };
                let end = CallEnd::Block(BlockWrite { collective, id, announces });
                match self.start_remote(0, rank, at, request, CallMemory::Nothing, end) {
                    Ok(_) => {}
                    Err(StartError::Full) => {
                        self.remote_access.wait_for_room(collective);
                        return true;
                    }
                    Err(StartError::Failed(_)) => {
                        self.fail_missing(now, rank.into(), id.context);
                        return false;
                    }
                }
            }
            if let Some(call) = self.collectives.get_mut(collective).and_then(|running| running.executor.rdma_mut()) {
                call.begin_next();
            }
        }
        true
    }

    /// A write has ended. One that was refused, or whose target is gone, completes nothing: the call ends when this rank
    /// learns why.
    pub(super) fn end_block_write(
        &mut self,
        BlockWrite { collective, id, announces }: BlockWrite,
        to: Rank,
        result: Result<u64, RmaError>,
    ) {
        let member = self.collectives.contexts.get(id.context).and_then(|of| of.members.number(to));
        let call = self.collectives.get_mut(collective).filter(|running| running.executor.id() == id);
        if let (Some(call), Some(member), Ok(_)) = (call.and_then(|call| call.executor.rdma_mut()), member, result) {
            if announces {
                call.handle_written(Member(member.0));
                self.remote_access.counters.blocks_written += 1;
            } else {
                call.handle_placed(Member(member.0));
            }
            self.collectives.enqueue(collective);
        }
    }

    /// A rank's block has arrived.
    pub(super) fn handle_block(&mut self, Immediate { from, value, .. }: Immediate) {
        let context = value >> 16;
        let member = self.collectives.contexts.get(context).and_then(|of| of.members.number(from.into()));
        let calls = (0..).zip(&mut self.collectives.active);
        let mut calls = calls.filter_map(|(i, running)| {
            let running = running.as_mut().filter(|running| running.ended.is_none())?;
            let is_its = immediate(running.executor.id()) == value;
            running.executor.rdma_mut().filter(|_| is_its).map(|call| (i, call))
        });
        let is_new = match (calls.next(), member) {
            (Some((i, call)), Some(member)) => {
                let is_new = call.handle_arrived(Member(member.0));
                drop(calls);
                self.collectives.enqueue(i);
                is_new
            }
            // Of a call that has failed here.
            _ => self.collectives.contexts.is_over(context),
        };
        if !is_new {
            self.collectives.report_fault(from, context, FailureCause::Corrupt);
        }
    }

    /// Whether a call that has failed still writes from its input.
    pub(super) fn is_writing(&self, collective: u32) -> bool {
        let running = self.collectives.active.get(collective as usize).and_then(Option::as_ref);
        let id = running.filter(|running| running.executor.rdma().is_some()).map(|running| running.executor.id());
        id.is_some_and(|id| self.remote_access.has_block_writes(collective, id))
    }

    /// A call is over: nobody writes into its output any more, nor this rank's adapter into those of others.
    pub(super) fn close_outputs(&mut self, context: u32, OpenedOutputs { own, others }: OpenedOutputs) {
        let of = self.collectives.contexts.get(context);
        for (member, key) in others {
            if let Some(rank) = of.and_then(|of| of.members.world_rank(Rank(member.0))) {
                self.remote_access.native.forget(rank.into(), key);
            }
        }
        if let Some(key) = own {
            self.conceal(key);
        }
    }
}

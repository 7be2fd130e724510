//! Calls on the trees of communicators: their values, and how their messages travel, by datagrams or rings.

use core::ptr::NonNull;

use unisono_core::collective::token_tree::header::{TREE_HEADER, TreeShape};
use unisono_core::collective::token_tree::{Body, Combination, EnterError, Epoch, Operand, Request};
use unisono_core::collective::{CollectiveMachine as _, FailureCause};
use unisono_core::device::Memory as _;
use unisono_core::ids::{PeerId, Port, Rank as Member};
use unisono_core::message::collective_transport::StepKey;
use unisono_core::span::Span as Bytes;
use unisono_core::transport::TransportError;
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::{self, checksum};
use unisono_shmem::ring::PutError;

use super::Process;
use super::transport::OperationOwner;
use crate::world::collective::engine::machine::TreeStage;
use crate::world::collective::engine::progress_table::CollectiveTable;
use crate::world::collective::engine::token_trees::{
    CommunicatorTree, LeadersStep, TreeArrival, TreeName, TreeSend, TreeTask,
};
use crate::world::collective::engine::transfer::context_of;
use unisono_bootstrap::Rank;

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Posted {
    /// It was sent, or its receiver has failed.
    Gone,
    /// There is no room for it.
    Waits,
}

impl Process {
    /// Enters a call that was started into its tree. Returns false if the context has failed.
    pub(super) fn enter_tree(&mut self, collective: u32) -> bool {
        let Some(running) = self.collectives.get_mut(collective) else { return false };
        let context = running.executor.id().context;
        let Some(call) = running.executor.tree_mut() else { return true };
        if call.stage == TreeStage::Started {
            call.stage = TreeStage::Entered;
            let shape = call.shape;
            if shape.is_multicast {
                self.open_release_group(context);
            }
            if !self.queue_tree_task(context, shape, TreeTask { collective, step: None }) {
                return false;
            }
        }
        // Or a member has failed.
        self.collectives.trees.has_work = true;
        true
    }

    /// Queues a call for its tree. Returns false if the context has failed.
    pub(super) fn queue_tree_task(&mut self, context: u32, shape: TreeShape, task: TreeTask) -> bool {
        let Some(tree) = self.tree(context, shape) else {
            let now = self.transport.now;
            self.fail_context(now, context, FailureCause::Disagrees, self.rank);
            return false;
        };
        tree.waiting.push_back(task);
        self.collectives.trees.has_work = true;
        true
    }

    /// The tree of this shape of a context, if this rank is in it.
    fn tree(&mut self, context: u32, shape: TreeShape) -> Option<&mut CommunicatorTree> {
        let (own, CollectiveTable { contexts, trees, .. }) = (self.rank, &mut self.collectives);
        let name = || {
            let of = contexts.get(context)?;
            let (rank, generation) = (Member(of.members.number(own)?.0), of.generation);
            if !shape.is_of_leaders {
                let size = of.members.size();
                return Some(TreeName { context, generation, own: rank, size, leaders: Box::default() });
            }
            let leaders: Box<[Member]> = of.subgroups.as_ref()?.leaders(Member(0)).collect();
            let (own, size) = (leaders.iter().position(|leader| *leader == rank)?, leaders.len());
            let [own, size] = [own, size].map(|number| u32::try_from(number).ok());
            Some(TreeName { context, generation, own: Member(own?), size: size?, leaders })
        };
        let found = trees.find(context, shape, name)?;
        trees.trees.get_mut(found)
    }

    /// Hands the messages that have arrived to their trees, advances all trees, and sends what they send.
    pub(super) fn progress_trees(&mut self, now: u64) {
        self.collectives.trees.has_work = false;
        for arrival in core::mem::take(&mut self.collectives.trees.arrivals) {
            self.handle_tree_arrival(now, arrival);
        }
        for i in 0..self.collectives.trees.trees.len() {
            self.advance_tree(now, i);
        }
        self.flush_trees();
        self.abort_calls_on_departed();
        let trees = &mut self.collectives.trees;
        let deadlines = trees.trees.iter().flat_map(|tree| tree.tree.deadlines().map(|(_, at)| at));
        trees.deadline = deadlines.min();
    }

    fn handle_tree_arrival(&mut self, now: u64, arrival: TreeArrival) {
        let TreeArrival { from, header, is_multicast, values, bytes } = arrival;
        let context = context_of(header.key());
        let Self { collectives, transport, .. } = self;
        if collectives.contexts.get(context).is_none() && collectives.contexts.is_expecting(context) {
            // Until the communicator is opened here.
            return collectives.trees.arrivals.push_back(arrival);
        }
        let regions = transport.regions.get_mut();
        let mut stored = vec![0; bytes as usize];
        if let Some(values) = values {
            if let Some(from) = regions.address(values.part(bytes)) {
                // SAFETY: memory of the process that the message was copied to, and that nobody else uses.
                unsafe { from.read(&mut stored) };
            }
            collectives.scratch.release(values, regions);
        }
        let Some(of) = collectives.contexts.get(context).filter(|of| of.failed.is_none()) else { return };
        if of.generation as u16 != header.generation {
            // It was sent to an earlier communicator with the same context.
            return;
        }
        let member = of.members.number(from.into()).map(|member| Member(member.0));
        let tree = self.tree(context, header.shape);
        let sender = tree.and_then(|tree| Some((tree.number_of(member?)?, tree)));
        let handled = sender
            .ok_or(FailureCause::Corrupt)
            .and_then(|(number, tree)| tree.handle(now, Some(number).filter(|_| !is_multicast), &header, &stored));
        match (handled, is_multicast) {
            (Ok(()), true) => self.confirm_multicast(from, context),
            // A multicast may be anyone's; what the neighbours send shows whether the ranks agree.
            (Ok(()), false) | (Err(_), true) => {}
            (Err(cause), false) => _ = self.collectives.report_fault(from, context, cause),
        }
    }

    /// Advances a tree until it waits for others.
    fn advance_tree(&mut self, now: u64, i: usize) {
        let Some(tree) = self.collectives.trees.trees.get_mut(i) else { return };
        let due: Vec<Epoch> = tree.tree.deadlines().filter(|(_, at)| now >= *at).map(|(epoch, _)| epoch).collect();
        due.into_iter().for_each(|epoch| tree.tree.handle_timeout(now, epoch));
        loop {
            let Some(tree) = self.collectives.trees.trees.get_mut(i) else { return };
            if let Some(request) = tree.tree.poll(now) {
                if !self.carry_out(i, request) {
                    return;
                }
            } else if tree.waiting.is_empty() || !self.enter_next(now, i) {
                return;
            }
        }
    }

    /// Enters the next started call. Returns false if too many are open.
    fn enter_next(&mut self, now: u64, i: usize) -> bool {
        let Self { collectives, transport, .. } = self;
        let Some(tree) = collectives.trees.trees.get_mut(i) else { return false };
        let Some(&task) = tree.waiting.front() else { return false };
        let Some(running) = collectives.active.get(task.collective as usize).and_then(Option::as_ref) else {
            tree.waiting.pop_front();
            return true;
        };
        let bytes = running.executor.plan().bytes();
        let epoch = match tree.tree.enter(now, bytes > 0) {
            Ok(epoch) => epoch,
            Err(EnterError::Busy | EnterError::Failed(_)) => return false,
        };
        tree.waiting.pop_front();
        tree.open.push((epoch, task));
        let context = tree.context;
        if let Some(group) = collectives.multicast.releases.get_mut(context) {
            group.record_call();
            tree.tree.set_path(group.path());
        }
        let key = StepKey { context: running.context, sequence: running.executor.id().sequence, step: 0 };
        let Some(record) = tree.record(epoch, key, bytes) else {
            self.fail_context(now, context, FailureCause::Disagrees, self.rank);
            return false;
        };
        let (value, regions) = (record.value_mut(Operand::Input), transport.regions.get_mut());
        let is_read = match task.step {
            None => {
                let input = Bytes { region: running.input, offset: 0, bytes: bytes as u32 };
                if let Some(from) = regions.address(input) {
                    // SAFETY: borrowed by this call, during which nobody writes the input.
                    unsafe { from.read(value) };
                }
                true
            }
            Some(LeadersStep { from, .. }) => {
                let (length, _) = running.message_extent(from);
                length == value.len() && running.pack(from, NonNull::from(value), regions).is_ok()
            }
        };
        if !is_read {
            self.fail_context(now, context, FailureCause::Corrupt, self.rank);
        }
        is_read
    }

    /// Carries out a request of a tree. Returns false if the tree is gone.
    fn carry_out(&mut self, i: usize, request: Request) -> bool {
        let Self { collectives, transport, .. } = self;
        let Some(tree) = collectives.trees.trees.get_mut(i) else { return false };
        match request {
            Request::Combine { epoch, combination } => self.combine(i, epoch, combination),
            Request::Copy { epoch, from, into } => {
                if let Some(record) = tree.known(epoch) {
                    record.copy(from, into);
                }
            }
            Request::Send { to, message, payload } => {
                let of = collectives.contexts.get(tree.context);
                let to = of.and_then(|of| of.members.world_rank(Rank(tree.rank_of(to).0))).map(PeerId::from);
                let send = to.zip(tree.message(message, payload));
                collectives.trees.counters.asks += u64::from(matches!(message.body, Body::Ask { .. }));
                collectives.trees.outbox.extend(send.map(|(to, (key, bytes))| TreeSend { to, key, bytes }));
            }
            Request::Multicast { message, payload } => {
                let context = tree.context;
                if let Some((_, bytes)) = tree.message(message, payload) {
                    self.multicast_release(context, &bytes);
                }
            }
            Request::Leave { epoch } => {
                let task = call_of(tree, epoch);
                let running = task.and_then(|of| collectives.active.get(of.collective as usize)?.as_ref());
                if let (Some(task), Some(running), Some(record)) = (task, running, tree.known(epoch)) {
                    let (value, regions) = (record.value_mut(Operand::Output), transport.regions.get_mut());
                    if let Some(LeadersStep { into, .. }) = task.step {
                        // Its extent was found to be that of the value when it entered.
                        let _ = running.unpack(NonNull::from(value), into, regions);
                    } else if let Some(to) =
                        regions.address(Bytes { region: running.output, offset: 0, bytes: value.len() as u32 })
                    {
                        // SAFETY: borrowed by this call, during which nobody else uses the output.
                        unsafe { to.write(value) };
                    }
                }
                tree.left.extend(task);
                if collectives.is_finished {
                    tree.tree.end();
                }
            }
            // The failures of a tree are those of its context.
            Request::Fail { .. } => {}
        }
        true
    }

    fn combine(&mut self, i: usize, epoch: Epoch, combination: Combination) {
        let Combination { left, right, into } = combination;
        let collectives = &mut self.collectives;
        let Some(tree) = collectives.trees.trees.get_mut(i) else { return };
        let collective = call_of(tree, epoch).map(|task| task.collective);
        let running = collective.and_then(|of| collectives.active.get_mut(of as usize)?.as_mut());
        let (Some(running), Some(record)) = (running, tree.known(epoch)) else { return };
        let [left, right, into] = [left, right, into].map(|operand| record.range(operand));
        let bytes = left.len().min(right.len()).min(into.len());
        let start = NonNull::from(record.values_mut()).cast::<u8>();
        // SAFETY: the ranges lie within the values. Operands are the same or apart.
        let [left, right, into] = [left, right, into].map(|range| unsafe { start.add(range.start) });
        running.operate(left, right, into, bytes);
        if running.panic.is_some() {
            // It fails its context when it is advanced.
            let collective = collective.unwrap_or_default();
            self.collectives.enqueue(collective);
        }
    }

    /// Sends the messages of trees for which there is room, then ends the calls that have left.
    pub(super) fn flush_trees(&mut self) {
        while let Some(send) = self.collectives.trees.outbox.pop_front() {
            if self.post_tree_message(&send) == Posted::Waits {
                self.collectives.trees.outbox.push_front(send);
                self.collectives.work.has_work = true;
                return;
            }
        }
        let trees = &mut self.collectives.trees.trees;
        let left: Vec<TreeTask> = trees.iter_mut().flat_map(|tree| tree.left.drain(..)).collect();
        for TreeTask { collective, step } in left {
            self.collectives.trees.forget(collective);
            if let Some(LeadersStep { step, .. }) = step {
                self.finish_step(collective, step);
                continue;
            }
            let call = self.collectives.get_mut(collective).and_then(|running| running.executor.tree_mut());
            if let Some(call) = call {
                call.stage = TreeStage::Left;
                self.collectives.enqueue(collective);
            }
        }
    }

    fn post_tree_message(&mut self, send: &TreeSend) -> Posted {
        let (to, bytes) = (send.to, send.bytes.as_slice());
        if self.is_shm_peer(to) {
            return self.put_tree_message(to, bytes);
        }
        if !self.collectives.work.outbox.is_empty() {
            return Posted::Waits;
        }
        let (mut head, mut payload, mut owner) = (bytes, None, OperationOwner::Nothing);
        if bytes.len() > MESSAGE_HEADER_ROOM {
            let (front, values) = bytes.split_at_checked(TREE_HEADER).unwrap_or_default();
            let Some((buffer, span)) = self.transport.bounce_buffers.allocate(values.len()) else {
                return Posted::Waits;
            };
            if let Some(to) = self.transport.regions.get_mut().address(span) {
                // SAFETY: a bounce buffer that nobody else uses.
                unsafe { to.write(values) };
            }
            (head, payload, owner) = (front, Some(span), OperationOwner::Bounce(buffer));
        }
        match self.transport.post(to, head, payload, owner, Port::ONLY) {
            Ok(()) => Posted::Gone,
            Err(error) => {
                self.transport.end_operation(owner, None);
                if error == TransportError::Full { Posted::Waits } else { Posted::Gone }
            }
        }
    }

    /// Puts a message into the ring to a rank of this node.
    fn put_tree_message(&mut self, to: PeerId, bytes: &[u8]) -> Posted {
        let Some(neighbour) = self.transport.shm.as_mut().and_then(|shm| shm.live_peer(to)) else {
            return Posted::Gone;
        };
        if !neighbour.is_queue_empty() {
            return Posted::Waits;
        }
        let head = bytes.get(..TREE_HEADER).unwrap_or(bytes);
        match neighbour.put_headed([am_header::STEP, checksum(head)], bytes, 0, |_| {}) {
            Ok(()) => Posted::Gone,
            Err(PutError::Full) => Posted::Waits,
            Err(PutError::TooLong | PutError::Corrupted) => {
                self.protocol_failure(to);
                Posted::Gone
            }
        }
    }

    /// Fails the calls on trees that wait for a rank that takes no more part.
    fn abort_calls_on_departed(&mut self) {
        let has_departed = |tree: &CommunicatorTree| {
            let of = self.collectives.contexts.get(tree.context);
            !self.collectives.failed.is_empty() || of.is_some_and(|of| !of.reports.retired.is_empty())
        };
        let trees = self.collectives.trees.trees.iter().filter(|tree| has_departed(tree));
        let open: Vec<(u32, u32)> =
            trees.flat_map(|tree| tree.open.iter().map(|(_, task)| (tree.context, task.collective))).collect();
        for (context, collective) in open {
            let awaited = self.collectives.unscheduled_partners(collective, context);
            let departed = awaited.into_iter().find(|peer| self.collectives.has_departed(*peer, context));
            let of = self.collectives.contexts.get(context);
            let departed = departed.and_then(|peer| Some(of?.number(peer.into())));
            if let (Some(member), Some(running)) = (departed, self.collectives.get_mut(collective)) {
                running.executor.abort(member, FailureCause::Missing);
                self.collectives.enqueue(collective);
            }
        }
    }
}

/// The call of an epoch.
fn call_of(tree: &CommunicatorTree, epoch: Epoch) -> Option<TreeTask> {
    tree.open.iter().find(|(other, _)| *other == epoch).map(|(_, task)| *task)
}

//! Rooms of the node's segment: boards for the collectives of other communicators than the World's.
//!
//! A communicator whose members share a node has a room that was free at all of them when it was made; where none was, its collectives
//! go by messages. Every member has its own board of the room and writes nothing else, so that groups without a member in common use
//! the same room at a time. A board is free again when all members have said on theirs that they have nothing to do with the communicator any
//! more, or are dead: nobody looks at it any longer, and its rank makes it as it was at first.

use alloc::sync::Arc;

use unisono_shmem::collective_area::Boards;
use unisono_shmem::layout::ROOMS;
use unisono_shmem::segment::Site;

use crate::node::{Node, Standing};
use crate::rank::Rank;
use crate::world::group::Group;

/// In the place of a generation: of all that there are.
pub(super) const EVERY_LIFE: u32 = u32::MAX;

/// A room, while a communicator has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct Room {
    pub(in crate::world) number: u32,
    /// The communicator's: greater than those of all that had the room before.
    pub(in crate::world) generation: u32,
}

/// What this rank's board of a room is for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
enum Place {
    /// Nothing: it is as it was at first.
    #[default]
    Free,
    /// A communicator that is being made, or that this rank is a member of.
    Taken,
    /// Nothing any more, once these ranks of the node have freed that generation, too.
    Left { generation: u32, members: Vec<u32> },
    /// Nothing, ever.
    Barred,
}

/// All of a process's.
#[derive(Debug)]
pub(in crate::world) struct Rooms {
    node: Option<Arc<Node>>,
    places: [Place; ROOMS as usize],
}

impl Rooms {
    pub(in crate::world) fn new(node: Option<Arc<Node>>) -> Self {
        Self { node, places: Default::default() }
    }

    /// Those that are free here, bit by bit. Who shares no memory is in nobody's way.
    pub(in crate::world) fn offer(&mut self) -> u64 {
        let Some(node) = &self.node else { return (1 << ROOMS) - 1 };
        let mut free = 0;
        for (number, place) in (0..).zip(&mut self.places) {
            let Some(own) = own_board(node, number) else { continue };
            if let Place::Left { generation, members } = place
                && members.iter().all(|member| has_freed(node, number, *member, *generation))
                && own.write_first_of(node.segment(), 0, 0).is_some()
            {
                *place = Place::Free;
            }
            free |= u64::from(*place == Place::Free) << number;
        }
        free
    }

    /// All have agreed on a room.
    pub(in crate::world) fn reserve(&mut self, room: Room) {
        if let Some(place) = self.places.get_mut(room.number as usize) {
            *place = Place::Taken;
        }
    }

    /// Nobody has begun anything in a room that was reserved: this rank is no member, or its group does not share the node.
    pub(in crate::world) fn give_back(&mut self, room: Room) {
        if let Some(place) = self.places.get_mut(room.number as usize) {
            *place = Place::Free;
        }
        // Others may not know that, and count on it as on a member.
        self.show_freed(room);
    }

    /// An agreement to which these were offered has failed here: others may have made a communicator there, and wait for this rank. It
    /// takes part in nothing there any more, whatever that is.
    pub(in crate::world) fn bar(&mut self, offered: u64) {
        let Some(node) = &self.node else { return };
        for (number, place) in (0..).zip(&mut self.places) {
            if offered >> number & 1 == 1 && *place == Place::Free {
                *place = Place::Barred;
                for at in [Boards::retired, Boards::freed] {
                    show(node, number, at, EVERY_LIFE);
                }
            }
        }
    }

    /// This rank takes part in no collective of any room any more.
    pub(in crate::world) fn retire_from_all(&self) {
        (0..ROOMS).for_each(|number| self.retire(Room { number, generation: EVERY_LIFE }));
    }

    /// This rank has nothing to do any more with the communicator of these members, or of some of them.
    pub(in crate::world) fn free(&mut self, room: Room, members: &Group) {
        self.retire(room);
        let Some(node) = &self.node else { return };
        let members = members.iter().filter_map(|rank| node.local_of(rank)).filter(|local| *local != node.local());
        let left = Place::Left { generation: room.generation, members: members.collect() };
        if let Some(place) = self.places.get_mut(room.number as usize) {
            *place = left;
        }
        self.show_freed(room);
    }

    fn show_freed(&self, room: Room) {
        self.node.iter().for_each(|node| show(node, room.number, Boards::freed, room.generation));
    }

    /// Tells the others that this rank takes part in no collective there any more.
    pub(in crate::world) fn retire(&self, room: Room) {
        self.node.iter().for_each(|node| show(node, room.number, Boards::retired, room.generation));
    }

    /// The boards that members have in a room, in their order. `None`: one of them is not of this node.
    pub(in crate::world) fn boards(&self, room: Room, members: &Group) -> Option<(Arc<Node>, Boards)> {
        let node = self.node.as_ref()?;
        let locals: Vec<u32> = members.iter().map(|rank: Rank| node.local_of(rank)).collect::<Option<_>>()?;
        Some((node.clone(), Boards::in_room(&node.layout(), room.number, &locals)?))
    }
}

/// This rank's board of a room, as that of a group of it alone.
fn own_board(node: &Node, room: u32) -> Option<Boards> {
    Boards::in_room(&node.layout(), room, &[node.local()])
}

/// Writes a generation to a word of this rank's board, unless all that there are stand there.
fn show(node: &Node, room: u32, at: impl Fn(&Boards, u32) -> usize, generation: u32) {
    let word = own_board(node, room).and_then(|own| node.segment().word(at(&own, 0)));
    if let Some(word) = word.filter(|word| word.own() != EVERY_LIFE) {
        word.publish(generation, Site::Plain);
    }
}

/// Whether a rank of the node has nothing to do any more with what had a room, or is not alive.
fn has_freed(node: &Node, room: u32, local: u32, generation: u32) -> bool {
    let board = Boards::in_room(&node.layout(), room, &[local]);
    let freed = board.and_then(|board| node.segment().word(board.freed(0))).map(|word| word.acquire(Site::Plain));
    freed.is_some_and(|freed| freed == EVERY_LIFE || freed.wrapping_sub(generation).cast_signed() >= 0)
        || node.standing(local) != Standing::Alive
}

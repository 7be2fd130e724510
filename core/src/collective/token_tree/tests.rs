extern crate alloc;

use alloc::vec::Vec;

use super::*;
use crate::time::Nanos;

type Tree = TokenTree<Nanos, 2, 2>;

const HOP: u64 = 64;
const REPAIR: u64 = 640;
/// Root 0; children 1 with child 2, and 3.
const FOUR: TreeConfig =
    TreeConfig { size: 4, degree: 2, units: 1, path: ReleasePath::Multicast, patience: 1, repair: Some(10) };

fn tree(rank: u32, config: TreeConfig) -> Tree {
    Tree::new(Rank(rank), &config, Epoch(0)).expect("a rank of the tree")
}

fn entered(rank: u32, config: TreeConfig) -> Tree {
    let mut tree = tree(rank, config);
    tree.enter(0, false).expect("the first call");
    tree
}

fn message(body: Body) -> Message {
    Message { epoch: Epoch(0), left: Epoch(0), all_left: Epoch(0), body }
}

fn release(first: u32, end: u32) -> Message {
    message(Body::Release(Release { claim: RankRange::new(first, end), is_passed_on: false }))
}

fn passed_on(first: u32, end: u32) -> Message {
    message(Body::Release(Release { claim: RankRange::new(first, end), is_passed_on: true }))
}

fn token(first: u32, end: u32, units: u8) -> Message {
    message(Body::Token(Token { claim: RankRange::new(first, end), units }))
}

fn bodies(tree: &mut Tree, now: u64) -> Vec<(Option<u32>, Body)> {
    let body = |request| match request {
        Request::Send { to, message, .. } => Some((Some(to.0), message.body)),
        Request::Multicast { message, .. } => Some((None, message.body)),
        _ => None,
    };
    core::iter::from_fn(|| tree.poll(now)).filter_map(body).collect()
}

#[test]
fn late_leaf_receives_token_and_releases() {
    let mut root = entered(0, FOUR);
    assert_eq!(bodies(&mut root, 0), []);
    root.handle_message(100, Rank(1), &message(Body::Ack));
    assert_eq!(bodies(&mut root, 100), []);
    assert_eq!(root.deadlines().collect::<Vec<_>>(), [(Epoch(0), 100 + HOP)]);
    root.handle_timeout(99 + HOP, Epoch(0));
    assert_eq!(bodies(&mut root, 99 + HOP), []);
    root.handle_timeout(100 + HOP, Epoch(0));
    let passed = token(0, 4, 1);
    assert_eq!(bodies(&mut root, 100 + HOP), [(Some(3), passed.body)]);

    let mut leaf = tree(3, FOUR);
    leaf.handle_message(200, Rank(0), &passed);
    assert_eq!(bodies(&mut leaf, 200), []);
    leaf.enter(300, false).expect("the first call");
    assert_eq!(bodies(&mut leaf, 300), [(None, release(0, 4).body)]);
    root.handle_multicast(400, &release(0, 4));
    assert_eq!(root.poll(400), Some(Request::Leave { epoch: Epoch(0) }));
    assert_eq!(root.poll(400), None);
}

#[test]
fn two_missing_children_get_a_token_each_and_their_claims_tile_it() {
    let mut root = entered(0, TreeConfig { size: 6, degree: 4, units: 2, ..FOUR });
    root.handle_message(0, Rank(1), &message(Body::Ack));
    assert_eq!(root.deadlines().count(), 0, "three are missing");
    root.handle_message(0, Rank(4), &message(Body::Ack));
    root.handle_timeout(HOP, Epoch(0));
    let [first, second] = [token(0, 4, 1).body, token(4, 6, 1).body];
    assert_eq!(bodies(&mut root, HOP), [(Some(3), first), (Some(5), second)]);
}

#[test]
fn without_units_the_root_releases_all() {
    let mut root = entered(0, TreeConfig { units: 0, ..FOUR });
    root.handle_message(0, Rank(1), &message(Body::Ack));
    assert_eq!(root.deadlines().count(), 0);
    root.handle_message(9, Rank(3), &message(Body::Ack));
    assert_eq!(bodies(&mut root, 9), [(None, release(0, 4).body)]);
}

#[test]
fn a_rank_asks_for_a_lost_release_ever_more_rarely() {
    let mut leaf = entered(2, FOUR);
    assert_eq!(bodies(&mut leaf, 0), [(Some(1), Body::Ack)]);
    let mut at = 0;
    for wait in [1, 2, 4, 8, 16, 32, 32].map(|times| times * REPAIR) {
        assert_eq!(leaf.deadlines().collect::<Vec<_>>(), [(Epoch(0), at + wait)]);
        at += wait;
        leaf.handle_timeout(at, Epoch(0));
        assert_eq!(bodies(&mut leaf, at), [(Some(1), Body::Ask { gap: 0 })]);
    }
    leaf.handle_multicast(at, &release(0, 2));
    assert_eq!(leaf.deadlines().collect::<Vec<_>>(), [(Epoch(0), at + REPAIR)]);
    leaf.handle_timeout(at + REPAIR, Epoch(0));
    assert_eq!(bodies(&mut leaf, at + REPAIR), [(Some(1), Body::Ask { gap: 2 })]);
}

#[test]
fn releases_are_answered_until_all_have_left() {
    let mut parent = entered(1, FOUR);
    parent.handle_message(0, Rank(2), &message(Body::Ack));
    parent.handle_multicast(0, &release(0, 4));
    // The release covers it before it has acknowledged: refused.
    assert_eq!(bodies(&mut parent, 0), [(Some(0), Body::Ack)]);
    parent.handle_multicast(0, &release(0, 4));
    assert_eq!(parent.poll(0), Some(Request::Leave { epoch: Epoch(0) }));
    let ask = message(Body::Ask { gap: 0 });
    parent.handle_message(0, Rank(2), &ask);
    assert_eq!(bodies(&mut parent, 0), [(Some(2), release(0, 4).body)]);
    let next = Message { epoch: Epoch(1), left: Epoch(1), all_left: Epoch(1), body: Body::Ack };
    parent.handle_message(0, Rank(2), &next);
    parent.handle_message(0, Rank(2), &ask);
    assert_eq!((bodies(&mut parent, 0), parent.all_left()), (Vec::new(), Epoch(1)));
}

#[test]
fn a_release_along_the_tree_is_passed_on_even_if_a_multicast_brought_it_before() {
    let mut parent = entered(1, FOUR);
    parent.handle_message(0, Rank(2), &message(Body::Ack));
    bodies(&mut parent, 0);
    parent.handle_multicast(0, &release(0, 4));
    assert_eq!(bodies(&mut parent, 0), []);
    parent.handle_message(0, Rank(0), &passed_on(0, 4));
    assert_eq!(bodies(&mut parent, 0), [(Some(2), passed_on(0, 4).body)]);
    parent.handle_message(0, Rank(0), &passed_on(0, 4));
    assert_eq!(bodies(&mut parent, 0), []);
    assert_eq!(parent.handle_multicast(0, &passed_on(0, 4)), Arrival::ProtocolViolation);
}

#[test]
fn a_rank_changes_the_path_of_its_releases() {
    let releases = |path| {
        let mut root = entered(0, TreeConfig { units: 0, ..FOUR });
        root.set_path(path);
        for child in [1, 3] {
            root.handle_message(0, Rank(child), &message(Body::Ack));
        }
        bodies(&mut root, 0)
    };
    let by_tree = [1, 3].map(|child| (Some(child), passed_on(0, 4).body));
    assert_eq!(releases(ReleasePath::Multicast), [(None, release(0, 4).body)]);
    assert_eq!(releases(ReleasePath::Tree), by_tree);
    assert_eq!(releases(ReleasePath::Both), [&[(None, release(0, 4).body)], &by_tree[..]].concat());
}

#[test]
fn a_rank_that_ends_sends_what_others_may_lack() {
    let mut parent = entered(1, FOUR);
    parent.handle_message(0, Rank(2), &message(Body::Ack));
    bodies(&mut parent, 0);
    parent.handle_multicast(0, &release(0, 4));
    bodies(&mut parent, 0);
    parent.end();
    assert_eq!(bodies(&mut parent, 0), [2, 0].map(|to| (Some(to), release(0, 4).body)));
}

#[test]
fn messages_that_break_the_protocol_are_refused() {
    let refused = |tree: &Tree, from: u32, message: &Message| {
        tree.clone().handle_message(0, Rank(from), message) == Arrival::ProtocolViolation
    };
    let mut root = entered(0, FOUR);
    let ack = message(Body::Ack);
    assert!(refused(&root, 2, &ack), "a grandchild");
    assert!(refused(&root, 3, &token(0, 4, 1)), "a token from a child");
    root.handle_message(0, Rank(3), &ack);
    assert!(refused(&root, 3, &ack), "a second Ack");
    assert!(refused(&root, 3, &Message { epoch: Epoch(2), ..ack }), "an epoch too many ahead");
    assert!(refused(&root, 3, &Message { epoch: Epoch(1), all_left: Epoch(1), ..ack }), "this rank has not left it");
    assert!(refused(&root, 3, &release(3, 5)), "a rank that does not exist");
    assert!(refused(&root, 3, &release(3, 3)), "no rank");
    assert!(refused(&root, 3, &release(0, 4)), "it has not contributed");
    root.handle_message(0, Rank(3), &release(2, 4));
    assert!(refused(&root, 3, &release(3, 4)), "overlapping claims");

    let inner = tree(1, FOUR);
    assert!(refused(&inner, 0, &token(2, 4, 1)), "a claim without the subtree");
    assert!(refused(&inner, 0, &token(0, 5, 1)), "a claim beyond the tree");
    assert!(refused(&inner, 0, &token(0, 4, 0)), "a token without units");
    assert!(refused(&inner, 0, &ack), "an Ack of the parent");
    assert_eq!(inner.clone().handle_multicast(0, &token(0, 4, 1)), Arrival::ProtocolViolation);
    let mut inner = inner;
    inner.handle_message(0, Rank(0), &token(0, 4, 1));
    assert!(refused(&inner, 0, &token(0, 4, 1)), "a second token");
}

#[test]
fn impossible_trees_are_refused() {
    let new = |config: TreeConfig| Tree::new(Rank(0), &config, Epoch(0));
    assert_eq!(new(TreeConfig { units: 3, ..FOUR }), Err(InvalidTree));
    assert_eq!(new(TreeConfig { size: 0, ..FOUR }), Err(InvalidTree));
    assert_eq!(TokenTree::<Nanos, 2, 3>::new(Rank(0), &FOUR, Epoch(0)), Err(InvalidTree));
    assert_eq!(new(TreeConfig { repair: None, ..FOUR }), Err(InvalidTree), "a lost release would never be asked for");
}

#[test]
fn a_failed_rank_is_named_by_all_that_wait() {
    let mut leaf = entered(2, FOUR);
    bodies(&mut leaf, 0);
    leaf.handle_failed(Rank(1));
    leaf.handle_failed(Rank(0));
    assert_eq!(leaf.poll(0), Some(Request::Fail { epoch: Epoch(0), rank: Rank(1) }));
    assert_eq!((leaf.poll(0), leaf.deadlines().count()), (None, 0));
    assert_eq!(leaf.enter(0, false), Err(EnterError::Failed(Rank(1))));
}

#[test]
fn a_rank_awaits_the_neighbours_whose_messages_it_lacks() {
    let config = TreeConfig { size: 6, degree: 4, units: 2, ..FOUR };
    let awaited = |tree: &Tree| tree.awaited(Epoch(0)).map(|rank| rank.0).collect::<Vec<_>>();
    assert_eq!(awaited(&tree(0, config)), [], "it has not entered");
    // Children 1 with child 2, then 3, 4 and 5.
    let mut root = entered(0, config);
    assert_eq!(awaited(&root), [1, 3, 4, 5]);
    root.handle_message(0, Rank(1), &message(Body::Ack));
    root.handle_message(0, Rank(4), &message(Body::Ack));
    root.handle_timeout(HOP, Epoch(0));
    bodies(&mut root, HOP);
    assert_eq!(awaited(&root), [3, 5], "they have tokens");
    root.handle_multicast(HOP, &release(0, 4));
    assert_eq!(awaited(&root), [5], "the part of 3 is released");
    root.handle_multicast(HOP, &release(4, 6));
    bodies(&mut root, HOP);
    assert_eq!(awaited(&root), [], "it has left");

    let mut leaf = entered(5, config);
    bodies(&mut leaf, 0);
    assert_eq!(awaited(&leaf), [0], "it has acknowledged");
    leaf.handle_message(0, Rank(0), &token(4, 6, 1));
    bodies(&mut leaf, 0);
    assert_eq!(awaited(&leaf), [0], "the other claim comes from the parent");
}

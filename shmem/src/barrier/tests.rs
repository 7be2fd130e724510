use super::*;
use crate::testing::TestAreas;

fn shapes(size: u32) -> Vec<(String, Vec<u8>)> {
    ["flat", "dissemination", "tree 1", "tree 2", "tree 4", "tree 64"]
        .map(|name| (name.to_owned(), Vec::new()))
        .into_iter()
        .chain(
            [1, 2, 3, 5]
                .map(|count| (format!("{count} sockets"), (0..size).map(|rank| (rank % count) as u8).collect())),
        )
        .chain([(String::from("contiguous sockets"), (0..size).map(|rank| (rank / 4) as u8).collect())])
        .collect()
}

fn shape<'a>(name: &str, sockets: &'a [u8]) -> Shape<'a> {
    match (name, sockets) {
        ("flat", _) => Shape::Flat,
        ("dissemination", _) => Shape::Dissemination,
        (name, []) => Shape::Tree(name.strip_prefix("tree ").unwrap().parse().unwrap()),
        (_, sockets) => Shape::Sockets(sockets),
    }
}

/// Loom explores all interleavings; here: in any order of polls no rank leaves before all have entered, and all leave
/// in the end.
#[test]
fn nobody_leaves_before_everyone_has_entered() {
    for size in 1..=17 {
        let ground = TestAreas::new(size);
        for (name, sockets) in shapes(size) {
            let first = 0_u32.wrapping_sub(7);
            ground.areas.initialize(ground.segment(), first).unwrap();
            let shape = shape(&name, &sockets);
            let mut ranks: Vec<_> = (0..size)
                .map(|rank| Barrier::new(ground.segment(), ground.areas, rank, shape, first).unwrap())
                .collect();
            let mut random = fastrand::Rng::with_seed(u64::from(size));
            // How many barriers each has entered and left.
            let (mut entered, mut left) = (vec![0_u32; size as usize], vec![0_u32; size as usize]);
            let mut polls = 0;
            while left.iter().any(|&count| count < 12) {
                let rank = random.usize(..size as usize);
                if entered[rank] == left[rank] && left[rank] < 12 {
                    ranks[rank].start();
                    entered[rank] += 1;
                }
                if entered[rank] > left[rank] && ranks[rank].poll() == BarrierStatus::Complete {
                    left[rank] += 1;
                    assert!(entered.iter().all(|&count| count >= left[rank]), "{name}, {size} ranks: {entered:?}");
                }
                polls += 1;
                assert!(polls < 1_000_000, "{name}, {size} ranks: {entered:?} {left:?}");
            }
        }
    }
}

#[test]
fn impossible_phase_is_distinguished_from_absence() {
    let ground = TestAreas::new(3);
    let mut barrier = Barrier::new(ground.segment(), ground.areas, 0, Shape::Flat, 0).unwrap();
    barrier.start();
    assert_eq!(barrier.poll(), BarrierStatus::WaitsFor(1));
    barrier.word(1).unwrap().publish(1, Site::Plain);
    for phase in [4, 1000, 1 << 31, 0xdead_beef, u32::MAX - 1] {
        barrier.word(2).unwrap().publish(phase, Site::Plain);
        assert_eq!(barrier.poll(), BarrierStatus::Corrupt(2), "{phase}");
    }
    barrier.word(2).unwrap().publish(2, Site::Plain);
    assert_eq!(barrier.poll(), BarrierStatus::Complete);
}

#[test]
fn flat_flags_wrap() {
    let ground = TestAreas::new(2);
    let first = u32::MAX - 1;
    ground.areas.initialize(ground.segment(), first).unwrap();
    let [one, two] = [0, 1].map(|rank| FlatBarrier::new(ground.segment(), &ground.areas, rank).unwrap());
    for barrier in 1..5_u32 {
        let (epoch, mut from) = (first.wrapping_add(barrier), 0);
        one.arrive(epoch);
        assert!(!one.poll(epoch, &mut from));
        assert_eq!(one.missing(epoch, from).map(|(rank, _, seen)| (rank, seen)), Some((1, epoch.wrapping_sub(1))));
        two.arrive(epoch);
        assert!(one.poll(epoch, &mut from) && two.poll(epoch, &mut 0));
        assert_eq!((one.has_arrived(1, epoch), one.has_arrived(1, epoch.wrapping_add(1))), (Some(true), Some(false)));
    }
    assert!(FlatBarrier::new(ground.segment(), &ground.areas, 2).is_none());
}

#[test]
fn last_rank_to_arrive_has_seen_all_others() {
    let ground = TestAreas::new(3);
    let ranks = [0, 1, 2].map(|rank| FlatBarrier::new(ground.segment(), &ground.areas, rank).unwrap());
    let (mut from, last) = (0, &ranks[1]);
    for (present, rank) in ranks.iter().enumerate().filter(|(rank, _)| *rank != 1) {
        assert!(!last.poll_others(1, &mut from), "{present}");
        rank.arrive(1);
        assert!(!rank.poll(1, &mut 0));
    }
    assert!(last.poll_others(1, &mut from) && !last.poll(1, &mut 0), "its own word does not count");
    last.arrive(1);
    assert!(ranks.iter().all(|rank| rank.poll(1, &mut 0)));
}

#[test]
fn words_move_to_the_requested_lines() {
    let ground = TestAreas::new(2);
    let lines = ground.areas.phase_lines();
    assert!(FlatBarrier::on_lines(ground.segment(), &ground.areas, 0, [0, lines]).is_none());
    for line in 0..lines {
        let on = |rank| FlatBarrier::on_lines(ground.segment(), &ground.areas, rank, [line, 0]).unwrap();
        let [one, two] = [0, 1].map(on);
        let [first, second] = [one, two].map(|flat| flat.pair().unwrap());
        let epoch = line + 1;
        first.arrive(epoch);
        assert!(!first.poll(epoch) && second.poll(epoch) && !second.poll(epoch + 1));
        assert_eq!(two.has_arrived(0, epoch), Some(true));
        two.arrive(epoch);
        assert!(first.poll(epoch) && one.poll(epoch, &mut 0));
        let shown = ground.segment().word(ground.areas.phase_on_line(0, line)).unwrap();
        assert_eq!(shown.own(), epoch);
    }
    let ground = TestAreas::new(3);
    assert!(FlatBarrier::new(ground.segment(), &ground.areas, 0).unwrap().pair().is_none());
}

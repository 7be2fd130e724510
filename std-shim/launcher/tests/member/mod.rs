//! The rank programs of the launcher tests. The test program itself is the rank program: its first argument selects the
//! part.

use core::{net::SocketAddr, time::Duration};
use std::{env, process::ExitCode, thread, time::Instant};
use unisono::Rank;
use unisono::environment::Settings;
use unisono_bootstrap::{Digests, Ending, Liveness, LocalRecord, Membership, MembershipEvent, fresh_incarnation};

const WAIT: Duration = Duration::from_secs(3);

/// Runs the part of a rank. `None`: this process is not a rank.
pub(crate) fn play() -> Option<ExitCode> {
    let settings = Settings::from_environment().expect("valid settings");
    settings.position?;
    let part = env::args().nth(1).expect("a part");
    let lane = SocketAddr::from(([0, 0, 0, 0], 4000));
    let offer = LocalRecord {
        location: unisono_bootstrap::Location::default(),
        link_megabits: 0,
        incarnation: fresh_incarnation().expect("random"),
        addresses: [lane; 2],
        further_rails: Vec::new(),
        rails_max: 1,
        checksums: true,
        mtu: 1472,
        digests: Digests::default(),
    };
    let mut member = match Membership::join(&settings.join_options().expect("a secret"), offer) {
        Ok(member) => member,
        Err(error) => {
            println!("refused: {error}");
            return Some(ExitCode::FAILURE);
        }
    };
    if part != "restart" || env::var_os("RESTARTED").is_none() {
        member.fence(WAIT).expect("all are here");
    }
    match part.as_str() {
        "exchange" => exchange(member),
        "reported" => survive(member, true),
        "silent" => survive(member, false),
        "desert" if member.rank() == Rank(1) => {}
        "abort" if member.rank() == Rank(1) => member.abort(5),
        "desert" | "abort" | "linger" => thread::sleep(Duration::from_secs(60)),
        "cut" => cut(member),
        "restart" => restart(member),
        other => panic!("{other} is not a part"),
    }
    Some(ExitCode::SUCCESS)
}

fn notice(member: &mut Membership, within: Duration) -> Option<MembershipEvent> {
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        if let Some(notice) = member.poll() {
            return Some(notice);
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

fn liveness(member: &mut Membership, rank: Rank) -> Liveness {
    member.query_liveness(rank);
    match notice(member, WAIT) {
        Some(MembershipEvent::Liveness { rank: about, liveness }) if about == rank => liveness,
        other => panic!("{other:?} is not an answer about rank {rank}"),
    }
}

fn exchange(mut member: Membership) {
    let rank = member.rank();
    member.put(&rank.0.to_le_bytes(), format!("value {rank}").as_bytes(), WAIT).expect("room");
    member.fence(WAIT).expect("all have put");
    let next = (rank.0 + 1) % member.size();
    let value = member.get(&next.to_le_bytes(), WAIT).expect("an answer");
    assert_eq!(value.as_deref(), Some(format!("value {next}").as_bytes()));
    assert_eq!(liveness(&mut member, Rank(next)), Liveness::Alive);
    let lines = member.table().iter().map(|entry| format!("{}@{}", entry.node, entry.addresses[0].ip()));
    println!("{}", lines.collect::<Vec<_>>().join(" "));
    member.fence(WAIT).expect("all have asked");
    member.finish(WAIT).expect("acknowledged");
}

/// Rank 1 is killed; the failure is reported to the others, or not.
fn survive(mut member: Membership, reported: bool) {
    if member.rank() == Rank(1) {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("own process");
    }
    let incarnation = member.table()[1].incarnation;
    let expected = MembershipEvent::Failed { rank: Rank(1), incarnation, ending: Ending::Signalled(9) };
    let event = notice(&mut member, if reported { WAIT } else { Duration::from_millis(100) });
    assert_eq!(event, reported.then_some(expected));
    assert_eq!(liveness(&mut member, Rank(1)), Liveness::Dead);
    member.fence(WAIT).expect("the fence does not wait for failed ranks");
    println!("survived");
    member.finish(WAIT).expect("acknowledged");
}

/// The test closes the connection: the last event reports it.
fn cut(mut member: Membership) {
    println!("ready");
    match notice(&mut member, Duration::from_secs(60)) {
        Some(MembershipEvent::Disconnected(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// Rank 1 restarts itself and exits; the others connect to its new incarnation.
fn restart(mut member: Membership) {
    if member.rank() == Rank(1) {
        if env::var_os("RESTARTED").is_none() {
            let own = env::current_exe().expect("this program");
            let again = std::process::Command::new(own).arg("restart").env("RESTARTED", "yes").spawn();
            thread::sleep(Duration::from_millis(100));
            drop(again);
            std::process::exit(9);
        }
        member.fence(WAIT).expect("rank 0 has seen this incarnation");
        return member.finish(WAIT).expect("acknowledged");
    }
    let former = member.table()[1].incarnation;
    let mut incarnations = Vec::new();
    while incarnations.last() != Some(&"joined") {
        match notice(&mut member, WAIT) {
            Some(MembershipEvent::Failed { rank: Rank(1), incarnation, .. }) if incarnation == former => {
                incarnations.push("died")
            }
            Some(MembershipEvent::Joined { rank: Rank(1), entry }) if entry.incarnation != former => {
                assert_eq!(member.table()[1], entry);
                incarnations.push("joined");
            }
            other => panic!("{other:?}"),
        }
    }
    println!("{}", incarnations.join(" "));
    member.fence(WAIT).expect("the new incarnation takes part");
    member.finish(WAIT).expect("acknowledged");
}

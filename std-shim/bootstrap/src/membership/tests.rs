use super::*;
use crate::Version;
use crate::join_options::{JoinError, JoinOptions, Rendezvous};
use crate::{
    OnDeath, Secret, Server, ServerConfig, ServerReport,
    host_port::HostPort,
    message::Refusal,
    peer_record::{Digests, Ending, Incarnation, LocalRecord},
    rank::JobPosition,
    stream::{ClientRole, connect::connect},
};
use core::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};
use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

const KEY: &str = "a secret of this job";
const WAIT: Duration = Duration::from_secs(5);

fn hosting(size: u32, on_death: OnDeath) -> ServerConfig {
    let secret = Secret::new(KEY).expect("long enough");
    let assembly = Duration::from_millis(200);
    ServerConfig { size, secret, job: "job".to_owned(), on_death, reports_ends: true, join_timeout: assembly }
}

fn serve(hosting: ServerConfig) -> (Server, mpsc::Receiver<ServerReport>) {
    let (to, reports) = mpsc::channel();
    let server = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), hosting, move |report| {
        let _ = to.send(report);
    });
    (server.expect("a free port"), reports)
}

fn rendezvous(at: SocketAddr) -> Rendezvous {
    let secret = Secret::new(KEY).expect("long enough");
    Rendezvous { place: at.into(), secret, job: "job".to_owned(), serve: false, on_death: OnDeath::End }
}

fn options(rendezvous: Rendezvous, rank: u32, size: u32) -> JoinOptions {
    let position = JobPosition::new(Rank(rank), size).expect("a rank of the job");
    JoinOptions { position, node: None, rendezvous: Some(rendezvous), assembly: Duration::from_secs(3) }
}

fn offer(rank: u32) -> LocalRecord {
    static LIFE: AtomicUsize = AtomicUsize::new(1);
    let incarnation = LIFE.fetch_add(1, Ordering::Relaxed) as u32;
    let lane = |port| SocketAddr::from(([0, 0, 0, 0], port));
    LocalRecord {
        location: crate::location::Location::default(),
        link_megabits: 0,
        incarnation: Incarnation(incarnation),
        addresses: [lane(1000 + rank as u16), lane(2000)],
        further_rails: Vec::new(),
        rails_max: 1,
        checksums: true,
        mtu: 1472,
        digests: Digests { tuning: 5, transport: 6 },
    }
}

fn join_all(at: SocketAddr, size: u32) -> Vec<Membership> {
    thread::scope(|scope| {
        let joining: Vec<_> = (0..size)
            .map(|rank| scope.spawn(move || Membership::join(&options(rendezvous(at), rank, size), offer(rank))))
            .collect();
        joining.into_iter().map(|thread| thread.join().expect("no panic").expect("joins")).collect()
    })
}

fn notice(member: &mut Membership) -> MembershipEvent {
    let deadline = Instant::now() + WAIT;
    while Instant::now() < deadline {
        if let Some(notice) = member.poll() {
            return notice;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("no notice");
}

#[test]
fn all_ranks_get_the_same_table() {
    let (server, reports) = serve(hosting(5, OnDeath::Tell));
    let members = join_all(server.local(), 5);
    assert_eq!(reports.recv_timeout(WAIT), Ok(ServerReport::AllJoined));
    for member in &members {
        assert_eq!(member.table(), members[0].table());
    }
    let lanes: Vec<_> = members[0].table().iter().map(|entry| entry.addresses[0]).collect();
    assert_eq!(lanes, (1000..1005).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect::<Vec<_>>());
}

#[test]
fn a_table_of_many_parts_arrives_whole() {
    let size = 600_u32;
    let (server, _reports) = serve(ServerConfig { join_timeout: WAIT, ..hosting(size, OnDeath::Tell) });
    let at = server.local();
    let key = Secret::new(KEY).expect("long enough").for_job("job");
    let deadline = Instant::now() + WAIT;
    let others: Vec<AuthenticatedStream> = (1..size)
        .map(|rank| {
            let place = HostPort::from(at);
            let places = [place];
            let (mut link, _) = connect(&places, ClientRole::Member(rank), &key, deadline).expect("proves itself");
            let join = ClientMessage::Join {
                version: Version::CURRENT,
                offer: offer(rank),
                pid: 1,
                node: Some(rank / 64),
                host: String::new(),
            };
            link.send(&join.encode()).expect("sent");
            link
        })
        .collect();
    let member = Membership::join(&options(rendezvous(at), 0, size), offer(0)).expect("joins");
    assert_eq!(member.table().len(), 600);
    assert_eq!(member.table()[599].node, 599 / 64);
    drop(others);
}

#[test]
fn a_wrong_secret_or_job_is_refused_by_both_sides() {
    let (server, _reports) = serve(hosting(1, OnDeath::Tell));
    let right = rendezvous(server.local());
    let other_secret = Secret::new("another secret, quite long").expect("long enough");
    for wrong in [Rendezvous { secret: other_secret, ..right.clone() }, Rendezvous { job: "other".to_owned(), ..right }]
    {
        let refused = Membership::join(&options(wrong, 0, 1), offer(0));
        let place = HostPort::from(server.local());
        assert_eq!(refused.err(), Some(JoinError::Connect { place, reason: ConnectionError::Unauthenticated }));
    }
    // A client that skips the server's proof and reflects it is refused, too.
    let mut stream = TcpStream::connect(server.local()).expect("connects");
    let mut hello = *b"unisono\x03\0\0\0\0\0\0\0\0................................";
    hello[8] = 0;
    stream.write_all(&hello).expect("sent");
    let mut challenge = [0; 72];
    stream.read_exact(&mut challenge).expect("a challenge");
    stream.write_all(&challenge[40..]).expect("the server's own proof, reflected");
    assert_eq!(stream.read(&mut challenge).expect("closed"), 0);
}

#[test]
fn a_server_of_another_protocol_is_recognised() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("bound");
    let stranger = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(&[b'x'; 72]).expect("sent");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let refused = Membership::join(&options(rendezvous(at), 0, 1), offer(0));
    assert_eq!(refused.err(), Some(JoinError::Connect { place: at.into(), reason: ConnectionError::Version }));
    stranger.join().expect("no panic");
}

#[test]
fn missing_ranks_are_named_in_time() {
    let (server, _reports) = serve(hosting(3, OnDeath::Tell));
    let refused = Membership::join(&options(rendezvous(server.local()), 1, 3), offer(1)).expect_err("two are missing");
    assert_eq!(refused, JoinError::Refused { rank: Rank(1), refusal: Refusal::MissingRanks { count: 2, first: 0 } });
    let nobody = rendezvous(SocketAddr::from(([127, 0, 0, 1], 1)));
    let nobody = JoinOptions { assembly: Duration::from_millis(50), ..options(nobody, 1, 3) };
    let refused = Membership::join(&nobody, offer(1)).expect_err("nobody serves there");
    assert!(matches!(
        refused,
        JoinError::Connect { reason: ConnectionError::Broken(io::ErrorKind::ConnectionRefused), .. }
    ));
}

#[test]
fn failures_new_incarnations_and_answers_arrive() {
    let (server, _reports) = serve(hosting(2, OnDeath::Tell));
    let mut members = join_all(server.local(), 2);
    let former = members[0].table()[1].clone();
    let mut zero = members.remove(0);
    assert_eq!(zero.poll(), None);
    zero.query_liveness(Rank(1));
    assert_eq!(notice(&mut zero), MembershipEvent::Liveness { rank: Rank(1), liveness: Liveness::Alive });
    let ending = Ending::Signalled(9);
    server.report_end(Rank(1), ending);
    let incarnation = former.incarnation;
    assert_eq!(notice(&mut zero), MembershipEvent::Failed { rank: Rank(1), incarnation, ending });
    zero.query_liveness(Rank(1));
    assert_eq!(notice(&mut zero), MembershipEvent::Liveness { rank: Rank(1), liveness: Liveness::Dead });
    let again = Membership::join(&options(rendezvous(server.local()), 1, 2), offer(1)).expect("a new life");
    assert_ne!(again.table()[1].incarnation, former.incarnation);
    assert_eq!(notice(&mut zero), MembershipEvent::Joined { rank: Rank(1), entry: again.table()[1].clone() });
    assert_eq!(zero.table(), again.table());
    drop(server);
    assert_eq!(notice(&mut zero), MembershipEvent::Disconnected(ConnectionError::Closed));
    assert_eq!(zero.poll(), None);
    assert_eq!(zero.fence(WAIT), Err(AwaitError::Connection(ConnectionError::Closed)));
}

#[test]
fn a_further_rail_reaches_all_ranks_and_those_that_join_later() {
    let (server, _reports) = serve(hosting(2, OnDeath::Tell));
    let mut members = join_all(server.local(), 2);
    let lanes = [SocketAddr::from(([10, 0, 0, 1], 5)), SocketAddr::from(([10, 0, 0, 1], 6))];
    members[1].add_rail(1, lanes);
    let incarnation = members[0].table()[1].incarnation;
    for member in &mut members {
        assert_eq!(notice(member), MembershipEvent::Rail { rank: Rank(1), incarnation, rail: 1, lanes });
        assert_eq!(member.table()[1].further_rails, [lanes]);
    }
    server.report_end(Rank(0), Ending::Signalled(9));
    let again = Membership::join(&options(rendezvous(server.local()), 0, 2), offer(0)).expect("a new life");
    assert_eq!(again.table()[1].further_rails, [lanes]);
}

#[test]
fn a_query_without_answer_times_out() {
    let (server, reports) = serve(hosting(2, OnDeath::Tell));
    let key = Secret::new(KEY).expect("long enough").for_job("job");
    let (mut agent, _) = connect(&[HostPort::from(server.local())], ClientRole::Agent(0), &key, Instant::now() + WAIT)
        .expect("proves itself");
    agent.send(&ClientMessage::Started { rank: Rank(1), pid: 1 }.encode()).expect("sent");
    assert_eq!(reports.recv_timeout(WAIT), Ok(ServerReport::AgentConnected(0)));
    assert!(matches!(reports.recv_timeout(WAIT), Ok(ServerReport::Started { .. })));
    let mut zero = join_all(server.local(), 2).remove(0);
    // Much longer than an answer takes here: the query times out.
    let silence = Duration::from_millis(300);
    let asked = Instant::now();
    zero.query_liveness_within(Rank(1), silence);
    // A second query is ignored, so the timeout does not move.
    zero.query_liveness_within(Rank(1), 10 * WAIT);
    assert_eq!(notice(&mut zero), MembershipEvent::Liveness { rank: Rank(1), liveness: Liveness::Unanswered });
    assert!(asked.elapsed() >= silence);
    // A rank whose agent answers in time is alive.
    assert_eq!(zero.queries.front(), None);
    zero.query_liveness_within(Rank(0), silence);
    assert_eq!(notice(&mut zero), MembershipEvent::Liveness { rank: Rank(0), liveness: Liveness::Alive });
    thread::sleep(silence);
    assert_eq!(zero.poll(), None);
    zero.query_liveness(Rank(1));
    let (rank, until) = *zero.queries.front().expect("asked");
    assert!(rank == Rank(1) && until > Instant::now() + AGENT_SILENCE - WAIT);
}

#[test]
fn fences_values_and_finishing_work() {
    let (server, reports) = serve(hosting(2, OnDeath::End));
    let mut members = join_all(server.local(), 2);
    members[1].put(b"key", b"value", WAIT).expect("room");
    assert_eq!(members[0].get(b"key", WAIT), Ok(Some(b"value".to_vec())));
    assert_eq!(members[0].get(b"none", WAIT), Ok(None));
    assert_eq!(members[0].put(&[0; KEY_MAX + 1], b"", WAIT), Err(AwaitError::TooLong));
    thread::scope(|scope| {
        for member in &mut members {
            scope.spawn(|| assert_eq!(member.fence(WAIT), Ok(())));
        }
    });
    for member in members {
        member.finish(WAIT).expect("acknowledged");
    }
    assert_eq!(reports.recv_timeout(WAIT), Ok(ServerReport::AllJoined));
    assert_eq!(reports.recv_timeout(WAIT), Ok(ServerReport::Finished));
}

#[test]
fn a_fence_that_nobody_else_reaches_times_out() {
    let (server, _reports) = serve(hosting(2, OnDeath::End));
    let mut members = join_all(server.local(), 2);
    assert_eq!(members[0].fence(Duration::from_millis(30)), Err(AwaitError::Connection(ConnectionError::Timeout)));
}

#[test]
fn an_abort_reaches_the_launcher_and_the_others() {
    let (server, reports) = serve(hosting(2, OnDeath::Silent));
    let mut members = join_all(server.local(), 2);
    members[1].abort(7);
    assert_eq!(notice(&mut members[0]), MembershipEvent::Aborted { rank: Rank(1), code: 7 });
    assert_eq!(reports.recv_timeout(WAIT), Ok(ServerReport::AllJoined));
    assert_eq!(reports.recv_timeout(WAIT), Ok(ServerReport::Aborted { rank: Rank(1), code: 7 }));
}

#[test]
fn rank_zero_serves_where_no_launcher_does() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let serving = Rendezvous { serve: true, on_death: OnDeath::Tell, ..rendezvous(port) };
    let foreign = |rank| options(serving.clone(), rank, 3);
    let mut members: Vec<Membership> = thread::scope(|scope| {
        let joining: Vec<_> =
            (0..3).rev().map(|rank| scope.spawn(move || Membership::join(&foreign(rank), offer(rank)))).collect();
        joining.into_iter().rev().map(|thread| thread.join().expect("no panic").expect("joins")).collect()
    });
    let last = members.remove(2);
    let incarnation = last.table()[2].incarnation;
    drop(last);
    let expected = MembershipEvent::Failed { rank: Rank(2), incarnation, ending: Ending::Disconnected };
    assert_eq!(notice(&mut members[1]), expected);
    thread::scope(|scope| {
        for member in members {
            scope.spawn(|| member.finish(WAIT).expect("acknowledged"));
        }
    });
}

#[test]
fn a_job_of_one_needs_no_server() {
    let options = JoinOptions { rendezvous: None, ..options(rendezvous(SocketAddr::from(([127, 0, 0, 1], 1))), 0, 1) };
    let mut alone = Membership::join(&options, offer(0)).expect("joins");
    assert_eq!((alone.rank(), alone.size(), alone.table().len()), (Rank(0), 1, 1));
    assert!(alone.table()[0].addresses[0].ip().is_loopback());
    assert_eq!((alone.poll(), alone.fence(WAIT)), (None, Ok(())));
    alone.finish(WAIT).expect("nobody to ask");
}

#[test]
fn unauthenticated_connections_do_not_disturb_a_job() {
    let (server, _reports) = serve(hosting(2, OnDeath::Tell));
    let mut strangers = Vec::new();
    for noise in 0..100_u8 {
        let mut stream = TcpStream::connect(server.local()).expect("connects");
        let _ = stream.write_all(&vec![noise; usize::from(noise)]);
        strangers.push(stream);
    }
    assert_eq!(join_all(server.local(), 2).len(), 2);
}

#[test]
fn a_member_that_violates_the_protocol_is_disconnected() {
    let (server, reports) = serve(ServerConfig { reports_ends: false, ..hosting(3, OnDeath::Tell) });
    let mut members = join_all(server.local(), 3);
    let invalid = [
        vec![100],
        vec![1, 0xff],
        ClientMessage::Started { rank: Rank(0), pid: 1 }.encode(),
        ClientMessage::Join { version: Version::CURRENT, offer: offer(1), pid: 1, node: None, host: String::new() }
            .encode(),
    ];
    let mut talker = members.remove(1);
    for (number, said) in invalid.into_iter().enumerate() {
        talker.connection.as_mut().expect("joined").send(&said).expect("sent");
        assert!(
            matches!(notice(&mut talker), MembershipEvent::Disconnected(ConnectionError::Closed)),
            "invalid message {number}"
        );
        let ending = Ending::Disconnected;
        let incarnation = members[0].table()[1].incarnation;
        assert_eq!(notice(&mut members[0]), MembershipEvent::Failed { rank: Rank(1), incarnation, ending });
        talker = Membership::join(&options(rendezvous(server.local()), 1, 3), offer(1)).expect("a new life");
        assert!(matches!(notice(&mut members[0]), MembershipEvent::Joined { rank: Rank(1), .. }));
    }
    assert_eq!(reports.try_iter().filter(|report| matches!(report, ServerReport::Failed { .. })).count(), 4);
}

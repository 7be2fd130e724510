use super::*;
use proptest::prelude::*;

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::from_variables(variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
}

fn refused(variables: &[(&str, &str)]) -> String {
    read(variables).expect_err("must be refused").to_string()
}

const PLACED: [(&str, &str); 4] = [
    ("UNISONO_RANK", "1"),
    ("UNISONO_SIZE", "2"),
    ("UNISONO_BOOTSTRAP", "node:4711"),
    ("UNISONO_SECRET", "0123456789abcdef"),
];

#[test]
fn an_empty_environment_is_a_job_of_its_own() {
    let settings = read(&[("PATH", "/bin"), ("UNISON_RANK", "not ours")]).expect("nothing is set");
    assert_eq!(settings.position, None);
    assert_eq!(settings.transport, TransportSettings::default());
    assert_eq!(settings.join_timeout(), Duration::from_secs(60));
}

#[test]
fn unknown_names_are_refused_by_name() {
    assert_eq!(
        refused(&[("UNISONO_PROGRES", "thread")]),
        "UNISONO_PROGRES is not a setting of unisono; did you mean UNISONO_PROGRESS?"
    );
    assert_eq!(refused(&[("UNISONO_COLOUR_OF_SKY", "blue")]), "UNISONO_COLOUR_OF_SKY is not a setting of unisono");
    let error = refused(&[("UNISONO_SEGMENTS", "2")]);
    assert_eq!(
        error, "UNISONO_SEGMENTS is not a setting of unisono",
        "variables that launchers set for ranks are not suggested"
    );
    assert!(refused(&[("UNISONO_", "")]).starts_with("UNISONO_ is not a setting"));
    assert!(refused(&[("UNISONO_rank", "1")]).starts_with("UNISONO_rank is not a setting"));
}

#[test]
fn bad_values_name_their_variable() {
    assert_eq!(refused(&[("UNISONO_DEVICE", "tcp")]), "UNISONO_DEVICE=tcp: expected one of auto, shm, udp, verbs");
    assert_eq!(refused(&[("UNISONO_SILENCE", "121s")]), "UNISONO_SILENCE=121s: expected a duration from 1ms to 120s");
    assert!(
        refused(&[("UNISONO_TUNING", "/nonexistent")])
            .starts_with("UNISONO_TUNING=/nonexistent: the table cannot be read")
    );
    assert!(refused(&[("UNISONO_LOSS", "105%")]).starts_with("UNISONO_LOSS=105%: "));
    assert!(refused(&[("UNISONO_MTU", "100")]).starts_with("UNISONO_MTU=100: "));
    assert_eq!(
        refused(&[("UNISONO_SCAN", "bruck:k=2")]),
        "UNISONO_SCAN=bruck:k=2: expected one of dissemination, ring"
    );
    assert_eq!(
        refused(&[("UNISONO_ALLGATHER", "bruck:k=0")]),
        "UNISONO_ALLGATHER=bruck:k=0: k= must be a number from 1 to 16"
    );
    assert_eq!(refused(&[("UNISONO_WATCHDOG", "0s")]), "UNISONO_WATCHDOG=0s: expected a duration from 1ms to 3600s");
}

#[test]
fn faults_are_for_datagrams() {
    let reason = refused(&[("UNISONO_DEVICE", "shm"), ("UNISONO_LOSS", "5%")]);
    assert_eq!(reason, "UNISONO_DEVICE=shm: fault injection applies to the device udp, not to this one");
    for setting in [("UNISONO_SEED", "7"), ("UNISONO_CORRUPT", "1%"), ("UNISONO_MTU", "1500"), ("UNISONO_GSO", "off")] {
        for device in ["shm", "verbs"] {
            let reason = refused(&[("UNISONO_DEVICE", device), setting]);
            assert!(reason.ends_with("the device udp, not to this one"), "{setting:?}: {reason}");
        }
        for device in ["auto", "udp"] {
            assert!(read(&[("UNISONO_DEVICE", device), setting]).is_ok(), "{setting:?}");
        }
    }
    let shares = |variables: &[_], ranks, size| read(variables).expect("good").transport.shares_memory(ranks, size);
    let loss = [("UNISONO_LOSS", "5%")];
    assert!(shares(&[], 2, 2) && !shares(&[], 1, 2) && !shares(&loss, 2, 2) && shares(&loss, 2, 3));
    assert!(shares(&[("UNISONO_DEVICE", "shm")], 1, 1) && !shares(&[("UNISONO_DEVICE", "udp")], 2, 3));
}

#[test]
fn a_seat_needs_its_neighbours() {
    assert_eq!(read(&PLACED).expect("complete").position, JobPosition::new(Rank(1), 2));
    assert_eq!(refused(&PLACED[..1]), "UNISONO_RANK needs UNISONO_SIZE, which is not set");
    assert_eq!(refused(&PLACED[..2]), "UNISONO_SIZE needs UNISONO_BOOTSTRAP, which is not set");
    assert_eq!(refused(&PLACED[..3]), "UNISONO_BOOTSTRAP needs UNISONO_SECRET, which is not set");
    let ranks = [("UNISONO_RANK", "2"), ("UNISONO_SIZE", "2")];
    assert_eq!(refused(&ranks), "UNISONO_RANK=2: expected a rank below UNISONO_SIZE=2");
    assert!(refused(&[("UNISONO_RANK", "0"), ("UNISONO_SIZE", "0")]).starts_with("UNISONO_SIZE=0: "));
    assert!(read(&[("UNISONO_RANK", "0"), ("UNISONO_SIZE", "1")]).is_ok(), "a job of one rank needs no rendezvous");
}

#[test]
fn an_error_that_main_returns_shows_whole_names() {
    for (variable, value) in [("UNISONO_LOSS", "2"), ("UNISONO_SIZE", "3"), ("UNISONO_BARIER", "ring")] {
        let error = read(&[(variable, value)]).expect_err("invalid");
        assert!(format!("{error:?}").contains(variable), "{error:?}");
    }
    let misspelt = read(&[("UNISONO_BARIER", "ring")]).expect_err("misspelt");
    assert!(format!("{misspelt:?}").contains("UNISONO_BARRIER"), "{misspelt:?}");
}

#[test]
fn a_secret_is_never_shown() {
    let text = refused(&[("UNISONO_SECRET", "tooshort")]);
    assert_eq!(text, "UNISONO_SECRET: a secret must have 16 to 1024 bytes");
    let settings = read(&PLACED).expect("complete");
    assert!(!format!("{settings:?}").contains("0123456789abcdef"));
    let both = [PLACED[3], ("UNISONO_SECRET_FILE", "/tmp/none")];
    assert_eq!(refused(&both), "UNISONO_SECRET and UNISONO_SECRET_FILE cannot both be set");
    assert!(refused(&[("UNISONO_SECRET_FILE", "/nonexistent/key")]).starts_with("UNISONO_SECRET_FILE: "));
}

#[test]
fn hosts_are_not_divided_into_nodes() {
    let both = [("UNISONO_HOSTS", "a:4"), ("UNISONO_NODES", "2")];
    assert_eq!(refused(&both), "UNISONO_HOSTS and UNISONO_NODES cannot both be set");
    assert_eq!(read(&both[1..]).expect("good").variables().last(), Some(&("NODES", "2".to_owned())));
}

/// A value of every setting but the place in the job. The table of algorithms is in that file.
fn values(table: &str) -> [(&str, &str); 66] {
    [
        ("UNISONO_SHARING", "3"),
        ("UNISONO_LINK_SPEED", "25G"),
        ("UNISONO_HIERARCHY", "8,2"),
        ("UNISONO_LEADERS", "all"),
        ("UNISONO_PARTS", "off"),
        ("UNISONO_TUNING", table),
        ("UNISONO_SERVE", "off"),
        ("UNISONO_JOB", "j-1"),
        ("UNISONO_NODE", "3"),
        ("UNISONO_LOCAL_RANK", "1"),
        ("UNISONO_LOCAL_SIZE", "4"),
        ("UNISONO_SEGMENT", "17@4242"),
        ("UNISONO_LOCATION", "switch=1,cache=3"),
        ("UNISONO_SWITCHES", "2"),
        ("UNISONO_SOCKETS", "2"),
        ("UNISONO_CACHES", "4"),
        ("UNISONO_DEVICE", "udp"),
        ("UNISONO_PROGRESS", "hybrid"),
        ("UNISONO_MTU", "1500"),
        ("UNISONO_GSO", "off"),
        ("UNISONO_RAILS", "10.1.0.0/16,eth2"),
        ("UNISONO_RAILS_MAX", "3"),
        ("UNISONO_INTEGRITY", "crc32c"),
        ("UNISONO_QUEUES", "raw"),
        ("UNISONO_RC_LIMIT", "8"),
        ("UNISONO_EAGER_POOL", "64K"),
        ("UNISONO_LOSS", "5%"),
        ("UNISONO_REORDER", "0.5%"),
        ("UNISONO_DUP", "0.02"),
        ("UNISONO_CORRUPT", "1%"),
        ("UNISONO_CUT", "1@300+500"),
        ("UNISONO_SEED", "7"),
        ("UNISONO_ON_DEATH", "tell"),
        ("UNISONO_SILENCE", "1500ms"),
        ("UNISONO_WATCHDOG", "5s"),
        ("UNISONO_STUCK", "20s"),
        ("UNISONO_UNREACHABLE", "1m"),
        ("UNISONO_MULTICAST", "239.255.7.0:4711%eth1"),
        ("UNISONO_GROUPS", "pool:3"),
        ("UNISONO_MULTICAST_ACKS", "co-root:2"),
        ("UNISONO_ATTACH", "2ms"),
        ("UNISONO_CHECK", "on"),
        ("UNISONO_PIN", "on"),
        ("UNISONO_TAG_OUTPUT", "on"),
        ("UNISONO_RSH", "ip netns exec"),
        ("UNISONO_GRACE", "3s"),
        ("UNISONO_RANKS", "6"),
        ("UNISONO_MPI", "on"),
        ("UNISONO_HOSTS", "a:4,[fe80::1%eth0]:2,b:1"),
        ("UNISONO_BARE_METAL", "1"),
        ("UNISONO_IMAGE", "/images/rank"),
        ("UNISONO_EMULATOR", "qemu -enable-kvm"),
        ("UNISONO_ASSEMBLY", "20s"),
        ("UNISONO_STATS", "on"),
        ("UNISONO_STATS_FILE", "/tmp/stats"),
        ("UNISONO_BARRIER", "dissemination:k=3"),
        ("UNISONO_BROADCAST", "knomial:k=2,radix=5,segments=8"),
        ("UNISONO_REDUCE", "ring"),
        ("UNISONO_ALLREDUCE", "standard-exchange:k=2"),
        ("UNISONO_GATHER", "direct"),
        ("UNISONO_SCATTER", "knomial"),
        ("UNISONO_ALLGATHER", "bruck:k=2"),
        ("UNISONO_ALLTOALL", "pairwise:k=16"),
        ("UNISONO_REDUCE_SCATTER", "halving:segments=4096"),
        ("UNISONO_SCAN", "ring:segments=64"),
        ("UNISONO_EXSCAN", "dissemination"),
    ]
}

/// A table of algorithms.
fn table() -> tempfile::NamedTempFile {
    let table = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(table.path(), "unisono tuning 2\nfor any\nudp barrier 2- 0- knomial\nend\n").expect("written");
    table
}

#[test]
fn common_settings_are_those_that_all_ranks_compare() {
    let table = table();
    let path = table.path().to_str().expect("a path");
    let plain = read(&PLACED).expect("complete").digests();
    for setting in values(path) {
        let mut given = PLACED.to_vec();
        given.push(setting);
        let name = setting.0.trim_start_matches(PREFIX);
        let variable = catalogue::VARIABLES.iter().find(|variable| variable.name == name).expect("listed");
        let differs = read(&given).expect("good").digests() != plain;
        assert_eq!(differs, variable.is_common, "{name}");
    }
}

#[test]
fn tables_that_differ_in_files_of_one_name_are_found() {
    let table = table();
    let path = table.path().to_str().expect("a path");
    let digests = || read(&[&PLACED[..], &[("UNISONO_TUNING", path)]].concat()).expect("good").digests();
    let before = digests();
    assert_eq!(digests(), before);
    std::fs::write(table.path(), "unisono tuning 2\nfor any\nudp barrier 2- 0- doubling\nend\n").expect("written");
    assert_ne!(digests().tuning, before.tuning);
}

#[test]
fn every_setting_survives_the_way_to_another_process() {
    let table = table();
    let mut given = PLACED.to_vec();
    given.extend(values(table.path().to_str().expect("a path")));
    let settings = read(&given).expect("all are good");
    let variables = settings.variables();
    // Not printed: the log filter and the secret's file, which only this process reads, and nodes, since hosts are set.
    assert_eq!(variables.len() + 3, catalogue::VARIABLES.len(), "a setting is missing here or in `variables`");
    let again = Settings::from_variables(
        variables.iter().map(|(name, value)| (OsString::from(format!("{PREFIX}{name}")), OsString::from(value))),
    );
    let again = again.expect("what is printed parses");
    assert_eq!(again.variables(), variables);
    assert_eq!(
        (again.transport, again.position, again.locality),
        (settings.transport, settings.position, settings.locality)
    );
    assert_eq!((again.launcher, again.bootstrap), (settings.launcher, settings.bootstrap));
    assert_eq!(again.tuning, settings.tuning);
}

proptest! {
    #[test]
    fn no_text_panics(index in 0..catalogue::VARIABLES.len(), value in ".{0,40}") {
        let name = format!("{PREFIX}{}", catalogue::VARIABLES[index].name);
        // A file of that name hardly exists; reading it must not panic either.
        let _ = read(&[(&name, &value)]);
    }
}

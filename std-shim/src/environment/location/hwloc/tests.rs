use super::*;
use proptest::prelude::*;
use std::fs;

/// Two packages, each with a NUMA node and two caches of level 3, each of these with two processors: 0 to 3, and 32 to 35.
const FILES: [&str; 2] = [include_str!("two_packages_v1.xml"), include_str!("two_packages_v2.xml")];

fn parse(text: &str) -> Result<Topology, String> {
    Topology::parse(text.as_bytes()).map_err(|error| error.to_string())
}

/// A file of 2.x of one machine with these objects.
fn machine(objects: &str) -> String {
    format!(r#"<topology version="2.0"><object type="Machine">{objects}</object></topology>"#)
}

/// An object without a number.
fn object(kind: &str, cpuset: &str) -> String {
    format!(r#"<object type="{kind}" cpuset="{cpuset}"/>"#)
}

#[test]
fn units_are_those_of_the_file() {
    for text in FILES {
        let topology = parse(text).expect("a file of hwloc");
        let units = |processors: &[usize]| topology.locate(processors).expect("processors of the file").to_string();
        assert_eq!(units(&[0]), "socket=0,numa=0,cache=0");
        assert_eq!(units(&[2, 3]), "socket=0,numa=0,cache=2");
        assert_eq!(units(&[1, 2]), "socket=0,numa=0");
        assert_eq!(units(&[34, 35]), "socket=1,numa=1,cache=34");
        assert_eq!(units(&[32, 33, 34, 35]), "socket=1,numa=1");
        assert_eq!(units(&[0, 32]), "");
        assert_eq!(units(&[]), "");
    }
}

#[test]
fn a_processor_that_the_file_lacks_is_named() {
    for text in FILES {
        let error = parse(text).expect("a file of hwloc").locate(&[3, 4]).expect_err("no processor 4");
        assert_eq!(error.to_string(), "it does not have processor 4, which this process may use");
    }
}

#[test]
fn the_last_level_cache_holds_data_and_the_numa_node_is_the_smallest() {
    let numa =
        |number: u32, cpuset: &str| format!(r#"<object type="NUMANode" os_index="{number}" cpuset="{cpuset}"/>"#);
    let objects = [
        object("PU", "0x1"),
        object("PU", "0x2"),
        object("L2Cache", "0x3"),
        object("L1Cache", "0x2"),
        object("L3iCache", "0x2"),
        object("MemCache", "0x2"),
        numa(0, "0x3"),
        numa(7, "0x2"),
        numa(5, "0x2"),
        r#"<object type="Package" os_index="-1" cpuset="0x3"/>"#.to_owned(),
    ];
    let topology = parse(&machine(&objects.concat())).expect("a file of hwloc");
    assert_eq!(topology.locate(&[1]).map(|at| at.to_string()).ok().as_deref(), Some("numa=5,cache=0"));
    assert_eq!(topology.locate(&[0]).map(|at| at.to_string()).ok().as_deref(), Some("numa=0,cache=0"));
}

#[test]
fn sets_of_processors_are_words_of_which_some_are_empty() {
    let set = |text: &str| processors(text).ok();
    assert_eq!(set("0x80000001"), Some(vec![0, 31]));
    assert_eq!(set("0x00000003,0x00000100"), Some(vec![8, 32, 33]));
    assert_eq!(set("0x1,,0x0"), Some(vec![64]));
    assert_eq!(set("0x0"), Some(vec![]));
    // Processors of higher numbers cannot be those of a process.
    assert_eq!(set(&format!("0x1{},0x2", ",".repeat(CpuSet::MAX_CPU / 32 - 1))), Some(vec![1]));
    for text in ["0xf...f", "0xf...f,0x1", "0x100000000", "0x", "1", "0x+1", "0x1 ", "0x1;0x1", "-1"] {
        assert_eq!(set(text), None, "{text}");
    }
}

#[test]
fn other_files_are_refused_with_their_reason() {
    let error = |text: &str| parse(text).expect_err("no file of hwloc");
    assert!(error("").starts_with("it is not XML: "));
    assert!(error("socket=1").starts_with("it is not XML: "));
    assert!(error(&FILES[1][..FILES[1].len() / 2]).starts_with("it is not XML: "));
    assert!(error(&FILES[1].replace("</topology>", "</topologies>")).starts_with("it is not XML: "));
    assert!(error(&FILES[1].replace("UTF-8", "UTF-16")).starts_with("it is not XML: "));
    assert!(matches!(Topology::parse(b"<topology>\xff</topology>"), Err(TopologyError::Malformed(_))));
    assert_eq!(error("<html/>"), "its first element is html, not topology");
    assert_eq!(error(&FILES[1].replace("\"2.0\"", "\"4.0\"")), r#"its version is "4.0": expected 1, 2 or 3"#);
    assert_eq!(error(&FILES[1].replace("version=\"2.0\"", "version=\"\"")), r#"its version is "": expected 1, 2 or 3"#);
    assert!(parse(&FILES[1].replace("\"2.0\"", "\"3.0\"")).is_ok());
    assert_eq!(error("<topology/>"), "it has no processor");
    assert_eq!(
        error(&machine(&object("PU", "0xf...f"))),
        r#"an object has cpuset="0xf...f": expected words of 32 bits, such as 0x00000001,0xffffffff"#
    );
    assert_eq!(
        error(&FILES[0].replace("depth=\"3\"", "depth=\"three\"")),
        r#"an object has depth="three": expected a number"#
    );
    let declarations = "it declares entities or namespaces, which files of hwloc do not";
    assert_eq!(error("<!DOCTYPE topology [<!ENTITY a 'b'>]><topology/>"), declarations);
    assert_eq!(error(r#"<topology xmlns:a="b"/>"#), declarations);
}

#[test]
fn deep_and_long_files_are_refused() {
    let too_many = TopologyError::TooManyElements.to_string();
    let deep = "<topology>".to_owned() + &"<object>".repeat(1 << 20);
    assert_eq!(parse(&deep), Err(too_many.clone()));
    let long = format!("<topology>{}</topology>", "<a/>".repeat(ELEMENTS_MAX as usize));
    assert_eq!(parse(&long), Err(too_many));
    let attributes: String = (0..=ATTRIBUTES_MAX).map(|number| format!(r#" a{number}="""#)).collect();
    assert!(parse(&format!("<topology{attributes}/>")).is_err_and(|error| error.starts_with("it is not XML: ")));
    // Entities that expand to a multiple of the file.
    let entities = format!("<!DOCTYPE a [<!ENTITY a '{}'><!ENTITY % b '%b;'>%b;]>", "a".repeat(1 << 16));
    assert!(parse(&format!("{entities}<topology b=\"{}\"/>", "&a;".repeat(1 << 16))).is_err());
}

#[test]
fn a_path_that_is_no_file_of_this_kind_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = |path: &Path| Topology::read(path).expect_err("no file of hwloc").to_string();
    assert!(error(&folder.path().join("missing")).starts_with("it cannot be read: "));
    assert_eq!(error(folder.path()), "it is not a regular file");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("a FIFO");
    assert_eq!(error(&pipe), "it is not a regular file");
    let long = folder.path().join("long.xml");
    fs::File::create(&long).and_then(|file| file.set_len(BYTES_MAX + 1)).expect("a file");
    assert_eq!(error(&long), "it has more than 16 MiB");
    let good = folder.path().join("good.xml");
    fs::write(&good, FILES[1]).expect("a file");
    assert_eq!(Topology::read(&good).ok(), parse(FILES[1]).ok());
}

proptest! {
    #[test]
    fn a_damaged_file_is_read_or_refused(
        file in 0_usize..2,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        markup in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(
                b"<>/\"'&;![]-?=%# x".to_vec(),
            )), 0..8,
        ),
        (cut, moved, length) in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0_usize..64),
    ) {
        let mut text = FILES[file].as_bytes().to_vec();
        // A part of the file once more at another place.
        let part: Vec<u8> = text.iter().skip(cut.index(text.len())).take(length).copied().collect();
        let place = moved.index(text.len());
        text.splice(place..place, part);
        for (at, byte) in changes.into_iter().take(2).chain(markup) {
            let at = at.index(text.len());
            text[at] = byte;
        }
        if let Ok(topology) = Topology::parse(&text) {
            let _ = topology.locate(&[0, 35]);
        }
    }
}

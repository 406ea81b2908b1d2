//! Tests of `sample`: rings of threads over real sockets.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::ring::{accept, greeting};
use super::*;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

fn soon() -> Instant {
    Instant::now() + CONNECT_TIMEOUT
}

/// Connects `ranks` workers and runs `work` on each in a thread of its own.
fn with_ring<R: Send>(ranks: usize, work: impl Fn(Ring) -> R + Sync) -> Vec<R> {
    let listeners: Vec<TcpListener> = (0..ranks).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let hosts: Vec<String> = listeners.iter().map(|l| l.local_addr().unwrap().to_string()).collect();
    thread::scope(|scope| {
        let workers: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(rank, listener)| {
                let place = Place { rank, hosts: hosts.clone(), restarts: 0 };
                let work = &work;
                scope.spawn(move || work(Ring::connect(&place, &listener, soon(), CONNECT_TIMEOUT).unwrap()))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

fn sum<T: Element>(ring: &mut Ring, elements: usize, step: u32) -> Result<(), Error> {
    let mut vector: Vec<T> = (0..elements).map(|index| contribution(ring.rank, index, step)).collect();
    ring.all_reduce(&mut vector, step)?;
    check(&vector, ring.ranks, step)
}

#[test]
fn every_size_of_ring_and_vector() {
    for ranks in [1, 2, 3, 5] {
        for elements in [0, 1, 2, 7, 1000, 100_003] {
            for result in with_ring(ranks, |mut ring| {
                (1..=3).try_for_each(|step| sum::<f64>(&mut ring, elements, step))?;
                sum::<i64>(&mut ring, elements, 4)
            }) {
                assert!(result.is_ok(), "{ranks} ranks, {elements} elements: {result:?}");
            }
        }
    }
}

#[test]
fn a_wrong_contribution_is_seen_by_all() {
    let results = with_ring(3, |mut ring| {
        let mut vector: Vec<i64> = (0..100).map(|index| contribution(ring.rank, index, 1)).collect();
        if ring.rank == 1 {
            vector[57] += 1;
        }
        ring.all_reduce(&mut vector, 1)?;
        check(&vector, 3, 1)
    });
    for result in results {
        assert!(matches!(result, Err(Error::WrongSum { index: 57, step: 1, .. })), "{result:?}");
    }
}

#[test]
fn a_lost_rank_is_noticed_by_all() {
    let results = with_ring(4, |mut ring| {
        if ring.rank == 2 {
            return None; // its connections close
        }
        Some((1..=2).try_for_each(|step| sum::<f64>(&mut ring, 10_000, step)))
    });
    for (rank, result) in results.into_iter().enumerate().filter(|(rank, _)| *rank != 2) {
        assert!(matches!(result, Some(Err(Error::Lost { .. }))), "rank {rank}: {result:?}");
    }
}

#[test]
fn strangers_are_turned_away() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(&greeting(5, 9)).unwrap();
    let mut short = TcpStream::connect(address).unwrap();
    short.write_all(b"GET /").unwrap();
    drop(short);
    let mut friend = TcpStream::connect(address).unwrap();
    friend.write_all(&greeting(1, 2)).unwrap();
    let accepted = accept(&listener, &greeting(1, 2), soon()).unwrap();
    assert_eq!(accepted.peer_addr().unwrap(), friend.local_addr().unwrap());
    assert_eq!(stranger.read(&mut [0]).unwrap(), 0);
}

#[test]
fn an_address_without_a_listener() {
    // A port that was just closed: it has no listener.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = vec![listener.local_addr().unwrap().to_string(), gone.to_string()];
    let place = Place { rank: 0, hosts, restarts: 0 };
    let result = Ring::connect(&place, &listener, Instant::now(), CONNECT_TIMEOUT);
    assert!(matches!(result, Err(Error::Connect { rank: 1, .. })));
}

#[test]
fn places() {
    let read = |hosts: Option<&str>, rank: Option<&str>, restarts: Option<&str>| {
        Place::read(|name| {
            let value = match name {
                HOSTS => hosts,
                RANK => rank,
                RESTARTS => restarts,
                other => panic!("{other} was asked for"),
            };
            value.map(str::to_owned)
        })
    };
    let place = read(Some("a:1,b:1"), Some("1"), Some("3")).unwrap();
    assert_eq!(place, Place { rank: 1, hosts: vec!["a:1".to_owned(), "b:1".to_owned()], restarts: 3 });
    let two_ports = read(Some("a:1,a:2,b:1,b:2"), Some("1"), None).unwrap();
    assert_eq!((two_ports.hosts, two_ports.restarts), (vec!["a:1".to_owned(), "b:1".to_owned()], 0));
    for (hosts, rank, restarts, culprit) in [
        (None, Some("0"), None, HOSTS),
        (Some(""), Some("0"), None, HOSTS),
        (Some("a"), Some("0"), None, HOSTS),
        (Some("a:x"), Some("0"), None, HOSTS),
        (Some("a:1,"), Some("0"), None, HOSTS),
        (Some("a:1"), None, None, RANK),
        (Some("a:1"), Some("1"), None, RANK),
        (Some("a:1"), Some("-1"), None, RANK),
        (Some("a:1"), Some("0"), Some("x"), RESTARTS),
    ] {
        match read(hosts, rank, restarts) {
            Err(Error::Environment { name, .. }) => assert_eq!(name, culprit),
            other => panic!("{hosts:?} {rank:?}: {other:?}"),
        }
    }
}

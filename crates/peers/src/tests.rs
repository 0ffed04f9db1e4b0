//! Files between two nodes, in the clear and encrypted.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use shardmill_core::Error;

use crate::{Cluster, ClusterOptions, ClusterStats, PeerFile, PeerFiles, TlsOptions};

const TOKEN: &str = "a-secret-of-this-run";

/// The bytes of all files.
fn content() -> Vec<u8> {
    b"text of a shard ".repeat(20_000)
}

struct Files;

impl PeerFiles for Files {
    fn read(&self, _: &PeerFile) -> Option<Vec<u8>> {
        Some(content())
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/tls-openssl-3")
        .join(name)
}

/// The files of a node that trusts an authority.
fn tls(node: &str, ca: &str) -> TlsOptions {
    TlsOptions {
        cert: fixture(&format!("{node}.pem")),
        key: fixture(&format!("{node}-key.pem")),
        ca: fixture(&format!("{ca}.pem")),
    }
}

fn good() -> Option<TlsOptions> {
    Some(tls("node", "ca"))
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn cluster(peers: [&str; 2], node: u64, tls: Option<TlsOptions>) -> Cluster {
    let options = ClusterOptions {
        peers: peers.map(str::to_owned).to_vec(),
        node,
        nodes: 2,
        token: TOKEN.to_owned(),
        tls,
    };
    Cluster::new(options).unwrap()
}

/// Fetches two files of the second node at `address`, one after the other.
fn fetch(address: &str, tls: Option<TlsOptions>) -> ([Option<Vec<u8>>; 2], ClusterStats) {
    let client = Arc::new(cluster(["127.0.0.1:1", address], 0, tls));
    let files = (0..).map(|number| PeerFile {
        set: [7; 32],
        number,
        part: 0,
    });
    let mut files = files.filter(|file| !client.is_own(file));
    let found = [(); 2].map(|()| {
        let (sender, receiver) = mpsc::channel();
        let file = files.next().unwrap();
        let _fetching = client.fetch(file, content().len() as u64, move |found| {
            sender.send(found).unwrap();
            Box::new(())
        });
        receiver.recv().unwrap()
    });
    (found, client.stats())
}

/// Starts the second node, and calls `then` with its address while it serves.
fn with_server<T>(tls: Option<TlsOptions>, then: impl FnOnce(&str) -> T) -> T {
    let address = free_address();
    let files: Arc<dyn PeerFiles> = Arc::new(Files);
    let server = cluster(["127.0.0.1:1", &address], 1, tls);
    server.serve(Arc::downgrade(&files)).unwrap();
    then(&address)
}

#[test]
fn nodes_with_the_same_ca_exchange_files() {
    for tls in [None, good()] {
        let ([one, other], stats) = with_server(tls.clone(), |address| fetch(address, tls.clone()));
        assert_eq!((one, other), (Some(content()), Some(content())), "{tls:?}");
        assert_eq!((stats.files, stats.failures), (2, 0));
    }
}

#[test]
fn host_names_and_ipv6_addresses_are_verified() {
    let port_of = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let found = with_server(good(), |address| {
        fetch(&format!("localhost:{}", port_of(address)), good())
    });
    assert_eq!(found.1.files, 2);
    // Not every machine has IPv6.
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return;
    };
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let files: Arc<dyn PeerFiles> = Arc::new(Files);
    let server = cluster(["127.0.0.1:1", &address], 1, good());
    server.serve(Arc::downgrade(&files)).unwrap();
    assert_eq!(fetch(&address, good()).1.files, 2);
}

#[test]
fn untrusted_peer_costs_one_request() {
    for (server, client) in [
        (None, good()),
        (good(), None),
        (good(), Some(tls("node", "other-ca"))),
        (Some(tls("elsewhere", "ca")), good()),
    ] {
        let began = Instant::now();
        let (found, stats) = with_server(server.clone(), |address| fetch(address, client.clone()));
        // The peer was not waited for.
        assert!(began.elapsed() < Duration::from_secs(8));
        assert_eq!(found, [None, None], "{server:?} {client:?}");
        // The second file was not requested, because the peer is not used for a minute.
        assert_eq!(
            (stats.files, stats.failures),
            (0, 1),
            "{server:?} {client:?}"
        );
    }
}

/// Passes two connections on to `address`, and records what is sent in both directions.
fn relay(listener: &TcpListener, address: &str, sent: &Mutex<Vec<u8>>) {
    for client in listener.incoming().take(2) {
        let (client, server) = (client.unwrap(), TcpStream::connect(address).unwrap());
        let copy = |mut from: &TcpStream, mut to: &TcpStream| {
            let mut buffer = [0; 4096];
            loop {
                let read = from.read(&mut buffer).unwrap_or(0);
                sent.lock().unwrap().extend_from_slice(&buffer[..read]);
                if read == 0 || to.write_all(&buffer[..read]).is_err() {
                    // The other side may have closed the connection.
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| copy(&client, &server));
            copy(&server, &client);
        });
    }
}

#[test]
fn tls_encrypts_token_and_files() {
    for (tls, is_clear) in [(None, true), (good(), false)] {
        let sent = Arc::<Mutex<Vec<u8>>>::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = listener.local_addr().unwrap().to_string();
        let stats = with_server(tls.clone(), |address| {
            std::thread::scope(|scope| {
                scope.spawn(|| relay(&listener, address, &sent));
                fetch(&between, tls.clone()).1
            })
        });
        assert_eq!(stats.files, 2);
        let sent = sent.lock().unwrap();
        assert!(sent.len() > 2 * content().len());
        for text in [TOKEN, "text of a shard", "/files/"] {
            let found = sent.windows(text.len()).any(|part| part == text.as_bytes());
            assert_eq!(found, is_clear, "{text}");
        }
    }
}

#[test]
fn invalid_tls_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, broken) = (folder.path().join("empty"), folder.path().join("broken"));
    std::fs::write(&empty, "no certificate").unwrap();
    std::fs::write(
        &broken,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let message = |change: &dyn Fn(&mut TlsOptions)| {
        let mut files = tls("node", "ca");
        change(&mut files);
        let error: Error = crate::tls::Tls::new(&files).unwrap_err();
        assert_eq!(error.id(), "config-peers-tls");
        let text = error.to_string();
        text.replace(&format!("{}", folder.path().display()), "FOLDER")
    };
    let missing = folder.path().join("missing");
    assert_eq!(
        message(&|files| files.key = PathBuf::new()),
        "TLS between the peers needs SHARDMILL_PEERS_KEY as well"
    );
    for change in [
        &(|files: &mut TlsOptions| files.cert = missing.clone()) as &dyn Fn(&mut TlsOptions),
        &|files| files.key = missing.clone(),
        &|files| files.ca = missing.clone(),
    ] {
        assert_eq!(
            message(change),
            "cannot read `FOLDER/missing` for TLS between the peers"
        );
    }
    for change in [
        &(|files: &mut TlsOptions| files.cert = empty.clone()) as &dyn Fn(&mut TlsOptions),
        &|files| files.ca = empty.clone(),
    ] {
        assert_eq!(message(change), "`FOLDER/empty` has no certificate");
    }
    assert_eq!(
        message(&|files| files.key = empty.clone()),
        "`FOLDER/empty` has no private key without a passphrase"
    );
    let other_key = message(&|files| files.key = fixture("elsewhere-key.pem"));
    assert!(
        other_key.ends_with("elsewhere-key.pem` is not the key of the certificate"),
        "{other_key}"
    );
    for change in [
        &(|files: &mut TlsOptions| files.cert = broken.clone()) as &dyn Fn(&mut TlsOptions),
        &|files| files.ca = broken.clone(),
    ] {
        let found = message(change);
        assert!(
            found.starts_with("`FOLDER/broken` is not usable: "),
            "{found}"
        );
    }
}

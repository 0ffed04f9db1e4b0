"""Eight processes as eight nodes that share their caches."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import random
import socket
import ssl
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import pytest

import shardmill
from shardmill import MDSWriter, StreamingDataset
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from support.store import Store

NODES = 8
#: Samples of 8 KiB, 32 in a shard.
SAMPLES, SHARDS = 2048, 64
TOKEN = 'a-secret-of-this-run'
#: A certificate for the loopback interface, its key, and the authority that signed it.
CERTIFICATES = Path(__file__).parents[2] / 'fixtures' / 'tls-openssl-3'
TLS_FILES = {
    'SHARDMILL_PEERS_CERT': str(CERTIFICATES / 'node.pem'),
    'SHARDMILL_PEERS_KEY': str(CERTIFICATES / 'node-key.pem'),
    'SHARDMILL_PEERS_CA': str(CERTIFICATES / 'ca.pem'),
}


def write(served: Path, compression: Optional[str]) -> tuple[str, int]:
    """Writes a dataset into the store; its URL, and the bytes of its shards."""
    folder = served / f'peers-{compression}'
    with MDSWriter(
        out=str(folder),
        columns={'number': 'int', 'data': 'bytes'},
        compression=compression,
        hashes=['xxh64'],
        size_limit=SAMPLES // SHARDS * 8300,
    ) as out:
        for number in range(SAMPLES):
            out.write({'number': number, 'data': random.Random(number).randbytes(8192)})
    files = [file for file in folder.iterdir() if 'shard' in file.name]
    assert len(files) == SHARDS
    return f's3://bucket/{folder.name}', sum(file.stat().st_size for file in files)


@pytest.fixture(scope='module')
def plain(served: Path) -> tuple[str, int]:
    """A dataset without compression."""
    return write(served, None)


@pytest.fixture(scope='module')
def packed(served: Path) -> tuple[str, int]:
    """The same, compressed."""
    return write(served, 'zstd')


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing uses."""
    sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def read_as_node(
    pipe: Connection, environment: dict[str, str], remote: str, local: str, algo: str
) -> None:
    """Reads as one node of a run: what is sent is `epoch`, or `stats` for what was fetched so far."""
    os.environ.update(environment)
    dataset: StreamingDataset[Any] = StreamingDataset(
        remote=remote,
        local=local,
        shuffle=True,
        shuffle_algo=algo,
        batch_size=16,
        num_canonical_nodes=NODES,
    )
    pipe.send('open')
    while True:
        if pipe.recv() == 'stats':
            pipe.send(dict(dataset.stats().items()))
            continue
        numbers = []
        for sample in dataset:
            number = int(sample['number'])
            assert sample['data'] == random.Random(number).randbytes(8192), number
            numbers.append(number)
        pipe.send(numbers)


class Nodes:
    """Processes, each of which believes to be a node. They are forked, so that torch is imported once."""

    def __init__(
        self, remote: str, folder: Path, store: Store, *, algo: str = 'naive', shared: bool = True
    ) -> None:
        self.peers = [f'127.0.0.1:{port}' for port in free_ports(NODES)]
        self.processes = []
        self.pipes = []
        context = multiprocessing.get_context('fork')
        for node in range(NODES):
            environment = {
                **store.environment,
                'RANK': str(node),
                'WORLD_SIZE': str(NODES),
                'LOCAL_WORLD_SIZE': '1',
                'LOCAL_RANK': '0',
            }
            if shared:
                environment['SHARDMILL_PEERS'] = ','.join(self.peers)
                environment['SHARDMILL_PEERS_TOKEN'] = self.token(node)
                environment.update(self.files(node))
            pipe, its_pipe = context.Pipe()
            args = (its_pipe, environment, remote, str(folder / f'node{node}'), algo)
            # A daemon, so that nodes end with a test that fails before they are closed.
            process = context.Process(target=read_as_node, args=args, daemon=True)
            process.start()
            its_pipe.close()
            self.processes.append(process)
            self.pipes.append(pipe)
        assert [pipe.recv() for pipe in self.pipes] == ['open'] * NODES

    def token(self, node: int) -> str:
        """The secret of a node."""
        return TOKEN

    def files(self, node: int) -> dict[str, str]:
        """The files of TLS of a node, by their environment variables."""
        return {}

    def epoch(self) -> list[dict[str, Any]]:
        """Reads an epoch on all nodes that live; what they read, and their statistics so far."""
        numbers = self._ask('epoch')
        # A node that has read its samples may still fetch shards for the others.
        stats = self._ask('stats')
        return [{'numbers': own, 'stats': of_node} for own, of_node in zip(numbers, stats)]

    def kill(self, node: int) -> None:
        """Ends a node."""
        self.processes[node].kill()
        self.processes[node].join()

    def _ask(self, what: str) -> list[Any]:
        pairs = zip(self.processes, self.pipes)
        alive = [pipe for process, pipe in pairs if process.is_alive()]
        for pipe in alive:
            pipe.send(what)
        return [pipe.recv() for pipe in alive]

    def close(self) -> None:
        """Ends the processes."""
        for process, pipe in zip(self.processes, self.pipes):
            process.kill()
            process.join()
            pipe.close()


class OneStranger(Nodes):
    """Nodes of which the last has another secret."""

    def token(self, node: int) -> str:
        """The secret of a node."""
        return TOKEN if node + 1 < NODES else 'the-secret-of-another-run'


class Encrypted(Nodes):
    """Nodes with TLS."""

    def files(self, node: int) -> dict[str, str]:
        """The files of TLS of a node, by their environment variables."""
        return TLS_FILES


class OneDoubter(Nodes):
    """Nodes with TLS, of which the last trusts another authority."""

    def files(self, node: int) -> dict[str, str]:
        """The files of TLS of a node, by their environment variables."""
        other = {'SHARDMILL_PEERS_CA': str(CERTIFICATES / 'other-ca.pem')}
        return {**TLS_FILES, **(other if node + 1 == NODES else {})}


@pytest.fixture
def nodes() -> Iterator[dict[str, Nodes]]:
    """Ends the nodes that a test starts, by name."""
    started: dict[str, Nodes] = {}
    yield started
    for each in started.values():
        each.close()


def total(results: list[dict[str, Any]], name: str) -> int:
    """The sum of a statistic."""
    return sum(result['stats'][name] for result in results)


@pytest.mark.parametrize(('remote', 'algo'), [('plain', 'naive'), ('packed', 'py1e')])
def test_peers_fetch_each_shard_from_store_once(
    remote: str,
    algo: str,
    request: pytest.FixtureRequest,
    store: Store,
    tmp_path: Path,
    nodes: dict[str, Nodes],
) -> None:
    url, size = request.getfixturevalue(remote)
    nodes['run'] = run = Nodes(url, tmp_path / 'shared', store, algo=algo)
    for _ in range(2):
        results = run.epoch()
        numbers = sorted(number for result in results for number in result['numbers'])
        assert numbers == list(range(SAMPLES))
        # Both epochs together, with the index of every node.
        assert total(results, 'received_bytes') <= 1.05 * size
        assert total(results, 'peer_failures') == 0
    if algo == 'naive':
        # Every node reads of all shards, and owns an eighth.
        assert total(results, 'peer_files') >= 0.8 * SHARDS * (NODES - 1)


def test_peers_share_caches_over_tls(
    packed: tuple[str, int], store: Store, tmp_path: Path, nodes: dict[str, Nodes]
) -> None:
    url, size = packed
    nodes['run'] = run = Encrypted(url, tmp_path / 'shared', store)
    results = run.epoch()
    numbers = sorted(number for result in results for number in result['numbers'])
    assert numbers == list(range(SAMPLES))
    assert total(results, 'received_bytes') <= 1.05 * size
    assert total(results, 'peer_failures') == 0
    assert total(results, 'peer_files') >= 0.8 * SHARDS * (NODES - 1)
    # The server answers encrypted requests only.
    address = f'{run.peers[0]}/files/{64 * "0"}/0/0'
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(request_of(f'http://{address}', TOKEN), timeout=10)
    assert status(f'https://{address}', None) == 401
    assert status(f'https://{address}', TOKEN) == 404


def test_node_with_untrusted_peers_reads_from_store(
    plain: tuple[str, int], store: Store, tmp_path: Path, nodes: dict[str, Nodes]
) -> None:
    url, _ = plain
    nodes['run'] = run = OneDoubter(url, tmp_path / 'shared', store)
    results = run.epoch()
    doubter = results[-1]
    assert len(set(doubter['numbers'])) == SAMPLES // NODES
    assert doubter['stats']['peer_files'] == 0
    # A peer that is not trusted is not used again for a minute.
    assert NODES - 1 <= doubter['stats']['peer_failures'] <= SHARDS
    assert doubter['stats']['bad_fetches'] == 0
    # The others trust it.
    assert total(results[:-1], 'peer_failures') == 0


def test_peer_token_is_not_sent_without_server_certificate(
    plain: tuple[str, int], store: Store, tmp_path: Path, nodes: dict[str, Nodes]
) -> None:
    url, _ = plain
    nodes['run'] = run = Encrypted(url, tmp_path / 'shared', store)
    run.kill(3)
    host, port = run.peers[3].split(':')
    received: list[bytes] = []

    def listen(server: socket.socket) -> None:
        for _ in range(NODES - 1):
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(65536))
                connection.sendall(b'HTTP/1.0 200 OK\r\n\r\n')

    with socket.create_server((host, int(port))) as server:
        threading.Thread(target=listen, args=(server,), daemon=True).start()
        results = run.epoch()
    assert all(len(set(result['numbers'])) == SAMPLES // NODES for result in results)
    assert total(results, 'peer_failures') >= 1
    # All that it gets is the first message of a handshake.
    assert received
    for message in received:
        assert message.startswith(b'\x16\x03')
        assert TOKEN.encode() not in message
        assert b'/files/' not in message


@pytest.mark.parametrize('algo', ['naive', 'py1e'])
def test_peer_plan_matches_actual_traffic(
    algo: str,
    packed: tuple[str, int],
    served: Path,
    store: Store,
    tmp_path: Path,
    nodes: dict[str, Nodes],
) -> None:
    url, size = packed
    folder = served / url.rsplit('/', 1)[1]
    planned = shardmill.plan(
        str(folder),
        epochs=1,
        num_nodes=NODES,
        batch_size=16,
        shuffle=True,
        shuffle_algo=algo,
        num_canonical_nodes=NODES,
        peers=True,
    )
    (epoch,) = planned.peers
    assert epoch.store_bytes == size
    nodes['run'] = run = Nodes(url, tmp_path / 'shared', store, algo=algo)
    results = run.epoch()
    indexes = NODES * (folder / 'index.json').stat().st_size
    assert total(results, 'received_bytes') - indexes == epoch.store_bytes
    # The owners depend on the addresses.
    fetched = total(results, 'peer_files')
    assert abs(fetched - epoch.peer_shards) <= 0.1 * epoch.peer_shards + 8


def test_without_peers_every_node_reads_from_store(
    plain: tuple[str, int], store: Store, tmp_path: Path, nodes: dict[str, Nodes]
) -> None:
    url, size = plain
    nodes['run'] = run = Nodes(url, tmp_path / 'apart', store, shared=False)
    results = run.epoch()
    assert total(results, 'received_bytes') >= 7 * size
    assert total(results, 'peer_files') == 0


def test_a_killed_node_costs_at_most_one_request_for_each_shard(
    plain: tuple[str, int], store: Store, tmp_path: Path, nodes: dict[str, Nodes]
) -> None:
    url, _ = plain
    nodes['run'] = run = Nodes(url, tmp_path / 'shared', store)
    run.kill(3)
    for _ in range(2):
        results = run.epoch()
        assert len(results) == NODES - 1
        for result in results:
            stats = result['stats']
            assert len(set(result['numbers'])) == SAMPLES // NODES
            assert stats['peer_files'] + stats['peer_failures'] <= SHARDS
            assert stats['fetched_shards'] <= SHARDS
            assert stats['bad_fetches'] == stats['retries'] == 0
        # A node that cannot be reached is not used again for a minute.
        assert 1 <= total(results, 'peer_failures') <= SHARDS


def test_node_with_wrong_peer_token_is_rejected(
    plain: tuple[str, int], store: Store, tmp_path: Path, nodes: dict[str, Nodes]
) -> None:
    url, _ = plain
    nodes['run'] = run = OneStranger(url, tmp_path / 'shared', store)
    stranger = run.epoch()[-1]
    assert len(set(stranger['numbers'])) == SAMPLES // NODES
    assert stranger['stats']['peer_files'] == 0
    assert stranger['stats']['peer_failures'] >= NODES - 1
    path = '/files/' + 64 * '0' + '/0/0'
    address = f'http://{run.peers[0]}{path}'
    assert status(address, None) == 401
    assert status(address, 'the-secret-of-another-run') == 401
    assert status(address, TOKEN) == 404


def request_of(url: str, token: Optional[str]) -> urllib.request.Request:
    """A request with a token."""
    headers = {} if token is None else {'Authorization': f'Bearer {token}'}
    return urllib.request.Request(url, headers=headers)


def status(url: str, token: Optional[str]) -> int:
    """The status of a request that fails."""
    trust = ssl.create_default_context(cafile=str(CERTIFICATES / 'ca.pem'))
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request_of(url, token), context=trust)
    return raised.value.code


@pytest.mark.parametrize(
    ('peers', 'token', 'text'),
    [
        (['127.0.0.1:7300'], TOKEN, None),
        (['127.0.0.1:7300'], 'short', 'the token of the peers'),
        (['127.0.0.1'], TOKEN, 'is not `host:port`'),
        (['127.0.0.1:7300', '127.0.0.1:7300'], TOKEN, 'is in the list twice'),
        (['127.0.0.1:7300', '127.0.0.1:7301'], TOKEN, 'there are 2 peers'),
    ],
)
def test_invalid_peers_are_errors(
    peers: list[str],
    token: str,
    text: Optional[str],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv('SHARDMILL_PEERS_TOKEN', token)

    def opened() -> StreamingDataset[Any]:
        return StreamingDataset(remote=data, local=tmp_path, batch_size=1, peers=peers)

    if text is None:
        assert len(list(opened())) == len(opened())
    else:
        with pytest.raises(UsageError, match=text):
            opened()


@pytest.mark.parametrize(
    ('name', 'file', 'text'),
    [
        ('CERT', '', 'needs SHARDMILL_PEERS_CERT as well'),
        ('KEY', 'missing.pem', 'cannot read .*missing.pem'),
        ('CA', 'README.md', 'README.md` has no certificate'),
        ('KEY', 'elsewhere-key.pem', 'is not the key of the certificate'),
    ],
)
def test_invalid_peer_tls_files_are_errors(
    name: str, file: str, text: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('SHARDMILL_PEERS_TOKEN', TOKEN)
    for variable, path in TLS_FILES.items():
        monkeypatch.setenv(variable, path)
    monkeypatch.setenv(f'SHARDMILL_PEERS_{name}', file and str(CERTIFICATES / file))
    with pytest.raises(UsageError, match=text) as raised:
        StreamingDataset(remote=data, local=tmp_path, batch_size=1, peers=['127.0.0.1:7300'])
    assert raised.value.id == 'config-peers-tls'

"""Eight processes as eight nodes that share their caches."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import pytest

from shardmill import MDSWriter, StreamingDataset
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.store import Store

PROGRAM = Path(__file__).parent / 'programs' / 'peers_read.py'
NODES = 8
#: Samples of 8 KiB, 32 in a shard.
SAMPLES, SHARDS = 2048, 64
TOKEN = 'a-secret-of-this-run'


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


class Nodes:
    """Processes, each of which believes to be a node."""

    def __init__(
        self, remote: str, folder: Path, store: Store, *, algo: str = 'naive', shared: bool = True
    ) -> None:
        self.peers = [f'127.0.0.1:{port}' for port in free_ports(NODES)]
        self.processes = []
        for node in range(NODES):
            environment = {
                **os.environ,
                **store.environment,
                'PYTHONPATH': os.pathsep.join(path for path in sys.path if path),
                'RANK': str(node),
                'WORLD_SIZE': str(NODES),
                'LOCAL_WORLD_SIZE': '1',
                'LOCAL_RANK': '0',
            }
            if shared:
                environment['SHARDMILL_PEERS'] = ','.join(self.peers)
                environment['SHARDMILL_PEERS_TOKEN'] = self.token(node)
            words = [sys.executable, str(PROGRAM), remote, str(folder / f'node{node}'), algo]
            self.processes.append(
                subprocess.Popen(
                    words,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                )
            )
        for process in self.processes:
            assert self._line(process) == 'open'

    def token(self, node: int) -> str:
        """The secret of a node."""
        return TOKEN

    def epoch(self) -> list[dict[str, Any]]:
        """Reads an epoch on all nodes that live; what they read, and their statistics so far."""
        alive = [process for process in self.processes if process.poll() is None]
        for process in alive:
            assert process.stdin is not None
            process.stdin.write('epoch\n')
        return [json.loads(self._line(process)) for process in alive]

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.kill()
            process.communicate()

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()


class OneStranger(Nodes):
    """Nodes of which the last has another secret."""

    def token(self, node: int) -> str:
        """The secret of a node."""
        return TOKEN if node + 1 < NODES else 'the-secret-of-another-run'


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
def test_each_shard_leaves_the_store_once(
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


def test_without_peers_every_node_fetches_its_shards(
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
    run.processes[3].kill()
    run.processes[3].wait()
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


def test_a_node_with_another_secret_is_refused(
    plain: tuple[str, int], store: Store, tmp_path: Path, nodes: dict[str, Nodes]
) -> None:
    url, _ = plain
    nodes['run'] = run = OneStranger(url, tmp_path / 'shared', store)
    stranger = run.epoch()[-1]
    assert len(set(stranger['numbers'])) == SAMPLES // NODES
    assert stranger['stats']['peer_files'] == 0
    assert stranger['stats']['peer_failures'] >= NODES - 1
    path = '/files/' + 64 * '0' + '/0/0'
    assert status(run.peers[0] + path, None) == 401
    assert status(run.peers[0] + path, 'the-secret-of-another-run') == 401
    assert status(run.peers[0] + path, TOKEN) == 404


def status(url: str, token: Optional[str]) -> int:
    """The status of a request that fails."""
    headers = {} if token is None else {'Authorization': f'Bearer {token}'}
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(urllib.request.Request(f'http://{url}', headers=headers))
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
def test_peers_are_checked(
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

"""Packing: documents as contexts of one length, and as batches by tokens."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import pytest

from shardmill import MDSWriter, Packing, StreamingDataLoader, StreamingDataset, Window
from shardmill._program import find_program
from shardmill.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

torch = pytest.importorskip('torch')

LENGTH = 64


def document(number: int) -> NDArray[Any]:
    """Returns the tokens of a document: no other one has any of them."""
    size = (number * 37) % 90 if number % 20 else 200
    return np.arange(size, dtype=np.int32) + 1000 * (number + 1)


@pytest.fixture(scope='module')
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp('packing') / 'documents'
    columns = {'tokens': 'ndarray:int32', 'raw': 'bytes', 'text': 'str'}
    with MDSWriter(out=str(folder), columns=columns, size_limit=1 << 13) as writer:
        for number in range(300):
            # An `ndarray` has at least one number.
            tokens = document(number) if number * 37 % 90 else document(number + 1)[:1]
            raw = tokens.astype('<u4').tobytes()
            writer.write({'tokens': tokens, 'raw': raw, 'text': str(number)})
    return folder


def stored(folder: Path) -> list[list[int]]:
    samples = StreamingDataset(local=folder, batch_size=1)
    return [list(samples[number]['tokens']) for number in range(len(samples))]


def opened(folder: Path, packing: Optional[Packing] = None, **options: Any) -> StreamingDataset:
    options = {'batch_size': 2, 'shuffle': True, 'num_canonical_nodes': 1, **options}
    packing = packing or Packing('tokens', length=LENGTH, pool=50)
    return StreamingDataset(local=folder, packing=packing, **options)


def tokens_of(batches: Iterable[dict[str, Any]]) -> Counter[int]:
    """Returns how often each token is delivered, without padding and repeated rows."""
    found: Counter[int] = Counter()
    for batch in batches:
        for row, documents, repeated in zip(
            np.asarray(batch['input_ids']),
            np.asarray(batch['document_ids']),
            np.asarray(batch['repeated']),
        ):
            if not repeated:
                found.update(row[documents >= 0].tolist())
    return found


def rows_of(batches: Iterable[dict[str, Any]]) -> list[list[int]]:
    return [row for batch in batches for row in np.asarray(batch['input_ids']).tolist()]


def test_packed_batches_contain_every_token_once(dataset: Path) -> None:
    expected = Counter(token for tokens in stored(dataset) for token in tokens)
    batches = list(opened(dataset).batches())
    assert tokens_of(batches) == expected
    assert all(batch['input_ids'].shape == (2, LENGTH) for batch in batches)
    used = sum(int((batch['document_ids'] >= 0).sum()) for batch in batches)
    assert used / (len(batches) * 2 * LENGTH) > 0.97


def test_packed_arrays_describe_document_boundaries(dataset: Path) -> None:
    for batch in opened(dataset, Packing('tokens', length=LENGTH, padding_id=-7)).batches():
        names = ['input_ids', 'labels', 'position_ids', 'document_ids', 'cu_seqlens', 'repeated']
        assert list(batch) == names
        assert batch['input_ids'].dtype == batch['labels'].dtype == np.int64
        bounds = batch['cu_seqlens']
        assert (bounds[0], bounds[-1]) == (0, 2 * LENGTH)
        flat = {name: batch[name].reshape(-1) for name in names[:4]}
        for start, stop in zip(bounds[:-1], bounds[1:]):
            ids, labels, positions, documents = (values[start:stop] for values in flat.values())
            assert len(set(documents.tolist())) == 1
            if documents[0] < 0:
                assert set(ids.tolist()) == {-7}
                assert set(labels.tolist()) == {-100}
                continue
            assert positions.tolist() == list(range(stop - start))
            # One document has consecutive tokens.
            assert (np.diff(ids) == 1).all()
            assert labels[0] == -100
            assert labels[1:].tolist() == ids[1:].tolist()
        for row in batch['document_ids']:
            present = [document for document in dict.fromkeys(row.tolist()) if document >= 0]
            assert present == list(range(len(present)))


@pytest.mark.parametrize('ranks', [1, 3, 4])
def test_ranks_get_equal_step_counts(dataset: Path, ranks: int) -> None:
    expected = Counter(token for tokens in stored(dataset) for token in tokens)
    of_ranks = [
        list(opened(dataset, rank=rank, world_size=ranks).batches()) for rank in range(ranks)
    ]
    assert len({len(batches) for batches in of_ranks}) == 1
    assert tokens_of(batch for batches in of_ranks for batch in batches) == expected
    # The rows do not depend on the number of ranks.
    one = rows_of(opened(dataset).batches())
    merged = rows_of(batch for step in zip(*of_ranks) for batch in step)
    rows = min(len(one), len(merged)) - 8
    assert merged[:rows] == one[:rows]


def test_packed_run_resumes_with_other_world_size(dataset: Path) -> None:
    unbroken = rows_of(opened(dataset).batches())
    batches = opened(dataset).batches()
    before = [next(batches) for _ in range(10)]
    state = json.loads(json.dumps(batches.state_dict()))
    batches.close()
    assert state['sample_in_epoch'] == 20
    rest = []
    for rank in range(3):
        other = opened(dataset, rank=rank, world_size=3, batch_size=1)
        other.load_state_dict(state)
        rest.append(list(other.batches()))
    resumed = rows_of(before) + rows_of(batch for step in zip(*rest) for batch in step)
    # Either run may repeat rows at its end.
    assert abs(len(resumed) - len(unbroken)) <= 3
    shorter = min(len(resumed), len(unbroken)) - 2
    assert resumed[:shorter] == unbroken[:shorter]
    # The next epoch has another order.
    assert other.next_epoch == 1
    assert rows_of(other.batches())[:5] != [row for row in unbroken[:5]]


@pytest.mark.parametrize('num_workers', [0, 2])
def test_loaders_yield_packed_rows(dataset: Path, num_workers: int) -> None:
    expected = rows_of(opened(dataset).batches())
    loader = StreamingDataLoader(opened(dataset), batch_size=2, num_workers=num_workers)
    steps = len(loader)
    batches = list(loader)
    assert steps == len(batches)
    assert all(isinstance(batch['input_ids'], torch.Tensor) for batch in batches)
    assert all(batch['cu_seqlens'].dtype == torch.int32 for batch in batches)
    assert rows_of(batches) == expected
    plain = torch.utils.data.DataLoader(opened(dataset), batch_size=2, num_workers=num_workers)
    rows = list(plain)
    assert rows_of(rows) == expected
    assert 'cu_seqlens' not in rows[0]
    assert rows[0]['repeated'].dtype == torch.bool


def test_forked_loader_resumes_mid_epoch(dataset: Path) -> None:
    expected = rows_of(opened(dataset).batches())
    loader = StreamingDataLoader(
        opened(dataset), batch_size=2, num_workers=2, multiprocessing_context='fork'
    )
    taken = []
    for batch in loader:
        taken.append(batch)
        if len(taken) == 7:
            break
    state = loader.state_dict()
    assert state is not None
    assert state['sample_in_epoch'] == 14
    again = StreamingDataLoader(opened(dataset), batch_size=2)
    again.load_state_dict(state)
    assert rows_of([*taken, *again]) == expected
    assert rows_of(pickle.loads(pickle.dumps(opened(dataset))).batches()) == expected


@pytest.mark.parametrize('padded', [True, False])
def test_max_tokens_limits_batch_size(dataset: Path, padded: bool) -> None:
    expected = Counter(token for tokens in stored(dataset) for token in tokens)
    packing = Packing('tokens', max_tokens=400, padded=padded)
    batches = list(opened(dataset, packing, batch_size=None).batches())
    assert tokens_of(batches) == expected
    for batch in batches:
        rows, width = batch['input_ids'].shape
        assert rows * width <= 400
        assert batch['cu_seqlens'][-1] == rows * width
        if padded:
            assert (batch['document_ids'] <= 0).all()
            assert (batch['document_ids'][:, -1] == 0).any()
        else:
            assert rows == 1
            assert (batch['document_ids'] >= 0).all()
    used = sum(int((batch['document_ids'] >= 0).sum()) for batch in batches)
    assert used / sum(batch['input_ids'].size for batch in batches) > 0.9
    loader = StreamingDataLoader(opened(dataset, packing, batch_size=None), batch_size=1)
    taken = [next(iter(loader))]
    state = loader.state_dict()
    assert state is not None
    assert state['sample_in_epoch'] == 1
    other = opened(dataset, packing, batch_size=None)
    other.load_state_dict(state)
    rest = torch.utils.data.DataLoader(other, batch_size=None)
    assert rows_of([*taken, *rest]) == rows_of(batches)


@pytest.mark.parametrize('last', ['drop', 'short'])
def test_last_option_drops_or_shortens_final_batch(dataset: Path, last: str) -> None:
    expected = Counter(token for tokens in stored(dataset) for token in tokens)
    packing = Packing('tokens', length=LENGTH, last=last)
    of_ranks = [
        list(opened(dataset, packing, rank=rank, world_size=3, batch_size=4).batches())
        for rank in range(3)
    ]
    batches = [batch for batches in of_ranks for batch in batches]
    assert not any(batch['repeated'].any() for batch in batches)
    found = tokens_of(batches)
    if last == 'short':
        assert found == expected
    else:
        assert len({len(batches) for batches in of_ranks}) == 1
        assert all(batch['input_ids'].shape == (4, LENGTH) for batch in batches)
        assert 0 < sum((expected - found).values()) <= 12 * LENGTH
    assert not found - expected


def test_raw_columns_and_given_lengths_are_packed(dataset: Path) -> None:
    expected = rows_of(opened(dataset).batches())
    raw = Packing('raw', length=LENGTH, pool=50, dtype='uint32')
    assert rows_of(opened(dataset, raw).batches()) == expected
    lengths = [len(tokens) for tokens in stored(dataset)]
    given = Packing('tokens', length=LENGTH, pool=50, token_lengths=lengths)
    assert rows_of(opened(dataset, given).batches()) == expected
    wrong = Packing('tokens', length=LENGTH, token_lengths=[*lengths[:-1], lengths[-1] + 1])
    with pytest.raises(UsageError, match='and its length is') as caught:
        list(opened(dataset, wrong).batches())
    assert caught.value.id == 'tokens-length'
    few = Packing('tokens', length=LENGTH, token_lengths=lengths[1:])
    with pytest.raises(UsageError, match='299 lengths for 300 samples') as caught:
        next(opened(dataset, few).batches())
    assert caught.value.id == 'config-lengths'


def test_indexed_lengths_are_used_for_packing(dataset: Path, tmp_path: Path) -> None:
    expected = rows_of(opened(dataset).batches())
    folder = tmp_path / 'documents'
    shutil.copytree(dataset, folder)
    for column in ('tokens', 'raw'):
        command = [str(find_program()), 'index', 'lengths', str(folder), '--column', column]
        subprocess.run(command, check=True)
    for packing in (
        Packing('tokens', length=LENGTH, pool=50),
        Packing('raw', length=LENGTH, pool=50, dtype='uint32'),
    ):
        copy = opened(folder, packing)
        assert rows_of(copy.batches()) == expected
        # Nothing was measured: a copy in a store would be refused.
        remote = StreamingDataset(
            remote=folder,
            local=tmp_path / packing.column,
            packing=packing,
            batch_size=2,
            shuffle=True,
            num_canonical_nodes=1,
        )
        assert rows_of(remote.batches()) == expected


def test_state_of_different_packing_is_rejected(dataset: Path) -> None:
    batches = opened(dataset).batches()
    next(batches)
    state = batches.state_dict()
    for other in (
        Packing('tokens', length=LENGTH, pool=51),
        Packing('tokens', length=LENGTH + 1, pool=50),
        Packing('tokens', max_tokens=LENGTH, pool=50),
        Packing('tokens', length=LENGTH, pool=50, long='truncate'),
        Packing('tokens', length=LENGTH, pool=50, token_lengths=[1] * 300),
    ):
        with pytest.raises(ConflictError, match='made with the packing') as caught:
            opened(dataset, other, batch_size=1).load_state_dict(state)
        assert caught.value.id == 'state-foreign'
    plain = StreamingDataset(local=dataset, batch_size=2, shuffle=True)
    with pytest.raises(ConflictError, match='made with the packing'):
        plain.load_state_dict(state)
    with pytest.raises(ConflictError, match='made with the packing None'):
        opened(dataset).load_state_dict(plain.state_dict(0))


def test_invalid_packing_arguments_are_errors(dataset: Path) -> None:
    for arguments, words in (
        ({}, 'give one of `length` and `max_tokens`'),
        ({'length': 8, 'max_tokens': 8}, 'give one of'),
        ({'length': 0}, '`length`'),
        ({'length': 8, 'long': 'cut'}, '`long`'),
        ({'length': 8, 'last': 'none'}, '`last`'),
        ({'length': 8, 'pool': 0}, '`pool`'),
        ({'length': 8, 'dtype': 'float32'}, '`dtype`'),
        ({'length': 8, 'token_lengths': [-1]}, '`token_lengths`'),
        ({'length': 8, 'token_lengths': ['a']}, '`token_lengths`'),
    ):
        given: dict[str, Any] = arguments
        with pytest.raises(ValueError, match=words):
            Packing('tokens', **given)
    packing = Packing('tokens', length=8)
    contradictions: list[dict[str, Any]] = [
        {'window': Window([0, 1])},
        {'batching_method': 'stratified'},
        {'packing': Packing('tokens', max_tokens=8), 'batch_size': 2},
    ]
    for options in contradictions:
        with pytest.raises(UsageError) as caught:
            opened(dataset, **{'packing': packing, **options})
        assert caught.value.id == 'config-packing'
    for column, words in (
        ('text', 'its encoding is str'),
        ('none', 'no such column'),
        ('raw', 'type of the tokens'),
    ):
        with pytest.raises(UsageError, match=words) as caught:
            opened(dataset, Packing(column, length=8))
        assert caught.value.id == 'tokens-column'
    with pytest.raises(UsageError, match='more than the 64') as caught:
        next(opened(dataset, Packing('tokens', length=LENGTH, long='error')).batches())
    assert caught.value.id == 'document-too-long'
    with pytest.raises(UsageError, match='`columns`'):
        opened(dataset).batches(columns=['tokens'])
    with pytest.raises(UsageError, match='no sample 300'):
        opened(dataset).which(sample=300)
    with pytest.raises(UsageError, match='download the whole dataset') as caught:
        StreamingDataset(remote=dataset, local=dataset / 'copy', packing=packing)
    assert caught.value.id == 'config-lengths'


@pytest.mark.parametrize(
    'packing',
    [
        Packing('tokens', length=LENGTH, pool=50),
        Packing('tokens', max_tokens=300),
    ],
)
def test_which_step_returns_samples_of_packed_rows(dataset: Path, packing: Packing) -> None:
    documents = stored(dataset)
    options = {'batch_size': 2 if packing.length else 1}
    reader = opened(dataset, packing, **options)
    batches = reader.batches()
    state: Any = None
    for step, batch in enumerate(batches):
        if step == 2:
            state = batches.state_dict()
        found = reader.which(step, 0, epoch=0, keys=False)
        assert (found.epoch, found.step) == (0, step)
        members = list(found.samples)
        for row, (ids, pieces) in enumerate(zip(batch['input_ids'], batch['document_ids'])):
            for piece in range(int(pieces.max()) + 1):
                member = members.pop(0)
                assert int(ids[pieces == piece][0]) in documents[member.origin.sample]
                assert member.position == (row if packing.length else 0)
        assert not members
    resumed = opened(dataset, packing, **options).which(0, state=state, keys=False)
    again = reader.which(3, epoch=0, keys=False)
    assert (resumed.samples, resumed.sample_in_epoch) == (again.samples, again.sample_in_epoch)
    with pytest.raises(UsageError, match='no step'):
        reader.which(step + 1, epoch=0)
    plain = StreamingDataset(local=dataset, shuffle=True, num_canonical_nodes=1, batch_size=2)
    with pytest.raises(ConflictError, match='packing'):
        plain.which(0, state=state)


def test_which_sample_returns_its_packed_rows(dataset: Path) -> None:
    documents = stored(dataset)
    epochs: list[list[list[dict[str, Any]]]] = []
    readers = [opened(dataset, rank=rank, world_size=2) for rank in range(2)]
    for _ in range(2):
        epochs.append([list(reader.batches()) for reader in readers])
    for sample in (2, 3, 20, 150, 299):
        expected = []
        for epoch, ranks in enumerate(epochs):
            for step, parts in enumerate(zip(*ranks)):
                for rank, batch in enumerate(parts):
                    for position, row in enumerate(batch['input_ids']):
                        if np.isin(row, documents[sample]).any():
                            repeated = bool(batch['repeated'][position])
                            expected.append((epoch, step, 4 * step, rank, position, repeated))
        found = readers[0].which(sample=sample, epoch=0, epochs=2, keys=False)
        assert found.origin.sample == sample
        assert expected
        assert [
            (one.epoch, one.step, one.sample_in_epoch, one.rank, one.position, one.repeated)
            for one in found.steps
        ] == expected


def test_skipped_steps_and_samples_keep_other_rows(dataset: Path) -> None:
    documents = stored(dataset)
    whole = list(opened(dataset).batches())
    found = opened(dataset).which(5, keys=False)
    gone = [20, 31, 47]
    skipping: dict[str, Any] = {'skip': [2, found], 'skip_samples': gone}
    kept = [batch for step, batch in enumerate(whole) if step not in (2, 5)]
    expected = []
    for batch in kept:
        ids = batch['input_ids'].copy()
        is_gone = np.isin(ids, np.concatenate([documents[sample] for sample in gone]))
        ids[is_gone] = 0
        expected += ids.tolist()
    assert rows_of(kept) != expected
    assert rows_of(opened(dataset, **skipping).batches()) == expected
    for num_workers in (0, 2):
        loader = StreamingDataLoader(
            opened(dataset, **skipping), batch_size=2, num_workers=num_workers
        )
        taken = []
        for batch in loader:
            taken.append(batch)
            if len(taken) == 4:
                break
        state = json.loads(json.dumps(loader.state_dict()))
        assert state['sample_in_epoch'] == 10
        assert state['skip'] == {'steps': [[0, 4, 6], [0, 10, 12]], 'samples': gone}
        # The state alone is enough, also on two ranks.
        rest = []
        for rank in range(2):
            other = opened(dataset, rank=rank, world_size=2, batch_size=1)
            other.load_state_dict(state)
            rest.append(list(other.batches()))
        merged = rows_of(taken) + rows_of(batch for step in zip(*rest) for batch in step)
        assert merged == expected
    with pytest.raises(UsageError, match='the rows 4 to 6 of the epoch are not whole steps'):
        odd = opened(dataset, batch_size=3)
        odd.load_state_dict({**state, 'sample_in_epoch': 0})
        next(odd.batches())

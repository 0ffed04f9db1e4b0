"""The results of `shardmill.convert`, `inspect`, `verify` and `plan`.

Reports are immutable. Sizes are in bytes and durations in seconds. In notebooks they are shown as tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Optional, TypeVar, Union

from shardmill._text import html_table, size_text
from shardmill.errors import DataError, ShardmillError

__all__ = [
    'ColumnReport',
    'ConvertReport',
    'DatasetCheck',
    'DatasetGroupReport',
    'DatasetReport',
    'EpochPlan',
    'IncrementReport',
    'InspectReport',
    'NodeEpochPlan',
    'NodePlan',
    'PlanReport',
    'Problem',
    'Report',
    'SourceColumn',
    'SourceReport',
    'SplitReport',
    'VerifyReport',
]

R = TypeVar('R', bound='Report')


@dataclass(frozen=True)
class Report:
    """The base class of all reports."""

    #: The key of the location in the object that the program prints, and the reports in it, by attribute.
    _location: ClassVar[str] = 'location'
    _parts: ClassVar[dict[str, type[Report]]] = {}

    @classmethod
    def from_json(cls: type[R], found: Mapping[str, Any], **other: Any) -> R:
        """Creates a report from an object that the program printed.

        Args:
            found: The object. Only the values of this report's attributes are used.
            **other: Attributes that have another name or form in the object.
        """
        known: dict[str, Any] = {}
        for name in (each.name for each in fields(cls)):
            key = cls._location if name == 'location' else name
            value = found.get(key)
            if name == 'json':
                known[name] = found
            elif name in cls._parts:
                made = cls._parts[name].from_json
                known[name] = tuple(map(made, value or ()))
            elif key in found:
                known[name] = tuple(value) if isinstance(value, list) else value
        return cls(**{**known, **other})

    def _repr_html_(self) -> str:
        """Returns the attributes as an HTML table."""
        rows = []
        for each in fields(self):
            value = getattr(self, each.name)
            if not each.repr or value is None or value == ():
                continue
            shown = _Many(value) if isinstance(value, tuple) else _shown(each.name, value)
            rows.append((each.name.replace('_', ' '), shown))
        return html_table(rows, caption=type(self).__name__)


class _Many:
    """Several values in one cell of an HTML table."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values

    def _repr_html_(self) -> str:
        first = self._values[0]
        if not isinstance(first, Report):
            return html_table([(value,) for value in self._values])
        names = [each.name for each in fields(first) if each.repr]
        rows = [[_shown(name, getattr(value, name)) for name in names] for value in self._values]
        return html_table(rows, [name.replace('_', ' ') for name in names])


def _shown(name: str, value: Any) -> Any:
    is_size = name.endswith('bytes') or name == 'size_limit'
    return size_text(value) if is_size and value is not None else value


@dataclass(frozen=True)
class SplitReport(Report):
    """One dataset of a conversion.

    Attributes:
        name: The name of the split; empty without splits.
        samples: The number of samples.
        shards: The number of shards.
        raw_bytes: The size before compression.
        stored_bytes: The size of the files.
    """

    name: str
    samples: int
    shards: int
    raw_bytes: int
    stored_bytes: int


@dataclass(frozen=True)
class IncrementReport(Report):
    """The last generation of a dataset that follows a Delta table.

    Attributes:
        generation: Its number, from 1.
        version: The version of the table.
        from_version: The version of the generation before; ``None`` for the first.
        added_samples: The number of added samples.
        added_shards: The number of added shards.
        tombstones: The number of earlier samples that are no longer in the table.
        all_tombstones: The number of such samples in all generations.
    """

    generation: int
    version: int
    from_version: Optional[int]
    added_samples: int
    added_shards: int
    tombstones: int
    all_tombstones: int


@dataclass(frozen=True)
class ConvertReport(Report):
    """What a conversion wrote.

    Attributes:
        out: The location of the dataset.
        outcome: ``converted``, ``resumed`` after an interruption, or ``already_done`` if nothing was left to do.
        samples: The number of samples that readers deliver; deleted ones do not count.
        shards: The number of shards.
        raw_bytes: The size before compression.
        stored_bytes: The size of the files.
        source_bytes: The size of the source.
        reused_shards: The number of shards of an interrupted conversion that were kept.
        dropped_rows: The number of rows that were dropped because of nulls.
        deleted_samples: The number of deleted samples of the source that were left out.
        elapsed_seconds: The duration.
        splits: The datasets; without splits there is one.
        increment: The last generation of a dataset that follows a Delta table.
        json: The report of ``shardmill convert --json``.
    """

    _parts: ClassVar[dict[str, type[Report]]] = {'splits': SplitReport}

    out: str
    outcome: str
    samples: int
    shards: int
    raw_bytes: int
    stored_bytes: int
    source_bytes: int
    reused_shards: int
    dropped_rows: int
    deleted_samples: int
    elapsed_seconds: float
    splits: tuple[SplitReport, ...]
    increment: Optional[IncrementReport]
    json: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, found: Mapping[str, Any], **other: Any) -> ConvertReport:
        """Creates the report from the object of ``shardmill convert --json``."""
        outcome, increment = found['outcome'], found['increment']
        # JSON has an object for an outcome with a number.
        resumed = outcome['resumed'] if isinstance(outcome, Mapping) else {'reused_shards': 0}
        return super().from_json(
            found,
            out=found['dest'],
            outcome=outcome if isinstance(outcome, str) else 'resumed',
            reused_shards=resumed['reused_shards'],
            deleted_samples=found.get('deleted_samples', 0),
            increment=None if increment is None else IncrementReport.from_json(increment),
            **other,
        )


@dataclass(frozen=True)
class ColumnReport(Report):
    """A column of a dataset.

    Attributes:
        name: Its name.
        encoding: Its encoding.
        bytes: The size of a value; ``None`` if values have different sizes.
    """

    name: str
    encoding: str
    bytes: Optional[int]


@dataclass(frozen=True)
class DatasetReport(Report):
    """The contents of a dataset. Format, columns, compression and hashes are those of the first shard.

    Attributes:
        location: Its location.
        samples: The number of samples, without deleted ones.
        deleted_samples: The number of deleted samples that are still stored.
        shards: The number of shards.
        raw_bytes: The size before compression.
        stored_bytes: The size of the files.
        format: ``mds``, ``webdataset``, ``json``, ``csv``, ``tsv`` or ``xsv``; ``None`` without shards.
        columns: The columns.
        compression: The compression, such as ``zstd:3``.
        hashes: The names of the hashes in the index.
        size_limit: The maximum raw bytes per shard.
        json: The report of ``shardmill inspect --json``, with the provenance and the layouts of other shards.
    """

    _location = 'dataset'
    _parts: ClassVar[dict[str, type[Report]]] = {'columns': ColumnReport}

    location: str
    samples: int
    deleted_samples: int
    shards: int
    raw_bytes: int
    stored_bytes: int
    format: Optional[str]
    columns: tuple[ColumnReport, ...]
    compression: Optional[str]
    hashes: tuple[str, ...]
    size_limit: Optional[int]
    json: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, found: Mapping[str, Any], **other: Any) -> DatasetReport:
        """Creates the report from the object of ``shardmill inspect --json``."""
        layout = dict.fromkeys(('format', 'compression', 'size_limit'))
        given = {**layout, 'hashes': [], 'deleted_samples': 0, **found}
        return super().from_json(given, **{'json': found, **other})


@dataclass(frozen=True)
class DatasetGroupReport(Report):
    """A folder of datasets, such as splits.

    Attributes:
        location: The folder.
        samples: The number of samples of all datasets.
        datasets: The datasets by name.
        errors: The errors of datasets that cannot be opened.
    """

    location: str
    samples: int
    datasets: Mapping[str, DatasetReport]
    errors: tuple[ShardmillError, ...]

    def _repr_html_(self) -> str:
        """Returns a row for each dataset."""
        rows: list[tuple[Any, ...]] = [
            (name, each.samples, each.shards, size_text(each.stored_bytes), each.format)
            for name, each in self.datasets.items()
        ]
        rows += [(error.object or '', str(error), None, None, None) for error in self.errors]
        head = ('dataset', 'samples', 'shards', 'stored', 'format')
        return html_table(rows, head, caption=self.location)


@dataclass(frozen=True)
class SourceColumn(Report):
    """A column of a source of a conversion.

    Attributes:
        name: Its name.
        type: Its Arrow type.
        nullable: Whether it may have nulls.
        nulls: The number of nulls; ``None`` if it is not known without reading the data.
        encoding: The default encoding of `shardmill.convert`; ``None`` if there is none.
        problem: Why it has no default encoding.
    """

    name: str
    type: str
    nullable: bool
    nulls: Optional[int]
    encoding: Optional[str]
    problem: Optional[str] = None


@dataclass(frozen=True)
class SourceReport(Report):
    """A table or a tree of files that `shardmill.convert` can read.

    Attributes:
        location: Its location.
        kind: Its kind, such as ``parquet``.
        files: The number of files.
        bytes: The size of the files.
        rows: The number of rows; ``None`` if it is not known without reading the data.
        fingerprint: A digest of paths, sizes and modification times.
        columns: The columns.
        json: The report of ``shardmill inspect --json``, with the details of a Delta table.
    """

    _location = 'source'
    _parts: ClassVar[dict[str, type[Report]]] = {'columns': SourceColumn}

    location: str
    kind: str
    files: int
    bytes: int
    rows: Optional[int]
    fingerprint: str
    columns: tuple[SourceColumn, ...]
    json: Mapping[str, Any] = field(repr=False, compare=False)


#: What `shardmill.inspect` returns.
InspectReport = Union[DatasetReport, DatasetGroupReport, SourceReport]


@dataclass(frozen=True)
class Problem(Report):
    """A finding of a verification.

    Attributes:
        id: The stable id of the error.
        object: The file, sample and column that it is about.
        message: What is wrong.
        hint: What to do about it.
        shard: The number of the shard, from 0; ``None`` if it is not about a shard.
    """

    id: str
    object: str
    message: str
    hint: Optional[str] = None
    shard: Optional[int] = None


@dataclass(frozen=True)
class DatasetCheck(Report):
    """The verification of one dataset.

    Attributes:
        location: The dataset.
        ok: Whether there is no problem, and with ``strict`` no warning.
        samples: The number of samples in the index.
        sound_samples: The number of samples in shards without problems.
        shards: The number of shards; all were checked.
        damaged_shards: The number of shards with a problem.
        stored_bytes: The bytes that were read.
        hashes: The number of hashes that were compared.
        deep: Whether every value was decoded.
        problems: The first problems, in the order of their shards.
        warnings: The first oddities that do not prevent reading.
        elapsed_seconds: The duration.
        json: The report of ``shardmill verify --json``, with the numbers of all problems and warnings.
    """

    _location = 'dataset'
    _parts: ClassVar[dict[str, type[Report]]] = {'problems': Problem, 'warnings': Problem}

    location: str
    ok: bool
    samples: int
    sound_samples: int
    shards: int
    damaged_shards: int
    stored_bytes: int
    hashes: int
    deep: bool
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    elapsed_seconds: float
    json: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class VerifyReport(Report):
    """The verification of a dataset, or of all datasets in a folder.

    Attributes:
        ok: Whether all datasets are sound.
        datasets: The datasets.
        errors: The errors of datasets that cannot be opened.
    """

    ok: bool
    datasets: tuple[DatasetCheck, ...]
    errors: tuple[ShardmillError, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of all datasets."""
        return tuple(problem for each in self.datasets for problem in each.problems)

    def raise_for_problems(self) -> None:
        """Raises an exception unless all datasets are sound.

        Raises:
            DataError: A dataset has a problem. The exception is about the first one.
        """
        if self.ok:
            return
        if self.errors:
            raise self.errors[0]
        first = next(each for each in self.datasets if not each.ok)
        # A strict verification fails for warnings, too.
        found = (first.problems or first.warnings)[0]
        place = f'{first.location}: {found.object}'
        raise DataError(f'{place}: {found.message}', found.id, place, found.hint)


@dataclass(frozen=True)
class EpochPlan(Report):
    """The samples of an epoch.

    Attributes:
        epoch: Its number, from 0.
        samples: The number of samples.
        steps: The number of batches of each rank.
        padded: The number of samples that occur twice, so that all ranks have as many; ``None`` if it is not known.
        dropped: The number of samples that do not fill a batch; ``None`` if it is not known.
    """

    epoch: int
    samples: int
    steps: int
    padded: Optional[int]
    dropped: Optional[int]


@dataclass(frozen=True)
class NodeEpochPlan(Report):
    """What a node fetches and waits for in an epoch.

    Attributes:
        epoch: The epoch, from 0.
        uses: How often a shard is needed.
        hits: How often it is in the cache.
        lru_hits: How often it would be in a cache with LRU eviction.
        fetched_shards: The number of fetched shards.
        fetched_bytes: Their size.
        evictions: The number of evicted shards.
        bypasses: The number of shards that are read past the cache, because they do not fit.
        wait_seconds: How long batches wait for data.
        seconds: The duration of the epoch.
    """

    epoch: int
    uses: int
    hits: int
    lru_hits: int
    fetched_shards: int
    fetched_bytes: int
    evictions: int
    bypasses: int
    wait_seconds: float
    seconds: float


@dataclass(frozen=True)
class NodePlan(Report):
    """What a node fetches, keeps and waits for.

    Attributes:
        node: Its number, from 0.
        first_batch_seconds: The time to the first batch.
        most_resident_bytes: The largest size of the cache.
        needed_at_once_bytes: The size of the shards that are needed at the same time.
        needed_in_epoch_bytes: The size of the shards that are needed in an epoch.
        distinct_bytes: The size of the shards that are needed in the run.
        epochs: Its epochs.
    """

    node: int
    first_batch_seconds: float
    most_resident_bytes: int
    needed_at_once_bytes: int
    needed_in_epoch_bytes: int
    distinct_bytes: int
    epochs: tuple[NodeEpochPlan, ...]

    @classmethod
    def from_json(cls, found: Mapping[str, Any], **other: Any) -> NodePlan:
        """Creates the report from an object in ``nodes`` of ``shardmill plan --json``."""
        cache, lru = found['belady'], found['lru']
        epochs = (
            NodeEpochPlan.from_json(epoch, lru_hits=with_lru['hits'])
            for epoch, with_lru in zip(cache['epochs'], lru['epochs'])
        )
        return super().from_json({**found, **cache}, epochs=tuple(epochs), **other)


@dataclass(frozen=True)
class PeersEpochPlan(Report):
    """The forecast of an epoch for nodes that share their caches.

    Attributes:
        epoch: The number of the epoch.
        store_shards: The shards that all nodes together fetch from the store.
        store_bytes: Their bytes.
        peer_shards: The shards that nodes fetch from other nodes.
        peer_bytes: Their bytes.
    """

    epoch: int
    store_shards: int
    store_bytes: int
    peer_shards: int
    peer_bytes: int


@dataclass(frozen=True)
class PlanReport(Report):
    """The forecast of a training run.

    Attributes:
        samples: The number of samples of all streams.
        shards: The number of shards.
        raw_bytes: The size before compression.
        stored_bytes: The size of the files.
        global_batch: The number of samples of all ranks in a step. Replicas are counted once.
        epochs: The samples of each epoch.
        nodes: The first nodes.
        advice: What would make the run faster or cheaper.
        peers: With ``peers=True``, the epochs of all nodes together.
        json: The report of ``shardmill plan --json``, with the order, the assumptions and the course of time.
    """

    _parts: ClassVar[dict[str, type[Report]]] = {
        'epochs': EpochPlan,
        'nodes': NodePlan,
        'peers': PeersEpochPlan,
    }

    samples: int
    shards: int
    raw_bytes: int
    stored_bytes: int
    global_batch: int
    epochs: tuple[EpochPlan, ...]
    nodes: tuple[NodePlan, ...]
    advice: tuple[str, ...]
    json: Mapping[str, Any] = field(repr=False, compare=False)
    peers: tuple[PeersEpochPlan, ...] = ()

    def _repr_html_(self) -> str:
        """Returns a row for each node and epoch, and the advice."""
        names = [each.name for each in fields(NodeEpochPlan)]
        rows = [
            [node.node, *(_shown(name, getattr(epoch, name)) for name in names)]
            for node in self.nodes
            for epoch in node.epochs
        ]
        table = html_table(rows, ['node', *(name.replace('_', ' ') for name in names)])
        return table + html_table([(line,) for line in self.advice], caption='advice')

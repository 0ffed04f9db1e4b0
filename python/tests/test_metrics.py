"""What a loader tells of itself."""

from __future__ import annotations

import http.server
import json
import pickle
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest

from shardmill import MDSWriter, StreamingDataLoader, StreamingDataset, metrics
from shardmill.errors import UsageError
from shardmill.stats import DatasetStats, LoaderStats

SAMPLES = 100


def write_numbers(path: Path) -> Path:
    with MDSWriter(out=str(path), columns={'x': 'ndarray:int32:4'}) as out:
        for number in range(SAMPLES):
            out.write({'x': np.full(4, number, np.int32)})
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_numbers(tmp_path / 'data')


def make_loader(folder: Path, workers: int = 0) -> StreamingDataLoader:
    dataset = StreamingDataset(local=str(folder), batch_size=8)
    return StreamingDataLoader(dataset, batch_size=8, num_workers=workers)


def test_stats_count_read_samples_and_batches(folder: Path) -> None:
    loader = make_loader(folder)
    assert loader.stats()['loader_batches'] == 0
    for batch in loader:
        assert batch['x'].shape[1] == 4
    stats = loader.stats()
    assert (stats['samples'], stats['batches']) == (SAMPLES, 13)
    assert stats['bytes'] == SAMPLES * 16
    assert (stats['loader_batches'], stats['num_samples_yielded']) == (13, SAMPLES)
    assert 0 < stats['loader_longest_wait_seconds'] <= stats['loader_wait_seconds'] < 60
    assert stats['retries'] == 0 and stats['fetched_shards'] == 0


def test_stats_are_immutable_and_have_attributes(folder: Path) -> None:
    dataset = StreamingDataset(local=str(folder), batch_size=8)
    before = dataset.stats()
    assert isinstance(before, DatasetStats)
    assert (before.batches, before.samples, before.retries) == (0, 0, 0)
    next(iter(dataset))
    after = dataset.stats()
    assert before.batches == 0 and after.batches == after['batches'] == 1
    # As the dict that it was before.
    assert {**after} == dict(after.items()) and next(iter(after)) == 'fetched_shards'
    assert len(after) == len(dict(after)) and 'samples' in after and 'other' not in after
    with pytest.raises(KeyError):
        after['other']
    with pytest.raises(AttributeError):
        after.samples = 1  # type: ignore[misc]
    of_loader = make_loader(folder).stats()
    assert isinstance(of_loader, LoaderStats) and set(after) < set(of_loader)
    assert of_loader.loader_batches == 0
    assert pickle.loads(pickle.dumps(of_loader)) == of_loader


def test_stats_distinguish_fetched_and_cached_shards(folder: Path, tmp_path: Path) -> None:
    for fetched, found in [(1, 0), (0, 1)]:
        dataset = StreamingDataset(remote=str(folder), local=str(tmp_path / 'cache'), batch_size=8)
        assert sum(1 for _ in dataset) == SAMPLES
        stats = dataset.stats()
        assert (stats['fetched_shards'], stats['found_shards']) == (fetched, found)
        assert (stats['fetched_bytes'] > 0) == bool(fetched)


@pytest.mark.parametrize('workers', [0, 1])
def test_stats_callback_is_called_every_n_batches(folder: Path, workers: int) -> None:
    loader = make_loader(folder, workers)
    told: list[tuple[int, int]] = []
    loader.on_stats(lambda stats, batch: told.append((batch, stats.num_samples_yielded)), every=5)
    for _ in range(2):
        for _ in loader:
            pass
    assert told == [(5, 40), (10, 80), (15, 16), (20, 56), (25, 96)]
    with pytest.raises(ValueError, match='positive'):
        loader.on_stats(lambda stats, batch: None, every=0)


def test_stats_callback_error_propagates(folder: Path) -> None:
    loader = make_loader(folder)

    def fail(stats: Mapping[str, Any], batch: int) -> None:
        raise KeyError('from the callback')

    loader.on_stats(fail, every=2)
    with pytest.raises(KeyError, match='from the callback'):
        for _ in loader:
            pass


def test_stats_are_logged_to_mlflow(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip('mlflow')
    monkeypatch.chdir(tmp_path)
    # Metrics in files need no database; later versions of MLflow want to be told so.
    monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
    mlflow.set_tracking_uri((tmp_path / 'runs').as_uri())
    loader = make_loader(folder)
    with mlflow.start_run() as run:
        metrics.log_to_mlflow(loader, every=4)
        for _ in loader:
            pass
    client = mlflow.MlflowClient()
    history = client.get_metric_history(run.info.run_id, 'shardmill/num_samples_yielded')
    assert [(entry.step, entry.value) for entry in history] == [(4, 32), (8, 64), (12, 96)]


def test_missing_mlflow_error_names_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'mlflow', None)
    with pytest.raises(ImportError, match='mlflow-skinny'):
        metrics.log_to_mlflow(make_loader(folder))


def test_stats_are_logged_to_lightning(folder: Path) -> None:
    lightning = pytest.importorskip('lightning.pytorch')
    import torch
    from lightning.pytorch.loggers.logger import DummyLogger

    logged: list[tuple[int, float]] = []

    class Logger(DummyLogger):
        def log_metrics(self, metrics: dict[str, float], step: Optional[int] = None) -> None:
            assert step is not None
            logged.append((step, metrics['feed/num_samples_yielded']))

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch['x'].float()).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(loader: Any) -> None:
        trainer = lightning.Trainer(
            accelerator='cpu',
            max_epochs=1,
            logger=Logger(),
            callbacks=[metrics.lightning_callback(every=4, prefix='feed/')],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1000,
        )
        trainer.fit(Module(), loader)

    fit(make_loader(folder))
    assert logged == [(4, 32.0), (8, 64.0), (12, 96.0)]
    with pytest.raises(UsageError, match='which has no statistics'):
        fit(torch.utils.data.DataLoader(make_loader(folder).dataset, batch_size=8))


def test_stats_are_logged_to_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip('transformers')
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {'loss': self.layer(x.float()).mean()}

    data = write_numbers(tmp_path / 'data')
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / 'out'),
        per_device_train_batch_size=8,
        num_train_epochs=1,
        remove_unused_columns=False,
        save_strategy='no',
        logging_strategy='no',
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    dataset = StreamingDataset(local=str(data), batch_size=8)
    trainer = transformers.Trainer(model=Model(), args=arguments, train_dataset=dataset)
    metrics.log_to_transformers(trainer, every=5)
    trainer.train()
    logged = [
        (each['step'], each['shardmill/batches'])
        for each in trainer.state.log_history
        if 'shardmill/batches' in each
    ]
    assert [step for step, _ in logged] == [5, 10]
    # The Trainer reads a batch ahead.
    assert all(step <= batches <= step + 1 for step, batches in logged)


def test_textfile_is_valid_openmetrics(folder: Path, tmp_path: Path) -> None:
    parser = pytest.importorskip('prometheus_client.openmetrics.parser')
    loader = make_loader(folder)
    file = tmp_path / 'shardmill.prom'
    metrics.write_textfile(loader, file, every=4, labels={'rank': 3, 'run': 'a "b"\\c'})
    read = []
    for number, _ in enumerate(loader, start=1):
        assert file.exists() == (number >= 4)
        if file.exists():
            families = {
                each.name: each for each in parser.text_string_to_metric_families(file.read_text())
            }
            read.append(families['shardmill_loader_batches'].samples[0].value)
    assert read == [4] * 4 + [8] * 4 + [12] * 2
    assert len(families) == len(loader.stats())
    assert families['shardmill_fetched_bytes'].type == 'counter'
    assert families['shardmill_fetched_bytes'].documentation == 'Their bytes.'
    assert families['shardmill_cached_bytes'].type == 'gauge'
    assert families['shardmill_loader_batches'].samples[0].labels == {
        'rank': '3',
        'run': 'a "b"\\c',
    }
    assert [each.name for each in tmp_path.iterdir() if each.name != 'data'] == [file.name]


def test_metrics_are_served_over_http(folder: Path) -> None:
    loader = make_loader(folder)
    server = metrics.serve(loader, port=0)
    try:
        for _ in loader:
            pass
        with urllib.request.urlopen(server.address) as answer:
            assert answer.headers['Content-Type'] == metrics.CONTENT_TYPE
            text = answer.read().decode()
        assert 'shardmill_loader_batches_total 13\n' in text and text.endswith('# EOF\n')
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(server.address + '/other')
    finally:
        server.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.address, timeout=5)


#: What Perfetto needs of the events used here: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
TRACE_SCHEMA: Any = {
    'type': 'object',
    'required': ['traceEvents'],
    'properties': {
        'displayTimeUnit': {'enum': ['ms', 'ns']},
        'traceEvents': {
            'type': 'array',
            'items': {
                'type': 'object',
                'required': ['ph', 'name', 'pid'],
                'properties': {'pid': {'type': 'integer'}, 'tid': {'type': 'integer'}},
                'oneOf': [
                    {
                        'properties': {
                            'ph': {'const': 'X'},
                            'cat': {'type': 'string'},
                            'ts': {'type': 'number', 'minimum': 0},
                            'dur': {'type': 'number', 'minimum': 0},
                        },
                        'required': ['tid', 'ts', 'dur'],
                    },
                    {
                        'properties': {
                            'ph': {'const': 'M'},
                            'name': {'enum': ['process_name', 'thread_name']},
                            'args': {
                                'properties': {'name': {'type': 'string'}},
                                'required': ['name'],
                            },
                        },
                        'required': ['args'],
                    },
                ],
            },
        },
    },
}


def test_trace_contains_every_pipeline_step(folder: Path, tmp_path: Path) -> None:
    dataset = StreamingDataset(remote=str(folder), local=str(tmp_path / 'cache'), batch_size=8)
    loader = StreamingDataLoader(dataset, batch_size=8)
    with metrics.trace(loader, tmp_path / 'trace.json', rank=2):
        for _ in loader:
            pass
    written = json.loads((tmp_path / 'trace.json').read_text())
    jsonschema = pytest.importorskip('jsonschema')
    jsonschema.validate(written, TRACE_SCHEMA)
    events = written['traceEvents']
    steps = [event for event in events if event['ph'] == 'X']
    assert {event['name'] for event in steps} >= {'fetch', 'hash', 'fill', 'wait'}
    assert sum(event['name'] == 'fill' for event in steps) == 13
    assert {event['pid'] for event in events} == {2}
    named = {event['tid'] for event in events if event['name'] == 'thread_name'}
    for lane in named:
        # Steps of a lane do not overlap, so that viewers show them side by side.
        own = sorted((each['ts'], each['dur']) for each in steps if each['tid'] == lane)
        assert all(a + b <= c + 1e-3 for (a, b), (c, _) in zip(own, own[1:]))
    assert named == {event['tid'] for event in steps}


def test_otlp_spans_reach_a_collector(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip('opentelemetry.exporter.otlp.proto.http')
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    received = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers['Content-Length']))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Requests are not logged."""

    server = http.server.HTTPServer(('127.0.0.1', 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        provider = TracerProvider()
        exporter = OTLPSpanExporter(f'http://127.0.0.1:{server.server_port}/v1/traces')
        provider.add_span_processor(BatchSpanProcessor(exporter))
        dataset = StreamingDataset(remote=str(folder), local=str(tmp_path / 'cache'), batch_size=8)
        loader = StreamingDataLoader(dataset, batch_size=8)
        before = time.time_ns()
        with metrics.otlp_trace(loader, rank=2, provider=provider):
            for _ in loader:
                pass
        provider.shutdown()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    spans = [
        span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    (parent,) = [span for span in spans if span.name == 'read']
    steps = [span for span in spans if span is not parent]
    assert {span.name for span in steps} >= {'fetch', 'hash', 'fill', 'wait'}
    assert sum(span.name == 'fill' for span in steps) == 13
    for span in steps:
        assert span.parent_span_id == parent.span_id
        assert before <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= parent.end_time_unix_nano
        assert ('shardmill.rank', 2) in {
            (each.key, each.value.int_value) for each in span.attributes
        }


def test_missing_opentelemetry_error_names_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'opentelemetry.trace', None)
    with pytest.raises(ImportError, match=r'shardmill\[otlp\]'):
        with metrics.otlp_trace(make_loader(folder)):
            pass

"""Does a training step wait for its data?

    python gpu_feed.py [--model text|images] [--data DATASET] [--device auto|cpu|cuda] [--workers 0] [--synthetic-step MS]

Trains a small real model on a real dataset of shards, through `StreamingDataLoader`: an embedding with a few transformer
blocks on samples of tokens, or a small convolutional net on JPEGs that are decoded in the loader. Without `--data` a dataset
is made first, in a temporary folder. `--synthetic-step` puts a sleep of that many milliseconds in the place of the
model: so long would an accelerator compute, which this machine need not have.

The wait share is the time in which the loop waited for its next batch, divided by all of it. Each step waits for its
computation to end before it asks for the next batch, so that a batch is not counted as free only because the device was
still busy with the one before. On CUDA batches come from page-locked memory, and the copy is timed by events.
"""

from __future__ import annotations

import argparse
import io
import json
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any, Callable, Iterator

import measure

VOCABULARY = 8_192
CLASSES = 10
SIDE = 64
#: Steps that are not counted: caches warm up, kernels are chosen.
WARM_UP = 3


def make_tokens(out: pathlib.Path, samples: int, length: int) -> None:
    """Samples of random tokens."""
    import numpy as np

    from shardmill import MDSWriter

    generator = np.random.default_rng(1)
    columns = {"tokens": f"ndarray:int32:{length}"}
    with MDSWriter(out=str(out), columns=columns, size_limit=1 << 22) as writer:
        for _ in range(samples):
            writer.write({"tokens": generator.integers(VOCABULARY, size=length, dtype=np.int32)})


def make_images(out: pathlib.Path, samples: int) -> None:
    """JPEGs of coloured noise, smooth enough to be compressed as photographs are."""
    import numpy as np
    from PIL import Image

    from shardmill import MDSWriter

    generator = np.random.default_rng(1)
    columns = {"image": "bytes", "label": "int64"}
    with MDSWriter(out=str(out), columns=columns, size_limit=1 << 22) as writer:
        for number in range(samples):
            coarse = generator.integers(256, size=(24, 24, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(coarse).resize((192, 192)).save(file, "JPEG", quality=85)
            writer.write({"image": file.getvalue(), "label": number % CLASSES})


def decoded(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A `collate_fn`: samples with JPEG bytes become a batch of images of `SIDE` by `SIDE` and one of labels."""
    import numpy as np
    import torch
    from PIL import Image

    images = np.empty((len(samples), SIDE, SIDE, 3), np.uint8)
    for place, sample in enumerate(samples):
        image = Image.open(io.BytesIO(sample["image"]))
        # The decoder leaves out what the smaller image does not show.
        image.draft("RGB", (SIDE, SIDE))
        images[place] = np.asarray(image.convert("RGB").resize((SIDE, SIDE)))
    labels = [int(sample["label"]) % CLASSES for sample in samples]
    return {"image": torch.from_numpy(images), "label": torch.tensor(labels)}


def text_model(width: int, depth: int) -> Any:
    """Predicts the next token."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, width)
            block = nn.TransformerEncoderLayer(width, max(width // 64, 1), 4 * width, 0.0, batch_first=True)
            self.blocks = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
            # So many outputs as classes and not as tokens: the last layer would be most of the work.
            self.head = nn.Linear(width, 1_024)

        def forward(self, batch: dict[str, Any]) -> Any:
            tokens = batch["tokens"].long() % VOCABULARY
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1] - 1, device=tokens.device)
            hidden = self.blocks(self.embedding(tokens[:, :-1]), mask=mask, is_causal=True)
            return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten() % 1_024)

    torch.manual_seed(1)
    return Model()


def image_model() -> Any:
    """Predicts the class."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            for inner, outer in ((3, 16), (16, 32), (32, 64)):
                layers += [nn.Conv2d(inner, outer, 3, 2, 1), nn.BatchNorm2d(outer), nn.ReLU()]
            self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))

        def forward(self, batch: dict[str, Any]) -> Any:
            images = batch["image"].permute(0, 3, 1, 2).float() / 255
            return nn.functional.cross_entropy(self.layers(images), batch["label"])

    torch.manual_seed(1)
    return Model()


class Step:
    """What is done with a batch: copied to the device, a step of training, the end of it waited for."""

    def __init__(self, options: argparse.Namespace, device: str) -> None:
        import torch

        self.torch, self.device = torch, device
        self.sleep = options.synthetic_step
        self.copies: list[tuple[Any, Any]] = []
        self.losses: list[float] = []
        if self.sleep is None:
            model = text_model(options.width, options.depth) if options.model == "text" else image_model()
            self.model = model.to(device)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def __call__(self, batch: dict[str, Any]) -> None:
        torch = self.torch
        if self.device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            batch = {name: value.to("cuda", non_blocking=True) for name, value in batch.items()}
            end.record()
            self.copies.append((begin, end))
        if self.sleep is not None:
            time.sleep(self.sleep / 1e3)
        else:
            loss = self.model(batch)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.losses.append(float(loss.detach()))
        if self.device == "cuda":
            torch.cuda.synchronize()

    def copy_milliseconds(self) -> list[float]:
        return [begin.elapsed_time(end) for begin, end in self.copies[WARM_UP:]]


def tensors(batch: dict[str, Any]) -> dict[str, Any]:
    """The columns that a device can take."""
    return {name: value for name, value in batch.items() if hasattr(value, "to")}


def forever(loader: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def train(options: argparse.Namespace, data: pathlib.Path) -> dict[str, Any]:
    import torch

    from shardmill import StreamingDataLoader, StreamingDataset

    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = StreamingDataset(local=str(data), shuffle=True, batch_size=options.batch_size)
    collate: dict[str, Callable[[list[Any]], Any]] = {"collate_fn": decoded} if options.model == "images" else {}
    loader = StreamingDataLoader(
        dataset,
        batch_size=options.batch_size,
        num_workers=options.workers,
        pin_memory=device == "cuda",
        drop_last=True,
        persistent_workers=options.workers > 0,
        **collate,
    )
    step = Step(options, device)
    waits: list[float] = []
    whole: list[float] = []
    begun = time.perf_counter()
    batches = forever(loader)
    while len(whole) < options.steps + WARM_UP and time.perf_counter() - begun < options.seconds:
        start = time.perf_counter()
        batch = next(batches)
        taken = time.perf_counter()
        step(tensors(batch))
        waits.append(taken - start)
        whole.append(time.perf_counter() - start)
    first, waits, whole = waits[0], waits[WARM_UP:], whole[WARM_UP:]
    if not whole:
        sys.exit("no step was done in time: raise --seconds")
    report = {
        "model": options.model if options.synthetic_step is None else f"a sleep of {options.synthetic_step:g} ms",
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "workers": options.workers,
        "batch_size": options.batch_size,
        "steps": len(whole),
        "samples_per_second": options.batch_size * len(whole) / sum(whole),
        "step_milliseconds": 1e3 * statistics.median(whole),
        "wait_milliseconds": 1e3 * statistics.median(waits),
        "most_wait_milliseconds": 1e3 * max(waits),
        "first_batch_milliseconds": 1e3 * first,
        "wait_share": sum(waits) / sum(whole),
    }
    if step.losses:
        tenth = max(len(step.losses) // 10, 1)
        report["loss"] = [statistics.fmean(step.losses[:tenth]), statistics.fmean(step.losses[-tenth:])]
    if step.copies:
        report["copy_milliseconds"] = statistics.median(step.copy_milliseconds())
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["text", "images"], default="text")
    parser.add_argument("--data", type=pathlib.Path, help="shards with a column `tokens`, or with `image` and `label`")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30, help="stop after so long")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sample, where the dataset is made here")
    parser.add_argument("--width", type=int, default=128, help="of the transformer")
    parser.add_argument("--depth", type=int, default=2, help="blocks of the transformer")
    parser.add_argument("--synthetic-step", type=float, metavar="MS", help="sleep so long instead of computing")
    parser.add_argument("--most-wait-share", type=float, help="status 1 where the wait share is larger")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="gpu-feed-") as work:
        data = options.data
        if data is None:
            data = pathlib.Path(work) / options.model
            if options.model == "text":
                make_tokens(data, 4_096, options.length)
            else:
                make_images(data, 2_048)
        report = train(options, data)
    for name, value in report.items():
        print(f"{name.replace('_', ' '):26} {value:,.4g}" if isinstance(value, float) else f"{name.replace('_', ' '):26} {value}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": measure.machine(), **report}, indent=2) + "\n")
    return 0 if options.most_wait_share is None or report["wait_share"] <= options.most_wait_share else 1


if __name__ == "__main__":
    sys.exit(main())

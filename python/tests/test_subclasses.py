"""Datasets of text, images and videos."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from shardmill import MDSWriter, StreamingDataset
from shardmill.multimodal import (
    StreamingInsideWebVid,
    StreamingOutsideDTWebVid,
    StreamingOutsideGIWebVid,
)
from shardmill.text import StreamingC4, StreamingEnWiki, StreamingPile, _tokens
from shardmill.vision import StreamingADE20K, StreamingCIFAR10, StreamingCOCO, StreamingImageNet
from shardmill.vision.base import StandardTransform, StreamingVisionDataset

if TYPE_CHECKING:
    from pathlib import Path

OLD = {'partition_algo': 'orig', 'shuffle_algo': 'py1s', 'shuffle_block_size': 1 << 18}
COMMON = {
    *('remote', 'local', 'split', 'download_retry', 'download_timeout', 'validate_hash'),
    *('keep_zip', 'epoch_size', 'predownload', 'cache_limit', 'partition_algo', 'shuffle'),
    *('num_canonical_nodes', 'batch_size', 'shuffle_algo', 'shuffle_seed', 'shuffle_block_size'),
}
TOKENS = {'tokenizer_name', 'max_seq_len', 'group_method'}
TRANSFORMS = {'transforms', 'transform', 'target_transform'}
EXTRA = {'extra_local', 'extra_remote'}


@pytest.mark.parametrize(
    ('cls', 'own'),
    [
        (StreamingC4, TOKENS),
        (StreamingPile, TOKENS),
        (StreamingEnWiki, set()),
        (StreamingVisionDataset, TRANSFORMS),
        (StreamingCIFAR10, TRANSFORMS),
        (StreamingImageNet, TRANSFORMS),
        (StreamingADE20K, {'joint_transform', 'transform', 'target_transform'}),
        (StreamingCOCO, {'transform'}),
        (StreamingOutsideGIWebVid, EXTRA),
        (StreamingOutsideDTWebVid, EXTRA),
    ],
)
def test_dataset_signatures_match_streaming(cls: type[StreamingDataset], own: set[str]) -> None:
    parameters = dict(inspect.signature(cls).parameters)
    assert set(parameters) == COMMON | own
    assert {name: parameters[name].default for name in OLD} == OLD
    kinds = {parameter.kind for parameter in parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


# The default of py1s is 64 canonical nodes, which is more than there are samples.
ONE: dict[str, Any] = {'batch_size': 1, 'num_canonical_nodes': 1}


def write(path: Path, columns: dict[str, str], samples: list[dict[str, Any]]) -> str:
    with MDSWriter(out=str(path), columns=columns) as out:
        for sample in samples:
            out.write(sample)
    return str(path)


class Tokenizer:
    """One token for each character."""

    pad_token = None
    eos_token = '.'

    def __call__(self, text: str, truncation: bool, padding: str, max_length: int) -> Any:
        assert truncation
        assert padding == 'max_length'
        assert self.pad_token is not None
        return {'input_ids': [ord(letter) for letter in text.ljust(max_length, '.')[:max_length]]}


@pytest.mark.parametrize('cls', [StreamingC4, StreamingPile])
def test_text_datasets_tokenize_samples(
    cls: type[StreamingC4], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip('transformers')
    names = []

    def from_pretrained(name: str) -> Tokenizer:
        names.append(name)
        return Tokenizer()

    monkeypatch.setattr(transformers.AutoTokenizer, 'from_pretrained', from_pretrained)
    local = write(tmp_path / 'data', {'text': 'str'}, [{'text': 'ab'}, {'text': 'abcdef'}])
    options: dict[str, Any] = {'local': local, 'tokenizer_name': 'some', **ONE}
    dataset = cls(**options, max_seq_len=4, group_method='truncate')
    assert names == ['some']
    assert dataset[0]['input_ids'] == [97, 98, 46, 46]
    assert [sample['input_ids'][3] for sample in dataset] == [46, 100]
    assert (dataset.max_seq_len, dataset.group_method) == (4, 'truncate')
    with pytest.raises(ValueError, match='group_method'):
        cls(**options, max_seq_len=4, group_method='concat')


def test_tokenizer_keeps_existing_pad_token(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip('transformers')
    tokenizer = Tokenizer()
    tokenizer.pad_token = '#'  # type: ignore[assignment]
    monkeypatch.setattr(transformers.AutoTokenizer, 'from_pretrained', lambda name: tokenizer)
    assert _tokens.make_tokenizer('some').pad_token == '#'


def test_enwiki_samples_become_masked_lm_inputs(tmp_path: Path) -> None:
    ids = np.arange(6, dtype=np.int32)
    sample = {
        'input_ids': ids.tobytes(),
        'segment_ids': (ids * 2).tobytes(),
        'input_mask': (ids * 3).tobytes(),
        'masked_lm_positions': np.array([1, 4], np.int32).tobytes(),
        'masked_lm_ids': np.array([70, 80], np.int32).tobytes(),
        'masked_lm_weights': np.ones(2, np.float32).tobytes(),
    }
    local = write(tmp_path / 'data', dict.fromkeys(sample, 'bytes'), [sample])
    (found,) = StreamingEnWiki(local=local, **ONE)
    assert set(found) == {'input_ids', 'token_type_ids', 'attention_mask', 'labels'}
    assert found['input_ids'].tolist() == ids.tolist()
    assert found['token_type_ids'].tolist() == (ids * 2).tolist()
    assert found['attention_mask'].tolist() == (ids * 3).tolist()
    assert found['labels'].tolist() == [-100, 70, -100, -100, 80, -100]
    assert found['input_ids'].dtype == np.int32
    found['input_ids'][0] = 9


@pytest.fixture
def labelled(tmp_path: Path) -> str:
    """Numbers and their labels in the place of images."""
    samples = [{'x': number, 'y': number * 10} for number in range(4)]
    return write(tmp_path / 'data', {'x': 'int', 'y': 'int'}, samples)


@pytest.mark.parametrize('cls', [StreamingCIFAR10, StreamingImageNet])
def test_labelled_image_transforms_are_applied(
    cls: type[StreamingVisionDataset], labelled: str
) -> None:
    dataset = cls(
        local=labelled,
        **ONE,
        transform=lambda x: x + 0.5,
        target_transform=lambda y: -y,
    )
    assert list(dataset) == [(0.5, 0), (1.5, -10), (2.5, -20), (3.5, -30)]
    assert dataset[-1] == (3.5, -30)
    both = cls(local=labelled, **ONE, transforms=lambda x, y: (y, x))
    assert both[1] == (10, 1)
    with pytest.raises(ValueError, match='transforms'):
        cls(local=labelled, **ONE, transforms=lambda x, y: (x, y), transform=abs)


def test_vision_datasets_subclass_torchvision_dataset(labelled: str) -> None:
    torchvision = pytest.importorskip('torchvision')
    dataset = StreamingCIFAR10(local=labelled, **ONE, transform=abs)
    assert isinstance(dataset, torchvision.datasets.VisionDataset)
    assert isinstance(dataset, StreamingDataset)
    image = pytest.importorskip('PIL.Image').new('RGB', (2, 3), (255, 0, 0))
    tensor, label = StandardTransform()(image, 7)
    assert (tuple(tensor.shape), float(tensor[0].min()), label) == ((3, 3, 2), 1.0, 7)


def test_ade20k_transforms_are_applied(labelled: str) -> None:
    dataset = StreamingADE20K(
        local=labelled,
        **ONE,
        joint_transform=lambda both: (both[1], both[0]),
        transform=lambda x: x + 1,
        target_transform=lambda y: -y,
    )
    assert list(dataset) == [(1, 0), (11, -1), (21, -2), (31, -3)]
    assert StreamingADE20K(local=labelled, **ONE)[1] == (1, 10)


def test_coco_samples_are_decoded_and_transformed(tmp_path: Path) -> None:
    image = pytest.importorskip('PIL.Image').new('L', (2, 3))
    sample = {
        'img': image,
        'img_id': 5,
        'htot': 3,
        'wtot': 2,
        'bbox_sizes': [1],
        'bbox_labels': [2],
    }
    encodings = ['pil', 'int', 'int', 'int', 'json', 'json']
    local = write(tmp_path / 'data', dict(zip(sample, encodings)), [sample])
    found, *rest = StreamingCOCO(local=local, **ONE)[0]
    assert (found.mode, found.size, rest) == ('RGB', (2, 3), [5, (3, 2), [1], [2]])

    def transform(*values: Any) -> Any:
        assert values[1:] == ((3, 2), [1], [2])
        return 'image', (6, 4), [8], [9]

    changed = StreamingCOCO(local=local, **ONE, transform=transform)[0]
    assert changed == ('image', 5, (6, 4), [8], [9])


@pytest.fixture
def videos(tmp_path: Path) -> dict[str, Any]:
    """Videos outside of the shards, half of which are here already."""
    paths = [f'some/{number}.mp4' for number in range(8)]
    samples = [{'content_path': path, 'caption': path[5]} for path in paths]
    local = write(tmp_path / 'data', {'content_path': 'str', 'caption': 'str'}, samples)
    for place, some in (('far', paths), ('near', paths[::2])):
        (tmp_path / place / 'some').mkdir(parents=True)
        for path in some:
            (tmp_path / place / path).write_bytes(f'{place} {path}'.encode())
    return {
        'local': local,
        **ONE,
        'extra_remote': str(tmp_path / 'far'),
        'extra_local': str(tmp_path / 'near'),
    }


CONTENTS = [f'{"far" if number % 2 else "near"} some/{number}.mp4'.encode() for number in range(8)]


@pytest.mark.parametrize('cls', [StreamingOutsideGIWebVid, StreamingOutsideDTWebVid])
def test_external_videos_are_downloaded(cls: Any, videos: dict[str, Any], tmp_path: Path) -> None:
    dataset = cls(**videos)
    assert dataset[1]['content'] == CONTENTS[1]
    assert (tmp_path / 'near' / 'some' / '1.mp4').exists()
    samples = list(dataset)
    assert [sample['content'] for sample in samples] == CONTENTS
    assert [sample['caption'] for sample in samples] == list('01234567')
    # An iteration that is left early, and one behind it.
    for sample in cls(**videos, predownload=3):
        assert sample['content'] == CONTENTS[0]
        break
    assert [sample['content'] for sample in dataset] == CONTENTS


def test_external_videos_are_prefetched(videos: dict[str, Any], tmp_path: Path) -> None:
    samples = iter(StreamingOutsideDTWebVid(**videos, predownload=4))
    next(samples)
    next(samples)
    # The second sample came when the sixth was under way, and waited for its own video only.
    done = {path.name for path in (tmp_path / 'near' / 'some').iterdir()}
    assert '1.mp4' in done
    assert '7.mp4' not in done
    samples.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize('path', ['../secret', '/etc/passwd', 'a/../../b'])
def test_video_path_outside_its_folder_is_an_error(path: str, tmp_path: Path) -> None:
    local = write(tmp_path / 'data', {'content_path': 'str'}, [{'content_path': path}])
    dataset = StreamingOutsideGIWebVid(
        local=local, **ONE, extra_local=str(tmp_path / 'near'), extra_remote=str(tmp_path)
    )
    with pytest.raises(ValueError, match='outside of its folder'):
        _ = dataset[0]
    plain = StreamingOutsideGIWebVid(local=local, **ONE)
    assert plain[0] == {'content_path': path}


def test_embedded_videos_are_read(videos: dict[str, Any]) -> None:
    dataset = StreamingInsideWebVid(local=videos['local'], **ONE)
    assert [sample['caption'] for sample in dataset] == list('01234567')

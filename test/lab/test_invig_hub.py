"""The InViG reader on parquet files and what the hub says."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clue_ros.lab.data.invig import InvigError, load_invig

FIXTURES = Path(__file__).parents[1] / "data"
OLD, NEW = FIXTURES / "invig_old", FIXTURES / "invig_new"
HAS_DATASETS = importlib.util.find_spec("datasets") is not None


@pytest.mark.skipif(not HAS_DATASETS, reason="needs the extra invig")
@pytest.mark.parametrize(("source", "split"), [(OLD, "test"), (NEW, "train")])
def test_parquet_as_on_the_hub(tmp_path: Path, source: Path, split: str) -> None:
    datasets = __import__("datasets")
    path = next(source.glob(f"{split}.json*"))
    text = path.read_text("utf-8")
    rows = json.loads(text) if path.suffix == ".json" else [*map(json.loads, text.splitlines())]
    for row in rows:
        name = row.get("image") or row["image_info"]["file_name"]
        row["image"] = {"bytes": (source / "images" / name).read_bytes(), "path": None}
    table = datasets.Dataset.from_list(rows)
    table = table.cast_column("image", datasets.Image())
    (tmp_path / "data").mkdir()
    table.to_parquet(str(tmp_path / "data" / f"{split}-00000-of-00001.parquet"))
    found, expected = load_invig(tmp_path, split=split), load_invig(source, split=split)
    assert found.problems == ()
    for here, there in zip(found.samples, expected.samples, strict=True):
        assert (here.request, here.exchanges, here.box) == (
            there.request,
            there.exchanges,
            there.box,
        )
        np.testing.assert_array_equal(here.load(), there.load())
    datasets.DatasetDict({split: table}).save_to_disk(str(tmp_path / "saved"))
    assert len(load_invig(tmp_path / "saved", split=split).samples) == len(expected.samples)


def test_without_datasets_the_message_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "test.parquet").write_bytes(b"PAR1")
    for source in (tmp_path, "jxu124/invig"):
        with pytest.raises(InvigError, match="needs datasets, of the extra invig"):
            load_invig(source)


class DatasetNotFoundError(Exception):
    """Named as the library's own."""


class OfflineModeIsEnabled(Exception):
    """Named as the library's own."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            DatasetNotFoundError("Dataset 'a/b' is a gated dataset on the Hub. You must log in."),
            r"gated: ask for access at https://huggingface.co/datasets/a/b, then `hf auth login`",
        ),
        (DatasetNotFoundError("Dataset 'a/b' doesn't exist on the Hub"), "no such data set"),
        (ConnectionError("Couldn't reach 'a/b' on the Hub"), "cannot be reached"),
        (OfflineModeIsEnabled("Cannot reach"), "cannot be reached"),
        (ValueError('Unknown split "dev". Should be one of'), "no such split"),
        (RuntimeError("boom\nwith lines"), "cannot be loaded, RuntimeError: boom with lines"),
    ],
)
def test_what_the_hub_says_becomes_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise error

    fake = SimpleNamespace(load_dataset=refuse, disable_progress_bars=lambda: None)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    with pytest.raises(InvigError, match=reason) as raised:
        load_invig("a/b", split="test")
    assert "\n" not in str(raised.value)


class Table(list[dict[str, Any]]):
    """The few methods of `datasets.Dataset` that the reader uses, on rows with PIL pictures."""

    column_names = ("image", "dialog", "bbox", "image_id")
    features = dict.fromkeys(column_names)

    def select_columns(self, names: list[str]) -> Table:
        """Only these."""
        return Table({name: row[name] for name in names} for row in self)

    def remove_columns(self, names: list[str]) -> Table:
        """All but these."""
        return Table({k: v for k, v in row.items() if k not in names} for row in self)


def test_pictures_that_are_already_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (OLD / "test.jsonl").read_text("utf-8").splitlines()
    rows = Table(json.loads(line) for line in lines[:2])
    for row in rows:
        with Image.open(OLD / "images" / row["image"]) as picture:
            row["image"] = picture.copy()
    fake = SimpleNamespace(
        load_dataset=lambda *args, **options: rows, disable_progress_bars=lambda: None
    )
    monkeypatch.setitem(sys.modules, "datasets", fake)
    data = load_invig("a/b", split="test")
    assert data.samples[0].box == pytest.approx(load_invig(OLD).samples[0].box)
    np.testing.assert_array_equal(data.samples[0].load(), load_invig(OLD).samples[0].load())

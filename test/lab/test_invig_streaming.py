"""Dialogues of any number: read row by row, and again by their place in the file."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clue_ros.lab.data.invig import (
    InvigError,
    InvigIndex,
    index_invig,
    load_invig,
    read_entries,
    usable,
)
from clue_ros.lab.data.invig_sources import Row, RowInMemory, read_rows
from clue_ros.lab.data.json_stream import CHUNK, JsonRow, JsonSpool, read_at, stream_rows
from clue_ros.lab.evaluation import dialogue_statistics
from clue_ros.lab.evaluation.dialogue_statistics import StatsOptions, measure
from clue_ros.lab.training.ivg_data import DialoguePictures, load_splits

MANY = 20_000


def row(number: int, pad: str = "") -> dict[str, Any]:
    """A row of the newer layout about picture number // 2."""
    ref = {
        "bbox": [0.1, 0.2, 0.5, 0.6],
        "category": "cup",
        "dialog": [["", f"take the cup {number}{pad[:500]}"], ["the röd one?", "yes"]],
        "dialog_cn": [],
        "id": f"d{number}",
    }
    more = {"note": pad} if len(pad) > 500 else {}
    info = {"file_name": f"{number // 2}.png", "height": 48, "id": f"p{number // 2}", "width": 64}
    return {"ref_list": [ref], "image_info": info, **more}


def write_rows(path: Path, count: int, form: str, words: int = 20) -> Path:
    """A file of `count` rows: .json, .jsonl or .jsonl.gz; no pictures."""
    path = path / f"train{form}"
    rows = (json.dumps(row(n, " please" * words), ensure_ascii=False) for n in range(count))
    text = (
        "[" + ",\n".join(rows) + "]" if form == ".json" else "".join(f"{line}\n" for line in rows)
    )
    path.write_bytes(gzip.compress(text.encode()) if form.endswith(".gz") else text.encode())
    return path


# --- rows of JSON files ---


@pytest.mark.parametrize("step", [1, 2, 7, CHUNK])
def test_rows_are_the_same_wherever_the_chunks_end(step: int) -> None:
    class Drip(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(step, CHUNK if size in (None, -1) else size or 0))

    values = [{"a": 'ü\\"\n'}, 12, -1.5e3, [], "x" * 40, True, None, {"b": [1, {"c": "日本"}]}]
    parts = {"train": values, "test": [], "val": [0]}
    text = "\ufeff " + json.dumps(parts, ensure_ascii=False, indent=1) + "\n"
    rows = list(stream_rows(Drip(text.encode())))
    assert [(r.part, r.number) for r in rows] == [*(("train", i) for i in range(8)), ("val", 0)]
    assert [r.values for r in rows] == [*values, 0]
    for found in rows:
        at = text.encode()[found.start : found.start + found.length]
        assert json.loads(at) == found.values


def test_a_row_is_read_again_by_its_place(tmp_path: Path) -> None:
    path = write_rows(tmp_path, 5, ".json")
    with path.open("rb") as file:
        rows: list[JsonRow] = list(stream_rows(file))
        assert read_at(file.fileno(), rows[3].start, rows[3].length) == row(3, " please" * 20)


def test_a_spool_gives_back_what_it_was_given() -> None:
    spool, values = JsonSpool(), [{"a": "日本\n"}, 1.5, [], "\ud800", None]
    for number, value in enumerate(values):
        spool.append(value)
        assert spool[number] == spool[-1] == value
    assert list(spool) == values
    assert len(spool) == 5
    with pytest.raises(IndexError):
        spool[5]


@pytest.mark.parametrize(
    "text",
    ["", "[1, 2", "[1 2]", "[1,]", '{"train": [1]', '{"train": [1],}', "[1] 2", '["\\x"]', "[tru]"],
)
def test_broken_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(stream_rows(io.BytesIO(text.encode())))


def test_an_error_in_the_first_row_does_not_read_the_whole_file() -> None:
    file = io.BytesIO(b'[{"a" 1},' + b"1," * CHUNK + b"1]")
    with pytest.raises(ValueError, match="in the row at byte 1"):
        list(stream_rows(file))
    assert file.tell() <= 2 * CHUNK


# --- many rows ---


@pytest.mark.parametrize("form", [".json", ".jsonl"])
def test_twenty_thousand_rows_are_never_together_in_memory(tmp_path: Path, form: str) -> None:
    path = write_rows(tmp_path, MANY, form)
    assert path.stat().st_size > 7_000_000
    problems: list[str] = []
    held: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
    most = count = 0
    for found, *_ in read_entries(read_rows(path, None), str(path), "en", problems.append):
        held[count] = found
        most, count = max(most, len(held)), count + 1
    assert (count, most <= 2, problems) == (MANY, True, [])


def test_memory_of_statistics_and_of_an_index_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path, rows = write_rows(tmp_path, 2_000, ".json", 1_000), 2_000
    assert path.stat().st_size > 14_000_000
    tracemalloc.start()
    found = measure(str(path), StatsOptions(source=(str(path),))).summary()
    index = index_invig(path).samples
    size, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found["dialogues"], found["pictures"], len(index)) == (rows, rows // 2, rows)
    assert most < 7_000_000  # a chunk of 1 MB as bytes and as text, and one row
    assert size < 2_000_000


def test_statistics_hold_one_row_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Values(dict[str, Any]):
        """A row's values, which can be counted while they live."""

    alive = most = 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def reader(source: str, split: str | None) -> Iterator[Row]:
        nonlocal alive, most
        for number in range(3_000):
            values = Values(row(number))
            weakref.finalize(values, gone)
            alive, most = alive + 1, max(most, alive + 1)
            yield Row(values, RowInMemory({}, Path(), source), source, number)
            del values

    monkeypatch.setattr(dialogue_statistics, "read_rows", reader)
    found = measure("invig:rows", StatsOptions()).summary()
    assert (found["dialogues"], found["pictures"], found["box_area"]["n"]) == (3_000, 1_500, 3_000)
    assert most <= 2


# --- random access ---


@pytest.mark.parametrize("form", [".json", ".jsonl", ".jsonl.gz"])
def test_an_index_opens_a_picture_when_its_sample_is_read(tmp_path: Path, form: str) -> None:
    path = write_rows(tmp_path, 9, form)
    index = index_invig(path).samples
    assert isinstance(index, InvigIndex)
    with pytest.raises(InvigError, match=r"d4: no image '2.png'"):
        index[4]
    Image.fromarray(np.zeros((48, 64, 3), np.uint8)).save(tmp_path / "2.png")
    for samples in (index, pickle.loads(pickle.dumps(index))):  # noqa: S301 - our own, for workers
        sample = samples[4]
        assert (sample.id, sample.image_id, sample.exchanges) == (
            "d4",
            "p2",
            (("the röd one?", "yes"),),
        )
        assert sample.load().shape == (48, 64, 3)
    assert [len(index[2:5]), len(index.of_first_images(3)), len(index.about_image_of(4))] == [
        3,
        6,
        2,
    ]
    problems: list[str] = []
    assert [s.id for s in usable(index, problems.append)] == ["d4", "d5"]
    assert len(problems) == 7
    assert [s.id for s in load_invig(path).samples] == ["d4", "d5"]


def test_repeated_ids_are_told_apart_in_an_index(tmp_path: Path) -> None:
    rows = [row(0), row(1) | {"ref_list": row(0)["ref_list"]}, row(2)]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    Image.fromarray(np.zeros((48, 64, 3), np.uint8)).save(tmp_path / "0.png")
    read = index_invig(tmp_path)
    assert [read.samples[0].id, read.samples[1].id] == ["d0", "d0~2"]
    assert read.problems == ("d0: a second row with this id is called d0~2",)


def test_training_reads_pictures_and_rows_when_a_step_needs_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path, 400, ".json")
    train, held_out = load_splits(str(tmp_path), "en", None)
    assert len(train) + len(held_out) == 400
    assert 0 < len(held_out) < 40
    assert not set(train.image_hashes) & set(held_out.image_hashes)
    opened: list[tuple[int, ...]] = []

    def fit(image: Any) -> Any:
        opened.append(image.shape)
        return image

    for number in range(100, 200):
        Image.fromarray(np.zeros((48, 64, 3), np.uint8)).save(tmp_path / f"{number}.png")
    pictures: Callable[[int], Any] = DialoguePictures(train, fit, pairs=0, seed=0)
    for position in range(8):
        scene, queries = pictures(position)
        assert scene.image.shape == (48, 64, 3)
        assert len(queries) == 2
    assert len(opened) == 8
    assert "left out: InViG d" in capsys.readouterr().err

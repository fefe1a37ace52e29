"""`clue train wrapper` and `clue eval rec`, with a tiny language model of random weights."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_server import chat_server
from drawn_scenes import draw_scene
from PIL import Image
from safetensors.torch import load_file
from tiny_language_model import write_random_language_model
from tiny_model import write_random_model

from clue_ros.cli import main
from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.images import image_digest
from clue_ros.lab.data import referring_options
from clue_ros.lab.data.referring import ReferringItem, ReferringPicture, user_says
from clue_ros.lab.data.simulated_detector import DetectorErrors, SceneSource, SimulatedDetector
from clue_ros.lab.evaluation import rec
from clue_ros.lab.evaluation.rec import (
    DetectorAlone,
    Row,
    as_text,
    bucket,
    form_of,
    measure,
    published_rows,
)
from clue_ros.lab.evaluation.rec_dialogues import converse_all, dialogue_samples, summary_of
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.lab.training.parallel import start_processes
from clue_ros.lab.training.wrapper import (
    WrapperData,
    WrapperTrainingOptions,
    adapted_model,
    leave_out_long_prompts,
    write_adapter,
)
from clue_ros.lab.training.wrapper_data import (
    ListingSample,
    answer_logits,
    pack,
)
from clue_ros.wrapper import sources
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.language_model import (
    LanguageModel,
    WrapperSettings,
    converted_folder,
    load_settings,
)
from clue_ros.wrapper.sources import CallableSource

BOXES = tuple(Candidate(Box(10.0 * i, 5, 10.0 * i + 8, 20), "mug", 0.5) for i in range(3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_language_model(tmp_path_factory.mktemp("lm"))


@pytest.fixture
def scenes(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the drawn scenes of the tests in place of rendered ones."""
    from drawn_scenes import random_scenes

    def read(folder: Path, split: str, limit: int | None, world: str) -> list[object]:
        colors = ("red", "green", "blue")
        return list(random_scenes(4, seed=SPLITS.index(split), colors=colors))

    monkeypatch.setattr(referring_options, "read_scenes", read)
    return Path("drawn")


def test_training_goes_on_where_it_stopped_and_the_adapter_is_measured(
    folder: Path, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "adapter"
    command = ["train", "wrapper", "--language-model", str(folder), "--out", str(out),
               "--simulated", str(scenes), "--rank", "2", "--style", "centers",
               "--units", "percent", "--together", "4", "--per-picture", "4",
               "--device", "cpu", "--save-every", "2",
               "--steps", "4", "--batch", "1"]  # fmt: skip
    assert main(command) == 0
    state = (out / "run" / "state.safetensors").read_bytes()
    assert main(command) == 0  # it is at its end: nothing changes
    assert (out / "run" / "state.safetensors").read_bytes() == state
    assert main([*command, "--rank", "3"]) == 2
    assert "other settings" in capsys.readouterr().err
    assert load_settings(out).style == "centers"
    assert load_settings(out).candidates == ("simulated",)
    assert (out / "README.md").is_file()
    adapter = json.loads((out / "adapter_config.json").read_text())
    assert set(adapter["target_modules"]) >= {"q_proj", "down_proj", "lm_head"}
    measured = ["eval", "rec", "--simulated", str(scenes), "--language-model", str(out),
                "--per-picture", "3", "--orders", "1", "--device", "cpu", "--json",
                "--figures", str(tmp_path / "figures")]  # fmt: skip
    assert main(measured) == 0
    with Image.open(tmp_path / "figures" / "simulated.png") as figure:
        assert figure.width > 2 * figure.height
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["simulated"]
    assert set(rows) == {"detector alone", "rules", str(out)}
    assert 0 <= rows["rules"]["P@1"] <= rows["rules"]["best possible"] <= 1
    assert rows[str(out)]["orders"] > 0
    assert rows[str(out)]["trained with"] == ["simulated"]
    assert rows["rules"]["n dialogues"] == rows[str(out)]["n dialogues"] > 0
    assert main([*measured, "--candidates", "python:test_training_wrapper:listed"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["simulated"]
    assert f"{out}, transfer" in rows, "boxes of a source that training had not"


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="needs bitsandbytes: scripts/test")
def test_an_adapter_is_trained_and_measured_on_an_nf4_base_on_a_cpu(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, out = write_random_language_model(tmp_path / "lm", width=64), tmp_path / "adapter"
    shared = ["--simulated", str(scenes), "--language-model"]
    shared += [str(base), "--device", "cpu", "--quantization", "nf4", "--per-picture", "2"]
    command = ["train", "wrapper", *shared, "--out", str(out), "--rank", "2", "--steps", "2"]
    assert main([*command, "--style", "centers", "--batch", "1", "--dropout", "0"]) == 0
    weights = load_file(out / "adapter_model.safetensors")
    assert any(bool(weights[name].any()) for name in weights if "lora_B" in name), "it learned"
    shared[3] = str(out)
    assert main(["eval", "rec", *shared, "--limit", "3", "--dialogues", "0", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["simulated"]
    assert rows[str(out)]["n"] == 3


def test_a_server_is_measured_beside_the_others(
    scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server() as url:
        command = ["eval", "rec", "--simulated", str(scenes), "--language-model", url, "--json"]
        assert main([*command, "--limit", "3", "--dialogues", "0"]) == 0
    row = json.loads(capsys.readouterr().out)["simulated"][url]
    answers = row["answers"]
    assert answers["no answer"] == 0
    assert answers["point"] == 1 or answers["not asked"] == 1


def test_groups_stand_in_their_own_order() -> None:
    row = Row("rules", ("simulated",))
    values = (("over 20", "over 10", "4 or more"), ("up to 5 words", "2 to 3", "1"))
    for number, (length, count, alike) in enumerate(values):
        record: dict[str, Any] = {
            "clear": True,
            "asked": False,
            "right": number == 0,
            "possible": True,
        }
        record |= {"length": length, "listed": count, "alike": alike, "form": "relation"}
        row.records.append(record | dict.fromkeys(rec.SECONDS, 0.0))
    found = row.summary()
    assert list(found["by length"]) == ["up to 5 words", "over 20"]
    assert found["by number of candidates"] == {
        "2 to 3": {"P@1": 0.0, "n": 1}, "over 10": {"P@1": 1.0, "n": 1}
    }  # fmt: skip
    text = as_text({"simulated": {"rules": found}}, "test", markdown=False)
    assert "P@1 by number of candidates:" in text
    assert [line.split() for line in text.splitlines() if "2 to 3" in line] == [
        ["chooser", "2", "to", "3", "over", "10"]
    ]


def test_an_adapter_names_its_base_as_it_was_given(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")  # a fake file, whose converted copy is there
    shutil.copytree(folder, converted_folder(path))
    options = WrapperTrainingOptions(
        language_model=str(path), out=tmp_path / "adapter", rank=2, candidates=("json:a.json",)
    )
    processes = start_processes("cpu")
    write_adapter(adapted_model(options, processes), options, {})
    config = json.loads((options.out / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(path)
    assert load_settings(options.out).candidates == ("json:a.json",)
    assert LanguageModel.load(options.out, device="cpu").settings.candidates == ("json:a.json",)


def listed(image: Any, nouns: Any) -> list[Any]:
    """For python:test_training_wrapper:listed."""
    return list(BOXES)


class Clock:
    """A clock that stands, but for what the test's detectors and robots take."""

    now = 0.0

    def perf_counter(self) -> float:
        """See `time.perf_counter`."""
        return self.now


CLOCK = Clock()
ASKED: list[tuple[bytes, tuple[str, ...]]] = []


def counted(image: Any, nouns: Any) -> list[Any]:
    """For python:test_training_wrapper:counted: one box, labelled as the first noun."""
    ASKED.append((image_digest(image), tuple(nouns)))
    CLOCK.now += 5
    return [Candidate(Box(5, 5, 20, 20), nouns[0], 0.5)]


def test_sets_of_candidates_are_rows_of_one_table_and_each_detector_is_asked_once(
    folder: Path,
    scenes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (rec, sources):
        monkeypatch.setattr(module, "time", CLOCK)
    ASKED.clear()
    own, records = "python:test_training_wrapper:counted", tmp_path / "records.jsonl"
    command = ["eval", "rec", "--simulated", str(scenes), "--per-picture", "3", "--device", "cpu",
               "--language-model", str(folder), "--dialogues", "2", "--records", str(records),
               "--candidate-set", "simulated", "--candidate-set", own,
               "--candidate-set", f"simulated, {own}", "--json"]  # fmt: skip
    assert main(command) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["simulated"]
    sets = ("simulated", own, f"simulated + {own}")
    choosers = ("detector alone", "rules", str(folder))
    assert list(rows) == [f"{listed}: {chooser}" for listed in sets for chooser in choosers]
    for key, figures in rows.items():
        assert key == f"{' + '.join(figures['candidates'])}: {figures['chooser']}"
        assert bool(figures["answers"]) == (figures["chooser"] == str(folder))
        assert figures["seconds to look"] == (5 if own in figures["candidates"] else 0)
        assert figures["seconds to reply"] == 0
    both, one = (rows[f"{listed}: rules"]["best possible"] for listed in (sets[2], sets[0]))
    assert both >= one > rows[f"{own}: rules"]["best possible"]
    assert len(ASKED) == len(set(ASKED)) > 0, "asked again about the same picture and nouns"
    written = [json.loads(line) for line in records.read_text().splitlines()]
    assert {r["listed by"] for r in written} == set(sets)
    text = as_text({"simulated": rows}, "test", markdown=False)
    table = text.split("P@1 by")[0].splitlines()
    assert all(word in table[2] for word in ("candidates", "chooser", "no integer", "order"))
    assert len(table[3:-1]) == len(rows)


def test_clue_beside_a_detector_is_a_set_of_its_own_and_lists_nothing(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_random_model(tmp_path / "model")
    line = f"clue:{tmp_path / 'model'}"
    command = ["eval", "rec", "--simulated", str(scenes), "--per-picture", "2", "--limit", "4",
               "--device", "cpu", "--dialogues", "1", "--candidate-set", "simulated",
               "--candidate-set", f"simulated,{line}", "--json"]  # fmt: skip
    assert main(command) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["simulated"]
    alone, both = (rows[f"{key}: rules"] for key in ("simulated", f"simulated + {line}"))
    assert alone["n"] == both["n"]
    assert alone["best possible"] == both["best possible"]
    assert rec.row_name("tuned", ["simulated", line], ["simulated"]) == "tuned", "no transfer"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--candidate-set", "simulated", "--candidates", "simulated"], "name one of them"),
        (["--candidate-set", " , "], "--candidate-set is empty"),
        (["--candidate-set", "simulated,nobody:x"], "nobody:x"),
    ],
)
def test_a_set_of_candidates_that_cannot_be_measured_is_refused(
    options: list[str], words: str, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "rec", "--simulated", str(scenes), *options]) == 2
    assert words in capsys.readouterr().err


PAIR = [("block", "red", (10, 40, 30, 60)), ("block", "blue", (60, 40, 80, 60))]


def asked_about(*texts: str) -> list[ReferringItem]:
    """Requests that mean both blocks of a picture of two."""
    scene = draw_scene(96, PAIR)
    picture = ReferringPicture("two blocks", lambda: scene.image, scene)
    return [
        ReferringItem(picture, user_says(text), tuple(Box(*o.box) for o in scene.objects))
        for text in texts
    ]


def test_a_user_gets_the_block_in_mind_from_a_robot_that_asks() -> None:
    items = asked_about(*(f"{verb} the block" for verb in ("take", "get", "move", "pick up")))
    scene = items[0].picture.scene
    assert scene is not None
    exact = SimulatedDetector({"block": "block"}, DetectorErrors(0, 0, 0, 0, 0))
    wrapper = Wrapper([SceneSource(exact, [scene])])
    for grammar in (grammar_of("blocks"), grammar_of()):
        records = converse_all(wrapper, dialogue_samples(items, grammar, seed=2))
        assert [r["questions"] for r in records] == [1] * 4
        assert summary_of(records)["dialogues"] == 1
        assert len({tuple(r["truth"][0]) for r in records}) == 2, "either block is meant"
        alone = converse_all(DetectorAlone(wrapper), dialogue_samples(items, grammar, seed=2))
        assert 0 < summary_of(alone)["dialogues"] < 1, "one block is always pointed at"


class SlowEye(DetectorAlone):
    """Takes three seconds to look at a picture, and one to reply."""

    def look(self, image: Any) -> Any:
        """See `Grounder.look`."""
        CLOCK.now += 3
        return super().look(image)

    def reply(self, view: Any, dialogue: Any, *, force_grounding: bool = False) -> Any:
        """See `Grounder.reply`."""
        CLOCK.now += 1
        return super().reply(view, dialogue, force_grounding=force_grounding)


def test_the_look_of_a_robot_with_its_own_eyes_is_in_its_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rec, "time", CLOCK)
    finder = Wrapper([CallableSource(listed)])
    row = Row("its own")
    measure(row, SlowEye(finder), asked_about("the block", "a block"), finder)
    summary = row.summary()
    assert (summary["seconds to look"], summary["seconds to reply"]) == (3, 1)


def test_dialogues_are_about_ambiguous_requests_of_known_objects_once_each() -> None:
    (item,) = asked_about("take the block")
    later = ReferringItem(
        item.picture, user_says("take the block", "which?", "a block"), item.meant
    )
    clear = ReferringItem(item.picture, user_says("take the red block"), item.meant[:1])
    unknown = ReferringItem(ReferringPicture("p", item.picture.load), item.turns, item.meant)
    (sample,) = dialogue_samples([item, item, later, clear, unknown], grammar_of(), seed=0)
    assert [request.text for request in sample.interactive] == ["take the block"]
    assert dialogue_samples([item], grammar_of(), seed=0, limit=0) == []
    assert summary_of([])["dialogues"] is None


def test_dialogues_in_one_sequence_are_read_as_if_each_stood_alone(folder: Path) -> None:
    model = LanguageModel.load(folder, device="cpu", dtype="float32")
    model.settings = WrapperSettings("centers", "percent")
    queries = (("the left mug", (0,)), ("the mug", (0, 1, 2)), ("a banana", ()))
    together = pack(model, ListingSample(BOXES, (100, 50), queries))
    assert together is not None
    with torch.inference_mode():
        logits, targets = answer_logits(model, together)
        for number, query in enumerate(queries, start=1):
            alone = pack(model, ListingSample(BOXES, (100, 50), (query,)))
            assert alone is not None
            own, wanted = answer_logits(model, alone)
            mine = together.group[together.answers] == number
            assert torch.allclose(logits[mine], own, atol=1e-4)
            assert targets[mine].tolist() == wanted.tolist()


def test_a_prompt_that_is_too_long_is_left_out(folder: Path) -> None:
    model = LanguageModel.load(folder, device="cpu", dtype="float32")
    model.settings = WrapperSettings("centers", "percent")
    queries = (("the left mug", (0,)), ("mug " * 300, (1,)))
    packed = pack(model, ListingSample(BOXES, (100, 50), queries))
    assert packed is not None
    assert int(packed.group.max()) == 1
    assert pack(model, ListingSample(BOXES, (100, 50), queries[1:])) is None
    samples = [ListingSample(BOXES, (100, 50), part) for part in (queries, queries[1:])]
    long, data = samples[1], WrapperData(samples, samples[:1])
    leave_out_long_prompts(model, data)
    assert data.train == data.val == [ListingSample(BOXES, (100, 50), queries[:1])]
    assert [data.notes[f"dialogues {split}"]["left out"] for split in ("train", "val")] == [
        {"prompt over 1024 tokens": 2}, {"prompt over 1024 tokens": 1}
    ]  # fmt: skip
    with pytest.raises(ClueError, match="every prompt is longer"):
        leave_out_long_prompts(model, WrapperData([long], []))
    short = WrapperData(data.train, [])
    leave_out_long_prompts(model, short)
    assert short.notes == {}


def test_the_language_model_is_loaded_as_quantized_as_it_is_named(
    scenes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(name: str, **how: str) -> LanguageModel:
        raise ClueError(f"{name} as {how['quantization']}")

    monkeypatch.setattr(LanguageModel, "load", load)
    command = ["eval", "rec", "--simulated", str(scenes), "--limit", "1", "--dialogues", "0",
               "--language-model", "adapter"]  # fmt: skip
    assert main([*command, "--quantization", "nf4"]) == 2
    assert "adapter as nf4" in capsys.readouterr().err
    assert main(command) == 2
    assert "adapter as none" in capsys.readouterr().err


def test_episodes_are_no_data_to_measure_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "rec", "--episodes", str(tmp_path)]) == 2
    assert "--episodes, which are for training alone" in capsys.readouterr().err
    assert main(["eval", "rec"]) == 2
    assert "--episodes" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "row", "val", "test"),
    [
        ("RefCOCOg", "GD(B), fine-tuned, + Llama 3", 82.76, 82.61),
        ("ref-coco-g", "GD(B), fine-tuned, + CRG", None, 69.60),
        ("refcoco_plus", "GD(T) + Llama 3", 64.18, 63.82),
        ("hc-refloco", "Flo2, zero-shot", 48.04, 47.39),
    ],
)
def test_published_rows_are_found_by_a_folders_name(
    name: str, row: str, val: float | None, test: float
) -> None:
    assert published_rows(name)[row] == (val, test)
    assert published_rows("my-data") == {}


def test_length_and_form_of_a_request() -> None:
    assert bucket(3, ((5, "short"), (9, "long"))) == "short"
    assert form_of("the mug behind the plate") == "relation"

"""A language model behind a server of OpenAI's API: a real server in a process of its own."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest
from chat_server import chat_server

from clue_ros.cli import main
from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box, Dialogue, Grounding, Question
from clue_ros.errors import ModelError
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.prompt import AnswerKind
from clue_ros.wrapper.served_model import ServedModel, ServerError, answer_shares, read_address
from clue_ros.wrapper.sources import CallableSource

SIZE = (100, 60)
IMAGE = np.full((60, 100, 3), 128, np.uint8)
BOXES = ([10, 10, 30, 30], [60, 10, 80, 30])
MUGS = CallableSource(lambda image, nouns: [(box, "mug", 0.5) for box in BOXES], "yolo")
TWO = [Candidate(Box(*map(float, box)), "mug", 0.5, "yolo") for box in BOXES]


@pytest.mark.parametrize("mode", ["good", "sentence", "no system role"])
def test_the_answer_and_its_probability_are_the_servers(mode: str) -> None:
    with chat_server(mode) as url:
        model = ServedModel.load(url)
        choice = model.choose(model.read(TWO, SIZE), "the mug")
        assert model.name == f"{url}#tiny"
    assert (choice.answer.kind, choice.answer.indices) == (AnswerKind.POINT, (1,))
    # 0.5, 0.25, 0.15 and 0.04 of what is allowed: the boxes, "ask" and "none".
    assert choice.probabilities == pytest.approx((0.25 / 0.94, 0.5 / 0.94))
    assert (choice.ask, choice.none) == pytest.approx((0.15 / 0.94, 0.04 / 0.94))


def test_without_log_probabilities_an_answer_is_certain() -> None:
    with chat_server("without log-probabilities") as url:
        model = ServedModel.load(url)
        choice = model.choose(model.read(TWO, SIZE), "the mug")
    assert (choice.probabilities, choice.ask, choice.none) == ((0.0, 1.0), 0.0, 0.0)


def test_numbers_of_several_tokens_are_followed() -> None:
    positions = [("1", {"1": 0.6, "2": 0.4}), ("2", {"2": 0.5, "</s>": 0.25, "\n": 0.25})]
    shares = answer_shares(positions, 12)
    assert shares is not None
    assert sum(shares) == pytest.approx(1)
    assert shares[:2] == pytest.approx([0.3, 0.4])
    assert shares[11] == pytest.approx(0.3)
    assert answer_shares([("the", {"the": 1.0}), (" mug", {" mug": 1.0})], 3) is None


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("hangs", "has not answered within 1 s"),
        ("drips", "has not answered within 1 s"),
        ("status 500", "answers with status 500: .*out of memory"),
        ("no json", "answers with what is no JSON: '<html>'"),
        ("another form", "in another form than OpenAI's API"),
        ("no text", "answers without a text"),
        ("redirect", "answers with status 307"),
    ],
)
def test_a_slow_or_odd_server_is_named(mode: str, message: str) -> None:
    with chat_server(mode) as url:
        waits = "within" in message
        model = ServedModel.load(url, seconds=1) if waits else ServedModel.load(url)
        with pytest.raises(ServerError, match=message):
            model.choose(model.read(TWO, SIZE), "the mug")


def test_where_nobody_answers_the_line_says_what_to_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(ServerError, match=f"no server answers at {url} .*vllm serve"):
            ServedModel.load(url)


def test_one_of_several_models_is_named_behind_the_address() -> None:
    with chat_server("several models") as url:
        with pytest.raises(ModelError, match=r"several models \(tiny, large\): name one behind #"):
            ServedModel.load(url)
        with pytest.raises(ModelError, match="no model 'small': it has tiny, large"):
            ServedModel.load(f"{url}#small")
        assert ServedModel.load(f"{url}#large").name.endswith("#large")


def test_other_machines_are_asked_only_where_they_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for line in ("http://gpu-box:8000/v1", "https://api.example.com/v1", "http://10.0.0.7/v1"):
        with pytest.raises(ModelError, match=r"is not this machine.* set CLUE_SERVERS="):
            read_address(line)
    for line in ("http://localhost:1/v1", "http://[::1]:1/v1", "http://0.0.0.0:8000/v1"):
        assert read_address(line).url == line
    monkeypatch.setenv("CLUE_SERVERS", "gpu-box, 10.0.0.7")
    assert read_address("http://gpu-box:8000/v1").host == "gpu-box"
    assert read_address("http://10.0.0.7/v1").host == "10.0.0.7"
    for line in ("http://me:secret@localhost/v1", "http://", "http://localhost:99999/v1"):
        with pytest.raises(ModelError, match="is no address"):
            read_address(line)


def test_a_robot_points_by_a_server_and_by_rules_once_it_is_gone() -> None:
    said: list[str] = []
    with chat_server() as url:
        wrapper = Wrapper.load([MUGS], url, threshold=0.9)
        wrapper.faults.say = said.append
        view = wrapper.look(IMAGE)
        reply = wrapper.reply(view, Dialogue("the mug"))
        assert isinstance(reply, Grounding)
        assert reply.box.as_list() == BOXES[1]
    for text in ("the mug please", "the mug there"):
        assert isinstance(wrapper.reply(wrapper.look(IMAGE), Dialogue(text)), Question)
    assert wrapper.answer_counts == {"point": 1, "no answer": 2}
    (line,) = said
    assert line.startswith("language model: no server answers")
    assert line.endswith("The rules choose instead")


def test_a_server_is_checked_and_is_not_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server() as url:
        words = ["check", "--model", "wrapper", "--candidates", "base:household", "--device", "cpu"]
        assert main([*words, "--language-model", url, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["language_model"]
        assert (found["kind"], found["facts"]) == ("server", ["serves tiny"])
    assert main([*words, "--language-model", url]) == 2
    assert f"language model {url}: no server answers" in capsys.readouterr().out
    assert main([*words, "--language-model", "http://gpu-box/v1"]) == 2
    assert "gpu-box is not this machine" in capsys.readouterr().out


def test_what_a_person_types_is_no_token_of_the_servers_template() -> None:
    with chat_server() as url:
        said = ServedModel.load(url).say("the <|im_end|> mug [/INST] [1]\nand more")
    assert said == "the < |im_end|> mug [ /INST] [1]"

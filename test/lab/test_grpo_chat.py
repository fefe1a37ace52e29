"""Hi-GRPO of chat models: a dialogue as tokens, its log-probabilities, and TRL's trainer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_scenes import draw_scene, random_scenes
from safetensors.torch import load_file
from tiny_language_model import write_random_chat_model

from clue_ros.cli import main
from clue_ros.errors import ClueError
from clue_ros.lab.language.chat_agent import ChatModel
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator import shards
from clue_ros.lab.training.grpo_chat import ChatPolicy, whole
from clue_ros.lab.training.grpo_options import TRL, GrpoOptions
from clue_ros.lab.training.grpo_rewards import RewardOptions
from clue_ros.lab.training.grpo_rollouts import Prompt, Rollout, play

WORLD = "blocks"
AT = ((4, 4, 24, 24), (38, 38, 58, 58))
ALONE = RewardOptions(step_weight=0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_chat_model(tmp_path_factory.mktemp("chat"))


def asks(question: str) -> str:
    return f'<call>{{"name": "vlm_tool", "query": "{question}"}}</call>'


def points(box: tuple[float, ...]) -> str:
    """The form of a box in fractions."""
    return '{"bbox_2d": [' + ", ".join(str(round(1000 * v)) for v in box) + "]}"


class Scripted(ChatPolicy):
    """A chat model that says what it was told to; the model itself, where that is used up."""

    def __init__(self, chat: ChatModel, *replies: str) -> None:
        super().__init__(chat)
        self.replies = replies

    def sample(self, rollout: Rollout) -> tuple[list[int], list[float]]:
        """The reply of this turn."""
        if len(rollout.turns) >= len(self.replies):
            return super().sample(rollout)
        return spelled(self.chat, self.replies[len(rollout.turns)])


def spelled(chat: ChatModel, text: str) -> tuple[list[int], list[float]]:
    ids = [*chat.tokenizer(text, add_special_tokens=False)["input_ids"], chat.ends[0]]
    return ids, [-1.0] * len(ids)


def held(policy: ChatPolicy, **more: Any) -> Rollout:
    """A dialogue about a red and a blue block; the red one is meant."""
    scene = draw_scene(64, [("block", c, b) for c, b in zip(("red", "blue"), AT, strict=True)])
    prompt = Prompt(scene, "the block", (0, 1), 0, 3)
    groups = play(
        policy, grammar_of(WORLD), [prompt], np.zeros((1, 1, 1), np.float32), ALONE,
        each=1, max_questions=2, rng=None,
    )  # fmt: skip
    return groups[0][0]


def test_a_dialogue_is_one_completion_with_the_persons_words_between(model: Path) -> None:
    chat = ChatModel.load(str(model), "cpu")
    box = tuple(v / 64 for v in AT[0])
    first, last = asks("the red one or the blue one ?"), points(box)
    policy = Scripted(chat, first, last)
    found = held(policy)
    assert (found.right, found.questions, found.useless) == (True, 1, 0)
    assert found.reward > 3
    tokens = policy.tokens(found)
    answer = found.dialogue.turns[2].text
    text = chat.tokenizer.decode(tokens.completion)
    heard = f"<information>{answer}</information><|im_end|>\n<|im_start|>assistant"
    assert text == f"{first}<|im_end|>\n<|im_start|>user\n{heard}{last}<|im_end|>"
    (a, b), (c, d) = tokens.spans
    assert chat.tokenizer.decode(tokens.completion[a:b]) == first + "<|im_end|>"
    assert chat.tokenizer.decode(tokens.completion[c:d]) == last + "<|im_end|>"
    spread = tokens.spread([0.5, -2.0])
    assert [spread[a], spread[b], spread[c - 1], spread[c]] == [0.5, 0, 0, -2.0]
    assert "the block" in chat.tokenizer.decode(tokens.prompt)


def test_the_log_probabilities_of_a_reply_are_those_of_one_pass_over_the_dialogue(
    model: Path,
) -> None:
    chat = ChatModel.load(str(model), "cpu")
    chat.max_new_tokens = 12
    policy = Scripted(chat, asks("the red one or the blue one ?"))
    torch.manual_seed(0)
    found = held(policy)
    tokens = policy.tokens(found)
    first, end = tokens.spans[1]
    assert end - first == len(found.turns[1].said.log_probs) <= 12
    with torch.no_grad():
        logits = chat.model(**whole(policy.inputs(found.prompt), tokens.completion)).logits[0]
    logs = logits[len(tokens.prompt) - 1 : -1].log_softmax(-1)
    seen = logs.gather(1, torch.tensor(tokens.completion)[:, None])[first:end, 0]
    assert seen.numpy() == pytest.approx(np.array(found.turns[1].said.log_probs), abs=1e-4)


def test_what_has_no_form_earns_nothing_and_zeros_say_that_there_is_none(model: Path) -> None:
    chat = ChatModel.load(str(model), "cpu")
    assert held(Scripted(chat, "hm")).reward == 0
    scene = draw_scene(64, [("block", "red", AT[0])])
    absent = Prompt(scene, "the ball", (), None, 3)
    groups = play(
        Scripted(chat, points((0, 0, 0, 0))), grammar_of(WORLD), [absent],
        np.zeros((1, 1, 1), np.float32), ALONE, each=1, max_questions=2, rng=None,
    )  # fmt: skip
    assert groups[0][0].right


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., int]:
    """Runs `clue train grpo --backend trl`."""
    path = shards.shard_path(tmp_path / "scenes", "train", 0, 0, WORLD)
    shards.write_shard(path, random_scenes(4, 0, size=64), WORLD)

    def train(*more: object) -> int:
        words: list[object] = ["train", "grpo", "--backend", TRL, "--step-weight", 0]
        words += ["--tabletop", tmp_path / "scenes", "--world", WORLD, "--run", tmp_path / "run"]
        words += ["--prompts", 2, "--rollouts", 3, "--device", "cpu", "--out", tmp_path / "out"]
        words += ["--max-new-tokens", 8, "--log-every", 1, "--warmup", 0, *more]
        return main([str(word) for word in words])

    return train


def test_trl_trains_on_the_advantages_of_tokens(
    command: Callable[..., int], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pytest.importorskip("trl", reason="needs the extra trl")
    number = iter(range(1000))

    def sample(self: ChatPolicy, rollout: Rollout) -> tuple[list[int], list[float]]:
        """A box, right in two of three dialogues where the target is there."""
        target = rollout.prompt.target
        box = rollout.prompt.scene.objects[target or 0].box
        return spelled(self.chat, points(box if next(number) % 3 else (0.9, 0.9, 0.95, 0.95)))

    monkeypatch.setattr(ChatPolicy, "sample", sample)
    words = ("--model", model, "--clear-share", 1, "--absent-share", 0, "--lr", 0.01)
    assert command(*words, "--steps", 2) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["right_clear"] == pytest.approx(2 / 3, abs=0.01)
    weights = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert any(bool(w.any()) for name, w in weights.items() if "lora_B" in name)
    assert "backend trl" in (tmp_path / "out" / "README.md").read_text()
    assert isinstance(ChatModel.load(str(tmp_path / "out"), "cpu"), ChatModel)


def test_a_paligemma_is_not_trained_by_trl(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--model", "household") == 2
    assert "household is a PaliGemma" in capsys.readouterr().err


def test_trl_has_neither_steps_nor_updates() -> None:
    with pytest.raises(ClueError, match="no step level"):
        GrpoOptions(model="m", backend=TRL, rewards=RewardOptions())
    with pytest.raises(ClueError, match="neither --init nor --updates"):
        GrpoOptions(model="m", backend=TRL, rewards=ALONE, updates=2)
    with pytest.raises(ClueError, match="--out"):
        GrpoOptions(model="m", backend=TRL, rewards=ALONE)

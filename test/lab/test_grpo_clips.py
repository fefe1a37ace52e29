"""`clue train grpo --clips`: episodes about videos, their rewards, and the command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from drawn_scenes import Pixels, draw_scene
from grpo_helpers import killed_when_measured
from PIL import Image
from safetensors.torch import load_file
from tiny_model import write_random_model

from clue_ros.cli import main
from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.lab.data.export_clips import Wanted, write_clip
from clue_ros.lab.data.videos import write_rows
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.video_agent import MAX_TURNS
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.clips import Clip
from clue_ros.lab.training.grpo import GrpoTrainer
from clue_ros.lab.training.grpo_clips import Clips
from clue_ros.lab.training.grpo_options import GrpoOptions
from clue_ros.lab.training.grpo_rewards import RewardOptions, track_reward
from clue_ros.lab.training.grpo_rollouts import Agent, Prompt, Rollout, lessons, play
from clue_ros.lab.training.parallel import Processes
from clue_ros.model.adapters import Adapters
from clue_ros.model.backbone import IVG
from clue_ros.model.checkpoint import load_ivg_settings
from clue_ros.model.decoding import Generation, Vocabulary, read_prompts, reply_to
from clue_ros.model.location_tokens import encode_box
from clue_ros.model.lora import WEIGHTS_FILE
from clue_ros.model.prompts import encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchBackbone, load_model
from clue_ros.model.tracking import box_of

pytest.importorskip("pyarrow")

PLAIN = RewardOptions()
WORLD, SIDE, COUNT = "blocks", 120, 9
FOLDERS = {"train": "RVOS_Train", "val": "RVOS_Val"}
BLOCK, RED = Wanted("the block", (0, 1), False), Wanted("the red block", (0,), False)


def drawn_clip() -> Clip:
    """A red block that moves to the right above a blue one that does not."""
    scenes = []
    for n in range(COUNT):
        at: dict[str, Pixels] = {
            "red": (10 + 5 * n, 14, 46 + 5 * n, 44),
            "blue": (20, 72, 56, 104),
        }
        scenes.append(draw_scene(SIDE, [("block", color, box) for color, box in at.items()]))
    frames = np.stack([scene.image for scene in scenes])
    masks = np.stack([scene.instances for scene in scenes])
    return Clip(frames, masks, scenes[0].objects, "push", False, (0,), ())


def write_clips(folder: Path, wanted: Sequence[Wanted] = (BLOCK, RED)) -> Path:
    """A folder with a clip and its requests in each split."""
    for split, name in FOLDERS.items():
        rows = write_clip(
            folder / name, f"{split}-0", drawn_clip(), list(wanted), np.random.default_rng(1)
        )
        write_rows(folder / f"blocks-{split}.parquet", rows)
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips and a random model."""
    root = tmp_path_factory.mktemp("grpo-clips")
    write_clips(root / "clips")
    write_random_model(root / "model", vocabulary(WORLD))
    return root


@pytest.fixture
def prompts(root: Path) -> list[Prompt]:
    """The ambiguous request, then the clear one; both may mean the red block."""
    found = Clips(root / "clips", "train", 5).all()
    return [replace(prompt, target=0) for prompt in found]


def test_masks_over_time_earn_their_j_and_f() -> None:
    def squares(*corners: tuple[int, int]) -> npt.NDArray[np.bool_]:
        mask = np.zeros((100, 100), bool)
        for x, y in corners:
            mask[y : y + 20, x : x + 20] = True
        return mask

    one, two, none = squares((5, 5)), squares((5, 5), (60, 60)), squares()
    # Equal: J and F are 1. Half of what is true: 1/2 and 2/3. Lost: 0. Rightly nowhere: 1.
    found, truth = [one, one, none, none], [one, two, one, none]
    assert track_reward(found, truth) == pytest.approx((2 + 1 / 2 + 2 / 3 + 0 + 2) / 8)


def test_a_track_goes_to_both_ends_and_equal_boxes_share_one(prompts: list[Prompt]) -> None:
    footage: Any = prompts[1].footage
    truth = box_of(footage.truth(3))
    assert len(footage.frames) == 6
    assert footage.track(3, truth) > 0.9
    assert footage.track(3, truth.moved(0.4, -0.4)) == footage.track(3, truth)
    assert len(footage.tracks) == 1
    assert footage.track(3, box_of(footage.frames[3][..., 2] > 200)) < 0.1  # the blue one
    assert footage.track(0, truth) < 0.9  # it is not there yet
    assert len(footage.tracks) == 3


class Pointer:
    """Asks, or points in the first frame; then points at a thing in the key frame `frame`."""

    def __init__(self, prompt: Prompt, *words: str, frame: int, wrong: bool = False) -> None:
        self.prompt, self.texts, self.frame, self.wrong = prompt, words, frame, wrong

    def reply(
        self, features: Any, rollouts: Sequence[Rollout], contexts: Sequence[str], rng: Any
    ) -> list[Generation]:
        """The same reply in every dialogue."""
        asked = rollouts[0].questions
        if asked < len(self.texts):
            return [Generation((asked,), (1.0,), None, ends=(0.0, 1.0))] * len(rollouts)
        box = Box(0.0, 0.0, 0.1, 0.1)
        if rollouts[0].points:
            footage: Any = self.prompt.footage
            box = box_of(footage.truth(self.frame)).moved(0, 58.0 * self.wrong)
            for rollout in rollouts:
                rollout.frame = self.frame
        codes = encode_box(box, SIDE, SIDE)
        said = Generation((1, 2, 3, 4), (1.0,) * 4, codes, log_probs=(-1.0,) * 4)
        return [said] * len(rollouts)

    def words(self, said: Generation) -> str:
        """What was said."""
        return self.texts[said.tokens[0]]


def episode(prompt: Prompt, *words: str, weights: RewardOptions = PLAIN, **more: Any) -> Rollout:
    """An episode in which a pointer asks these questions; more: its settings."""
    agent: Any = Pointer(prompt, *words, **more)
    nothing = np.zeros((6, 1, 1), np.float32)
    groups = play(
        agent, grammar_of(WORLD), [prompt], nothing, weights, each=1, max_questions=3, rng=None
    )
    return groups[0][0]


def test_an_episode_earns_what_its_box_in_the_key_frame_is_worth(prompts: list[Prompt]) -> None:
    good = episode(prompts[0], "the red one or the blue one ?", frame=4)
    assert (good.acts, good.right, good.frame) == ("qbb", True, 4)
    ask, point, box = good.turns
    # Of the box in the first frame, which nobody uses, the decision to point alone is learned.
    assert (point.said.tokens, point.said.log_probs, point.told) == ((1,), (-1.0,), "")
    assert (ask.reward, box.frame, box.mode, point.mode) == (1.0, 4, "grounding", "free")
    assert "assistant: where is it ? user: the red " in box.told
    ending = good.ending
    assert ending is not None
    assert (ending.mask, ending.point, ending.excess) == (0.0, 1.0, 0)
    assert ending.track > 0.9
    assert good.reward == pytest.approx(1 + ending.box + 1 + ending.track)
    off = episode(
        prompts[0], "the red one or the blue one ?", frame=4,
        weights=RewardOptions(track_weight=0, box_weight=0),
    )  # fmt: skip
    assert off.reward == pytest.approx(2)


def test_a_wrong_box_and_a_guess_earn_no_track(prompts: list[Prompt]) -> None:
    wrong = episode(prompts[1], frame=0, wrong=True)
    assert (wrong.right, wrong.reward) == (False, 1.0)
    guess = episode(prompts[0], frame=2)
    assert guess.right
    assert guess.ending is not None
    assert (guess.reward, guess.ending.track) == (0, 0)
    assert not prompts[0].footage.tracks  # type: ignore[union-attr]  # it costs no time either
    vain = episode(prompts[1], "where is it ?", frame=2)
    once = episode(prompts[1], frame=2)
    assert vain.reward == pytest.approx(once.reward - 0.2)


class Gone:
    """Footage whose target has left every frame that the agent sees."""

    def __init__(self) -> None:
        self.frames, self.count = list(drawn_clip().frames[:6]), 6

    def truth(self, frame: int) -> npt.NDArray[np.bool_]:
        """Nothing."""
        return np.zeros((SIDE, SIDE), bool)

    def track(self, frame: int, box: Box) -> float:
        """Never asked for."""
        raise AssertionError


def test_a_target_that_has_left_the_key_frame_earns_its_box_nothing(prompts: list[Prompt]) -> None:
    left = replace(prompts[1], footage=Gone())
    agent: Any = Pointer(prompts[1], frame=5)
    groups = play(
        agent,
        grammar_of(WORLD), [left], np.zeros((6, 1, 1), np.float32), PLAIN,
        each=1, max_questions=3, rng=None,
    )  # fmt: skip
    rollout = groups[0][0]
    assert (rollout.acts, rollout.right, rollout.reward) == ("bb", False, 1.0)


@pytest.fixture
def trainer(root: Path) -> GrpoTrainer:
    """A trainer of a random model that has something to learn from."""
    model = load_model(root / "model")
    model.model.requires_grad_(False)
    adapters = Adapters(model)
    adapters.load(IVG, root / "model" / IVG)
    processor = load_processor(root / "model")
    words = Vocabulary(processor.tokenizer, model.text.vocab_size)
    settings = load_ivg_settings(root / "model" / IVG)
    agent = Agent(TorchBackbone(model, adapters), processor, words, settings)
    options = GrpoOptions(model="m", world=WORLD, rewards=PLAIN, clips=root / "clips")
    return GrpoTrainer(agent, WORLD, options, Processes())


def test_the_key_frame_has_the_surest_of_the_likeliest_boxes(
    trainer: GrpoTrainer, prompts: list[Prompt]
) -> None:
    agent = trainer.agent
    features = agent.look(prompts)
    assert len(features) == 12
    round_ = trainer.play(prompts, features, 4, np.random.default_rng(0))
    checked = 0
    for group in round_.groups:
        for rollout in group:
            last = rollout.turns[-1]
            if not rollout.points:
                continue
            asked = encode_prompts(agent.processor, agent.settings.instruction, [last.context])
            scores = []
            for n in range(6):
                seen = features[[rollout.image + n]]
                read = read_prompts(agent.backbone, seen, asked, IVG)
                (box,) = reply_to(agent.backbone, agent.vocabulary, read, "grounding")
                scores.append(box.score)
            assert scores[rollout.frame] == pytest.approx(max(scores), abs=1e-5)
            checked += 1
    assert checked


def test_the_loss_sees_the_log_probabilities_of_an_episode(
    trainer: GrpoTrainer, prompts: list[Prompt]
) -> None:
    round_ = trainer.play(prompts, trainer.agent.look(prompts), 8, np.random.default_rng(1))
    for group in round_.groups:
        for number, rollout in enumerate(group):
            rollout.reward = float(number)
    learned = lessons(round_.groups, PLAIN)
    modes = {(lesson.turn.mode, len(lesson.turn.said.log_probs)) for lesson in learned}
    assert {("free", 1), ("grounding", 4)} <= modes
    assert len({lesson.image for lesson in learned}) > 2
    found = trainer.log_probs(round_.features, learned, [one.turn.context for one in learned])
    sampled = np.concatenate([one.turn.said.log_probs for one in learned])
    assert found.detach().numpy() == pytest.approx(sampled, abs=2e-4)


@pytest.fixture
def command(root: Path, tmp_path: Path) -> Callable[..., int]:
    """Runs `clue train grpo` with clips; returns the exit status."""

    def train(*more: object, out: str = "out", run: str = "run") -> int:
        words: list[object] = ["train", "grpo", "--clips", root / "clips", "--world", WORLD]
        words += ["--model", root / "model", "--run", tmp_path / run, "--out", tmp_path / out]
        words += ["--log-every", 1, "--prompts", 2, "--rollouts", 4, *more]
        return main([str(word) for word in words])

    return train


def test_the_command_learns_about_clips_and_says_so(
    command: Callable[..., int], tmp_path: Path
) -> None:
    assert command("--steps", 2) == 0
    rows = [json.loads(line) for line in (tmp_path / "run/grpo/log.jsonl").read_text().splitlines()]
    trained = [row for row in rows if "loss" in row]
    assert [row["step"] for row in trained] == [1, 2]
    assert {"reward", "parses", "box", "point", "track", "later"} <= set(trained[-1])
    assert "mask" not in trained[-1]
    assert any("val_track" in row for row in rows)
    card = (tmp_path / "out/README.md").read_text()
    assert "Held-out clips of `blocks`" in card
    assert "| track weight | 1.0 |" in card


def test_a_killed_run_about_clips_goes_on_as_if_it_had_not_been(
    command: Callable[..., int], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--steps", 4, "--save-every", 2, "--lr", 0.01)
    assert command(*words) == 0
    # Before the first step, after the second and after the last one.
    with killed_when_measured(monkeypatch, 3):
        command(*words, out="again", run="second")
    assert command(*words, out="again", run="second") == 0
    first, straight, again = (
        load_file(folder / WEIGHTS_FILE)
        for folder in (root / "model" / IVG, tmp_path / "out", tmp_path / "again")
    )
    assert all(torch.equal(again[name], weight) for name, weight in straight.items())
    assert any(not torch.equal(first[name], weight) for name, weight in straight.items())


def test_clips_that_cannot_be_used_are_named_and_counted(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clips, names = tmp_path / "clips", list[str]()
    rows = list[dict[str, Any]]()
    for name in ("good", "unseen", "sizes", "unknown"):
        place = clips / FOLDERS["train"]
        rows += write_clip(place, name, drawn_clip(), [RED], np.random.default_rng(0))
        names.append(name)
    write_rows(clips / "blocks-train.parquet", rows)
    for path in (place / "Annotations/unseen/1").iterdir():
        Image.new("L", (SIDE, SIDE)).save(path)
    Image.new("RGB", (SIDE, 90)).save(place / "JPEGImages/sizes/00003.jpg")
    shutil.rmtree(place / "description_oid/unknown")
    assert [r.target for r in Clips(clips, "train", 8).requests] == ["good/1"]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "note: left out: unseen/unseen_0: the object is in no frame",
        "note: left out: sizes/sizes_0: its frames and masks are of several sizes,"
        " [(90, 120), (120, 120)]",
        "note: left out: unknown/unknown_0: no description says which objects it can mean",
        f"note: 3 requests of {clips} left out",
    ]
    shutil.rmtree(place / "JPEGImages/good")
    with pytest.raises(ClueError, match="can be used: make clips with `clue data clips"):
        Clips(clips, "train", 8)
    assert "4 requests" in capsys.readouterr().err.splitlines()[-1]


def test_clips_are_refused_where_they_cannot_be_shown(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert command("--clips", empty) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .splitlines()[-1]
        .endswith(f"{empty} has no .parquet file with train in its name")
    )
    assert command("--backend", "trl", "--step-weight", 0) == 2
    assert "--backend trl shows one picture, no clip" in capsys.readouterr().err


def test_an_episode_about_a_clip_keeps_two_actions_for_the_key_frame_and_the_box() -> None:
    asks = GrpoOptions(model="m", rewards=PLAIN, max_turns=9)
    assert asks.most_questions == 9
    assert replace(asks, clips=Path("clips")).most_questions == MAX_TURNS - 2

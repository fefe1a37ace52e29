"""Hi-GRPO: rewards and advantages by hand, the loss's log-probabilities, and `clue train grpo`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_scenes import draw_scene, random_scenes
from grpo_helpers import killed_when_measured
from safetensors.torch import load_file
from tiny_model import SIZES, write_random_model

from clue_ros.cli import main
from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.simulated_user import question_axes
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.grpo import GrpoTrainer
from clue_ros.lab.training.grpo_options import GrpoOptions
from clue_ros.lab.training.grpo_rewards import (
    Ending,
    RewardOptions,
    box_reward,
    clipped_losses,
    fading,
    fewest_questions,
    group_advantages,
    information,
    normalised,
    point_reward,
    returns,
    step_advantages,
    trajectory_reward,
    turn_reward,
    varies,
)
from clue_ros.lab.training.grpo_rollouts import (
    Agent,
    Lesson,
    Prompt,
    Rollout,
    Turn,
    draw_prompts,
    lessons,
    play,
)
from clue_ros.lab.training.parallel import Processes
from clue_ros.model.adapters import Adapters
from clue_ros.model.backbone import IVG
from clue_ros.model.checkpoint import IvgSettings, load_checkpoint
from clue_ros.model.decoding import Generation, Vocabulary, allowed_tokens, log_softmax
from clue_ros.model.location_tokens import encode_box
from clue_ros.model.lora import WEIGHTS_FILE
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import TorchBackbone, load_model

PLAIN = RewardOptions()
WORLD = "blocks"


def test_a_trajectory_earns_its_terms_less_the_questions_too_many() -> None:
    good = Ending(True, box=0.8, point=1.0, mask=0.6, excess=2)
    assert trajectory_reward(good, PLAIN) == pytest.approx(1 + 0.8 + 1 + 0.6 - 0.4)
    assert trajectory_reward(Ending(True, 0.8, 1.0, 0.6, guessed=True), PLAIN) == 0
    assert trajectory_reward(Ending(False), PLAIN) == 0
    off = RewardOptions(
        format_weight=0, box_weight=2, point_weight=0, mask_weight=0, excess_weight=0
    )
    assert trajectory_reward(good, off) == pytest.approx(1.6)


def test_a_neighbours_box_earns_nothing() -> None:
    assert box_reward(Box(0, 0, 10, 10), Box(0, 0, 10, 8)) == pytest.approx(0.8)
    assert box_reward(Box(0, 0, 10, 10), Box(0, 0, 10, 4)) == 0  # an IoU of 0.4


def test_a_point_counts_inside_the_mask_alone() -> None:
    mask = np.zeros((4, 6), bool)
    mask[1, 5] = True
    points = [(5.9, 1.2), (1.2, 5.9), (5.9, 0.2), (-1.0, 1.0)]
    assert [point_reward(p, mask) for p in points] == [1, 0, 0, 0]


def test_the_fewest_questions_are_one_where_a_property_names_all() -> None:
    at = [(4, 4, 14, 14), (30, 4, 40, 14), (4, 40, 14, 50), (40, 40, 50, 50), (22, 22, 30, 30)]
    colors = draw_scene(64, [("block", c, b) for c, b in zip(("red", "blue"), at, strict=False)])
    alike = draw_scene(64, [("block", "red", box) for box in at])
    assert fewest_questions((0,), alike.objects) == 0
    assert fewest_questions((0, 1), colors.objects) == 1
    assert fewest_questions((0, 1, 2), alike.objects) == 1  # by place: left, middle, right
    assert fewest_questions((0, 1, 2, 3), alike.objects) == 2  # ceil(log2 4)
    assert fewest_questions((0, 1, 2, 3, 4), alike.objects) == 3


def test_the_information_of_a_perfect_dialogue_sums_to_one() -> None:
    assert information(4, 2, 4) + information(2, 1, 4) == pytest.approx(1)
    assert information(3, 1, 6) == pytest.approx(math.log(3) / math.log(6))
    assert information(3, 3, 3) == 0
    assert information(1, 1, 1) == 0  # a clear request


def test_a_turn_pays_for_asking_again_and_for_two_properties() -> None:
    assert turn_reward(0.5, repeats=False, axes=1, weights=PLAIN) == 0.5
    assert turn_reward(0.5, repeats=True, axes=2, weights=PLAIN) == pytest.approx(-0.25)
    free = RewardOptions(repeat_weight=0, axes_weight=0)
    assert turn_reward(0.5, repeats=True, axes=2, weights=free) == 0.5
    assert question_axes("the small red one or the big blue one ?") == ("color", "size")
    assert question_axes("the mug or the bowl ?") == ("kind",)


def test_returns_discount_later_turns() -> None:
    assert returns([1.0, 0.5, 0.0], 0.9) == pytest.approx([1.45, 0.5, 0.0])
    assert returns([], 0.9) == []


def test_advantages_are_normalised_within_a_group() -> None:
    assert normalised([1, 3], 0) == pytest.approx([-1, 1], abs=1e-5)
    assert normalised([1, 3], 1) == pytest.approx([-0.5, 0.5])  # of a deviation of 1
    assert normalised([2, 2], 0) == pytest.approx([0, 0])
    assert (varies([1, 1]), varies([1, 2])) == (False, True)
    # Three dialogues: one asks well and points, one points, one asks in vain and points.
    rewards, turns = [3.0, 0.0, 3.0], [[1.0, 0.0], [0.0], [0.0, 0.0]]
    deviation = math.sqrt(2)  # of 3, 0, 3
    alone = group_advantages(rewards, turns, RewardOptions(turn_weight=0, epsilon=0))
    assert alone[0] == pytest.approx([1 / deviation] * 2, abs=1e-5)
    assert alone[1] == pytest.approx([-2 / deviation], abs=1e-5)
    both = group_advantages(rewards, turns, RewardOptions(epsilon=0))
    # First turns earn 1, 0, 0: of deviation sqrt(2)/3. Second turns all earn 0.
    first = 0.5 * (2 / 3) / (deviation / 3)
    assert both[0] == pytest.approx([1 / deviation + first, 1 / deviation], abs=1e-5)
    assert both[2][0] == pytest.approx(1 / deviation - first / 2, abs=1e-5)


def test_a_step_is_worth_what_being_told_adds() -> None:
    told, own = torch.tensor([-1.0, -2.0, -0.1]), torch.tensor([-1.1, -0.5, -3.0])
    assert step_advantages(told, own, 0.2).tolist() == pytest.approx([0.1, -0.2, 0.2])
    assert [fading(0.5, step, 101) for step in (0, 50, 100)] == pytest.approx([0.5, 0.25, 0])


def test_the_loss_is_clipped_on_both_sides() -> None:
    ratios = torch.tensor([1.0, 1.5, 0.5, 1.5, 0.5])
    advantages = torch.tensor([2.0, 1.0, 1.0, -1.0, -1.0])
    losses, clipped = clipped_losses(ratios.log(), torch.zeros(5), advantages, 0.2, 0.28)
    assert losses.tolist() == pytest.approx([-2.0, -1.28, -0.5, 1.5, 0.8])
    assert clipped.tolist() == [0, 1, 0, 0, 1]


AT = ((4, 4, 24, 24), (38, 38, 58, 58))


class Speaker:
    """An agent that gives these replies in turn: words, or the number of an object."""

    def __init__(self, scene: Scene, *replies: str | int) -> None:
        self.scene, self.replies, self.said = scene, replies, dict[Generation, str]()

    def reply(
        self, features: Any, rollouts: Sequence[Rollout], contexts: Sequence[str], rng: Any
    ) -> list[Generation]:
        """The same reply in every dialogue."""
        what = self.replies[len(rollouts[0].turns)]
        if isinstance(what, int):
            codes = encode_box(Box(*self.scene.objects[what].box), 1, 1)
            return [Generation((1, 2, 3, 4), (1.0,) * 4, codes)] * len(rollouts)
        found = Generation((len(self.said),), (1.0,), None, ends=(0.0, 1.0))
        self.said[found] = what
        return [found] * len(rollouts)

    def words(self, said: Generation) -> str:
        """What was said."""
        return self.said[said]


def told(want: str, *replies: str | int) -> Rollout:
    """A dialogue about a red and a blue block: "the block", "the red block" or "the ball"."""
    scene = draw_scene(64, [("block", c, b) for c, b in zip(("red", "blue"), AT, strict=True)])
    prompt = {
        "ambiguous": Prompt(scene, "the block", (0, 1), 0, 3),
        "clear": Prompt(scene, "the red block", (0,), 0, 3),
        "absent": Prompt(scene, "the ball", (), None, 3),
    }[want]
    speaker: Any = Speaker(scene, *replies)
    groups = play(
        speaker, grammar_of(WORLD), [prompt], np.zeros((1, 1, 1), np.float32), PLAIN,
        each=1, max_questions=2, rng=None,
    )  # fmt: skip
    return groups[0][0]


def test_a_dialogue_earns_what_its_person_knows() -> None:
    which = "the red one or the blue one ?"
    good = told("ambiguous", which, 0)
    assert (good.right, good.acts) == (True, "qb")
    assert [turn.reward for turn in good.turns] == pytest.approx([1.0, 0.0])
    assert good.reward > 3.5  # of 4: the box is rounded, the mask is GrabCut's
    assert good.turns[1].told.endswith("assistant: where is it ? user: the red one")
    assert told("ambiguous", which, 1).reward == pytest.approx(1.0)  # it parses, and no more
    guess = told("ambiguous", 0)
    assert guess.right
    assert guess.reward == 0


def test_questions_that_help_nobody_earn_nothing() -> None:
    vain = told("ambiguous", "is it warm ?", 0)  # the person tells more than was asked
    assert vain.useless == 1
    assert vain.turns[0].reward == 0
    again = told("clear", "where is it ?", "where is it ?", 0)
    assert again.useless == again.questions == 2
    assert again.turns[1].reward == pytest.approx(-0.5)
    assert again.reward == pytest.approx(told("clear", 0).reward - 2 * 0.2)
    endless = told("ambiguous", *["the red one or the blue one ?"] * 3)  # a third one ends it
    assert (endless.reward, endless.right, endless.questions) == (0, False, 3)


def test_what_is_not_there_is_said_not_to_be() -> None:
    found = told("absent", "i don ' t see a ball .")
    assert (found.right, found.reward) == (True, 4)
    assert (told("absent", 0).reward, told("absent", "which color ?").reward) == (0, 0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("grpo")
    for split, count, seed in (("train", 4, 0), ("val", 2, 1), ("test", 3, 2)):
        path = shards.shard_path(root / "scenes", split, 0, 0, WORLD)
        shards.write_shard(path, random_scenes(count, seed, size=SIZES["image_size"]), WORLD)
    write_random_model(root / "model", vocabulary(WORLD))
    return root


@pytest.fixture
def trainer(root: Path) -> GrpoTrainer:
    """A trainer of a random model that has something to learn from."""
    model = load_model(root / "model")
    model.model.requires_grad_(False)
    adapters = Adapters(model)
    adapters.load(IVG, root / "model" / IVG)
    processor = load_processor(root / "model")
    words = Vocabulary(processor.tokenizer, model.text.vocab_size)
    settings = IvgSettings(max_new_tokens=8, max_boxes=2)
    agent = Agent(TorchBackbone(model, adapters), processor, words, settings)
    options = GrpoOptions(model=str(root / "model"), world=WORLD, rewards=PLAIN, accumulate=2)
    return GrpoTrainer(agent, WORLD, options, Processes())


def played(trainer: GrpoTrainer, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    prompts = draw_prompts(random_scenes(4, 0), grammar_of(WORLD), 3, rng, clear=0.3, absent=0.2)
    return trainer.play(prompts, trainer.agent.look(prompts), 6, rng)


def test_the_loss_sees_the_log_probabilities_of_generation(trainer: GrpoTrainer) -> None:
    """Several pictures, contexts of other lengths, shared ones; words, boxes, boxes that end."""
    agent, rng = trainer.agent, np.random.default_rng(0)
    scenes = random_scenes(2, 0)
    prompts = draw_prompts(scenes, trainer.grammar, 2, rng, clear=0.5, absent=0)
    round_ = trainer.play(prompts, agent.look(prompts), 6, rng)
    rollouts = [rollout for group in round_.groups for rollout in group]
    texts = ["the block", "pick up the red ball assistant: the left one ? user: no , the other one"]
    contexts = [texts[i % 2] for i in range(len(rollouts))]
    said = agent.reply(round_.features, rollouts, contexts, rng)
    learned = [
        Lesson(rollout.image, Turn(context, reply), 1.0)
        for rollout, context, reply in zip(rollouts, contexts, said, strict=True)
    ]
    assert {reply.is_grounding for reply in said} == {True, False}
    assert any(agent.sampled(reply) != reply.tokens for reply in said)
    found = trainer.log_probs(round_.features, learned, contexts)
    sampled = np.concatenate([reply.log_probs for reply in said])
    assert found.detach().numpy() == pytest.approx(sampled, abs=2e-4)
    # It is a distribution over what may be said, not over the vocabulary: fewer may follow a box.
    ends = [reply for reply in said if len(reply.tokens) == 9 or len(reply.log_probs) == 5]
    assert ends
    assert all(math.exp(reply.log_probs[4]) > 0.05 for reply in ends)


def test_the_first_step_on_its_own_dialogues_has_the_policys_gradient(
    trainer: GrpoTrainer,
) -> None:
    round_ = played(trainer)
    for group in round_.groups:
        for number, rollout in enumerate(group):
            rollout.reward = float(number)
    parts = trainer.step(0, round_)
    sums: dict[str, float] = {}
    for losses in parts.losses(dict(parts.counts)):
        part = losses()
        torch.autograd.backward(part["loss"])
        for name, value in part.items():
            sums[name] = sums.get(name, 0.0) + float(value.detach())
    assert (sums["clipped"], sums["groups"]) == (0, 1)  # every ratio is 1, every group counts
    assert 0 < sums["differ"] <= 1  # a random model does one thing here and another there
    gradients = [p.grad for p in trainer.parameters if p.grad is not None]
    assert gradients
    assert any(g.abs().max() > 0 for g in gradients)


def test_groups_that_agree_teach_nothing(trainer: GrpoTrainer) -> None:
    round_ = played(trainer)
    for group in round_.groups:
        for rollout in group:
            rollout.reward = 1.0
    assert lessons(round_.groups, PLAIN) == []
    parts = trainer.step(0, round_)
    found = [losses() for losses in parts.losses(dict(parts.counts))]
    assert [float(part["loss"].detach()) for part in found] == [0.0]


def test_what_may_be_sampled_is_what_greedy_decoding_may_say(random_model: Path) -> None:
    words = load_checkpoint(random_model).vocabulary
    first = words.first_location
    box = [first + 5, first + 7, first + 9, first + 1023]
    masks = allowed_tokens(words, "free", [*box, words.eos], max_boxes=2)
    assert masks.shape == (5, len(words.words))
    assert masks[0, first]
    assert masks[0][words.opening].all()  # it may still ask
    assert not masks[2, : first + 6].any()
    assert masks[2, first + 6]  # below the upper side
    assert np.flatnonzero(masks[4]).tolist() == sorted({words.eos, words.between or 0})
    logs = log_softmax(np.where(masks[4], 0.0, -np.inf))
    assert np.exp(logs).sum() == pytest.approx(1)


@pytest.fixture
def command(root: Path, tmp_path: Path) -> Callable[..., Path]:
    """Runs `clue train grpo`; returns the adapter's folder."""

    def train(*more: object, out: str = "out", run: str = "run") -> Path:
        words: list[object] = ["train", "grpo", "--tabletop", root / "scenes", "--world", WORLD]
        words += ["--model", root / "model", "--run", tmp_path / run, "--out", tmp_path / out]
        words += ["--prompts", 2, "--rollouts", 3, "--device", "cpu", "--save-every", 2]
        words += ["--held-out", 2, "--log-every", 1, *more]
        assert main([str(word) for word in words]) == 0
        return tmp_path / out

    return train


def test_the_command_trains_and_writes_a_card(
    command: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = command("--steps", 2)
    rows = [json.loads(line) for line in (tmp_path / "run/grpo/log.jsonl").read_text().splitlines()]
    trained = [row for row in rows if "loss" in row]
    assert [row["step"] for row in trained] == [1, 2]
    assert {"reward", "parses", "box", "point", "mask", "excess", "guessed"} <= set(trained[-1])
    assert any("val_right" in row for row in rows)
    assert "reinforcement" in (out / "README.md").read_text()
    notes = json.loads((out / "ivg.json").read_text())
    assert notes["max_new_tokens"] == 12
    assert notes["training"]["turn_weight"] == 0.5
    assert json.loads(capsys.readouterr().out)["out"] == str(out)


def test_a_killed_run_goes_on_as_if_it_had_not_been(
    command: Callable[..., Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--steps", 4, "--updates", 2, "--clear-share", 1, "--absent-share", 0, "--lr", 0.01)
    whole = command(*words)
    # Before the first step, after the second and after the last one.
    with killed_when_measured(monkeypatch, 3):
        command(*words, out="again", run="second")
    again = load_file(command(*words, out="again", run="second") / WEIGHTS_FILE)
    straight, first = (
        load_file(whole / WEIGHTS_FILE),
        load_file(root / "model" / IVG / WEIGHTS_FILE),
    )
    assert all(torch.equal(again[name], weight) for name, weight in straight.items())
    assert any(not torch.equal(first[name], weight) for name, weight in straight.items())


def test_adapter_b_is_measured_alone(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "asking", "--data", str(root / "scenes"), "--world", WORLD, "--json"]
    words += ["--model", str(root / "model"), "--device", "cpu", "--max-turns", "2"]
    rows = tmp_path / "rows.jsonl"
    found = []
    for more in (["--records", str(rows)], ["--ivg", str(root / "model" / IVG)], ["--never-ask"]):
        assert main([*words, *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    made = [one.pop("made_by") for one in found]
    assert made[0]["model"] == str(root / "model")
    assert made[0]["sha256"] == made[1]["sha256"]
    assert found[0] == found[1]
    records = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(records) == sum(found[0]["n"].values()) > 0
    assert {"kind", "right", "questions", "useless", "dialogue"} <= set(records[0])
    never = found[2]
    assert (never["questions"], never["unasked"], never["asked_clear"]) == (0, 1, 0)
    assert never["right_absent"] == 0  # it cannot say so
    assert main([*words, "--ivg", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ClueError, match="--steps 100 is no multiple of --updates 3"):
        GrpoOptions(model="m", rewards=PLAIN, updates=3)
    with pytest.raises(ClueError, match="shares of 1 together"):
        GrpoOptions(model="m", rewards=PLAIN, clear_share=0.8, absent_share=0.3)

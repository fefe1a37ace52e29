"""`clue train grpo`: adapter B learns by reinforcement to ask (Hi-GRPO of IC-Seg).

Each step holds `--rollouts` sampled dialogues from each of `--prompts` requests with a simulated
person (`grpo_rollouts`; about clips: `grpo_clips`), scores them at three levels (`grpo_rewards`),
and takes a step on the clipped loss, a mean over the tokens of all replies. Groups whose rewards do
not differ teach nothing and are left out. There is no penalty on the distance from the adapter that
it began with.

The log-probabilities of the loss are those of generation: the same pass over a prefix and a cache,
without dropout, normalised over the tokens that the constrained decoding allows. (A trainer for
chat models would mark PaliGemma's replies as prefix, which is read both ways.) One process or
several with `accelerate launch`; `--prompts` is the whole step's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig

from clue_ros.errors import ClueError, ModelError
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.options import add_options, read_options
from clue_ros.lab.simulator.shards import read_scenes
from clue_ros.lab.training.adapters import frozen_base
from clue_ros.lab.training.datasets import SIMULATED, training_scenes
from clue_ros.lab.training.grpo_clips import Clips
from clue_ros.lab.training.grpo_options import GRPO, TRL, GrpoOptions
from clue_ros.lab.training.grpo_rewards import (
    clipped_losses,
    fading,
    step_advantages,
    varies,
)
from clue_ros.lab.training.grpo_rollouts import (
    KINDS,
    Agent,
    Lesson,
    Prompt,
    Rollout,
    draw_prompts,
    figures,
    lessons,
    play,
    prompts_about,
)
from clue_ros.lab.training.loop import Group, PartLosses, Parts, train
from clue_ros.lab.training.parallel import Processes, start_processes
from clue_ros.model.adapters import Adapters
from clue_ros.model.backbone import IVG, Array
from clue_ros.model.checkpoint import existing_folder, load_ivg_settings, save_ivg_settings
from clue_ros.model.decoding import Vocabulary
from clue_ros.model.loading import (
    find_base,
    find_model,
    fingerprint,
    first_line,
    local_or_hub,
    name_and_revision,
)
from clue_ros.model.prompts import encode_prompts
from clue_ros.model.torch_backbone import TorchBackbone
from clue_ros.requirements import missing

HELD_OUT_BATCH = 16  # prompts whose dialogues run together


@dataclass(frozen=True)
class Round:
    """The dialogues of a round on this process. features: (n, N, D), of the prompts' pictures."""

    features: Array
    groups: list[list[Rollout]]


class GrpoTrainer:
    """Steps of adapter B on this process's share of the requests."""

    def __init__(
        self, agent: Agent, world: str, options: GrpoOptions, processes: Processes
    ) -> None:
        self.agent, self.options, self.processes = agent, options, processes
        self.grammar = grammar_of(world)
        self._last: tuple[int, Round] | None = None
        self._held_out: dict[int, Array] = {}  # features of held-out pictures, by their batch

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The trained parameters: the adapter's weights."""
        return self.agent.backbone.peft.parameters(IVG)

    def step(self, number: int, round_: Round) -> Parts:
        """The loss of this process's part of a round, at a step counted from 0."""
        options = self.options
        groups = round_.groups[number % options.updates :: options.updates]
        learned = lessons(groups, options.rewards)
        rollouts = [rollout for group in groups for rollout in group]
        seen = figures(rollouts)
        tokens = sum(len(self.agent.sampled(lesson.turn.said)) for lesson in learned)
        counts = {name: float(n) for name, (_, n) in seen.items()}
        counts |= {"clipped": float(tokens), "groups": float(len(groups))}

        def losses(totals: Mapping[str, float]) -> Iterator[PartLosses]:
            kept = sum(varies([r.reward for r in group]) for group in groups)
            means = {name: total / max(1, totals[name]) for name, (total, _) in seen.items()}
            means["groups"] = kept / max(1, totals["groups"])
            differ = sum(len({rollout.acts for rollout in group}) > 1 for group in groups)
            means["differ"] = differ / max(1, totals["groups"])
            yield partial(self._nothing, means)
            for part in self._parts(learned):
                yield partial(self._losses, round_.features, part, number, totals["clipped"])

        self.agent.backbone.peft.use(IVG, train=True)
        return Parts(counts, losses)

    def _nothing(self, means: Mapping[str, float]) -> dict[str, Tensor]:
        """The figures, with a loss without effect: every group may have been left out."""
        zero = torch.stack([p.sum() for p in self.parameters]).sum() * 0
        return {"loss": zero, **{name: torch.tensor(value) for name, value in means.items()}}

    def _parts(self, learned: Sequence[Lesson]) -> list[list[Lesson]]:
        """The replies in `--accumulate` parts; those to one context stay together."""
        by_context: dict[tuple[int, str], list[Lesson]] = {}
        for lesson in learned:
            by_context.setdefault((lesson.image, lesson.turn.context), []).append(lesson)
        parts: list[list[Lesson]] = [[] for _ in range(self.options.accumulate)]
        for number, same in enumerate(by_context.values()):
            parts[number % len(parts)] += same
        return [part for part in parts if part]

    def _losses(
        self, features: Array, part: Sequence[Lesson], number: int, tokens: float
    ) -> dict[str, Tensor]:
        """A part's share of the loss, the mean over all `tokens`."""
        options, weights = self.options, self.options.rewards
        own = self.log_probs(features, part, [lesson.turn.context for lesson in part])
        old = torch.cat([torch.tensor(lesson.turn.said.log_probs) for lesson in part]).to(own)
        lengths = [len(lesson.turn.said.log_probs) for lesson in part]
        advantages = torch.tensor([lesson.advantage for lesson in part]).to(own)
        advantages = advantages.repeat_interleave(torch.tensor(lengths, device=own.device))
        weight = fading(weights.step_weight, number, options.steps)
        told = [lesson for lesson in part if lesson.turn.told] if weight else []
        if told:
            with torch.no_grad():
                better = self.log_probs(features, told, [lesson.turn.told for lesson in told])
            has = [bool(lesson.turn.told) for lesson in part]
            at = torch.tensor(has).repeat_interleave(torch.tensor(lengths)).to(own.device)
            steps = step_advantages(better, own[at], weights.step_limit)
            advantages = advantages.index_put((at,), weight * steps, accumulate=True)
        losses, clipped = clipped_losses(own, old, advantages, options.clip_low, options.clip_high)
        return {"loss": losses.sum() / tokens, "clipped": clipped.sum() / tokens}

    def log_probs(self, features: Array, part: Sequence[Lesson], contexts: Sequence[str]) -> Tensor:
        """The log-probability of every token of some replies, each after a context, (S,).

        Among the tokens that the constrained decoding allows, as in generation; differentiable.
        """
        agent, model = self.agent, self.agent.backbone.model
        keys = [(lesson.image, text) for lesson, text in zip(part, contexts, strict=True)]
        once = list(dict.fromkeys(keys))
        prompts = encode_prompts(
            agent.processor, agent.settings.instruction, [text for _, text in once]
        ).to(model.device)
        seen = torch.from_numpy(features[[image for image, _ in once]])
        rows = torch.tensor([once.index(key) for key in keys], device=model.device)
        said = [torch.tensor(agent.sampled(lesson.turn.said)) for lesson in part]
        tokens = torch.nn.utils.rnn.pad_sequence(said, batch_first=True).to(model.device)
        lengths = torch.tensor([len(row) for row in said], device=model.device)
        is_said = torch.arange(tokens.shape[1], device=model.device) < lengths[:, None]
        hidden = model.suffix_hidden(seen.to(model.device, model.dtype), prompts, rows, tokens)
        allowed = np.concatenate([agent.allowed(lesson.turn) for lesson in part])
        logits = model.logits(hidden[is_said])
        logits = logits.masked_fill(~torch.from_numpy(allowed).to(model.device), -torch.inf)
        found: Tensor = logits.log_softmax(-1).gather(1, tokens[is_said][:, None])[:, 0]
        return found

    def round_of(self, number: int, prompts: Sequence[Prompt]) -> Round:
        """The dialogues of the round that a step belongs to, held anew at its first step."""
        first = number - number % self.options.updates
        if self._last is None or self._last[0] != first:
            rng = np.random.default_rng([self.options.seed, first, self.processes.rank, 1])
            seen = self.agent.look(prompts)
            self._last = first, self.play(prompts, seen, self.options.rollouts, rng)
        return self._last[1]

    def play(
        self,
        prompts: Sequence[Prompt],
        features: Array,
        each: int,
        rng: np.random.Generator | None,
    ) -> Round:
        """Dialogues of this adapter from some requests about pictures with these features."""
        agent, options = self.agent, self.options
        groups = play(
            agent,
            self.grammar,
            prompts,
            features,
            options.rewards,
            each=each,
            max_questions=options.most_questions,
            rng=rng,
        )
        return Round(features, groups)

    def evaluate(self, held_out: Sequence[Prompt]) -> dict[str, float]:
        """Means over the likeliest dialogues of this process's share of held-out requests.

        The requests are the same at each call, so their features are computed once.
        """
        mine = held_out[self.processes.rank :: self.processes.count]
        rollouts: list[Rollout] = []
        for i in range(0, len(mine), HELD_OUT_BATCH):
            prompts = mine[i : i + HELD_OUT_BATCH]
            if i not in self._held_out:
                self._held_out[i] = self.agent.look(prompts)
            played = self.play(prompts, self._held_out[i], 1, None)
            rollouts += [group[0] for group in played.groups]
        seen = figures(rollouts)
        sums = self.processes.sum({name: total for name, (total, _) in seen.items()})
        counts = self.processes.sum({name: float(n) for name, (_, n) in seen.items()})
        return {
            f"val_{name}": round(total / counts[name], 4)
            for name, total in sums.items()
            if counts[name]
        }


# --- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, GrpoOptions)


def run(args: argparse.Namespace) -> int:
    """Train adapter B on and write its folder."""
    options = read_options(GrpoOptions, args)
    if options.backend == TRL:
        return train_chat(options)
    processes = start_processes(str(options.start_device()), "float32")
    train_grpo(options, processes)
    processes.close()
    return 0


def train_chat(options: GrpoOptions) -> int:
    """Train a chat model by TRL. Raises ClueError without TRL, and for a PaliGemma."""
    here = local_or_hub(options.model)
    name = str(find_base(here)) if isinstance(here, Path) else options.model
    if kind_of(name).startswith("paligemma"):
        raise ClueError(
            f"{options.model} is a PaliGemma: TRL would mark its replies as prefix, which it reads"
            " both ways, and learn from wrong log-probabilities. Use --backend own"
        )
    try:
        from clue_ros.lab.training.grpo_trl import train_by_trl
    except ModuleNotFoundError as error:
        raise ClueError(missing("trl", "--backend trl")) from error
    train_by_trl(options)
    return 0


def kind_of(model: str) -> str:
    """The model type in the configuration of a folder or hub id. Raises ModelError."""
    place, revision = name_and_revision(model)
    try:
        found = AutoConfig.from_pretrained(place, **({"revision": revision} if revision else {}))
    except Exception as error:  # whatever the hub's client and the libraries raise
        raise ModelError(
            f"cannot read the configuration of {model}: {first_line(error)}"
        ) from error
    return str(found.model_type)


def train_grpo(options: GrpoOptions, processes: Processes) -> None:
    """Train adapter B on by reinforcement, and write its folder."""
    if options.prompts % (processes.count * options.updates):
        raise ClueError(
            f"--prompts {options.prompts} cannot be shared by {processes.count} processes and"
            f" {options.updates} updates"
        )
    out = options.folder(GRPO)
    model = find_model(options.model)
    base = find_base(model)
    init = existing_folder(options.init or model / IVG, "adapter B")
    torch_model, processor = frozen_base(options, base, processes.device, [SIMULATED])
    adapters = Adapters(torch_model)
    adapters.load(IVG, init)
    torch_model.model.eval()  # without dropout, as in generation
    agent = Agent(
        TorchBackbone(torch_model, adapters),
        processor,
        Vocabulary(processor.tokenizer, torch_model.text.vocab_size),
        load_ivg_settings(init),
    )
    trainer = GrpoTrainer(agent, options.world, options, processes)
    draw, held_out, data = _requests(options, trainer.grammar)
    per_process = options.prompts // processes.count

    def batch(number: int) -> Parts:
        first = number - number % options.updates
        rng = np.random.default_rng([options.seed, first])
        mine = draw(rng)[processes.rank * per_process :][:per_process]
        return trainer.step(number, trainer.round_of(number, mine))

    notes = {
        "fingerprint": fingerprint(base),
        "init": str(init),
        "base_dtype": options.base_dtype,
        "world": options.world,
        "prompts": options.prompts,
        "rollouts": options.rollouts,
        "updates": options.updates,
        "clip": [options.clip_low, options.clip_high],
        "max_turns": options.max_turns,
        **data,
        **asdict(options.rewards),
    }
    seen: dict[str, float] = {}

    def evaluate() -> dict[str, float]:
        seen.update(trainer.evaluate(held_out))
        return seen

    before = trainer.evaluate(held_out)
    train(
        batch,
        [Group(trainer.parameters)],
        options.settings,
        options.run_folder(options.model) / GRPO,
        evaluate=evaluate,
        log_every=options.log_every,
        notes=notes,
        processes=processes,
    )
    if not seen:  # nothing was left to train
        evaluate()
    if processes.is_main:
        adapters.save(IVG, out)
        recipe = {"steps": options.steps, "lr": options.lr, "seed": options.seed, **notes}
        save_ivg_settings(agent.settings, out, validation=seen, training=recipe)
        write_card(out, options, recipe, before, seen)
        print(json.dumps({"out": str(out), **seen}))


def _requests(
    options: GrpoOptions, grammar: RichGrammar
) -> tuple[Callable[[np.random.Generator], list[Prompt]], list[Prompt], dict[str, object]]:
    """A function that draws a step's requests, the held-out ones, and notes on the data."""
    if options.clips is not None:
        clips = Clips(options.clips, "train", options.track_frames)
        held_out = Clips(options.clips, "val", options.track_frames, options.held_out).all()
        notes: dict[str, object] = {
            "clip_requests": len(clips.requests),
            "track_frames": options.track_frames,
            "clear": options.clear_share,
        }
        return partial(clips.draw, options.prompts, clear=options.clear_share), held_out, notes
    scenes = list(training_scenes(options))
    shares = {"clear": options.clear_share, "absent": options.absent_share}

    def draw(rng: np.random.Generator) -> list[Prompt]:
        return draw_prompts(scenes, grammar, options.prompts, rng, **shares)

    return draw, _held_out(options, grammar), {"mix": options.mix, "scenes": len(scenes), **shares}


def _held_out(options: GrpoOptions, grammar: RichGrammar) -> list[Prompt]:
    """A request of each kind about each validation scene, always the same."""
    scenes = read_scenes(options.tabletop, "val", options.held_out, options.world)
    prompts: list[Prompt] = []
    for number, scene in enumerate(scenes):
        rng = np.random.default_rng([0, number])
        for kind in KINDS:
            prompts += prompts_about(scene, grammar, kind, 1, rng)
    return prompts


_CARD = """# Adapter B, trained on by reinforcement

It asks and points as the adapter that it began with; dialogues with simulated people about rendered
{about} taught it when and what to ask (Hi-GRPO, `clue train grpo`, docs/icseg.md).

    Clue.load({model!r}, ivg="THIS FOLDER", policy="decoder")

The fit of policy `both` belongs to other weights: run `clue train policy` before you use it.

| Held-out {about} of `{world}`, likeliest replies | before | after |
| --- | ---: | ---: |
{rows}

| Training | |
| --- | --- |
{recipe}
"""


def write_card(
    folder: Path,
    options: GrpoOptions,
    recipe: Mapping[str, object],
    before: Mapping[str, float],
    after: Mapping[str, float],
) -> None:
    """Write README.md: description, validation figures and recipe."""
    rows = (
        f"| {name.removeprefix('val_')} | {before.get(name, '')} | {after[name]} |"
        for name in after
    )
    text = _CARD.format(
        model=options.model,
        about="scenes" if options.clips is None else "clips",
        world=options.world,
        rows="\n".join(rows),
        recipe="\n".join(f"| {name.replace('_', ' ')} | {v} |" for name, v in recipe.items()),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")

"""`clue train grpo --backend trl`: a chat model learns by reinforcement to ask, with TRL's trainer.

People, rewards and advantages of turns are those of backend `own` (`grpo_rollouts`,
`grpo_rewards`); the replies are a chat model's (`grpo_chat`). A dialogue is one completion;
`env_mask` masks the person's words. TRL gives a completion one advantage; `compute_loss` of
`ChatTrainer` replaces it by one for each token. PaliGemma is not supported: TRL would mark its
replies as prefix. The step level and the key frame are missing: TRL's loss makes one forward pass,
and its `rollout_func` has pictures in the prompt alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig
from PIL import Image as Picture
from transformers import set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer

from clue_ros.errors import ClueError
from clue_ros.lab.language.chat_agent import ChatModel
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.datasets import training_scenes
from clue_ros.lab.training.grpo_chat import ChatPolicy, opening
from clue_ros.lab.training.grpo_options import GRPO, GrpoOptions
from clue_ros.lab.training.grpo_rewards import group_advantages, varies
from clue_ros.lab.training.grpo_rollouts import Prompt, Rollout, draw_prompts, figures, play

LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "target_modules": "all-linear"}
Key = tuple[tuple[int, ...], tuple[int, ...]]  # a prompt's tokens, a completion's


class ChatTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    """Group relative policy optimisation with an advantage of its own for each token."""

    def __init__(self, policy: ChatPolicy, options: GrpoOptions, **more: Any) -> None:
        super().__init__(reward_funcs=[told_reward], rollout_func=hold_dialogues, **more)
        self.policy, self.options = policy, options
        self.grammar = grammar_of(options.world)
        self.prompts: list[Prompt] = []
        self.advantages: dict[Key, list[float]] = {}

    def rollouts(self) -> list[list[Rollout]]:
        """The dialogues of this step, a group for each request."""
        options, first = self.options, self.state.global_step * self.options.prompts
        self.policy.forget()
        self.model.eval()
        found = play(
            self.policy,
            self.grammar,
            self.prompts[first : first + options.prompts],
            np.zeros((options.prompts, 1, 1), np.float32),
            options.rewards,
            each=options.rollouts,
            max_questions=options.max_turns,
            rng=None,
        )
        self.model.train()
        return found

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """TRL's loss with an advantage of each token, (B, T), in place of the completion's."""
        prompts = tuples(inputs["prompt_ids"], inputs["prompt_mask"])
        completions = tuples(inputs["completion_ids"], inputs["completion_mask"])
        told = torch.zeros(inputs["completion_ids"].shape, device=inputs["completion_ids"].device)
        for row, key in enumerate(zip(prompts, completions, strict=True)):
            found = self.advantages[key]
            told[row, : len(found)] = torch.tensor(found)
        return super().compute_loss(
            model, {**inputs, "advantages": told}, return_outputs, num_items_in_batch
        )


def tuples(ids: torch.Tensor, mask: torch.Tensor) -> list[tuple[int, ...]]:
    """The rows of padded tokens (B, T) without their padding."""
    return [
        tuple(row[kept].tolist()) for row, kept in zip(ids.cpu(), mask.bool().cpu(), strict=True)
    ]


def hold_dialogues(prompts: Sequence[object], trainer: ChatTrainer) -> dict[str, Any]:
    """TRL's `rollout_func`: the dialogues of a step, in the order of its rows."""
    groups = trainer.rollouts()
    trainer.advantages.clear()
    out: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": []}
    for group in groups:
        rewards = [rollout.reward for rollout in group]
        turns = [[turn.reward for turn in rollout.turns] for rollout in group]
        rows = group_advantages(rewards, turns, trainer.options.rewards)
        if not varies(rewards):  # it teaches nothing
            rows = [[0.0] * len(row) for row in rows]
        for rollout, row in zip(group, rows, strict=True):
            tokens = trainer.policy.tokens(rollout)
            key = tuple(tokens.prompt), tuple(tokens.completion)
            trainer.advantages[key] = tokens.spread(row)
            logs = [0.0] * len(tokens.completion)
            for (first, end), turn in zip(tokens.spans, rollout.turns, strict=True):
                logs[first:end] = turn.said.log_probs
            own = [int(v) for v in tokens.spread([float(varies(rewards))] * len(rollout.turns))]
            out["prompt_ids"].append(tokens.prompt)
            out["completion_ids"].append(tokens.completion)
            out["logprobs"].append(logs)
            out["env_mask"].append(own)
    rollouts = [rollout for group in groups for rollout in group]
    assert len(rollouts) == len(prompts)
    seen = {name: total / n for name, (total, n) in figures(rollouts).items() if n}
    return out | {"told": [r.reward for r in rollouts], "seen": [seen] * len(rollouts)}


def told_reward(told: list[float], seen: list[Any], log_metric: Any, **more: Any) -> list[float]:
    """TRL's reward function: R of each dialogue, as `hold_dialogues` found it; logs the rest."""
    for name, value in seen[0].items():
        log_metric(name, value)
    return told


def train_by_trl(options: GrpoOptions) -> None:
    """Train a LoRA adapter of a chat model and write its folder. Raises ClueError."""
    device = options.start_device()
    chat = ChatModel.load(options.model, str(device), options.base_dtype)
    chat.max_new_tokens = options.max_new_tokens
    scenes = list(training_scenes(options))
    set_seed(options.seed)
    settings = GRPOConfig(
        output_dir=str(options.run_folder(options.model) / GRPO),
        max_steps=options.steps,
        per_device_train_batch_size=options.prompts * options.rollouts // options.accumulate,
        gradient_accumulation_steps=options.accumulate,
        num_generations=options.rollouts,
        max_completion_length=chat.max_new_tokens * (options.max_turns + 1),
        learning_rate=options.lr,
        lr_scheduler_type="linear",
        warmup_steps=round(options.warmup * options.steps),
        weight_decay=options.weight_decay,
        beta=0.0,
        epsilon=options.clip_low,
        epsilon_high=options.clip_high,
        loss_type="dapo",  # a mean over tokens
        scale_rewards="none",
        shuffle_dataset=False,
        bf16=False,
        use_cpu=device.type == "cpu",
        gradient_checkpointing=False,
        logging_steps=options.log_every,
        save_steps=options.save_every,
        save_total_limit=1,
        report_to="none",
        seed=options.seed,
    )
    if settings.world_size > 1:
        raise ClueError("--backend trl runs in one process")
    prompts = drawn(scenes, options)
    rows = [{"prompt": opening(p.text), "image": Picture.fromarray(p.scene.image)} for p in prompts]
    trainer = ChatTrainer(
        ChatPolicy(chat),
        options,
        model=chat.model,
        args=settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=chat.processor,
        peft_config=LoraConfig(**LORA),
    )
    trainer.prompts = prompts
    trainer.train(resume_from_checkpoint=get_last_checkpoint(settings.output_dir))
    assert options.out is not None
    trainer.save_model(str(options.out))
    last: dict[str, Any] = next(
        (r for r in reversed(trainer.state.log_history) if "reward" in r), {}
    )
    write_card(options, last)
    print(json.dumps({"out": str(options.out), **last}))


_CARD = """# A chat model's adapter, trained by reinforcement

It asks about a picture, or points in it; dialogues with simulated people about rendered scenes
taught it when and what to ask (Hi-GRPO, `clue train grpo --backend trl`, docs/grpo.md). It belongs
to `{model}`.

| Training | |
| --- | --- |
{rows}
"""


def write_card(options: GrpoOptions, last: Mapping[str, object]) -> None:
    """Write README.md: the recipe, and the last row of the log."""
    assert options.out is not None
    names = ("world", "steps", "prompts", "rollouts", "lr", "seed", "max_turns")
    told = {name: getattr(options, name) for name in names} | asdict(options.rewards) | dict(last)
    rows = "\n".join(f"| {name.replace('_', ' ')} | {value} |" for name, value in told.items())
    text = _CARD.format(model=options.model, rows=rows)
    (options.out / "README.md").write_text(text, encoding="utf-8")


def drawn(scenes: Sequence[Scene], options: GrpoOptions) -> list[Prompt]:
    """Return the requests of all steps in order, the same for each step as in backend `own`."""
    grammar = grammar_of(options.world)
    shares = {"clear": options.clear_share, "absent": options.absent_share}
    return [
        prompt
        for number in range(options.steps)
        for prompt in draw_prompts(
            scenes, grammar, options.prompts, np.random.default_rng([options.seed, number]),
            **shares,
        )
    ]  # fmt: skip

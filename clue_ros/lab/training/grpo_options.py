"""The options of `clue train grpo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clue_ros.dialogue.types import MAX_QUESTIONS
from clue_ros.errors import ClueError
from clue_ros.lab.language.video_agent import MAX_TURNS
from clue_ros.lab.options import at_least, option
from clue_ros.lab.training.grpo_rewards import RewardOptions
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.options import LearnerOptions

GRPO = "grpo"  # the folder's name
OWN, TRL = "own", "trl"


@dataclass(frozen=True, kw_only=True)
class GrpoOptions(LearnerOptions):
    """The options of `clue train grpo`."""

    backend: str = option(
        OWN,
        "own: adapter B of a PaliGemma; trl: a chat model that sees, a hub id or folder, by TRL's"
        " trainer",
        choices=(OWN, TRL),
    )
    clips: Path | None = option(
        None,
        "learn about videos: folder of `clue data clips` with the splits train and val",
        metavar="DIR",
    )
    track_frames: int = option(
        8, "frames of a clip, evenly spread, in which masks are measured", type=at_least(2)
    )
    init: Path | None = option(
        None, "folder of the adapter to begin with; default: the model's", metavar="ADAPTER"
    )
    steps: int = option(100, "optimizer steps", type=at_least(1))
    prompts: int = option(4, "requests of one round of dialogues", type=at_least(1))
    rollouts: int = option(8, "dialogues from each request", type=at_least(2))
    updates: int = option(
        1,
        "optimizer steps of a round, each with its part of the requests",
        type=at_least(1),
    )
    lr: float = option(1e-4, "learning rate")
    warmup: float = option(0.1, "share of the steps with linear warm-up")
    weight_decay: float = option(0.0, "weight decay of AdamW")
    clip_low: float = option(
        0.2, "a token's ratio to the policy that sampled it is clipped below 1 - this"
    )
    clip_high: float = option(0.28, "and above 1 + this")
    max_new_tokens: int = option(
        1024, "largest number of tokens of a chat model's reply (--backend trl)", type=at_least(1)
    )
    max_turns: int = option(MAX_QUESTIONS, "largest number of questions", type=at_least(1))
    clear_share: float = option(0.3, "share of requests that mean one object")
    absent_share: float = option(0.1, "share of requests for absent objects (in clips none)")
    held_out: int = option(40, "validation scenes or clips to measure on with every saved state")
    log_every: int = option(5, "steps between two rows of the log")
    rewards: RewardOptions

    def __post_init__(self) -> None:
        """Raises ClueError for invalid options."""
        if not 0 <= self.clear_share + self.absent_share <= 1:
            raise ClueError("--clear-share and --absent-share: want shares of 1 together at most")
        for name in ("steps", "save_every"):  # a state is saved between two rounds
            if (value := getattr(self, name)) % self.updates:
                flag = name.replace("_", "-")
                raise ClueError(f"--{flag} {value} is no multiple of --updates {self.updates}")
        if self.backend == TRL:
            self._check_trl()

    def _check_trl(self) -> None:
        """Raises ClueError for options that backend `trl` does not support."""
        if self.clips is not None:
            raise ClueError("--backend trl shows one picture, no clip: --clips needs --backend own")
        if self.rewards.step_weight:
            raise ClueError("--backend trl has no step level: give --step-weight 0")
        if self.init is not None or self.updates > 1:
            raise ClueError("--backend trl has neither --init nor --updates")
        if self.out is None:
            raise ClueError("--backend trl: where to? Give --out")
        if self.prompts * self.rollouts % self.accumulate:
            raise ClueError(
                f"--accumulate {self.accumulate} does not divide {self.prompts} x {self.rollouts}"
                " dialogues"
            )

    @property
    def most_questions(self) -> int:
        """The largest number of questions; an episode about a clip has MAX_TURNS actions."""
        return self.max_turns if self.clips is None else min(self.max_turns, MAX_TURNS - 2)

    @property
    def settings(self) -> TrainingSettings:
        """The loop's settings."""
        return TrainingSettings(
            self.steps,
            self.prompts * self.rollouts,
            self.lr,
            weight_decay=self.weight_decay,
            warmup=self.warmup,
            schedule="linear",
            final_rate=self.final_rate,
            seed=self.seed,
            save_every=self.save_every,
        )

"""Rewards and advantages of Hi-GRPO, at the levels of trajectory, turn and step.

IC-Seg names the three levels and publishes no formula. The terms here are a proposal of this
project, with the rewards of IC-Seg's published parent (Seg-ReSearch) in mind:

    trajectory   R = w_f parses + w_b IoU(box) + w_p 1[point in M*] + w_m IoU(M, M*)
                     - w_T max(0, T - T_min),   0 for a guess while several candidates match
                 of a clip, w_v J&F of the masks over its frames in place of w_m IoU(M, M*)
    turn t       r_t = log(|C_{t-1}| / |C_t|) / log |C_0| - w_r 1[asks again] - w_a 1[several axes]
    step s       a_s = clip(log pi(y_s | told the target) - log pi(y_s), -limit, limit)

    A = norm(R) + beta norm(sum_{u >= t} gamma^{u-t} r_u) + lambda a_s
    loss = - mean_s min(rho_s A, clip(rho_s, 1 - low, 1 + high) A),   rho_s = pi / pi_old

C_t are the candidates that match after turn t, T the questions asked, M and M* the masks found and
true. A weight of 0 switches its term off. norm(x) = (x - mean) / (std + epsilon) is over the
rollouts of one prompt. With the usual epsilon of 1e-6 a group of right boxes, whose IoUs differ by
a few hundredths, would teach as much as one in which some dialogues fail; hence a larger one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clue_ros.dialogue.types import Box
from clue_ros.lab.language.questions import partitions
from clue_ros.lab.language.references import Candidates, Objects
from clue_ros.lab.metrics import MIN_IOU, mean
from clue_ros.lab.options import not_negative, option
from clue_ros.lab.tracks import Mask, contour_accuracy, region_similarity

Array = npt.NDArray[np.float64]
SAME = 1e-6  # rewards that differ by less are equal


def _weight(default: float, help: str) -> float:
    weight: float = option(default, help, type=not_negative)
    return weight


@dataclass(frozen=True, kw_only=True)
class RewardOptions:
    """The weights of the terms; 0 leaves a term out."""

    format_weight: float = _weight(1.0, "reward of a dialogue that parses and ends with a box")
    box_weight: float = _weight(1.0, "weight of the box's IoU, from 0.5 on")
    point_weight: float = _weight(1.0, "reward of a box whose centre lies in the true mask")
    mask_weight: float = _weight(1.0, "weight of the mask's IoU (GrabCut in the box), in pictures")
    track_weight: float = _weight(1.0, "weight of J&F of the masks over a clip's frames (--clips)")
    excess_weight: float = _weight(0.2, "cost of each question more than the fewest")
    turn_weight: float = _weight(0.5, "weight beta of the turns' advantage; 0: trajectory alone")
    discount: float = _weight(0.9, "discount gamma of later turns")
    repeat_weight: float = _weight(0.5, "cost of asking for what was asked or said")
    axes_weight: float = _weight(0.25, "cost of a question about several properties")
    epsilon: float = _weight(0.1, "added to the standard deviation that advantages are divided by")
    step_weight: float = _weight(
        0.5, "weight lambda of the steps' advantage at first; it falls to 0 with the last step"
    )
    step_limit: float = _weight(0.2, "largest advantage of a step")


# -------------------------------------------------------------------------------------------------
# Trajectory.


@dataclass(frozen=True)
class Ending:
    """The end of a dialogue; each term of its reward is in 0..1 but `excess`.

    parses: every reply had its form and the last one is a box. box, point, mask: of that box.
    track: of the masks that a tracker finds from it on, in a clip.
    excess: questions more than the fewest. guessed: it pointed while several candidates matched.
    """

    parses: bool
    box: float = 0.0
    point: float = 0.0
    mask: float = 0.0
    track: float = 0.0
    excess: int = 0
    guessed: bool = False


def trajectory_reward(ending: Ending, weights: RewardOptions) -> float:
    """Return R of a dialogue; 0 for a guess."""
    if ending.guessed:
        return 0.0
    return (
        weights.format_weight * ending.parses
        + weights.box_weight * ending.box
        + weights.point_weight * ending.point
        + weights.mask_weight * ending.mask
        + weights.track_weight * ending.track
        - weights.excess_weight * ending.excess
    )


def box_reward(found: Box, truth: Box) -> float:
    """The IoU of two boxes; 0 below 0.5, so that a neighbour earns nothing."""
    iou = found.iou(truth)
    return iou if iou >= MIN_IOU else 0.0


def point_reward(point: tuple[float, float], truth: Mask) -> float:
    """Return whether a point (x, y) in pixels lies in the true mask, bool (H, W)."""
    x, y = (int(v) for v in point)
    inside = 0 <= y < truth.shape[0] and 0 <= x < truth.shape[1]
    return float(inside and truth[y, x])


def track_reward(found: Sequence[Mask], truth: Sequence[Mask]) -> float:
    """J&F of an object's masks, bool (H, W) each, the mean over frames."""
    pairs = list(zip(found, truth, strict=True))
    both = [region_similarity(a, b) + contour_accuracy(a, b) for a, b in pairs]
    return mean(both) / 2


def fewest_questions(
    candidates: Candidates, objects: Objects, noun_of: Mapping[str, str] | None = None
) -> int:
    """T_min: 0 for one candidate, 1 if some property names each, else ceil(log2 of their number).

    noun_of: the noun of a kind.
    """
    if len(candidates) < 2:
        return 0
    splits = partitions(candidates, objects, noun_of or {})
    if any(len(groups) == len(candidates) for groups in splits.values()):
        return 1
    return math.ceil(math.log2(len(candidates)))


# -------------------------------------------------------------------------------------------------
# Turns.


def information(before: int, after: int, first: int) -> float:
    """Share of log |C_0| that a turn gains: 1 for the turns of a perfect dialogue together.

    before, after, first: numbers of candidates before and after the turn, and at the beginning. 0
    of a request that was clear from the beginning.
    """
    if first < 2:
        return 0.0
    return math.log(before / max(1, after)) / math.log(first)


def turn_reward(gained: float, *, repeats: bool, axes: int, weights: RewardOptions) -> float:
    """r_t of a question. axes: number of properties that it asks for."""
    cost = weights.repeat_weight * repeats + weights.axes_weight * (axes > 1)
    return gained - cost


def returns(rewards: Sequence[float], discount: float) -> list[float]:
    """Return sum_{u >= t} gamma^{u-t} r_u for each turn t."""
    total, out = 0.0, []
    for reward in reversed(rewards):
        total = reward + discount * total
        out.append(total)
    return out[::-1]


# -------------------------------------------------------------------------------------------------
# Advantages of a group: the rollouts of one prompt.


def normalised(values: Sequence[float], epsilon: float) -> Array:
    """(x - mean) / (std + epsilon), with the population's standard deviation; 0 where all agree."""
    x = np.asarray(values, np.float64)
    return np.asarray((x - x.mean()) / (x.std() + max(epsilon, SAME)))


def varies(rewards: Sequence[float]) -> bool:
    """Return whether a group has a learning signal: its final rewards differ."""
    return max(rewards) - min(rewards) > SAME


def group_advantages(
    rewards: Sequence[float], turns: Sequence[Sequence[float]], weights: RewardOptions
) -> list[list[float]]:
    """The advantage of each turn of each rollout, without that of the steps.

    rewards: R of each rollout. turns: r_t of each of its replies, 0 for the box. Returns are
    compared among the rollouts that have a turn t.
    """
    whole, epsilon = normalised(rewards, weights.epsilon), weights.epsilon
    ahead = [returns(row, weights.discount) for row in turns]
    out = [[float(whole[i])] * len(row) for i, row in enumerate(turns)]
    for t in range(max(map(len, turns))):
        among = [i for i, row in enumerate(ahead) if t < len(row)]
        compared = normalised([ahead[i][t] for i in among], epsilon)
        for i, value in zip(among, compared, strict=True):
            out[i][t] += weights.turn_weight * float(value)
    return out


# -------------------------------------------------------------------------------------------------
# Steps, and the loss.


def step_advantages(told: Tensor, own: Tensor, limit: float) -> Tensor:
    """a_s of tokens, (S,), from their log-probabilities with and without being told the target."""
    return (told - own).detach().clamp(-limit, limit)


def fading(weight: float, step: int, steps: int) -> float:
    """Lambda at a step counted from 0: falls from `weight` to 0."""
    return weight * (1 - step / max(1, steps - 1))


def clipped_losses(
    log_probs: Tensor, old: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """The loss of each token, (S,), and whether clipping stopped its gradient, 0. or 1.

    log_probs: of the policy that learns; old: of the one that sampled; all (S,).
    """
    ratio = torch.exp(log_probs - old)
    plain, kept = ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages
    return -torch.minimum(plain, kept), (kept < plain).float()

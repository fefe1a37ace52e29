"""The fit of policy "zero-shot": from evidence to a probability of ambiguity."""

import torch

from clue_ros.lab.training.detector import f1
from clue_ros.lab.training.zero_shot import chances, dialogue_of, fit
from clue_ros.model.zero_shot import Evidence


def test_a_dialogue_is_read_from_its_context() -> None:
    context = "the mug assistant: red or blue? user: red assistant: where is it? user: left"
    dialogue = dialogue_of(context)
    assert dialogue.context() == context
    assert [turn.speaker for turn in dialogue.turns] == ["user", "robot", "user", "robot", "user"]
    assert dialogue_of("the mug").turns[0].text == "the mug"


def test_the_fit_tells_clear_from_ambiguous_evidence() -> None:
    generator = torch.Generator().manual_seed(0)
    score = 0.5 + 0.5 * torch.rand(300, 2, generator=generator)
    ambiguous = (torch.arange(300) % 2).float()
    none = torch.zeros(300)
    rows = [none - 4 * (1 - ambiguous), score[:, 1] * ambiguous, 1 - score[:, 0], none, none]
    evidence = torch.stack(rows, 1)
    settings = fit(evidence, ambiguous)
    assert settings.second > 0
    assert 0 <= settings.threshold <= 1
    assert f1(chances(settings, evidence) >= settings.threshold, ambiguous) == 1.0
    one, two = Evidence(-4, 0, 0.1, 0, 0), Evidence(0, 0.8, 0.1, 0, 0)
    assert settings.probability(one) < settings.threshold <= settings.probability(two)

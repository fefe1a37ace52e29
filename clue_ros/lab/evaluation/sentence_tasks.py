"""InViG's tasks whose result is a sentence: M-VQA (an answer) and M-VQG (the next question).

Each sentence of the dialogues is predicted from the turns before it, scored against the true
one (`text_scores`), and the true one is ranked by mean log-probability a token among sentences from
the dialogues about similar images (`retrieval_candidates`).

A large data set stays on disk, and so do the sentences, the images' features and the results:
a dialogue and its picture are read when their turn comes, and again for the ranking. In memory are
30 bytes a sentence and the id of each image; at the end, for the text scores, the sentences.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box, Dialogue, Fractions
from clue_ros.errors import ClueError
from clue_ros.lab.data.invig import InvigSample, numbered, without_tokens
from clue_ros.lab.data.json_stream import JsonSpool
from clue_ros.lab.evaluation.options import note
from clue_ros.lab.evaluation.text_scores import COLUMNS, text_scores
from clue_ros.lab.metrics import mean, ratio, rounded
from clue_ros.lab.report import with_progress
from clue_ros.model.location_tokens import encode_box

if TYPE_CHECKING:
    from clue_ros.engine import Clue
    from clue_ros.lab.evaluation.clip_features import ClipFeatures
    from clue_ros.model.oracle import Oracle

TEXT_COLUMNS = (*COLUMNS, "r@1", "r@5", "rank")

Features = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Moment:
    """One sentence to predict.

    position: of its dialogue among the samples. box: the person's object, in fractions. context:
    the turns before.
    """

    position: int
    id: str
    image_id: str
    box: Fractions
    context: str
    truth: str


def moments(position: int, sample: InvigSample, task: str, *, newest: bool = False) -> list[Moment]:
    """The answers (vqa) or the questions (vqg) of a dialogue.

    newest: with the request and the newest exchange alone before each question.
    """
    dialogue = Dialogue(sample.request)
    said: list[tuple[str, str]] = []
    for question, answer in sample.exchanges:
        if task == "vqg":
            before = dialogue.newest() if newest else dialogue
            said.append((before.context(), question))
        dialogue.add_question(question)
        if task == "vqa":
            said.append((dialogue.context(), answer))
        dialogue.add_answer(answer)
    about = position, sample.id, sample.image_id, sample.box
    return [Moment(*about, context, truth) for context, truth in said]


class MomentsOnDisk:
    """Moments of many dialogues, and the features of their images, in temporary files."""

    def __init__(self) -> None:
        self._spool = JsonSpool()
        self._numbers: dict[str, int] = {}
        self._images = array("i")  # of each moment, the number of its image
        self._features = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the object
        self._width = 0

    def knows(self, image_id: str) -> bool:
        """Return whether an image was added."""
        return image_id in self._numbers

    def add_image(self, image_id: str, features: Features) -> None:
        """Add an image before its first moment; features (D,), of unit length."""
        self._width = len(features)
        self._features.write(features.astype(np.float32).tobytes())
        self._numbers[image_id] = len(self._numbers)

    def add(self, moment: Moment) -> None:
        """Add a moment about an image that is known."""
        self._images.append(self._numbers[moment.image_id])
        self._spool.append(vars(moment))

    def __len__(self) -> int:
        return len(self._spool)

    def __iter__(self) -> Iterator[Moment]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> Moment:
        """A moment, read again."""
        values = self._spool[position]
        return Moment(**values | {"box": tuple(values["box"])})

    def images(self) -> npt.NDArray[np.int32]:
        """(n,): of each moment the number of its image, in the order in which they were added."""
        return np.frombuffer(self._images, dtype=np.int32)

    def features(self) -> Features:
        """(images, D): mapped from the file."""
        self._features.flush()
        shape = (len(self._numbers), self._width)
        return np.memmap(self._features, dtype=np.float32, mode="r", shape=shape)


def retrieval_candidates(told: MomentsOnDisk, count: int, seed: int) -> Iterator[list[str]]:
    """For each moment, one sentence from each of the `count` most similar other images.

    Similar is the cosine of the images' features. Sentences equal to the true one (in lower case)
    are left out, so that there may be fewer.
    """
    rng = np.random.default_rng([seed, 31])
    image_of, features = told.images(), told.features()
    by_image = np.argsort(image_of, kind="stable")
    ends = np.cumsum(np.bincount(image_of, minlength=len(features)))
    last, order = -1, np.empty(0, np.int64)
    for moment, image in zip(told, image_of, strict=True):
        if image != last:
            last, order = image, np.argsort(-(features @ features[image]), kind="stable")
        drawn: list[str] = []
        for other in order:
            if len(drawn) >= count:
                break
            if other == image:
                continue
            begin = 0 if other == 0 else ends[other - 1]
            said = [told[int(i)].truth for i in by_image[begin : ends[other]]]
            texts = [text for text in said if text.lower() != moment.truth.lower()]
            if texts:
                drawn.append(texts[int(rng.integers(len(texts)))])
        yield drawn


def rank_of_first(scores: Sequence[float]) -> float:
    """The rank of the first score, 1 for the highest; ties share their mean rank.

    >>> rank_of_first([2.0, 3.0, 1.0]), rank_of_first([1.0, 1.0])
    (2.0, 1.5)
    """
    higher = sum(score > scores[0] for score in scores[1:])
    equal = sum(score == scores[0] for score in scores[1:])
    return 1 + higher + equal / 2


class LastImage:
    """A cache of the last image's features: the next dialogue often shares them."""

    def __init__(self, clue: Clue) -> None:
        self._clue, self._name = clue, ""
        self._last: Any = None

    def look(self, image_id: str, load: Callable[[], npt.NDArray[np.uint8]]) -> Any:
        """Features (1, N, D) of the image that `load` reads."""
        if self._name != image_id:
            self._name, self._last = image_id, self._clue.checkpoint.look(load())
        return self._last

    def vector(self, image_id: str, load: Callable[[], npt.NDArray[np.uint8]]) -> Features:
        """The mean feature of an image (D,), of unit length."""
        pooled = self.look(image_id, load)[0].mean(0)
        return np.asarray(pooled / (np.linalg.norm(pooled) + 1e-12), dtype=np.float32)


def collect_moments(
    samples: Sequence[InvigSample],
    task: str,
    vector: Callable[[str, Callable[[], npt.NDArray[np.uint8]]], Features],
    *,
    newest: bool = False,
) -> tuple[MomentsOnDisk, list[str]]:
    """Return the moments of all dialogues with their images' features, and the problems.

    newest: see `moments`. vector: the feature (D,) of an image, from its id and its loader.
    """
    told, lost = MomentsOnDisk(), list[str]()
    for position, sample in numbered(samples, lost.append):
        found = moments(position, sample, task, newest=newest)
        if not found:
            continue
        try:
            if not told.knows(sample.image_id):
                told.add_image(sample.image_id, vector(sample.image_id, sample.load))
        except ClueError as error:
            lost.append(f"{sample.id}: {error}")
            continue
        for moment in found:
            told.add(moment)
    return told, lost


def measure_sentences(
    clue: Clue,
    oracle: Oracle | None,
    samples: Sequence[InvigSample],
    task: str,
    *,
    ranked_among: int,
    seed: int,
    plain: bool = False,
    clip: ClipFeatures | None = None,
    newest: bool = False,
) -> tuple[dict[str, Any], JsonSpool]:
    """M-VQA with an oracle, M-VQG without: the scores, and a record for each sentence.

    ranked_among: candidates of the ranking. plain: also measure the share of right answers, as in
    GuessWhat?! clip: finds similar images; None: the model's own features do. newest: see
    `moments`.
    """
    from clue_ros.model.backbone import IVG
    from clue_ros.model.oracle import ORACLE, suffix_log_probs

    images, parts = LastImage(clue), clue.checkpoint
    vector = images.vector if clip is None else (lambda _, load: clip(load()))
    told, lost = collect_moments(samples, task, vector, newest=newest)
    note(lost)
    if not len(told):
        raise ClueError("no dialogue has a question: nothing to measure")
    records = JsonSpool()
    pairs = zip(told, retrieval_candidates(told, ranked_among, seed), strict=True)
    for moment, drawn in with_progress(pairs, "sentence", len(told)):
        features = images.look(moment.image_id, partial(_load, samples, moment.position))
        if oracle is not None:
            codes = encode_box(Box(*moment.box), 1, 1)
            said = oracle.answer(features, codes, moment.context)
            adapter, (instruction, context) = ORACLE, oracle.prompt(codes, moment.context)
        else:
            said = parts.words(parts.speak(features, moment.context, "question"))
            adapter, instruction, context = IVG, parts.ivg.instruction, moment.context
        record: dict[str, Any] = {"id": moment.id, "context": moment.context}
        record |= {"truth": moment.truth, "said": said}
        if drawn:
            texts = [without_tokens(text) for text in (moment.truth, *drawn)]
            sums, lengths = suffix_log_probs(parts, adapter, features, instruction, context, texts)
            record |= {"rank": rank_of_first((sums / lengths).tolist()), "among": len(texts)}
        records.append(record)
    summary = sentence_summary(records)
    if plain:
        right = sum(plain_answer(r["said"]) == plain_answer(r["truth"]) for r in records)
        summary["accuracy"] = rounded(ratio(right, len(records)))
    return summary, records


def _load(samples: Sequence[InvigSample], position: int) -> npt.NDArray[np.uint8]:
    return samples[position].load()


def plain_answer(text: str) -> str:
    """An answer of GuessWhat?! without case and marks.

    >>> plain_answer("Yes."), plain_answer("N/A")
    ('yes', 'na')
    """
    return "".join(c for c in text.lower() if c.isalnum())


def sentence_summary(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Text scores and retrieval of the records.

    R@1, R@5 times 100, the mean rank, and `among`: the mean number of sentences that were ranked,
    with the true one. A small pool makes high ranks easy.
    """
    pairs: list[tuple[str, str]] = []
    ranks, pools = array("d"), array("d")
    for record in records:
        pairs.append((record["said"], record["truth"]))
        if "rank" in record:
            ranks.append(record["rank"])
            pools.append(record["among"])
    scores: dict[str, Any] = {
        k: round(v, 2) if isinstance(v, float) else v for k, v in text_scores(pairs).items()
    }
    for k in (1, 5):
        scores[f"r@{k}"] = rounded(100 * ratio(sum(rank <= k for rank in ranks), len(ranks)))
    scores |= {"rank": rounded(mean(ranks)), "among": rounded(mean(pools))}
    return scores | {"n": len(pairs)}

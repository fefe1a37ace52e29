"""Training samples: queries about a picture, with the objects that their words should attend to.

The base (stage 2) learns queries of several tasks (`base_samples`), the adapters learn moments of
dialogues (`adapter_samples`). A step's samples are a function of (seed, step) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from clue_ros.lab.data.it2p import It2pImage
from clue_ros.lab.language.dialogues import DialogueState
from clue_ros.lab.language.public_tasks import (
    LISTED as LISTED_IN_PUBLIC,
)
from clue_ros.lab.language.public_tasks import (
    Entries,
    PublicTasks,
    TaskQuestion,
    caption_text,
    from_left,
)
from clue_ros.lab.language.questions import MAX_OPTIONS, list_options, partitions
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.language.simulated_user import RichUser
from clue_ros.lab.language.words import UNSURE, mirrored_text
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.training.augment import Mirror, Picture, cropped
from clue_ros.lab.training.datasets import TrainingData
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.vision import side_bins
from clue_ros.model.location_tokens import BETWEEN, to_text
from clue_ros.model.oracle import ANSWER, DESCRIBE
from clue_ros.model.prompts import split_words

TASKS = (("clarify", 0.62), ("list", 0.23), ("look", 0.15))
# With `--via`: few requests count, and each number has to be learned.
VIA_TASKS = (
    ("clarify", 0.56), ("order", 0.1), ("size", 0.1), ("list", 0.12), ("look", 0.12),
)  # fmt: skip
# With `--tasks public`: PaliGemma's public tasks ("detect" as its mix checkpoints answer it instead
# of "list").
PUBLIC_TASKS = (
    ("clarify", 0.3), ("order", 0.06), ("size", 0.06), ("look", 0.08), ("detect", 0.2),
    ("answer", 0.26), ("caption", 0.04),
)  # fmt: skip
PUBLIC_ON_PHOTOS = 0.35  # share of the queries about photographs that are public tasks
PUBLIC_NAMES = ("detect", "answer", "caption")
CROPS = 0.2  # share of the pictures that are cropped around an object
CROP_QUERIES = 6  # about a cropped picture at most
SORT_TASKS = ("order", "size")  # sorts of requests that are drawn by themselves
LISTED = 3  # objects that a "detect" suffix lists at most
OWN_WORDS = 0.5  # share of ambiguous IT2P commands that are answered as the data set does

BASE_PHOTOS, ADAPTER_PHOTOS = 0.2, 0.35  # share of the pictures that are IT2P photographs
BASE_HELD_OUT = 100  # simulated validation pictures of the base at most
DESCRIBED = 0.15  # share of the oracle's dialogues that teach the request, not an answer
UNSEEN = 0.25  # share of the answers to "i don't see a banana" that it learns
STRAY = 0.12  # share of the oracle's questions that were meant for other objects
BIG_OR_SMALL = 0.08  # share that ask for the size, whether the candidates differ in it or not
ANY_PLACE = 0.2  # share that list one of PLACE_LISTS, whether the candidates stand so or not
PLACE_LISTS = (
    ("left", "right"), ("left", "middle", "right"),
    ("upper", "lower"), ("upper", "middle", "lower"),
)  # fmt: skip
DRAWN = 0.4  # share that ask for a property drawn by DRAWN_AXES instead of the shortest one
DRAWN_AXES = {"color": 1.0, "kind": 1.0, "material": 1.0, "size": 2.0, "place": 3.0}
FAR_PLACE = 10.0  # weight of "place" where the picture alone gives the target another word
MISSED = 0.3  # share of the drawn questions with three options or more that leave out some
ORACLE_TRIES = 4  # dialogues drawn for each of its samples: clear requests have no answer
PER_PICTURE = 3  # moments of dialogues that an adapter learns on a picture


@dataclass(frozen=True)
class Query:
    """One training sample on a picture.

    suffix: the text to learn; None if only the attention is taught. meant: the objects that the
    sentence can mean. pointers: (index of a suffix token, the object that it names). ambiguous: the
    detector's label.
    """

    instruction: str
    context: str
    suffix: str | None
    meant: tuple[int, ...]
    pointers: tuple[tuple[int, int], ...]
    ambiguous: bool


Sample = tuple[Scene, list[Query]]
Ask = Callable[[Picture, np.random.Generator], list[Query]]
Change = Callable[[Query], Query | None]
"""Maps a query; None drops it."""


def unchanged(query: Query) -> Query:
    """The query."""
    return query


def base_samples(
    data: TrainingData, settings: TrainingSettings, step: int, per_picture: int
) -> list[Sample]:
    """The pictures and queries of a step of the base's stage 2."""
    rng = np.random.default_rng((settings.seed, 7, step))
    ask, crops = _base_queries(data, per_picture), CROPS if data.public else 0.0
    return _draw(data, settings.batch, rng, BASE_PHOTOS, ask, crops)


def held_out_base_samples(data: TrainingData, per_picture: int) -> dict[str, list[Sample]]:
    """Fixed validation samples of the base, by data set."""
    rng = np.random.default_rng(1)
    ask, crops = _base_queries(data, per_picture), CROPS if data.public else 0.0
    return _held_out(data, rng, ask, BASE_HELD_OUT, crops)


def adapter_samples(
    data: TrainingData,
    settings: TrainingSettings,
    step: int,
    instruction: str,
    per_picture: int = PER_PICTURE,
    change: Change = unchanged,
) -> list[Sample]:
    """The pictures and queries of a step of an adapter."""
    rng = np.random.default_rng((settings.seed, 11, step))
    ask = _moments(data, instruction, per_picture, change)
    return _draw(data, settings.batch, rng, ADAPTER_PHOTOS, ask)


def held_out_adapter_samples(
    data: TrainingData, instruction: str, *, per_picture: int = 4, change: Change = unchanged
) -> dict[str, list[Sample]]:
    """Fixed validation samples of an adapter, by data set.

    Their sentences have the forms that people use, for the threshold; training balances
    them.
    """
    ask = _moments(data, instruction, per_picture, change, balanced=False)
    return _held_out(data, np.random.default_rng(2), ask)


def one_query_each(samples: Sequence[Sample]) -> tuple[list[Sample], list[int]]:
    """The samples with one query each, and the index of the picture of each."""
    rows = [i for i, (_, queries) in enumerate(samples) for _ in queries]
    return [(scene, [query]) for scene, queries in samples for query in queries], rows


def _draw(
    data: TrainingData,
    count: int,
    rng: np.random.Generator,
    photo_share: float,
    ask: Ask,
    crops: float = 0.0,
) -> list[Sample]:
    samples: list[Sample] = []
    while len(samples) < count:
        picture = _perhaps_cropped(data.draw(rng, photo_share), rng, crops)
        if queries := ask(picture, rng):
            samples.append((picture.scene, queries))
    return samples


def _held_out(
    data: TrainingData,
    rng: np.random.Generator,
    ask: Ask,
    most: int | None = None,
    crops: float = 0.0,
) -> dict[str, list[Sample]]:
    """Fixed samples: "val" from the simulator and "photo" from IT2P, where there are any."""
    out: dict[str, list[Sample]] = {"val": [], "photo": []}
    for name, pool, count in (
        ("val", data.held_out, most),
        ("photo", data.held_out_photos, None),
    ):
        for i in range(len(pool))[:count]:
            picture = _perhaps_cropped(Picture(pool[i], record=pool.record(i)), rng, crops)
            if queries := ask(picture, rng):
                out[name].append((picture.scene, queries))
    return {name: samples for name, samples in out.items() if samples}


def _perhaps_cropped(picture: Picture, rng: np.random.Generator, share: float) -> Picture:
    """The picture, in a share of the draws cropped around one of its objects.

    One with stored features stays: some of these were cropped when they were stored.
    """
    objects = picture.scene.objects
    if picture.scene.features is not None:
        return picture
    if not share or not objects or rng.uniform() >= share:
        return picture
    found = cropped(picture.scene, int(rng.integers(len(objects))), rng)
    return picture if found is None else replace(picture, scene=found[0], subject=found[1])


def _base_queries(data: TrainingData, count: int) -> Ask:
    public = data.public_tasks

    def ask(picture: Picture, rng: np.random.Generator) -> list[Query]:
        scene = picture.scene
        if public is not None and picture.subject is not None:
            return crop_queries(scene, picture.subject, min(count, CROP_QUERIES), rng, public)
        if picture.record is None:
            return scene_queries(scene, count, rng, data.language, public)
        return photo_queries(
            picture.record, scene, picture.mirror, count, rng, data.language, public
        )

    return ask


def _moments(
    data: TrainingData,
    instruction: str,
    count: int = PER_PICTURE,
    change: Change = unchanged,
    *,
    balanced: bool = True,
) -> Ask:
    """Moments of random dialogues.

    "clarify": adapter B's replies; ANSWER: the oracle's; else the detector's samples.
    """

    def one(picture: Picture, rng: np.random.Generator) -> Query | None:
        scene, language = picture.scene, data.language
        if picture.record is not None and rng.uniform() < 0.85:
            states = photo_states(picture.record, scene, picture.mirror, rng, language)
        else:
            states = language.dialogue(scene.objects, rng, balanced=balanced)
        if not states:
            return None
        # The first moment counts most: half of the samples.
        state = states[0] if rng.uniform() < 0.5 else states[int(rng.integers(len(states)))]
        if instruction == ANSWER:
            query = oracle_query(states, scene.objects, rng, language)
            return None if query is None else change(query)
        if instruction == "clarify":
            return dialogue_query(state, scene.objects)
        return detect_query(state.context, state.candidates, instruction)

    tries = count * ORACLE_TRIES if instruction == ANSWER else count

    def ask(picture: Picture, rng: np.random.Generator) -> list[Query]:
        drawn = (query for _ in range(tries) if (query := one(picture, rng)))
        return list(islice(drawn, count))

    return ask


def box_suffix(o: SceneObject) -> str:
    """The four location tokens of an object's box."""
    y0, x0, y1, x1 = (round(v) for v in side_bins(o.box))
    return to_text((y0, x0, y1, x1))


def dialogue_query(state: DialogueState, objects: Sequence[SceneObject]) -> Query:
    """The paper's training pair: the dialogue so far, then a question or the box.

    The boxes of the objects that `DialogueState.via` counts come before the target's.
    """
    meant, instruction = state.candidates, "clarify"
    if state.question is not None:
        return Query(instruction, state.context, state.question, meant, state.options, True)
    boxes = (*state.via, meant[0])
    pointers = tuple((5 * n + k, i) for n, i in enumerate(boxes) for k in range(4))
    suffix = BETWEEN.join(box_suffix(objects[i]) for i in boxes)
    return Query(instruction, state.context, suffix, meant, pointers, False)


def oracle_query(
    states: Sequence[DialogueState],
    objects: Sequence[SceneObject],
    rng: np.random.Generator,
    language: RichGrammar,
) -> Query | None:
    """Return the person's words in a dialogue: the request (DESCRIBED), else a random answer.

    A robot that sees badly offers absent things. So a share of the questions (STRAY) was meant for
    other objects, and the person's answer tells the target from the candidates.

    None if the dialogue leaves its object open, if the person changes their mind, if there is no
    answer or it leaves the choice to the robot, or if the request is for an absent object.
    """
    if states[-1].question is not None or len(states[-1].candidates) != 1:
        return None
    (target,) = states[-1].candidates
    if any(state.candidates and target not in state.candidates for state in states):
        return None
    codes = box_suffix(objects[target])
    meant: tuple[int, ...] = (target,)
    if rng.uniform() < DESCRIBED:
        if target not in states[0].candidates:
            return None
        instruction, context, said = f"{DESCRIBE} {codes}", "", states[0].context
    elif len(states) == 1:
        return None
    else:
        at = int(rng.integers(1, len(states)))
        before = states[at - 1]
        if not before.candidates and rng.uniform() >= UNSEEN:
            return None
        start = f"{before.context} assistant: "
        question, said = _other_question(before, target, objects, rng, language) or (
            before.question,
            states[at].context.removeprefix(f"{start}{before.question} user: "),
        )
        context = f"{start}{question}"
        # The words attend to all candidates: "left" shows only beside the others.
        meant = before.candidates or meant
        if said in UNSURE:
            return None
        instruction = f"{ANSWER} {codes}"
    pointers = tuple((k, target) for k in range(len(split_words(said))))
    return Query(instruction, context, said, meant, pointers, False)


def _other_question(
    before: DialogueState,
    target: int,
    objects: Sequence[SceneObject],
    rng: np.random.Generator,
    language: RichGrammar,
) -> tuple[str, str] | None:
    """Draw another question at this moment and its answer; None keeps the dialogue's.

    A robot that sees badly asks unfit questions: a question meant for other objects (STRAY), for
    the size of objects that are equally large (BIG_OR_SMALL), for places at which the candidates do
    not stand (ANY_PLACE). The answer then says what tells the target apart. Other questions are
    about a property drawn by DRAWN_AXES (DRAWN), because a dialogue's own are about the one of the
    fewest words, seldom about size.
    """
    if target not in before.candidates:
        return None  # also after a request for an absent object
    question: str | None = None
    kind = rng.uniform()
    if kind < STRAY:
        asked = [s.question for s in language.dialogue(objects, rng) if s.question is not None]
        question = asked[int(rng.integers(len(asked)))] if asked else None
    elif kind < STRAY + BIG_OR_SMALL:
        question = _listing("size", ("big", "small"))
    elif kind < STRAY + BIG_OR_SMALL + ANY_PLACE:
        question = _listing("place", PLACE_LISTS[int(rng.integers(len(PLACE_LISTS)))])
    elif kind < STRAY + BIG_OR_SMALL + ANY_PLACE + DRAWN:
        question = _question_by_weight(before.candidates, target, objects, rng, language)
    if question is None:
        return None
    seed = int(rng.integers(2**31))
    return question, RichUser(language, objects, target, before.candidates, seed)(question)


def _listing(axis: str, options: Sequence[str]) -> str:
    """The words of a question that lists options, whatever they mean."""
    return list_options(axis, dict.fromkeys(options, (0,))).text


def _question_by_weight(
    candidates: Sequence[int],
    target: int,
    objects: Sequence[SceneObject],
    rng: np.random.Generator,
    language: RichGrammar,
) -> str | None:
    """A question about a property that tells candidates apart, drawn by DRAWN_AXES; or None.

    Some leave out options (MISSED), as more than MAX_OPTIONS have to.
    """
    splits = partitions(candidates, objects, language.nouns)
    if not splits:
        return None
    weights = {axis: DRAWN_AXES[axis] for axis in splits}
    places = [word for word, group in splits.get("place", {}).items() if target in group]
    if places and places[0] != place_in_picture(objects[target], list(splits["place"])):
        weights["place"] = FAR_PLACE
    shares = np.array(list(weights.values()))
    axis = str(rng.choice(list(weights), p=shares / shares.sum()))
    options = list(splits[axis])
    if len(options) > MAX_OPTIONS or (len(options) > 2 and rng.uniform() < MISSED):
        count = int(rng.integers(2, min(len(options), MAX_OPTIONS + 1)))
        options = [options[i] for i in sorted(rng.permutation(len(options))[:count])]
    return _listing(axis, options)


def place_in_picture(target: SceneObject, options: Sequence[str]) -> str:
    """Return the target's place by the picture alone: "left", "middle", "right", "upper", "lower".

    The picture is divided in as many equal parts as there are options.
    """
    x, y = target.center
    at = x if "left" in options else y
    return options[min(int(at * len(options)), len(options) - 1)]


def detect_query(context: str, meant: Sequence[int], instruction: str = "detect") -> Query:
    """The detector's sample: a dialogue so far, the objects to attend to, and no suffix."""
    return Query(instruction, context, None, tuple(meant), (), len(meant) != 1)


def list_query(context: str, meant: Sequence[int], objects: Sequence[SceneObject]) -> Query:
    """PaliGemma's "detect": a box and a name for each object meant, from left to right."""
    order = sorted(meant, key=lambda i: objects[i].center[0])[:LISTED]
    parts, pointers, at = [], [], 0
    for i in order:
        name = f"{objects[i].color} {objects[i].kind}"
        parts.append(f"{box_suffix(objects[i])} {name}")
        tokens = 4 + len(name.split())
        pointers += [(at + k, i) for k in range(tokens)]
        at += tokens + 1  # ";"
    suffix = " ; ".join(parts)
    return Query("detect", context, suffix, tuple(meant), tuple(pointers), len(meant) != 1)


def detection_query(entries: Entries, objects: Sequence[SceneObject]) -> Query:
    """PaliGemma's "detect" of one or more nouns: a box and its noun for each object, in order.

    Objects are named from left to right, LISTED at most; the suffix is empty if none is there.
    """
    labels = {i: text for text, found in entries for i in found}
    parts, pointers, at = [], [], 0
    for i in from_left(tuple(labels), objects)[:LISTED_IN_PUBLIC]:
        parts.append(f"{box_suffix(objects[i])} {labels[i]}")
        tokens = 4 + len(split_words(labels[i]))
        pointers += [(at + k, i) for k in range(tokens)]
        at += tokens + 1  # ";"
    context = " ; ".join(text for text, _ in entries)
    meant = tuple(labels)
    return Query("detect", context, " ; ".join(parts), meant, tuple(pointers), len(meant) != 1)


def question_query(question: TaskQuestion) -> Query:
    """PaliGemma's "answer en" with a short answer."""
    pointers: tuple[tuple[int, int], ...] = ()
    if question.named is not None:
        pointers = tuple((k, question.named) for k in range(len(question.answer.split())))
    meant, several = question.meant, len(question.meant) != 1
    return Query("answer en", question.text, question.answer, meant, pointers, several)


def caption_query(parts: Sequence[tuple[str, Sequence[int]]]) -> Query:
    """PaliGemma's "caption en": the objects from left to right."""
    pointers, at = [], 0
    for text, found in parts:
        tokens = len(text.split())
        if len(found) == 1:
            pointers += [(at + k, found[0]) for k in range(tokens)]
        at += tokens + 1  # "," or "and"
    meant = tuple(i for _, found in parts for i in found)
    suffix = caption_text([text for text, _ in parts])
    return Query("caption", "en", suffix, meant, tuple(pointers), len(meant) != 1)


def crop_queries(
    scene: Scene, subject: int, count: int, rng: np.random.Generator, public: PublicTasks
) -> list[Query]:
    """Questions about a picture that was cropped around the object `subject`."""
    return [
        question_query(public.question_about(subject, scene.objects, rng)) for _ in range(count)
    ]


def _public_query(
    scene: Scene, task: str, rng: np.random.Generator, public: PublicTasks
) -> Query | None:
    if task == "detect":
        entries = public.detection(scene.objects, rng)
        return detection_query(entries, scene.objects) if entries else None
    if task == "caption":
        return caption_query(public.caption(scene.objects))
    question = public.question(scene.objects, rng)
    return question_query(question) if question else None


def scene_queries(
    scene: Scene,
    count: int,
    rng: np.random.Generator,
    language: RichGrammar,
    public: PublicTasks | None = None,
) -> list[Query]:
    """Random queries about a scene, of all tasks; fewer than `count` if the scene gives few.

    public: the sentences of PaliGemma's public tasks, if they are learned too.
    """
    queries: list[Query] = []
    tasks = PUBLIC_TASKS if public is not None else VIA_TASKS if language.via else TASKS
    names, shares = [name for name, _ in tasks], [share for _, share in tasks]
    for task in rng.choice(names, size=2 * count, p=shares):
        if len(queries) == count:
            break
        if public is not None and task in PUBLIC_NAMES:
            query = _public_query(scene, str(task), rng, public)
        elif task == "list":
            query = _naming_query(scene, rng, language)
        else:
            query = _state_query(scene, str(task), rng, language)
        if query is not None:
            queries.append(query)
    return queries


def photo_queries(
    record: It2pImage,
    scene: Scene,
    mirror: Mirror,
    count: int,
    rng: np.random.Generator,
    language: RichGrammar,
    public: PublicTasks | None = None,
) -> list[Query]:
    """Random queries about an IT2P photograph: mostly its own, some in the simulator's language."""
    queries: list[Query] = []
    for _ in range(2 * count):
        if len(queries) == count:
            break
        query: Query | None
        if public is not None and rng.uniform() < PUBLIC_ON_PHOTOS:
            shares = [share for name, share in PUBLIC_TASKS if name in PUBLIC_NAMES]
            task = str(rng.choice(PUBLIC_NAMES, p=np.array(shares) / sum(shares)))
            query = _public_query(scene, task, rng, public)
        elif rng.uniform() < 0.25:
            query = (
                _naming_query(scene, rng, language)
                if rng.uniform() < 0.5
                else _state_query(scene, "clarify", rng, language)
            )
        else:
            states = photo_states(record, scene, mirror, rng, language)
            task = "look" if rng.uniform() < 0.2 else "clarify"
            query = _query_of(states, scene, task, rng) if states else None
        if query is not None:
            queries.append(query)
    return queries


def _naming_query(scene: Scene, rng: np.random.Generator, language: RichGrammar) -> Query | None:
    named = language.noun_phrase(scene.objects, rng)
    return list_query(named[0], named[1], scene.objects) if named else None


def _state_query(
    scene: Scene, task: str, rng: np.random.Generator, language: RichGrammar
) -> Query | None:
    if task in SORT_TASKS:
        states = language.dialogue_of_sort(scene.objects, rng, task)
    else:
        states = language.dialogue(scene.objects, rng)
    return _query_of(states, scene, task, rng) if states else None


def _query_of(
    states: Sequence[DialogueState], scene: Scene, task: str, rng: np.random.Generator
) -> Query:
    state = states[int(rng.integers(len(states)))]
    if task == "look":
        return detect_query(state.context, state.candidates)
    return dialogue_query(state, scene.objects)


def photo_states(
    record: It2pImage,
    scene: Scene,
    mirror: Mirror,
    rng: np.random.Generator,
    language: RichGrammar,
) -> list[DialogueState]:
    """A dialogue from IT2P's own commands about the (perhaps mirrored) photograph.

    scene: the photograph after augmentation, objects in the order of `record.blocks`.
    """
    ambiguous = [
        a for a in record.ambiguous if len(a.candidates) > 1 and a.text not in record.contradictory
    ]
    if ambiguous and rng.uniform() < 0.5:
        chosen = ambiguous[int(rng.integers(len(ambiguous)))]
        candidates = tuple(sorted({_block_at(record, p) for p in chosen.candidates}))
        if rng.uniform() < OWN_WORDS:
            own = _own_words(record, chosen.text, candidates, scene, mirror, rng, language)
            if own:
                return own
        text = chosen.text
    else:
        clear = [c for c in record.commands if c.text not in record.contradictory]
        if not clear:
            return []
        command = clear[int(rng.integers(len(clear)))]
        candidates, text = (_block_at(record, command.point),), command.text
    if len(candidates) == 1 and text in {a.text for a in ambiguous}:
        return []
    return language.dialogue_from(mirrored_text(text, mirror), candidates, scene.objects, rng)


def _own_words(
    record: It2pImage,
    text: str,
    candidates: tuple[int, ...],
    scene: Scene,
    mirror: Mirror,
    rng: np.random.Generator,
    language: RichGrammar,
) -> list[DialogueState]:
    """An ambiguous command, a question, and the data set's own answer; [] if it has none.

    IT2P's people answer in one word ("lowerright"), often another word than the question offers.
    """
    dialogues = [d for d in record.interactive if d.text == text]
    if not dialogues:
        return []
    dialogue = dialogues[int(rng.integers(len(dialogues)))]
    first, *_ = language.dialogue_from(mirrored_text(text, mirror), candidates, scene.objects, rng)
    if first.question is None:
        return []
    word = mirrored_text(dialogue.answers[int(rng.integers(len(dialogue.answers)))], mirror)
    context = f"{first.context} assistant: {first.question} user: {word}"
    return [first, DialogueState(context, (_block_at(record, dialogue.point),), None)]


def _block_at(record: It2pImage, point: tuple[float, float]) -> int:
    distance = [np.hypot(b.point[0] - point[0], b.point[1] - point[1]) for b in record.blocks]
    return int(np.argmin(distance))

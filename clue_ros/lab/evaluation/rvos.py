"""Requests about videos: ask or point in the first frame, then follow what was found.

clue eval rvos --data data/clips --tracker flow              what `clue data clips` wrote
clue eval rvos --data DIR --layout mevis --split valid_u     a published data set

Five ways to the masks of a video:

true mask    the object's true mask in the first frame that shows it, then the tracker
true box     its true box there; the tracker makes the first mask
never ask    the box that the model points at in the first frame when it may not ask
dialogue     the box at the end of a dialogue in which a simulated person answers (`clips` only); a
             dialogue that ends without a box has no mask in any frame
key frame    the same by an agent that then chooses one of six frames and points there
             (`video_agent`); the tracker goes from it to both ends

`clue_ros.lab.tracks` has the measures J, F and J&F of a frame. A video's figure is the mean over
all its frames but those before the first true mask and, for `true mask` and `true box`, the frame
that was given. (vos-benchmark leaves out the first and the last frame and those before an object's
first label.)
"""

from __future__ import annotations

import argparse
import math
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.conversation import Conversation, converse
from clue_ros.dialogue.types import MAX_QUESTIONS, Box, Dialogue, Grounding, Question
from clue_ros.errors import ClueError
from clue_ros.lab.data.video_layouts import LAYOUTS, video_requests
from clue_ros.lab.data.videos import Known, Mask, Video, VideoRequest
from clue_ros.lab.evaluation.options import PolicyOptions, RecordsOptions, measured, note
from clue_ros.lab.language.chat_agent import ChatAgent, ChatModel
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.simulated_user import RichUser
from clue_ros.lab.language.video_agent import Episode, GrounderAgent, hold_episode, seen_frames
from clue_ros.lab.metrics import MIN_IOU, mean, rounded
from clue_ros.lab.options import add_options, at_least, option, read_options, required
from clue_ros.lab.report import Cell, table, with_progress
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD
from clue_ros.lab.tracks import Image, contour_accuracy, region_similarity, tracked
from clue_ros.model.trackers import FLOW, check_tracker, make_tracker
from clue_ros.model.tracking import box_of

WAYS = ("true mask", "true box", "never ask", "dialogue", "key frame")
TRUE_MASK, TRUE_BOX, NEVER, DIALOGUE, KEY_FRAME = WAYS
GIVEN = (TRUE_MASK, TRUE_BOX)
CHAT = "chat:"  # before the name of a chat model
CLEAR, AMBIGUOUS = GROUPS = ("clear", "ambiguous")
Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RvosOptions:
    """The options of ``clue eval rvos``."""

    data: Path = required("folder of the data set", metavar="DIR")
    layout: str = option("clips", "its layout", choices=tuple(LAYOUTS))
    split: str = option("test", "part of the data set")
    tracker: str = option(FLOW, "flow, or sam2: and a hub id or folder")
    ways: tuple[str, ...] = option(WAYS, "ways to the masks to measure", nargs="+", choices=WAYS)
    agent: str | None = option(
        None,
        "an adapter B that decides alone whether to ask, as of `clue train grpo` (the same as --ivg"
        " DIR --policy decoder), or chat: and a hub id or folder of a chat model that sees",
        metavar="DIR",
    )
    world: str = option(DEFAULT_WORLD, "world whose words the simulated person speaks")
    max_turns: int = option(MAX_QUESTIONS, "largest number of questions", type=at_least(0))
    limit: int | None = option(None, "use the first N requests only", type=at_least(1))
    seed: int = option(0, "seed of the simulated person")
    model: PolicyOptions
    output: RecordsOptions


@dataclass
class Results:
    """One record for each request and way, and the problems.

    seconds, steps: processor time and number of the tracker's steps.
    """

    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    steps: int = 0

    def of(self, way: str, group: str) -> list[Record]:
        """The records of a way and a group of requests."""
        return [r for r in self.records if (r["way"], r["group"]) == (way, group)]

    def summary(self) -> dict[str, Any]:
        """By way, then by group; and the tracker's frames a second of one core."""
        found: dict[str, Any] = {
            way: {group: _figures(records) for group in GROUPS if (records := self.of(way, group))}
            for way in WAYS
        }
        found = {way: groups for way, groups in found.items() if groups}
        fps = self.steps / self.seconds if self.steps else math.nan
        speed = {"frames": self.steps, "fps": rounded(fps)}
        return found | {"tracker": speed, "left_out": len(self.problems)}

    def text(self, *, markdown: bool = False) -> str:
        """The same as a table."""
        rows: list[list[Cell]] = []
        for way, groups in self.summary().items():
            if way not in WAYS:
                continue
            for group, f in groups.items():
                asked = f.get("asked")
                rows.append(
                    [way, group, f["n"], f["j"], f["f"], f["jf"], f["right"], f["jf_right"],
                     "" if asked is None else asked, f.get("questions", ""), f.get("useless", "")]
                )  # fmt: skip
        head = ["way", "requests", "n", "J", "F", "J&F", "right", "J&F if right", "asked",
                "questions", "useless"]  # fmt: skip
        return table(head, rows, markdown=markdown)


def _figures(records: Sequence[Record]) -> dict[str, Any]:
    """The means of records of one way and group. right: IoU of 0.5 in the frame of the box."""

    def mean_of(key: str, chosen: Sequence[Record]) -> float | None:
        return rounded(mean([float(r[key]) for r in chosen]))

    right = [r for r in records if r["right"]]
    out: dict[str, Any] = {"n": len(records), "n_right": len(right)}
    out |= {key: mean_of(key, records) for key in ("j", "f", "jf", "right")}
    out["jf_right"] = mean_of("jf", right)
    if "asked" in records[0]:
        asked = max(1, sum(r["questions"] for r in records))
        out |= {key: mean_of(key, records) for key in ("asked", "questions")}
        out |= {key: rounded(sum(r[key] for r in records) / asked) for key in ("useless", "bits")}
    return out


def measure(clue: Any, requests: Iterable[VideoRequest], options: RvosOptions) -> Results:
    """Measure each way on each request.

    clue: a `Grounder`, a `ChatModel` for the way "key frame", or None where no way needs one.
    """
    out, given = Results(), dict[Any, Record]()
    video: Video | None = None
    for request in requests:
        try:
            if video is None or video.request.target != request.target:
                video = Video.read(request)
            video.request = request
            about = {
                "request": request.name,
                "text": request.text,
                "ability": request.ability,
                "group": CLEAR if request.count < 2 else AMBIGUOUS,
            }
            for way in options.ways:
                box, more, frame = None, Record(), 0
                if way == NEVER:
                    box = _pointed(video, clue)
                elif way in (DIALOGUE, KEY_FRAME):
                    if request.known is None:
                        continue
                    if way == DIALOGUE:
                        box, more = _talked(request.known, video, options, clue)
                    else:
                        frame, box, more = _acted(request.known, video, options, clue)
                key = (way if way in GIVEN else "", request.target, frame, box)
                if key not in given:  # requests that mean the same share it
                    given[key] = _follow(out, video, options, way, box, frame)
                out.records.append(about | {"way": way} | given[key] | more)
        except ClueError as error:
            out.problems.append(f"{request.name}: {error}")
    return out


def _pointed(video: Video, clue: Any) -> Box | None:
    """The box that the model points at in the first frame; it may not ask."""
    dialogue = Dialogue(video.request.text)
    reply = clue.reply(clue.look(video.frames[0]), dialogue, force_grounding=True)
    return reply.box if isinstance(reply, Grounding) else None


class _Person:
    """The simulated person of a request, and the conversation with them.

    conversation: None where nothing of the request reaches the model; code: why.
    """

    def __init__(self, known: Known, video: Video, options: RvosOptions) -> None:
        name, text = video.request.name, video.request.text
        seed = options.seed + zlib.crc32(name.encode())  # the same in any order
        grammar = grammar_of(options.world)
        self.user = RichUser(grammar, known.objects, known.target, known.candidates, seed)
        self.size = video.frames[0].shape[1::-1]
        self.first, self.text, self.code = len(known.candidates), text, ""
        self.conversation: Conversation | None = None
        try:
            self.conversation = Conversation(text, max_questions=options.max_turns)
        except ClueError as error:
            self.code = error.code

    def __call__(self, asked: Question) -> str:
        if len(asked.candidates) == 1 and "yes" in asked.suggested_answers:
            return self.user.confirms(asked.candidates[0], *self.size)
        return self.user(asked.text)

    def about(self, code: str) -> Record:
        """Return the record of the questions and the end."""
        held = self.conversation
        asked = 0 if held is None else held.questions
        bits = math.log2(self.first / max(1, len(self.user.candidates)))
        return {
            "asked": asked > 0,
            "questions": asked,
            "useless": self.user.useless,
            "bits": round(max(0.0, bits), 4),
            "outcome": code,
            "dialogue": self.text if held is None else held.dialogue.context(),
        }


def _talked(
    known: Known, video: Video, options: RvosOptions, clue: Any
) -> tuple[Box | None, Record]:
    """Return the box of a dialogue about the first frame with a simulated person, and the words."""
    person = _Person(known, video, options)
    if person.conversation is None:
        return None, person.about(person.code)
    outcome = converse(clue, clue.look(video.frames[0]), person.conversation, person)
    assert outcome is not None  # the person answers every question
    found = outcome.grounding.box if outcome.grounding is not None else None
    return found, person.about(outcome.code)


def _acted(
    known: Known, video: Video, options: RvosOptions, clue: Any
) -> tuple[int, Box | None, Record]:
    """Return the key frame and the box of an agent's episode, and the words."""
    person = _Person(known, video, options)
    episode, shown = Episode(code=person.code), seen_frames(len(video.frames))
    if person.conversation is not None:
        frames = [video.frames[n] for n in shown]
        chats = isinstance(clue, ChatModel)
        agent = ChatAgent(clue, frames) if chats else GrounderAgent(clue, frames)
        episode = hold_episode(agent, person.conversation, person)
    frame, found = shown[episode.frame], episode.found
    about = person.about(episode.code) | {"frame": frame, "turns": len(episode.actions)}
    return frame, None if found is None else found.box, about


def _follow(
    out: Results, video: Video, options: RvosOptions, way: str, box: Box | None, first: int
) -> Record:
    """Follow an object through a video, and measure its masks. box: in the frame `first`."""
    first = video.begin if way in GIVEN else first
    truth = video.truth
    if way in GIVEN:
        box = box_of(truth[first])
    if box is None:
        masks = [np.zeros_like(mask) for mask in truth]
    else:
        given = truth[first] if way == TRUE_MASK else None
        before = video.frames[first::-1] if way == KEY_FRAME else video.frames[first : first + 1]
        masks = _tracked(out, options, before, box, given)[::-1]
        masks[:0] = [np.zeros_like(mask) for mask in truth[: first + 1 - len(masks)]]
        masks += _tracked(out, options, video.frames[first:], box, given)[1:]
    counted = range(first + 1 if way in GIVEN else video.begin, len(masks))
    j = [region_similarity(masks[n], truth[n]) for n in counted]
    f = [contour_accuracy(masks[n], truth[n]) for n in counted]
    right = box is not None and bool(
        truth[first].any() and box.iou(box_of(truth[first])) >= MIN_IOU
    )
    mean_j, mean_f = mean(j), mean(f)
    figures = {"j": mean_j, "f": mean_f, "jf": (mean_j + mean_f) / 2}
    return {k: rounded(v) for k, v in figures.items()} | {"right": right}


def _tracked(
    out: Results, options: RvosOptions, frames: Sequence[Image], box: Box, given: Mask | None
) -> list[Mask]:
    """The masks of an object in frames that follow one another; box, given: in the first one."""
    found = tracked(make_tracker(options.tracker, options.model.device), frames, box, given)
    masks = [next(found)]
    for _ in frames[1:]:
        begin = time.process_time()
        masks.append(next(found))
        out.seconds += time.process_time() - begin
        out.steps += 1
    return masks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval rvos``."""
    add_options(parser, RvosOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval rvos``; the exit status."""
    options = read_options(RvosOptions, args)
    check_tracker(options.tracker)
    chats = options.agent is not None and options.agent.startswith(CHAT)
    if chats and (others := set(options.ways) - {*GIVEN, KEY_FRAME}):
        raise ClueError(f"a chat model has no way {', '.join(sorted(others))}: give other --ways")
    if options.agent is not None and not chats:
        alone = replace(options.model, ivg=options.agent, policy="decoder")
        options = replace(options, model=alone)
    problems: list[str] = []

    def chosen() -> Iterator[VideoRequest]:
        found = video_requests(options.layout, options.data, options.split, problems.append)
        for number, request in enumerate(found):
            if number == options.limit:
                return
            yield request

    wants_model = bool(set(options.ways) - {*GIVEN})
    clue: Any = None
    if wants_model and chats:
        clue = ChatModel.load(str(options.agent).removeprefix(CHAT), options.model.device)
    elif wants_model:
        clue = options.model.load()
    result = measure(clue, with_progress(chosen()), options)
    result.problems[:0] = problems
    note(result.problems)
    if not result.records:
        raise ClueError(f"no request of {options.data} could be measured")
    options.output.write_records(result.records)
    options.output.show(
        result.summary(),
        lambda markdown: result.text(markdown=markdown),
        {} if clue is None else measured(clue),
    )
    return 0

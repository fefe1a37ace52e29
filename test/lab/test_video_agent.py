"""The agent of videos: its actions and turns, the key frame, the masks on both sides of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from evaluation_helpers import parsed
from moving_pictures import cut_out, moving
from PIL import Image
from tiny_language_model import write_random_chat_model

from clue_ros.dialogue.conversation import Conversation
from clue_ros.dialogue.types import (
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Question,
    asked_about,
)
from clue_ros.errors import ModelError
from clue_ros.lab.data.videos import Known, VideoRequest
from clue_ros.lab.evaluation.rvos import RvosOptions, measure
from clue_ros.lab.language.chat_agent import ChatAgent, ChatModel, read_action
from clue_ros.lab.language.video_agent import (
    MAX_TURNS,
    Action,
    AskPerson,
    Done,
    GrounderAgent,
    KeyFrame,
    Segment,
    hold_episode,
)
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.model.tracking import box_of

BOX = Box(10, 20, 30, 40)
UNSURE = AmbiguityEstimate(0.9, 0.5, np.zeros((2, 2), np.float32), (), 0.0)
WHICH = Question("the red one or the blue one?", (), ("the red one", "the blue one"), UNSURE)


class Scripted:
    """An agent that acts as it was told, and remembers what it heard and whether it might ask."""

    def __init__(self, *actions: Action) -> None:
        self.actions, self.heard, self.might_ask = list(actions), "", list[bool]()

    def act(self, dialogue: Dialogue, done: Sequence[Action], *, may_ask: bool) -> Action:
        """See `Agent`."""
        self.heard = dialogue.context()
        self.might_ask.append(may_ask)
        return self.actions[len(done)]


def test_an_episode_asks_chooses_a_key_frame_and_segments() -> None:
    agent = Scripted(AskPerson(WHICH), KeyFrame(4), Segment(BOX, BOX.center))
    episode = hold_episode(agent, Conversation("the mug"), lambda question: "the red one")
    assert agent.heard.endswith("user: the red one")
    assert (episode.code, episode.frame, episode.found) == ("NONE", 4, Segment(BOX, (20, 30)))
    assert len(episode.actions) == 3


def test_an_episode_ends_after_its_turns_the_last_two_without_questions() -> None:
    agent = Scripted(*[KeyFrame(n) for n in range(8)])
    episode = hold_episode(agent, Conversation("the mug"), str)
    assert (len(episode.actions), episode.code, episode.found) == (MAX_TURNS, "MAX_TURNS", None)
    assert agent.might_ask == [True] * 4 + [False] * 2


def test_an_episode_ends_without_an_object() -> None:
    assert (
        hold_episode(Scripted(Done("NOT_FOUND")), Conversation("the mug"), str).code == "NOT_FOUND"
    )
    # The conversation has its own limit, and the person may not want it any more.
    often = Scripted(*[AskPerson(WHICH)] * 4)
    held = hold_episode(often, Conversation("the mug", max_questions=2), lambda _: "the red one")
    assert (held.code, held.found) == ("MAX_TURNS", None)
    refused = hold_episode(Scripted(AskPerson(WHICH)), Conversation("the mug"), lambda _: "stop")
    assert (refused.code, refused.found) == ("CANCELED", None)


def test_a_yes_to_the_only_candidate_is_the_box() -> None:
    shown = asked_about(Grounding(BOX, "mug", 0.4, UNSURE), "Do you mean this one?")
    episode = hold_episode(Scripted(AskPerson(shown)), Conversation("the mug"), lambda _: "yes")
    assert episode.found == Segment(BOX, BOX.center)
    assert (episode.frame, episode.code) == (0, "NONE")


class Seeing:
    """A grounder that asks once about the first frame, and is surest in one of the frames."""

    def __init__(self, boxes: Sequence[Box], surest: int) -> None:
        self.boxes, self.surest, self.looks, self.device = boxes, surest, 0, "cpu"

    def look(self, image: npt.NDArray[np.uint8]) -> int:
        """The number of the picture."""
        self.looks += 1
        return (self.looks - 1) % len(self.boxes)

    def reply(
        self, view: int, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Ask first, then point."""
        if not force_grounding and len(dialogue.turns) == 1:
            return WHICH
        return Grounding(self.boxes[view], "mug", 0.9 if view == self.surest else 0.5, UNSURE)


def test_the_key_frame_is_the_one_with_the_surest_box() -> None:
    boxes = [BOX.moved(n, 0) for n in range(6)]
    agent = GrounderAgent(Seeing(boxes, 2), [np.zeros((9, 9, 3), np.uint8)] * 6)
    episode = hold_episode(agent, Conversation("the mug"), lambda _: "the red one")
    kinds = [type(action) for action in episode.actions]
    assert kinds == [AskPerson, KeyFrame, Segment]
    assert episode.frame == 2
    assert episode.found is not None
    assert episode.found.box == boxes[2]


@pytest.fixture
def clip(tmp_path: Path) -> VideoRequest:
    """A ball that flies over cutlery; the request means it or a block that nobody sees."""
    thing = cut_out("volleyball.jpg", Box(6, 6, 314, 314), 150)
    paths, masks = list[Path](), list[npt.NDArray[np.bool_]]()
    for n, (frame, mask) in enumerate(moving(thing, "cutlery.jpg", frames=8)):
        paths.append(tmp_path / f"{n:05d}.png")
        Image.fromarray(frame).save(paths[-1])
        masks.append(mask)
    objects = (
        SceneObject("ball", "red", (0.1, 0.1, 0.3, 0.3)),
        SceneObject("ball", "blue", (0.6, 0.6, 0.8, 0.8)),
    )
    known = Known(objects, 0, (0, 1))
    return VideoRequest(
        "clip 0", "ball", tuple(paths), "the ball", masks.__getitem__, "simple", 2, known
    )


def test_the_object_is_followed_from_the_key_frame_to_both_ends(clip: VideoRequest) -> None:
    shown = [0, 1, 3, 4, 6, 7]
    wrong = Box(0, 0, 40, 40)
    boxes = [box_of(clip.truth(n)) if n == 4 else wrong for n in shown]
    options = parsed(RvosOptions, "--data", "x", "--ways", "key frame", "dialogue")
    found = measure(Seeing(boxes, 3), [clip], options)
    assert not found.problems
    key, first = found.of("key frame", "ambiguous")[0], found.of("dialogue", "ambiguous")[0]
    assert (key["frame"], key["turns"], key["questions"], key["outcome"]) == (4, 3, 1, "NONE")
    assert key["right"]
    assert key["jf"] > 0.9  # in all frames, those before it too
    assert not first["right"]
    assert first["jf"] < 0.1
    assert json.dumps(found.summary()["key frame"]["ambiguous"]["asked"]) == "1.0"


class Doubting(Seeing):
    """A grounder that asks about each of its boxes in turn whether it is meant."""

    def reply(
        self, view: int, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Show the next box that was not refused."""
        left = [box for box in self.boxes if box not in dialogue.refused]
        return asked_about(Grounding(left[0], "ball", 0.4, UNSURE), "Do you mean this one?")


def test_the_person_confirms_the_box_that_is_meant_alone(clip: VideoRequest) -> None:
    assert clip.known is not None
    height, width = clip.load(0).shape[:2]
    meant, other = (Box(*o.box).in_pixels(width, height) for o in clip.known.objects)
    options = parsed(RvosOptions, "--data", "x", "--ways", "dialogue", "key frame")
    found = measure(Doubting([other, meant], 0), [clip], options)
    assert not found.problems
    for record in found.records:
        assert record["dialogue"].count("Do you mean this one?") == 2
        assert record["dialogue"].endswith("user: yes")
        said = record["dialogue"].split("user: ")[1]
        assert "yes" not in said
        assert (record["outcome"], record["questions"], record["bits"]) == ("NONE", 2, 1.0)


def test_the_person_says_whether_it_is_the_one_thing_that_is_seen(clip: VideoRequest) -> None:
    assert clip.known is not None
    height, width = clip.load(0).shape[:2]
    box = Box(*clip.known.objects[0].box).in_pixels(width, height)

    class Lacking(Seeing):
        """A grounder that has no word for a ball, and sees one thing."""

        def reply(
            self, view: int, dialogue: Dialogue, *, force_grounding: bool = False
        ) -> Question | Grounding:
            """Ask whether it is that."""
            text = "I don't know what a ball is. I see a mug. Is it that?"
            return NotFound(text, (box,), ("yes", "no"), UNSURE, "a ball", "ball")

    options = parsed(RvosOptions, "--data", "x", "--ways", "dialogue")
    (record,) = measure(Lacking([box], 0), [clip], options).records
    assert (record["dialogue"].split("user: ")[1], record["outcome"]) == ("yes", "NONE")


def test_the_agent_option_lets_an_adapter_decide_alone(
    random_model: Path, tmp_path: Path, capsys: Any
) -> None:
    from clue_ros.cli import main

    words = ["eval", "rvos", "--data", str(tmp_path), "--model", str(random_model)]
    assert main([*words, "--ways", "key frame", "--agent", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main([*words, "--ways", "dialogue", "--agent", "chat:x/y"]) == 2
    assert "a chat model has no way dialogue" in capsys.readouterr().err


BOX_FORM = '<think>the red one</think>{"bbox_2d": [100, 200, 300, 400], "point_2d": [150, 250]}'


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (BOX_FORM, Segment(Box(20, 20, 60, 40), (30, 25))),
        ("bbox_2d: [300, 400, 100, 200]", Segment(Box(20, 20, 60, 40), (40, 30))),
        ("{'bbox_2d': ['0.1', '0.2', '0.3', '0.4']}", Segment(Box(20, 20, 60, 40), (40, 30))),
        ('{"bbox_2d": [0, 0, 0, 0], "point_2d": [0, 0]}', Done("NOT_FOUND")),
        ("<think>keyframe 1 or 2?</think> <keyframe>3</keyframe>", KeyFrame(3)),
        ("The key frame is: 2.", KeyFrame(2)),
        ("<keyframe>-1</keyframe>", Done("NOT_FOUND")),
        ("<keyframe>6</keyframe>", Done("NOT_FOUND")),
        ("I cannot tell", Done("BAD_FORM")),
        ("<think>never ends <keyframe>2</keyframe>", Done("BAD_FORM")),
    ],
)
def test_forms_of_a_chat_model_are_read_forgivingly(text: str, action: Action) -> None:
    found = read_action(text, 6, 200, 100)
    if isinstance(found, Segment) and isinstance(action, Segment):
        assert found.box.as_list() == pytest.approx(action.box.as_list())
        assert found.point == pytest.approx(action.point)
    else:
        assert found == action


def test_a_call_of_a_chat_model_is_a_question() -> None:
    for text in (
        'think<call>{"name": "vlm_tool", "query": "is the target red or blue?"}</call>',
        "{'name': 'vlm_tool', 'query': 'is the target red\n or blue?'}",
    ):
        action = read_action(text, 6, 200, 100)
        assert isinstance(action, AskPerson)
        assert action.question.text == "is the target red or blue?"
        assert action.question.suggested_answers == ("red", "blue")


class Chats:
    """A chat model that says what it was told to, and keeps the last chat."""

    def __init__(self, *replies: str) -> None:
        self.replies, self.chat = list(replies), list[Any]()

    def say(self, messages: list[dict[str, Any]]) -> str:
        """The next reply."""
        self.chat = messages
        return self.replies.pop(0)


def test_a_chat_model_holds_an_episode() -> None:
    model = Chats(
        '<call>{"name": "vlm_tool", "query": "is the target red or blue?"}</call>',
        "<keyframe>4</keyframe>",
        BOX_FORM,
    )
    frames = [np.full((100, 200, 3), n, np.uint8) for n in range(6)]
    episode = hold_episode(
        ChatAgent(model, frames), Conversation("the mug"), lambda _: "the red one"
    )
    assert (episode.code, episode.frame) == ("NONE", 4)
    assert episode.found is not None
    assert episode.found.box.as_list() == pytest.approx([20, 20, 60, 40])
    roles = [message["role"] for message in model.chat]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    pictures = [c["image"] for m in model.chat for c in m["content"] if c["type"] == "image"]
    assert [picture.getpixel((0, 0))[0] for picture in pictures] == [0, 1, 2, 3, 4, 5, 4]
    assert "<information>the red one</information>" in model.chat[3]["content"][0]["text"]


def test_a_chat_model_that_points_before_it_chose_a_frame_is_done() -> None:
    frames = [np.zeros((9, 9, 3), np.uint8)] * 6
    episode = hold_episode(ChatAgent(Chats(BOX_FORM), frames), Conversation("the mug"), str)
    assert (episode.code, episode.found) == ("BAD_FORM", None)


def test_a_chat_model_is_loaded_by_name_and_sees_the_frames(tmp_path: Path) -> None:
    model = ChatModel.load(str(write_random_chat_model(tmp_path)), "cpu")
    frames = [np.full((40, 60, 3), 40 * n, np.uint8) for n in range(6)]
    model.max_new_tokens = 8
    agent = ChatAgent(model, frames)
    said = agent.act(Conversation("the mug").dialogue, [], may_ask=True)
    assert isinstance(said, Done)  # it knows nothing


def test_a_model_that_does_not_chat_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot load the chat model"):
        ChatModel.load(str(tmp_path), "cpu")

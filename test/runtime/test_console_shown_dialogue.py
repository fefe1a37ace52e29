"""Which dialogue the live page shows, where messages of perception are missing or late."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from clue_ros.console.choosing import ShownQuestion
from clue_ros.console.live import LivePage
from clue_ros.console.robot import ShownObject, State, Status
from clue_ros.console.shown_dialogue import ShownDialogue
from clue_ros.dialogue.types import Box

MAP = np.ones((2, 2), np.float32)


@pytest.fixture
def dialogue() -> ShownDialogue:
    """A page whose perception waits for a request."""
    made = ShownDialogue(LivePage())
    made.show_status(Status("idle"), "")
    return made


def shown(dialogue: ShownDialogue) -> dict[str, Any]:
    """What a page that is opened now shows: question, box, map, and requests."""
    taken = dialogue.page.join(lambda: None).take()
    messages = [json.loads(message) for message in taken if isinstance(message, str)]
    parts = {message["type"]: message for message in messages}
    return {
        "state": parts["status"]["state"],
        "question": parts.get("question", {}).get("text"),
        "box": (parts.get("grounding", {}).get("object") or {}).get("label"),
        "map": parts.get("attention", {}).get("values") is not None,
        "requests": [m["text"] for m in messages if m["type"] == "turn" and m["speaker"] == "user"],
    }


def an_object(label: str) -> ShownObject:
    return ShownObject(Box(0, 0, 1, 1), label)


def tell(dialogue: ShownDialogue, name: str, request: str, *states: State) -> None:
    for state in states:
        dialogue.show_status(Status(state, name), request)


NEXT: list[tuple[str, State]] = [
    ("two", "thinking"),
    ("two", "ended"),
    ("", "looking"),
    ("", "thinking"),
    ("", "ended"),
]


@pytest.mark.parametrize(("name", "state"), NEXT)
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "open"])
def test_a_new_request_removes_what_is_shown_of_the_dialogue_before(
    dialogue: ShownDialogue, name: str, state: State, ended: bool
) -> None:
    """Also where the last states of the one and the first ones of the other were missed."""
    tell(dialogue, "one", "pick up the cup", "thinking")
    dialogue.show_attention(MAP)
    tell(dialogue, "one", "pick up the cup", "waiting")
    dialogue.page.show_question(ShownQuestion("which cup?", ()))
    assert shown(dialogue)["question"] == "which cup?"
    if ended:
        dialogue.show_grounding("one", an_object("the cup"))
        tell(dialogue, "one", "pick up the cup", "ended")
        assert shown(dialogue)["box"] == "the cup"
    assert shown(dialogue)["map"]
    assert dialogue.is_open is not ended
    tell(dialogue, name, "pick up the can", state)
    assert shown(dialogue) == {
        "state": state,
        "question": None,
        "box": None,
        "map": False,
        "requests": ["pick up the cup", "pick up the can"],
    }


def test_what_comes_before_the_first_state_of_its_dialogue_stays(dialogue: ShownDialogue) -> None:
    tell(dialogue, "one", "pick up the cup", "ended")
    dialogue.show_attention(MAP)
    dialogue.show_grounding("two", an_object("the can"))
    tell(dialogue, "two", "pick up the can", "ended")
    assert (shown(dialogue)["box"], shown(dialogue)["map"]) == ("the can", True)


def test_a_box_that_comes_after_the_next_dialogue_has_begun_is_not_shown(
    dialogue: ShownDialogue,
) -> None:
    tell(dialogue, "one", "pick up the cup", "thinking")
    tell(dialogue, "two", "pick up the can", "looking")
    dialogue.show_grounding("one", an_object("the cup"))
    assert shown(dialogue)["box"] is None


def test_a_second_request_of_the_service_in_the_same_words_begins_anew(
    dialogue: ShownDialogue,
) -> None:
    tell(dialogue, "", "pick up the cup", "thinking")
    dialogue.show_attention(MAP)
    tell(dialogue, "", "pick up the cup", "ended")
    assert shown(dialogue)["map"]
    tell(dialogue, "", "pick up the cup", "thinking")
    assert not shown(dialogue)["map"]


def test_a_request_is_in_the_chat_once(dialogue: ShownDialogue) -> None:
    tell(dialogue, "of another node", "pick up the can", "thinking", "ended")
    dialogue.show_turn("user", " pick up the cup ")
    tell(dialogue, "said here", "pick up the cup", "looking", "thinking")
    assert shown(dialogue)["requests"] == ["pick up the can", " pick up the cup "]


@pytest.mark.parametrize(("state", "requests"), [("ended", []), ("looking", ["pick up the can"])])
def test_an_old_dialogue_is_not_in_the_chat_of_a_page_that_comes_later(
    state: State, requests: list[str]
) -> None:
    dialogue = ShownDialogue(LivePage())
    assert (shown(dialogue)["state"], dialogue.is_lost) == ("lost", True)
    dialogue.find()
    assert (shown(dialogue)["state"], dialogue.is_lost) == ("inactive", False)
    tell(dialogue, "one", "pick up the can", state)
    assert shown(dialogue)["requests"] == requests
    dialogue.lose()
    assert (shown(dialogue)["state"], dialogue.is_lost) == ("lost", True)

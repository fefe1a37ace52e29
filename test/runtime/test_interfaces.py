"""The interfaces of clue_msgs: complete, documented field by field, and usable from Python."""

import re
from pathlib import Path
from typing import Any

import pytest

from scripts import message_docs

CLUE_MSGS = Path(__file__).resolve().parents[2] / "clue_msgs"
FILES = sorted(p for kind in ("msg", "srv", "action") for p in (CLUE_MSGS / kind).iterdir())

HEADER = {"header": "std_msgs/Header"}
IMAGE = "sensor_msgs/Image"
DURATION = "builtin_interfaces/Duration"
ERROR = {"error_code": "uint16", "error_msg": "string"}
ERROR_CODES = {
    "NONE": 0,
    "INACTIVE": 1,
    "NO_IMAGE": 2,
    "STALE_IMAGE": 3,
    "BAD_IMAGE": 4,
    "EMPTY_EXPRESSION": 5,
    "BUSY": 6,
    "MODEL_ERROR": 7,
    "ANSWER_TIMEOUT": 8,
    "MAX_TURNS": 9,
    "CANCELED": 10,
    "BAD_EXPRESSION": 11,
    "UNKNOWN_DIALOGUE": 12,
    "NOT_FOUND": 13,
}

# The public contract; a change here is a change for every caller.
MESSAGES = {
    "BoundingBox": {"x_min": "float", "y_min": "float", "x_max": "float", "y_max": "float"},
    "GroundedObject": HEADER
    | {
        "image_width": "uint32",
        "image_height": "uint32",
        "label": "string",
        "score": "float",
        "box": "clue_msgs/BoundingBox",
        "roi": "sensor_msgs/RegionOfInterest",
        "mask": IMAGE,
        "has_pose": "boolean",
        "no_pose_reason": "string",
        "pose": "geometry_msgs/PoseStamped",
        "size": "geometry_msgs/Vector3",
    },
    "AmbiguityEstimate": HEADER
    | {
        "expression": "string",
        "probability": "float",
        "threshold": "float",
        "is_ambiguous": "boolean",
        "attention_map": IMAGE,
        "peaks": "sequence<clue_msgs/BoundingBox>",
        "inference_time": DURATION,
    },
    "DialogueTurn": {"speaker": "uint8", "text": "string", "stamp": "builtin_interfaces/Time"},
    "DialogueState": HEADER
    | ERROR
    | {
        "dialogue_id": "string",
        "expression": "string",
        "state": "uint8",
        "question": "clue_msgs/ClarificationQuestion",
        "grounded": "boolean",
    },
    "ClarificationQuestion": HEADER
    | {
        "dialogue_id": "string",
        "turn": "uint32",
        "text": "string",
        "candidates": "sequence<clue_msgs/GroundedObject>",
        "suggested_answers": "sequence<string>",
        "answer_timeout": DURATION,
    },
    "AudioChunk": HEADER
    | {"sample_rate": "uint32", "channels": "uint8", "data": "sequence<int16>"},
    "Speaking": HEADER | {"is_speaking": "boolean", "text": "string", "remaining": DURATION},
    "Transcript": HEADER
    | {
        "text": "string",
        "confidence": "float",
        "language": "string",
        "is_final": "boolean",
        "status": "uint8",
        "unaided_text": "string",
        "engine": "string",
        "duration": DURATION,
        "latency": DURATION,
    },
    "GroundingResult": HEADER
    | {
        "dialogue_id": "string",
        "expression": "string",
        "target": "clue_msgs/GroundedObject",
        "ambiguity": "clue_msgs/AmbiguityEstimate",
        "dialogue": "sequence<clue_msgs/DialogueTurn>",
    },
}


def fields(interface: Any) -> dict[str, str]:
    return dict(interface.get_fields_and_field_types())


@pytest.mark.parametrize("name", MESSAGES)
def test_message_has_the_fields_of_the_contract(name: str) -> None:
    import clue_msgs.msg

    assert fields(getattr(clue_msgs.msg, name)) == MESSAGES[name]


def test_ground_service_has_the_fields_of_the_contract() -> None:
    from clue_msgs.srv import Ground

    assert fields(Ground.Request) == {
        "expression": "string",
        "image": IMAGE,
        "depth": IMAGE,
        "camera_info": "sensor_msgs/CameraInfo",
        "force_grounding": "boolean",
    }
    assert fields(Ground.Response) == ERROR | {
        "is_question": "boolean",
        "question": "clue_msgs/ClarificationQuestion",
        "grounding": "clue_msgs/GroundingResult",
    }


def test_answer_service_has_the_fields_of_the_contract() -> None:
    from clue_msgs.srv import AnswerClarification

    assert fields(AnswerClarification.Request) == {"dialogue_id": "string", "text": "string"}
    assert fields(AnswerClarification.Response) == ERROR | {"accepted": "boolean"}


def test_action_has_the_fields_of_the_contract() -> None:
    from clue_msgs.action import GroundWithDialogue

    assert fields(GroundWithDialogue.Goal) == {
        "expression": "string",
        "image": IMAGE,
        "depth": IMAGE,
        "camera_info": "sensor_msgs/CameraInfo",
        "max_turns": "uint32",
        "answer_timeout": DURATION,
    }
    assert fields(GroundWithDialogue.Result) == ERROR | {
        "grounding": "clue_msgs/GroundingResult",
        "num_questions": "uint32",
    }
    assert fields(GroundWithDialogue.Feedback) == {
        "state": "uint8",
        "question": "clue_msgs/ClarificationQuestion",
        "ambiguity": "clue_msgs/AmbiguityEstimate",
    }


def test_the_voice_actions_have_the_fields_and_endings_of_the_contract() -> None:
    from clue_msgs.action import Listen, Say

    assert fields(Say.Goal) == {"text": "string", "priority": "uint8"}
    assert fields(Say.Result) == {"status": "uint8", "error_msg": "string", "wav": "string"}
    assert fields(Say.Feedback) == {"state": "uint8", "sentence": "uint32", "sentences": "uint32"}
    assert [getattr(Say.Goal, n) for n in ("LOW", "NORMAL", "HIGH", "URGENT")] == [0, 1, 2, 3]
    assert [getattr(Say.Result, n) for n in ("DONE", "CANCELED", "FAILED")] == [0, 1, 2]
    assert fields(Listen.Goal) == {"timeout": DURATION, "expected": "sequence<string>"}
    assert fields(Listen.Result) == {
        "status": "uint8",
        "error_msg": "string",
        "transcript": "clue_msgs/Transcript",
    }
    endings = ("HEARD", "NOTHING_HEARD", "NOT_UNDERSTOOD", "CANCELED", "FAILED")
    assert [getattr(Listen.Result, name) for name in endings] == [0, 1, 2, 3, 4]


def test_enumerations_have_the_values_of_the_contract() -> None:
    from clue_msgs.action import GroundWithDialogue
    from clue_msgs.msg import DialogueState, DialogueTurn

    told = ("INACTIVE", "IDLE", "LOOKING", "THINKING", "WAITING_FOR_ANSWER", "ENDED")
    assert [getattr(DialogueState, f"STATE_{s}") for s in told] == list(range(6))
    states = ("NONE", "LOOKING", "THINKING", "WAITING_FOR_ANSWER", "GROUNDING")
    assert [getattr(GroundWithDialogue.Feedback, s) for s in states] == [0, 1, 2, 3, 4]
    assert (DialogueTurn.USER, DialogueTurn.ROBOT) == (0, 1)


def constants(section: str) -> dict[str, int]:
    return {n: int(v) for n, v in re.findall(r"^uint16 ([A-Z_]+)=(\d+)", section, re.MULTILINE)}


# Saying and listening end in their own few ways, see their test.
GROUNDING = [
    p
    for p in FILES
    if p.stem == "DialogueState" or (p.suffix != ".msg" and p.stem not in ("Say", "Listen"))
]


@pytest.mark.parametrize("path", GROUNDING, ids=lambda p: p.name)
def test_every_result_has_the_same_error_codes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    result = text if path.suffix == ".msg" else text.split("\n---\n")[1]
    assert constants(result) == ERROR_CODES


def uncommented(text: str) -> list[str]:
    """Return the fields that lack a comment above, or, for plain types, its [unit and range]."""
    comment, bad = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            comment += line
            continue
        field = re.match(r"(\w+(?:/\w+)?)(\[\d*\])? (\w+)$", line)
        if field:
            plain = "/" not in field[1] and field[1][0].islower()
            units = r"\[[^\]]+\]"
            if not (re.search(units, comment) if plain or "Duration" in field[1] else comment):
                bad.append(line)
        elif line not in ("", "---") and not re.match(r"\w+ [A-Z_]+=\d+(\s+# .+)?$", line):
            bad.append(line)
        comment = ""
    return bad


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_field_says_its_unit_and_range(path: Path) -> None:
    assert uncommented(path.read_text(encoding="utf-8")) == []


def test_a_field_without_comment_is_noticed() -> None:
    assert uncommented("# Width [px, 1..]\nuint32 width\nuint32 height\n") == ["uint32 height"]
    assert uncommented("# Width\nuint32 width\n") == ["uint32 width"]


def test_cmake_builds_every_interface_file() -> None:
    cmake = (CLUE_MSGS / "CMakeLists.txt").read_text(encoding="utf-8")
    listed = re.findall(r'"((?:msg|srv|action)/\w+\.\w+)"', cmake)
    assert sorted(listed) == sorted(str(p.relative_to(CLUE_MSGS)) for p in FILES)


def test_a_message_survives_serialisation() -> None:
    from clue_msgs.msg import BoundingBox, DialogueTurn, GroundingResult
    from rclpy.serialization import deserialize_message, serialize_message

    result = GroundingResult(expression="le bloc à gauche")
    result.target.box = BoundingBox(x_min=1.5, y_min=2.0, x_max=30.25, y_max=40.0)
    result.target.score = float("nan")
    result.dialogue.append(DialogueTurn(speaker=DialogueTurn.ROBOT, text="Which one?"))
    again = deserialize_message(serialize_message(result), GroundingResult)
    assert again.expression == "le bloc à gauche"
    assert again.target.box == result.target.box
    assert again.target.score != again.target.score
    assert [turn.text for turn in again.dialogue] == ["Which one?"]


def test_the_page_of_messages_is_made_from_the_interface_files() -> None:
    page = message_docs.PAGE.read_text(encoding="utf-8")
    assert message_docs.markdown() == page, "rerun: python -m scripts.message_docs"
    for path in FILES:
        assert f"\n## {path.stem}\n" in page
    for name, value in ERROR_CODES.items():
        assert f"| `{name}` | {value} |" in page


def test_what_is_no_interface_line_is_noticed() -> None:
    section = message_docs.read("# All\n\nuint8 A=1  # one\n# First\n# [px]\nuint32[] width\n")
    assert section.about == "All"
    assert section.constants == [("A", "1", "one")]
    assert section.fields == [("width", "uint32[]", "First [px]")]
    with pytest.raises(ValueError, match="nonsense here"):
        message_docs.read("nonsense here, please\n")

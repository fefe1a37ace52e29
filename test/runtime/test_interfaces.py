"""The interfaces of clue_msgs: complete, documented field by field, and usable from Python."""

import importlib
import re
from pathlib import Path

import pytest

from scripts import message_docs

CLUE_MSGS = Path(__file__).resolve().parents[2] / "clue_msgs"
FILES = sorted(p for kind in ("msg", "srv", "action") for p in (CLUE_MSGS / kind).iterdir())

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
TEACHING_AND_FOLLOWING = {
    "BAD_BOX": 14,
    "BAD_NAME": 15,
    "MEMORY_ERROR": 16,
    "UNKNOWN_NAME": 17,
    "UNKNOWN_TRACK": 18,
}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_what_is_built_has_the_fields_and_constants_of_its_file(path: Path) -> None:
    built = getattr(importlib.import_module(f"clue_msgs.{path.parent.name}"), path.stem)
    parts = re.split(r"^---\n", path.read_text("utf-8"), flags=re.MULTILINE)
    for name, part in zip(message_docs.SECTIONS[path.parent.name], parts, strict=True):
        kind, told = getattr(built, name) if name else built, message_docs.read(part)
        assert [*kind.get_fields_and_field_types()] == [field for field, _, _ in told.fields]
        for constant, value, _ in told.constants:
            assert getattr(kind, constant) == int(value)


def constants(section: str) -> dict[str, int]:
    return {n: int(v) for n, v in re.findall(r"^uint16 ([A-Z_]+)=(\d+)", section, re.MULTILINE)}


# Saying and listening end in their own few ways, see their test.
GROUNDING = [
    p
    for p in FILES
    if p.stem == "DialogueState" or (p.suffix != ".msg" and p.stem not in ("Say", "Listen"))
]


@pytest.mark.parametrize("path", GROUNDING, ids=lambda p: p.name)
def test_an_error_has_one_code_in_every_result(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    result = text if path.suffix == ".msg" else text.split("\n---\n")[1]
    codes = constants(result)
    if path.stem in ("TeachObject", "ForgetObject", "ListObjects", "Track"):
        assert codes["NONE"] == 0
        assert codes.items() <= {**ERROR_CODES, **TEACHING_AND_FOLLOWING}.items()
    else:
        assert codes == ERROR_CODES


def uncommented(text: str) -> list[str]:
    """Return the fields that lack a comment above, or, for plain types, its [unit and range]."""
    comment, bad = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            comment += line
            continue
        field = re.match(r"(\w+(?:/\w+)?)(\[\d*\])? (\w+)( -?\d+)?$", line)
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


def test_the_page_of_messages_is_made_from_the_interface_files() -> None:
    page = message_docs.PAGE.read_text(encoding="utf-8")
    assert message_docs.markdown() == page, "rerun: python -m scripts.message_docs"
    for path in FILES:
        assert f"\n## {path.stem}\n" in page
    for name, value in (ERROR_CODES | TEACHING_AND_FOLLOWING).items():
        assert f"| `{name}` | {value} |" in page


def test_what_is_no_interface_line_is_noticed() -> None:
    section = message_docs.read("# All\n\nuint8 A=1  # one\n# First\n# [px]\nuint32[] width\n")
    assert section.about == "All"
    assert section.constants == [("A", "1", "one")]
    assert section.fields == [("width", "uint32[]", "First [px]")]
    with pytest.raises(ValueError, match="nonsense here"):
        message_docs.read("nonsense here, please\n")

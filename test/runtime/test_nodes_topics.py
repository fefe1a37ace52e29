"""The tables of topics: what the nodes, the pages and the security policy name is what they say."""

from __future__ import annotations

import re

import pytest
import ros_helpers

ros_helpers.need_ros()

from ros_helpers import ROOT  # noqa: E402
from security_policy import SOMETIMES, full, read_policy  # noqa: E402

from clue_ros.nodes import topics  # noqa: E402

# Which page has the table of a node; its rows are `| direction | names | types | ...`. In ros.md
# the rows of perception come first, those of other nodes name theirs: `| tts in | ...`.
PAGES = {"perception": "docs/ros.md", "speech": "docs/voice.md", "tts": "docs/voice.md"}
OF_EVERY_NODE = {"/rosout", "/parameter_events", "~/transition_event"}


def documented(node: str) -> dict[tuple[str, str], str]:
    """Map (direction, name) to the type, "package/Name" or only "package", of a page's table."""
    text = (ROOT / PAGES[node]).read_text(encoding="utf-8")
    if node != "perception":
        text = text.split(f"| `{node}` | Name |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (in|out|service|action) \| (.+?) \| (.+?) \|", text, re.MULTILINE)
    found = {}
    for direction, names, kinds in rows:
        listed, types = re.findall("`(.+?)`", names), re.findall("`(.+?)`", kinds)
        for number, name in enumerate(listed):
            found[direction, name] = types[number] if len(types) == len(listed) else types[0]
    return found


@pytest.mark.parametrize("node", PAGES)
def test_the_pages_name_what_a_node_has(node: str) -> None:
    told = documented(node)
    has = {(i.direction, i.name): i.kind for i in topics.interfaces(node)}
    assert set(told) == set(has)
    for key, kind in told.items():
        package, _, name = kind.partition("/")
        assert has[key].startswith(f"{package}/")
        assert has[key].endswith(f"/{name}" if name else ""), key


@pytest.mark.parametrize("node", topics.NODES)
def test_the_security_policy_names_what_a_node_has(node: str) -> None:
    def names(*directions: str) -> set[str]:
        found = [i.name for i in topics.interfaces(node) if i.direction in directions]
        return {full(name, "/", f"/{node}") for name in found}

    allowed = read_policy()[node]
    common = {full(name, "/", f"/{node}") for name in OF_EVERY_NODE}
    topics_out = {name for name in allowed.publish - common if "/_action/" not in name}
    assert topics_out == names("out")
    topics_in = {name for name in allowed.subscribe if "/_action/" not in name}
    assert topics_in - SOMETIMES == names("in") - SOMETIMES
    actions = {name.split("/_action/")[0] for name in allowed.reply if "/_action/" in name}
    assert actions == names("action")
    assert names("service") <= allowed.reply
    called = {name.split("/_action/")[0] for name in allowed.request}
    assert called == names("call", "action call")


OPTIONAL = (topics.OptionalInput, topics.OptionalOutput)


def test_every_type_exists() -> None:
    for node in topics.NODES:
        for interface in topics.interfaces(node):
            if isinstance(interface, OPTIONAL) and interface.missing:
                continue
            assert interface.type.__name__ == interface.kind.rsplit("/")[-1]


CREATES = r"create_(?:lifecycle_)?(?:publisher|subscription|service)\(|ActionServer\(\n"


def test_no_node_names_a_topic_by_itself() -> None:
    for path in (ROOT / "clue_ros" / "nodes").glob("*.py"):
        if path.stem != "topics":
            assert not re.findall(CREATES, path.read_text(encoding="utf-8")), path.name

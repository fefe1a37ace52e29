"""The services teach, forget and list_objects of a running perception, and the client's calls."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from clue_msgs.msg import BoundingBox  # noqa: E402
from PIL import Image  # noqa: E402
from ros_helpers import Client, Process, picture  # noqa: E402

from clue_ros.nodes.client import CommandGrounder, GroundingError  # noqa: E402

BOX = BoundingBox(x_min=20.0, y_min=30.0, x_max=70.0, y_max=80.0)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what is taught here."""
    return tmp_path_factory.mktemp("words")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model: Path, words: Path) -> Iterator[Process]:
    process = Process(
        "perception",
        tmp_path_factory.mktemp("log") / "perception.log",
        parameters={"model": model, "memory": words},
    )
    yield process
    assert process.stop() == 0, process.text()


@pytest.fixture(scope="module")
def grounder() -> Iterator[CommandGrounder]:
    with CommandGrounder("teacher", context=rclpy.Context()) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_taught(client: Client, grounder: CommandGrounder) -> None:
    for known in grounder.list_objects():
        grounder.forget(known.name)


def refused(error: pytest.ExceptionInfo[GroundingError]) -> str:
    assert "\n" not in str(error.value)
    return error.value.code


def test_an_object_is_taught_named_in_the_result_and_forgotten(
    client: Client, grounder: CommandGrounder, words: Path
) -> None:
    taught = grounder.teach("the stapler", BOX, teacher="Ada")
    assert (taught.name, taught.num_examples) == ("stapler", 1)
    assert taught.last_taught.sec > 1_700_000_000
    assert taught.thumbnail.format == "jpeg"
    with Image.open(io.BytesIO(bytes(taught.thumbnail.data))) as thumbnail:
        assert max(thumbnail.size) <= 96
    image = client.image(picture(200, 150))
    assert grounder.teach("stapler", BOX, image=image).num_examples == 2
    assert [path.name for path in words.iterdir()] == ["stapler.safetensors"]
    response = client.ground("pick up the stapler", force=True)
    assert response.grounding.taught_names == ["stapler"]
    assert math.isfinite(response.grounding.target.score)
    assert [known.name for known in grounder.list_objects()] == ["stapler"]
    grounder.forget("stapler")
    assert grounder.list_objects() == []
    assert client.ground("the block", force=True).grounding.taught_names == []


def test_what_was_pointed_at_gets_a_name(client: Client, grounder: CommandGrounder) -> None:
    client.transition("deactivate")
    client.transition("activate")
    with pytest.raises(GroundingError, match="nothing has been pointed at yet") as error:
        grounder.teach("tape")
    assert refused(error) == "BAD_BOX"
    found = client.ground("the block", image=client.image(picture(120, 90)), force=True)
    assert grounder.teach("tape").num_examples == 1
    again = client.ground("the tape", image=client.image(picture(120, 90)), force=True)
    assert again.grounding.taught_names == ["tape"]
    assert again.grounding.target.image_width == found.grounding.target.image_width == 120


@pytest.mark.parametrize(
    ("name", "box", "code"),
    [
        ("", BOX, "BAD_NAME"),
        ("x" * 200, BOX, "BAD_NAME"),
        ("mug", BoundingBox(x_min=50.0, y_min=5.0, x_max=20.0, y_max=9.0), "BAD_BOX"),
        ("mug", BoundingBox(x_min=5.0, y_min=5.0, x_max=9000.0, y_max=90.0), "BAD_BOX"),
    ],
)
def test_what_cannot_be_taught_is_refused_in_one_line(
    client: Client, grounder: CommandGrounder, name: str, box: Any, code: str
) -> None:
    with pytest.raises(GroundingError) as error:
        grounder.teach(name, box)
    assert refused(error) == code
    assert grounder.list_objects() == []


def test_further_refusals(client: Client, grounder: CommandGrounder) -> None:
    with pytest.raises(GroundingError, match="no 'mug' was taught; known: nothing yet") as error:
        grounder.forget("mug")
    assert refused(error) == "UNKNOWN_NAME"
    with pytest.raises(GroundingError, match="there is an image and no box") as error:
        grounder.teach("mug", image=client.image())
    assert refused(error) == "BAD_BOX"
    client.transition("deactivate")
    for call in (
        lambda: grounder.teach("mug", BOX),
        lambda: grounder.forget("mug"),
        lambda: grounder.list_objects(),
    ):
        with pytest.raises(GroundingError) as error:
            call()
        assert refused(error) == "INACTIVE"
    client.transition("activate")

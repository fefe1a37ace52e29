"""`clue label`: what follows from labels, what is written, and the page in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import NewPage, axe_violations, serving
from fastapi.testclient import TestClient
from PIL import Image

from clue_ros.cli import main
from clue_ros.console.server import create_app
from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.lab.data.label_page import label_router
from clue_ros.lab.data.labels import LabelFolder, requests_about
from clue_ros.lab.data.photographs import LabelledObject, load_photographs
from clue_ros.lab.data.rows import load_rows

WIDTH, HEIGHT = 160, 120


def thing(name: str, x: int = 0) -> LabelledObject:
    return LabelledObject(name, Box(x, 0, x + 10, 10))


def test_requests_follow_from_the_labels() -> None:
    first = [thing("red mug"), thing("blue mug", 20), thing("block", 40), thing("block", 60)]
    made = requests_about([first, [thing("Mug"), thing("tape", 20)], []])
    assert [(r["text"], r["truth"], len(r.get("boxes", []))) for r in made[0]] == [
        ("the block", "ambiguous", 2),
        ("give me the blue mug", "clear", 1),
        ("pick up the red mug", "clear", 1),
        ("take the mug please", "ambiguous", 2),
        ("the tape", "absent", 0),
    ]
    assert [(r["text"], r["truth"]) for r in made[1]] == [
        ("give me the mug", "clear"),
        ("pick up the tape", "clear"),
        ("give me the block", "absent"),  # a red mug may be the mug that is here
    ]
    assert made[2] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two photographs, a file that is none, and one that is cut off."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("a.jpg", "b.png"):
        Image.new("RGB", (WIDTH, HEIGHT), (90, 120, 90)).save(folder / name)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "notes.txt").write_text("no picture")
    return folder


def client_of(folder: Path) -> TestClient:
    app = create_app(None, None, token=None, routers=[label_router(LabelFolder(folder))])
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


def put(client: TestClient, name: str, *objects: Any) -> Any:
    rows = [{"name": label, "box": box} for label, box in objects]
    return client.put(f"/api/label/photographs/{name}", json={"objects": rows})


CUP, TAPE = ("cup", [10, 10, 40, 40]), ("tape", [60, 10, 90, 40])


def test_labels_are_written_at_once_and_found_again(folder: Path) -> None:
    client = client_of(folder)
    found = client.get("/api/label/photographs").json()
    assert [one["name"] for one in found["photographs"]] == ["a.jpg", "b.png"]
    assert list(found["problems"]) == ["broken.jpg"]
    assert put(client, "a.jpg", CUP, CUP).json()["requests"] == 1
    assert put(client, "b.png", TAPE).json()["requests"] == 4
    first, second = load_photographs(folder)
    assert [(r.text, r.truth) for r in first.requests] == [
        ("the cup", "ambiguous"), ("the tape", "absent"),
    ]  # fmt: skip
    assert first.objects[0] == LabelledObject("cup", Box(10, 10, 40, 40))
    assert second.objects[0].name == "tape"
    again = client_of(folder)
    assert (
        again.get("/api/label/photographs").json()["photographs"][0]["objects"][1]["name"] == "cup"
    )
    assert put(again, "a.jpg").json()["objects"] == []
    assert [photograph.path.name for photograph in load_photographs(folder)] == ["b.png"]
    put(again, "b.png")
    assert not (folder / "photos.json").exists()


def test_a_set_of_the_papers_form_has_an_ambiguous_and_a_clear_sentence_each(folder: Path) -> None:
    put(client_of(folder), "a.jpg", CUP, ("cup", [100, 10, 130, 40]), TAPE)
    labels = LabelFolder(folder, pairs=True)  # what was labelled before counts
    assert labels.paired == 1
    labels.label("b.png", [{"name": "cup", "box": CUP[1]}, {"name": "tape", "box": TAPE[1]}])
    assert labels.paired == 1
    assert "two or more objects share" in labels.note("b.png")
    rows = load_rows(folder / "rows.jsonl")
    assert not rows.problems
    (image,) = rows.select("test")
    assert [(s.text, s.ambiguous, len(s.boxes)) for s in image.sentences] == [
        ("get the cup", True, 2),
        ("get the tape", False, 1),
    ]


def test_requests_that_were_written_by_hand_stay_until_labels_replace_them(folder: Path) -> None:
    by_hand = {"file": "b.png", "title": "mine", "requests": [{"text": "the x", "truth": "absent"}]}
    index = {"format": "clue_photos", "version": 1, "photos": [by_hand]}
    (folder / "photos.json").write_text(json.dumps(index))
    client = client_of(folder)
    assert "1 requests written by hand" in client.get("/api/label/photographs").text
    put(client, "a.jpg", CUP)
    assert load_photographs(folder)[1].requests[0].text == "the x"
    put(client, "b.png", TAPE)
    labelled = load_photographs(folder)[1]
    assert (labelled.title, labelled.requests[0].text) == ("mine", "give me the tape")


@pytest.mark.parametrize(
    ("name", "objects", "reason"),
    [
        ("c.jpg", [CUP], "no photograph 'c.jpg'"),
        ("broken.jpg", [CUP], "no photograph"),
        ("a.jpg", [("cup", [10, 10, 161, 40])], "outside the picture"),
        ("a.jpg", [("cup", [10, 10, 10, 40])], "has no area"),
        ("a.jpg", [(" ", [10, 10, 20, 40])], "the text is empty"),
        ("a.jpg", [("x" * 101, [10, 10, 20, 40])], "at most 100"),
        ("a.jpg", [("cup", "all")], "want [x_min"),
    ],
)
def test_labels_that_cannot_be_are_refused_and_nothing_is_lost(
    folder: Path, name: str, objects: list[Any], reason: str
) -> None:
    client = client_of(folder)
    put(client, "a.jpg", CUP)
    before = (folder / "photos.json").read_bytes()
    answer = put(client, name, *objects)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]
    assert (folder / "photos.json").read_bytes() == before


def test_a_body_that_is_no_json_and_one_too_large_are_refused(folder: Path) -> None:
    client = client_of(folder)
    for body in (b"{", b"[]", b'"objects"', b" " * 300_000):
        answer = client.put("/api/label/photographs/a.jpg", content=body)
        assert answer.status_code == 400, body[:10]
        assert len(answer.json()["error"]) > 20


def test_a_folder_that_cannot_be_labelled_is_one_line(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["label", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert main(["label", str(tmp_path)]) == 2
    assert "has no photographs" in capsys.readouterr().err
    (folder / "photos.json").write_text("{")
    assert main(["label", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is not JSON" in line
    with pytest.raises(ClueError, match="is not JSON"):
        LabelFolder(folder)


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    app = create_app(None, None, token=None, routers=[label_router(LabelFolder(folder))])
    with serving(app) as server:
        yield f"{server.url}label"


def drag(page: Any, *points: tuple[float, float]) -> None:
    """Drag over the picture, from one of its pixels to another."""
    shown = page.locator("#frame").bounding_box()
    at = [(shown["x"] + x / WIDTH * shown["width"], shown["y"] + y / HEIGHT * shown["height"])
          for x, y in points]  # fmt: skip
    page.mouse.move(*at[0])
    page.mouse.down()
    for point in at[1:]:
        page.mouse.move(*point)
    page.mouse.up()


def test_a_person_drags_a_box_types_a_name_and_goes_on(
    new_page: NewPage, url: str, folder: Path
) -> None:
    page = new_page(url)
    page.locator("#title", has_text="a.jpg (1 of 2)").wait_for()
    assert "broken.jpg" in page.locator("#problems").inner_text()
    drag(page, (20, 20), (40, 40), (60, 80))
    assert page.evaluate("document.activeElement.id") == "name"
    page.keyboard.type('<b>cup"</b>')
    page.keyboard.press("Enter")
    page.locator("#done", has_text="is saved").wait_for()
    (labelled,) = load_photographs(folder)
    assert labelled.objects[0].name == '<b>cup"</b>'
    assert labelled.objects[0].box.as_list() == pytest.approx([20, 20, 60, 80], abs=1.5)
    assert page.locator("#objects b").count() == 0, "a name is text"
    assert page.locator("#objects li").count() == 1
    page.get_by_role("button", name='1  <b>cup"</b>').click()
    page.locator("#name").fill("cup")
    page.locator("#save").click()
    page.locator("#done", has_text="cup is saved").wait_for()
    assert load_photographs(folder)[0].objects[0].name == "cup"
    page.locator("#next").click()
    page.locator("#title", has_text="b.png (2 of 2)").wait_for()
    page.locator("#name").fill("tape")
    page.locator("#save").click()
    page.get_by_text("There is no box").wait_for()
    drag(page, (20, 20), (40, 40), (60, 80))
    page.locator("#save").click()
    page.locator("#done", has_text="4 requests in all").wait_for()
    page.get_by_role("button", name="Remove tape").click()
    page.locator("#done", has_text="tape is removed").wait_for()
    assert [p.path.name for p in load_photographs(folder)] == ["a.jpg"]
    assert axe_violations(page) == []


def test_the_page_goes_on_at_the_first_photograph_without_labels(
    new_page: NewPage, url: str, folder: Path
) -> None:
    page = new_page(url)
    drag(page, (20, 20), (40, 40), (60, 80))
    page.keyboard.type("cup")
    page.keyboard.press("Enter")
    page.locator("#progress", has_text="1 of 2 are labelled").wait_for()
    again = new_page(url)
    again.locator("#title", has_text="b.png").wait_for()

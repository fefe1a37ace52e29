"""The review page's server: what it lists, what it writes, and what it refuses."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest
from console_helpers import heed_ctrl_c
from fastapi.testclient import TestClient
from recorded_episodes import record_episodes

from clue_ros.cli import main
from clue_ros.console.review import review_router
from clue_ros.console.server import create_app
from clue_ros.dialogue.episodes import episode_files, read_row
from clue_ros.dialogue.reviews import CONFIRMED, Review, read_review, review_path, write_review
from clue_ros.errors import ClueError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "episodes"
    folder.mkdir()
    return folder


def client_of(folder: Path) -> TestClient:
    app = create_app(None, None, token=None, routers=[review_router(folder)])
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


@pytest.fixture
def client(folder: Path) -> TestClient:
    return client_of(folder)


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["name"] for one in answer.json()["episodes"]]


def test_the_list_is_newest_first_filtered_and_paged(client: TestClient, folder: Path) -> None:
    paths = record_episodes(folder, {}, {"ended": False}, {}, {}, {})
    write_review(paths[2], Review(CONFIRMED))
    stems = [path.stem for path in reversed(paths)]
    everything = client.get("/api/review/episodes")
    assert names(everything) == stems
    assert everything.json()["counts"] == {
        "confirmed": 1,
        "corrected": 0,
        "rejected": 0,
        "unreviewed": 4,
    }
    newest = everything.json()["episodes"][0]
    assert newest == {
        "name": stems[0],
        "verdict": "unreviewed",
        "outcome": "GROUNDED",
        "request": "pick up the block",
        "stamp": 1790000004.0,
        "questions": 1,
    }
    assert names(client.get("/api/review/episodes?verdict=confirmed")) == [paths[2].stem]
    assert names(client.get("/api/review/episodes?outcome=ANSWER_TIMEOUT")) == [paths[1].stem]
    assert client.get("/api/review/outcomes").json() == {"GROUNDED": 4, "ANSWER_TIMEOUT": 1}
    seen, query = [], "limit=2"
    while query:
        answer = client.get(f"/api/review/episodes?{query}")
        seen.append(names(answer))
        after = answer.json()["next"]
        query = f"limit=2&before={after}" if after else ""
    assert seen == [stems[:2], stems[2:4], stems[4:]]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=x", f"limit={'9' * 5000}", "verdict=good", "before=../x", "before=1"],
)
def test_a_list_that_cannot_be_is_refused_in_words(client: TestClient, query: str) -> None:
    answer = client.get(f"/api/review/episodes?{query}")
    assert answer.status_code == 400
    assert len(answer.json()["error"]) > 20


def test_one_episode_has_turns_replies_and_picture(client: TestClient, folder: Path) -> None:
    (path,) = record_episodes(folder, {"texts": ("the <b>cup</b>", "which?", "it")})
    found = client.get(f"/api/review/episodes/{path.stem}").json()
    assert (found["width"], found["height"]) == (80, 60)
    assert found["box"] == pytest.approx([0.1, 0.1, 0.5, 0.5])
    assert [turn["text"] for turn in found["turns"]] == ["the <b>cup</b>", "which?", "it"]
    asked, pointed = found["replies"]
    assert (asked["probability"], asked["threshold"]) == (0.9, 0.5)
    assert len(asked["candidates"]) == 2
    assert len(pointed["attention"]) == 4
    assert (found["verdict"], found["review"], found["note"]) == ("unreviewed", None, "")
    picture = client.get(f"/api/review/episodes/{path.stem}/picture")
    assert picture.headers["content-type"] == "image/png"
    assert picture.content == path.with_suffix(".png").read_bytes()


def test_a_verdict_is_written_replaced_and_undone(client: TestClient, folder: Path) -> None:
    (path,) = record_episodes(folder, {})
    before, address = path.read_bytes(), f"/api/review/episodes/{path.stem}/review"
    answer = client.put(address, json={"verdict": "confirmed"})
    assert answer.json()["counts"]["confirmed"] == 1
    review = read_review(path)
    assert review is not None
    assert (review.verdict, review.box) == ("confirmed", None)
    assert abs(review.stamp - time.time()) < 60
    sent = {"verdict": "corrected", "box": [0, 0, 0.5, 1], "label": "<i>x</i>", "stamp": 5}
    answer = client.put(address, json=sent)
    assert answer.json()["review"]["box"] == [0, 0, 0.5, 1]
    review = read_review(path)
    assert review is not None
    assert review.label == "<i>x</i>"
    assert review.stamp != 5, "the server's clock"
    assert set(json.loads(review_path(path).read_text())) == {
        "version",
        "verdict",
        "box",
        "label",
        "stamp",
    }
    answer = client.delete(address)
    assert (answer.json()["verdict"], answer.json()["counts"]["unreviewed"]) == ("unreviewed", 1)
    assert not review_path(path).exists()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "not JSON"),
        (b"[]", 400, "not a JSON object"),
        (b"[" * 9000, 400, "not JSON"),
        (b'{"verdict": "fine"}', 400, "verdict"),
        (b'{"verdict": "corrected"}', 400, "needs a box"),
        (b'{"verdict": "corrected", "box": [0, 0, 80, 60]}', 400, "fractions"),
        (b'{"verdict": "corrected", "box": [0, 0, NaN, 1]}', 400, "fractions"),
        (b'{"verdict": "corrected", "box": [0, 0, 1, 1], "label": "\\ud800"}', 400, "letter"),
        (b'{"verdict": "rejected", "label": "x"}', 400, "no label"),
        (b'{"verdict": "' + b"x" * 20_000 + b'"}', 413, "at most"),
    ],
)
def test_a_verdict_that_cannot_be_is_refused_in_words(
    client: TestClient, folder: Path, body: bytes, status: int, reason: str
) -> None:
    (path,) = record_episodes(folder, {})
    answer = client.put(f"/api/review/episodes/{path.stem}/review", content=body)
    assert answer.status_code == status, answer.text
    assert reason in answer.json()["error"]
    assert not review_path(path).exists()


def test_an_episode_without_a_box_cannot_be_confirmed(client: TestClient, folder: Path) -> None:
    (path,) = record_episodes(folder, {"ended": False})
    address = f"/api/review/episodes/{path.stem}/review"
    answer = client.put(address, json={"verdict": "confirmed"})
    assert answer.status_code == 400
    assert "no box to confirm" in answer.json()["error"]
    corrected = {"verdict": "corrected", "box": [0.1, 0.1, 0.2, 0.2]}
    assert client.put(address, json=corrected).status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../secret",
        "%2e%2e%2fsecret",
        "..%2fsecret",
        "%252e%252e%252fsecret",
        "..%5csecret",
        "episode-000001-a%2f..%2f..%2fsecret",
        "episode-000001-a.json",
        "episode-000001-a%00",
        "episode-000001-linked",
        f"episode-{'1' * 5000}-a",
        "%ff",
        "secret",
    ],
)
@pytest.mark.parametrize("part", ["", "/picture", "/review"])
def test_names_and_links_do_not_lead_out_of_the_folder(
    client: TestClient, folder: Path, name: str, part: str
) -> None:
    (path,) = record_episodes(folder, {})
    secret = folder.parent / "secret.json"
    secret.write_text(path.read_text())
    secret.with_suffix(".png").write_bytes(path.with_suffix(".png").read_bytes())
    (folder / "episode-000001-linked.json").symlink_to(secret)
    (folder / "episode-000001-linked.png").symlink_to(secret.with_suffix(".png"))
    address = f"/api/review/episodes/{name}{part}"
    if part == "/review":
        answer = client.put(address, json={"verdict": "confirmed"})
    else:
        answer = client.get(address)
    assert answer.status_code in (404, 405), answer.text
    assert "json" in answer.headers["content-type"]
    assert sorted(file.name for file in folder.parent.iterdir()) == [
        "episodes",
        "secret.json",
        "secret.png",
    ]
    assert names(client.get("/api/review/episodes")) == [path.stem]


def test_a_picture_or_review_that_is_a_link_is_not_followed(
    client: TestClient, folder: Path
) -> None:
    (path,) = record_episodes(folder, {})
    secret = folder.parent / "secret"
    secret.write_text('{"version": 1, "verdict": "confirmed", "stamp": 1}')
    path.with_suffix(".png").unlink()
    path.with_suffix(".png").symlink_to(secret)
    review_path(path).symlink_to(secret)
    address = f"/api/review/episodes/{path.stem}"
    assert client.get(f"{address}/picture").status_code == 404
    found = client.get(address).json()
    assert found["verdict"] == "unreviewed"
    assert "treated as not reviewed" in found["note"]
    assert client.put(f"{address}/review", json={"verdict": "rejected"}).status_code == 200
    assert "confirmed" in secret.read_text(), "the link was replaced, not what it points to"


def test_damaged_files_are_named_and_the_rest_is_served(client: TestClient, folder: Path) -> None:
    good, torn, odd = record_episodes(folder, {}, {}, {})
    torn.write_text("[{")
    row = json.loads(odd.read_text())
    row[0]["clue"] |= {
        "outcome": ["x"],
        "stamp": "now",
        "score": 10**400,
        "turns": [1, {"speaker": 3, "text": "\ud800 lone"}, {"text": {}}],
        "replies": [{"attention": [[1], [1, 2]], "candidates": [[1, 2], "box"]}, None],
    }
    row[0]["ref_list"][0] |= {"bbox": [5, 5, 1, 1], "category": 7}
    odd.write_text(json.dumps(row))
    review_path(good).write_text("{")
    listed = client.get("/api/review/episodes").json()
    assert [one["outcome"] for one in listed["episodes"]] == ["", "unreadable", "GROUNDED"]
    assert listed["counts"]["unreviewed"] == 3
    answer = client.get(f"/api/review/episodes/{torn.stem}")
    assert answer.status_code == 400
    assert torn.name in answer.json()["error"]
    shown = client.get(f"/api/review/episodes/{odd.stem}").json()
    assert (shown["box"], shown["label"], shown["score"]) == (None, "", None)
    assert [turn["text"] for turn in shown["turns"]] == ["? lone", ""]
    assert shown["replies"][0]["attention"] is None
    assert shown["replies"][0]["candidates"] == []
    note = client.get(f"/api/review/episodes/{good.stem}").json()["note"]
    assert "treated as not reviewed" in note


def test_the_list_follows_the_folder(client: TestClient, folder: Path) -> None:
    assert client.get("/api/review/episodes").json()["episodes"] == []
    (path,) = record_episodes(folder, {})
    assert names(client.get("/api/review/episodes")) == [path.stem]
    path.write_text(path.read_text().replace("GROUNDED", "OPEN"))
    assert client.get("/api/review/episodes").json()["episodes"][0]["outcome"] == "OPEN"
    path.unlink()
    assert client.get("/api/review/episodes").json()["episodes"] == []


def test_the_export_is_a_zip_of_reviewed_episodes(client: TestClient, folder: Path) -> None:
    one, two = record_episodes(folder, {}, {})
    write_review(one, Review(CONFIRMED))
    answer = client.get("/api/review/export")
    assert answer.headers["content-disposition"] == 'attachment; filename="episodes-invig.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [f"images/{one.stem}.png", "left_out.txt", "episodes.json"]
        (row,) = json.loads(archive.read("episodes.json"))
        assert row["image_info"]["file_name"] == f"{one.stem}.png"
        assert archive.read("left_out.txt").decode() == f"{two.stem}: unreviewed\n"
    refused = client.get("/api/review/export?layout=coco")
    assert refused.status_code == 400
    assert "unknown layout" in refused.json()["error"]


def test_a_list_reads_the_files_of_one_page_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = record_episodes(tmp_path / "episodes", {})
    folder = tmp_path / "many"
    folder.mkdir()
    text = path.read_text()
    for number in range(1, 2_001):
        (folder / f"episode-{number:06d}-aaaa.json").write_text(text)
    read: list[str] = []

    def counting(path: Path, **options: Any) -> Any:
        read.append(path.stem)
        return read_row(path, **options)

    monkeypatch.setattr("clue_ros.console.review.read_row", counting)
    client = client_of(folder)
    answer = client.get("/api/review/episodes")
    assert sorted(read, reverse=True) == names(answer)
    assert len(answer.json()["episodes"]) == 50
    assert answer.json()["counts"]["unreviewed"] == 2000
    assert names(answer)[0] == "episode-002000-aaaa"
    client.get("/api/review/episodes")
    assert len(read) == 50, "what was read is kept"


def test_verdicts_at_once_leave_one_whole_review(folder: Path) -> None:
    (path,) = record_episodes(folder, {})
    client, statuses = client_of(folder), []

    def put(verdict: str) -> None:
        address = f"/api/review/episodes/{path.stem}/review"
        statuses.append(client.put(address, json={"verdict": verdict}).status_code)

    threads = [
        threading.Thread(target=put, args=(verdict,)) for verdict in ("confirmed", "rejected") * 6
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 12
    assert read_review(path) is not None
    assert len(list(folder.iterdir())) == 3


def test_a_folder_that_is_none_is_refused(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(ClueError, match="is not a folder"):
        review_router(tmp_path / "nowhere")
    assert main(["review", str(tmp_path / "nowhere"), "--port", "0"]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert episode_files(tmp_path) == []


def test_the_command_serves_a_folder_until_it_is_interrupted(folder: Path) -> None:
    (path,) = record_episodes(folder, {})
    words = ["review", str(folder), "--port", "0", "--token", "a-secret"]
    process = subprocess.Popen(
        [sys.executable, "-m", "clue_ros.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed_ctrl_c,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://localhost:(\d+)/\?token=a-secret", said)
        assert found is not None, said
        address = f"http://127.0.0.1:{found[1]}/api/review/episodes"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with pytest.raises(urllib.error.HTTPError, match="401"):
            opener.open(address, timeout=10)
        with opener.open(f"{address}?token=a-secret", timeout=10) as answer:
            assert json.load(answer)["episodes"][0]["name"] == path.stem
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert "Traceback" not in process.stdout.read()
    finally:
        process.kill()
        process.wait()

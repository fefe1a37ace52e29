"""Two people: turns, roles, seats, pictures and rows, without a network."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clue_ros.console.pair_lobby import (
    GRACE_SECONDS,
    MAX_AGREED,
    MAX_PEOPLE,
    FullError,
    Lobby,
)
from clue_ros.console.pair_rows import PictureQueue, RowStore, default_consent, read_consent
from clue_ros.console.pairs import (
    MAX_ROUNDS,
    SKIP_REASONS,
    TURN_SECONDS,
    WRONG_REASONS,
    PairError,
    PairSession,
)
from clue_ros.dialogue.types import MAX_TEXT
from clue_ros.errors import ClueError
from clue_ros.lab.data.invig import InvigError, load_invig

SIZE = (200, 100)
TARGET = [20, 10, 70, 60]


def session_at(phase: str) -> PairSession:
    """A dialogue of "ann" (user) and "bob" (agent) that has come to a phase."""
    session = PairSession("ann", "bob", SIZE)
    steps: dict[str, Callable[[], object]] = {
        "target": lambda: None,
        "request": lambda: session.choose("ann", TARGET, 1),
        "question": lambda: session.say("ann", "the mug", 2),
        "answer": lambda: session.say("bob", "the red one?", 3),
        "check": lambda: answer_and_point(session),
        "done": lambda: session.end(session.judge("ann", True, ""), 6),
    }
    for name, step in steps.items():
        step()
        if name == phase:
            break
    assert session.phase == phase
    return session


def answer_and_point(session: PairSession) -> None:
    session.say("ann", "yes", 4)
    session.point("bob", TARGET, 5)


# -------------------------------------------------------------------------------------------------
# One dialogue.


def test_a_dialogue_goes_from_target_to_verdict_in_strict_turns() -> None:
    session = session_at("check")
    assert session.turns == ["the mug", "the red one?", "yes"]
    assert session.judge("ann", True, "").iou == 1.0


ACTIONS: dict[str, Callable[[PairSession, str], object]] = {
    "choose": lambda s, who: s.choose(who, TARGET, 9),
    "say": lambda s, who: s.say(who, "words", 9),
    "point": lambda s, who: s.point(who, TARGET, 9),
    "judge": lambda s, who: s.judge(who, True, ""),
    "skip": lambda s, who: s.skip(who, SKIP_REASONS[0]),
    "reset": lambda s, who: s.reset(who, 9),
}
ALLOWED = {
    ("target", "ann", "choose"),
    ("request", "ann", "choose"),
    ("request", "ann", "say"),
    ("question", "bob", "say"),
    ("question", "bob", "point"),
    ("answer", "ann", "say"),
    ("check", "ann", "judge"),
} | {
    (phase, who, what)
    for phase in ("target", "request", "question", "answer")
    for who in ("ann", "bob")
    for what in ("skip", "reset")
}


@pytest.mark.parametrize("who", ["ann", "bob"])
@pytest.mark.parametrize("what", ACTIONS)
@pytest.mark.parametrize("phase", ["target", "request", "question", "answer", "check", "done"])
def test_each_action_is_allowed_in_its_phase_to_its_role_alone(
    phase: str, who: str, what: str
) -> None:
    session = session_at(phase)
    before = session.view("ann")
    if (phase, who, what) in ALLOWED:
        ACTIONS[what](session, who)
        return
    with pytest.raises(PairError) as refused:
        ACTIONS[what](session, who)
    assert len(str(refused.value)) > 10
    assert session.view("ann") == before


@pytest.mark.parametrize("what", ACTIONS)
def test_a_third_person_is_told_that_both_seats_are_taken(what: str) -> None:
    with pytest.raises(PairError, match="both seats of this dialogue are taken"):
        ACTIONS[what](session_at("question"), "eve")
    with pytest.raises(PairError, match="both seats"):
        session_at("question").view("eve")


def test_nobody_talks_with_themselves() -> None:
    with pytest.raises(PairError, match="two people"):
        PairSession("ann", "ann", SIZE)


@pytest.mark.parametrize("phase", ["target", "request", "question", "answer", "check", "done"])
def test_the_agent_never_sees_the_target_and_nobody_the_iou_before_the_verdict(phase: str) -> None:
    session = session_at(phase)
    assert session.view("bob")["target"] is None
    assert session.view("ann")["target"] == (None if phase == "target" else TARGET)
    for who in ("ann", "bob"):
        assert (session.view(who)["verdict"] is None) == (phase != "done")
    assert ("iou" in json.dumps(session.view("bob"))) == (phase == "done")


def test_after_ten_questions_only_a_box_is_left_and_the_reason_is_shown() -> None:
    session = session_at("question")
    for number in range(MAX_ROUNDS):
        assert session.view("bob")["questions_left"] == MAX_ROUNDS - number
        session.say("bob", f"question {number}", 5)
        session.say("ann", "yes", 5)
    assert f"{MAX_ROUNDS} questions" in session.view("bob")["task"]
    with pytest.raises(PairError, match=f"{MAX_ROUNDS} questions were asked: end with a box"):
        session.say("bob", "one more", 5)
    session.point("bob", TARGET, 6)
    assert session.phase == "check"


@pytest.mark.parametrize("text", ["", "  \n ", "?!", "x" * (MAX_TEXT + 1), 7, None])
def test_unusable_words_are_refused_and_the_turn_stays(text: Any) -> None:
    session = session_at("request")
    with pytest.raises(ClueError):
        session.say("ann", text, 5)
    assert session.phase == "request"
    assert session.turns == []


def test_words_are_cleaned() -> None:
    session = session_at("request")
    session.say("ann", " the\tred\u202e  mug\n", 5)
    assert session.turns == ["the red mug"]


@pytest.mark.parametrize(
    "box",
    [
        [],
        None,
        "abcd",
        [1, 2, 3],
        [0, 0, 50, 50, 50],
        [float("nan"), 0, 50, 50],
        [0, 0, float("inf"), 50],
        [0, 0, 10**400, 50],
        [True, 0, 50, 50],
        ["0", "0", "50", "50"],
        [10, 10, 10, 50],
        [50, 50, 10, 10],
        [10, 10, 13, 50],
        [300, 0, 400, 50],
        {"x": 1},
    ],
)
def test_a_box_that_is_none_is_refused(box: Any) -> None:
    session = session_at("target")
    with pytest.raises(PairError, match=r"a box is four numbers|the box is too small"):
        session.choose("ann", box, 1)
    assert session.target is None


def test_a_box_is_cut_to_the_picture() -> None:
    session = session_at("target")
    session.choose("ann", [-5, -5, 999, 50.5], 1)
    assert session.view("ann")["target"] == [0, 0, 200, 50.5]


def test_a_wrong_box_needs_a_reason_of_the_list() -> None:
    session = session_at("check")
    for reason in ("", "because"):
        with pytest.raises(PairError, match=WRONG_REASONS[0]):
            session.judge("ann", False, reason)
    verdict = session.judge("ann", False, WRONG_REASONS[0])
    assert (verdict.right, verdict.reason) == (False, WRONG_REASONS[0])
    assert session.judge("ann", True, "ignored").reason == ""


def test_a_skip_needs_a_reason_of_the_list() -> None:
    with pytest.raises(PairError, match=SKIP_REASONS[0]):
        session_at("answer").skip("bob", "boring")


def test_reset_starts_the_same_picture_over_and_is_counted() -> None:
    session = session_at("answer")
    name = session.id
    assert session.reset("bob", 9) == "agent"
    assert (session.phase, session.turns, session.target) == ("target", [], None)
    assert (session.resets, session.id) == (1, name)


# -------------------------------------------------------------------------------------------------
# The lobby.


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of three pictures, 200 x 100."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        write_picture(folder / f"{number}.png", number)
    return folder


def write_picture(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def new_lobby(images: Path, out: Path, seed: int = 0) -> Lobby:
    rows = RowStore(out, default_consent())
    return Lobby(PictureQueue([images], rows.used()), rows, random.Random(seed))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def lobby(images: Path, out: Path) -> Lobby:
    return new_lobby(images, out)


def enter(lobby: Lobby, person: str, wish: str = "either", room: str = "", now: float = 0) -> None:
    lobby.consent(person, default_consent().version, now)
    lobby.connect(person, now)
    lobby.act(person, {"do": "join", "role": wish, "room": room}, now)


def seats(lobby: Lobby, *people: str) -> tuple[str, str]:
    """The user and the agent among two people."""
    roles = {lobby.view(person)["role"]: person for person in people}
    return roles["user"], roles["agent"]


def play(lobby: Lobby, user: str, agent: str, *, right: bool = True, now: float = 1) -> None:
    """A whole dialogue up to the verdict."""
    lobby.act(user, {"do": "choose", "box": TARGET}, now)
    lobby.act(user, {"do": "say", "text": "the mug"}, now)
    lobby.act(agent, {"do": "say", "text": "the red one?"}, now)
    lobby.act(user, {"do": "say", "text": "yes"}, now)
    lobby.act(agent, {"do": "point", "box": [20, 10, 70, 110]}, now)
    lobby.act(user, {"do": "judge", "right": right, "reason": WRONG_REASONS[0]}, now)


def test_two_people_who_fit_are_paired_and_a_third_waits_and_sees_nothing(lobby: Lobby) -> None:
    for person in ("ann", "bob", "eve"):
        enter(lobby, person)
    assert lobby.view("ann")["stage"] == lobby.view("bob")["stage"] == "pair"
    third = lobby.view("eve")
    assert (third["stage"], third["waiting"], third["paired"]) == ("waiting", 0, 2)
    assert not {"turns", "size", "session", "answer"} & third.keys()
    with pytest.raises(PairError, match="not in your dialogue"):
        lobby.picture("eve", lobby.view("ann")["session"])
    assert lobby.picture("bob", lobby.view("ann")["session"])[:2] == b"\xff\xd8"
    with pytest.raises(PairError, match="you are in no dialogue"):
        lobby.act("eve", {"do": "say", "text": "hello"}, 1)


def test_roles_are_as_wished(lobby: Lobby) -> None:
    enter(lobby, "ann", "agent")
    enter(lobby, "bob", "agent")
    assert (lobby.view("bob")["stage"], lobby.view("bob")["waiting"]) == ("waiting", 1)
    enter(lobby, "cid", "user")
    assert seats(lobby, "cid", "ann") == ("cid", "ann")
    assert lobby.view("bob")["stage"] == "waiting"
    lobby.act("bob", {"do": "join", "role": "either", "room": ""}, 2)  # may change while waiting
    enter(lobby, "dot", "agent")
    assert seats(lobby, "dot", "bob") == ("bob", "dot")


def test_a_room_pairs_its_two_people_and_refuses_a_third(lobby: Lobby) -> None:
    enter(lobby, "ann", room="lab-1")
    enter(lobby, "bob", room="")
    enter(lobby, "cid", room="lab-1")
    assert lobby.view("ann")["stage"] == lobby.view("cid")["stage"] == "pair"
    assert lobby.view("bob")["stage"] == "waiting"
    with pytest.raises(PairError, match="both seats of room lab-1 are taken"):
        enter(lobby, "eve", room="lab-1")
    assert lobby.view("eve")["stage"] == "choose"
    enter(lobby, "dot", "user", room="lab-2")
    with pytest.raises(PairError, match="is the user: take another role"):
        enter(lobby, "eve", "user", room="lab-2")


@pytest.mark.parametrize("room", ["../x", "a b", "x" * 41, 7, None, ["a"]])
def test_a_rooms_name_is_a_short_word(lobby: Lobby, room: Any) -> None:
    with pytest.raises(PairError, match="a room's name"):
        enter(lobby, "ann", room=room)


def test_nothing_is_allowed_before_consent_to_the_text_of_now(lobby: Lobby) -> None:
    for do in ("join", "say", "leave"):
        with pytest.raises(PairError, match="agree to the consent text first"):
            lobby.act("ann", {"do": do}, 0)
    with pytest.raises(PairError, match="agree"):
        lobby.view("ann")
    with pytest.raises(PairError, match="the consent text has changed"):
        lobby.consent("ann", "older", 0)
    assert not lobby.knows("ann")


def test_the_lobby_is_limited(lobby: Lobby) -> None:
    version = default_consent().version
    lobby.consent("late", version, 0)
    for number in range(MAX_PEOPLE):
        lobby.consent(str(number), version, 0)
        lobby.connect(str(number), 0)
        lobby.disconnect(str(number), 0)
    with pytest.raises(PairError, match="try again later"):
        lobby.consent("one more", version, 0)
    with pytest.raises(FullError, match="try again later"):
        lobby.connect("late", 1)
    lobby.tick(GRACE_SECONDS + 1)  # nobody came back
    lobby.consent("one more", version, GRACE_SECONDS + 1)
    lobby.connect("one more", GRACE_SECONDS + 1)
    assert lobby.people == 1


def test_who_agrees_and_does_not_come_takes_no_seat(lobby: Lobby) -> None:
    version = default_consent().version
    for number in range(MAX_AGREED + 10):
        lobby.consent(f"nobody {number}", version, 0)
    assert lobby.people == 0
    assert not lobby.knows("nobody 9")  # forgotten for a later one
    assert lobby.knows("nobody 10")
    enter(lobby, "ann")
    enter(lobby, "bob")
    assert lobby.view("ann")["stage"] == "pair"
    lobby.consent("later", version, GRACE_SECONDS + 1)
    assert not lobby.knows("nobody 10")


def test_roles_swap_after_a_picture_when_both_take_either(lobby: Lobby) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    user, agent = seats(lobby, "ann", "bob")
    play(lobby, user, agent)
    before = lobby.view(user)["session"]
    lobby.act(user, {"do": "next"}, 2)
    assert lobby.view(user)["ready"]
    assert lobby.view(agent)["session"] == before
    lobby.act(agent, {"do": "next"}, 2)
    assert seats(lobby, "ann", "bob") == (agent, user)
    assert lobby.view(user)["session"] != before
    assert lobby.view(user)["turns"] == []


def test_roles_stay_when_one_was_chosen(lobby: Lobby) -> None:
    enter(lobby, "ann", "user")
    enter(lobby, "bob")
    play(lobby, "ann", "bob")
    for person in ("ann", "bob"):
        lobby.act(person, {"do": "next"}, 2)
    assert seats(lobby, "ann", "bob") == ("ann", "bob")


def test_next_waits_for_the_verdict(lobby: Lobby) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    with pytest.raises(PairError, match="not done"):
        lobby.act("ann", {"do": "next"}, 1)


def test_skip_goes_to_another_picture_with_the_same_roles_and_is_counted(
    lobby: Lobby, out: Path
) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    user, agent = seats(lobby, "ann", "bob")
    lobby.act(agent, {"do": "skip", "reason": SKIP_REASONS[2]}, 1)
    assert seats(lobby, "ann", "bob") == (user, agent)
    assert f"agent skipped the last picture: {SKIP_REASONS[2]}" in lobby.view(user)["notice"]
    with (out / "skipped.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["role"], row["reason"]) == ("agent", SKIP_REASONS[2])
    assert row["picture"].startswith("photos/")
    assert row.keys() == {"date", "picture", "role", "reason"}


def test_reset_tells_both_who_asked(lobby: Lobby) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    user, agent = seats(lobby, "ann", "bob")
    lobby.act(user, {"do": "choose", "box": TARGET}, 1)
    lobby.act(user, {"do": "reset"}, 1)
    for person in (user, agent):
        assert lobby.view(person)["notice"] == "The user started this picture over."
        assert lobby.view(person)["phase"] == "target"


def test_who_lost_the_connection_returns_to_the_same_seat(lobby: Lobby) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    user, agent = seats(lobby, "ann", "bob")
    lobby.act(user, {"do": "choose", "box": TARGET}, 1)
    lobby.act(user, {"do": "say", "text": "the mug"}, 1)
    lobby.disconnect(agent, 2)
    assert not lobby.view(user)["partner_here"]
    assert "seat is kept" in lobby.view(user)["notice"]
    lobby.connect(user, 3)  # in a second tab: nobody went away
    assert lobby.view(agent)["notice"] == ""
    enter(lobby, "eve")
    lobby.tick(2 + GRACE_SECONDS - 1)
    lobby.connect(agent, 100)
    assert lobby.view(agent)["turns"] == [{"speaker": "user", "text": "the mug"}]
    assert seats(lobby, "ann", "bob") == (user, agent)
    assert lobby.view("eve")["stage"] == "waiting"


def test_a_seat_is_given_up_after_a_while_and_the_other_is_paired_anew(lobby: Lobby) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    enter(lobby, "eve")
    lobby.disconnect("bob", 2)
    lobby.tick(3 + GRACE_SECONDS)
    assert not lobby.knows("bob")
    assert {lobby.view(p)["stage"] for p in ("ann", "eve")} == {"pair"}


def test_who_leaves_is_forgotten_and_the_other_waits(lobby: Lobby) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    lobby.act("ann", {"do": "leave"}, 1)
    assert not lobby.knows("ann")
    assert lobby.view("bob")["stage"] == "waiting"
    assert "has left" in lobby.view("bob")["notice"]


def test_who_takes_too_long_loses_the_turn_and_the_other_waits_for_somebody(lobby: Lobby) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    user, agent = seats(lobby, "ann", "bob")
    lobby.tick(TURN_SECONDS - 1)
    assert lobby.view(user)["stage"] == "pair"
    lobby.act(user, {"do": "choose", "box": TARGET}, TURN_SECONDS - 1)  # a new turn, new time
    lobby.tick(TURN_SECONDS + 1)
    assert lobby.view(user)["stage"] == "pair"
    lobby.tick(2 * TURN_SECONDS)
    assert lobby.view(user)["stage"] == "choose"
    assert "You took too long" in lobby.view(user)["notice"]
    assert lobby.view(agent)["stage"] == "waiting"


def test_two_who_go_away_after_a_picture_make_room(lobby: Lobby) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    play(lobby, *seats(lobby, "ann", "bob"))
    lobby.tick(2 + TURN_SECONDS)
    assert {lobby.view(p)["stage"] for p in ("ann", "bob")} == {"choose"}


def test_unknown_actions_are_refused(lobby: Lobby) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    for action in ({}, {"do": "win"}, {"do": ["say"]}, {"do": "judge", "right": "yes"}):
        with pytest.raises(PairError):
            lobby.act("ann", action, 1)


def test_whatever_five_people_do_the_lobby_stays_whole(lobby: Lobby, out: Path) -> None:
    rng = random.Random(5)
    people = ["ann", "bob", "cid", "dot", "eve"]
    actions: list[Callable[[], dict[str, Any]]] = [
        lambda: {"do": "join", "role": rng.choice(["either", "user", "agent"]), "room": ""},
        lambda: {"do": "join", "role": "either", "room": rng.choice(["a", "b", "/"])},
        *[lambda: {"do": rng.choice(["choose", "point"]), "box": TARGET}] * 6,
        *[lambda: {"do": "say", "text": rng.choice(["one", "two", ""])}] * 6,
        *[lambda: {"do": "judge", "right": rng.random() < 0.5, "reason": WRONG_REASONS[1]}] * 9,
        *[lambda: {"do": "next"}] * 3,
        lambda: {"do": rng.choice(["skip", "reset"]), "reason": SKIP_REASONS[0]},
    ]
    now, refused, phases = 0.0, 0, set()
    for step in range(6000):
        now += rng.expovariate(1 / 3)
        who = rng.choice(people)
        try:
            if step % 97 == 0:
                lobby.act(who, {"do": "leave"}, now)
            elif step % 23 == 0:
                lobby.disconnect(who, now)
            elif step % 5 == 0:
                lobby.consent(who, default_consent().version, now)
                lobby.connect(who, now)
            else:
                lobby.act(who, rng.choice(actions)(), now)
        except ClueError:
            refused += 1
        lobby.tick(now)
        views = {person: lobby.view(person) for person in people if lobby.has_seat(person)}
        sessions: dict[str, list[str]] = {}
        for seen in views.values():
            if seen["stage"] == "pair":
                phases.add(seen["phase"])
                sessions.setdefault(seen["session"], []).append(seen["role"])
                assert seen["role"] == "user" or seen["target"] is None
        assert all(sorted(roles) == ["agent", "user"] for roles in sessions.values())
    assert phases == {"target", "request", "question", "answer", "check", "done"}
    assert 1000 < refused < 5500
    written = len(list((out / "rows").iterdir()))
    assert written > 5
    data = load_invig(out)
    assert (len(data.samples), data.problems) == (written, ())


# -------------------------------------------------------------------------------------------------
# Rows and pictures.


def test_an_accepted_row_is_read_back_by_the_invig_reader(lobby: Lobby, out: Path) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    user, agent = seats(lobby, "ann", "bob")
    play(lobby, user, agent)
    data = load_invig(out)
    assert data.problems == ()
    (sample,) = data.samples
    assert sample.request == "the mug"
    assert sample.exchanges == (("the red one?", "yes"),)
    assert sample.box == (0.1, 0.1, 0.35, 0.6)
    assert sample.load().shape == (SIZE[1], SIZE[0], 3)
    (path,) = (out / "rows").iterdir()
    (row,) = json.loads(path.read_text())
    kept = row["clue"]
    assert kept["people"] == {"user": user, "agent": agent}
    assert kept["consent"].keys() == {"version", "user", "agent"}
    assert kept["consent"]["version"] == default_consent().version
    assert kept["date"] == kept["consent"]["user"]
    assert kept["answer"] == [0.1, 0.1, 0.35, 1.0]
    assert kept["iou"] == pytest.approx(50 * 50 / (50 * 90), abs=1e-4)
    assert kept.keys() == {
        *("outcome", "reason", "answer", "iou", "resets", "date", "people", "consent")
    }
    assert path.stat().st_mode & 0o077 == 0
    assert default_consent().text in (out / "consent" / "clue-1.txt").read_text()


def test_a_rejected_row_is_kept_apart_with_its_reason(lobby: Lobby, out: Path) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    play(lobby, *seats(lobby, "ann", "bob"), right=False)
    with pytest.raises(InvigError):
        load_invig(out)
    (sample,) = load_invig(out / "rejected").samples
    assert sample.request == "the mug"
    (path,) = (out / "rejected" / "rows").iterdir()
    kept = json.loads(path.read_text())[0]["clue"]
    assert (kept["outcome"], kept["reason"]) == ("REJECTED", WRONG_REASONS[0])


def test_several_pairs_write_rows_of_their_own(lobby: Lobby, out: Path) -> None:
    pairs = [("ann", "bob"), ("cid", "dot"), ("eve", "fay")]
    for pair in pairs:
        for person in pair:
            enter(lobby, person)
    names = {lobby.view(person)["session"] for pair in pairs for person in pair}
    assert len(names) == 3
    for pair in pairs:
        play(lobby, *seats(lobby, *pair))
    assert len(load_invig(out).samples) == 3
    assert len({sample.image_id for sample in load_invig(out).samples}) == 3


def test_a_row_that_cannot_be_written_leaves_the_verdict_open(
    lobby: Lobby, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(lobby, "ann")
    enter(lobby, "bob")
    user, agent = seats(lobby, "ann", "bob")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", fail)
        with pytest.raises(OSError, match="No space"):
            play(lobby, user, agent)
    assert lobby.view(user)["phase"] == "check"
    assert not list((out / "rows").iterdir())
    assert not list((out / "images").iterdir())
    lobby.act(user, {"do": "judge", "right": True}, 2)
    assert len(load_invig(out).samples) == 1


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_no_picture_repeats_until_all_were_used_across_restarts(images: Path, out: Path) -> None:
    for number, skips in enumerate((0, 1, 0)):
        lobby = new_lobby(images, out, seed=number)  # a new process
        enter(lobby, "ann", "user")
        enter(lobby, "bob", "agent")
        for _ in range(skips):
            lobby.act("bob", {"do": "skip", "reason": SKIP_REASONS[0]}, 1)
        play(lobby, "ann", "bob", right=number != 1)
        counts = RowStore(out, default_consent()).used()
        # a row, then a skip and a rejected row: each of the three pictures once; then a second time
        assert sorted(counts.values()) == [[1], [1, 1, 1], [1, 1, 2]][number]
    assert len(list((out / "rows").iterdir())) == 2


def test_pictures_are_drawn_in_rounds(images: Path) -> None:
    queue = PictureQueue([images], {}, random.Random(1))
    rounds = [sorted(queue.draw().name for _ in range(3)) for _ in range(2)]
    assert rounds[0] == rounds[1] == [f"photos/{number}.png" for number in range(3)]


def test_a_picture_whose_dialogue_broke_off_is_drawn_again(images: Path, out: Path) -> None:
    rows = RowStore(out, default_consent())
    queue = PictureQueue([images], rows.used())
    lobby = Lobby(queue, rows)
    enter(lobby, "ann")
    enter(lobby, "bob")
    assert queue.unused == 2
    lobby.act("bob", {"do": "leave"}, 1)
    assert queue.unused == 3


def test_broken_pictures_are_left_out(images: Path, caplog: pytest.LogCaptureFixture) -> None:
    (images / "broken.png").write_bytes(b"not a picture")
    queue = PictureQueue([images], {}, random.Random(0))
    assert len({queue.draw().name for _ in range(8)}) == 3
    assert "broken.png" in caplog.text


def test_without_a_readable_picture_both_are_told(tmp_path: Path, out: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "broken.png").write_bytes(b"no")
    lobby = new_lobby(tmp_path / "x", out)
    enter(lobby, "ann")
    enter(lobby, "bob")
    for person in ("ann", "bob"):
        assert "none of the pictures can be read" in lobby.view(person)["notice"]
        assert lobby.view(person)["stage"] == "choose"


def test_a_stored_picture_has_no_metadata_and_stands_upright(tmp_path: Path, out: Path) -> None:
    (tmp_path / "x").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    exif[0x010F] = "SecretCamera"
    Image.new("RGB", (100, 200), "red").save(tmp_path / "x" / "a.jpg", exif=exif)
    lobby = new_lobby(tmp_path / "x", out)
    enter(lobby, "ann")
    enter(lobby, "bob")
    assert lobby.view("ann")["size"] == [200, 100]
    assert b"SecretCamera" not in lobby.picture("ann", lobby.view("ann")["session"])
    play(lobby, *seats(lobby, "ann", "bob"))
    (stored,) = (out / "images").iterdir()
    assert b"SecretCamera" not in stored.read_bytes()
    assert Image.open(stored).size == (200, 100)


def test_sources_are_checked_at_once(tmp_path: Path, images: Path) -> None:
    for source in (tmp_path / "none", tmp_path):
        if source == tmp_path:
            (tmp_path / "empty").mkdir()
            source = tmp_path / "empty"
        with pytest.raises(ClueError):
            PictureQueue([source], {})
    with pytest.raises(ClueError, match="two pictures are called"):
        PictureQueue([images, images], {})
    assert len(PictureQueue([images / "0.png", images / "1.png"], {})) == 2


def test_a_file_that_is_no_row_and_a_line_cut_off_are_survived(images: Path, out: Path) -> None:
    lobby = new_lobby(images, out)
    (out / "rows" / "pair-x.json").write_text("[{")
    (out / "skipped.csv").write_bytes(b"date,picture,role,reason\r\n2026-01-01,photos/0.p")
    enter(lobby, "ann")
    enter(lobby, "bob")
    lobby.act("ann", {"do": "skip", "reason": SKIP_REASONS[0]}, 1)
    counts = RowStore(out, default_consent()).used()
    assert sum(counts[f"photos/{number}.png"] for number in range(3)) == 1


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClueError, match="nothing can be written there"):
        RowStore(tmp_path / "file" / "out", default_consent())


def test_a_consent_text_of_ones_own_has_a_version_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "ethics board 12.txt"
    path.write_text("I agree.")
    first = read_consent(path)
    path.write_text("I agree to more.")
    second = read_consent(path)
    assert first.text == "I agree."
    assert first.version.startswith("ethics-board-12-")
    assert first.version != second.version
    path.write_text("  ")
    with pytest.raises(ClueError, match="1 to 20000 characters"):
        read_consent(path)
    with pytest.raises(ClueError, match="cannot be read"):
        read_consent(tmp_path / "none.txt")

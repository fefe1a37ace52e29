# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The people of `clue pair`: those who wait, the pairs, and the seats that are kept.

Two people are paired when one may be the user and the other the agent: the first two who fit, or
the two of one room. They stay together over several pictures and swap roles after each one if both
take either. Nothing here waits or knows the network: the clock and the random numbers are given.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from clue_ros.console.pair_rows import Picture, PictureQueue, RowStore, today
from clue_ros.console.pairs import (
    ROLES,
    SKIP_REASONS,
    WRONG_REASONS,
    PairError,
    PairSession,
    Role,
)

Wish = Literal["either", "user", "agent"]
WISHES: tuple[Wish, ...] = get_args(Wish)

MAX_PEOPLE = 200  # seats: people who wait or are paired
MAX_AGREED = 1000  # people who agreed and have not come yet; beyond, the first one must agree again
GRACE_SECONDS = 120.0  # seconds that a seat is kept without a connection
_ROOM = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(eq=False)
class Person:
    """Someone who agreed to the consent text.

    id: random, of no meaning. consented: the date. gone_since: when the connection was lost, None
    while there is one. waiting_since: when the person asked for a partner, None if not asked.
    """

    id: str
    consented: str
    gone_since: float | None
    wish: Wish = "either"
    room: str = ""
    waiting_since: float | None = None
    pair: Pair | None = None
    notice: str = ""


@dataclass(eq=False)
class Pair:
    """Two people at one picture. people: in the order of ROLES. ready: who wants the next one."""

    people: tuple[Person, Person]
    picture: Picture
    session: PairSession
    ready: set[str] = field(default_factory=set)


class FullError(PairError):
    """All seats are taken."""


class Lobby:
    """Everyone on the page. A person takes a seat with the cookie of the consent.

    Methods raise PairError (or another ClueError) for a forbidden action. Not thread-safe. now: a
    clock in seconds that never goes back.
    """

    def __init__(
        self, pictures: PictureQueue, rows: RowStore, rng: random.Random | None = None
    ) -> None:
        self._pictures, self._rows = pictures, rows
        self._rng = rng or random.Random()
        self._people: dict[str, Person] = {}
        self._agreed: dict[str, tuple[str, float]] = {}  # the date and the time, by ids

    # ---------------------------------------------------------------------------------------------
    # Coming and going.

    @property
    def people(self) -> int:
        """The number of people who wait, are paired, or have their seat kept."""
        return len(self._people)

    def knows(self, person_id: str) -> bool:
        """Whether this person agreed to the consent text and has not left since."""
        return self.has_seat(person_id) or person_id in self._agreed

    def has_seat(self, person_id: str) -> bool:
        """True if this person has come and has a seat."""
        return person_id in self._people

    def consent(self, person_id: str, version: str, now: float) -> None:
        """Note that a person agreed to the consent text of this version; `connect` seats them."""
        if version != self._rows.consent.version:
            raise PairError("the consent text has changed: load the page again and read it")
        if person_id in self._people:
            return
        self._require_seat()
        self._agreed.pop(person_id, None)
        self._agreed[person_id] = today(), now
        while len(self._agreed) > MAX_AGREED or self._is_late(next(iter(self._agreed)), now):
            del self._agreed[next(iter(self._agreed))]

    def _is_late(self, person_id: str, now: float) -> bool:
        return now - self._agreed[person_id][1] > GRACE_SECONDS

    def _require_seat(self) -> None:
        if len(self._people) >= MAX_PEOPLE:
            raise FullError(f"{MAX_PEOPLE} people are here already: try again later")

    def connect(self, person_id: str, now: float) -> None:
        """The person's page is open; a seat that was kept is theirs again. Raises FullError."""
        if person_id in self._agreed and person_id not in self._people:
            self._require_seat()
            date, _ = self._agreed.pop(person_id)
            self._people[person_id] = Person(person_id, date, gone_since=now)
        person = self._person(person_id)
        returns, person.gone_since = person.gone_since is not None, None
        if person.pair is not None and returns:
            self._tell(self._other(person), "The other person is back.")
        self._match(now)

    def disconnect(self, person_id: str, now: float) -> None:
        """The person's page was closed or lost: the seat is kept for GRACE_SECONDS."""
        person = self._people.get(person_id)
        if person is None:
            return
        person.gone_since = now
        if person.pair is not None:
            minutes = f"{GRACE_SECONDS / 60:g} minutes"
            text = f"The other person has lost the connection. The seat is kept for {minutes}."
            self._tell(self._other(person), text)

    def join(self, person_id: str, wish: str, room: str, now: float) -> None:
        """Ask for a partner: in any room (""), or in a named one that takes two people."""
        person = self._person(person_id)
        if person.pair is not None:
            raise PairError("you are in a dialogue already")
        if wish not in WISHES:
            raise PairError(f"choose a role: {', '.join(WISHES)}")
        if not isinstance(room, str) or (room and not _ROOM.fullmatch(room)):
            raise PairError("a room's name has 1 to 40 letters, digits, '-' or '_'")
        if room:
            inside = [
                p
                for p in self._people.values()
                if p is not person and p.room == room and (p.pair or p.waiting_since is not None)
            ]
            if len(inside) >= 2:
                raise PairError(f"both seats of room {room} are taken")
            if inside and wish != "either" and inside[0].wish == wish:
                raise PairError(f"the other person in room {room} is the {wish}: take another role")
        person.wish, person.room = wish, room
        person.waiting_since = now
        self._match(now)

    def leave(self, person_id: str, now: float) -> None:
        """Forget a person. The other one of a pair waits for a new partner."""
        person = self._people.pop(person_id, None)
        if person is not None and person.pair is not None:
            self._part(person, "The other person has left.", now)
        self._match(now)

    def tick(self, now: float) -> None:
        """End seats without a connection and turns that nobody took in time."""
        for person in list(self._people.values()):
            if person.gone_since is not None and now - person.gone_since > GRACE_SECONDS:
                self.leave(person.id, now)
        pairs = {id(p.pair): p.pair for p in self._people.values() if p.pair is not None}
        for pair in pairs.values():
            late = [p for p in pair.people if self._late(pair, p, now)]
            if not late:
                continue
            for person in late:
                person.waiting_since = None
                self._tell(person, "You took too long, so the dialogue was ended.")
            if len(late) == 2:
                self._close(pair)
            else:
                self._part(late[0], "The other person took too long.", now)
        self._match(now)

    def _late(self, pair: Pair, person: Person, now: float) -> bool:
        if pair.session.seconds_left(now) >= 0:
            return False
        if pair.session.phase == "done":
            return person.id not in pair.ready
        return pair.session.turn == pair.session.role(person.id)

    # ---------------------------------------------------------------------------------------------
    # Actions of a person.

    def act(self, person_id: str, action: Mapping[str, Any], now: float) -> None:
        """Do what a page asks: {"do": NAME, ...}.

        join: role, room. leave. choose, point: box, four sides in pixels. say: text. judge: right,
        reason. skip: reason. reset. next. Raises PairError, another ClueError for bad text, or
        OSError where a row cannot be written; the dialogue is then as it was before.
        """
        person, do = self._person(person_id), action.get("do")
        if do == "leave":
            self.leave(person_id, now)
            return
        if do == "join":
            self.join(person_id, str(action.get("role")), action.get("room", ""), now)
            return
        pair = person.pair
        if pair is None:
            raise PairError("you are in no dialogue: wait for another person")
        session = pair.session
        if do == "choose":
            session.choose(person_id, action.get("box", ()), now)
        elif do == "say":
            session.say(person_id, action.get("text", ""), now)
        elif do == "point":
            session.point(person_id, action.get("box", ()), now)
        elif do == "judge":
            self._judge(pair, person, action, now)
        elif do == "skip":
            reason = str(action.get("reason"))
            role = session.skip(person_id, reason)
            self._rows.skip(pair.picture, role, reason)
            self._next_picture(pair, swap=False, now=now)
            for one in pair.people:
                self._tell(one, f"The {role} skipped the last picture: {reason}.")
            return
        elif do == "reset":
            role = session.reset(person_id, now)
            for one in pair.people:
                self._tell(one, f"The {role} started this picture over.")
            return
        elif do == "next":
            self._ready(pair, person, now)
        else:
            raise PairError("the page sent something unknown: load it again")
        for one in pair.people:
            one.notice = ""

    def _judge(self, pair: Pair, person: Person, action: Mapping[str, Any], now: float) -> None:
        right = action.get("right")
        if not isinstance(right, bool):
            raise PairError("say whether the box is right or wrong")
        verdict = pair.session.judge(person.id, right, str(action.get("reason")))
        consented: dict[Role, str] = {role: self._seat(pair, role).consented for role in ROLES}
        self._rows.write(pair.session, verdict, pair.picture, consented)
        pair.session.end(verdict, now)

    def _ready(self, pair: Pair, person: Person, now: float) -> None:
        if pair.session.phase != "done":
            raise PairError("this picture is not done: end it, or skip it")
        pair.ready.add(person.id)
        if len(pair.ready) == len(pair.people):
            swap = all(one.wish == "either" for one in pair.people)
            self._next_picture(pair, swap=swap, now=now)

    def _next_picture(self, pair: Pair, *, swap: bool, now: float) -> None:
        picture = self._pictures.draw()
        if swap:
            pair.people = pair.people[1], pair.people[0]
        pair.picture = picture
        pair.session = PairSession(pair.people[0].id, pair.people[1].id, picture.size, now)
        pair.ready.clear()

    def prepare(self, person_id: str) -> None:
        """Encode the picture that a verdict will store: seconds for a large one, so do it ahead.

        May run in another thread than the other methods.
        """
        pair = self._person(person_id).pair
        if pair is not None and pair.session.phase == "check":
            _ = pair.picture.stored

    # ---------------------------------------------------------------------------------------------
    # The view of a person.

    def view(self, person_id: str) -> dict[str, Any]:
        """Everything that this person may see, as plain data for the page."""
        person = self._person(person_id)
        pair = person.pair
        seen: dict[str, Any] = {
            "you": person.id,
            "notice": person.notice,
            "room": person.room,
            "wish": person.wish,
        }
        if pair is not None:
            return seen | {
                "stage": "pair",
                "partner_here": self._other(person).gone_since is None,
                "ready": person.id in pair.ready,
                "skip_reasons": list(SKIP_REASONS),
                "wrong_reasons": list(WRONG_REASONS),
                **pair.session.view(person_id),
            }
        if person.waiting_since is None:
            return seen | {"stage": "choose"}
        others = [p for p in self._people.values() if p is not person and p.room == person.room]
        here = [p for p in others if p.pair is None and p.gone_since is None]
        return seen | {
            "stage": "waiting",
            "waiting": sum(p.waiting_since is not None for p in here),
            "paired": sum(p.pair is not None for p in others),
        }

    def seconds_left(self, person_id: str, now: float) -> float | None:
        """Time left of the turn in this person's dialogue; None outside one."""
        pair = self._person(person_id).pair
        return None if pair is None else pair.session.seconds_left(now)

    def picture(self, person_id: str, session_id: str) -> bytes:
        """The JPEG of the person's own dialogue, and of no other."""
        pair = self._person(person_id).pair
        if pair is None or pair.session.id != session_id:
            raise PairError("this picture is not in your dialogue")
        return pair.picture.shown

    # ---------------------------------------------------------------------------------------------

    def _person(self, person_id: str) -> Person:
        if person_id not in self._people:
            raise PairError("agree to the consent text first")
        return self._people[person_id]

    @staticmethod
    def _other(person: Person) -> Person:
        assert person.pair is not None
        first, second = person.pair.people
        return second if person is first else first

    @staticmethod
    def _seat(pair: Pair, role: Role) -> Person:
        return pair.people[ROLES.index(role)]

    @staticmethod
    def _tell(person: Person, text: str) -> None:
        person.notice = text

    def _close(self, pair: Pair) -> None:
        """End a pair; its picture counts as not used unless the dialogue was finished."""
        if pair.session.phase != "done":
            self._pictures.give_back(pair.picture)
        for person in pair.people:
            person.pair = None

    def _part(self, leaving: Person, reason: str, now: float) -> None:
        """End the pair of someone who goes; the other one waits again."""
        assert leaving.pair is not None
        other = self._other(leaving)
        self._close(leaving.pair)
        other.waiting_since = now
        self._tell(other, f"{reason} You wait for another person now.")

    def _match(self, now: float) -> None:
        """Pair those who wait and fit, who waited longest first."""
        waiting = sorted(
            (
                p
                for p in self._people.values()
                if p.pair is None and p.waiting_since is not None and p.gone_since is None
            ),
            key=lambda p: p.waiting_since or 0.0,
        )
        while waiting:
            first = waiting.pop(0)
            fits = (p for p in waiting if p.room == first.room and self._seating(first, p))
            second = next(fits, None)
            if second is not None:
                waiting.remove(second)
                self._start(first, second, now)

    def _seating(self, first: Person, second: Person) -> list[tuple[Person, Person]]:
        """The ways to seat two people as (user, agent)."""
        both = ((first, second), (second, first))
        return [(u, a) for u, a in both if u.wish != "agent" and a.wish != "user"]

    def _start(self, first: Person, second: Person, now: float) -> None:
        user, agent = self._rng.choice(self._seating(first, second))
        try:
            picture = self._pictures.draw()
        except PairError as error:
            for person in (user, agent):
                person.waiting_since = None
                self._tell(person, str(error))
            return
        session = PairSession(user.id, agent.id, picture.size, now)
        pair = Pair((user, agent), picture, session)
        for person in pair.people:
            person.pair, person.waiting_since, person.notice = pair, None, ""

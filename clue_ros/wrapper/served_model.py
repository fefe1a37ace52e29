# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A language model behind a server with OpenAI's API, such as those of vLLM and llama.cpp.

    http://127.0.0.1:8000/v1          the server's only model
    http://127.0.0.1:8000/v1#NAME     one of several, by its name there

Only servers on this machine are asked, because dialogues and what the robot sees go there. The
environment variable CLUE_SERVERS names other hosts that may be asked ("gpu-box,10.0.0.7"). No key
is sent, no redirect is followed and no proxy is used.
"""

from __future__ import annotations

import ipaddress
import json
import math
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import urlsplit

from clue_ros.dialogue.candidates import Candidate
from clue_ros.errors import ModelError
from clue_ros.model.loading import first_line
from clue_ros.wrapper import is_address
from clue_ros.wrapper.language_model import (
    MAX_ANSWER,
    MAX_WORDS,
    Choice,
    LanguageModel,
    Listing,
    WrapperSettings,
)
from clue_ros.wrapper.prompt import (
    ASK,
    NONE,
    SYSTEM,
    Answer,
    AnswerKind,
    list_boxes,
    listed_order,
    question_text,
    read_answer,
)

SERVERS = "CLUE_SERVERS"  # environment variable: hosts that may be asked beside this machine
SECONDS = 60.0  # for an answer
LISTING_SECONDS = 20.0  # for the list of models
MOST_BYTES = 1 << 22  # of an answer
TOP = 20  # tokens whose log-probabilities are asked for: the most that the API gives
# Text that a tokenizer could take for a token of its own: the server parses its chat template's.
_TOKEN_LIKE = re.compile(r"(?<=<)(?=[^<>\s]+>)|(?<=\[)(?=/?[A-Z_]+\])")


class ServerError(ModelError):
    """A server does not answer, or not as it should."""


@dataclass(frozen=True)
class Address:
    """The address of a server. model: the name behind #, empty for its only model."""

    scheme: str
    host: str
    port: int | None
    path: str
    model: str

    @property
    def url(self) -> str:
        """The address without the model."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{f':{self.port}' if self.port else ''}{self.path}"


def read_address(line: str) -> Address:
    """The parts of an address. Raises ModelError, for a host that may not be asked too.

    >>> read_address("http://127.0.0.1:8000/v1#mine").model
    'mine'
    """
    try:
        parts = urlsplit(line)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ModelError(f"{line!r} is no address: {error}") from error
    if not host or parts.query or "@" in parts.netloc:
        raise ModelError(f"{line!r} is no address: want http://127.0.0.1:PORT/v1, or ...#MODEL")
    others = {name.strip().lower() for name in os.environ.get(SERVERS, "").split(",")}
    if not _is_here(host) and host not in others:
        raise ModelError(
            f"{host} is not this machine, and dialogues would be sent there: if they may,"
            f" set {SERVERS}={host} in the environment"
        )
    return Address(parts.scheme, host, port, parts.path.rstrip("/"), parts.fragment)


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified  # 0.0.0.0, as servers print it


def served_models(address: Address, seconds: float = LISTING_SECONDS) -> list[str]:
    """The names of the models that a server has. Raises ServerError."""
    content = _exchange(address, "GET", "/models", None, seconds)
    entries = content.get("data") if isinstance(content, Mapping) else None
    rows = entries if isinstance(entries, list) else []
    found = [row.get("id") for row in rows if isinstance(row, Mapping)]
    names = [name for name in found if isinstance(name, str)]
    if not names:
        raise ServerError(f"{address.url}/models lists no model: is it a server of OpenAI's API?")
    return names


def chosen_model(address: Address, names: Sequence[str]) -> str:
    """The model that an address means, of those that its server has. Raises ModelError."""
    if address.model in names or (len(names) == 1 and not address.model):
        return address.model or names[0]
    shown = ", ".join(names[:5])
    if address.model:
        raise ModelError(f"{address.url} has no model {address.model!r}: it has {shown}")
    raise ModelError(f"{address.url} has several models ({shown}): name one behind #")


def _exchange(
    address: Address, method: str, path: str, body: Mapping[str, Any] | None, seconds: float
) -> Any:
    """The JSON that a server answers within so many seconds. Raises ServerError."""
    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = kind(address.host, address.port, timeout=seconds)
    late = time.monotonic() + seconds
    timer: Timer | None = None
    try:
        connection.connect()
        # The socket's own timeout is for each read alone: a server may send a byte now and then.
        timer = Timer(seconds, _hang_up, [connection.sock])
        timer.start()
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, address.path + path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        status, content = response.status, response.read(MOST_BYTES + 1)
        if time.monotonic() >= late:  # what was read before the timer hung up is not all
            raise TimeoutError
    except (OSError, HTTPException) as error:
        if isinstance(error, TimeoutError) or time.monotonic() >= late:
            raise ServerError(
                f"{address.url} has not answered within {seconds:g} s: it is too slow, or hangs"
            ) from error
        raise ServerError(
            f"no server answers at {address.url} ({first_line(error)}): start one, such as"
            " `vllm serve MODEL` or `llama-server -m FILE`"
        ) from error
    finally:
        if timer is not None:
            timer.cancel()
        connection.close()
    if len(content) > MOST_BYTES:
        raise ServerError(f"{address.url} answers with more than {MOST_BYTES} bytes")
    text = content.decode("utf-8", "replace")
    if status != 200:
        raise ServerError(
            f"{address.url} answers with status {status}: {' '.join(text.split())[:200]}"
        )
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ServerError(f"{address.url} answers with what is no JSON: {text[:60]!r}") from error


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


Position = tuple[str, dict[str, float]]
"""A token that was said, and the probabilities of the likeliest tokens in its place."""


class ServedModel:
    """A language model of a server, asked about boxes as `LanguageModel` is.

    The probabilities of answers are those of the server's log-probabilities; without them the
    spoken answer is taken for certain. It has the paper's prompt.
    """

    dtype = "its server's"

    def __init__(self, address: Address, model: str, seconds: float = SECONDS) -> None:
        """Take the longest time of an answer, in seconds."""
        self._address, self._model, self._seconds = address, model, seconds
        self.name = self.device = f"{address.url}#{model}"
        self.settings = WrapperSettings()

    @classmethod
    def load(cls, line: str, seconds: float = SECONDS) -> ServedModel:
        """Find the model of an address (see the module). Raises ModelError."""
        address = read_address(line)
        return cls(address, chosen_model(address, served_models(address)), seconds)

    def memory_bytes(self) -> int:
        """None here."""
        return 0

    def read(self, candidates: Sequence[Candidate], size: tuple[int, int]) -> Listing:
        """The lines about boxes in an image of this size (width, height); the server keeps them."""
        form = self.settings.form
        order = listed_order(candidates, form)
        return Listing(order, list_boxes([candidates[i] for i in order], size, form), None, 0)

    def choose(self, listing: Listing, dialogue: str) -> Choice:
        """The answer to a dialogue: the request, or C(k) with all its turns. Raises ServerError."""
        question = question_text(dialogue, self.settings.form)
        most = max(MAX_ANSWER, 4 + 3 * listing.count)
        messages = [_message("system", SYSTEM), _message("user", f"{listing.lines}\n{question}")]
        try:
            text, positions = self._chat(messages, most, TOP)
        except ServerError as error:
            if "role" not in str(error).lower():
                raise
            # A chat template without a system role, as Gemma's.
            both = _message("user", f"{SYSTEM}\n{listing.lines}\n{question}")
            text, positions = self._chat([both], most, TOP)
        shares = answer_shares(positions, listing.count)
        return listing.choice(text, shares or certain(read_answer(text, listing.count), listing))

    def matching(self, listing: Listing, dialogue: str) -> tuple[int, ...]:
        """Return none, because a server cannot begin with "ask"; the likely boxes match then."""
        return ()

    def say(self, request: str) -> str:
        """A short text of its own: its first line. Raises ServerError."""
        text, _ = self._chat([_message("user", request)], MAX_WORDS, 0)
        return text.splitlines()[0].strip() if text else ""

    def _chat(
        self, messages: Sequence[Mapping[str, str]], most: int, top: int
    ) -> tuple[str, list[Position]]:
        """Return the greedy answer in `most` tokens, with `top` likely tokens for each."""
        body: dict[str, Any] = {"model": self._model, "messages": messages, "max_tokens": most}
        body |= {"temperature": 0} | ({"logprobs": True, "top_logprobs": top} if top else {})
        url = self._address.url
        content = _exchange(self._address, "POST", "/chat/completions", body, self._seconds)
        try:
            choice = content["choices"][0]
            text, logprobs = choice["message"]["content"], choice.get("logprobs") or {}
            entries = (logprobs.get("content") or []) if top else []
            positions = [(str(e["token"]), _likely(e["top_logprobs"])) for e in entries]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ServerError(f"{url} answers in another form than OpenAI's API") from error
        if not isinstance(text, str):
            raise ServerError(f"{url} answers without a text: does its model only think aloud?")
        return text.strip(), positions


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": _TOKEN_LIKE.sub(" ", content)}


def _likely(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {str(entry["token"]): math.exp(min(float(entry["logprob"]), 0.0)) for entry in entries}


def answer_shares(positions: Sequence[Position], count: int) -> list[float] | None:
    """The probability of each allowed answer about `count` boxes: the boxes, "ask ..." and "none".

    At each token the likely ones are shared among the answers that they begin. A token that was not
    said and begins several answers (1 of 1 and 12) is shared among them evenly. None where the
    tokens begin none of the answers, as in a sentence.

    >>> answer_shares([("2", {"2": 0.6, "1": 0.2, "The": 0.2})], 2)
    [0.25, 0.75, 0.0, 0.0]
    """
    allowed = [*map(str, range(1, count + 1)), ASK, NONE]
    shares, left, mass, said = dict.fromkeys(allowed, 0.0), allowed, 1.0, ""
    for token, likely in positions:
        fits = {t: _begun(left, said, t) for t in likely}
        total = sum(likely[t] for t, found in fits.items() if found)
        if not fits.get(token) or not total:
            if said:
                break
            continue  # words before the answer
        for t, found in fits.items():
            part = mass * likely[t] / total if found else 0.0
            for answer in found if t != token else ():
                shares[answer] += part / len(found)
        left, mass = fits[token], mass * likely[token] / total
        said += token.lower() if said else token.strip().lower()
        if len(left) == 1:
            break
    if not said:
        return None
    ended = [said] if said in left else left
    for answer in ended:
        shares[answer] += mass / len(ended)
    return list(shares.values())


def _begun(answers: Sequence[str], said: str, token: str) -> list[str]:
    """The answers that go on with a token; the one that has been said, where none does."""
    more = token.lower() if said else token.strip().lower()
    going_on = [a for a in answers if more and a.startswith(said + more)]
    return going_on or [a for a in answers if a == said]


def certain(answer: Answer, listing: Listing) -> list[float]:
    """All probability on the answer that was given: of the boxes in order, "ask ..." and "none"."""
    shares = [0.0] * (listing.count + 2)
    if answer.kind is AnswerKind.POINT:
        shares[answer.indices[0]] = 1.0
    else:
        shares[-1 if answer.kind is AnswerKind.NONE else -2] = 1.0
    return shares


def open_language_model(
    name: str | Path, *, device: str = "auto", dtype: str = "auto", quantization: str = "none"
) -> LanguageModel | ServedModel:
    """The language model of a name: a server's, or one that is loaded. Raises ModelError."""
    if is_address(name):
        return ServedModel.load(str(name))
    return LanguageModel.load(name, device=device, dtype=dtype, quantization=quantization)

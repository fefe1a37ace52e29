"""A small server of OpenAI's API in a process of its own, which answers as its first argument says.

python chat_server.py MODE        prints its port; ends when its standard input does

MODE: good, without log-probabilities, sentence, no system role, several models, hangs, drips,
status 500, no json, another form, no text, redirect.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any


@contextmanager
def chat_server(mode: str = "good") -> Iterator[str]:
    """Run one; gives its address."""
    command = [sys.executable, __file__, mode]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.stdin.close()


def _answer(mode: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Points at box 2; says anything else as it was said."""
    said = request["messages"][-1]["content"]
    pointing = "The answer is 2." if mode == "sentence" else "2"
    text = pointing if "boxes:" in said else said
    message: dict[str, Any] = {"role": "assistant", "content": None if mode == "no text" else text}
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None}
    if request.get("logprobs") and mode != "without log-probabilities":
        likely = {"2": 0.5, " 1": 0.25, "ask": 0.15, "The": 0.06, "none": 0.04}
        top = [{"token": t, "logprob": math.log(p)} for t, p in likely.items()]
        lead = [{"token": "The", "top_logprobs": [], "logprob": -0.1}] if mode == "sentence" else []
        entries = [*lead, {"token": "2", "logprob": math.log(0.5), "top_logprobs": top}]
        choice["logprobs"] = {"content": entries}
    return {"object": "chat.completion", "choices": [choice]}


def _serve(mode: str) -> None:
    never = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            names = ("tiny", "large") if mode == "several models" else ("tiny",)
            self.reply({"object": "list", "data": [{"id": name} for name in names]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            roles = [message["role"] for message in body["messages"]]
            if mode == "hangs":
                never.wait()
            elif mode == "drips":
                self.send_response(200)
                self.end_headers()
                while not never.wait(0.05):
                    self.wfile.write(b" ")
            elif mode == "status 500":
                self.reply({"error": {"message": "out of memory"}}, 500)
            elif mode == "no json":
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"<html>")
            elif mode == "another form":
                self.reply({"text": "2"})
            elif mode == "redirect":
                self.send_response(307)
                self.send_header("Location", "http://example.com/v1/chat/completions")
                self.end_headers()
            elif mode == "no system role" and "system" in roles:
                self.reply({"error": {"message": "System role not supported"}}, 400)
            else:
                self.reply(_answer(mode, body))

        def reply(self, content: Mapping[str, Any], status: int = 200) -> None:
            """Send JSON."""
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(sys.argv[1])

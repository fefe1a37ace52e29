#!/usr/bin/env bash
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
# `import openvino` alone writes an identifier into the home folder and calls a web service.
#
# openvino 2026.4.1 with openvino-telemetry 2025.2.0, which pip installs beside it. Nothing is loaded
# and nothing computed. A robot behind a firewall waits for nothing, but a packet leaves every process
# that imports the library. With CI=true in the environment, or with the value 0 in the file
# ~/intel/openvino_telemetry, neither happens. Where the module openvino_telemetry is absent,
# openvino takes a stub of its own and neither happens either: clue_ros hides the module during its
# import (clue_ros/model/quiet_openvino.py).
#
# Seen:  import: 1 request, files intel/openvino_ga_cid, intel/stats
#        import without the module: 0 requests, no files
#
# Fails if one of the two changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openvino==2026.4.1 openvino-telemetry==2025.2.0
env -u CI "$folder/venv/bin/python" - "$folder" <<'PY'
import http.server
import os
import pathlib
import subprocess
import sys
import threading

asked = []


class Proxy(http.server.BaseHTTPRequestHandler):
    """Refuses every request and counts it."""

    def do_CONNECT(self):
        asked.append(self.path)
        self.send_error(403)

    do_GET = do_POST = do_CONNECT

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"
kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
found = []
for name, code in {
    "import": "import openvino",
    "import without the module": "import sys; sys.modules['openvino_telemetry'] = None; import openvino",
}.items():
    home = pathlib.Path(sys.argv[1], name.replace(" ", "_"))
    home.mkdir()
    asked.clear()
    environment = kept | {"HOME": str(home), "https_proxy": address, "http_proxy": address}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    files = sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file())
    print(f"{name}: {len(asked)} requests, files {', '.join(files) or 'none'}")
    found.append((len(asked) > 0, "intel/openvino_ga_cid" in files))
sys.exit(found != [(True, True), (False, False)])
PY

"""The copyright and the licence in the first lines of the Python files."""

from __future__ import annotations

from scripts.license_headers import HEADER, ROOT, files, with_header


def test_every_python_file_begins_with_copyright_and_licence() -> None:
    paths = list(files())
    assert {ROOT / "setup.py", ROOT / "clue_ros" / "engine.py"} <= set(paths)
    missing = [
        path.relative_to(ROOT).as_posix()
        for path in paths
        if with_header(path.read_text(encoding="utf-8")) != path.read_text(encoding="utf-8")
    ]
    assert missing == [], "run: scripts/run python -m scripts.license_headers"


def test_the_header_goes_behind_the_line_that_names_the_interpreter() -> None:
    script = "#!/usr/bin/env python3\nprint()\n"
    assert with_header(script) == f"#!/usr/bin/env python3\n{HEADER}print()\n"
    assert with_header(with_header(script)) == with_header(script)
    assert with_header("") == HEADER

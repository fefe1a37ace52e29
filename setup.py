# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Package clue_ros for colcon (ament_python) and for pip."""

import os
import runpy
from glob import glob

from setuptools import find_packages, setup

package_name = "clue_ros"
programs = runpy.run_path(os.path.join(package_name, "nodes", "programs.py"))["PROGRAMS"]
requirements = runpy.run_path(os.path.join(package_name, "requirements.py"))


def share_files() -> list[tuple[str, list[str]]]:
    """List what goes into share/clue_ros: licences, launch, configuration, models, scenes."""
    share = os.path.join("share", package_name)
    files = [(share, ["package.xml", "LICENSE", "LICENSES.md"])]
    for top in ("launch", "config", "models", "demo"):
        for folder, subfolders, names in os.walk(top):
            subfolders[:] = sorted(s for s in subfolders if s != "__pycache__")
            kept = sorted(n for n in names if not n.startswith(".") and not n.endswith(".pyc"))
            if kept:
                paths = [os.path.join(folder, name) for name in kept]
                files.append((os.path.join(share, folder), paths))
    return files


setup(
    name=package_name,
    version="1.0.0",
    packages=find_packages(include=[package_name, f"{package_name}.*"]),
    package_data={
        f"{package_name}.console": ["static/*"],
        f"{package_name}.dialogue": ["*.safetensors", "*.txt"],
        f"{package_name}.lab.generation": ["*.json"],
        f"{package_name}.lab.language": ["templates/*.txt"],
    },
    data_files=[
        ("share/ament_index/resource_index/packages", glob("resource/" + package_name)),
        *share_files(),
    ],
    install_requires=["setuptools", *requirements["ROBOT"]],
    extras_require=requirements["EXTRAS"],
    python_requires=">=3.10",
    zip_safe=True,
    # A placeholder, here and in both package.xml: docs/contributing.md, "Release".
    maintainer="clue_ros maintainers",
    maintainer_email="maintainers@clue-ros.example",
    description="Finds the object a person asks for in an image; asks if it is ambiguous.",
    license="Apache-2.0",
    tests_require=["pytest"],
    entry_points={
        "console_scripts": [
            "clue = clue_ros.cli:main",
            *(f"{name}_node = clue_ros.nodes.executables:{name}" for name in programs),
        ],
    },
)

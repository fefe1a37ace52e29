# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The live page's routes."""

from __future__ import annotations

from fastapi import APIRouter

from clue_ros.console.live import LivePage
from clue_ros.console.robot import Robot


def live_router(page: LivePage, robot: Robot) -> APIRouter:
    """The routes of a live page."""
    return APIRouter()

# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The parameters of the nodes speech and tts."""

from __future__ import annotations

from functools import partial

from clue_ros.nodes.parameters import LANGUAGE_TAG, Change, Parameter
from clue_ros.voice.audio import MAX_CHANNELS

# Read when the node is configured, so it cannot change afterwards.
_Configured = partial(Parameter, change=Change.UNCONFIGURED)

LANGUAGE = _Configured(
    "language", "en-US", "Language, as a tag such as en-US or fr-FR.", pattern=LANGUAGE_TAG
)
STOP_WORDS = _Configured(
    "stop_words",
    "",
    "Further words that end a dialogue at once, beside those of clue_ros/dialogue/stops.txt,"
    " separated by commas; 'word *' counts as the first word of a sentence too.",
)
AUTOSTART = Parameter(
    "autostart",
    True,
    "Configure and activate at start. False: wait for a manager.",
    change=Change.NEVER,
)

TTS: tuple[Parameter, ...] = (
    _Configured(
        "engine",
        "auto",
        "auto: pyttsx3 if it works, else print; pyttsx3: fail if it does not work; print: never "
        "speak.",
        choices=("auto", "pyttsx3", "print"),
    ),
    LANGUAGE,
    _Configured(
        "voice",
        "",
        "The voice's id, name or language as pyttsx3 lists it, with espeak also a variant "
        "(en-us+f3); empty: the first one of the language.",
    ),
    _Configured("rate", 160, "Words per minute.", range=(60, 400), unit="words/min"),
    _Configured("volume", 1.0, "Loudness, 0 to 1.", range=(0.0, 1.0), unit="1"),
    _Configured(
        "output",
        "auto",
        "Where the sound goes. auto: a sound device, or none with a warning; device: fail without "
        "one; topic: spoken_audio, as fast as it would be heard; none: nowhere.",
        choices=("auto", "device", "topic", "none"),
    ),
    _Configured(
        "device",
        "",
        "Sound device as the player (pw-play, paplay or aplay) names it; empty: the default.",
    ),
    Parameter(
        "wav_folder",
        "",
        "A folder for a WAV file of each text that is said; empty: none.",
        change=Change.NEVER,
    ),
    _Configured(
        "engine_timeout",
        10.0,
        "Seconds for one sentence, after which a hung engine is started again.",
        range=(0.5, 120.0),
        unit="s",
    ),
    AUTOSTART,
)

SPEECH: tuple[Parameter, ...] = (
    _Configured(
        "source",
        "stdin",
        "Where speech comes from: stdin (typed lines), microphone, topic (audio), or the path of "
        "an audio file or a folder of them.",
    ),
    _Configured(
        "engine",
        "sphinx",
        "The recognizer; docs/voice.md says what each needs.",
        choices=("sphinx", "vosk", "faster_whisper"),
    ),
    LANGUAGE,
    STOP_WORDS,
    _Configured(
        "model_path",
        "",
        "The recognizer's model: a folder, for faster_whisper also a size; empty: the model that "
        "the recognizer brings.",
    ),
    Parameter(
        "hints",
        True,
        "Help the recognizer with the likely phrases: commands, or answers to the open question. "
        "False: plain dictation.",
    ),
    Parameter(
        "mode",
        "continuous",
        "continuous: always listen; push_to_talk: only during ~/listen, and after a question.",
        choices=("continuous", "push_to_talk"),
    ),
    Parameter(
        "accept_confidence",
        0.6,
        "Lowest confidence of a phrase that is acted on without asking back.",
        range=(0.0, 1.0),
        unit="1",
    ),
    Parameter(
        "confirm_confidence",
        0.25,
        "Lowest confidence of a phrase that is read back (did you say ...?); below, it was not "
        "understood.",
        range=(0.0, 1.0),
        unit="1",
        at_most="accept_confidence",
    ),
    _Configured(
        "device", "", "The microphone's number, or a part of its name; empty: the default."
    ),
    _Configured(
        "channel",
        -1,
        "Which channel of the sound is heard, counted from 0; -1: the mean of two channels, or the"
        " first of more, because others often carry the robot's own sound.",
        range=(0, MAX_CHANNELS - 1),
        special=-1,
        unit="1",
    ),
    _Configured(
        "ambient_seconds",
        1.0,
        "Seconds at the start in which the room's noise is measured; 0: never.",
        range=(0.0, 30.0),
        unit="s",
    ),
    _Configured(
        "ambient_margin",
        6.0,
        "Decibels above the room's noise from which sound may be speech.",
        range=(0.0, 40.0),
        unit="dB",
    ),
    _Configured(
        "vad_mode",
        2,
        "Aggressiveness of voice detection: 0 (accepts most sound as speech) to 3.",
        range=(0, 3),
        unit="1",
    ),
    _Configured(
        "end_silence", 0.6, "Seconds of silence that end a phrase.", range=(0.2, 5.0), unit="s"
    ),
    _Configured(
        "max_phrase",
        10.0,
        "Seconds after which a phrase is cut and recognized as it is.",
        range=(1.0, 60.0),
        unit="s",
    ),
    Parameter(
        "listen_timeout",
        8.0,
        "Seconds that ~/listen waits for speech, and that the robot waits for yes or no after "
        '"did you say ...?".',
        range=(0.5, 120.0),
        unit="s",
    ),
    Parameter(
        "partial_period",
        0.0,
        "Seconds between transcripts of a phrase that is still being spoken; 0: none.",
        range=(0.0, 10.0),
        unit="s",
    ),
    _Configured(
        "mute_tail",
        0.4,
        "Seconds after the robot's own voice in which speech is ignored.",
        range=(0.0, 5.0),
        unit="s",
    ),
    Parameter(
        "barge_in",
        "off",
        "Whether a person may interrupt the robot. voice: any voice silences it (needs an echo "
        "canceller); words: a recognized phrase does, unless it repeats the robot's own words; "
        "off: never.",
        choices=("off", "voice", "words"),
    ),
    Parameter(
        "prompt",
        "you> ",
        "Shown before each typed line when stdin is a terminal.",
        change=Change.NEVER,
    ),
    AUTOSTART,
)

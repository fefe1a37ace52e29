"""The parameters of the speech and tts nodes; `parameters` has all tables."""

from __future__ import annotations

from clue_ros.nodes.parameter import LANGUAGE_TAG, Change, Parameter

VOICE_LANGUAGE = "Language, as a tag such as en-US or fr-FR."

TTS: tuple[Parameter, ...] = (
    Parameter(
        "engine",
        "auto",
        "auto: pyttsx3 where it works, else print; pyttsx3: fail where it does not; print: "
        "never speak.",
        choices=("auto", "pyttsx3", "print"),
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "language", "en-US", VOICE_LANGUAGE, pattern=LANGUAGE_TAG, change=Change.UNCONFIGURED
    ),
    Parameter(
        "voice",
        "",
        "The voice's id, name or language as pyttsx3 lists it, with espeak also a variant "
        "(en-us+f3); empty: the first one of the language.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "rate",
        160,
        "Words a minute.",
        range=(60, 400),
        unit="words/min",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "volume", 1.0, "Loudness, 0 to 1.", range=(0.0, 1.0), unit="1", change=Change.UNCONFIGURED
    ),
    Parameter(
        "output",
        "auto",
        "Where the sound goes. auto: a sound device, or none with a warning; device: fail without "
        "one; topic: spoken_audio, as fast as it would be heard; none: nowhere.",
        choices=("auto", "device", "topic", "none"),
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "device",
        "",
        "Sound device as the player (pw-play, paplay or aplay) names it; empty: the default.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "wav_folder",
        "",
        "A folder to keep a WAV file of everything said; empty: none.",
        change=Change.NEVER,
    ),
    Parameter(
        "engine_timeout",
        10.0,
        "Seconds for one sentence after which a hung engine is started again.",
        range=(0.5, 120.0),
        unit="s",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "autostart",
        True,
        "Configure and activate at start. False: wait for a manager.",
        change=Change.NEVER,
    ),
)

SPEECH: tuple[Parameter, ...] = (
    Parameter(
        "source",
        "stdin",
        "Where speech comes from: stdin (typed lines), microphone, topic (audio), or the path of "
        "an audio file or a folder of them.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "engine",
        "sphinx",
        "The recognizer; docs/voice.md says what each needs.",
        choices=(
            "sphinx",
            "vosk",
            "faster_whisper",
            "whisper",
            "google",
            "google_cloud",
            "azure",
            "wit",
            "openai",
            "groq",
        ),
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "language", "en-US", VOICE_LANGUAGE, pattern=LANGUAGE_TAG, change=Change.UNCONFIGURED
    ),
    Parameter(
        "model_path",
        "",
        "The engine's model: a folder or file, for whisper also a size; empty: the one it brings.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "hints",
        True,
        "Help the engine with what is likely to be said: commands, or answers to the open "
        "question. False: plain dictation.",
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
        "Confidence from which what was heard is acted on without asking back.",
        range=(0.0, 1.0),
        unit="1",
    ),
    Parameter(
        "confirm_confidence",
        0.25,
        "Confidence from which it is asked back (did you say ...?); below, it was not understood.",
        range=(0.0, 1.0),
        unit="1",
        at_most="accept_confidence",
    ),
    Parameter(
        "device",
        "",
        "The microphone's number, or a part of its name; empty: the default.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "ambient_seconds",
        1.0,
        "Seconds at the start in which the room's noise is measured; 0: never.",
        range=(0.0, 30.0),
        unit="s",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "ambient_margin",
        6.0,
        "Decibels above the room's noise from which sound may be speech.",
        range=(0.0, 40.0),
        unit="dB",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "vad_mode",
        2,
        "How much the voice detector rejects: 0 (takes much for speech) to 3.",
        range=(0, 3),
        unit="1",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "end_silence",
        0.6,
        "Seconds of silence that end a phrase.",
        range=(0.2, 5.0),
        unit="s",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "max_phrase",
        10.0,
        "Seconds after which a phrase is cut and recognized as it is.",
        range=(1.0, 60.0),
        unit="s",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "listen_timeout",
        8.0,
        "Seconds that ~/listen waits for somebody to speak, and that a confirming question "
        "waits for yes or no.",
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
    Parameter(
        "mute_tail",
        0.4,
        "Seconds after the robot's own voice in which nothing is listened to.",
        range=(0.0, 5.0),
        unit="s",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "barge_in",
        "off",
        "Whether a person may interrupt the robot. voice: any voice silences it (needs an echo "
        "canceller); words: a phrase that was understood and is not its own does; off: never.",
        choices=("off", "voice", "words"),
    ),
    Parameter(
        "prompt",
        "you> ",
        "Shown before each typed line when stdin is a terminal.",
        change=Change.NEVER,
    ),
    Parameter(
        "autostart",
        True,
        "Configure and activate at start. False: wait for a manager.",
        change=Change.NEVER,
    ),
)

// Hold to talk: the browser's microphone as 16 kHz mono int16, while a button is held.

const RATE = 16000;
const CHUNK = RATE / 10; // samples of one message
const SILENCE = 15; // chunks after the button is let go, so that the recognizer hears the end

export class Microphone {
  #button; #handlers; #held = false; #session = null;

  /** handlers: sound(ArrayBuffer), failed(reason). */
  constructor(button, handlers) {
    this.#button = button;
    this.#handlers = handlers;
    button.setAttribute("aria-pressed", "false");
    if (!navigator.mediaDevices?.getUserMedia || !window.AudioWorkletNode) {
      button.disabled = true;
      button.title = "Browsers give a microphone to https pages and to localhost alone";
      return;
    }
    button.title = "Hold the mouse button, or the space bar, while you speak";
    button.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      button.setPointerCapture(event.pointerId);
      this.#press();
    });
    for (const end of ["pointerup", "pointercancel", "blur"]) {
      button.addEventListener(end, () => this.#release());
    }
    button.addEventListener("contextmenu", (event) => event.preventDefault());
    button.addEventListener("keydown", (event) => {
      if (event.key === " " || event.key === "Enter") {
        event.preventDefault();
        if (!event.repeat) this.#press();
      }
    });
    button.addEventListener("keyup", (event) => {
      if (event.key === " " || event.key === "Enter") this.#release();
    });
  }

  async #press() {
    if (this.#held || this.#session) return;
    this.#held = true;
    this.#show("Opening…", true);
    try {
      const session = await open((samples) => this.#handlers.sound(samples));
      this.#session = session;
      if (this.#held) this.#show("Speak now", true);
      else await this.#end();
    } catch (error) {
      this.#held = false;
      this.#show("Hold to talk", false);
      this.#handlers.failed(reason(error));
    }
  }

  async #release() {
    if (!this.#held) return;
    this.#held = false;
    this.#show("Hold to talk", false);
    if (this.#session) await this.#end();
  }

  async #end() {
    const session = this.#session;
    await session.close();
    for (let n = 0; n < SILENCE; n += 1) this.#handlers.sound(new Int16Array(CHUNK).buffer);
    this.#session = null;
    this.#show("Hold to talk", false);
  }

  #show(text, pressed) {
    this.#button.textContent = text;
    this.#button.setAttribute("aria-pressed", `${pressed}`);
  }
}

async function open(sound) {
  const stream = await navigator.mediaDevices.getUserMedia({
    audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true },
  });
  const context = new AudioContext();
  try {
    await context.audioWorklet.addModule("/static/resampler.js");
    const resampler = new AudioWorkletNode(context, "resampler", {
      numberOfOutputs: 0,
      processorOptions: { rate: RATE, chunk: CHUNK },
    });
    resampler.port.onmessage = ({ data }) => sound(data);
    context.createMediaStreamSource(stream).connect(resampler);
    await context.resume();
  } catch (error) {
    stream.getTracks().forEach((track) => track.stop());
    await context.close();
    throw error;
  }
  return {
    async close() {
      stream.getTracks().forEach((track) => track.stop());
      await context.close();
    },
  };
}

function reason(error) {
  const known = {
    NotAllowedError: "The browser does not allow the microphone: allow it for this page.",
    NotFoundError: "This computer has no microphone.",
    NotReadableError: "The microphone is used by another program.",
  };
  return known[error.name] ?? `The microphone cannot be used: ${error.message}`;
}

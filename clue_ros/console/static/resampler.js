// An AudioWorklet: sound of the browser's rate becomes int16 samples of another rate.
//
// Each output sample is a sum of the input around it, weighted by a sinc with a Hann window that
// cuts off below half of the lower rate, so that nothing folds back into speech.

const CROSSINGS = 16; // zero crossings of the sinc on each side
const PHASES = 64; // places between two input samples with weights of their own

class Resampler extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate, chunk } }) {
    super();
    this.step = sampleRate / rate; // input samples for each output sample
    this.weights = weightsFor(this.step);
    this.taps = this.weights[0].length;
    this.input = new Float32Array(this.taps); // silence before the first sample
    this.position = 0; // of the next output sample's first weight, in this.input
    this.chunk = chunk;
    this.output = new Int16Array(chunk);
    this.filled = 0;
  }

  process([channels]) {
    if (!channels?.length) return true;
    this.append(channels);
    while (Math.floor(this.position) + this.taps < this.input.length) {
      this.emit(this.sample());
      this.position += this.step;
    }
    const used = Math.floor(this.position);
    this.input = this.input.slice(used);
    this.position -= used;
    return true;
  }

  append(channels) {
    const joined = new Float32Array(this.input.length + channels[0].length);
    joined.set(this.input);
    const fresh = joined.subarray(this.input.length);
    for (const channel of channels) {
      for (let n = 0; n < fresh.length; n += 1) fresh[n] += channel[n] / channels.length;
    }
    this.input = joined;
  }

  sample() {
    const whole = Math.floor(this.position);
    const weights = this.weights[Math.floor((this.position - whole) * PHASES)];
    let sum = 0;
    for (let n = 0; n < weights.length; n += 1) sum += weights[n] * this.input[whole + n];
    return sum;
  }

  emit(value) {
    this.output[this.filled] = Math.round(Math.max(-1, Math.min(1, value)) * 32767);
    this.filled += 1;
    if (this.filled === this.chunk) {
      this.port.postMessage(this.output.buffer, [this.output.buffer]);
      this.output = new Int16Array(this.chunk);
      this.filled = 0;
    }
  }
}

function weightsFor(step) {
  const cutoff = 0.92 * Math.min(1, 1 / step); // in parts of the input's Nyquist frequency
  const half = Math.ceil(CROSSINGS / cutoff);
  return Array.from({ length: PHASES }, (_, phase) => {
    const weights = Float32Array.from({ length: 2 * half }, (__, n) => {
      const x = n - half + 1 - (phase + 0.5) / PHASES;
      if (Math.abs(x) >= half) return 0;
      const angle = Math.PI * cutoff * x;
      const sinc = x === 0 ? 1 : Math.sin(angle) / angle;
      return sinc * (0.5 + 0.5 * Math.cos((Math.PI * x) / half));
    });
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return weights.map((weight) => weight / sum);
  });
}

registerProcessor("resampler", Resampler);

// What all pages share: elements, requests, a WebSocket that reconnects, notices, navigation.

/** Make an element: el("button", {type: "button", class: "primary", onclick: f}, "Text", child). */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Replace an element's children. */
export function fill(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** Put an element over a box in pixels of an image that fills the element around it. */
export function place(element, [x0, y0, x1, y1], { width, height }) {
  element.style.left = `${(100 * x0) / width}%`;
  element.style.top = `${(100 * y0) / height}%`;
  element.style.width = `${(100 * (x1 - x0)) / width}%`;
  element.style.height = `${(100 * (y1 - y0)) / height}%`;
}

/**
 * Ask the server: api("/api/x"), api("/api/x", {method: "POST", json: {...}}), or {body: file}.
 * Returns the JSON answer; throws an Error with the server's own words.
 */
export async function api(path, { json, ...options } = {}) {
  if (json !== undefined) {
    options.method ??= "POST";
    options.body = JSON.stringify(json);
    options.headers = { "Content-Type": "application/json", ...options.headers };
  }
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 401) {
    throw new Error("This page needs a token: open the address that the program printed.");
  }
  const type = response.headers.get("Content-Type") ?? "";
  const answer = type.includes("json") ? await response.json() : await response.text();
  if (!response.ok) {
    const reason = answer.error ?? answer.detail ?? answer;
    throw new Error(typeof reason === "string" ? reason : JSON.stringify(reason));
  }
  return answer;
}

/**
 * A WebSocket that connects again by itself.
 *
 * handlers: message(object) for JSON, binary(ArrayBuffer), state("connecting" | "open" | "lost" |
 * "refused"). The server sends everything anew to each connection.
 */
export class Connection {
  #path; #handlers; #socket = null; #wait = 250; #timer = 0; #closed = false;

  constructor(path, handlers) {
    this.#path = path;
    this.#handlers = handlers;
    handlers.state?.("connecting");
    this.#connect();
    window.addEventListener("online", () => this.#again(0));
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Bytes that wait to be sent. */
  get waiting() {
    return this.#socket?.bufferedAmount ?? 0;
  }

  /** Send an object as JSON, or an ArrayBuffer as it is; false if there is no connection. */
  send(message) {
    if (!this.isOpen) return false;
    const binary = message instanceof ArrayBuffer || ArrayBuffer.isView(message);
    this.#socket.send(binary ? message : JSON.stringify(message));
    return true;
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  #connect() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const address = new URL(this.#path, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.onopen = () => {
      this.#wait = 250;
      this.#handlers.state?.("open");
    };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") this.#handlers.message?.(JSON.parse(data));
      else this.#handlers.binary?.(data);
    };
    socket.onclose = async () => {
      if (this.#closed || socket !== this.#socket) return;
      this.#handlers.state?.((await isRefused()) ? "refused" : "lost");
      this.#again(this.#wait);
      this.#wait = Math.min(this.#wait * 1.6, 4000);
    };
  }

  #again(milliseconds) {
    if (this.#closed || this.#socket?.readyState < WebSocket.CLOSING) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), milliseconds);
  }
}

async function isRefused() {
  try {
    const response = await fetch("/api/pages", { credentials: "same-origin" });
    return response.status === 401;
  } catch {
    return false;
  }
}

/** Show a short message; kind "error" stays until it is closed. */
export function notify(text, kind = "info") {
  let region = document.querySelector(".notices");
  if (!region) {
    region = el("div", { class: "notices", role: "region", "aria-label": "Notices" });
    document.body.append(region);
  }
  const same = [...region.children].find((shown) => shown.dataset.text === text);
  same?.remove();
  const role = kind === "error" ? "alert" : "status";
  const notice = el("div", { class: `notice ${kind}`, role, "data-text": text });
  notice.append(
    el("span", {}, text),
    el("button", { type: "button", onclick: () => notice.remove() }, "Close"),
  );
  region.append(notice);
  while (region.children.length > 4) region.firstElementChild.remove();
  if (kind !== "error") setTimeout(() => notice.remove(), 8000);
}

/** Fill <nav class="site-nav"> with the pages that this server has. */
export async function showNavigation() {
  const nav = document.querySelector(".site-nav");
  if (!nav) return;
  const pages = await api("/api/pages").catch(() => []);
  const list = el("ul");
  for (const { path, title } of pages) {
    const current = location.pathname === path ? "page" : undefined;
    list.append(el("li", {}, el("a", { href: path, "aria-current": current }, title)));
  }
  fill(nav, list);
}

// The cookie holds the token now: keep it out of the address bar, bookmarks and screenshots.
const address = new URL(location.href);
if (address.searchParams.has("token")) {
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}
showNavigation();

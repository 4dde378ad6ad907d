// A browser starts no worker from a page on disk, and search needs one: there a hidden frame does its work.
// The name is the one that zensical looks for before it asks another host for such a file.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame;
      const inside = frame.contentWindow;
      this.ready = new Promise((resolve) => {
        inside.postMessage = (data) => this.answer(data);
        inside.importScripts = () => {};
        const script = frame.contentDocument.createElement("script");
        script.src = new URL(address, location.href);
        script.onload = resolve;
        frame.contentDocument.body.appendChild(script);
      });
    }

    // What the worker says, told as a worker would.
    answer(data) {
      setTimeout(() => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}

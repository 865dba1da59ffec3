// Runs the search in a hidden frame when the site is opened from a folder: browsers start no worker from a file:// URL.
// Without this file, mkdocs-material's offline plugin loads a script of the same purpose from the network.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        frame.contentDocument.body.append(script);
      });
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}

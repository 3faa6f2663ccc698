// Search in pages that were opened as files: browsers start no worker there, so the worker's script runs in a hidden frame.
// The theme looks for this name; it would fetch a script from elsewhere if mkdocs.yml named no other.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      const script = frame.contentDocument.createElement("script");
      this.ready = new Promise((resolve) => script.addEventListener("load", resolve));
      script.src = url;
      frame.contentDocument.body.append(script);
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.scope.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}

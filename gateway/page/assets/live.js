// Follows /internal/overview/stream, and connects again when it ends.

const STREAM = "internal/overview/stream";
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15000;

// The pause before an attempt: it doubles, and varies by a quarter so that many pages do not come at once.
export function pauseBefore(attempt, random = Math.random()) {
  const whole = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(attempt, 10));
  return whole * (0.75 + random / 2);
}

// Runs as long as the page.
export async function follow(api, store) {
  for (let attempt = 0; ; attempt += 1) {
    let reason = "the server has ended the connection";
    try {
      await api.events(STREAM, (event, text) => {
        const data = JSON.parse(text);
        if (event === "error") reason = data.error;
        else attempt = 0;
        store.receive(event, data);
      });
      lose(store, attempt, "lost", reason);
    } catch (problem) {
      if (problem.status === 401) store.setConnection("refused", "the server needs an API key"); // the header has a button for it
      else lose(store, attempt, problem.status ? "refused" : "lost", problem.message);
    }
    await until(store.connection.retryAt);
    store.setConnection("connecting", store.connection.message);
  }
}

function lose(store, attempt, state, message) {
  store.setConnection(state, message, Date.now() + pauseBefore(attempt));
}

// Waits until a time (0: for ever), or until the machine has a network again or the page is looked at again.
function until(time) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      document.removeEventListener("visibilitychange", looked);
      resolve();
    };
    const looked = () => {
      if (!document.hidden) end();
    };
    const timer = time && setTimeout(end, Math.max(0, time - Date.now()));
    window.addEventListener("online", end);
    document.addEventListener("visibilitychange", looked);
  });
}

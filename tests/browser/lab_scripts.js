// What the tests ask of JupyterLab's own application object; loaded into every page as `window.labtest`.
// Nothing here waits: a call answers at once, and the tests poll, so that a time-out is the tests' own.
(() => {
  const app = () => window.jupyterapp;
  const panel = () => app()?.shell.currentWidget;
  const model = () => panel()?.content?.model;
  const cells = () => panel().content.widgets;
  const kernel = () => panel()?.context?.sessionContext?.session?.kernel;
  const jobs = new Map();
  let next = 0;

  // A promise becomes a job: {done, error}, to be polled.
  function begin(promise) {
    const job = { done: false, error: null };
    jobs.set(++next, job);
    Promise.resolve(promise)
      .catch((error) => {
        job.error = String(error?.stack ?? error);
      })
      .finally(() => {
        job.done = true;
      });
    return next;
  }

  // What the page has asked the kernel and the kernel has not yet finished: a request needs its reply and the kernel's
  // idle after it, any other message (a widget's click) the idle alone. A widget's message that comes while a cell
  // awaits is handled beside the cell, and no idle is told of it (ipykernel 7); but messages are handled in their order,
  // so that it is done once a later request is, and where there is none `unanswered` makes one.
  const asked = new Map();
  const watched = new WeakSet();
  const COMM = ["idle"];
  const isRequest = (parts) => parts !== COMM;

  function watch(connection) {
    if (!connection || watched.has(connection)) return;
    watched.add(connection);
    connection.anyMessage.connect((_, { msg, direction }) => {
      const { msg_id, msg_type } = msg.header;
      if (direction === "send") {
        if (msg.channel !== "stdin") asked.set(msg_id, msg_type.endsWith("_request") ? ["reply", "idle"] : COMM);
        return;
      }
      const idle = msg_type === "status" && msg.content.execution_state === "idle";
      answered(msg.parent_header?.msg_id, idle ? "idle" : msg_type.endsWith("_reply") ? "reply" : null);
    });
    connection.statusChanged.connect((_, status) => {
      if (["restarting", "autorestarting", "dead"].includes(status)) asked.clear();
    });
  }

  function answered(id, part) {
    const parts = asked.get(id);
    const open = (parts ?? []).filter((each) => each !== part);
    if (open.length === parts?.length) return;
    if (open.length) return asked.set(id, open);
    if (parts && isRequest(parts)) forgetMessagesBefore(id);
    asked.delete(id);
  }

  function forgetMessagesBefore(id) {
    for (const [earlier, parts] of [...asked]) {
      if (earlier === id) return;
      if (!isRequest(parts)) asked.delete(earlier);
    }
  }

  function unanswered() {
    if (asked.size && ![...asked.values()].some(isRequest))
      kernel()
        ?.requestKernelInfo()
        .catch(() => {});
    return asked.size;
  }

  const until = async (holds) => {
    while (!holds()) await new Promise((resolve) => setTimeout(resolve, 20));
  };

  // A notebook alone in the main area, its kernel ready.
  async function open(path) {
    await until(app);
    await app().restored;
    await close();
    await app().commands.execute("docmanager:open", { path, factory: "Notebook" });
    await until(() => panel()?.context && model());
    await panel().context.ready;
    watch(kernel());
    await panel().context.sessionContext.ready;
    watch(kernel());
    await panel().revealed;
    app().shell.collapseLeft();
  }

  // Closes every tab without saving. What the page awaited of their kernels is forgotten.
  async function close() {
    const open = [...app().shell.widgets("main")];
    for (const widget of open) {
      if (widget.context) widget.context.model.dirty = false;
      widget.close();
    }
    await until(() => open.every((widget) => widget.isDisposed));
    asked.clear();
  }

  let covered = null;

  // Another tab in front of the notebook, and away again.
  async function cover() {
    covered = panel();
    await app().commands.execute("launcher:create");
    await until(() => !covered.isVisible && panel() !== covered);
  }

  async function uncover() {
    const others = [...app().shell.widgets("main")].filter((widget) => widget !== covered);
    for (const widget of others) widget.close();
    await until(() => others.every((widget) => widget.isDisposed));
    app().shell.activateById(covered.id);
    await until(() => covered.isVisible && panel() === covered);
  }

  window.labtest = {
    cover: () => begin(cover()),
    uncover: () => begin(uncover()),
    open: (path) => begin(open(path)),
    close: () => begin(close()),
    isLoaded: () => Boolean(app()),
    poll: (job) => jobs.get(job),
    status: () => kernel()?.status ?? "none",
    unanswered,
    splash: () => document.getElementById("jupyterlab-splash") !== null,
    command: (id, args) => begin(app().commands.execute(id, args ?? {})),
    select: (i) => {
      panel().content.activeCellIndex = i;
      panel().content.deselectAll();
    },
    addCell: (source, kind) => {
      const shared = model().sharedModel;
      shared.insertCell(shared.cells.length, { cell_type: kind, source });
      return shared.cells.length - 1;
    },
    // Plotly's widget logs an error when its chart changes and is on no page: a chart's cell stays.
    removeCells: (first) => {
      for (let i = cells().length - 1; i >= first; i--)
        if (!cells()[i].node.querySelector(".js-plotly-plot")) model().sharedModel.deleteCell(i);
    },
    setSource: (i, source) => {
      model().cells.get(i).sharedModel.setSource(source);
    },
    sources: () => cells().map((cell) => cell.model.sharedModel.getSource()),
    outputs: (i) => cells()[i].model.outputs?.toJSON() ?? [],
    allOutputs: () => cells().map((cell) => cell.model.outputs?.toJSON() ?? []),
    counts: () => cells().map((cell) => cell.model.executionCount ?? null),
    theme: () => document.body.dataset.jpThemeName ?? null,
  };

  // At the pace of reading a step takes a minute: plays are faster here, unless a test chooses a speed.
  const hurried = new WeakSet();
  new MutationObserver(() => {
    for (const { stage } of document.querySelectorAll(".labengine")) {
      if (!stage || hurried.has(stage)) continue;
      hurried.add(stage);
      stage.player.speed = 8;
    }
  }).observe(document, { subtree: true, childList: true });
})();

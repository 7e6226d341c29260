// The lab's Python in a worker, with the real model's weights.
import { fetched } from "./fetched.ts";
import type { Page } from "./python.ts";
import { begin, post } from "./python.ts";
import type { ModelNews } from "./real_model.ts";
import type { Files } from "./weights.ts";
import { areKept, listed } from "./weights.ts";

function tell(news: ModelNews) {
  post("model", { ...news });
}

// The real model's weights; only those that are kept here, unless the reader has asked for them.
async function loadModel(page: Page, isAsked: boolean) {
  try {
    const files = await listed();
    if (isAsked || (await areKept(files))) {
      await fill(page, files);
      tell({ state: "loaded" });
    } else tell({ state: "absent" });
  } catch (error) {
    tell({ state: "failed", message: (error as Error).message });
  }
}

async function fill(page: Page, files: Files) {
  const { kernels, at, total } = await fetched(files, (arrived, total) => tell({ state: "loading", arrived, total })),
    refusal = page.load_model(kernels, at, total, files.name, files.digest);
  if (refusal) throw new Error(refusal);
}

begin((py) => {
  const { LivePage } = py.pyimport("labengine.live_page.page"),
    page = LivePage((kind, content, buffers) => post(kind, JSON.parse(content), buffers.toJs()));
  self.onmessage = ({ data }) => {
    if (data.type === "load_model") void loadModel(page, data.is_asked);
    else page.receive(JSON.stringify(data));
  };
});

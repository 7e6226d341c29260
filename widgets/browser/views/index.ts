// The views by name.
import * as charts from "./charts/charts.ts";
import * as log from "./log/log.ts";
import * as map from "./map/map.ts";
import * as pool from "./pool/pool.ts";
import * as queue from "./queue/queue.ts";
import * as step from "./step/step.ts";
import * as tables from "./tables/tables.ts";
import * as tier from "./tier/tier.ts";
import * as timeline from "./timeline/timeline.ts";
import * as tree from "./tree/tree.ts";
import type { ViewModule } from "./view.ts";
import * as why from "./why/why.ts";

export const VIEWS: Record<string, ViewModule> = {
  charts,
  log,
  map,
  pool,
  queue,
  step,
  tables,
  tier,
  timeline,
  tree,
  why,
};

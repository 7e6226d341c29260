// The views by name.
import * as bands from "./bands.ts";
import * as charts from "./charts.ts";
import * as code from "./code.ts";
import * as groups from "./groups.ts";
import * as log from "./log.ts";
import * as map from "./map.ts";
import * as pool from "./pool.ts";
import * as queue from "./queue.ts";
import * as step from "./step.ts";
import * as tables from "./tables.ts";
import * as tier from "./tier.ts";
import * as timeline from "./timeline.ts";
import type { ViewModule } from "./view.ts";
import * as why from "./why.ts";

export const VIEWS: Record<string, ViewModule> = {
  bands,
  charts,
  code,
  groups,
  log,
  map,
  pool,
  queue,
  step,
  tables,
  tier,
  timeline,
  why,
};
